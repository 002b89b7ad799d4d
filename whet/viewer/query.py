"""Questions to an index: which rollouts, how many of each kind, how a problem went over time."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataError
from whet.types import NUM_LEVELS, Json, Verdict
from whet.viewer.columns import Coded, Columns, Mask

MAX_ROWS = 200
SNIPPET = 220
"""Characters of a response that a list shows."""
MAX_BINS = 24
"""Spans of steps in maps and distributions."""
TOP_ANSWERS = 8
MAX_PROBLEMS = 500
SORTS = ("step", "reward", "length", "logprob", "level")
Rows = NDArray[np.int64]
CHOICES = ("verdict", "task", "set", "finish", "problem", "group", "answer")
"""Columns of which a filter takes one value."""
RANGES = ("step", "reward", "length", "level", "logprob")
"""Columns of which a filter takes "low..high", with either end left out, or one number."""
FACETS = ("set", "task", "verdict", "finish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What the rows of a list have in common."""

    choices: Mapping[str, str]
    ranges: Mapping[str, tuple[float, float]]
    text: str = ""
    part: tuple[str, float] | None = None
    """A part of the score, and its value."""

    @staticmethod
    def from_params(params: Mapping[str, str]) -> "Filters":
        part = params.get("part", "")
        return Filters(
            choices={name: params[name] for name in CHOICES if params.get(name)},
            ranges={name: parse_range(params[name]) for name in RANGES if params.get(name)},
            text=params.get("q", ""),
            part=_parse_part(part) if part else None,
        )


def parse_range(text: str) -> tuple[float, float]:
    """Read "3..7", "3..", "..7" or "3".

    >>> parse_range("3..7"), parse_range("0.5..")[0], parse_range("4")
    ((3.0, 7.0), 0.5, (4.0, 4.0))
    """
    low, dots, high = text.partition("..")
    try:
        first = float(low) if low else float("-inf")
        last = float(high) if high else float("inf")
    except ValueError as error:
        raise DataError(f"a range is written like 3..7, 3.. or ..7, not {text!r}") from error
    return (first, last) if dots else (first, first)


def _parse_part(text: str) -> tuple[str, float]:
    name, _, value = text.rpartition(":")
    try:
        return name, float(value)
    except ValueError as error:
        raise DataError(f"a part of a score is written like asked:1, not {text!r}") from error


def select(columns: Columns, filters: Filters) -> tuple[Mask, dict[str, Mask]]:
    """Find the rows that pass; also, for each facet, those that pass all but its own filter."""
    masks: dict[str, Mask] = {}
    for name, value in filters.choices.items():
        masks[name] = columns.texts[name].equals(value)
    for name, (low, high) in filters.ranges.items():
        values = columns.numbers[name]
        masks[name] = (values >= low) & (values <= high)
    if filters.part is not None:
        masks["part"] = _has_part(columns.texts["parts"], *filters.part)
    if filters.text:
        masks["q"] = columns.search(filters.text)
        for name in ("question", "answer", "note"):
            masks["q"] |= columns.texts[name].contains(filters.text)
    everything = _all_of(columns.count, masks.values())
    others = {
        facet: _all_of(columns.count, [m for name, m in masks.items() if name != facet])
        if facet in masks
        else everything
        for facet in FACETS
    }
    return everything, others


def _all_of(count: int, masks: Iterable[Mask]) -> Mask:
    passed = np.ones(count, dtype=bool)
    for mask in masks:
        passed &= mask
    return passed


def parse_parts(text: str | None) -> dict[str, float]:
    """Read the parts of a score from their JSON."""
    try:
        value: Json = json.loads(text or "{}")
    except ValueError:
        return {}
    parts = value if isinstance(value, dict) else {}
    return {name: float(part) for name, part in parts.items() if isinstance(part, int | float)}


def _has_part(column: Coded, name: str, value: float) -> Mask:
    hits = [parse_parts(text).get(name) == value for text in column.values]
    return np.append(np.array(hits, dtype=bool), False)[column.codes]


def list_rollouts(
    columns: Columns, filters: Filters, *, sort: str, offset: int, limit: int
) -> dict[str, Json]:
    """List a page of the rows that pass, with counts of what else there is."""
    passed, others = select(columns, filters)
    rows = np.flatnonzero(passed)
    rows = _sort(columns, rows, sort)
    page = rows[offset : offset + min(limit, MAX_ROWS)]
    steps = columns.numbers["step"][rows]
    rewards = columns.numbers["reward"][rows]
    return {
        "total": len(rows),
        "of": columns.count,
        "rows": describe_rows(columns, page, filters.text),
        "facets": {name: count_values(columns.texts[name], others[name]) for name in FACETS},
        "steps": [float(steps.min()), float(steps.max())] if len(steps) else None,
        "correct": _share(columns.texts["verdict"].equals(Verdict.CORRECT.value)[rows]),
        "reward": _finite_mean(rewards),
        "length": _finite_mean(columns.numbers["length"][rows]),
    }


def _sort(columns: Columns, rows: Rows, sort: str) -> Rows:
    name = sort.removeprefix("-")
    if name not in SORTS:
        raise DataError(f"rollouts are sorted by {', '.join(SORTS)}, not {name!r}")
    values = columns.numbers[name][rows]
    # Rows without a value come last in both directions.
    keys = np.where(np.isnan(values), np.inf, -values if sort.startswith("-") else values)
    return rows[np.argsort(keys, kind="stable")]


def describe_rows(columns: Columns, rows: Rows, search: str = "") -> list[Json]:
    """Give what a list shows of each row."""
    texts = columns.text.take(rows).to_pylist()
    described: list[Json] = []
    for row, text in zip(rows.tolist(), texts, strict=True):
        coded = {name: columns.texts[name].at(row) for name in columns.texts if name != "parts"}
        numbers = {name: finite(values[row]) for name, values in columns.numbers.items()}
        coded["question"] = (coded["question"] or "")[:SNIPPET]
        described.append({**coded, **numbers, "snippet": snippet(text, search)})
    return described


def snippet(text: str, search: str) -> str:
    """Cut a response to its first characters, or to those around a hit.

    >>> snippet("short", "")
    'short'
    >>> snippet("a" * 300 + "needle", "NEEDLE").endswith("aaneedle")
    True
    """
    hit = text.lower().find(search.lower()) if search else -1
    start = max(hit - SNIPPET // 3, 0)
    part = text[start : start + SNIPPET]
    return f"{'…' if start else ''}{part}{'…' if start + SNIPPET < len(text) else ''}"


def find_siblings(columns: Columns, file: str, row: int, most: int) -> tuple[int, list[int]]:
    """Find a rollout by its file and row, and the others of its group in the same set and step."""
    here = columns.texts["file"].equals(file) & (columns.numbers["row"] == row)
    if not here.any():
        raise DataError(f"row {row} of {file[:80]!r} is not indexed yet")
    at = int(np.flatnonzero(here)[0])
    alike = columns.texts["group"].codes == columns.texts["group"].codes[at]
    alike &= columns.texts["set"].codes == columns.texts["set"].codes[at]
    alike &= columns.numbers["step"] == columns.numbers["step"][at]
    return at, [i for i in np.flatnonzero(alike).tolist() if i != at][:most]


def find_neighbours(columns: Columns, at: int) -> Json:
    """Give the first rollouts of the groups before and after, by file and row."""
    groups = columns.texts["group"].codes
    before, after = at, at
    while before >= 0 and groups[before] == groups[at]:
        before -= 1
    while before > 0 and groups[before - 1] == groups[before]:
        before -= 1
    while after < columns.count and groups[after] == groups[at]:
        after += 1

    def place(row: int) -> Json:
        if not 0 <= row < columns.count:
            return None
        return {"file": columns.texts["file"].at(row), "row": int(columns.numbers["row"][row])}

    return {"before": place(before), "after": place(after)}


def describe_full(columns: Columns, at: int) -> dict[str, Json]:
    """Give a row with its whole text and the parts of its score."""
    coded = {name: column.at(at) for name, column in columns.texts.items() if name != "parts"}
    numbers = {name: finite(values[at]) for name, values in columns.numbers.items()}
    parts = parse_parts(columns.texts["parts"].at(at))
    return {**coded, **numbers, "text": columns.text[at].as_py(), "parts": dict(parts)}


def finite(value: float) -> float | None:
    number = float(value)
    return number if isfinite(number) else None


def _finite_mean(values: NDArray[np.float64]) -> Json:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _share(hits: Mask) -> Json:
    return float(hits.mean()) if len(hits) else None


def count_values(column: Coded, mask: Mask) -> Json:
    """Count the rows of each value, the most frequent first."""
    codes = column.codes[mask]
    counts = np.bincount(codes[codes >= 0], minlength=len(column.values))
    order = np.argsort(-counts, kind="stable")
    return [[column.values[i], int(counts[i])] for i in order[:50].tolist() if counts[i]]


def bin_steps(steps: NDArray[np.float64]) -> tuple[NDArray[np.int64], list[Json]]:
    """Cut the steps that occur into at most 24 spans; give each row's span, and their ends."""
    distinct = np.unique(steps)
    parts = np.array_split(distinct, min(len(distinct), MAX_BINS))
    starts = np.array([part[0] for part in parts])
    spans: list[Json] = [[float(part[0]), float(part[-1])] for part in parts]
    return np.searchsorted(starts, steps, side="right") - 1, spans


def difficulty_map(columns: Columns, filters: Filters) -> dict[str, Json]:
    """Give the share of correct rollouts by level and time, and each problem's share."""
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
    """Give each problem's share of correct rollouts, and in the first and last half of the time."""
    size = len(columns.texts["problem"].values)
    counts = np.bincount(codes, minlength=size)
    hits = np.bincount(codes, weights=correct, minlength=size)
    is_late = spans_of >= (num_spans + 1) // 2
    late_counts = np.bincount(codes[is_late], minlength=size)
    late_hits = np.bincount(codes[is_late], weights=correct[is_late], minlength=size)
    seen = np.flatnonzero(counts)
    shares = hits[seen] / counts[seen]
    histogram, _ = np.histogram(shares, bins=np.linspace(0, 1, 12))
    first_rows = np.full(size, -1)
    first_rows[codes[::-1]] = rows[::-1]
    order = np.lexsort((-counts[seen], shares))[:MAX_PROBLEMS]
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
    found: dict[str, None] = {}
    for text in columns.texts["parts"].values[:5_000]:
        found.update(dict.fromkeys(parse_parts(text)))
    return list(found)


def agreement(columns: Columns, part: str) -> dict[str, Json]:
    """Cross the verdict with a part of the score, such as what a judge said, with notes."""
    column = columns.texts["parts"]
    values = np.array([parse_parts(text).get(part, np.nan) for text in column.values] + [np.nan])
    per_row = values[column.codes] if columns.count else np.zeros(0)
    verdicts = columns.texts["verdict"]
    distinct = np.unique(per_row[~np.isnan(per_row)])
    if len(distinct) > 6:  # a continuous part: two halves say more than a thousand columns
        return _cross_halves(columns, part, per_row)
    cells: list[Json] = []
    for verdict in verdicts.values:
        is_verdict = verdicts.equals(verdict)
        for value in [*distinct.tolist(), None]:
            mask = is_verdict & (np.isnan(per_row) if value is None else per_row == value)
            if mask.any():
                notes = count_values(columns.texts["note"], mask)
                cells.append(
                    {"verdict": verdict, "value": value, "count": int(mask.sum()), "notes": notes}
                )
    return {"part": part, "values": distinct.tolist(), "cells": cells, "halves": None}


def _cross_halves(columns: Columns, part: str, values: NDArray[np.float64]) -> dict[str, Json]:
    middle = float(np.nanmedian(values))
    verdicts = columns.texts["verdict"]
    cells: list[Json] = []
    for verdict in verdicts.values:
        is_verdict = verdicts.equals(verdict)
        for value, mask in (("low", values <= middle), ("high", values > middle)):
            count = int((is_verdict & mask).sum())
            if count:
                cells.append({"verdict": verdict, "value": value, "count": count, "notes": []})
    return {"part": part, "values": ["low", "high"], "cells": cells, "halves": middle}


_DIGITS = re.compile(r"\d{1,12}")


def parse_count(text: str | None, default: int, most: int) -> int:
    """Read a number of a request, bounded."""
    if text is None:
        return default
    if not _DIGITS.fullmatch(text):
        raise DataError(f"{text[:20]!r} is no number")
    return min(int(text), most)
