"""How the problems of an index develop: by difficulty, by answer, and by a judge's verdict."""

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataError
from whet.level_bands import NUM_LEVELS
from whet.types import Json, Verdict
from whet.viewer.index import Columns, Mask
from whet.viewer.query import (
    MAX_ROWS,
    SNIPPET,
    Filters,
    Rows,
    count_values,
    describe_rows,
    finite,
    parse_parts,
    select,
)

MAX_BINS = 24
"""At most this many spans of steps in a map or distribution, unless a page asks for fewer."""
TOP_ANSWERS = 7
"""Answers counted separately; a page has this many colours besides the one for right answers."""
MAX_PROBLEMS = 500


def bin_steps(
    steps: NDArray[np.float64], most: int = MAX_BINS
) -> tuple[NDArray[np.int64], list[Json]]:
    """Cut the steps that occur into at most a given number of spans; return each row's span, and
    their ends."""
    distinct = np.unique(steps)
    parts = np.array_split(distinct, min(len(distinct), max(most, 1)))
    starts = np.array([part[0] for part in parts])
    spans: list[Json] = [[float(part[0]), float(part[-1])] for part in parts]
    return np.searchsorted(starts, steps, side="right") - 1, spans


def difficulty_map(columns: Columns, filters: Filters, most: int = MAX_BINS) -> dict[str, Json]:
    """Return the fraction of correct rollouts by level and time, and for each problem."""
    passed, _ = select(columns, filters)
    graded = passed & ~columns.texts["verdict"].equals(Verdict.UNSCORED.value)
    rows = np.flatnonzero(graded)
    if not len(rows):
        return {"spans": [], "levels": [], "halves": [], "problems": [], "histogram": []}
    correct = columns.texts["verdict"].equals(Verdict.CORRECT.value)[rows]
    spans_of, spans = bin_steps(columns.numbers["step"][rows], most)
    halves_of, halves = bin_steps(columns.numbers["step"][rows], 2)
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
    problems, histogram = _by_problem(columns, rows, codes, correct, halves_of == 1)
    return {
        "spans": spans,
        "levels": lines,
        "halves": halves,
        "problems": problems,
        "histogram": histogram,
    }


def _by_problem(
    columns: Columns, rows: Rows, codes: NDArray[np.int32], correct: Mask, is_late: Mask
) -> tuple[Json, Json]:
    """Return each problem's fraction of correct rollouts, overall and in each half of the steps."""
    size = len(columns.texts["problem"].values)
    counts = np.bincount(codes, minlength=size)
    hits = np.bincount(codes, weights=correct, minlength=size)
    late_counts = np.bincount(codes[is_late], minlength=size)
    late_hits = np.bincount(codes[is_late], weights=correct[is_late], minlength=size)
    seen = np.flatnonzero(counts)
    rates = hits[seen] / counts[seen]
    histogram = _count_rates(rates)
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
    return problems, histogram


def _count_rates(rates: NDArray[np.float64]) -> list[Json]:
    """Count problems by pass rate: never solved, in tenths, always solved.

    >>> _count_rates(np.array([0.0, 0.05, 0.1, 0.99, 1.0]))
    [1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1, 1]
    """
    tenths = np.floor(10 * rates + 1e-9).astype(int) + 1
    tenths = np.where(rates <= 0, 0, np.where(rates >= 1, 11, tenths))
    counts: list[Json] = np.bincount(tenths, minlength=12).tolist()
    return counts


def answer_distribution(columns: Columns, problem: str) -> dict[str, Json]:
    """Count a problem's answers over time: the most frequent ones, and the others together."""
    rows = np.flatnonzero(columns.texts["problem"].equals(problem))
    if not len(rows):
        raise DataError(f"no rollout of this run answers {problem!r}")
    rows = rows[np.argsort(columns.numbers["step"][rows], kind="stable")]
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
    """List the names of score parts that occur."""
    names: dict[str, None] = {}
    for text in columns.texts["parts"].values[:5_000]:
        names.update(dict.fromkeys(parse_parts(text)))
    return list(names)


def cross_verdicts(columns: Columns, part: str) -> dict[str, Json]:
    """Cross the verdict with a part of the score, such as a judge's, with notes."""
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
