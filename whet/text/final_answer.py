"""Find where a response states its answer: tags, boxes, marked lines, the last line, sentences.

This is the one reader of final answers. It finds statements and says where they stand; each task
decides which of them it accepts, which is the strongest, and what the text of one means. Every
function reads the text a bounded number of times, whatever is in it, and the regular expressions
have nothing to backtrack into.

The words that cast doubt on an answer come in groups, of which each reader picks those it heeds. A
group is a pattern of words with bars between them, to be matched without regard to case.
"""

import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace

CHOICE = "or|maybe|perhaps|possibly|alternatively|versus|vs"
"""Another answer is offered too: `3 or 4`."""
TURN = (
    "wait|actually|sorry|correction|oops|I mean|I meant|scratch that|on second thought"
    "|rather(?! than)|instead(?! of)"
)
"""What was just said is taken back: `3; wait, 4`."""
DENIAL = "not|never|neither|nor"
FALSE = "wrong|incorrect"
UNSURE = (
    "probably|likely|might|(?-i:may)|could|cannot|if|whether|between|either|unless|except|unknown"
    "|unsure|unclear|think|guess|(?<!no )doubt(?= that| it| if| whether| the)"
)
"""The answer holds perhaps, or under a condition. May with a capital is a month."""
ROUGH = "about|approximately|approx|roughly|around|nearly|almost"
"""The number is not exact."""
BOUND = "than|at (?:the )?(?:very )?(?:least|most)|up to|exceed(?:s|ing)?"
"""The number is a limit."""
SUPPOSED = "suppose|supposing|assume|assuming|impossible|untrue|unlikely|anything but|far from"
"""The answer is only looked at, or ruled out."""
REFERENCE = "gold|golden|reference"
"""The answer is another's."""
CONTRACTION = r"n['’]t\b"


def any_of(*groups: str) -> str:
    """Write a pattern for any word of the groups.

    >>> any_of(FALSE, "no")
    '\\\\b(?:wrong|incorrect|no)\\\\b'
    """
    return rf"\b(?:{'|'.join(groups)})\b"


_DOUBT = re.compile(
    any_of(DENIAL, FALSE, CHOICE, UNSURE, ROUGH, BOUND, SUPPOSED, TURN, REFERENCE, "but")
    + rf"|{CONTRACTION}|[?≈]|\\approx",
    re.IGNORECASE,
)


def is_doubtful(line: str) -> bool:
    """Whether a line of prose has any word that keeps it from stating an answer."""
    return _DOUBT.search(line) is not None


_DENIED_BEFORE = re.compile(
    rf"(?:(?:{CONTRACTION}|\b(?:not|never|cannot|neither|nor))"
    r"(?: (?:be|get|obtain|equal|equal to|possibly|really|simply|just|the answer))*"
    r"|\b(?:(?:greater|less|larger|smaller|more|fewer|higher|lower|bigger|other) than"
    r"|different from|far from|at (?:the )?(?:very )?(?:least|most)|up to|above|below"
    r"|(?:is|are|be|was|were) (?:well |just )?(?:over|under)|exceed(?:s|ing)?"
    r"|between(?:[^,;.\n]{1,40}\band)?|(?:anything|everything|nothing|all) but|except(?: for)?"
    r"|(?:could|might|may|unlikely to|hardly) (?:be|say|answer)"
    r"|(?<!\bor )(?:maybe|perhaps|possibly|probably)"
    r"|(?:wrong|incorrect|rejected|gold|golden|reference) answer(?: is| was)?"
    r"|(?:wrong|incorrect|rejected|discarded|guess|hypothetically)(?=[\s*]*:)))"
    r"(?:[\s:*$`\"'(\[{}\\]|boxed|text(?:bf)?|<answer>)*(?:[A-Za-z]\w{0,3}\s?=[\s$*(\\]*)?\Z",
    re.IGNORECASE,
)
"""Before an answer it says that the answer is another, or may be."""
_DENIED_ABOVE = re.compile(
    rf"(?:(?:{CONTRACTION}|\b(?:not|never|cannot))(?: (?:be|equal|the answer))*|\bthan"
    r"|\bat (?:least|most)|\b(?:could|might|may) be|\b(?:wrong|incorrect) answer(?: is)?)"
    r"[ \t:*]*\n[\s*$`#\[\\]*\Z",
    re.IGNORECASE,
)
"""So does a sentence that goes on in the next line: `The answer is not:`."""
_SUPPOSED = re.compile(
    r"(?:\A|[.;:!?\n])[\s*]*(?:(?:so|but|now|and),? )?(?:"
    r"(?:(?:if(?! (?:we|you|I)\b)|suppose|supposing|assume|assuming|let(?! us)(?!['’]s)|unless"
    r"|whether|say)\b"
    r"|(?:is|are|was|were|could|can|would) (?:it|this|that|they|the answer)\b"
    r"|[^,;.\n]{0,60}?(?:\b(?:(?:impossible|untrue|unlikely) (?:that|for)|false that|no way"
    r"|whether (?:it|this|that|they|the answer)"
    rf"|mistake is|wrong answer is)\b|(?:{CONTRACTION}|\b(?:not|never))(?: at all)? "
    r"(?:true|sure|certain|clear|think|believe|say|claim|the case)\b"
    r"|(?<!no )(?<!without )\b(?:doubt|deny|unsure|uncertain|wonder)\b))"
    r"(?:(?!\bthen\b)[^,;.\n])*"
    r"|if\b[^,;.\n]{0,60}(?:[<>≤≥≠]|\\(?:[lg](?:eq?|t)|neq?)(?![a-z])"
    r"|\b(?:positive|negative|even|odd|nonzero)\b)[^;.\n]*)\Z",
    re.IGNORECASE,
)
"""In the sentence before an answer it says that what follows is supposed, doubted or asked."""
_DENIED_AFTER = re.compile(
    r"(?:[\s*$`\"')\]}.,;\\]|</answer>){0,8}(?:\?"
    r"|(?:or|and) (?:more|less|fewer|greater|higher|lower|above|below|over|under|up)\b"
    r"|at (?:most|least)\b|(?:unless|if|otherwise|(?:just )?kidding|never mind"
    r"|(?:scratch|strike|forget) (?:that|this|it))\b"
    r"|(?:(?:no|wait|oops|sorry|hmm|but)[,.:;!]? )?"
    r"(?:that|this|it|(?:the|my) (?:line|answer|result|list)(?: above)?|the above)"
    r"(?: one| answer| line)? (?:is|was|seems|looks)"
    r" (?:also |clearly |obviously |certainly |just )?(?:wrong|incorrect|false|mistaken|impossible"
    r"|invalid|an? (?:mistake|error|trap)|too (?:large|small|big|high|low|long|short|many|few)"
    r"|not (?:right|correct|true|it|the answer))\b"
    r"|(?:is|are|was|were|would be|seems|looks)"
    r"(?: (?:also|clearly|obviously|certainly|surely|just))?"
    r"(?:(?: not|n['’]t)(?! [-$\\0-9])| (?:never|wrong|incorrect|false|mistaken|impossible"
    r"|invalid|no)\b)"
    r"|(?:can|could|would|does|do|will)(?:n['’]t|not| not)\b"
    r"|\((?:wrong|incorrect|false|not (?:right|correct|the answer|sure))\b"
    r"|(?:(?:or|and) )?(?:maybe|perhaps|possibly|probably)\b"
    r"|or (?:something|anything|another|some other|else|not)\b)",
    re.IGNORECASE,
)
"""Behind an answer it takes the answer back, makes it a bound or sets a condition."""
_SENTENCE_WINDOW = 240
_WORDS_WINDOW = 80


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether the sentence around an answer, end exclusive, says that it is none.

    It may deny the answer, doubt it, only suppose it, or give it as a bound.

    >>> [is_denied(text, text.find("4"), text.find("4") + 1)
    ...  for text in ("It is 4.", "It is not 4.", "If it were 4, no.", "At least 4.", "4, not 5")]
    [False, True, True, True, False]
    """
    window = max(start - _SENTENCE_WINDOW, 0)
    before = text[max(text.rfind("\n", 0, start) + 1, window) : start]
    return (
        _DENIED_BEFORE.search(before, max(len(before) - _WORDS_WINDOW, 0)) is not None
        or _SUPPOSED.search(before) is not None
        or _DENIED_ABOVE.search(text, max(start - _WORDS_WINDOW, 0), start) is not None
        or _DENIED_AFTER.match(text, end) is not None
    )


MAX_CHARS = 1 << 22
"""Longer responses are not read."""
MAX_MARKED = 2000
"""What follows a mark is read this far."""
MAX_MARKS = 20
MAX_NESTED_BOXES = 64
MAX_BOX = 1 << 16
"""Longer boxes are not read where boxes may stand in boxes."""
MAX_SENTENCE = 400
"""Longer lines state nothing in words."""

_COMMENT = re.compile(r"<!--.*?(?:-->|\Z)", re.DOTALL)
_THOUGHT = "(?:think|thinking|thought|reasoning)>"
_THOUGHT_START = re.compile(f"<{_THOUGHT}")
_THOUGHT_END = re.compile(f"</{_THOUGHT}")
_BOX = re.compile(r"\\?(?:boxed|fbox|framebox)(?![a-zA-Z])\s?")
_BRACE = re.compile(r"\\[\\{}]|[{}]")
_MARK = re.compile(
    r"####[ \t]*:?"
    r"|(?:^|(?<=\n))[ \t]*A:"
    r"|(?<![a-zA-Z])correct (?:option|choice) is(?![a-zA-Z])"
    r"|(?:(?<![a-zA-Z])(?:final[ ]{1,3})?"
    r"(?:answers?|results?|réponse|respuesta|antwort)(?![a-zA-Z])|答案)\**[ \t]{0,3}"
    r"(?::|：|=|(?:is|are|est|es|ist)(?![a-zA-Z])|是|为)[ \t]{0,3}(?::|：)?\**",
    re.IGNORECASE,
)
_MARK_WORDS = ("####", "a:", "correct ", "answer", "result", "respuesta", "antwort")
_FORMULA_SIGN = re.compile(r"\\[\\$]|\\[()\[\]]|\$\$?")
_NUMBER = re.compile(
    r"(?<![A-Za-z0-9_.])[-+−]?"
    r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+(?:,[0-9]+(?![0-9,]))?|(?=\.[0-9]))(?:\.[0-9]+)?"
    r"(?:[eE][-+]?[0-9]+)?(?:\s?/\s?[0-9]+(?![0-9.]))?(?:\s?\\?%)?"
    r"|[-−]?\\[dtc]?frac\s?\{[^{}]{1,40}\}\s?\{[^{}]{1,40}\}"
)
_SENTENCE_END = re.compile(r"[.。!?](?=[\s$\"')]|$)|\n")
_NEXT_SENTENCE = re.compile(r"(?<!\b[A-Z])[.!]\s+(?=[A-Z*\"'])")
_VERB = re.compile(r"\b(?:is|are|was|were|be|equals)\b[\s:*]*(?=\S)", re.IGNORECASE)
_PLAIN_NUMBER = re.compile(r"[0-9](?:[0-9.,]*[0-9])?")
_PLAIN_WORDS = re.compile(r"[A-Za-z ,'*()-]*")
_SIGN = re.compile(r"(?<![A-Za-z0-9])[-−]?\s?\\?[$£€]?[-−]?\Z")


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A piece of a text and where it stands, end exclusive."""

    text: str
    start: int
    end: int

    def shift(self, offset: int) -> "Span":
        """Give the same piece its place in a text that has this one `offset` characters in."""
        return replace(self, start=self.start + offset, end=self.end + offset)


def cut(text: str, start: int, end: int) -> Span:
    """Cut a piece out of a text."""
    return Span(text=text[start:end], start=start, end=end)


def after_thought(text: str) -> int | None:
    """Find where the thought ends: 0 without one, None where one is opened and never closed."""
    ends = [match.end() for match in _THOUGHT_END.finditer(text)]
    start = ends[-1] if ends else 0
    return None if _THOUGHT_START.search(text, start) else start


def visible_text(text: str, *, keep_comments: bool = False) -> str | None:
    """Cut off the thought and, unless they are kept, the comments that Markdown does not show.

    None where the thought is never closed or the response is too long.
    """
    start = after_thought(text) if len(text) <= MAX_CHARS else None
    if start is None:
        return None
    return text[start:] if keep_comments else _COMMENT.sub("", text[start:])


def find_tags(text: str, tag: str = "answer") -> list[Span]:
    """List what stands between `<tag>` and `</tag>`, over any number of lines."""
    opening = f"<{tag}>"
    closing = f"</{tag}>"
    spans: list[Span] = []
    start = 0
    while (end := text.find(closing, start)) >= 0:
        opened = text.rfind(opening, start, end)
        if opened >= 0:
            spans.append(cut(text, opened + len(opening), end))
        start = end + len(closing)
    return spans


def has_open_tag(text: str) -> bool:
    """Whether the last answer tag is never closed: the response was cut."""
    return text.rfind("<answer>") > text.rfind("</answer>")


def find_boxes(text: str, *, nested: bool = False) -> list[Span]:
    r"""List what `\boxed{...}` and its kin hold, in order; a span takes in the command.

    Boxes that are never closed are left out, and so are boxes inside others, unless they are asked
    for: then the last few boxes are listed.

    >>> [box.text for box in find_boxes(r"so \boxed{\frac{1}{2}} and \boxed 3")]
    ['\\frac{1}{2}', '3']
    """
    if "box" not in text:
        return []
    commands = deque(_BOX.finditer(text), maxlen=MAX_NESTED_BOXES if nested else None)
    closing = match_braces(text, commands[0].start()) if commands else {}
    boxes: list[Span] = []
    end = 0
    for command in commands:
        start, inside = command.span()
        if inside >= len(text) or (start < end and not nested):
            continue
        if inside in closing and not (nested and closing[inside] - inside > MAX_BOX):
            end = closing[inside] + 1
            boxes.append(Span(text=text[inside + 1 : end - 1], start=start, end=end))
        elif text[inside].isalnum() and text[start] == "\\" and text[inside - 1] == " ":
            end = inside + 1
            boxes.append(Span(text=text[inside:end], start=start, end=end))
    return boxes


def last_box(text: str) -> Span | None:
    """Find the last box, the command taken in; None without one, or where it is never closed."""
    command = _last_box_command(text)
    start = -1 if command is None else command.end()
    end = match_braces(text, start).get(start) if command else None
    if command is None or end is None:
        return None
    return Span(text=text[start + 1 : end], start=command.start(), end=end + 1)


def has_open_box(text: str) -> bool:
    """Whether the last box is never closed: the response was cut."""
    command = _last_box_command(text)
    return command is not None and command.end() not in match_braces(text, command.end())


def _last_box_command(text: str) -> re.Match[str] | None:
    last = None
    for command in _BOX.finditer(text):
        if text.startswith("{", command.end()):
            last = command
    return last


def match_braces(text: str, start: int = 0) -> dict[int, int]:
    """Match every opening brace with the one that closes it; escaped braces are none."""
    closing: dict[int, int] = {}
    waiting: list[int] = []
    for match in _BRACE.finditer(text, start):
        if match.group() == "{":
            waiting.append(match.start())
        elif match.group() == "}" and waiting:
            closing[waiting.pop()] = match.start()
    return closing


def find_marks(text: str) -> list[Span]:
    """List what follows `####`, `the answer is` and the like in its line; the last few only."""
    spans = []
    start = 0
    if text.isascii():  # then lower case has the same length, and only these words make a mark
        lower = text.lower()
        places = [place for word in _MARK_WORDS if (place := lower.find(word)) >= 0]
        if not places:
            return []
        start = text.rfind("\n", 0, min(places)) + 1
    for match in deque(_MARK.finditer(text, start), maxlen=MAX_MARKS):
        limit = min(match.end() + MAX_MARKED, len(text))
        end = text.find("\n", match.end(), limit)
        span = cut(text, match.end(), limit if end < 0 else end)
        if span.text.strip(" *$:"):
            spans.append(span)
    return spans


def last_line(text: str) -> Span | None:
    """Find the last line that holds more than spaces and marks."""
    end = len(text.rstrip(" \t\r\n*$`"))
    if end == 0:
        return None
    stop = text.find("\n", end)
    return cut(text, text.rfind("\n", 0, end) + 1, len(text) if stop < 0 else stop)


def first_sentence(span: Span) -> Span:
    """Cut a span after its first sentence; a point inside a number or formula ends none."""
    for match in _SENTENCE_END.finditer(span.text):
        if match.group() == "\n" or span.text.count("$", 0, match.start()) % 2 == 0:
            return cut(span.text, 0, match.start()).shift(span.start)
    return span


def after_verb(line: str) -> str | None:
    """Take what stands after the last verb of the last sentence; None where the line doubts.

    >>> after_verb("So the letters are **nda**."), after_verb("It is not nda."), after_verb("nda")
    ('nda', None, None)
    """
    if len(line) > MAX_SENTENCE or is_doubtful(line):
        return None
    sentence = _NEXT_SENTENCE.split(line)[-1]
    verbs = list(_VERB.finditer(sentence))
    if not verbs:
        return None
    return sentence[verbs[-1].end() :].strip().rstrip(".!").strip(" *`") or None


def only_number(line: str) -> str | None:
    """Take the one number of a sentence and what follows it: `It was highest in 2008.`"""
    if len(line) > MAX_SENTENCE or is_doubtful(line):
        return None
    numbers = list(_PLAIN_NUMBER.finditer(line))
    if len(numbers) != 1:
        return None
    sign = _SIGN.search(line, 0, numbers[0].start())
    start = sign.start() if sign else numbers[0].start()
    if not _PLAIN_WORDS.fullmatch(line, 0, start):
        return None
    return line[start:].strip().rstrip("!").replace("**", "")


def find_formulas(text: str) -> list[Span]:
    r"""List what stands between dollar signs, `\(` and `\)`, `\[` and `\]`, in order."""
    spans = []
    opening: tuple[str, int] | None = None
    for match in _FORMULA_SIGN.finditer(text):
        sign = match.group()
        if sign in ("\\\\", "\\$"):
            continue
        if opening is None:
            opening = None if sign in ("\\)", "\\]") else (sign, match.end())
        elif sign == {"\\(": "\\)", "\\[": "\\]"}.get(opening[0], opening[0]):
            spans.append(cut(text, opening[1], match.start()))
            opening = None
    return spans


def find_numbers(text: str) -> Iterator[Span]:
    """List the numbers and simple fractions, in order."""
    for match in _NUMBER.finditer(text):
        if match.group():
            yield cut(text, match.start(), match.end())
