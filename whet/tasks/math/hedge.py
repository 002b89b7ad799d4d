"""Whether a line that states an answer offers another one too, or takes it back: `3 or maybe 4`,
`3; no, 4`.

The same answer in another form is no hedge: `1/2, or 50%`, `2/3, or about 0.67`.
"""

import re
from collections.abc import Sequence

from whet.tasks.math import tree
from whet.tasks.math.compare import AnswerRules, same
from whet.tasks.math.numeric import Precision
from whet.tasks.math.parser import readings
from whet.tasks.math.tree import Node
from whet.text.extract import Find

MAX_WORDS = 3
"""More words than this between the turn and a number, and the number belongs to something else."""

_CHOICE = re.compile(
    r"\b(?:or|maybe|perhaps|possibly|alternatively|versus|vs|(?:and|but) also)\b|或", re.IGNORECASE
)
_CORRECTION = re.compile(
    r"\bno\b\s*[-,:;.!—–]|\b(?:wait|actually|sorry|correction|oops|I mean|I meant|rather(?! than)|instead(?! of)"
    r"|scratch that|on second thought)\b",
    re.IGNORECASE,
)
_ROUGHLY = re.compile(
    r"\b(?:about|approximately|approx|roughly|around|nearly)\b|≈|\\approx", re.IGNORECASE
)
_SAME = re.compile(
    r"[\s$*,;(\\)]*(?:or|i\.e\.|that is|which is|equivalently|in other words)[\s,:$*(\\]*"
    r"(?:(?:about|approximately|approx\.?|roughly|around|in percent|as a (?:decimal|percentage|percent))[\s,:$*]*)?",
    re.IGNORECASE,
)
_CLAUSE = re.compile(r"[;)]|[,.](?=\s|$)|$")
_EXACT = AnswerRules()
_NEAR = AnswerRules(precision=Precision(tolerance=0.01))


def has_turn(line: str) -> bool:
    """Whether a line has any word that may turn to another answer."""
    return bool(_CHOICE.search(line) or _CORRECTION.search(line))


def is_hedged(line: str, pieces: Sequence[Find], chosen: Find, sentence_end: int) -> bool:
    """Whether another of the pieces stands beside the chosen one as a choice or in its place.

    A choice is looked for up to the end of the sentence; a correction up to the end of the line.
    """
    for turns, end in ((_CHOICE, sentence_end), (_CORRECTION, len(line))):
        for turn in turns.finditer(line, 0, end):
            before = next((piece for piece in reversed(pieces) if piece.end <= turn.start()), None)
            after = next((piece for piece in pieces if piece.start >= turn.end()), None)
            if before is None or after is None:
                continue
            words = line[turn.end() : after.start]
            is_chosen = _meaning(before) == _meaning(chosen) or (
                turns is _CHOICE and after == chosen
            )
            if not is_chosen or len(words.split()) > MAX_WORDS:
                continue
            if not _agree(line, before, after, bool(_ROUGHLY.search(words))):
                return True
    return False


def is_restated(line: str, before: Find, after: Find) -> bool:
    """Whether a piece says the one before it again in another form: `3/8, or 37.5%`."""
    words = line[before.end : after.start]
    return _SAME.fullmatch(words) is not None and _agree(
        line, before, after, bool(_ROUGHLY.search(words))
    )


def _meaning(piece: Find) -> object:
    found = readings(piece.text)
    return found[0].node._replace(digits=0) if found else piece.text


def _agree(line: str, before: Find, after: Find, is_rough: bool) -> bool:
    """Whether two pieces say the same; the second with what follows it, as in `36, or 6^2`."""
    clause = _CLAUSE.search(line, after.end)
    texts = (line[after.start : clause.start() if clause else None], after.text)
    other = next((found for found in map(readings, texts) if found), ())
    nodes = [
        (one, two.node)
        for reading in readings(before.text)
        for one in _meant(reading.node)
        for two in other
    ]
    return any(
        same(one, two, _NEAR if is_rough else _EXACT) for one, node in nodes for two in _meant(node)
    )


def _meant(node: Node) -> tuple[Node, ...]:
    """Read a percentage as its number and as hundredths."""
    if node.kind != "call" or node.name != "percent":
        return (node,)
    return node.args[0], tree.divide(node.args[0], tree.number(100))
