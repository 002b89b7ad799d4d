"""Download a model from the hub: the files that whet reads, resumed where it stopped, and checked
against the sizes and hashes that the hub gives."""

from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import HfApi, snapshot_download

# Errors of the connection are those of the HTTP library that huggingface_hub is built on.
from huggingface_hub.errors import (  # type: ignore[attr-defined]
    HFValidationError,
    HTTPError,
    OfflineModeIsEnabled,
)

from whet.errors import DataError
from whet.models.cost import GB
from whet.models.load import DOWNLOADED, resolve
from whet.store.files import sha256
from whet.track.progress import progress_bar, say

NEEDED = ("model*.safetensors", "adapter_model*.safetensors", *DOWNLOADED[1:])
"""Files at the top of a repository that whet reads; others are copies in other formats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of a repository, and what the hub says of its content."""

    name: str
    size: int | None
    sha256: str | None


def pull_model(
    hub_id: str,
    *,
    revision: str | None = None,
    out: Path | None = None,
    endpoint: str | None = None,
) -> Path:
    """Download and check a model; return its folder. A second call fetches what is missing."""
    try:
        commit, files = list_files(hub_id, revision, endpoint)
        size = sum(file.size or 0 for file in files)
        say(f"{hub_id} at {commit[:12]}: {len(files)} files, {size / GB:.3g} GB")
        folder = _download(hub_id, commit, files, out, endpoint, force=False)
        if damaged := _find_damaged(folder, files):
            say(f"{', '.join(file.name for file in damaged)} differ from the hub's: once more")
            _download(hub_id, commit, damaged, out, endpoint, force=True)
            if damaged := _find_damaged(folder, damaged):
                raise DataError(
                    f"{damaged[0].name} of {hub_id} arrives with another content than the hub "
                    "promises: try again later, or from another network"
                )
    except (HTTPError, HFValidationError, OfflineModeIsEnabled, OSError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DataError(
            f"{hub_id} cannot be had from the hub ({reason}): check its name, the network and, for "
            "a gated model, `hf auth login`; the same command goes on where it stopped"
        ) from error
    resolve(str(folder))
    say(f"{folder} holds {hub_id} at {commit}, checked")
    return folder


def list_files(
    hub_id: str, revision: str | None, endpoint: str | None
) -> tuple[str, list[HubFile]]:
    """Ask the hub for the commit of a revision and its files that whet needs."""
    info = HfApi(endpoint=endpoint).model_info(hub_id, revision=revision, files_metadata=True)
    files = [
        HubFile(name=row.rfilename, size=row.size, sha256=row.lfs.sha256 if row.lfs else None)
        for row in info.siblings or []
        if "/" not in row.rfilename and any(fnmatch(row.rfilename, one) for one in NEEDED)
    ]
    if info.sha is None or not files:
        raise DataError(f"{hub_id} has no files that whet reads: {', '.join(NEEDED)}")
    return info.sha, files


def _download(
    hub_id: str,
    commit: str,
    files: list[HubFile],
    out: Path | None,
    endpoint: str | None,
    *,
    force: bool,
) -> Path:
    names = [file.name for file in files]
    folder = snapshot_download(
        hub_id,
        revision=commit,
        allow_patterns=names,
        local_dir=out,
        endpoint=endpoint,
        force_download=force,
    )
    return Path(folder)


def _find_damaged(folder: Path, files: list[HubFile]) -> list[HubFile]:
    """Find the files whose size or hash is not the hub's."""
    damaged = []
    with progress_bar("check", sum(file.size or 0 for file in files)) as advance:
        for file in files:
            path = folder / file.name
            is_right = path.is_file() and file.size in (None, path.stat().st_size)
            if not is_right or (file.sha256 is not None and sha256(path) != file.sha256):
                damaged.append(file)
            advance(file.size or 0)
    return damaged
