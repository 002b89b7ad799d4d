"""Model folders: export a run's model in any dtype, make a new one, or download one from the hub.

A download fetches only the files that whet reads, resumes after an interruption, and is checked
against the hub's sizes and hashes.
"""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

import typer
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import HFValidationError, HTTPError  # type: ignore[attr-defined]

from whet.data.import_rows import stream_problems
from whet.errors import ConfigError, DataError
from whet.models.config import FAMILIES
from whet.models.cost import GB
from whet.models.load import DOWNLOADED, resolve
from whet.models.save import DTYPES, convert_weights, save_model
from whet.models.sizes import new_config
from whet.models.source import merge_adapters
from whet.models.transformer import Transformer, init_weights
from whet.store.checkpoint_folders import check_model
from whet.store.files import sha256, write_errors
from whet.store.rollouts import read_rollouts
from whet.store.run import model_folder
from whet.text.tokenizer import train_tokenizer
from whet.track.progress import progress_bar, say

TRAINING_FILES = ("optimizer", "state.json", "manifest.json", "critic", "others", "waiting-*")
ADAPTERS = "adapter_config.json"
NEEDED = ("model*.safetensors", "adapter_model*.safetensors", *DOWNLOADED[1:])
"""Files at the top of a repository that whet reads; others are copies in other formats."""


def export_model(location: Path, out: Path, dtype: str | None = None) -> None:
    """Copy a run's model into a new folder, with adapters merged and no training state."""
    source = model_folder(str(location))
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"--dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
    _check_empty(out)
    is_adapted = (source / ADAPTERS).is_file()
    if not is_adapted and (
        not (source / "config.json").is_file() or not any(source.glob("model*.safetensors"))
    ):
        raise DataError(
            f"{location} holds no model: give a run folder, or one with config.json and "
            "model.safetensors"
        )
    check_model(source.absolute())

    def write(new: Path) -> None:
        if is_adapted:
            merge_adapters(source, new)
        else:
            copy_model(source, new)
        if dtype is not None:
            convert_weights(new, DTYPES[dtype])

    write_folder(out, write)
    typer.echo(f"{out} is a Hugging Face folder: config.json, model.safetensors, tokenizer.json")


def copy_model(source: Path, new: Path) -> None:
    """Copy a model folder without its training state."""
    ignored = shutil.ignore_patterns(*TRAINING_FILES)
    shutil.copytree(source, new, dirs_exist_ok=True, ignore=ignored)


def new_model(
    size: str, out: Path, *, texts: Path, family: str, positions: int, max_pieces: int, seed: int
) -> None:
    """Write a model with random weights, and a tokenizer trained on the texts of a file."""
    if family not in FAMILIES:
        raise ConfigError(f"--family is {family!r}, expected one of {', '.join(FAMILIES)}")
    _check_empty(out)
    new_config(size, 1, positions)  # an unknown size is refused before the texts are read
    tokenizer = train_tokenizer(read_texts(texts), max_pieces=max_pieces)
    model = Transformer(new_config(size, tokenizer.vocab_size, positions, family))
    init_weights(model, seed)

    def write(new: Path) -> None:
        stops = sorted(tokenizer.eos_tokens)
        save_model(model, new, eos_tokens=stops, generation=tokenizer.generation)
        tokenizer.save(new)

    write_folder(out, write)
    millions = sum(weight.numel() for weight in model.parameters()) / 1e6
    typer.echo(
        f"{out} is a {size} {family} model of {millions:.3g} million random weights and "
        f"{tokenizer.vocab_size:,} tokens, with a context of {positions:,}"
    )


def read_texts(file: Path) -> Iterator[str]:
    """Read the texts of a problem file, a rollout file, or any other file line by line."""
    if file.suffix == ".parquet":
        for rollout in read_rollouts(file):
            yield from (message.content for message in rollout.problem.prompt)
            yield rollout.text
    elif file.suffix in (".jsonl", ".json"):
        for problem in stream_problems(file):
            yield from (message.content for message in problem.prompt)
            yield problem.answer or ""
    else:
        try:
            with file.open(encoding="utf-8") as lines:
                yield from lines
        except UnicodeDecodeError as error:
            raise DataError(f"{file} is not text in UTF-8: {error}") from error


def write_folder(out: Path, write: Callable[[Path], None]) -> None:
    """Write a new folder, whole or not at all."""
    _check_empty(out)
    new = out.absolute().with_name(f".{out.absolute().name}.new")
    with write_errors(out):
        try:
            write(new)
            new.rename(out)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise


def _check_empty(out: Path) -> None:
    if out.is_file() or (out.is_dir() and any(out.iterdir())):
        raise ConfigError(f"{out} is not empty; give a new folder")


@dataclass(frozen=True, slots=True, kw_only=True)
class HubFile:
    """A file of a repository, with the size and hash that the hub gives."""

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
    """Download and check a model; return its folder. Files already there are not fetched again."""
    try:
        commit, files = list_files(hub_id, revision, endpoint)
        size = sum(file.size or 0 for file in files)
        say(f"{hub_id} at {commit[:12]}: {len(files)} files, {size / GB:.3g} GB")
        folder = _download(hub_id, commit, files, out, endpoint, force=False)
        if damaged := _find_damaged(folder, files):
            say(
                f"{', '.join(file.name for file in damaged)} differ from the hub's: "
                "downloading again"
            )
            _download(hub_id, commit, damaged, out, endpoint, force=True)
            if damaged := _find_damaged(folder, damaged):
                raise DataError(
                    f"{damaged[0].name} of {hub_id} does not match the hub's checksum, even after "
                    "a second download: try again later, or from another network"
                )
    except (HTTPError, HFValidationError, OSError) as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DataError(
            f"{hub_id} could not be downloaded from the hub ({reason}): check its name, the "
            "network and, for a gated model, `hf auth login`; the same command resumes where it "
            "stopped"
        ) from error
    resolve(str(folder))
    say(f"{folder} holds {hub_id} at {commit}, checked")
    return folder


def list_files(
    hub_id: str, revision: str | None, endpoint: str | None
) -> tuple[str, list[HubFile]]:
    """Ask the hub for the commit of a revision, and for the files that whet needs."""
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
    """Find the files whose size or hash differs from the hub's."""
    damaged = []
    with progress_bar("check", sum(file.size or 0 for file in files)) as advance:
        for file in files:
            path = folder / file.name
            is_right = path.is_file() and file.size in (None, path.stat().st_size)
            if not is_right or (file.sha256 is not None and sha256(path) != file.sha256):
                damaged.append(file)
            advance(file.size or 0)
    return damaged
