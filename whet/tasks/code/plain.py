"""Plain data across a pipe: values as a flat list, read back into the same built-in types only.

Entries are in postfix order: a container follows its items and says how many there are. By
construction, the result is a tree of types whose equality nobody can override, even if the writer
is hostile.

Lists, dicts, sets, deques and records in a call's arguments are its mutable parts, which both sides
number alike. The answer says which of them the call changed, and refers to them by number.

>>> encode_value([1, (2.5, "a")])
[1, ['f', '0x1.4000000000000p+1'], 'a', ['t', 2], ['l', 2]]
>>> decode_value(encode_value({"a": {1, 2}}))
{'a': {1, 2}}
"""

import numbers
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import NoReturn

Entry = None | bool | int | str | list[str | int]

MAX_ENTRIES = 1 << 20
_SMALL = 1 << 53
_BARE = (bool, str)
_ATOMS = (bool, str, int, float, type(None))


class NotPlainError(Exception):
    """A value that cannot cross, or entries that are not a value."""


class Remote:
    """An object that stays in the other process, known by its number."""

    def __init__(self, number: int, kind: str, is_true: bool) -> None:
        self.remote_number = number
        self.remote_kind = kind
        self.remote_truth = is_true


def encode_value(
    value: object,
    records: Mapping[str, type] | None = None,
    keep: Callable[[object], int] | None = None,
    parts: Mapping[int, int] | None = None,
) -> list[Entry]:
    """Write a value; instances of `records` cross by their fields, and `keep` numbers all others.

    `parts` maps the ids of objects that the reader already has to their numbers.
    """
    known = records or {}
    numbered = parts or {}
    entries = list[Entry]()
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if item is None or type(item) in _BARE:
            entries.append(item)  # type: ignore[arg-type]  # None, a truth value or a text
            continue
        if id(item) in numbered:
            entries.append(["a", numbered[id(item)]])
            continue
        entry, children = _open(item, known, keep)
        entries.append(entry)
        waiting += children
        if len(entries) + len(waiting) > MAX_ENTRIES:
            raise NotPlainError(f"a value of more than {MAX_ENTRIES} parts")
    # entries are written from outside in and last to first, so the reverse is postfix order
    entries.reverse()
    return entries


def decode_value(
    entries: object,
    records: Mapping[str, type] | None = None,
    remote: Callable[[int, str, bool], object] = Remote,
    parts: Sequence[object] = (),
) -> object:
    """Read a value; anything that `encode_value` cannot have written is a NotPlainError."""
    stack: list[object] = []
    try:
        if not isinstance(entries, list):
            raise ValueError("not a list")
        for entry in entries:
            if not isinstance(entry, list):
                stack.append(entry)
            elif entry[0] == "a" and isinstance(entry[1], int) and entry[1] >= 0:
                stack.append(parts[entry[1]])
            else:
                stack.append(_close(entry, stack, records or {}, remote))
        (value,) = stack
    except (ValueError, TypeError, KeyError, IndexError, ArithmeticError, AttributeError) as error:
        raise NotPlainError(f"not plain data: {error}") from error
    return value


def mutable_parts(value: object, records: Mapping[str, type]) -> list[object]:
    """List the parts of a value that a call can change, in the same order on both sides.

    >>> mutable_parts(([1, {"a": [2]}], (3, [4])), {})
    [[4], [1, {'a': [2]}], {'a': [2]}, [2]]
    """
    parts: list[object] = []
    waiting = [value]
    while waiting:
        item = waiting.pop()
        if isinstance(item, list | dict | deque | set) or type(item).__name__ in records:
            parts.append(item)
        if isinstance(item, list | tuple | deque):
            waiting += [one for one in item if type(one) not in _ATOMS]
        elif isinstance(item, dict):
            waiting += item.values()
        elif type(item).__name__ in records:
            waiting += vars(item).values()
    return parts


def contents_of(part: object) -> tuple[object, ...]:
    """List the contents of a mutable part, alternating keys and values for dicts and records."""
    if isinstance(part, list | deque | set):
        return tuple(part)
    return tuple(_pairs(part if isinstance(part, dict) else vars(part)))


def replace_contents(part: object, contents: object) -> None:
    """Replace the contents of a mutable part with the new contents of its counterpart."""
    if not isinstance(contents, tuple):
        raise NotPlainError("what a part holds is not a tuple")
    if isinstance(part, list):
        part[:] = contents
    elif isinstance(part, deque):
        part.clear()
        part.extend(contents)
    elif isinstance(part, set):
        items = set(contents)
        part.clear()
        part.update(items)
    else:
        table = dict(zip(contents[::2], contents[1::2], strict=True))
        fields = part if isinstance(part, dict) else vars(part)
        fields.clear()
        fields.update(table)


def _open(
    value: object, records: Mapping[str, type], keep: Callable[[object], int] | None
) -> tuple[Entry, list[object]]:
    """Split a value into its entry and its items."""
    for kind, write in _WRITERS.items():
        if isinstance(value, kind):
            return write(value)
    name = type(value).__name__
    if name in records:
        fields = vars(value)
        return ["o", name, len(fields)], _pairs(fields)
    if isinstance(value, Remote):
        return ["h", value.remote_number, value.remote_kind, int(value.remote_truth)], []
    if keep is not None:
        return ["h", keep(value), name, int(bool(value))], []
    return _refuse(value)


def _pairs(table: Mapping[object, object] | dict[str, object]) -> list[object]:
    return [part for pair in table.items() for part in pair]


def _refuse(value: object) -> NoReturn:
    raise NotPlainError(f"a {type(value).__name__} is not plain data")


def _sequence(mark: str, value: Iterable[object]) -> tuple[Entry, list[object]]:
    items = list(value)
    return [mark, len(items)], items


def _integer(value: numbers.Integral) -> tuple[Entry, list[object]]:
    whole = int(value)
    return (whole if -_SMALL < whole < _SMALL else ["i", hex(whole)]), []


_SEQUENCES = {list: "l", tuple: "t", set: "s", frozenset: "z", deque: "q"}
_WRITERS: dict[type, Callable[..., tuple[Entry, list[object]]]] = {
    int: _integer,
    str: lambda text: (str(text), []),
    **{kind: partial(_sequence, mark) for kind, mark in _SEQUENCES.items()},
    **dict.fromkeys((bytes, bytearray), lambda data: (["b", bytes(data).hex()], [])),
    dict: lambda table: (["d", len(table)], _pairs(table)),
    range: lambda value: (["r", 3], [value.start, value.stop, value.step]),
    numbers.Integral: _integer,
    Fraction: lambda value: (["F", 2], [value.numerator, value.denominator]),
    Decimal: lambda value: (["D", str(value)], []),
    numbers.Real: lambda value: (["f", float(value).hex()], []),
    complex: lambda value: (["c", 2], [value.real, value.imag]),
    numbers.Number: _refuse,
}
"""How to split a value, by its type; the first type that fits counts."""
_BUILDERS: dict[str, Callable[[list[object]], object]] = {
    **{mark: kind for kind, mark in _SEQUENCES.items()},
    "d": lambda items: dict(zip(items[::2], items[1::2], strict=True)),
    # a wrong type raises, and is caught
    "r": lambda items: range(*items),  # type: ignore[call-overload]
    "F": lambda items: Fraction(*items),  # type: ignore[call-overload]
    "c": lambda items: complex(*items),  # type: ignore[call-overload]
}
_READERS: dict[str, Callable[[str], object]] = {
    "i": lambda text: int(text, 16),
    "f": float.fromhex,
    "D": Decimal,
    "b": bytes.fromhex,
}


def _close(
    entry: list[object],
    stack: list[object],
    records: Mapping[str, type],
    remote: Callable[[int, str, bool], object],
) -> object:
    mark = entry[0]
    content = entry[1]
    if isinstance(mark, str) and mark in _READERS and isinstance(content, str):
        return _READERS[mark](content)
    if mark == "h" and isinstance(content, int) and isinstance(entry[2], str):
        return remote(content, entry[2], bool(entry[3]))
    if mark == "o" and isinstance(content, str) and isinstance(entry[2], int):
        items = _pop(stack, 2 * entry[2])
        record: object = object.__new__(records[content])
        for key, item in zip(items[::2], items[1::2], strict=True):
            vars(record)[str(key)] = item
        return record
    if isinstance(mark, str) and isinstance(content, int):
        return _BUILDERS[mark](_pop(stack, 2 * content if mark == "d" else content))
    raise ValueError(f"unknown entry {str(entry)[:40]}")


def _pop(stack: list[object], num: int) -> list[object]:
    if not 0 <= num <= len(stack):
        raise ValueError("a container of more items than there are")
    start = len(stack) - num
    items = stack[start:]
    del stack[start:]
    return items
