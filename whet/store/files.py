"""Atomic writes, JSON, JSON lines and hashes.

An operating system error becomes one sentence. An error in a line names its file and number.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from math import isfinite, isinf
from pathlib import Path

from whet.errors import ConfigError, DataError
from whet.types import Json, compact

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
Row = dict[str, Json]


@contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turn a full disk, a missing permission and the like into a DataError that names the file."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(
            f"cannot write {path}: a file is where a folder is needed; choose another --out"
        ) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        if isinstance(error, shutil.Error):  # copying a folder gathers a list of failures
            reason = str(error.args[0][0][2])
        cure = "free space or " if error.errno in DISK_FULL else ""
        raise DataError(f"cannot write {path}: {reason}; {cure}choose another --out") from error


@contextmanager
def _read_errors(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error


def check_target(path: Path) -> None:
    """Refuse to replace a folder, device, pipe or socket by a file."""
    with write_errors(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "not a regular file"
        raise DataError(f"cannot write {path}: it is {what}; choose another --out")


def check_overwrite(path: Path, *, force: bool) -> None:
    """Refuse to replace an existing file without `force`; see `check_target`."""
    check_target(path)
    if path.exists() and not force:
        raise ConfigError(f"{path} already exists: add --force to replace it")


@contextmanager
def atomic_path(path: Path) -> Iterator[Path]:
    """Yield a temporary path to write to; it replaces `path` once it is complete and on disk."""
    new = path.with_name(f".{path.name}.new")
    check_target(path)
    with write_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield new
            sync(new)
            new.replace(path)
            sync(path.parent)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


@contextmanager
def atomic_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder to fill; it replaces `folder` once it is complete and on disk."""
    new = folder.with_name(f".{folder.name}.new")
    old = folder.with_name(f".{folder.name}.old")
    with write_errors(folder):
        folder.parent.mkdir(parents=True, exist_ok=True)
        if old.exists() and not folder.exists():  # killed between the two renames below
            old.rename(folder)
        _remove_folder(new)
        new.mkdir()
        try:
            yield new
            for path in (*new.iterdir(), new):
                sync(path)
            _remove_folder(old)
            if folder.exists():
                folder.rename(old)
            new.rename(folder)
            sync(folder.parent)
        except BaseException:
            _remove_folder(new)
            raise
        _remove_folder(old)


def _remove_folder(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, never a mixture."""
    with atomic_path(path) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Json) -> None:
    """Write one value; NaN and infinities, which JSON lacks, become null."""
    text = json.dumps(to_finite(value), indent=2, ensure_ascii=False, allow_nan=False)
    write_atomic(path, text + "\n")


def to_finite(value: Json) -> Json:
    """Replace every number that is not finite by null.

    >>> to_finite({"a": [1.5, float("nan")], "b": float("inf")})
    {'a': [1.5, None], 'b': None}
    """
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {name: to_finite(item) for name, item in value.items()}
    return [to_finite(item) for item in value] if isinstance(value, list) else value


def read_json(path: Path) -> Json:
    try:
        with _read_errors(path):
            value: Json = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON in {path}: {error}") from error
    return value


def read_object(path: Path) -> Row:
    """Read a file that holds one JSON object."""
    value = read_json(path)
    if not isinstance(value, dict):
        raise DataError(f"{path} should hold a JSON object")
    return value


def sync(path: Path) -> None:
    """Flush a file or folder to disk, so that a power cut cannot undo it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def parse_finite(text: str) -> float:
    """Parse a JSON number; an overflow to infinity is a ValueError."""
    if isinf(number := float(text)):
        raise ValueError(f"{text} is too large for a number")
    return number


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not a number in JSON")


def _parse_finite_or_none(text: str) -> float | None:
    return None if isinf(number := float(text)) else number


_STRICT = json.JSONDecoder(parse_constant=_refuse_constant, parse_float=parse_finite)
_LENIENT = json.JSONDecoder(parse_constant=lambda name: None, parse_float=_parse_finite_or_none)


def append_row(path: Path, row: Mapping[str, Json]) -> None:
    """Append a row in one write; if only part of it fits on the disk, that part is removed."""
    line = to_line(row)
    with write_errors(path):
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
        size = os.fstat(descriptor).st_size
        try:
            while line:
                line = line[os.write(descriptor, line) :]
        except OSError:
            with suppress(OSError):  # a device has nothing to truncate
                os.ftruncate(descriptor, size)
            raise
        finally:
            os.close(descriptor)


def write_rows(path: Path, rows: Iterable[Mapping[str, Json]]) -> None:
    """Write a whole file of rows, or nothing."""
    with atomic_path(path) as new, new.open("wb") as file:
        file.writelines(to_line(row) for row in rows)


def read_rows(path: Path, *, repair: bool = False) -> list[Row]:
    """Read all rows. NaN and infinities are refused, since they are not JSON.

    With `repair`, for files that whet appends to, they are read as null, and a last line cut short
    by a kill is skipped. The file does not change.
    """
    with _read_errors(path):
        lines = path.read_bytes().split(b"\n")
    if repair:
        lines[-1] = b""
    decoder = _LENIENT if repair else _STRICT
    numbered = enumerate(lines, start=1)
    return [_parse_line(path, number, line, decoder) for number, line in numbered if line.strip()]


def stream_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """Yield each row and its line number, without holding all of them; empty lines are skipped."""
    with _read_errors(path), path.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield number, _parse_line(path, number, line, _STRICT)


def filter_rows(path: Path, keep: Callable[[Row], bool]) -> None:
    """Rewrite a file that whet appends to with the rows to keep; a line cut short is dropped."""
    if path.exists():
        rows = read_rows(path, repair=True)
        write_atomic(path, b"".join(to_line(row) for row in rows if keep(row)))


def to_line(row: Mapping[str, Json]) -> bytes:
    """Write one row as a line of strict JSON."""
    return compact(row) + b"\n"


def _parse_line(path: Path, number: int, line: bytes, decoder: json.JSONDecoder) -> Row:
    try:
        row = decoder.decode(line.decode(json.detect_encoding(line), "surrogatepass"))
    except (ValueError, RecursionError) as error:
        raise DataError(f"broken JSON in {path} line {number}: {error}") from error
    if not isinstance(row, dict):
        shown = line.decode(errors="replace")[:80]
        raise DataError(
            f"{path} line {number} holds {shown}, which should be an object like {{...}}"
        )
    return row


def sha256(path: Path) -> str:
    """Hash a file's content, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def hash_file(path: Path) -> Json:
    """Return the size and SHA-256 of a file."""
    return {"bytes": path.stat().st_size, "sha256": sha256(path)}


def find_damage(folder: Path, hashes: Mapping[str, Json]) -> str | None:
    """Compare a folder with its hashes; return a difference, or None.

    Files without a hash are ignored.
    """
    for name, facts in hashes.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is missing"
        if not isinstance(facts, dict) or facts.keys() != {"bytes", "sha256"}:
            return f"the manifest's entry for {name} is broken"
        if (size := path.stat().st_size) != facts["bytes"]:
            return f"{name} has {size} bytes instead of {facts['bytes']}"
        if sha256(path) != facts["sha256"]:
            return f"{name} is not what was written (its SHA-256 differs)"
    return None
