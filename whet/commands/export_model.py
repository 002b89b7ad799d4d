"""Take a model away: export it as a Hugging Face folder, in any dtype, or make a new one."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import typer

from whet.data.import_rows import stream_problems
from whet.errors import ConfigError, DataError
from whet.models.config import FAMILIES
from whet.models.save import DTYPES, convert_weights, save_model
from whet.models.sizes import new_config
from whet.models.source import merge_adapters
from whet.models.transformer import Transformer, init_weights
from whet.store.checkpoints import check_model
from whet.store.files import write_errors
from whet.store.rollouts import read_rollouts
from whet.store.run import model_folder
from whet.text.tokenizer import train_tokenizer

TRAINING_FILES = ("optimizer", "state.json", "manifest.json", "critic", "others", "waiting-*")
ADAPTERS = "adapter_config.json"


def export_model(location: Path, out: Path, dtype: str | None = None) -> None:
    """Copy a run's model, without its training, into a new folder: all of it or nothing. Adapters
    are merged."""
    source = model_folder(str(location))
    if dtype is not None and dtype not in DTYPES:
        raise ConfigError(f"--dtype is {dtype!r}, expected one of {', '.join(DTYPES)}")
    _check_empty(out)
    is_adapted = (source / ADAPTERS).is_file()
    if not is_adapted and (
        not (source / "config.json").is_file() or not any(source.glob("model*.safetensors"))
    ):
        raise DataError(
            f"{location} holds no model: give a run folder, "
            "or one with config.json and model.safetensors"
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
    """Copy a model folder without what belongs to its training."""
    ignored = shutil.ignore_patterns(*TRAINING_FILES)
    shutil.copytree(source, new, dirs_exist_ok=True, ignore=ignored)


def new_model(
    size: str, out: Path, *, texts: Path, family: str, positions: int, max_pieces: int, seed: int
) -> None:
    """Write a model of random weights, with a tokenizer trained on the texts of a file."""
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
        f"{tokenizer.vocab_size:,} tokens, of {positions:,} at once"
    )


def read_texts(file: Path) -> Iterator[str]:
    """Read the texts of a file of problems, of rollouts, or of anything else line by line."""
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
    """Write a new folder: all of it or nothing."""
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
