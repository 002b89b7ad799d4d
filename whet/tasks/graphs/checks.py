"""Judge a response about a numbered graph. Where a path, an order or a matching is asked, any right
one counts."""

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Literal

from whet.tasks.graphs import verdicts
from whet.tasks.graphs.instance import bitsets
from whet.tasks.graphs.kinds import convolved
from whet.tasks.graphs.solvers.directed import lightest_path, max_matching
from whet.tasks.graphs.table import Table
from whet.types import Score, Verdict

Form = Literal["yes_no", "shown", "number", "order", "path", "tour", "pairs", "rows"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """What was read, whether it is an answer at all (`is_feasible`), whether it is the right one,
    and why."""

    answer: str | None
    is_feasible: bool
    is_right: bool
    note: str

    def to_score(self) -> Score:
        verdict = (
            Verdict.CORRECT
            if self.is_right
            else Verdict.WRONG
            if self.answer is not None
            else Verdict.NO_ANSWER
        )
        parts = {"correct": float(self.is_right), "feasible": float(self.is_feasible)}
        return Score(verdict=verdict, parts=parts, answer=self.answer, note=self.note)


def judge(form: Form, table: Table, gold: str, text: str) -> Finding:
    """Compare a response with the gold answer, or with the graph where several answers are
    right."""
    return _JUDGES[form](table, gold, text)


def _missing(what: str) -> Finding:
    return Finding(
        answer=None, is_feasible=False, is_right=False, note=f"no final {what} could be read"
    )


def _fault(answer: str, note: str) -> Finding:
    return Finding(answer=answer, is_feasible=False, is_right=False, note=note)


def _valued(answer: str, value: float, best: float) -> Finding:
    note = f"{value:g} is the optimum" if value == best else f"{value:g}, but {best:g} is possible"
    return Finding(answer=answer, is_feasible=True, is_right=value == best, note=note)


def _yes_no(table: Table, gold: str, text: str) -> Finding:
    said = verdicts.yes_or_no(text)
    if said is None:
        return _missing("yes or no")
    is_right = said == verdicts.yes_or_no(gold)
    return Finding(
        answer=said,
        is_feasible=True,
        is_right=is_right,
        note=f"says {said}, and the answer is {gold[:40]}",
    )


def _shown(table: Table, gold: str, text: str) -> Finding:
    """A yes or no. No path is asked for, but one that is shown with a yes must be one of this
    graph."""
    found = _yes_no(table, gold, text)
    walk = verdicts.shown(text)
    joined = {frozenset(pair) for pair in table.pairs}
    if (
        found.answer == "yes"
        and walk is not None
        and not all(frozenset(step) in joined for step in pairwise(walk))
    ):
        return _fault("yes", f"says yes, but {list(walk)[:20]} takes an edge that is not there")
    return found


def _number(table: Table, gold: str, text: str) -> Finding:
    said = verdicts.number(text)
    if said is None:
        return _missing("number")
    named = verdicts.asked_pair(text)
    if named is not None and sorted(named) != sorted(table.pair):
        return _fault(
            str(said), f"speaks of nodes {named[0]} and {named[1]}, which are not those asked about"
        )
    right = verdicts.number(gold)
    note = f"says {said}, and the answer is {right}"
    return Finding(
        answer=str(said),
        is_feasible=True,
        is_right=isinstance(right, Fraction) and said == right,
        note=note,
    )


def _order(table: Table, gold: str, text: str) -> Finding:
    run = verdicts.run(text)
    if run is None:
        return _missing("order of the nodes")
    answer = str(list(run))
    if sorted(run) != list(range(table.n)):
        return _fault(answer, f"the order does not name each node from 0 to {table.n - 1} once")
    place = {node: number for number, node in enumerate(run)}
    for a, b in table.pairs:
        if place[a] >= place[b]:
            return _fault(answer, f"node {a} should come before node {b}")
    return Finding(answer=answer, is_feasible=True, is_right=True, note="every edge leads forward")


def _path(table: Table, gold: str, text: str) -> Finding:
    run = verdicts.run(text)
    if run is None:
        return _missing("path")
    answer = str(list(run))
    lightest: dict[tuple[int, int], int] = {}
    for a, b, weight in table.weighted:
        for ends in ((a, b), (b, a)):
            lightest[ends] = min(weight, lightest.get(ends, weight))
    if (run[0], run[-1]) != table.pair:
        return _fault(
            answer, f"the path does not lead from node {table.pair[0]} to node {table.pair[1]}"
        )
    if not all(step in lightest for step in pairwise(run)):
        return _fault(answer, "the path takes an edge that is not there")
    best = lightest_path(table.n, table.weighted, *table.pair)
    assert best is not None, "there is a path"
    return _valued(answer, sum(lightest[step] for step in pairwise(run)), best[0])


def _tour(table: Table, gold: str, text: str) -> Finding:
    """A path through every node where there is one; otherwise a no."""
    run = verdicts.run(text)
    said = verdicts.yes_or_no(text)
    if verdicts.yes_or_no(gold) == "no" or (run is None and said is not None):
        found = _yes_no(table, gold, text)
        return (
            found
            if verdicts.yes_or_no(gold) == "no"
            else _fault(said or "", "a path is asked for, and none is given")
        )
    if run is None:
        return _missing("path")
    answer = str(list(run))
    if said == "no" or sorted(run) != list(range(table.n)):
        return _fault(answer, f"the path does not visit each node from 0 to {table.n - 1} once")
    around = bitsets(table.n, table.pairs)
    if not all(around[a] >> b & 1 for a, b in pairwise(run)):
        return _fault(answer, "the path takes an edge that is not there")
    return Finding(
        answer=answer, is_feasible=True, is_right=True, note="visits every node once along edges"
    )


def _pairs(table: Table, gold: str, text: str) -> Finding:
    chosen = verdicts.pairs(text)
    if not chosen:
        return _missing("assignment")
    answer = ", ".join(f"{a}: {b}" for a, b in chosen)
    wishes = set(table.pairs)
    if len({a for a, _ in chosen}) < len(chosen) or len({b for _, b in chosen}) < len(chosen):
        return _fault(answer, "an applicant or a job is given twice")
    for a, b in chosen:
        if (a, b) not in wishes:
            return _fault(answer, f"applicant {a} is not interested in job {b}")
    return _valued(answer, len(chosen), len(max_matching(table.pairs)))


def _rows(table: Table, gold: str, text: str) -> Finding:
    said = verdicts.rows(text)
    if not said:
        return _missing("row for each node")
    answer = "; ".join(f"{node}: {x},{y}" for node, (x, y) in sorted(said.items()))
    right = dict(enumerate(convolved(table)))
    if said.keys() != right.keys():
        return _fault(answer, f"rows are needed for nodes 0 to {table.n - 1}, and no others")
    wrong = [node for node in right if said[node] != right[node]]
    note = f"node {wrong[0]} should be {list(right[wrong[0]])}" if wrong else "every row is right"
    return Finding(answer=answer, is_feasible=True, is_right=not wrong, note=note)


_JUDGES: dict[Form, Callable[[Table, str, str], Finding]] = {
    "yes_no": _yes_no,
    "shown": _shown,
    "number": _number,
    "order": _order,
    "path": _path,
    "tour": _tour,
    "pairs": _pairs,
    "rows": _rows,
}
