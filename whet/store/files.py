"""Whole files or none: atomic writes, and what the disk refuses said in one sentence."""

import errno
import json
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path

from whet.errors import DataError
from whet.types import Json

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a full disk, a missing permission and the like into a DataError that names the file."""
    try:
        yield
    except (FileExistsError, NotADirectoryError) as error:
        raise DataError(
            f"cannot write {path}: a file stands where a folder is needed; choose another --out"
        ) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        cure = (
            "free space or choose another --out" if error.errno in FULL else "choose another --out"
        )
        raise DataError(f"cannot write {path}: {reason}; {cure}") from error


def check_target(path: Path) -> None:
    """Refuse to write where a folder, a device, a pipe or a socket stands: a file would take its
    place."""
    with writing(path):
        try:
            mode = path.stat().st_mode
        except FileNotFoundError:
            return
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "no plain file"
        raise DataError(f"cannot write {path}: it is {what}; choose another --out")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary name beside `path` to write to; it takes the place of `path` only once it is
    whole on disk."""
    new = path.with_name(f".{path.name}.new")
    check_target(path)
    with writing(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            yield new
            sync(new)
            new.replace(path)
            sync(path.parent)
        except BaseException:
            new.unlink(missing_ok=True)
            raise


def write_atomic(path: Path, content: str | bytes) -> None:
    """Write a file so that a reader sees the old content or the new, whatever happens in
    between."""
    with replacing(path) as new:
        new.write_bytes(content.encode() if isinstance(content, str) else content)


def write_json(path: Path, value: Json) -> None:
    """Write one value; NaN and infinities, which JSON does not have, stand as null."""
    write_atomic(
        path, json.dumps(finite(value), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    )


def finite(value: Json) -> Json:
    """Put null in the place of every number that is not finite.

    >>> finite({"a": [1.5, float("nan")], "b": float("inf")})
    {'a': [1.5, None], 'b': None}
    """
    if isinstance(value, float):
        return value if isfinite(value) else None
    if isinstance(value, dict):
        return {name: finite(item) for name, item in value.items()}
    return [finite(item) for item in value] if isinstance(value, list) else value


def read_json(path: Path) -> Json:
    try:
        value: Json = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot read {path}: {error.strerror}") from error
    except ValueError as error:
        raise DataError(f"broken JSON in {path}: {error}") from error
    return value


def sync(path: Path) -> None:
    """Ask the disk to keep a file or folder now, so that a power cut does not undo it."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
