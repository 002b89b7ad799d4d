"""What a line of prose says the answer is: the line itself, a formula or number in it, a list of
them, a last word."""

import re

from whet.tasks.math.hedge import has_turn, is_hedged, is_restated
from whet.tasks.math.lexer import normal
from whet.tasks.math.parser import readings
from whet.tasks.math.words import SCALES, UNIT_WORDS
from whet.text.extract import Find, formulas, numbers, sentence

_NAMED_UNITS = sorted(
    word for word in {*UNIT_WORDS} - {"square", "sq", "cubic", "second"} if word.isascii()
)
_STRAY = re.compile(r"(?:[?!@&^};%\\/]|(?<![a-z])\{)$")
"""A number in the last line that follows one of these is part of something else."""
_OPTION = re.compile(r"[\s*(]*[A-J][).:]+\s*[^\n=]{1,40}")
_GROWN = re.compile(
    r"(?:\{,\}[0-9]{3})+(?![0-9])|\s?/\s?[0-9]+(?![0-9])|:[0-5][0-9](?![0-9:])(?:\s?[ap]\.?m\b\.?)?",
    re.I,
)
"""What may go on behind a number: groups of thousands, a denominator, the minutes of a time."""
_UNIT = re.compile(
    rf"(?: (?:{'|'.join(SCALES)})\b)?(?: (?:(?:square|cubic) )?(?:{'|'.join(_NAMED_UNITS)})\b"
    r"(?!\s*(?:squared|cubed|per\b|old\b|[\^/²³])))?",
    re.IGNORECASE,
)
"""A scale and a unit behind a number: ` million dollars`."""
_UNSURE = re.compile(
    r"\b(?:(?:greater|less|larger|smaller|more|fewer) than|(?:could|might|may) be)[\s$*(\\]*$",
    re.IGNORECASE,
)
"""Before a number it says that the answer is another, or may be."""
_DIVIDED = re.compile(r"(?:\s|\$|\\[)\]]){0,4}/\s?[\\$({0-9]")
"""Behind a piece it says that the piece is a part: what can be divided has been read as a whole
before."""
_BOLD = re.compile(r"\*\*([^*\n]{1,120}[=^√π\\][^*\n]{1,120})\*\*")
_ASIDE = re.compile(
    r"(?:,|\s\()\s*(?:attained|achieved|reached|obtained|occurring|when|where|not|rather than|instead of|because"
    r"|since)\b"
    r"(?![^\n]*\b(?:so|thus|hence|therefore|then|gives?|giving|makes?|leaves?|leaving|total|is|are|has|have|get)\b)",
    re.IGNORECASE,
)
"""What follows says where or why, or what the answer is not, and concludes nothing."""
_JOINT = re.compile(
    r"[\s$*]*(?:,|\b(?:and|or)\b|,\s*(?:and|or)\b)[\s$*]*(?:[A-Za-z](?:_\{?\w\}?)?\s*=\s*)?"
)
_NAME = re.compile(r"(?<![A-Za-z0-9])[A-Za-z](?:_\{?\w\}?)?\s*=\s*$")
_REFUSED = re.compile(
    r"[^.;!?\n]{0,60}\b(?:is|are|was|were|be|seems?|looks?)\s+(?:(?:clearly|also|just|surely)\s+)?"
    r"(?:wrong|incorrect|false|mistaken|not\s+(?:correct|right|true|the\s+answer))",
    re.IGNORECASE,
)
_TELLS = re.compile(r"(?:\b(?:are|is|be|was|were|equals?)|[:=])[\s$*(\\]*$", re.IGNORECASE)
_LAST_WORD = re.compile(
    r"\b(?:is|are|be|was)\s+(?:on\s+)?(?:an?\s+|the\s+)?(?:\*\*([^*\n]{2,60})\*\*|([A-Za-z]{2,20}))[\s.!]*$",
    re.IGNORECASE,
)
_DOUBT = re.compile(
    r"\b(?:not|never|no|if|whether|maybe|perhaps|possibly|probably|likely|think|guess|believe|could|might|may|unsure|what|"
    r"which|who|why|or|cannot|can't|isn't|don't|wrong|correct|incorrect|true|false)\b|\?",
    re.IGNORECASE,
)
_QUESTION = re.compile(
    r"\W*(?:is|are|could|can|what|which|how|does|do|would|should|might|may|who|why)\b[^?\n]*\?\W*",
    re.IGNORECASE,
)
_ROUGH = re.compile(
    r"[\s$*]*(?:or so|or thereabouts|give or take|-?ish|plus or minus)\b", re.IGNORECASE
)


def is_option(text: str) -> bool:
    """Whether a text is an option with its letter: `C) 27`."""
    return _OPTION.fullmatch(text) is not None


def is_question(line: str) -> bool:
    """Whether a line asks instead of telling: `Is the answer 42?`"""
    return _QUESTION.fullmatch(line) is not None


def in_line(line: Find, *, is_first: bool) -> Find | None:
    """Find the answer in a line: the line itself where it can be read, else a formula or number in
    it.

    Behind a mark the first of its first sentence counts, otherwise the last. One that is hedged or
    taken back is none: then the whole line stands.
    """
    said = sentence(line) if is_first else _without_aside(line)
    if readings(said.text) or (is_first and is_option(said.text)):
        found: Find | None = said
    else:
        found = _piece(said, is_first=is_first)
    if found is None or (found.start, found.end) == (line.start, line.end):
        return found
    if any(doubt.match(line.text, found.end - line.start) for doubt in (_ROUGH, _REFUSED)):
        return line
    if not is_first and _UNSURE.search(line.text, 0, found.start - line.start):
        return line
    if not has_turn(line.text):
        return found
    chosen = Find(text=found.text, start=found.start - line.start, end=found.end - line.start)
    beside = [
        piece
        for piece in _pieces(line.text)
        if piece.start >= chosen.end or piece.end <= chosen.start
    ]
    every = sorted([chosen, *beside], key=lambda piece: piece.start)
    return line if is_hedged(line.text, every, chosen, len(said.text)) else found


def last_word(line: Find) -> Find | None:
    """Find the one word, or the words in bold, that a line ends in and says it is: `So the day is
    **Tuesday**.`"""
    match = _LAST_WORD.search(line.text)
    if match is None or _DOUBT.search(line.text):
        return None
    group = 1 if match[1] else 2
    return Find(
        text=match[group], start=line.start + match.start(group), end=line.start + match.end(group)
    )


def _without_aside(line: Find) -> Find:
    match = _ASIDE.search(line.text)
    if match is None or not _pieces(line.text[: match.start()]):
        return line
    return Find(text=line.text[: match.start()], start=line.start, end=line.start + match.start())


def _piece(line: Find, *, is_first: bool) -> Find | None:
    pieces = _pieces(line.text)
    if not is_first:
        pieces = [
            piece
            for piece in pieces
            if not _STRAY.search(line.text[max(0, piece.start - 2) : piece.start])
        ]
    telling = [piece for piece in pieces if any(sign.isdigit() for sign in piece.text)] or pieces
    if not telling:
        return line if normal(line.text) and is_first else None
    chosen, beside = (telling[0], telling[1:2]) if is_first else (telling[-1], telling[-2:-1])
    for other in beside:
        between = line.text[min(chosen.end, other.end) : max(chosen.start, other.start)]
        if between.isspace():
            return line if is_first else None
    if _DIVIDED.match(line.text, chosen.end):
        return line if is_first else None
    if not is_first:
        chosen = _restated(line.text, telling) or _listed(line.text, telling) or chosen
    return Find(text=chosen.text, start=line.start + chosen.start, end=line.start + chosen.end)


def _restated(line: str, pieces: list[Find]) -> Find | None:
    """Take the first of two forms of one answer: `3/8, or 37.5%`."""
    if len(pieces) < 2 or not is_restated(line, pieces[-2], pieces[-1]):
        return None
    return pieces[-2]


def _listed(line: str, pieces: list[Find]) -> Find | None:
    """Join what a line tells side by side at its end: `the roots are 3 and 7`, `$x = 2$ and $y =
    1$`."""
    first = len(pieces) - 1
    while first > 0 and _JOINT.fullmatch(_bare(line[pieces[first - 1].end : pieces[first].start])):
        first -= 1
    name = _NAME.search(line, 0, pieces[first].start)
    start = name.start() if name else pieces[first].start
    end = pieces[-1].end
    is_told = (
        name or _TELLS.search(line[:start]) or all("=" in each.text for each in pieces[first:])
    )
    if first == len(pieces) - 1 or not is_told:
        return None
    text = _bare(line[start:end])
    return Find(text=text, start=start, end=end) if readings(text) else None


def _bare(text: str) -> str:
    for mark in ("\\(", "\\)", "\\[", "\\]", "$", "**"):
        text = text.replace(mark, " ")
    return text


def _pieces(text: str) -> list[Find]:
    """List the formulas that can be read and the numbers outside them, in order."""
    bold = [
        Find(text=found[1], start=found.start(1), end=found.end(1))
        for found in _BOLD.finditer(text)
    ]
    marked = [piece for piece in bold if "$" not in piece.text and "\\(" not in piece.text]
    pieces = [piece for piece in (*formulas(text), *marked) if readings(piece.text)]
    spans = [(piece.start, piece.end) for piece in pieces]
    reached = 0
    for number in numbers(text):
        if number.start < reached or any(start <= number.start < end for start, end in spans):
            continue
        more = None if "/" in number.text else _GROWN.match(text, number.end)
        reached = more.end() if more else number.end
        behind = _UNIT.match(text, reached)
        reached = behind.end() if behind else reached
        pieces.append(Find(text=text[number.start : reached], start=number.start, end=reached))
    return sorted(pieces, key=lambda piece: piece.start)
