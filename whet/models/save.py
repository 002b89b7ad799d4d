"""Save Hugging Face folders for transformers and vLLM; large models are split into several files.

Ranks that share a model each write some of the layers.
"""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from whet.errors import DataError
from whet.models.config import ModelConfig, to_hf_config
from whet.models.load import CONFIG, WEIGHTS, check_finite, is_finite, weight_files, write_tensors
from whet.models.transformer import Transformer
from whet.store.files import write_errors, write_json
from whet.text.tokenizer import read_model_json
from whet.types import Json
from whet.world import get_world

MAX_FILE_BYTES = 5 * 10**9
"""Limit of one file; larger models are split, as transformers does."""
GENERATION = "generation_config.json"
_IDS = ("bos_token_id", "eos_token_id")
"""Generation settings that are also in `config.json`. pad_token_id is not: transformers would not
train its embedding."""
_LAYER = re.compile(r"\blayers\.(\d+)\.")
_PART = re.compile(r"(-\d{5}-of-\d{5})?\.safetensors")
DTYPES = {name: getattr(torch, name) for name in ("bfloat16", "float16", "float32")}
"""Dtypes for saved weights, by name."""


def save_model(
    model: Transformer,
    folder: Path,
    *,
    eos_tokens: Collection[int] = (),
    generation: Mapping[str, Json] = MappingProxyType({}),
    limit: int = MAX_FILE_BYTES,
) -> None:
    """Write a folder that transformers and vLLM load; the caller saves the tokenizer.

    `generation` has the settings for other tools that sample from the model, such as a temperature.
    Ranks that all hold the model write it together.
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
        write_config(
            folder, model.cfg, model.dtype, write_generation(folder, eos_tokens, generation)
        )


def write_config(
    folder: Path,
    cfg: ModelConfig,
    dtype: torch.dtype,
    generation: Mapping[str, Json] = MappingProxyType({}),
) -> None:
    """Write `config.json`, with the token ids that it shares with `generation_config.json`."""
    config: dict[str, Json] = {
        **to_hf_config(cfg),
        "torch_dtype": str(dtype).removeprefix("torch."),
    }
    ids = {key: generation[key] for key in _IDS if key in generation}
    write_json(folder / CONFIG, config | ids)


def write_generation(
    folder: Path, eos_tokens: Collection[int], generation: Mapping[str, Json]
) -> dict[str, Json]:
    """Write `generation_config.json`, so that other tools stop at the same tokens; return it."""
    stops: list[Json] = [int(token) for token in sorted(eos_tokens)]
    settings = dict(generation) | ({"eos_token_id": stops} if stops else {})
    if settings:
        write_json(folder / GENERATION, settings)
    return settings


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightFile:
    """One weight file of a model, and the rank that writes it."""

    name: str
    rank: int
    tensors: tuple[str, ...]
    num_bytes: int


def plan_files(
    num_bytes: Mapping[str, int], *, size: int = 1, limit: int = MAX_FILE_BYTES, file: str = WEIGHTS
) -> list[WeightFile]:
    """Plan one file, or several if it would exceed `limit`.

    Rank i % size writes layer i. Other tensors go to the rank with the fewest bytes.
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

    All ranks call `gather` for all tensors in the same order, layer by layer. It returns the whole
    tensor on the rank that writes it, or on all ranks.
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
    """Write this rank's files and return their paths; one rank writes the index afterwards.

    `part` may have more tensors than the rank writes.
    """
    own = [file for file in files if file.rank == rank]
    check_finite((name, part[name]) for file in own for name in file.tensors)
    for file in own:
        write_tensors(folder / file.name, {name: part[name] for name in file.tensors})
    return [folder / file.name for file in own]


def write_index(folder: Path, files: Sequence[WeightFile]) -> None:
    """Write the index of several files, and delete old weight files of the folder."""
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


def convert_weights(folder: Path, dtype: torch.dtype) -> None:
    """Convert the weights of a folder in place; refuse values that overflow the new dtype."""
    num_bytes = 0
    for file in weight_files(folder):
        tensors = _read_as(file, dtype)
        num_bytes += sum(tensor.nbytes for tensor in tensors.values())
        write_tensors(file, tensors)
    index = folder / f"{WEIGHTS}.index.json"
    if index.is_file():
        write_json(index, read_model_json(index) | {"metadata": {"total_size": num_bytes}})
    name = str(dtype).removeprefix("torch.")
    config = read_model_json(folder / CONFIG)
    keys = ("torch_dtype", "dtype") if "dtype" in config else ("torch_dtype",)
    write_json(folder / CONFIG, config | dict.fromkeys(keys, name))


def _read_as(file: Path, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    converted: dict[str, torch.Tensor] = {}
    try:
        with safe_open(file, framework="pt") as tensors:
            for name in tensors.keys():  # noqa: SIM118 - it has no other iterator
                tensor: torch.Tensor = tensors.get_tensor(name)
                converted[name] = tensor.to(dtype) if tensor.is_floating_point() else tensor
                if is_finite(tensor) and not is_finite(converted[name]):
                    raise DataError(
                        f"{name} has values that {str(dtype).removeprefix('torch.')} cannot hold: "
                        "export in bfloat16 or float32"
                    )
    except (SafetensorError, OSError) as error:
        raise DataError(f"{str(file)!r} is not a readable safetensors file: {error}") from error
    return converted
