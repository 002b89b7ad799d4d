"""Read the lines that a response to the 24 game may hold.

step       `13 - 1 = 12`; `13 - 1 = 12, left: 12 8 6`; `13 - 1 = 12 (left: 6 8 12)`;
           `(13) - (1) = 12, left: (13 - 1) = 12, 8, 6`
roll back  `roll back, left: 13 8 6 1`; `back, left: 13 8 6 1`
answer     `reach 24! expression: 6 * (13 - 1 - 8)`; `Answer: 6 * (13 - 1 - 8) = 24`;
           `6 * (13 - 1 - 8)`; `6(13 - 1 - 8) = 6 * 4 = 24`; `no solution`, or a last sentence that
           means it; a field of a JSON object; an expression in the last sentence:
           `Use 6 * (8 - 8 / 2) instead: 8 / 2 = 4, ...`
"""

import re
from functools import lru_cache
from typing import NamedTuple

from whet.answers.doubt import (
    CHOICE,
    FALSE,
    TURN,
    any_of,
    cut_remarks,
    is_denied,
    is_doubtful,
    strip_lead,
)
from whet.answers.withdrawal import DISOWNING, RETREATING, is_disowned
from whet.tasks.answers import strip_text_commands
from whet.tasks.expressions import (
    NUMBER,
    SIGNS,
    Expression,
    State,
    Value,
    parse_expression,
    read_chain,
    read_value,
    write_plainly,
    write_value,
)
from whet.tasks.literals import last_object, read_field

MAX_LINE_CHARS = 512
_EQUATION = rf"\(?({NUMBER})\)? ?([-+*/]) ?\(?({NUMBER})\)? ?= ?({NUMBER})"
"""An operation and its result: `13 - 1 = 12`."""
_STEP = re.compile(rf"{_EQUATION}(?:, ?left:(.*)| ?\(left:(.*)\)|[.])?", re.ASCII)
_ROLL_BACK = re.compile(r"(?:roll )?back\b,? ?(?:left:(.*))?", re.ASCII)
_ANSWER = re.compile(
    r"(?:reach 24!\s*)?(?:(?:final|full|whole) )?(?:expression|answer|solution|答案)[:：](.*)",
    re.ASCII | re.IGNORECASE,
)
_DRESS = re.compile(
    r"(?i)[\\$]|\*\*|\b(?:answer|solution|expression|result) is\b|s [a-z ]{3,14} as\b"
    r"|\bexpression (?=[0-9(])"
)
"""Markup or words around an answer, which `strip_dress` removes."""
_BOLD = re.compile(r"\*\*((?:[^*]|\*(?!\*))+)\*\*")
_FRAME = re.compile(
    r"^[ \t]*(?:```[a-z]*|\\[\[\]]|\$\$"
    r"|(?:\$\$|\\\[)?\\(?:begin|end)\{[a-z]{4,9}\*?\}(?:\$\$|\\\])?)"
    r"[ \t]*$",
    re.MULTILINE,
)
"""A line that only opens or closes a formula or a fenced block."""
_GOES_ON = re.compile(r"[ \t]*(?:\\\\)?[ \t]*\n[ \t]*&?[ \t]*=")
"""An equation that continues on the next line."""
_RESULT_BOX = re.compile(r"(=[ \t]*)\\boxed ?\{[ \t]*([0-9]{1,6})[ \t]*\}")
"""A box around only the result of an equation."""
_TAGS = re.compile(r"<answer>([^<]*)</answer>")
_WRAPPER = re.compile(r"\$|\\[()\[\]]")
_SENTENCE = re.compile(
    r"(?:(?:so|thus|therefore|hence),? )?(?:the |one |a |my )?(?:final |possible )?"
    r"(?:(?:answer|solution|expression|result) is|expression(?= [0-9(][^a-z]{6,80}[a-z])"
    r"|(?:these |four )?(?:numbers|cards) (?:combine|work|go together|fit together) as):? ",
    re.IGNORECASE,
)
"""Words that introduce an expression: `So the answer is `, `These numbers combine as `."""
_BOX = re.compile(
    r"((?:Final )?Answer: ?|[A-Z][A-Za-z' ]{0,40}:? ?)?\\boxed ?\{(.*)\}( ?= ?24)?\.?",
    re.IGNORECASE,
)
r"""A line whose answer is in a box: `Answer: \boxed{4 * 6}`."""
_SOME_LEAD = re.compile(r"[A-Z][A-Za-z' ]{0,40}[:!] ?")
"""Words before an expression: `Found it: `."""
_CHECK = re.compile(
    r"\W*(?:(?:check|verification|sanity check)\W*[:—–-]"
    r"|(?:all|each|every)(?: \w+){0,2} (?:cards?|numbers?)(?: \w+)? (?:used|in use)"
    r"\b[a-z ]*[.!]?\Z)",
    re.IGNORECASE,
)
"""The start of a line that checks the answer: `Check:`, `All four numbers are used`."""
_ORDER = "(?i:first|second|third|then|next|now|finally|lastly)"
_STEP_LEAD = re.compile(
    rf"(?:(?:(?:that|this|which) leaves|leaving|{_ORDER})\b[0-9, ]{{0,20}}"
    rf"(?:and )?[0-9]{{0,4}}[:,]|{_ORDER}|(?:step )?[1-3][.):]|[-*•]) (?=[(0-9-])",
    re.IGNORECASE,
)
"""What may precede a step: `that leaves 1: `, `2. `."""
_STEP_END = re.compile(rf"({_EQUATION})[,;.] (?:then |and )?")
_STEPS = re.compile(
    rf"^(?:(?:{_ORDER}[:,]? )?{_STEP_END.pattern})+"
    rf"(?=[0-9(]|{_ORDER}\b|(?i:so|thus|hence|therefore)\b|[A-Z][a-z]+[.!]?$)",
    re.MULTILINE,
)
"""Steps at the start of a line: `7 - 6 = 1, 13 * 1 = 13`."""
_AFTER_24 = re.compile(
    r"(?<=[= ]24)(?:[.!]|(?:,| [—–-])? (?:as|which|using|with|since|because|for|where|so"
    r"|and (?:each|every|all))\b"
    r"[\w ,'’*/+=()-]*[.]?| \([a-z][a-z ,']*\)[.]?)\Z",
    re.IGNORECASE,
)
"""What may follow the 24 of an expression: ` (all four numbers are used)`."""
_WRITTEN_AGAIN = re.compile(
    r"(?:[:;]|, (?:or|i\.e\.|that is)|\b(?:out|so|as|is|gives|namely|means)),? ?"
    r"(?=[0-9(][0-9 ()*/+-]*= ?24\.?\Z)|[,;:.] Answer: (?=[0-9(][0-9 ()*/+-]*\Z)"
)
"""What precedes the last expression of a line if it restates another one, `written out: `, or is
called the answer after other clauses."""
_EXPLAINS = re.compile(
    r"(?:here|because|since|as|indeed|note|this (?:works|is because|uses|holds|gives)"
    r"|it (?:works|uses|holds)|in it|inside|the (?:inner|bracket|first|product|sum"
    r"|quotient|fraction)|explanation|why|reason|working|first|we (?:first|start|begin))\b",
    re.IGNORECASE,
)
"""The start of a paragraph after an answer that explains it."""
EXPRESSIONS = re.compile(r"[0-9(][0-9 ()*/+-]*")
_EQUALS = re.compile(
    r"(?<=[0-9)]),? (?:which )?(?:equals|is equal to|gives|makes|yields|is) (?=24\b)"
)
_WORKS = re.compile(r"(?<=[0-9)]),? (?:which )?works\Z")
_CROSS = re.compile(r"(?<=[0-9)])\s?[xX]\s?(?=[0-9(])")
_HAND = (
    r"(?:(?:these|the|this|all|your)(?: (?:given|four|same|of|the|these))*"
    r" (?:numbers|cards|digits|hand|puzzle|game|combination)"
    r"|(?:the hand |the numbers )?\(?[0-9]{1,2}(?:,? (?:and )?[0-9]{1,2}){3}\)?)"
)
"""Words for the hand: `these four numbers`, `1, 2, 3 and 4`."""
_MAKE = (
    r"(?:make|reach|get(?: to)?|give|yield|form|produce|equal|hit"
    r"|come to|lead to|result in|arrive at)"
)
_MAKES = (
    r"(?:makes?|reach(?:es)?|gets?(?: to)?|gives?|yields?|forms?|produces?|equals?|hits?|comes? to"
    r"|leads? to|results? in|arrives? at|is|works out to)"
)
_CANNOT = (
    r"(?:cannot|can['’]t|can not|(?:do|does)(?: not|n['’]t)|could(?: not|n['’]t)|never|will not)"
)
_WITH = rf"(?: (?:from|with|by|for|using|out of|to|in|of) (?:{_HAND}|these|them|this|it))?"
_WAYS = (
    r"(?:solutions?|ways?|expressions?|combinations?|arrangements?|orders?|sequences?|choices?"
    r"|formulas?|equations?)"
)
_LEADS = (
    r"(?:(?:so|thus|hence|therefore|overall|consequently|in (?:conclusion|short|total)"
    r"|(?:my |the )?(?:final )?answer(?: is)?|conclusion|result"
    r"|(?:this|which|that) means|it follows"
    r"|(?:we|i) conclude)[,:]? (?:that )?){0,2}"
)
_NONE = re.compile(
    r"(?i)\bno(?:ne)?\b|\bnothing\b|\bnever\b|n['’]t\b|\bnot\b|\bcannot\b|impossible|unsolvable"
)
"""A line without one of these does not say that there is no solution."""
_NO_SOLUTION = re.compile(
    rf"(?i){_LEADS}(?:(?:there(?: is| are|['’]s| exists?) )?(?:absolutely |simply )?no"
    rf" (?:(?:such|valid|possible|legal) )?{_WAYS}(?: (?:to {_MAKE}|(?:that )?{_MAKES}"
    rf"|of (?:making|reaching|getting)) 24)?{_WITH}(?: exists?| is possible| can be found| here)?"
    rf"|(?:no {_WAYS}|nothing|none of (?:the|all|these)(?: \w+)? {_WAYS})"
    rf"{_WITH}(?: (?:ever|can|will))? {_MAKES} 24{_WITH}"
    rf"|(?:it|{_HAND}) (?:has|have) no solutions?"
    rf"|{_HAND} {_CANNOT} (?:be (?:combined|joined|used|made) (?:to|into) )?(?:{_MAKE} )?24"
    rf"|24 (?:cannot|can['’]t|can not) be (?:made|reached|formed|obtained|done|produced){_WITH}"
    rf"|24 is (?:not (?:reachable|possible|attainable)|unreachable|impossible){_WITH}"
    rf"|it(?: is|['’]s) (?:impossible|not possible)(?: to {_MAKE} 24)?{_WITH}"
    rf"|(?:it|this|{_HAND}) (?:cannot|can['’]t|can not) be (?:done|solved)"
    rf"|{_HAND} (?:is|are) (?:impossible|unsolvable|not solvable))[.!]?"
)
"""A sentence that says that there is no solution."""
_ANSWERED = re.compile(
    r"(?i)(?:(?:the |my )?(?:final )?answer(?: is)?|conclusion|result)[:*]* *[*]*"
    r"(?:impossible|unsolvable|none|not possible|no(?: such)? expression)[.!*]*"
)
"""A line that says so in one word."""
_SENTENCE_END = re.compile(
    r"[.!:;] +|, (?=(?:so|hence|thus|therefore)\b)| [–—] |\s*(?:→|⇒|=>|->)\s*"
)
_REASON_BEFORE = re.compile(r"(?i)(?:since|because|as|after|having|given)\b[^.;]{3,200}, ")
"""A reason before a claim: `Since all are odd, `."""
_REASON_BEHIND = re.compile(r"(?::|,? (?:since|because|as(?! far\b))\b| [–—-]) ")
"""What introduces a reason after a claim: ` because `."""
_NO_REASON = re.compile(r"(?i)= ?24\b|\b(?:but|except|only|yet|so far)\b")
"""If a reason has one of these, it is more than a reason."""
_BOLD_SIGNS = re.compile(r"\*\*(?!\w)|(?<!\w)\*\*")
_STOP = re.compile(r"[.!;] +")
_LEAVES_OPEN = re.compile(
    rf"(?i){any_of(CHOICE.removeprefix('or|'), TURN, FALSE)}|\b(?:may|might|could)\b(?! not)"
    r"|\b(?:if|think|guess|unsure|unless|suppose|assume|says?|said|claims?)\b|\?"
)
"""If the words before the end of a sentence have one of these, they do not support its end."""
_HEDGES = re.compile(
    r"(?i)(?<!\bwe )\b(?:may|might)\b(?! not)|\b(?:maybe|perhaps|possibly|think|guess|unsure)\b"
)
"""If earlier sentences have one of these, the last sentence is a hedge."""
_NEXT_SENTENCE = re.compile(r"(?<=[.!]) +(?=[A-Z$\\*])")
_USE = re.compile(
    r"(?:(?:so|then|but),? )?(?:(?:you|we|I) (?:can )?)?(?:use|take|write|play) "
    r"(?P<expression>[0-9(][0-9 ()*/+-]*?)(?: instead)?"
    r"(?:[:;,] (?P<steps>(?:[0-9 ()*/+=,;-]|\b(?:then|and|so|gives|makes|is)\b)*= ?24))?",
    re.IGNORECASE,
)
"""A sentence that says what to use, perhaps with the steps."""


class Left(NamedTuple):
    """The sorted numbers that a line lists as left, and the cards in their expressions, if any."""

    values: State
    cards: tuple[int, ...] | None


class StepLine(NamedTuple):
    """A line that combines two numbers: the operation, its result and the numbers left."""

    a: Value
    symbol: str
    b: Value
    c: Value
    left: Left | None
    has_left: bool

    def __str__(self) -> str:
        return f"{write_value(self.a)} {self.symbol} {write_value(self.b)} = {write_value(self.c)}"


class RollBackLine(NamedTuple):
    """A line that returns to earlier numbers."""

    left: Left | None


class AnswerLine(NamedTuple):
    """A claim: an expression (None if it cannot be read), or that there is no solution."""

    text: str
    expression: Expression | None
    is_no_solution: bool


Line = StepLine | RollBackLine | AnswerLine | None


def lines_of(text: str) -> list[str]:
    """Split a response into nonblank lines, with × ÷ − as * / -.

    Text in answer tags gets its own lines, as does each of several steps on one line.
    """
    if "</answer>" in text:
        text = _TAGS.sub(r"\n\1\n", text)
    if "\\" in text or "```" in text:
        text = _GOES_ON.sub(" =", unbox_result(_FRAME.sub("", text)).replace("&=", "="))
    if not text.isascii():
        text = text.translate(SIGNS)
    if "left" not in text:
        text = _STEPS.sub(lambda steps: _STEP_END.sub(r"\1\n", steps[0]), text)
    return [stripped for line in text.split("\n") if (stripped := line.strip()).strip("*_-")]


def unbox_result(text: str) -> str:
    r"""Remove the box around a result: `4 \times 6 = \boxed{24}`."""
    return _RESULT_BOX.sub(r"\1\2", text)


def write_object(text: str) -> str:
    """Replace a JSON object that ends a text by a line with its answer.

    >>> write_object('{"expression": "4 * 6", "value": 24}')
    '{"expression": "4 * 6", "value": 24}'
    >>> write_object('{"expression": "4 * (7 - 8 / 8)", "value": 24}')
    '\\nAnswer: 4 * (7 - 8 / 8)'
    """
    item = last_object(text) if text.rstrip("`\n ").endswith("}") else None
    answer = read_field(item, _read_hand) if item else None
    if item is None or answer is None:
        return text
    start = text.rfind(item)
    lead = text[:start].rstrip("`,;\n ").rpartition("\n")[2]
    is_led_away = "{" in lead or lead.endswith("}") or is_disowned(lead)
    if is_led_away or is_denied(text, start, start + len(item)):
        return text
    return f"{text[:start]}\nAnswer: {answer.text}"


def read_lines(lines: list[str]) -> list[Line]:
    """Read the lines of a response; the last one may be read by its last sentence."""
    return [*map(read_line, lines[:-1]), read_line(lines[-1]) or _read_sentence(lines[-1])]


def without_checks(lines: list[str]) -> list[str]:
    """Drop final lines that check or explain an answer without doubting it."""
    num = len(lines)
    while num > 1 and _is_comment(lines[num - 1], lines[num - 2]):
        num -= 1
    return lines[:num]


def _is_comment(line: str, above: str) -> bool:
    """Whether a line checks the answer above it, or explains it without another answer of its
    own."""
    if _CHECK.match(line):
        return not is_doubtful(line)
    if not _EXPLAINS.match(line) or "24" not in line or _takes_back(line):
        return False
    plain = write_plainly(line[:MAX_LINE_CHARS])
    parts = map(parse_expression, map(str.strip, EXPRESSIONS.findall(plain)))
    return has_hand(read_line(above)) and all(len(one.leaves) < 4 for one in parts if one)


def _takes_back(remark: str) -> bool:
    """Whether a remark may doubt or disown its answer."""
    words = remark.lower().split()
    return is_doubtful(remark) or not (DISOWNING | RETREATING).isdisjoint(words)


def has_hand(line: Line) -> bool:
    """Whether a line answers with an expression of four numbers."""
    expression = line.expression if isinstance(line, AnswerLine) else None
    return expression is not None and len(expression.leaves) == 4


@lru_cache(1 << 15)
def read_line(line: str) -> Line:
    """Read a line; None if it has none of the known forms, or is longer than any honest one."""
    if len(line) > MAX_LINE_CHARS:
        return None
    line = strip_dress(line) if _DRESS.search(line) else line
    lead = _STEP_LEAD.match(line)
    if match := _STEP.fullmatch(line, lead.end() if lead else 0):
        return _read_step(match)
    if match := _ROLL_BACK.fullmatch(line):
        return RollBackLine(_read_left(match[1] or ""))
    return read_answer_line(line)


def read_answer_line(line: str) -> AnswerLine | None:
    """Read a line as an answer; without an introduction, it needs `= 24` or four numbers."""
    bare = _CROSS.sub("*", _strip_words(line))
    remark = _AFTER_24.search(bare)
    if remark and not _takes_back(remark[0]):
        bare = bare[: remark.start()]
    bare = write_plainly(_EQUALS.sub(" = ", bare))
    answer = _read_answer(line)
    if not _says_much(answer):
        plain = _read_answer(bare)
        answer = plain if answer is None or _says_much(plain) else answer
    if answer is None and (lead := _SOME_LEAD.match(bare)) and not is_doubtful(line):
        named = _read_answer(bare[lead.end() :])
        is_whole = named and named.expression and len(named.expression.leaves) == 4
        return named if is_whole and "=" in bare else None
    if answer is None and (again := _WRITTEN_AGAIN.search(bare)) and not is_doubtful(line):
        if is_disowned(f"{bare[: again.start()]}:"):
            return None
        named = _read_answer(bare[again.end() :].removesuffix("."))
        return named if has_hand(named) else None
    return answer


def write_no_solution(text: str) -> str:
    """Replace the last line with `no solution` if its last sentence says that there is none.

    >>> write_no_solution("I tried all. These four numbers cannot make 24.")
    'no solution'
    """
    if not _NONE.search(text, max(len(text) - 2 * MAX_LINE_CHARS, 0)):
        return text
    end = cut_remarks(text)
    start = len(end) - len(end[end.rfind("\n") + 1 :].rpartition("</think>")[2])
    line = _BOLD_SIGNS.sub("", end[start:]).strip("#*_`$> ")
    last = _SENTENCE_END.split(line)[-1]
    lead = line[: len(line) - len(last)]
    is_said = any(map(_NO_SOLUTION.fullmatch, _without_reason(last, line)))
    is_said = is_said or _ANSWERED.fullmatch(line) is not None
    if len(line) > MAX_LINE_CHARS or not is_said:
        return text
    is_hedged = _LEAVES_OPEN.search(_STOP.split(lead)[-1]) or _HEDGES.search(lead)
    is_open = is_hedged or is_disowned(lead.rstrip())
    return text if is_open else f"{end[:start]}no solution"


def _says_much(answer: AnswerLine | None) -> bool:
    return answer is not None and (answer.expression is not None or answer.is_no_solution)


def _strip_words(line: str) -> str:
    """Strip the text around a bare answer: `## So = 4 * 6.`"""
    bare = strip_lead(line.strip("#>✅ "))
    return bare.strip("\"'`“”*_# ").removesuffix(".").removeprefix("=").strip("\"'`“”*_ ")


def _read_answer(line: str) -> AnswerLine | None:
    match = _ANSWER.fullmatch(line)
    text = _strip_words(match[1]) if match else line
    if text.lower().rstrip(".") == "no solution":
        return AnswerLine("no solution", None, True)
    expression = read_chain(text)
    is_bare = expression is not None and "=" not in text and len(expression.leaves) < 4
    if match is None and (expression is None or is_bare):
        return None
    return AnswerLine(text, expression, False)


def strip_dress(line: str) -> str:
    """Strip bold, formulas and a sentence from around a line: `The answer is $4 \\times 6$.`"""
    line = _BOLD.sub(r"\1", line)
    line = _WRAPPER.sub(" ", write_plainly(line) if "\\" in line else line)
    line = _SENTENCE.sub("Answer: ", " ".join(line.split())).rstrip(". ")
    line = _WORKS.sub("", _EQUALS.sub(" = ", line))
    if match := _BOX.fullmatch(line):
        name = match[1] if match[1] and "nswer" in match[1] else ""
        line = (
            line
            if is_doubtful(match[1] or "")
            else f"{name}{strip_text_commands(match[2])}{match[3] or ''}"
        )
    return line.rstrip(". ")


def _read_step(match: re.Match[str]) -> StepLine | None:
    *equation, left, left_in_brackets = match.groups()
    a, b, c = map(read_value, (equation[0], *equation[2:]))
    if a is None or b is None or c is None:
        return None
    text = left if left_in_brackets is None else left_in_brackets
    return StepLine(a, match[2], b, c, None if text is None else _read_left(text), text is not None)


def _read_left(text: str) -> Left | None:
    """Read numbers between commas or spaces; `(13 - 1) = 12` is 12 with its origin."""
    values: list[Value] = []
    cards: list[int] = []
    for item in text.split(","):
        origin, equals, numbers = item.rpartition("=")
        expression = parse_expression(origin.strip()) if equals else None
        item_values = [value for word in numbers.split() if (value := read_value(word)) is not None]
        if len(item_values) < len(numbers.split()):
            return None
        if equals and (expression is None or item_values != [expression.value]):
            return None
        values += item_values
        cards += expression.leaves if expression else [value[0] for value in item_values]
    if not 1 <= len(values) <= 4:
        return None
    return Left(tuple(sorted(values)), tuple(sorted(cards)) if "=" in text else None)


def _without_reason(last: str, line: str) -> list[str]:
    """List a sentence as it is, without a reason before it, and the line without a reason after
    it."""
    forms = [last, _REASON_BEFORE.sub("", last, count=1)]
    if behind := _REASON_BEHIND.search(line):
        reason = line[behind.end() :]
        if not _NO_REASON.search(reason) and not _LEAVES_OPEN.search(reason):
            forms.append(line[: behind.start()])
    return forms


def _read_sentence(line: str) -> AnswerLine | None:
    """Read the answer in a line's last sentence; None if it doubts it or says something else."""
    *before, sentence = _NEXT_SENTENCE.split(line)
    start = len(line) - len(sentence)
    is_foreign = before and is_disowned(f"{before[-1].rstrip('.!')}:")
    if len(line) > MAX_LINE_CHARS or is_foreign or is_denied(line, start, len(line)):
        return None
    if start and (answer := _read_hand(sentence)):
        return answer
    use = _USE.fullmatch(strip_dress(sentence).rstrip(".! "))
    if use is None or is_doubtful(use["steps"] or ""):
        return None
    steps = map(parse_expression, map(str.strip, EXPRESSIONS.findall(use["steps"] or "")))
    answer = read_answer_line(use["expression"].strip())
    is_whole = has_hand(answer) and all(len(step.leaves) < 4 for step in steps if step)
    return answer if is_whole else None


def _read_hand(text: str) -> AnswerLine | None:
    answer = read_line(text.translate(SIGNS))
    return answer if isinstance(answer, AnswerLine) and has_hand(answer) else None
