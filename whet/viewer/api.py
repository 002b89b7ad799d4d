"""The requests of the pages under /api, and the answers as JSON; among them how the problems of a
run went over time: by difficulty, by answer, and by what a judge said."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataError
from whet.types import NUM_LEVELS, Json, Verdict
from whet.viewer import query
from whet.viewer.columns import Columns, Mask
from whet.viewer.detail import RolloutFiles, find_source, read_rollout
from whet.viewer.facts import Facts
from whet.viewer.index import RolloutIndex
from whet.viewer.loose_files import Datasets, list_results, read_result_file
from whet.viewer.overview import Overview
from whet.viewer.query import (
    MAX_ROWS,
    SNIPPET,
    Filters,
    Rows,
    count_values,
    describe_rows,
    finite,
    parse_count,
    parse_parts,
    select,
)
from whet.viewer.run_folders import Root

WAIT_SECONDS = 0.25
"""How long a request waits for new rollouts to be read before it answers with what is ready."""
FIRST_INDEX_SECONDS = 30.0
LOOK_SECONDS = 1.0
"""Seconds between two scans of a run for new files, so that a filter does not cost a scan."""
MAX_SERIES = 64
MAX_SIBLINGS = 64
Params = Mapping[str, str]
MAX_BINS = 24
"""Spans of steps in maps and distributions."""
TOP_ANSWERS = 8
MAX_PROBLEMS = 500


class Api:
    """Answers the questions of the page."""

    def __init__(self, root: Root, cache: Path, facts: Facts) -> None:
        self._root = root
        self._cache = cache
        self._facts = facts
        self._overview = Overview(root, facts)
        self._files = RolloutFiles(root, cache)
        self._datasets = Datasets(root)
        self._indexes: dict[str, RolloutIndex] = {}
        self._looked: dict[str, float] = {}
        self._lock = threading.Lock()

    def routes(self) -> dict[str, Callable[[Params], Json]]:
        return {
            "runs": self.runs,
            "run": self.run,
            "metrics": self.metrics,
            "compare": self.compare,
            "rollouts": self.rollouts,
            "rollout": self.rollout,
            "difficulty": self.difficulty,
            "problem": self.problem,
            "agreement": self.agreement,
            "datasets": self.datasets,
            "dataset": self.dataset,
            "results": self.results,
            "result": self.result,
        }

    def runs(self, params: Params) -> Json:
        return {"folder": self._root.folder.name, "runs": self._overview.list_runs()}

    def run(self, params: Params) -> Json:
        return self._overview.read_run(self._root.run(params["run"]))

    def metrics(self, params: Params) -> Json:
        """Give some metrics of a run as series, and the names of all."""
        file = self._overview.metrics(self._root.run(params["run"]))
        names = [name for name in params.get("names", "").split(",") if name][:MAX_SERIES]
        return {
            "names": [*sorted(file.series)],
            "step": file.last_step,
            "series": file.to_json(names),
        }

    def compare(self, params: Params) -> Json:
        return self._overview.compare(self._root.run(params["a"]), self._root.run(params["b"]))

    def rollouts(self, params: Params) -> Json:
        index = self._index(params)
        listed = query.list_rollouts(
            index.columns,
            Filters.from_params(params),
            sort=params.get("sort", "-step"),
            offset=parse_count(params.get("offset"), 0, 10**9),
            limit=parse_count(params.get("limit"), 50, query.MAX_ROWS),
        )
        return {**listed, **_state(index)}

    def rollout(self, params: Params) -> Json:
        """Give one rollout in full, and its siblings."""
        run = self._root.run(params["run"])
        source = find_source(self._root, run, params["file"])
        row = parse_count(params.get("row"), 0, 2**31 - 1)
        index = self._index(params)
        if index.progress is not None:  # a link to one rollout is worth waiting for
            index.refresh(wait=FIRST_INDEX_SECONDS)
        at, siblings = query.find_siblings(index.columns, source.name, row, MAX_SIBLINGS)
        rewards = [
            query.finite(value) for value in index.columns.numbers["reward"][[at, *siblings]]
        ]
        detail = read_rollout(
            self._files,
            run,
            source,
            row,
            rule=self._facts.advantage_rule(self._root, run),
            rewards=rewards,
        )
        return {
            **query.describe_full(index.columns, at),
            **detail,
            "siblings": [query.describe_full(index.columns, sibling) for sibling in siblings],
            "neighbours": query.find_neighbours(index.columns, at),
        }

    def difficulty(self, params: Params) -> Json:
        index = self._index(params)
        filters = Filters.from_params(params)
        return {**difficulty_map(index.columns, filters), **_state(index)}

    def problem(self, params: Params) -> Json:
        index = self._index(params)
        return {**answer_distribution(index.columns, params["problem"]), **_state(index)}

    def agreement(self, params: Params) -> Json:
        index = self._index(params)
        names = list_part_names(index.columns)
        preferred = [name for name in ("judge", "asked") if name in names]
        part = params.get("part") or (preferred + names + [""])[0]
        crossed = cross_verdicts(index.columns, part) if part in names else None
        return {"parts": list(names), "table": crossed, **_state(index)}

    def datasets(self, params: Params) -> Json:
        return {"files": self._datasets.list()}

    def dataset(self, params: Params) -> Json:
        return self._datasets.read(
            params["file"],
            text=params.get("q", ""),
            offset=parse_count(params.get("offset"), 0, 10**9),
            limit=parse_count(params.get("limit"), 50, query.MAX_ROWS),
        )

    def results(self, params: Params) -> Json:
        return {"files": list_results(self._root)}

    def result(self, params: Params) -> Json:
        return read_result_file(self._root, params["file"])

    def _index(self, params: Params) -> RolloutIndex:
        run = self._root.run(params["run"])
        with self._lock:
            index = self._indexes.get(run.id)
            if index is None:
                index = self._indexes[run.id] = RolloutIndex(self._root, run, self._cache)
            is_due = time.monotonic() - self._looked.get(run.id, -LOOK_SECONDS) >= LOOK_SECONDS
            if is_due:
                self._looked[run.id] = time.monotonic()
        if is_due or index.progress is not None:
            index.refresh(wait=WAIT_SECONDS)
        return index


def _state(index: RolloutIndex) -> dict[str, Json]:
    progress = None if index.progress is None else index.progress.to_json()
    broken: list[Json] = list(index.broken.values())
    return {"indexing": progress, "broken": broken}


def bin_steps(steps: NDArray[np.float64]) -> tuple[NDArray[np.int64], list[Json]]:
    """Cut the steps that occur into at most 24 spans; give each row's span, and their ends."""
    distinct = np.unique(steps)
    parts = np.array_split(distinct, min(len(distinct), MAX_BINS))
    starts = np.array([part[0] for part in parts])
    spans: list[Json] = [[float(part[0]), float(part[-1])] for part in parts]
    return np.searchsorted(starts, steps, side="right") - 1, spans


def difficulty_map(columns: Columns, filters: Filters) -> dict[str, Json]:
    """Give the fraction of correct rollouts by level and time, and that of each problem."""
    passed, _ = select(columns, filters)
    graded = passed & ~columns.texts["verdict"].equals(Verdict.UNSCORED.value)
    rows = np.flatnonzero(graded)
    if not len(rows):
        return {"spans": [], "levels": [], "problems": [], "histogram": []}
    correct = columns.texts["verdict"].equals(Verdict.CORRECT.value)[rows]
    spans_of, spans = bin_steps(columns.numbers["step"][rows])
    levels = columns.numbers["level"][rows]
    known = np.where(np.isnan(levels), 0.0, levels)
    fifths = np.minimum((known * NUM_LEVELS).astype(int), NUM_LEVELS - 1)
    fifths = np.where(np.isnan(levels), NUM_LEVELS, fifths)
    cells = fifths * len(spans) + spans_of
    size = (NUM_LEVELS + 1) * len(spans)
    counts = np.bincount(cells, minlength=size).reshape(-1, len(spans))
    hits = np.bincount(cells, weights=correct, minlength=size).reshape(-1, len(spans))
    lines: list[Json] = []
    for fifth in range(NUM_LEVELS + 1):
        if counts[fifth].sum():
            name = "unknown" if fifth == NUM_LEVELS else str(fifth + 1)
            lines.append(
                {"level": name, "correct": hits[fifth].tolist(), "count": counts[fifth].tolist()}
            )
    codes = columns.texts["problem"].codes[rows]
    problems, histogram = _by_problem(columns, rows, codes, correct, spans_of, len(spans))
    return {"spans": spans, "levels": lines, "problems": problems, "histogram": histogram}


def _by_problem(
    columns: Columns,
    rows: Rows,
    codes: NDArray[np.int32],
    correct: Mask,
    spans_of: NDArray[np.int64],
    num_spans: int,
) -> tuple[Json, Json]:
    """Give each problem's fraction of correct rollouts, and in each half of the time."""
    size = len(columns.texts["problem"].values)
    counts = np.bincount(codes, minlength=size)
    hits = np.bincount(codes, weights=correct, minlength=size)
    is_late = spans_of >= (num_spans + 1) // 2
    late_counts = np.bincount(codes[is_late], minlength=size)
    late_hits = np.bincount(codes[is_late], weights=correct[is_late], minlength=size)
    seen = np.flatnonzero(counts)
    rates = hits[seen] / counts[seen]
    histogram, _ = np.histogram(rates, bins=np.linspace(0, 1, 12))
    first_rows = np.full(size, -1)
    first_rows[codes[::-1]] = rows[::-1]
    order = np.lexsort((-counts[seen], rates))[:MAX_PROBLEMS]
    problems: list[Json] = []
    for code in seen[order].tolist():
        early = counts[code] - late_counts[code]
        row = int(first_rows[code])
        problems.append(
            {
                "problem": columns.texts["problem"].values[code],
                "question": (columns.texts["question"].at(row) or "")[:SNIPPET],
                "level": finite(columns.numbers["level"][row]),
                "count": int(counts[code]),
                "correct": hits[code] / counts[code],
                "early": (hits[code] - late_hits[code]) / early if early else None,
                "late": late_hits[code] / late_counts[code] if late_counts[code] else None,
            }
        )
    return problems, histogram.tolist()


def answer_distribution(columns: Columns, problem: str) -> dict[str, Json]:
    """Count a problem's answers over time: the most frequent ones, and the rest together."""
    rows = np.flatnonzero(columns.texts["problem"].equals(problem))
    if not len(rows):
        raise DataError(f"no rollout of this run answers {problem!r}")
    spans_of, spans = bin_steps(columns.numbers["step"][rows])
    answers = columns.texts["answer"]
    codes = answers.codes[rows]
    correct = columns.texts["verdict"].equals(Verdict.CORRECT.value)[rows]
    counts = np.bincount(codes[codes >= 0], minlength=len(answers.values))
    top = [i for i in np.argsort(-counts, kind="stable")[:TOP_ANSWERS].tolist() if counts[i]]
    lines: list[Json] = []
    for code in top:
        mine = codes == code
        lines.append(
            {
                "answer": answers.values[code],
                "correct": bool(correct[mine].mean() > 0.5),
                "counts": np.bincount(spans_of[mine], minlength=len(spans)).tolist(),
            }
        )
    rest = (codes >= 0) & ~np.isin(codes, top)
    for name, mask in (("other answers", rest), ("no answer", codes < 0)):
        if mask.any():
            per_span = np.bincount(spans_of[mask], minlength=len(spans)).tolist()
            lines.append({"answer": None, "name": name, "correct": False, "counts": per_span})
    row = int(rows[0])
    return {
        "problem": problem,
        "question": columns.texts["question"].at(row),
        "gold": columns.texts["gold"].at(row),
        "task": columns.texts["task"].at(row),
        "level": finite(columns.numbers["level"][row]),
        "spans": spans,
        "answers": lines,
        "pass": (
            np.bincount(spans_of, weights=correct, minlength=len(spans))
            / np.maximum(np.bincount(spans_of, minlength=len(spans)), 1)
        ).tolist(),
        "rows": describe_rows(columns, rows[-MAX_ROWS:][::-1]),
        "count": len(rows),
    }


def list_part_names(columns: Columns) -> list[str]:
    """Name the parts of scores that occur."""
    names: dict[str, None] = {}
    for text in columns.texts["parts"].values[:5_000]:
        names.update(dict.fromkeys(parse_parts(text)))
    return list(names)


def cross_verdicts(columns: Columns, part: str) -> dict[str, Json]:
    """Cross the verdict with a part of the score, such as what a judge said, with notes."""
    column = columns.texts["parts"]
    values = np.array([parse_parts(text).get(part, np.nan) for text in column.values] + [np.nan])
    per_row = values[column.codes] if columns.count else np.zeros(0)
    verdicts = columns.texts["verdict"]
    distinct = np.unique(per_row[~np.isnan(per_row)])
    is_continuous = len(distinct) > 6  # two halves say more than a thousand columns
    middle = float(np.nanmedian(per_row)) if is_continuous else None
    masks: list[tuple[Json, Mask]] = [(value, per_row == value) for value in distinct.tolist()]
    masks.append((None, np.isnan(per_row)))
    if middle is not None:
        masks = [("low", per_row <= middle), ("high", per_row > middle)]
    cells: list[Json] = []
    for verdict in verdicts.values:
        is_verdict = verdicts.equals(verdict)
        for value, mask in masks:
            if count := int((is_verdict & mask).sum()):
                notes = count_values(columns.texts["note"], is_verdict & mask)
                cells.append(
                    {
                        "verdict": verdict,
                        "value": value,
                        "count": count,
                        "notes": [] if is_continuous else notes,
                    }
                )
    parts = ["low", "high"] if is_continuous else distinct.tolist()
    return {"part": part, "values": parts, "cells": cells, "halves": middle}
