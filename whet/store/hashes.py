"""What a folder held when it was written: size and SHA-256 of every file, and whether it still
does."""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from whet.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class FileFacts:
    """What tells one file's content from another's."""

    bytes: int
    sha256: str

    def to_json(self) -> dict[str, Json]:
        return asdict(self)


def sha256(path: Path) -> str:
    """Hash a file's content, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def manifest(folder: Path) -> dict[str, FileFacts]:
    """List every file below a folder by its relative name."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {
        file.relative_to(folder).as_posix(): FileFacts(
            bytes=file.stat().st_size, sha256=sha256(file)
        )
        for file in files
    }


def flaw(folder: Path, files: Mapping[str, Json]) -> str | None:
    """Say what is wrong with a folder against its manifest, or None. Files that it does not list
    are not looked at."""
    for name, facts in files.items():
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
