"""The columns of an index: codes and numbers as arrays in memory, texts mapped from disk."""

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whet.types import Verdict
from whet.viewer.rollout_sources import SCHEMA

Mask = NDArray[np.bool_]
KEPT_SEARCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Coded:
    """A column of repeating texts: the distinct texts, and a code for each row; -1 is none."""

    values: list[str]
    codes: NDArray[np.int32]

    def equals(self, value: str) -> Mask:
        """Return a mask of the rows with a text."""
        try:
            code = self.values.index(value)
        except ValueError:
            return np.zeros(len(self.codes), dtype=bool)
        hits: Mask = self.codes == code
        return hits

    def contains(self, text: str) -> Mask:
        """Find the rows whose text contains another, ignoring case."""
        if not self.values:
            return np.zeros(len(self.codes), dtype=bool)
        hits = pc.match_substring(pa.array(self.values), text, ignore_case=True).to_numpy(
            zero_copy_only=False
        )
        return np.append(hits, False)[self.codes]

    def at(self, row: int) -> str | None:
        """Return the text of a row; None if it has none."""
        code = int(self.codes[row])
        return None if code < 0 else self.values[code]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupCounts:
    """The groups of an index: the group number of each row, and counts for each group."""

    codes: NDArray[np.int64]
    sizes: NDArray[np.int64]
    correct: NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """All rows of an index."""

    texts: dict[str, Coded]
    numbers: dict[str, NDArray[np.float64]]
    text: pa.ChunkedArray
    count: int
    searches: dict[str, Mask] = field(default_factory=dict)
    """What the last searches found: another filter, or a poll, does not search again."""
    counted: dict[str, "GroupCounts"] = field(default_factory=dict)
    """Filled by `groups` when it is first asked."""

    @staticmethod
    def empty() -> "Columns":
        return Columns.from_table(SCHEMA.empty_table())

    @staticmethod
    def from_table(table: pa.Table) -> "Columns":
        table = table.unify_dictionaries()
        texts = {}
        numbers = {}
        for item in SCHEMA:
            column = table[item.name]
            if pa.types.is_dictionary(item.type):
                texts[item.name] = _to_coded(column)
            elif item.name != "text":
                numbers[item.name] = column.to_numpy().astype(np.float64)
        return Columns(texts=texts, numbers=numbers, text=table["text"], count=table.num_rows)

    def groups(self) -> GroupCounts:
        """Count the groups, whose rows share a name, a set and a step; the result is cached."""
        if "all" not in self.counted:
            name, kind = self.texts["group"], self.texts["set"]
            steps, step_codes = np.unique(self.numbers["step"], return_inverse=True)
            keys = (name.codes + np.int64(1)) * (len(kind.values) + 1) + kind.codes + 1
            _, codes = np.unique(keys * (len(steps) + 1) + step_codes, return_inverse=True)
            correct = self.texts["verdict"].equals(Verdict.CORRECT.value)
            self.counted["all"] = GroupCounts(
                codes=codes,
                sizes=np.bincount(codes),
                correct=np.bincount(codes[correct], minlength=codes.max(initial=-1) + 1),
            )
        return self.counted["all"]

    def search(self, text: str) -> Mask:
        """Find the rows whose response contains a text, ignoring case."""
        hits = self.searches.get(text)
        if hits is None:
            hits = pc.match_substring(self.text, text, ignore_case=True).to_numpy()
            while len(self.searches) >= KEPT_SEARCHES:
                self.searches.pop(next(iter(self.searches)), None)
            self.searches[text] = hits
        return hits.copy()


def _to_coded(column: pa.ChunkedArray) -> Coded:
    if column.num_chunks == 0:
        return Coded(values=[], codes=np.zeros(0, dtype=np.int32))
    codes = [
        chunk.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int32)
        for chunk in column.chunks
    ]
    return Coded(values=column.chunk(0).dictionary.to_pylist(), codes=np.concatenate(codes))
