"""Grade the answer to a question about a numbered graph, in linear time.

If the question asks for a path, an order or a matching, any right one counts. `numbered_readers`
reads answers.
"""

import re
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from whet.answers.doubt import cut_remarks
from whet.tasks.answers import strip_text_commands
from whet.tasks.graphs.numbered_readers import (
    is_claimed,
    read_assignments,
    read_final_number,
    read_shown_walk,
    read_statement,
    read_table_rows,
    read_walk,
    read_yes_no,
)
from whet.tasks.graphs.paths import lightest_path, max_matching
from whet.tasks.graphs.questions import (
    GraphQuestion,
    Judgement,
    compare_values,
    convolve,
    report_missing,
)

AnswerForm = Literal["yes_no", "shown", "number", "order", "path", "tour", "pairs", "rows"]

_OF_NODES = re.compile(r"from node ([0-9]{1,5}) to node ([0-9]{1,5}) is\b", re.IGNORECASE)
_FENCE = re.compile(r"^[ \t]*```[a-z]*[ \t]*$", re.MULTILINE)
_CLOSING_SIGNS = re.compile(r"(?m)(?<=\S)[ \t]*#+[ \t]*$")
"""Closing signs of a Markdown heading."""
_QUOTES = dict.fromkeys(map(ord, '"“”`'))


def compare_with_gold(form: AnswerForm, question: GraphQuestion, gold: str, text: str) -> Judgement:
    """Compare a response with the gold answer, or with the graph if several answers are right."""
    plain = strip_text_commands(cut_remarks(text)).translate(_QUOTES)
    plain = _FENCE.sub("", plain.replace("**", "").replace("__", ""))
    return _JUDGES[form](question, gold, _CLOSING_SIGNS.sub("", plain))


def _judge_yes_no(question: GraphQuestion, gold: str, text: str) -> Judgement:
    answer = read_yes_no(text) or _read_words(question, text)
    if answer is None:
        return report_missing("yes or no")
    note = f"says {answer}, and the answer is {gold[:40]}"
    return Judgement(answer, note, is_feasible=True, is_right=answer == read_yes_no(gold))


def _read_words(question: GraphQuestion, text: str) -> str | None:
    is_marked = "###" in text or "<answer>" in text or "boxed" in text
    pair = question.pair if question.kind == "connectivity" else None
    return None if is_marked else read_statement(question.kind, pair, text)


def _judge_yes_no_and_walk(question: GraphQuestion, gold: str, text: str) -> Judgement:
    """Grade a yes or no; a path shown with a yes must exist in this graph."""
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
    """Grade a path through every node if there is one; otherwise a no."""
    if read_yes_no(gold) == "no":
        return _judge_yes_no(question, gold, text)
    path = read_walk(text)
    word = read_yes_no(text)
    yeses = list(re.finditer(r"(?i)\byes\b", text))[-8:]
    is_doubted = not all(is_claimed(text, *yes.span()) for yes in yeses)
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
    """Whether every step is along an edge, in either direction."""
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
