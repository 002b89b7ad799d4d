"""Read the answer to a question about a numbered graph, in linear time.

If a text gives two answers, nothing is read. The text after the last `###`, or in the last box or
answer tag, comes first, then what a sentence states, and then the last line. `read_statement` reads
a yes or no that the last sentence gives in words of the question: `hence it has no cycle`. A
sentence that doubts, supposes, defines, says both, or mentions other nodes gives no answer.
"""

import re
from collections.abc import Iterator, Mapping
from fractions import Fraction
from typing import NamedTuple

from whet.answers.doubt import (
    CHOICE,
    EVASIVE,
    FALSE,
    LEADING,
    SUPPOSED,
    TURN,
    any_of,
    is_denied,
    is_doubtful,
    strip_lead,
)
from whet.answers.final_answer import last_box, make_span
from whet.answers.sentences import last_line
from whet.tasks.answers import candidates, write_in_line
from whet.tasks.expressions import parse_expression, read_value
from whet.tasks.graphs.node_lists import drop_walked_edges

_YES_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_LEADING = re.compile(r"(?i)[\W_]{0,8}(yes|no)\b(?![\s,]*(?:or|and|/)\b)[\w\s,.;:'()\[\]>$*\\–—-]*")
_BARE_YES_NO = re.compile(r"(?i)\b(yes|no)\b(?=\W*(?:\Z|[.,;:!)\]}*\n]|\b(?:or|and|yes|no)\b))")
_CONCLUDED = re.compile(r"(?i)\b(?:so|therefore|thus|hence)[\s,:]{1,3}(yes|no)\b(?=[,.;!]|\Z)")
_ANSWER_YES_NO = re.compile(
    r"answer(?: is)?[\W_]{0,8}(yes|no)\b(?![\s.,;)*]*(?:\bor\b|\band\b|/|\())", re.IGNORECASE
)
_CLOSING_WORD = re.compile(r"(?i)[.!;]\s+(yes|no)[.!]?\Z")
_EVASION = re.compile(rf"(?i)\bno (?:{EVASIVE})\b")
_THERE = re.compile(r"\bthere (?:is|exists) (an?|no)\b", re.IGNORECASE)
_CONDITION = re.compile(
    r"(?i)(?:[^\n]*[.!] )?(?:if|unless|(?:we |i |let us )?(?:suppose|assum\w+))\b"
    r"(?![^\n]*\b(?:so|thus|hence|therefore)\b)"
)
"""The start of a line that only supposes what it says."""
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]{1,12}(?:\.[0-9]{1,6})?(?!\.?\w)")
_STATED_NUMBER = re.compile(
    rf"(?i)(?:\b(?:is|are|be|of|equals|weighs|costs|totals)\b(?: (?:{LEADING})\b)*|[=:]"
    r"|\b(?:comes|amounts|adds up) to\b)[\s*$\\(]{0,6}"
    r"(-?[0-9]{1,12}(?:\.[0-9]{1,6})?)(?:\s[a-z]{1,20})?[\s.*$)\\]{0,6}"
)
_ASIDE = re.compile(r"(?i)(?<=[0-9]) \([a-z]{3,20} [a-z0-9 ,]{1,80}\)\.?\Z")  # 23 (nodes 2, 5, 6)
_JSON_NUMBER = re.compile(r'(?:json\s*)?\{\s*"?\w{1,40}"?\s*:\s*"?(-?[0-9.]{1,20})"?\s*\}\s*\Z')
_PROSE = re.compile(r"[\w\s,;.'()*$\\>=+:-]*[^\W\d_]{3}[\w\s,;.'()*$\\>=+:-]*")
_TIDY = re.compile(r"[\w\s,.;:'()\[\]{}*$\\>-]*")
_STEP = r"(?:\s{0,3}(?:,|->|→|\\to|\\rightarrow)|[ \t]{0,3}-)\s{0,3}"
_RUN = rf"[0-9]{{1,5}}(?:{_STEP}[0-9]{{1,5}}(?!\s?:)){{1,2000}}"
_PATH_WEIGHT = re.compile(r" with (?:a |the )?(?:total )?weight of [0-9]{1,12}")
_RUN_ALONE = re.compile(_RUN)
_RUNS = re.compile(rf"(?<![\w.,]){_RUN}(?!\w)")
_STATED_RUN = re.compile(rf"(?:\bis|\bbe|:|=)[\s*\[]{{0,6}}({_RUN})(?!\w)", re.IGNORECASE)
_OR_ANOTHER = re.compile(r"[\s*\])]{0,4},? ?(?:or|/)[\s*\[(]{0,4}(?:job )?[0-9]")
_SHOWN = re.compile(
    r"(?i)\b(?:path|cycle|route)\b[^\n.;0-9]{0,60}?(?:\b(?:is|be)\b|[:=\[(])[\s*\[(]{0,6}"
    rf"({_RUN})(?!\w)"
)
_EDGE = re.compile(
    r"\(\s{0,3}[0-9]{1,5}\s{0,3}(?:,|->)\s{0,3}[0-9]{1,5}\s{0,3}(?:,\s{0,3}[0-9]{1,5}\s{0,3})?\)"
)
_PAIR = re.compile(
    r"(?im)applicant\s{0,3}([0-9]{1,5})\s{0,3}(?::|->|→|-|is assigned to|gets|takes)\s{0,3}"
    r"job\s{0,3}([0-9]{1,5})"
    r"|^[ \t]{0,9}\|[ \t]{0,9}([0-9]{1,5})[ \t]{0,9}\|[ \t]{0,9}([0-9]{1,5})[ \t]{0,9}\|[ \t]*$"
)
_JOB_FIRST = re.compile(r"(?i)\bjob ([0-9]{1,5}) (?:goes )?to applicant ([0-9]{1,5})")
_OTHER_LINE = re.compile(r"\n[ \t]*[^\s][^\n]*\n")
_HEAD = re.compile(r"(?i)\b(?:the|there)\b")  # where a statement may start
_SENTENCE = re.compile(r"[.!]\s+(?=[A-Z])")
_ROW = re.compile(
    r"(?im)(?:(?:\bnode[ _]{0,3}|\b[hx]_?|^[\s{*-]{0,9}|[,{:;]\s?)\{?([0-9]{1,5})\}?"
    r"\s{0,3}(?::|=|→|->|\bis|\bbecomes)|\|[ \t]{0,9}(?:node )?([0-9]{1,5})[ \t]{0,9}\|)\s{0,3}"
    r"[\[(]\s{0,3}(-?[0-9]{1,9})\s{0,3},\s{0,3}(-?[0-9]{1,9})\s{0,3}[\])]"
    r"|^[ \t]{0,9}\|[ \t]{0,9}(?:node )?([0-9]{1,5})[ \t]{0,9}\|[ \t]{0,9}(-?[0-9]{1,9})"
    r"[ \t]{0,9}\|[ \t]{0,9}(-?[0-9]{1,9})[ \t]{0,9}\|[ \t]*$"
)
_OR_ANOTHER_ROW = re.compile(r" ?,? ?(?:or|/) ?[\[(]")
_GOES_ON = re.compile(r"(\b(?:is|are)|[:=])[ \t]*\n\s*(?=-?[0-9.]{1,20}\W*\Z)")  # to the last line
_SHORT = 240
_TURN = re.compile(any_of(TURN), re.IGNORECASE)
_MAX_LINE = 1000
_NOT = r"(?:\bnot|n['’]t|\bcannot|\bnever|\bneither)"
_HAS = (
    r"\b(?:has|have|having|contains?|containing|includes?|there(?: is|['’]s| exists| are)|found"
    r"|finds?|forms?|forming|closes?|closing|creates?|makes?|is|are|gives?|get|exists)\b"
)
_STATEMENT_END = re.compile(r"(?<!\b[A-Z])[.!]\s+(?=[A-Z*])|\n")
_OPEN = re.compile(
    rf"(?i){any_of('would', 'should', 'whether', 'question', 'asked?', 'asks', 'claims?', 'says?')}"
    r"|\A\W*(?:(?:an?|any|every|each) (?:undirected |directed |simple )?graphs?|graphs|if|when"
    r"|suppose|assum\w+|to (?:find|see|check|tell|decide|determine)|let\b|recall|note that an?)\b"
    r"|\bgraphs\b|\b(?:we|i|us) (?:assume|suppose)\b|\?"
)
"""A sentence with one of these answers nothing."""
_UNSURE = re.compile(
    rf"(?i){any_of(CHOICE, TURN, FALSE, SUPPOSED)}"
    r"|\b(?:probably|likely|might|may|could|if|unless|unsure|unclear|think|guess|but|except|almost"
    r"|nearly)\b"
)
_CLAUSE = re.compile(r"[,;:–—] ?(?:and |so |hence |thus )?")
_HARMLESS = re.compile(r"(?i)\bbetween\b|\bat least (?:one|an?)\b")
_WORD = re.compile(r"(?i)\b(?:yes|no)\b(?=\W*(?:\Z|[,.;:!)\n]))")
_NAMED_EDGES = re.compile(r"[(\[{][\d\s,>-]*[)\]}]|\d+(?:\s?(?:-|–|→|->)\s?\d+)+")
_NUMBERS = re.compile(r"[0-9]+")


def read_yes_no(text: str) -> str | None:
    """Read "yes" or "no"; None if the answer is neither, or both.

    >>> [read_yes_no(text) for text in ("No way. ### Yes", "### Yes or No", "No, it has none.")]
    ['yes', None, 'no']
    """
    text = _EVASION.sub(" ", text)
    for part in _closing_parts(text):
        if words := list(_YES_NO.finditer(part)):
            is_one = len({word[0].lower() for word in words}) == 1
            is_one &= all(is_claimed(part, *word.span()) for word in words)
            line = part.strip().partition("\n")[0] if is_one else part
            is_tidy = is_one and _TIDY.fullmatch(line)
            return words[0][0].lower() if is_tidy else _leading_word(line)
    for last in list(_ANSWER_YES_NO.finditer(text))[-1:]:
        is_single = not _is_contradictory(text[last.start(1) :])
        return last[1].lower() if is_single and is_claimed(text, *last.span(1)) else None
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if is_denied(text, text.rfind(lines[-1]), len(text)):
        return None
    closing = lines[-1]
    if word := _leading_word(closing) or _concluding_word(closing) or _leading_word(lines[0]):
        return word
    for pattern in () if _CONDITION.match(closing) else (_CONCLUDED, _THERE):
        if matches := list(pattern.finditer(closing)):
            answer = "no" if matches[0][1].lower() == "no" else "yes"
            bare = list(_BARE_YES_NO.finditer(closing[:_SHORT]))
            is_single = len(matches) == 1 and all(match[1].lower() == answer for match in bare)
            stated = (*bare, matches[0])
            is_stated = is_single and all(is_claimed(closing, *one.span()) for one in stated)
            return answer if is_stated else None
    return None


def read_final_number(text: str) -> Fraction | None:
    """Read the final number; None if there is none, or several.

    >>> read_final_number("The flow from node 4 to node 9 is 6."), read_final_number("### 5 or 6")
    (Fraction(6, 1), None)
    """
    for part in _closing_parts(text):
        if _NUMBER.search(part):
            left, _, right = part.strip().rpartition("=")
            worked = parse_expression(left.strip())  # 9 + 1 = 10
            return _bare_number(
                right if worked and worked.value == read_value(right.strip()) else part
            )
    text = _GOES_ON.sub(r"\1 ", text)
    for line in [line for line in text.splitlines() if line.strip()][-3:][::-1]:
        if (value := _number_at_end(line)) is not None:
            return value
    return _bare_number(text)


def read_walk(text: str) -> tuple[int, ...] | None:
    """Read the final list of nodes, joined by commas or arrows, in brackets or not.

    >>> read_walk("(0,1) is an edge, so the path can be: 0 -> 1 -> 2.")
    (0, 1, 2)
    """
    for span in candidates(text):
        line = re.sub(r"(?i)\A\s*yes\b\W*", "", write_in_line(span).replace('"', "")).strip("[]() ")
        if _RUN_ALONE.fullmatch(line):
            return _numbers(line)
    for part in _closing_parts(text):
        if inside := list(_RUNS.finditer(part)):
            return _numbers(inside[-1][0]) if is_claimed(part, *inside[-1].span()) else None
    bare = drop_walked_edges(_EDGE.sub(" ", text))
    for pattern, source in ((_STATED_RUN, bare), (_RUNS, bare), (_RUNS, text)):
        if runs := list(pattern.finditer(source)):
            start, end = runs[-1].span(pattern.groups)
            is_one = is_claimed(source, start, end) and not _OR_ANOTHER.match(source, end)
            return _numbers(source[start:end]) if is_one else None
    return None


def read_shown_walk(text: str) -> tuple[int, ...] | None:
    """Read the last list of nodes that the text itself calls a path or a cycle.

    >>> read_shown_walk("Nodes 0, 1, 2 are one block. The path can be: 0->1->2, so yes.")
    (0, 1, 2)
    """
    runs = _SHOWN.findall(text)
    return _numbers(runs[-1]) if runs else None


def read_assignments(text: str) -> list[tuple[int, int]]:
    """Read the last block of lines that give applicants their jobs, or the last table of them."""
    text = _JOB_FIRST.sub(r"applicant \2: job \1", text)
    block: list[re.Match[str]] = []
    for pair in _PAIR.finditer(text):
        if block and _OTHER_LINE.search(text, block[-1].end(), pair.start()):
            block = []
        block.append(pair)
    has_choice = any(_OR_ANOTHER.match(text, pair.end()) for pair in block)
    start = block[0].start() if block else 0
    lead = _CLAUSE.split(text[text.rfind("\n", 0, start) + 1 : start])[-1]
    if has_choice or is_doubtful(lead) or not block or not is_claimed(text, start, block[-1].end()):
        return []
    return [(int(pair[1] or pair[3]), int(pair[2] or pair[4])) for pair in block]


def read_table_rows(text: str) -> dict[int, tuple[int, int]]:
    """Read two numbers for every node, in the last table: one that starts over is another."""
    table: dict[int, re.Match[str]] = {}
    for row in _ROW.finditer(text):
        if (node := int(row[1] or row[2] or row[5])) in table:
            table = {}
        table[node] = row
    rows = [*table.values()]
    if any(_OR_ANOTHER_ROW.match(text, row.end()) for row in rows):
        return {}
    if not rows or not is_claimed(text, rows[0].start(), rows[-1].end()):
        return {}
    return {node: (int(row[3] or row[6]), int(row[4] or row[7])) for node, row in table.items()}


def read_statement(kind: str, pair: tuple[int, int] | None, text: str) -> str | None:
    """Read yes or no from the last sentence of a text, for a kind of question.

    >>> read_statement("cycle", None, "Leaves go first. It is a forest – no cycle.")
    'no'
    >>> read_statement("cycle", None, "If it has a cycle, we find it.")
    """
    wording = _WORDINGS.get(kind)
    line = last_line(text)
    if wording is None or line is None or len(line.text) > _MAX_LINE or _WORD.search(text):
        return None
    sentence = _STATEMENT_END.split(line.text.strip())[-1].replace("**", "").strip("*#> ")
    if _OPEN.search(sentence):
        return None
    rest = _cut_behind(sentence, wording.no)
    is_no = rest != sentence
    stated = wording.no.search(sentence) or wording.yes.search(sentence)
    if (
        stated is None
        or (is_no and wording.yes.search(rest))
        or _UNSURE.search(wording.no.sub(" ", sentence))
    ):
        return None
    lead = _CLAUSE.split(sentence[: stated.start()])[-1]
    if is_doubtful(_HARMLESS.sub(" ", lead)):
        return None
    numbers = {int(number) for number in _NUMBERS.findall(_NAMED_EDGES.sub(" ", sentence))}
    if pair is not None and kind in _PAIRED and numbers and not {*pair} <= numbers:
        return None
    return "no" if is_no else "yes"


def _closing_parts(text: str) -> Iterator[str]:
    """Yield what follows the last `###`, the last box and the last answer tag, if they are
    short."""
    box = last_box(text)
    parts = [box] if box else []
    if (tag := text.rfind("<answer>")) >= 0:
        end = text.find("</answer>", tag)
        parts.append(make_span(text, tag + len("<answer>"), len(text) if end < 0 else end))
    if "###" in text:
        heading = make_span(text, text.rfind("###") + 3, len(text))
        is_last = all("\n" not in text[heading.start : part.start].strip() for part in parts)
        is_box = box is not None and heading.text.strip("$*. \t\n") == text[box.start : box.end]
        parts = [heading, *parts] if is_last and not is_box else parts
    for part in parts:
        is_short = len(part.text) <= max(_SHORT, 6 * part.text.count(","))
        if is_short and not is_denied(text, _strip_signs(text, part.start), part.end):
            yield part.text.lstrip("# \t")


def is_claimed(text: str, start: int, end: int) -> bool:
    """Whether an answer and the statement that it ends are not denied, unlike `not the flow 3`."""
    weight = _PATH_WEIGHT.match(text, end)
    end = weight.end() if weight else end
    start = _strip_signs(text, start)
    line = max(text.rfind("\n", 0, start) + 1, start - _SHORT)
    heads = [match.start() for match in _HEAD.finditer(text, line, start)]
    return not any(is_denied(text, head, end) for head in (start, *heads[-1:]))


def _strip_signs(text: str, start: int) -> int:
    """Find the end of the words before an answer: `it is not ### [3, 4]`."""
    return max(start - 16, 0) + len(text[max(start - 16, 0) : start].rstrip("#[( "))


def _leading_word(line: str) -> str | None:
    alone = None if _is_contradictory(line) else _CLOSING_WORD.search(line)
    line = alone[1] if alone else strip_lead(line)
    match = _LEADING.fullmatch(line[:_SHORT])
    if match is None or _is_contradictory(f"{match[1]}; {line}") or is_denied(line, *match.span(1)):
        return None
    return match[1].lower()


def _concluding_word(line: str) -> str | None:
    """Read the yes or no that starts a line's last sentence, if the line does not say both."""
    sentence = _SENTENCE.split(line[-2 * _SHORT :])[-1]
    if len(sentence) == len(line) or _is_contradictory(line) or _TURN.search(sentence):
        return None
    return _leading_word(sentence)


def _is_contradictory(line: str) -> bool:
    """Whether a yes and a no are both given as answers, unlike in `yes, there is no cycle`."""
    return len({word.lower() for word in _BARE_YES_NO.findall(line[:_SHORT])}) > 1


def _bare_number(text: str) -> Fraction | None:
    """Read a text that is a number and nothing else, or whose last line states the number."""
    text = _JSON_NUMBER.sub(r"\1", text.strip()[-_SHORT:])
    text = _ASIDE.sub(lambda aside: aside[0] if is_doubtful(aside[0]) else "", text)
    bare = strip_lead(text).strip(" \t\r\n*$\\.()[]{}=")
    if len(bare) < 20 and _NUMBER.fullmatch(bare):
        return Fraction(bare)
    lines = text.splitlines()
    last = lines[-1].strip(" \t*$\\.()[]{}") if len(lines) > 1 else ""
    if len(last) < 20 and _NUMBER.fullmatch(last) and _PROSE.fullmatch(lines[0].lstrip("# ")):
        return Fraction(last)
    return _number_at_end(lines[-1]) if lines else None


def _number_at_end(line: str) -> Fraction | None:
    """Read the number that the last sentence of a line ends with and states."""
    line = _SENTENCE.split(line.strip()[-_SHORT:])[-1]
    if not _PROSE.fullmatch(line):
        return None
    ends = [match for match in _STATED_NUMBER.finditer(line) if match.end() == len(line)]
    return Fraction(ends[-1][1]) if ends and is_claimed(line, *ends[-1].span(1)) else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", text)))


class _Wording(NamedTuple):
    no: re.Pattern[str]
    yes: re.Pattern[str]


def _wording(no: str, yes: str) -> _Wording:
    return _Wording(re.compile(no, re.IGNORECASE), re.compile(yes, re.IGNORECASE))


_PATH = r"(?:hamilton\w* )?(?:path|route|way|walk|trail)s?"
_WORDINGS: Mapping[str, _Wording] = {
    "cycle": _wording(
        r"\b(?:no|without (?:any |an? )?|free of) (?:\w+ )?cycles?\b|(?<!not )\bacyclic\b"
        r"|\bcycle-free\b|\b(?:is|are) (?:just |simply |indeed )?an? (?:tree|forest)\b"
        rf"|{_NOT} (?:\w+ )?(?:an? |any |one )?(?:cyclic|cycles?)\b",
        rf"{_HAS} (?:at least )?(?:\w+ )?(?:\w+ )?cycles?\b|\bcycle (?:found|exists|detected)"
        r"|(?<!not )\bcyclic\b|\bnot acyclic\b|\bcycle:? [0-9]",
    ),
    "connectivity": _wording(
        rf"{_NOT} (?:\w+ )?(?:connected|reachable|linked|joined)\b|\b(?:dis|un)connected\b"
        rf"|\bno {_PATH}\b|\bunreachable\b|{_NOT} (?:be )?reach(?:ed)?\b"
        r"|\b(?:different|separate|distinct|two) (?:connected )?(?:components?|parts)\b"
        rf"|{_NOT} (?:\w+ )?in the same (?:connected )?(?:component|part)\b"
        rf"|{_NOT} (?:an? )?{_PATH}",
        r"(?<!not )(?<!n't )\b(?:is|are) (?:\w+ )?(?:connected|reachable|linked)\b"
        rf"|\bcan (?:be )?reach(?:ed)?\b|\bsame (?:connected )?(?:component|part)\b"
        rf"|{_HAS} (?:indeed )?a {_PATH}\b|\b{_PATH}[^a-z.,;]{{0,60}} exists\b",
    ),
    "bipartite": _wording(
        rf"{_NOT} (?:an? )?(?:bipartite|(?:2|two)-colou?rable)\b|\bno bipartite\b"
        r"|\bnon-?bipartite\b",
        r"\b(?:bipartite|(?:2|two)-colou?rable)\b",
    ),
    "hamilton": _wording(
        rf"\bno (?:such )?{_PATH}\b|{_NOT} (?:have |contain )?(?:an? |any )?(?:such )?{_PATH}\b",
        rf"{_HAS} an? (?:such )?{_PATH}\b|\b{_PATH} exists\b|\bsuch a {_PATH}\b",
    ),
    "substructure": _wording(
        rf"{_NOT} (?:an? |the |be )?(?:\w+ )?(?:subgraph|substructure|contained?|found|present"
        r"|occur\w*|contain the pattern|matche?d?)\b"
        r"|\bno (?:such )?(?:match|subgraph|copy|embedding|assignment|occurrence|mapping)\b",
        r"\b(?:is|are|as) an? subgraph\b|\bcontains? the (?:pattern|subgraph|substructure)\b"
        r"|\b(?:pattern|subgraph|substructure) (?:occurs|exists"
        r"|is (?:there|found|present|contained|a subgraph))\b",
    ),
}
_PAIRED = ("connectivity",)


def _cut_behind(sentence: str, pattern: re.Pattern[str]) -> str:
    """Remove what a pattern matches and the rest of its clause."""
    return re.sub(rf"(?i)(?:{pattern.pattern})[^,.;:]*", " ", sentence)
