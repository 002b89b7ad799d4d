"""Find a source's raw files: named by the user, in a folder, beside its file, or on the hub.

If there are none, one sentence says which files to put where.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from re import sub

from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError

from whet.data.row_files import READERS, file_ending
from whet.data.sources import Source, SourceFile
from whet.errors import ConfigError, DataError
from whet.types import SPLITS


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """A file of rows, and the source file that describes it."""

    path: Path
    file: SourceFile
    folder: Path
    """Where the files that belong to its rows are."""
    origin: str
    """The hub's repository and commit, or the folder's path."""


def find_raw_files(
    source: Source, folder: Path, given: Sequence[str] = (), *, beside: Path | None = None
) -> list[RawFile]:
    """Take the given files, else those in the folder, else download them.

    Names in a user's own source may be paths relative to `beside`, the folder of its TOML file.
    """
    if given:
        return [raw for text in given for raw in _match_given(source, text)]
    if files := list(_search(source, folder, str(folder))):
        return files
    if beside is not None and (files := list(_search_beside(source, beside))):
        return files
    return [raw for hub in _list_hubs(source, folder) for raw in _download(source, hub, folder)]


def _match_given(source: Source, text: str) -> list[RawFile]:
    """Read `PATH` or `SPLIT=PATH`; without a split, the file is recognised by its name, or as the
    only one."""
    split, sign, rest = text.partition("=")
    named = sign and split in SPLITS
    path = Path(rest if named else text).expanduser()
    if not path.is_file():
        raise ConfigError(f"--file {text}: there is no file {path}")
    if file_ending(path) == "":
        raise ConfigError(f"--file {text} should end in {', '.join(READERS)}")
    files = [file for file in source.files if not named or _has_split(file, split)]
    if not named and len(files) > 1:
        files = [file for file in files if _matches(file, path.name)]
    if not files:
        options = ", ".join(f"{name}=PATH" for name in source.splits)
        raise ConfigError(f"--file {text}: say which of the source's files it is: {options}")
    folder = path.parent
    return [RawFile(path=path, file=file, folder=folder, origin=str(folder)) for file in files]


def _has_split(file: SourceFile, split: str) -> bool:
    return split == file.split if isinstance(file.split, str) else split in (file.split or SPLITS)


def _search(source: Source, folder: Path, origin: str, hub: str | None = None) -> Iterator[RawFile]:
    """Find the source's files in a folder, in the order of the source."""
    if not folder.is_dir():
        return
    paths = sorted(path for path in folder.rglob("*") if path.is_file() and file_ending(path))
    for file in source.files:
        if hub is not None and (file.hub or source.hub) != hub:
            continue
        for path in paths:
            if _matches(file, path.relative_to(folder).as_posix()):
                yield RawFile(path=path, file=file, folder=folder, origin=origin)


def _search_beside(source: Source, folder: Path) -> Iterator[RawFile]:
    for file in source.files:
        for name in file.names:
            root = Path("/") if Path(name).is_absolute() else folder
            for path in sorted(root.glob(name.lstrip("/"))):
                if path.is_file() and file_ending(path):
                    origin = str(path.parent)
                    yield RawFile(path=path, file=file, folder=folder, origin=origin)


def _matches(file: SourceFile, path: str) -> bool:
    name = path.rpartition("/")[2]
    return any(fnmatch(path, pattern) or fnmatch(name, pattern) for pattern in file.names)


def _list_hubs(source: Source, folder: Path) -> list[str]:
    hubs = [file.hub or source.hub for file in source.files]
    known = list(dict.fromkeys(hub for hub in hubs if hub is not None))
    if not known:
        where = f"; {source.where}" if source.where else ""
        raise DataError(f"{_ask_for(source, source.files, folder)}{where}")
    return known


def _download(source: Source, hub: str, folder: Path) -> list[RawFile]:
    files = [file for file in source.files if (file.hub or source.hub) == hub]
    beside = [sub(r"\{[^}]*\}", "*", pattern) for pattern in source.attach.values()]
    patterns = [*(name for file in files for name in file.names), *beside]
    try:
        place = Path(
            snapshot_download(
                hub, repo_type="dataset", revision=source.revision, allow_patterns=patterns
            )
        )
    except (HFValidationError, OSError) as error:  # the hub's other errors are OSErrors
        reason = str(error).strip().partition("\n")[0].rstrip(".")
        raise DataError(
            f"the dataset {hub} could not be downloaded from the hub ({reason}): "
            f"{_ask_for(source, files, folder)}"
        ) from error
    raw_files = list(_search(source, place, f"{hub}@{place.name}", hub))
    if not raw_files:
        raise DataError(
            f"the dataset {hub} has no file {' or '.join(patterns)}: "
            f"{_ask_for(source, files, folder)}"
        )
    return raw_files


def _ask_for(source: Source, files: Sequence[SourceFile], folder: Path) -> str:
    """Say which files to put where."""
    names = list(dict.fromkeys(" or ".join(file.names) for file in files))
    beside = [sub(r"\{[^}]*\}", "*", pattern) for pattern in source.attach.values()]
    return f"put {' and '.join([*names, *beside])} into {folder}, or name files with --file"
