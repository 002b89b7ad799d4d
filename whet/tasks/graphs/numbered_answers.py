"""Read and judge the answer to a question about a numbered graph, in linear time.

Where a text answers two things at once nothing is read. What follows the last `###`, or is in the
last box or answer tag, comes first, then what a sentence states, and only then the last line. Where
a path, an order or a matching is asked for, any right one counts.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from whet.answers.doubt import EVASIVE, cut_remarks, is_denied, is_doubtful, strip_lead
from whet.answers.final_answer import last_box, make_span
from whet.tasks.answers import candidates, strip_text_commands, write_in_line
from whet.tasks.game24.expressions import parse_expression, read_value
from whet.tasks.graphs.node_lists import drop_walked_edges
from whet.tasks.graphs.paths import lightest_path, max_matching
from whet.tasks.graphs.questions import (
    GraphQuestion,
    Judgement,
    compare_values,
    convolve,
    report_missing,
)

AnswerForm = Literal["yes_no", "shown", "number", "order", "path", "tour", "pairs", "rows"]

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
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]{1,12}(?:\.[0-9]{1,6})?(?!\.?\w)")
_STATED_NUMBER = re.compile(
    r"(?i)(?:\b(?:is|are|be|of|equals|weighs|costs|totals)\b|[=:])[\s*$\\(]{0,6}"
    r"(-?[0-9]{1,12}(?:\.[0-9]{1,6})?)(?:\s[a-z]{1,20})?[\s.*$)\\]{0,6}"
)
_ASIDE = re.compile(r"(?i)(?<=[0-9]) \([a-z]{3,20} [a-z0-9 ,]{1,80}\)\.?\Z")  # 23 (nodes 2, 5, 6)
_PROSE = re.compile(r"[\w\s,;.'()*$\\>=+:-]*[^\W\d_]{3}[\w\s,;.'()*$\\>=+:-]*")
_OF_NODES = re.compile(r"from node ([0-9]{1,5}) to node ([0-9]{1,5}) is\b", re.IGNORECASE)
_TIDY = re.compile(r"[\w\s,.;:'()\[\]{}*$\\>-]*")
_RUN = r"[0-9]{1,5}(?:\s{0,3}(?:,|->|→|-|\\to|\\rightarrow)\s{0,3}[0-9]{1,5}){1,2000}"
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
_OTHER_LINE = re.compile(r"\n[ \t]*[^\s][^\n]*\n")
_HEAD = re.compile(r"(?i)\b(?:the|there)\b")  # where a statement may start
_SENTENCE = re.compile(r"[.!]\s+(?=[A-Z])")
_ROW = re.compile(
    r"(?i)(?:node\s{0,3}|\|[ \t]{0,9})([0-9]{1,5})\s{0,3}[:=|]\s{0,3}[\[(]\s{0,3}(-?[0-9]{1,9})"
    r"\s{0,3},\s{0,3}(-?[0-9]{1,9})\s{0,3}[\])]"
)
_FENCE = re.compile(r"^[ \t]*```[a-z]*[ \t]*$", re.MULTILINE)
_CLOSING_SIGNS = re.compile(r"(?m)(?<=\S)[ \t]*#+[ \t]*$")
_GOES_ON = re.compile(r"(\b(?:is|are)|[:=])[ \t]*\n\s*(?=-?[0-9.]{1,20}\W*\Z)")  # to the last line
_QUOTES = dict.fromkeys(map(ord, '"“”`'))
_SHORT = 240


def compare_with_gold(form: AnswerForm, question: GraphQuestion, gold: str, text: str) -> Judgement:
    """Compare a response with the gold answer, or with the graph where several are right."""
    plain = strip_text_commands(cut_remarks(text)).translate(_QUOTES)
    plain = _FENCE.sub("", plain.replace("**", "").replace("__", ""))
    return _JUDGES[form](question, gold, _CLOSING_SIGNS.sub("", plain))


def _judge_yes_no(question: GraphQuestion, gold: str, text: str) -> Judgement:
    answer = read_yes_no(text)
    if answer is None:
        return report_missing("yes or no")
    note = f"says {answer}, and the answer is {gold[:40]}"
    return Judgement(answer, note, is_feasible=True, is_right=answer == read_yes_no(gold))


def _judge_yes_no_and_walk(question: GraphQuestion, gold: str, text: str) -> Judgement:
    """Judge a yes or no; a path shown with a yes must be one of this graph."""
    judgement = _judge_yes_no(question, gold, text)
    walk = read_shown_walk(text)
    if judgement.answer == "yes" and walk is not None and not _is_walk(question, walk):
        return Judgement("yes", f"says yes, but {list(walk)[:20]} takes an edge that is not there")
    return judgement


def _judge_number(question: GraphQuestion, gold: str, text: str) -> Judgement:
    answer = read_final_number(text)
    if answer is None:
        return report_missing("number")
    for a, b in _OF_NODES.findall(text)[-1:]:
        pair = (int(a), int(b))
        is_turned = question.kind != "flow" and pair[::-1] == question.pair
        if pair != question.pair and not is_turned:
            return Judgement(str(answer), f"speaks of nodes {int(a)} and {int(b)}, not those asked")
    right = read_final_number(gold)
    note = f"says {answer}, and the answer is {right}"
    return Judgement(str(answer), note, is_feasible=True, is_right=answer == right)


def _judge_order(question: GraphQuestion, gold: str, text: str) -> Judgement:
    order = read_walk(text)
    if order is None:
        return report_missing("order of the nodes")
    answer = str(list(order))
    if sorted(order) != list(range(question.n)):
        return Judgement(answer, f"does not name each node from 0 to {question.n - 1} once")
    rank = {node: number for number, node in enumerate(order)}
    for a, b in question.pairs:
        if rank[a] >= rank[b]:
            return Judgement(answer, f"node {a} should come before node {b}")
    return Judgement(answer, "every edge leads forward", is_feasible=True, is_right=True)


def _judge_path(question: GraphQuestion, gold: str, text: str) -> Judgement:
    path = read_walk(text)
    if path is None:
        return report_missing("path")
    answer = str(list(path))
    start, end = question.pair
    lightest: dict[tuple[int, int], int] = {}
    for a, b, weight in question.weighted_edges:
        for ends in ((a, b), (b, a)):
            lightest[ends] = min(weight, lightest.get(ends, weight))
    if (path[0], path[-1]) != (start, end):
        return Judgement(answer, f"the path does not lead from node {start} to node {end}")
    if not all(step in lightest for step in pairwise(path)):
        return Judgement(answer, "the path takes an edge that is not there")
    best = lightest_path(question.weighted_edges, start, end)
    assert best is not None, "there is a path"
    return compare_values(answer, sum(lightest[step] for step in pairwise(path)), best[0])


def _judge_tour(question: GraphQuestion, gold: str, text: str) -> Judgement:
    """Judge a path through every node if there is one; otherwise a no."""
    if read_yes_no(gold) == "no":
        return _judge_yes_no(question, gold, text)
    path = read_walk(text)
    word = read_yes_no(text)
    yeses = list(re.finditer(r"(?i)\byes\b", text))[-8:]
    is_doubted = not all(_is_claimed(text, *yes.span()) for yes in yeses)
    if is_doubted or (path is None and word is None):
        return report_missing("path")
    if path is None:
        return Judgement(word or "", "a path is asked for, and none is given")
    answer = str(list(path))
    if word == "no" or sorted(path) != list(range(question.n)):
        return Judgement(answer, f"does not visit each node from 0 to {question.n - 1} once")
    if not _is_walk(question, path):
        return Judgement(answer, "the path takes an edge that is not there")
    return Judgement(answer, "visits every node once along edges", is_feasible=True, is_right=True)


def _judge_pairs(question: GraphQuestion, gold: str, text: str) -> Judgement:
    chosen = read_assignments(text)
    if not chosen:
        return report_missing("assignment")
    answer = ", ".join(f"{a}: {b}" for a, b in chosen)
    wishes = set(question.pairs)
    if len({a for a, _ in chosen}) < len(chosen) or len({b for _, b in chosen}) < len(chosen):
        return Judgement(answer, "an applicant or a job is given twice")
    for a, b in chosen:
        if (a, b) not in wishes:
            return Judgement(answer, f"applicant {a} is not interested in job {b}")
    return compare_values(answer, len(chosen), len(max_matching(question.pairs)))


def _judge_rows(question: GraphQuestion, gold: str, text: str) -> Judgement:
    rows = read_table_rows(text)
    if not rows:
        return report_missing("row for each node")
    answer = "; ".join(f"{node}: {x},{y}" for node, (x, y) in sorted(rows.items()))
    right = dict(enumerate(convolve(question)))
    if rows.keys() != right.keys():
        return Judgement(answer, f"rows are needed for nodes 0 to {question.n - 1}, and no others")
    wrong = [node for node in right if rows[node] != right[node]]
    note = f"node {wrong[0]} should be {list(right[wrong[0]])}" if wrong else "every row is right"
    return Judgement(answer, note, is_feasible=True, is_right=not wrong)


def _is_walk(question: GraphQuestion, nodes: Sequence[int]) -> bool:
    """Tell whether every step is along an edge, in either direction."""
    joined = {frozenset(pair) for pair in question.pairs}
    return all(frozenset(step) in joined for step in pairwise(nodes))


_JUDGES: dict[AnswerForm, Callable[[GraphQuestion, str, str], Judgement]] = {
    "yes_no": _judge_yes_no,
    "shown": _judge_yes_no_and_walk,
    "number": _judge_number,
    "order": _judge_order,
    "path": _judge_path,
    "tour": _judge_tour,
    "pairs": _judge_pairs,
    "rows": _judge_rows,
}


def read_yes_no(text: str) -> str | None:
    """Read "yes" or "no"; None if the answer is neither, or both.

    >>> [read_yes_no(text) for text in ("No way. ### Yes", "### Yes or No", "No, it has none.")]
    ['yes', None, 'no']
    """
    text = _EVASION.sub(" ", text)
    for part in _closing_parts(text):
        if words := list(_YES_NO.finditer(part)):
            is_one = len({word[0].lower() for word in words}) == 1
            is_one &= all(_is_claimed(part, *word.span()) for word in words)
            line = part.strip().partition("\n")[0] if is_one else part
            is_tidy = is_one and _TIDY.fullmatch(line)
            return words[0][0].lower() if is_tidy else _leading_word(line)
    for last in list(_ANSWER_YES_NO.finditer(text))[-1:]:
        is_single = not _is_contradictory(text[last.start(1) :])
        return last[1].lower() if is_single and _is_claimed(text, *last.span(1)) else None
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [""]
    if is_denied(text, text.rfind(lines[-1]), len(text)):
        return None
    for line in (lines[-1:] + lines[:1])[: len(lines)]:
        if word := _leading_word(line):
            return word
    closing = lines[-1]
    for pattern in (_CONCLUDED, _THERE):
        if matches := list(pattern.finditer(closing)):
            answer = "no" if matches[0][1].lower() == "no" else "yes"
            bare = list(_BARE_YES_NO.finditer(closing[:_SHORT]))
            is_single = len(matches) == 1 and all(match[1].lower() == answer for match in bare)
            stated = (*bare, matches[0])
            is_claimed = is_single and all(_is_claimed(closing, *one.span()) for one in stated)
            return answer if is_claimed else None
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
        if _RUN_ALONE.fullmatch(line := write_in_line(span).replace('"', "").strip("[]() ")):
            return _numbers(line)
    for part in _closing_parts(text):
        if inside := list(_RUNS.finditer(part)):
            return _numbers(inside[-1][0]) if _is_claimed(part, *inside[-1].span()) else None
    bare = drop_walked_edges(_EDGE.sub(" ", text))
    for pattern, source in ((_STATED_RUN, bare), (_RUNS, bare), (_RUNS, text)):
        if runs := list(pattern.finditer(source)):
            start, end = runs[-1].span(pattern.groups)
            is_one = _is_claimed(source, start, end) and not _OR_ANOTHER.match(source, end)
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
    block: list[re.Match[str]] = []
    for pair in _PAIR.finditer(text):
        if block and _OTHER_LINE.search(text, block[-1].end(), pair.start()):
            block = []
        block.append(pair)
    has_choice = any(_OR_ANOTHER.match(text, pair.end()) for pair in block)
    if not block or has_choice or not _is_claimed(text, block[0].start(), block[-1].end()):
        return []
    return [(int(pair[1] or pair[3]), int(pair[2] or pair[4])) for pair in block]


def read_table_rows(text: str) -> dict[int, tuple[int, int]]:
    """Read two numbers for every node, in the last table: one that starts over is another."""
    table: dict[str, re.Match[str]] = {}
    for row in _ROW.finditer(text):
        if row[1] in table:
            table = {}
        table[row[1]] = row
    rows = [*table.values()]
    if not rows or not _is_claimed(text, rows[0].start(), rows[-1].end()):
        return {}
    return {int(row[1]): (int(row[2]), int(row[3])) for row in rows}


def _closing_parts(text: str) -> Iterator[str]:
    """Cut out what follows the last `###`, the last box and the last answer tag, where short."""
    box = last_box(text)
    ends = text.find("</answer>", text.rfind("<answer>"))
    parts = [box] if box else []
    if "<answer>" in text:
        start = text.rfind("<answer>") + len("<answer>")
        parts.append(make_span(text, start, len(text) if ends < 0 else ends))
    if "###" in text:
        heading = make_span(text, text.rfind("###") + 3, len(text))
        is_last = all("\n" not in text[heading.start : part.start].strip() for part in parts)
        parts = [heading, *parts] if is_last else parts
    for part in parts:
        is_short = len(part.text) <= max(_SHORT, 6 * part.text.count(","))
        if is_short and not is_denied(text, _strip_signs(text, part.start), part.end):
            yield part.text.lstrip("# \t")


def _is_claimed(text: str, start: int, end: int) -> bool:
    """Tell whether neither an answer is denied nor the statement it closes: `not the flow 3`."""
    weight = _PATH_WEIGHT.match(text, end)
    end = weight.end() if weight else end
    start = _strip_signs(text, start)
    line = max(text.rfind("\n", 0, start) + 1, start - _SHORT)
    heads = [match.start() for match in _HEAD.finditer(text, line, start)]
    return not any(is_denied(text, head, end) for head in (start, *heads[-1:]))


def _strip_signs(text: str, start: int) -> int:
    """Find where the words before an answer end: `it is not ### [3, 4]`."""
    return max(start - 16, 0) + len(text[max(start - 16, 0) : start].rstrip("#[( "))


def _leading_word(line: str) -> str | None:
    alone = None if _is_contradictory(line) else _CLOSING_WORD.search(line)
    line = alone[1] if alone else strip_lead(line)
    match = _LEADING.fullmatch(line[:_SHORT])
    if match is None or _is_contradictory(f"{match[1]}; {line}") or is_denied(line, *match.span(1)):
        return None
    return match[1].lower()


def _is_contradictory(line: str) -> bool:
    """Tell whether a yes and a no are both given as answers, unlike in `yes, there is no cycle`."""
    return len({word.lower() for word in _BARE_YES_NO.findall(line[:_SHORT])}) > 1


def _bare_number(text: str) -> Fraction | None:
    """Read a text that is a number and nothing else, or whose last line states the number."""
    text = text.strip()[-_SHORT:]
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
    return Fraction(ends[-1][1]) if ends and _is_claimed(line, *ends[-1].span(1)) else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(map(int, re.findall(r"[0-9]+", text)))
