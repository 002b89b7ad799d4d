"""Whether an answer is the reference: a fast exact path for plain numbers, then the trees, then
math-verify."""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from whet.tasks.math import tree
from whet.tasks.math.clock import time_of
from whet.tasks.math.compare import same
from whet.tasks.math.exact import exact
from whet.tasks.math.find import find_answer
from whet.tasks.math.normal import normal, wording
from whet.tasks.math.policy import Policy
from whet.tasks.math.reader import Reading, readings
from whet.tasks.math.scalars import has_degrees
from whet.tasks.math.symbolic import same_by_math_verify
from whet.tasks.math.tree import Node
from whet.tasks.math.values import same_value
from whet.tasks.math.words import UNIT_NAMES
from whet.text.extract import boxed

MAX_CHARS = 20_000
"""Longer answers are only compared as they are written."""
_POINTS = re.compile(
    r"\b(?:answer|result|solution|value|mode|mean)s?\s+(?:is|are)\b|####", re.IGNORECASE
)
_DECIMAL_COMMA = re.compile(r"-?[0-9]+,(?:[0-9]{1,2}|[0-9]{4,})")

_TWO_DECIMALS = re.compile(r"-?[0-9]+,[0-9]{2}")


def is_same(gold: str, answer: str, policy: Policy) -> bool:
    """Compare an answer with one reference."""
    left = exact(gold)
    right = exact(answer)
    if left is not None and right is not None:
        if left == right:
            return True
        if "." not in gold and "." not in answer and not policy.tolerance and not policy.error:
            return False
    if len(answer) > MAX_CHARS or len(gold) > MAX_CHARS:
        return gold == answer
    gold = core(gold)
    answer = core(answer)
    return _is_same(gold, answer, policy) or _is_same_choice(gold, answer, policy)


@lru_cache(1 << 14)
def _is_same(gold: str, answer: str, policy: Policy) -> bool:
    if wording(gold) == wording(answer):
        return wording(gold) != ""
    times = time_of(gold), time_of(answer)
    if times[0] is not None and times[1] is not None:
        return times[0] == times[1]
    known = readings(gold)
    given = readings(answer)
    for reference in known:
        for reading in given:
            if _units_agree(reference.units, reading.units, policy) and (
                _same_angle(reference, reading)
                if _is_in_radians(reference, reading) or _is_in_radians(reading, reference)
                else _same_reading(reference, reading, policy)
            ):
                return True
    if _same_with_comma(gold, answer, policy):
        return True
    if known and given:
        return False
    return same_by_math_verify(gold, answer)


def is_written(gold: str, response: str) -> bool:
    """Whether a response is nothing but the reference, in its own words."""
    return (
        len(response) <= 2 * len(gold) + 40
        and bool(gold.strip())
        and wording(gold) == wording(response) != ""
    )


@lru_cache(1 << 12)
def core(text: str) -> str:
    """Take the answer out of a reference, or the inside of a box, that is a worked solution or a
    sentence."""
    if len(text) > MAX_CHARS or (
        "boxed" not in text and (exact(text) is not None or readings(text))
    ):
        return text
    has_box = any(box.text.strip() for box in boxed(text))
    found = find_answer(text) if has_box or ("boxed" not in text and _POINTS.search(text)) else None
    return text if found is None else found.text


def _is_same_choice(gold: str, answer: str, policy: Policy) -> bool:
    """Compare where one side is an option with its letter, as in (C) 27: by the letter, or by what
    stands behind it."""
    letters = [_NAMED_OPTION.fullmatch(wording(text)) for text in (gold, answer)]
    if any(letters):
        return wording(gold if letters[1] else answer).casefold() == next(
            match[1] for match in letters if match
        )
    known = _option(gold)
    given = _option(answer)
    if known and given:
        return known[0] == given[0] and _is_same(known[1], given[1], policy)
    option = known or given
    said = wording(answer if known else gold)
    if option is None:
        return False
    if len(said) == 1 and said.isalpha():
        return said == option[0]
    return _is_same(option[1], answer, policy) if known else _is_same(gold, option[1], policy)


def _option(text: str) -> tuple[str, str] | None:
    """Split (C) 27 into its letter and the rest, whether or not a text wrapper stands around the
    letter."""
    match = _OPTION.fullmatch(_WRAPPED.sub(r"\1 ", normal(text), count=1))
    if match is None or ((rest := wording(match[3])).isupper() and len(rest) == 1):
        return None
    return match[1] or match[2], match[3]


def is_doubled(gold: str, answer: str, policy: Policy) -> bool:
    """Whether an answer is one that would be right by itself, written twice: a product equal to it
    by chance."""
    plain = normal(answer)
    middle = plain.find(" ", (len(plain) - 1) // 2, len(plain) // 2 + 2)
    if middle < 0 or plain[:middle].rstrip(" .,;") != plain[middle + 1 :]:
        return False
    return wording(gold) != wording(answer) and is_same(gold, plain[middle + 1 :], policy)


def _same_reading(gold: Reading, answer: Reading, policy: Policy) -> bool:
    for left in _percents(gold.node, policy):
        for right in _percents(answer.node, policy):
            if same(left, right, policy):
                return True
    return False


def _is_in_radians(one: Reading, other: Reading) -> bool:
    """Whether one side says it is in radians and the other has a sign for degrees."""
    return "radian" in _unit(one.units) and has_degrees(other.node)


def _same_angle(gold: Reading, answer: Reading) -> bool:
    return same_value(gold.node, answer.node) is True


def _percents(node: Node, policy: Policy) -> Iterator[Node]:
    """Read the percent signs of an answer as the policy says: as a unit, as hundredths, or
    either."""
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
    return (
        tree.rebuilt(node, [_with_percent(part, scale) for part in node.args])
        if node.args
        else node
    )


def _units_agree(gold: tuple[str, ...], answer: tuple[str, ...], policy: Policy) -> bool:
    if policy.units == "ignore":
        return True
    left = _unit(gold)
    right = _unit(answer)
    if policy.units == "same":
        return left == right
    is_known = all(word in _NAMES for word in (*left, *right))
    return not left or not right or left == right or not is_known


_WRAPPED = re.compile(
    r"^\\(?:text|textbf|mathrm|mathbf|textrm)\s?\{\s?(\(?[A-J][).:]?\s?[^{}]{0,40})\}"
)
_OPTION = re.compile(r"(?:\(([A-J])\)|([A-J])[).:])\s*(\S.*)", re.DOTALL)
_NAMED_OPTION = re.compile(r"(?:option|choice) ?\(?([a-j])\)?")
_CHINESE = re.compile("平方|立方")
_POWERS = {"square": "^2", "sq": "^2", "平方": "^2", "cubic": "^3", "立方": "^3"}
_NAMES = frozenset(UNIT_NAMES.values()) | {"^2", "^3"}


def _unit(words: tuple[str, ...]) -> tuple[str, ...]:
    """Spell a unit one way: square centimeters is cm ^2."""
    found: list[str] = []
    for word in _CHINESE.sub(r" \g<0> ", " ".join(words).lower().replace("/", " ")).split():
        if word in _POWERS:
            found.append(_POWERS[word])
        elif word in ("mph", "kmh", "kph"):
            found += ["mi" if word == "mph" else "km", "h"]
        elif word not in ("per", "of", "the", "unit", "units"):
            found.append(UNIT_NAMES.get(word, word))
    return tuple(sorted(found))


def _same_with_comma(gold: str, answer: str, policy: Policy) -> bool:
    """Read 1,22 as 1.22 where the other side is such a number; a reference 2,3 is a list and never
    2.3."""
    for comma, other, form in ((answer, gold, _DECIMAL_COMMA), (gold, answer, _TWO_DECIMALS)):
        bare = comma.strip(" $")
        if form.fullmatch(bare) and "." in other:
            return exact(bare.replace(",", ".")) == exact(other.strip(" $"))
    return False
