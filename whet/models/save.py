"""Save Hugging Face folders, which transformers and vLLM load; large models as several files.

Where ranks share a model out, each writes its part of the layers.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from whet.models.config import ModelConfig, to_json
from whet.models.load import CONFIG, WEIGHTS, check_finite, write_tensors
from whet.models.transformer import Transformer
from whet.store.files import write_errors, write_json
from whet.types import Json
from whet.world import get_world

MAX_FILE_BYTES = 5 * 10**9
"""A larger model is written as several files, as transformers does."""
_LAYER = re.compile(r"\blayers\.(\d+)\.")
_PART = re.compile(r"(-\d{5}-of-\d{5})?\.safetensors")


def save_model(
    model: Transformer,
    folder: Path,
    *,
    eos_tokens: Collection[int] = (),
    limit: int = MAX_FILE_BYTES,
) -> None:
    """Write a folder that transformers and vLLM load; the tokenizer saves itself beside it.

    Ranks that all have the model write it together.
    """
    world = get_world()
    views = dict(model.named_views())
    num_bytes = {name: view.numel() * model.dtype.itemsize for name, view in views.items()}
    files = plan_files(num_bytes, size=world.size, limit=limit)
    own = {
        name: views[name].to(model.dtype)
        for file in files
        for name in file.tensors
        if file.rank == world.rank
    }
    write_files(folder, files, own, rank=world.rank)
    if world.is_rank_zero:
        write_index(folder, files)
        write_config(folder, model.cfg, model.dtype, eos_tokens)


def write_config(
    folder: Path, cfg: ModelConfig, dtype: torch.dtype, eos_tokens: Collection[int] = ()
) -> None:
    """Write `config.json`; `eos_tokens` go to `generation_config.json` too, so that others stop."""
    config: dict[str, Json] = {**to_json(cfg), "torch_dtype": str(dtype).removeprefix("torch.")}
    stops: list[Json] = [int(token) for token in sorted(eos_tokens)]
    if stops:
        config["eos_token_id"] = stops
        write_json(folder / "generation_config.json", {"eos_token_id": stops})
    write_json(folder / CONFIG, config)


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """A file of a model, or one of several, and the rank that writes it."""

    name: str
    rank: int
    tensors: tuple[str, ...]
    num_bytes: int


def plan_files(
    num_bytes: Mapping[str, int],
    *,
    size: int = 1,
    limit: int = MAX_FILE_BYTES,
    file: str = WEIGHTS,
) -> list[WeightFile]:
    """Plan one file, or several where it would exceed `limit`.

    Rank i % size writes layer i. Other tensors go to the rank that has the least to write.
    """
    total = sum(num_bytes.values())
    if total <= limit:
        return [WeightFile(name=file, rank=0, tensors=tuple(num_bytes), num_bytes=total)]
    layers = {name: int(match[1]) for name in num_bytes if (match := _LAYER.search(name))}
    parts: list[dict[str, int]] = [{} for _ in range(size)]
    for name in sorted(num_bytes, key=lambda name: name not in layers):
        loads = [sum(part.values()) for part in parts]
        rank = layers[name] % size if name in layers else loads.index(min(loads))
        parts[rank][name] = num_bytes[name]
    groups: list[tuple[int, list[str]]] = []
    for rank, part in enumerate(parts):
        filled = limit + 1
        for name, count in part.items():
            if filled + count > limit:
                groups.append((rank, []))
                filled = 0
            groups[-1][1].append(name)
            filled += count
    return [
        WeightFile(
            name=f"{Path(file).stem}-{number:05d}-of-{len(groups):05d}.safetensors",
            rank=rank,
            tensors=tuple(names),
            num_bytes=sum(num_bytes[name] for name in names),
        )
        for number, (rank, names) in enumerate(groups, start=1)
    ]


def gather_own_tensors(
    files: Iterable[WeightFile], gather: Callable[[str], Tensor | None], *, rank: int
) -> dict[str, Tensor]:
    """Copy the tensors that this rank writes to host memory.

    All ranks call `gather` for all tensors in the same order, those of a layer together. It returns
    the whole tensor on the rank that writes it, or on all.
    """
    part: dict[str, Tensor] = {}
    for file in files:
        for name in file.tensors:
            tensor = gather(name)
            if file.rank == rank:
                assert tensor is not None, "the rank that writes a tensor has it"
                part[name] = tensor.detach().to("cpu", copy=True)
    return part


def write_files(
    folder: Path, files: Sequence[WeightFile], part: Mapping[str, Tensor], *, rank: int = 0
) -> list[Path]:
    """Write this rank's files and return their paths; once all ranks have, one adds the index.

    A rank with the whole model may give all of it as its part.
    """
    own = [file for file in files if file.rank == rank]
    check_finite((name, part[name]) for file in own for name in file.tensors)
    for file in own:
        write_tensors(folder / file.name, {name: part[name] for name in file.tensors})
    return [folder / file.name for file in own]


def write_index(folder: Path, files: Sequence[WeightFile]) -> None:
    """Write the index of several files, and delete those that the folder held before."""
    stem = _PART.sub("", files[0].name)
    index = f"{stem}.safetensors.index.json"
    kept = {file.name for file in files}
    if len(files) > 1:
        weight_map: dict[str, Json] = {name: file.name for file in files for name in file.tensors}
        total = sum(file.num_bytes for file in files)
        write_json(folder / index, {"metadata": {"total_size": total}, "weight_map": weight_map})
        kept.add(index)
    with write_errors(folder):
        for path in folder.glob(f"{stem}*"):
            is_weights = _PART.fullmatch(path.name.removeprefix(stem)) or path.name == index
            if is_weights and path.name not in kept:
                path.unlink()
