"""Read Python literals and expressions without running them, and compare values."""

import ast
import json
import re

from whet.answers.doubt import is_doubtful
from whet.answers.withdrawal import is_disowned
from whet.tasks.code import plain, tests_text

_MAX_CHARS = 4096
_FULL_STOP = re.compile(r"(?<=[0-9])\.\Z(?<![0-9]\.[0-9]\.)")
"""After a whole number, a point that ends the sentence."""


def read_literal(text: str) -> tuple[object] | None:
    """Read one Python literal, wrapped in a tuple so that None differs from nothing.

    >>> read_literal("{'a': (1, 2)}"), read_literal("f(1)")
    (({'a': (1, 2)},), None)
    """
    node = read_expression(text)
    return None if node is None else value_of(node)


def is_same_value(one: object, other: object) -> bool:
    """Compare values as Python does, with their types: True is not 1, and 1 is not 1.0.

    >>> is_same_value([1, {"a": 2}], [1, {"a": 2}])
    True
    >>> is_same_value([True, 2], [1, 2]), is_same_value({1.0}, {1})
    (False, False)
    """
    if type(one) is not type(other) or one != other:
        return False
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return all(is_same_value(left, right) for left, right in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        own = {key: key for key in other}
        return all(
            is_same_value(key, own[key]) and is_same_value(item, other[key])
            for key, item in one.items()
        )
    if isinstance(one, set | frozenset) and isinstance(other, set | frozenset):
        twins = {item: item for item in other}
        return all(is_same_value(item, twins[item]) for item in one)
    return True


def read_expression(text: str) -> ast.expr | None:
    """Parse an expression, or the condition of an assertion; for a longer block, its last line."""
    text = _FULL_STOP.sub("", text.strip())
    if len(text) > _MAX_CHARS:
        return None
    line = text.rpartition("\n")[2]
    for source in dict.fromkeys((text, line, _closing_assertion(line))):
        tree = tests_text.parse_python(source.strip())
        node = tree.body[0] if tree is not None and len(tree.body) == 1 else None
        if isinstance(node, ast.Assert):
            return node.test
        if isinstance(node, ast.Expr):
            return node.value
    return None


def _closing_assertion(line: str) -> str:
    """Return the only assertion, which ends a sentence: `so we may take assert f(1) == 2.`"""
    lead, assertion, rest = line.rpartition("assert ")
    if not lead or "assert " in lead or is_doubtful(lead) or is_disowned(f"{lead.rstrip(' :`')}:"):
        return ""
    return assertion + rest.rstrip(" .`*")


def value_of(node: ast.expr) -> tuple[object] | None:
    """Evaluate a literal, wrapped in a tuple so that None differs from nothing."""
    try:
        value = ast.literal_eval(node)
        plain.encode_value(value)  # `...` is a literal for Python too, but does not cross
    except (ValueError, TypeError, RecursionError, MemoryError, SyntaxError, plain.NotPlainError):
        return None
    return (value,)


def equal(value: object, wanted: object, depth: int = 0) -> bool:
    """Compare as JSON: tuples are lists, keys are text, true is not 1.

    >>> equal((1, {2: 1.0}), [1, {"2": 1}]), equal(True, 1)
    (True, False)
    """
    if depth > 100 or isinstance(value, bool) is not isinstance(wanted, bool):
        return False
    if isinstance(value, list | tuple) and isinstance(wanted, list | tuple):
        if len(value) != len(wanted):
            return False
        return all(equal(one, two, depth + 1) for one, two in zip(value, wanted, strict=True))
    if isinstance(value, dict) and isinstance(wanted, dict):
        own = {_key(key): item for key, item in value.items()}
        other = {_key(key): item for key, item in wanted.items()}
        if own.keys() != other.keys():
            return False
        return all(equal(own[key], other[key], depth + 1) for key in own)
    is_number = isinstance(value, int | float) and isinstance(wanted, int | float)
    return (is_number or type(value) is type(wanted)) and value == wanted


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    return json.dumps(key) if isinstance(key, int | float | None) else repr(key)
