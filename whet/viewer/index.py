"""The index of a run's rollouts: columns in the user's cache folder, extended as files appear.

A segment is an Arrow file with the rows of several rollout files. It is mapped, not read, so a run
of 100,000 rollouts opens at once. If a file of a segment has changed or is gone, as after a resume,
the segment is dropped and its other files are read again. Run folders are never written. In
memory, codes and numbers are arrays, and texts stay on disk.
"""

import hashlib
import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from whet.errors import DataError
from whet.store.files import write_errors
from whet.types import Json, Verdict
from whet.viewer.rollout_sources import SCHEMA, RolloutFile, find_rollout_files, read_source
from whet.viewer.run_folders import ListedRun, Root

SEGMENT_ROWS = 25_000
"""Rows after which a segment is written, so the most that a stop can lose."""
MAX_SEGMENTS = 24
"""Segments beyond which the small ones are merged."""
FORMAT = "2"
"""Changes with the schema, so that older caches are left alone."""
Mask = NDArray[np.bool_]
KEPT_SEARCHES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexProgress:
    """The progress of an index, in bytes of rollout files."""

    done: int
    total: int
    seconds: float

    def to_json(self) -> Json:
        rate = self.done / self.seconds if self.seconds else 0.0
        left = (self.total - self.done) / rate if rate else None
        return {"done": self.done, "total": self.total, "rate": rate, "left": left}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Segment:
    path: Path
    stamps: tuple[str, ...]
    table: pa.Table


class RolloutIndex:
    """The index of one run. `refresh` starts reading new files, `columns` has what is ready."""

    def __init__(self, root: Root, run: ListedRun, cache: Path) -> None:
        self._root = root
        self._run = run
        key = hashlib.sha256(str(run.folder).encode()).hexdigest()[:24]
        self._folder = cache / FORMAT / key
        self._segments: list[_Segment] | None = None
        self._broken: dict[str, str] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._progress: IndexProgress | None = None
        self.columns = Columns.empty()

    @property
    def progress(self) -> IndexProgress | None:
        """The progress of reading; None when idle."""
        return self._progress

    @property
    def broken(self) -> dict[str, str]:
        """Files that could not be read, each with the reason."""
        return dict(self._broken)

    def refresh(self, *, wait: float) -> None:
        """Look for new files and read them in a thread; wait at most `wait` seconds."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                if self._segments is None:
                    self._segments = self._load()
                    self._publish()
                missing = self._drop_stale()
                if not missing:
                    return
                self._progress = IndexProgress(
                    done=0, total=sum(s.size for s in missing), seconds=0.0
                )
                self._thread = threading.Thread(target=self._read, args=(missing,), daemon=True)
                self._thread.start()
            thread = self._thread
        thread.join(wait)

    def _drop_stale(self) -> list[RolloutFile]:
        """Drop segments with changed files; return the files that are in no segment."""
        assert self._segments is not None, "segments are loaded before they are compared"
        sources = {source.stamp: source for source in find_rollout_files(self._root, self._run)}
        kept = [segment for segment in self._segments if set(segment.stamps) <= sources.keys()]
        if len(kept) < len(self._segments):
            for segment in self._segments:
                if segment not in kept:
                    segment.path.unlink(missing_ok=True)
            self._segments = kept
            self._publish()
        known = {stamp for segment in kept for stamp in segment.stamps} | self._broken.keys()
        return [source for stamp, source in sources.items() if stamp not in known]

    def _read(self, sources: Sequence[RolloutFile]) -> None:
        start = time.monotonic()
        done = 0
        total = sum(source.size for source in sources)
        pending: list[tuple[RolloutFile, pa.Table]] = []
        for source in sources:
            try:
                pending.append((source, read_source(self._root, source)))
            except (DataError, OSError, ValueError, KeyError, pa.ArrowException) as error:
                self._broken[source.stamp] = f"{source.name}: {error}"
            done += source.size
            self._progress = IndexProgress(done=done, total=total, seconds=time.monotonic() - start)
            if sum(table.num_rows for _, table in pending) >= SEGMENT_ROWS:
                self._add(pending)
                pending = []
        if pending:
            self._add(pending)
        self._merge_small()
        self._progress = None

    def _add(self, pending: Sequence[tuple[RolloutFile, pa.Table]]) -> None:
        table = pa.concat_tables([table for _, table in pending])
        stamps = tuple(source.stamp for source, _ in pending)
        self._segments = [*(self._segments or ()), self._write(table, stamps)]
        self._publish()

    def _merge_small(self) -> None:
        """Merge small segments, so that a long live run does not leave thousands."""
        segments = self._segments or []
        small = [segment for segment in segments if segment.table.num_rows < SEGMENT_ROWS]
        if len(small) <= MAX_SEGMENTS:
            return
        merged = self._write(
            pa.concat_tables([segment.table for segment in small]),
            tuple(stamp for segment in small for stamp in segment.stamps),
        )
        self._segments = [segment for segment in segments if segment not in small] + [merged]
        self._publish()
        for segment in small:
            segment.path.unlink(missing_ok=True)

    def _publish(self) -> None:
        tables = [segment.table for segment in self._segments or ()]
        self.columns = Columns.from_table(pa.concat_tables(tables)) if tables else Columns.empty()

    def _write(self, table: pa.Table, stamps: tuple[str, ...]) -> _Segment:
        """Write a segment, whole or not at all, and map it."""
        name = hashlib.sha256("\n".join(stamps).encode()).hexdigest()[:24]
        path = self._folder / f"{name}.arrow"
        schema = SCHEMA.with_metadata({"stamps": json.dumps(stamps)})
        with write_errors(path):
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            new = path.with_name(f".{name}.{os.getpid()}.new")
            whole = table.unify_dictionaries().combine_chunks().cast(schema)
            with pa.OSFile(str(new), "wb") as sink, pa.ipc.new_file(sink, schema) as writer:
                writer.write_table(whole)
            new.replace(path)
        return _open_segment(path)

    def _load(self) -> list[_Segment]:
        segments = []
        for path in sorted(self._folder.glob("*.arrow")):
            try:
                segments.append(_open_segment(path))
            except (OSError, ValueError, KeyError, pa.ArrowException):
                path.unlink(missing_ok=True)
        return segments


def _open_segment(path: Path) -> _Segment:
    with pa.memory_map(str(path)) as source:
        table = pa.ipc.open_file(source).read_all()
    stamps = json.loads((table.schema.metadata or {})[b"stamps"])
    return _Segment(path=path, stamps=tuple(stamps), table=table)


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
