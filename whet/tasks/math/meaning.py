"""Whether two texts mean the same: `1/2` and `0.5`, or `3/8` and what is said to be 37.5%."""

import re
from collections.abc import Sequence

from whet.answers.doubt import ROUGH, any_of
from whet.answers.final_answer import Span, is_same_text
from whet.tasks.math import tree
from whet.tasks.math.compare import same_tree
from whet.tasks.math.numeric import MathConfig
from whet.tasks.math.parser import Reading, readings
from whet.tasks.math.respelling import normal
from whet.tasks.math.tree import Node

_ROUGH = re.compile(rf"{any_of(ROUGH)}|≈|\\approx", re.IGNORECASE)
_CLAUSE_END = re.compile(r"[;)]|[,.](?=\s|$)|$")
_EXACT = MathConfig()
_NEAR = MathConfig(tolerance=0.01)


def meaning_of(text: str) -> object:
    """Reduce a text to what it means: a mixed number and its fraction are the same."""
    meanings = readings(text)
    return meanings[0].node._replace(digits=0) if meanings else normal(text)


def are_same(one: str, other: str) -> bool:
    """Whether two answers mean the same: `1/2` and `0.5`."""
    return is_same_text(one, other) or _share_meaning(readings(one), readings(other), _EXACT)


def is_restated(line: str, before: Span, after: Span, words: str) -> bool:
    """Whether two pieces mean the same; the second with what follows it, as in `36, or 6^2`."""
    clause = _CLAUSE_END.search(line, after.end)
    whole = line[after.start : clause.start() if clause else None]
    others = readings(whole) or readings(after.text)
    return _share_meaning(readings(before.text), others, _NEAR if _ROUGH.search(words) else _EXACT)


def _share_meaning(ones: Sequence[Reading], others: Sequence[Reading], rules: MathConfig) -> bool:
    return any(
        same_tree(left, right, rules)
        for one in ones
        for left in _meanings(one.node)
        for other in others
        for right in _meanings(other.node)
    )


def _meanings(node: Node) -> tuple[Node, ...]:
    """Read a percentage as its number and as hundredths."""
    if node.kind != "call" or node.name != "percent":
        return (node,)
    return node.args[0], tree.divide(node.args[0], tree.make_number(100))
