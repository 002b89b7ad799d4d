"""Queries on an index: the rollouts that pass filters, and counts of each kind."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import isfinite

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataError
from whet.types import Json, Verdict
from whet.viewer.index import Coded, Columns, Mask

MAX_ROWS = 200
SNIPPET = 220
"""Characters of a response that a list shows."""
SORTS = ("step", "reward", "length", "logprob", "level")
Rows = NDArray[np.int64]
CHOICES = ("verdict", "task", "set", "finish", "problem", "group", "answer")
"""Columns of which a filter takes one value."""
RANGES = ("step", "reward", "length", "level", "logprob")
"""Columns of which a filter takes "low..high", with either end left out, or one number."""
FACETS = ("set", "task", "verdict", "finish")


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """The conditions that rows of a list meet."""

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
    """Find the rows that pass all filters, and for each facet all filters but its own."""
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
    everything = _intersect(columns.count, masks.values())
    others = {
        facet: _intersect(columns.count, [m for name, m in masks.items() if name != facet])
        if facet in masks
        else everything
        for facet in FACETS
    }
    return everything, others


def _intersect(count: int, masks: Iterable[Mask]) -> Mask:
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
    """List a page of the matching rows, with counts of the other values."""
    passed, others = select(columns, filters)
    rows = np.flatnonzero(passed)
    rows = _sort(columns, rows, sort)
    page = rows[offset : offset + min(limit, MAX_ROWS)]
    steps = columns.numbers["step"][rows]
    correct = columns.texts["verdict"].equals(Verdict.CORRECT.value)
    return {
        "total": len(rows),
        "of": columns.count,
        "rows": describe_rows(columns, page, filters.text),
        "facets": {name: count_values(columns.texts[name], others[name]) for name in FACETS},
        "steps": [float(steps.min()), float(steps.max())] if len(steps) else None,
        "correct": _finite_mean(correct[rows].astype(float)),
        "reward": _finite_mean(columns.numbers["reward"][rows]),
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
    """Return the content of each row of a list, with the results of its group."""
    groups = columns.groups()
    described: list[Json] = []
    for row in rows.tolist():
        group = groups.codes[row]
        described.append(
            {
                **_describe_row(columns, row),
                "question": (columns.texts["question"].at(row) or "")[:SNIPPET],
                "snippet": snippet(columns.text[row].as_py(), search),
                "group_number": int(group),
                "group_size": int(groups.sizes[group]),
                "group_correct": int(groups.correct[group]),
            }
        )
    return described


def snippet(text: str, search: str) -> str:
    """Shorten a response to the end of its last line, or to the text around a match.

    Responses of a model begin alike and differ at the end.

    >>> snippet("<think>\\nLet me see.\\n</think>\\nIt is 4.\\n", "")
    '… It is 4.'
    >>> snippet("a" * 300 + "needle", "NEEDLE").endswith("aaneedle")
    True
    """
    hit = text.lower().find(search.lower()) if search else -1
    if hit < 0:
        whole = text.strip()
        last = whole.rpartition("\n")[2].strip()[-SNIPPET:]
        return last if last == whole else f"… {last}"
    start = max(hit - SNIPPET // 3, 0)
    part = text[start : start + SNIPPET]
    return f"{'…' if start else ''}{part}{'…' if start + SNIPPET < len(text) else ''}"


def find_siblings(columns: Columns, file: str, row: int, most: int) -> tuple[int, list[int]]:
    """Find a rollout by file and row, and the others of its group in the same set and step."""
    here = columns.texts["file"].equals(file) & (columns.numbers["row"] == row)
    if not here.any():
        raise DataError(f"row {row} of {file[:80]!r} is not indexed yet")
    at = int(np.flatnonzero(here)[0])
    codes = columns.groups().codes
    return at, [i for i in np.flatnonzero(codes == codes[at]).tolist() if i != at][:most]


def find_neighbours(columns: Columns, at: int, filters: Filters, sort: str) -> Json:
    """Return a rollout's position in a list, and its neighbours by file and row.

    `previous` and `next` are single rollouts, `before` and `after` the nearest ones of other
    groups. A rollout that the filters exclude has neighbours too, but no number.
    """
    passed, _ = select(columns, filters)
    is_listed = bool(passed[at])
    total = int(passed.sum())
    passed[at] = True
    rows = _sort(columns, np.flatnonzero(passed), sort)
    place = int(np.flatnonzero(rows == at)[0])
    groups = columns.groups().codes[rows]
    others = np.flatnonzero(groups != groups[place])
    before = others[others < place]
    after = others[others > place]
    if len(before):  # the first of that group, not its last
        start = int(before[-1])
        while start > 0 and groups[start - 1] == groups[start]:
            start -= 1
        before = np.array([start])

    def name(position: int | None) -> Json:
        if position is None or not 0 <= position < len(rows):
            return None
        row = int(rows[position])
        return {"file": columns.texts["file"].at(row), "row": int(columns.numbers["row"][row])}

    return {
        "number": place + 1 if is_listed else None,
        "total": total,
        "previous": name(place - 1),
        "next": name(place + 1),
        "before": name(int(before[0]) if len(before) else None),
        "after": name(int(after[0]) if len(after) else None),
    }


def describe_full(columns: Columns, at: int) -> dict[str, Json]:
    """Return a row with its whole text and the parts of its score."""
    parts = parse_parts(columns.texts["parts"].at(at))
    row = _describe_row(columns, at)
    return {**row, "text": columns.text[at].as_py(), "parts": dict(parts)}


def _describe_row(columns: Columns, row: int) -> dict[str, Json]:
    texts = {name: column.at(row) for name, column in columns.texts.items() if name != "parts"}
    return {**texts, **{name: finite(values[row]) for name, values in columns.numbers.items()}}


def finite(value: float) -> float | None:
    """Replace numbers that are not finite by None."""
    number = float(value)
    return number if isfinite(number) else None


def _finite_mean(values: NDArray[np.float64]) -> Json:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def count_values(column: Coded, mask: Mask) -> Json:
    """Count the rows of each value, the most frequent first."""
    codes = column.codes[mask]
    counts = np.bincount(codes[codes >= 0], minlength=len(column.values))
    order = np.argsort(-counts, kind="stable")
    return [[column.values[i], int(counts[i])] for i in order[:50].tolist() if counts[i]]


_DIGITS = re.compile(r"\d{1,12}")


def parse_count(text: str | None, default: int, most: int) -> int:
    """Parse a number in a request, within bounds."""
    if text is None:
        return default
    if not _DIGITS.fullmatch(text):
        raise DataError(f"{text[:20]!r} is no number")
    return min(int(text), most)
