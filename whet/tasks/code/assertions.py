"""Read what a response says of a call of `f`: a literal, an assertion, or arguments. Parsed, and
nothing is run."""

import ast
from dataclasses import dataclass

from whet.tasks.code import plain, tests_text

Arguments = tuple[tuple[object, ...], dict[str, object]]

MAX_CHARS = 4096


@dataclass(frozen=True, slots=True)
class Claim:
    """An output, and the call that is said to give it where it stands in an assertion."""

    value: object
    call: ast.Call | None


def literal(text: str) -> tuple[object] | None:
    """Read one Python literal, wrapped so that None can be told from nothing.

    >>> literal("{'a': (1, 2)}"), literal("f(1)")
    (({'a': (1, 2)},), None)
    """
    node = _expression(text)
    return None if node is None else _value(node)


def same(one: object, other: object) -> bool:
    """Compare values as Python does, with their types: True is not 1, and 1 is not 1.0.

    >>> same([1, {"a": 2}], [1, {"a": 2}]), same([True, 2], [1, 2]), same({1.0}, {1})
    (True, False, False)
    """
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return all(same(left, right) for left, right in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        own = {key: key for key in other}
        return all(same(key, own[key]) and same(item, other[key]) for key, item in one.items())
    if isinstance(one, set | frozenset) and isinstance(other, set | frozenset):
        found = {item: item for item in other}
        return all(same(item, found[item]) for item in one)
    return True


def read_output(text: str) -> Claim | None:
    node = _expression(text)
    call = None
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        call = node.left if isinstance(node.left, ast.Call) and _is_call(node.left) else None
        node = node.comparators[0] if call is not None else None
    value = None if node is None else _value(node)
    return None if value is None else Claim(value[0], call)


def read_arguments(text: str) -> Arguments | None:
    node = _expression(text)
    if isinstance(node, ast.Compare) and len(node.ops) == 1 and isinstance(node.ops[0], ast.Eq):
        node = node.left
    if node is not None and not _is_call(node):
        node = _expression(f"f({text.strip()})")
    if not isinstance(node, ast.Call) or not _is_call(node):
        return None
    args = [_value(argument) for argument in node.args]
    named = {keyword.arg: _value(keyword.value) for keyword in node.keywords}
    if any(value is None for value in (*args, *named.values())) or None in named:
        return None
    return tuple(value[0] for value in args if value), {
        name: value[0] for name, value in named.items() if name and value
    }


def _is_call(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "f"


def is_same_call(said: ast.Call, given: str, program: str) -> bool:
    """Whether a call has the arguments of a text such as `'hello', n=3`, by place or by name."""
    asked = _expression(f"f({given})")
    names = _parameters(program)
    return not isinstance(asked, ast.Call) or _same_arguments(
        _bound(said, names), _bound(asked, names)
    )


def _expression(text: str) -> ast.expr | None:
    """Parse an expression, or the condition of an assertion; a longer block by its last line."""
    text = text.strip()
    if len(text) > MAX_CHARS:
        return None
    for source in dict.fromkeys((text, text.rpartition("\n")[2])):
        tree = tests_text.parse(source.strip())
        node = tree.body[0] if tree is not None and len(tree.body) == 1 else None
        if isinstance(node, ast.Assert):
            return node.test
        if isinstance(node, ast.Expr):
            return node.value
    return None


def _value(node: ast.expr) -> tuple[object] | None:
    try:
        value = ast.literal_eval(node)
        plain.encode(value)  # the dots of `f(...)` are a literal too
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError, plain.NotPlainError):
        return None
    return (value,)


def _parameters(program: str) -> list[str]:
    """List the names by which f takes its arguments, in order."""
    tree = tests_text.parse(program)
    defined = [
        node
        for node in (tree.body if tree else [])
        if isinstance(node, ast.FunctionDef) and node.name == "f"
    ]
    return (
        [each.arg for each in (*defined[-1].args.posonlyargs, *defined[-1].args.args)]
        if defined
        else []
    )


def _bound(call: ast.Call, names: list[str]) -> dict[str, ast.expr]:
    """Name the arguments of a call; those without a name go by their place."""
    placed = dict(zip(names, call.args, strict=False))
    placed |= {
        str(place): node for place, node in enumerate(call.args[len(names) :], start=len(names))
    }
    return placed | {keyword.arg or "**": keyword.value for keyword in call.keywords}


def _same_arguments(one: dict[str, ast.expr], other: dict[str, ast.expr]) -> bool:
    if one.keys() != other.keys():
        return False
    for name, node in one.items():
        left = _value(node)
        right = _value(other[name])
        is_same = (
            same(left[0], right[0]) if left and right else ast.dump(node) == ast.dump(other[name])
        )
        if not is_same:
            return False
    return True
