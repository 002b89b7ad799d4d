"""Whether an answer is the reference: a fast exact path for plain numbers, then the trees, then math-verify."""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from whet.tasks.math import tree
from whet.tasks.math.clock import time_of
from whet.tasks.math.compare import same
from whet.tasks.math.exact import exact
from whet.tasks.math.find import find_answer
from whet.tasks.math.normal import wording
from whet.tasks.math.policy import Policy
from whet.tasks.math.reader import Reading, readings
from whet.tasks.math.symbolic import same_by_math_verify
from whet.tasks.math.tree import Node
from whet.tasks.math.words import UNIT_NAMES

MAX_CHARS = 20_000
"""Longer answers are only compared as they are written."""
_POINTS = re.compile(r"\b(?:answer|result|solution|value|mode|mean)s?\s+(?:is|are)\b|####", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(r"-?[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})")


def is_same(gold: str, answer: str, policy: Policy) -> bool:
    """Compare an answer with one reference."""
    left, right = exact(gold), exact(answer)
    if left is not None and right is not None:
        if left == right:
            return True
        if "." not in gold and "." not in answer and not policy.tolerance and not policy.error:
            return False
    if len(answer) > MAX_CHARS or len(gold) > MAX_CHARS:
        return gold == answer
    return _is_same(core(gold), core(answer), policy)


@lru_cache(1 << 14)
def _is_same(gold: str, answer: str, policy: Policy) -> bool:
    if wording(gold) == wording(answer):
        return wording(gold) != ""
    times = time_of(gold), time_of(answer)
    if times[0] is not None and times[1] is not None:
        return times[0] == times[1]
    known, given = readings(gold), readings(answer)
    for reference in known:
        for reading in given:
            if _units_agree(reference.units, reading.units, policy) and _same_reading(reference, reading, policy):
                return True
    if _same_with_comma(gold, answer, policy):
        return True
    if known and given:
        return False
    return same_by_math_verify(gold, answer)


def is_written(gold: str, response: str) -> bool:
    """Whether a response is nothing but the reference, in its own words."""
    return len(response) <= 2 * len(gold) + 40 and bool(gold.strip()) and wording(gold) == wording(response) != ""


@lru_cache(1 << 12)
def core(text: str) -> str:
    """Take the answer out of a reference, or the inside of a box, that is a worked solution or a sentence."""
    if len(text) > MAX_CHARS or ("boxed" not in text and (exact(text) is not None or readings(text))):
        return text
    found = find_answer(text) if "boxed" in text or _POINTS.search(text) else None
    return text if found is None else found.text


def _same_reading(gold: Reading, answer: Reading, policy: Policy) -> bool:
    for left in _percents(gold.node, policy):
        for right in _percents(answer.node, policy):
            if same(left, right, policy):
                return True
    return False


def _percents(node: Node, policy: Policy) -> Iterator[Node]:
    """Read the percent signs of an answer as the policy says: as a unit, as hundredths, or either."""
    if not any(part.name == "percent" for part in tree.walk(node)):
        yield node
        return
    if policy.percent != "value":
        yield _with_percent(node, tree.ONE)
    if policy.percent != "unit":
        yield _with_percent(node, tree.number(Fraction(1, 100)))


def _with_percent(node: Node, scale: Node) -> Node:
    if node.kind == "call" and node.name == "percent":
        return tree.mul(_with_percent(node.args[0], scale), scale)
    return tree.rebuilt(node, [_with_percent(part, scale) for part in node.args]) if node.args else node


def _units_agree(gold: tuple[str, ...], answer: tuple[str, ...], policy: Policy) -> bool:
    if policy.units == "ignore":
        return True
    left, right = _unit(gold), _unit(answer)
    if policy.units == "same":
        return left == right
    is_known = all(word in _NAMES for word in (*left, *right))
    return not left or not right or left == right or not is_known


_NAMES = frozenset(UNIT_NAMES.values()) | {"^2", "^3"}


def _unit(words: tuple[str, ...]) -> tuple[str, ...]:
    """Spell a unit one way: square centimeters is cm ^2."""
    found: list[str] = []
    for word in " ".join(words).lower().replace("/", " ").split():
        if word in ("square", "sq", "cubic"):
            found.append("^3" if word == "cubic" else "^2")
        elif word not in ("per", "of", "the", "unit", "units"):
            found.append(UNIT_NAMES.get(word, word))
    return tuple(sorted(found))


def _same_with_comma(gold: str, answer: str, policy: Policy) -> bool:
    """Read 1,22 as 1.22 where the other side is such a number."""
    for comma, other in ((gold, answer), (answer, gold)):
        bare = comma.strip(" $")
        if _DECIMAL_COMMA.fullmatch(bare) and "." in other:
            return exact(bare.replace(",", ".")) == exact(other.strip(" $"))
    return False
