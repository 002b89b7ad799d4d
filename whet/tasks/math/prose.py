"""Find the answer that a response gives in words: after a marker, or else at the end of the text.

If a line states an answer and also offers another, or takes it back, the whole line is the answer,
and so it is wrong: `3 or maybe 4`, `3; no, 4`. The same answer in another form is not a hedge:
`1/2, or 50%`.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from whet.answers.doubt import (
    CHOICE,
    CONTRACTION,
    DENIAL,
    FALSE,
    TURN,
    UNSURE,
    any_of,
    is_denied,
)
from whet.answers.final_answer import Span, make_span
from whet.answers.sentences import (
    find_formulas,
    find_marks,
    find_numbers,
    first_sentence,
    last_line,
)
from whet.tasks.math.beside import is_operand, negated
from whet.tasks.math.lexer import time_of
from whet.tasks.math.meaning import cut_remark, cut_words_again, is_restated, meaning_of
from whet.tasks.math.parser import readings
from whet.tasks.math.plain_formula import (
    closing_formula,
    closing_number_word,
    cut_display_end,
    last_display,
)
from whet.tasks.math.respelling import normal
from whet.tasks.math.tree import symbols
from whet.tasks.math.words import COMMENT, IS_FALSE, SCALES, UNIT_WORDS

MAX_BARE = 600
"""A response up to this many characters, in one line, may be an answer by itself."""
MAX_LINE = 2000
"""If the last line is longer, only this many characters at its end are searched."""
MAX_LINES = 20
"""Largest number of answers given one per line."""
MAX_TURN_WORDS = 3
"""If there are more words between the turn and a number, the number belongs to something else."""

_HEADING_END = re.compile(
    r":[ \t*]*\n|^[ \t]*(?:#{1,6} [^\n]{1,60}|\*\*[A-Za-z ]{3,60}\*\*)[ \t]*\n", re.MULTILINE
)
_ITEMS_NAME = re.compile(
    r"(?<!no )(?<!not )(?<!wrong )(?<!false )(?<!invalid )(?<!rejected )(?<!incorrect )"
    r"(?<!extraneous )\b(?:answers?|solutions?|roots?|zeros|values)\b[^\n:]{0,40}$",
    re.IGNORECASE,
)
_BULLET = re.compile(r"(?:[-*•]|[0-9]{1,2}[.)])\s+")
_OPEN_BOX = re.compile(r"\\boxed\s?\{(?!\s*\})[^\n]*$")
"""A box that is opened at the end but never closed, because the response was cut off."""
_OBJECT = re.compile(
    r"""\{\s*"[^"\n]{1,40}"\s*:[^\n]*\}[\s`]*$"""
    r"""|\{\s*\n\s*"[^"\n]{1,40}"\s*:(?:[^{}]|\{\d)*\}[\s`]*$"""
)
_VALUE = re.compile(
    r"""["'](?:final[_ ]?)?(?:answer|result|solution)["']\s*:\s*("[^"\n]*"|[^\s,}"][^,}\n]*)""",
    re.IGNORECASE,
)
_DENIED = re.compile(rf"[\s*:]*(?:=|{any_of(DENIAL, 'between|either')})", re.IGNORECASE)
_CODE = re.compile(r"__[a-z]|[a-z_]\(['\"]|\[['\"]|\)\.[a-z]")
"""Program text; a line of it states no answer, even if it ends in a number."""
_OPTION = re.compile(r"[\s*(]*[A-J][).:]+\s*[^\n=]{1,40}")
"""An option with its letter: `C) 27`."""
_QUESTION = re.compile(
    r"\W*(?:is|are|could|can|what|which|how|does|do|would|should|might|may|who|why)\b[^?\n]*\?\W*",
    re.IGNORECASE,
)
_OPEN_QUESTION = re.compile(
    r"\bwhether\b[^.;\n]{0,80}\b(?:is|remains) (?:unclear|unknown|uncertain|open|not clear)\b"
)
_LAST_WORD = re.compile(
    r"\b(?:is|are|be|was)\s+(?:on\s+)?(?:an?\s+|the\s+)?"
    r"(?:\*\*([^*\n]{2,60})\*\*|([A-Za-z]{2,20}))[\s.!]*$",
    re.IGNORECASE,
)
"""The single word, or the bold words, that end a line: `So the day is **Tuesday**.`"""
_NO_LAST_WORD = re.compile(
    any_of(DENIAL, FALSE, CHOICE, UNSURE, "no|believe|what|which|who|why|correct|true|false")
    + rf"|{CONTRACTION}|\?",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"(?:,|\s\()\s*(?:attained|achieved|reached|obtained|occurring|when|where|not|rather than"
    r"|instead of|because|since|as(?= [0-9(]))\b"
    r"(?![^\n]*\b(?:so|thus|hence|therefore|then|gives?|giving|makes?|leaves?|leaving|total"
    r"|is|are|has|have|get)\b)",
    re.IGNORECASE,
)
"""The start of a clause that only says where or why: `5, attained when x = 2`."""
_BESIDES = re.compile(
    r"\s\(and (?:the|his|her|its|their) (?!other|second|negative|next)[^()]{1,60}\)[\s.*]*\Z"
)
"""A final remark about something else: ` (and the 7th grade 8)`."""
_MANY = re.compile(r"\b(?:are|were|answers|solutions|roots|zeros|values|and|or)\b", re.IGNORECASE)
_ROUGHLY = re.compile(
    r"[\s$*]*(?:or so|or thereabouts|give or take|-?ish|plus or minus)\b", re.IGNORECASE
)
"""After a piece, this says that it is approximate."""
_STRAY = re.compile(r"(?:[?!@&^};%\\/]|(?<![a-z])\{)$")
"""If a number in the last line follows one of these, it is part of something else."""
_DIVIDED = re.compile(r"(?:\s|\$|\\[)\]]){0,4}/\s?[\\$({0-9]")
"""After a piece, this shows that it is part of a quotient; whole quotients are read before."""
_NAMED = re.compile(r"[A-Z][a-z]{2,15} [0-9]{1,4}")
"""A thing with a number: Shop 3."""
_OUT_OF = re.compile(r"\s+out of(?: (?:the|every))?\s+")
"""Between two numbers it makes a share of them: `3 out of 8`."""
_CHANCE = re.compile(r"\b(?:probability|chances?|odds|likelihood|fraction|proportion)\b", re.I)
_FORMULA_MARK = re.compile(r"\\[()\[\]]|\$|\*\*")
_JOINT = re.compile(
    r"[\s$*]*(?:,|\b(?:and|or)\b|,\s*(?:and|or)\b)[\s$*]*(?:[A-Za-z](?:_\{?\w\}?)?\s*=\s*)?"
)
_NAME = re.compile(r"(?<![A-Za-z0-9])[A-Za-z](?:_\{?\w\}?)?\s*=\s*$")
_STATES = re.compile(r"(?:\b(?:are|is|be|was|were|equals?)|[:=])[\s$*(\\]*$", re.IGNORECASE)
_BOLD = re.compile(r"\*\*([^*\n]{1,120}[=^√π\\][^*\n]{1,120})\*\*")
_ON_A_PART = re.compile(
    r"[\s$*\\)]{0,4}(?:is|are)(?: (?:an?|also|itself|already|indeed))* (?:prime|composite|odd|even"
    r"|positive|negative|coprime|relatively prime|irreducible|square-?free|perfect|divisible)\b"
)
"""After a number, this states only a property of it."""
_GROWN = re.compile(
    r"(?:\{,\}[0-9]{3})+(?![0-9])|\s?/\s?[0-9]+(?![0-9])"
    r"|:[0-5][0-9](?![0-9:])(?:\s?[ap]\.?m\b\.?)?",
    re.IGNORECASE,
)
"""What may continue a number: groups of thousands, a denominator, the minutes of a time."""
_NAMED_UNITS = sorted(
    word for word in {*UNIT_WORDS} - {"square", "sq", "cubic", "second"} if word.isascii()
)
_UNIT = re.compile(
    rf"(?: (?:{'|'.join(SCALES)})\b)?(?: (?:(?:square|cubic) )?(?:{'|'.join(_NAMED_UNITS)})\b"
    r"(?!\s*(?:squared|cubed|per\b|old\b|[\^/²³])))?",
    re.IGNORECASE,
)
"""A scale and a unit after a number: ` million dollars`."""
_CHOICE = re.compile(any_of(CHOICE, "(?:and|but) also") + "|或", re.IGNORECASE)
_CORRECTION = re.compile(rf"\bno\b\s*[-,:;.!—–]|{any_of(TURN)}", re.IGNORECASE)
_SAME = re.compile(
    r"[\s$*,;(\\)]*(?:or|i\.e\.|that is|which is|equivalently|in other words)[\s,:$*(\\]*"
    r"(?:(?:about|approximately|approx\.?|roughly|around|in percent"
    r"|as a (?:decimal|percentage|percent))[\s,:$*]*)?",
    re.IGNORECASE,
)
"""Between two pieces, this introduces the first in another form: `3/8, or 37.5%`."""


def find_in_words(text: str) -> Span | None:
    """Find an answer without a tag or box: the whole text, an object's field, a list, or a line."""
    text = cut_remark(text)
    whole = text.strip()
    is_line = len(whole) <= MAX_BARE and "\n" not in whole and "&=" not in whole
    is_line = is_line and not find_marks(whole)
    if is_line and (readings(whole) or _OPTION.fullmatch(whole) or time_of(whole) is not None):
        return Span(text=whole, start=0, end=len(text))
    if _OPEN_BOX.search(text):
        return None
    if (value := _in_object(text)) is not None:
        return value if value.text.strip() else None
    return _in_items(text) or _behind_mark(text)


def _behind_mark(text: str) -> Span | None:
    """Find the answer after the last marker that gives one, or else in the last line."""
    marks = find_marks(text)
    while marks and COMMENT.match(marks[-1].text):
        comment = marks.pop()
        if IS_FALSE.search(comment.text):  # it takes back what was marked before
            return _in_last_line(text) if text[comment.end :].strip() else None
    if not marks:
        return _in_last_line(text)
    if _DENIED.match(marks[-1].text):
        return None
    formula = last_display(text) if "\\begin" in marks[-1].text else None
    is_after = formula is not None and formula.start >= marks[-1].start
    return formula if is_after else _in_marked_line(text, marks[-1])


def _in_items(text: str) -> Span | None:
    """Join the answers that end a response one per line, after a line that announces them."""
    start = max(0, len(text) - MAX_LINE)
    ends = [match.end() for match in _HEADING_END.finditer(text, start)]
    start = ends[-1] if ends else 0
    *_, heading = text[:start].rstrip(": \t\n*").rpartition("\n")
    if not _ITEMS_NAME.search(heading):
        return None
    lines = [line.strip() for line in text[start:].splitlines() if line.strip()]
    items = [_BULLET.sub("", line, count=1).strip(" .,;*") for line in lines]
    if not 1 < len(items) <= MAX_LINES or not all(map(readings, items)):
        return None
    return Span(text=" , ".join(items), start=start, end=len(text))


def _in_object(text: str) -> Span | None:
    """Find the answer in a JSON object that ends the response; empty unless one key has it."""
    whole = _OBJECT.search(text, max(0, len(text) - MAX_LINE))
    if whole is None:
        return None
    values = list(_VALUE.finditer(text, whole.start(), whole.end()))
    if len(values) != 1:
        return make_span(text, whole.start(), whole.start())
    start, end = values[0].span(1)
    return Span(text=text[start:end].replace("\\\\", "\\").strip('"'), start=start, end=end)


def _in_last_line(text: str) -> Span | None:
    if formula := last_display(text):
        return None if is_denied(text, formula.start, formula.end) else formula
    line = last_line(cut_display_end(text))
    if line is None:
        return None
    line = make_span(text, max(line.start, line.end - MAX_LINE), line.end)
    is_open = _OPEN_QUESTION.search(line.text) or _QUESTION.fullmatch(line.text)
    if is_open or _CODE.search(line.text):
        return None
    if answer := _in_closing_line(text, line):
        return answer
    word = _LAST_WORD.search(line.text)
    if word and not _NO_LAST_WORD.search(line.text):
        return make_span(line.text, *word.span(1 if word[1] else 2)).shift(line.start)
    return line if len(line.text) <= MAX_BARE else None


def _in_marked_line(text: str, line: Span) -> Span | None:
    """Find the answer after a marker: its first sentence, or else the first piece of that."""
    sentence = cut_words_again(first_sentence(line))
    is_whole = readings(sentence.text) or _OPTION.fullmatch(sentence.text)
    answer = sentence if is_whole else closing_formula(sentence) or _choose_first(sentence)
    answer = answer and _unless_operand(text, sentence, answer, is_marked=True)
    return answer and _unless_hedged(text, line, answer, len(sentence.text))


def _in_closing_line(text: str, line: Span) -> Span | None:
    """Find the answer in the last line: all of it up to an aside, or else the last piece."""
    part = line
    besides = _BESIDES.search(line.text)
    if besides and _MANY.search(line.text[: besides.start()].rpartition(". ")[2]):
        besides = None
    aside = besides or _ASIDE.search(line.text)
    if aside and _pieces(line.text[: aside.start()]):
        part = make_span(line.text, 0, aside.start()).shift(line.start)
    if number := closing_number_word(part):
        return number
    answer = part if readings(part.text) else closing_formula(part) or _choose_last(part)
    answer = answer and _unless_operand(text, line, answer, is_marked=False)
    return answer and _unless_hedged(text, line, answer, len(part.text))


def _unless_operand(text: str, line: Span, answer: Span, *, is_marked: bool) -> Span:
    """Give a number with the sign of the word before it; where it is an operand all of the line,
    or nothing if that reads as a number with a unit: `42 reversed`."""
    answer = negated(text, answer)
    if not is_operand(text, answer, is_marked=is_marked):
        return answer
    return replace(line, text="") if readings(line.text) else line


def _unless_hedged(text: str, line: Span, answer: Span, sentence_end: int) -> Span:
    """Return the answer; the whole line if it is hedged or corrected, nothing if it is denied."""
    end = answer.start + len(text[answer.start : answer.end].rstrip(" ?*$"))
    if is_denied(text, answer.start, end) or _ROUGHLY.match(text, end):
        return replace(line, text="")
    if (answer.start, answer.end) == (line.start, line.end):
        return answer
    return line if _is_hedged(line.text, answer.shift(-line.start), sentence_end) else answer


def _choose_first(line: Span) -> Span | None:
    """Choose the first formula or number, or the whole line if that is only part of something."""
    text = line.text
    if _NAMED.fullmatch(text.strip(" .*")):
        return line
    pieces = _prefer_numbers(_pieces(text))
    if not pieces:
        return line if normal(text) else None
    first = pieces[0]
    gap = text[first.end : pieces[1].start] if len(pieces) > 1 else ""
    if _OUT_OF.fullmatch(gap) and _CHANCE.search(text, 0, first.start):
        return make_span(text, first.start, pieces[1].end).shift(line.start)
    return line if gap.isspace() or _DIVIDED.match(text, first.end) else first.shift(line.start)


def _choose_last(line: Span) -> Span | None:
    """Choose the last formula, number or list of them; None if that is only part of something."""
    text = line.text
    pieces = [piece for piece in _pieces(text) if not _STRAY.search(text[: piece.start][-2:])]
    pieces = _prefer_numbers(pieces)
    if not pieces:
        return None
    if len(pieces) > 1 and _is_on_a_part(text, pieces[-2], pieces[-1]):
        pieces.pop()
    last = pieces[-1]
    before = pieces[-2] if len(pieces) > 1 else None
    gap = text[before.end : last.start] if before else ""
    if gap.isspace() or _DIVIDED.match(text, last.end):
        return None
    if before and _OUT_OF.fullmatch(gap):
        return make_span(text, before.start, last.end).shift(line.start)
    if before and _SAME.fullmatch(gap) and is_restated(text, before, last, gap):
        return before.shift(line.start)
    return (_last_list(text, pieces) or last).shift(line.start)


def _is_on_a_part(text: str, before: Span, last: Span) -> bool:
    """Whether the last piece only names a property of the one before: `7/113, and 113 is prime`."""
    is_part = re.search(rf"(?<![0-9]){re.escape(last.text.strip())}(?![0-9])", before.text)
    return is_part is not None and _ON_A_PART.match(text, last.end) is not None


def _prefer_numbers(pieces: list[Span]) -> list[Span]:
    """Drop pieces without a digit if others have one."""
    return [piece for piece in pieces if any(sign.isdigit() for sign in piece.text)] or pieces


def _last_list(line: str, pieces: list[Span]) -> Span | None:
    """Join the last pieces that a line states together: `the roots are 3 and 7`."""
    first = len(pieces) - 1
    while first > 0:
        gap = line[pieces[first - 1].end : pieces[first].start]
        is_named = "=" in gap and not _NAME.search(line, 0, pieces[first - 1].start)
        if is_named or not _JOINT.fullmatch(_FORMULA_MARK.sub(" ", gap)):
            break
        first -= 1
    if first == len(pieces) - 1:
        return None
    name = _NAME.search(line, 0, pieces[first].start)
    start = name.start() if name else pieces[first].start
    if "=" in pieces[-1].text and _is_worked_out(pieces[-1].text):
        return None
    are_equations = all("=" in piece.text for piece in pieces[first:])
    if not name and not are_equations and not _STATES.search(line, 0, start):
        return None
    text = _FORMULA_MARK.sub(" ", line[start : pieces[-1].end])
    return Span(text=text, start=start, end=pieces[-1].end) if readings(text) else None


def _is_worked_out(equation: str) -> bool:
    """Whether an equation has no unknowns: a calculation with its result, not an item of a list."""
    return any(one.node.kind == "relation" and not symbols(one.node) for one in readings(equation))


def _pieces(text: str) -> list[Span]:
    """List the readable formulas and the numbers outside them, in order."""
    formulas = find_formulas(text)
    for match in _BOLD.finditer(text):
        if "$" not in match[1] and "\\(" not in match[1]:
            formulas.append(make_span(text, *match.span(1)))
    pieces = [piece for piece in formulas if readings(piece.text)]
    spans = [(piece.start, piece.end) for piece in pieces]
    reached = 0
    for number in find_numbers(text):
        if number.start < reached or any(start <= number.start < end for start, end in spans):
            continue
        more = None if "/" in number.text else _GROWN.match(text, number.end)
        reached = more.end() if more else number.end
        if unit := _UNIT.match(text, reached):
            reached = unit.end()
        pieces.append(make_span(text, number.start, reached))
    return sorted(pieces, key=lambda piece: piece.start)


def _is_hedged(line: str, chosen: Span, sentence_end: int) -> bool:
    """Whether another piece is offered beside the chosen one, or in its place.

    Choices are searched for up to the end of the sentence, corrections up to the end of the line.
    """
    if not _CHOICE.search(line) and not _CORRECTION.search(line):
        return False
    pieces = _pieces(line)
    before = [piece for piece in pieces if piece.end <= chosen.start]
    after = [piece for piece in pieces if piece.start >= chosen.end]
    pieces = [*before, chosen, *after]
    turns = (*_CHOICE.finditer(line, 0, sentence_end), *_CORRECTION.finditer(line))
    return any(_offers_another(line, turn, pieces, chosen) for turn in turns)


def _offers_another(line: str, turn: re.Match[str], pieces: Sequence[Span], chosen: Span) -> bool:
    before = next((piece for piece in reversed(pieces) if piece.end <= turn.start()), None)
    after = next((piece for piece in pieces if piece.start >= turn.end()), None)
    if before is None or after is None:
        return False
    words = line[turn.end() : after.start]
    is_second = turn.re is _CHOICE and after == chosen
    if len(words.split()) > MAX_TURN_WORDS:
        return False
    if not is_second and meaning_of(before.text) != meaning_of(chosen.text):
        return False
    return not is_restated(line, before, after, words)
