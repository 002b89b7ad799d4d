"""Files outside runs: problem files, searched by row number or text, and tables of results that
other commands write as JSON."""

import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from whet.errors import DataError
from whet.types import Json
from whet.viewer.run_folders import VERL_DUMP, Root, read_small

PEEK_BYTES = 1 << 20
MAX_ROWS = 100
MAX_SCAN = 1 << 30
"""Bytes of a file that a search reads."""
OWN_FILES = {"metrics.jsonl", "ledger.jsonl"}
NAMES = ("leaderboard", "compare", "comparison", "study", "report", "scores")
SUMMARY = "summary.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """The offsets of a file's lines."""

    stamp: tuple[int, int]
    starts: list[int]


class Datasets:
    """The problem files below a folder."""

    def __init__(self, root: Root) -> None:
        self._root = root
        self._lines: dict[Path, Lines] = {}
        self._kinds: dict[tuple[Path, int], bool] = {}
        self._lock = threading.Lock()

    def list(self) -> list[Json]:
        """List the files whose first line is a problem, with their sizes."""
        entries: list[Json] = []
        for name, path in self._root.files().items():
            if not name.endswith(".jsonl") or path.name in OWN_FILES or VERL_DUMP.match(path.name):
                continue
            try:
                size = self._root.open_path(path).stat().st_size
                if self._is_problem_file(path, size):
                    entries.append({"file": name, "bytes": size})
            except (OSError, DataError):
                continue
        return entries

    def read(self, name: str, *, text: str, offset: int, limit: int) -> dict[str, Json]:
        """Read a page of rows: of all rows, or of those that contain a text."""
        path = self._root.files().get(name)
        if path is None:
            raise DataError(f"there is no file {name[:80]!r} in this folder")
        real = self._root.open_path(path)
        lines = self._find_lines(real)
        limit = min(limit, MAX_ROWS)
        if not text:
            numbers = list(range(offset, min(offset + limit, len(lines.starts))))
            total = len(lines.starts)
        else:
            hits = _search(real, text)
            numbers, total = hits[offset : offset + limit], len(hits)
        with real.open("rb") as file:
            rows = []
            for number in numbers:
                file.seek(lines.starts[number])
                rows.append({"number": number, "row": _parse_line(file.readline(PEEK_BYTES))})
        return {"file": name, "total": total, "of": len(lines.starts), "rows": list(rows)}

    def _is_problem_file(self, path: Path, size: int) -> bool:
        key = (path, size)
        if key not in self._kinds:
            with self._root.open_path(path).open("rb") as file:
                row = _parse_line(file.readline(PEEK_BYTES))
            self._kinds[key] = isinstance(row, dict) and "prompt" in row and "task" in row
        return self._kinds[key]

    def _find_lines(self, path: Path) -> Lines:
        facts = path.stat()
        stamp = (facts.st_size, facts.st_mtime_ns)
        with self._lock:
            known = self._lines.get(path)
            if known is None or known.stamp != stamp:
                starts, at = [], 0
                with path.open("rb") as file:
                    for line in file:
                        if line.strip():
                            starts.append(at)
                        at += len(line)
                known = self._lines[path] = Lines(stamp=stamp, starts=starts)
            return known


def _search(path: Path, text: str) -> list[int]:
    """List the numbers of the rows that contain a text, ignoring case."""
    needle = text.lower()
    hits: list[int] = []
    number = 0
    left = MAX_SCAN
    with path.open("rb") as file:
        for line in file:
            left -= len(line)
            if left < 0:
                break
            if not line.strip():
                continue
            shown = line.decode(errors="replace").lower()
            if needle in shown or (b"\\" in line and needle in json_text(line).lower()):
                hits.append(number)
            number += 1
    return hits


def json_text(line: bytes) -> str:
    """Write a row without escapes, so that a search matches what the page shows."""
    return (
        json.dumps(_parse_line(line), ensure_ascii=False).replace("\\n", "\n").replace('\\"', '"')
    )


def _parse_line(line: bytes) -> Json:
    try:
        row: Json = json.loads(line)
    except (ValueError, RecursionError):
        return {"broken": line[:2000].decode(errors="replace")}
    return row if isinstance(row, Mapping) else {"value": row}


def list_results(root: Root) -> list[Json]:
    """List the files that are tables of results, by name; summaries of pipelines included."""
    entries: list[Json] = []
    for name in root.files():
        stem = name.rpartition("/")[2].removesuffix(".json")
        kind = next((known for known in NAMES if stem.startswith(known)), None)
        if name.endswith(".json") and kind is not None:
            entries.append({"file": name, "kind": kind})
        elif name.endswith(SUMMARY) and name.removesuffix(SUMMARY).rstrip("/") not in root.runs():
            entries.append({"file": name, "kind": "pipeline"})
    return entries


def read_result_file(root: Root, name: str) -> Json:
    """Read a table of results."""
    if name not in {row["file"] for row in list_results(root) if isinstance(row, dict)}:
        raise DataError(f"{name[:80]!r} is not a table of results in this folder")
    return {"file": name, "value": read_small(root, root.files()[name])}
