"""Load and save Hugging Face folders, into the fused matrices and back."""

import json
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import (
    HfHubHTTPError,
    HFValidationError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
)
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from whet.errors import DataError, TrainError
from whet.models.config import ModelConfig, from_json, to_json
from whet.models.transformer import Transformer, rope_table
from whet.store.files import write_errors
from whet.text.tokenizer import read_json
from whet.types import Json

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
DOWNLOADED = ("*.safetensors", "*.json", "*.jinja", "*.txt")
"""Files downloaded for a hub id. Pickled weights are never downloaded."""

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_ROPE = re.compile(r".*\.rotary_emb\.inv_freq")
_TIED = re.compile(rf"lm_head\.weight|{_ROPE.pattern}")
"""Tensors in published files that the decoder does not need: rope tables, a tied head."""


def resolve(model: str) -> Path:
    """Find the folder of a model or adapters; a hub id is downloaded where needed."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if folder.exists() or model.startswith((".", "/", "~")) or not HUB_ID.fullmatch(model):
            raise DataError(
                f"model {model!r} is neither a folder nor a hub id such as Qwen/Qwen3-0.6B"
            )
        folder = _download(model)
    if (folder / ADAPTER_CONFIG).is_file():
        return folder
    if not (folder / CONFIG).is_file() or not _weight_files(folder):
        raise DataError(f"model folder {str(folder)!r} needs a config.json and safetensors weights")
    return folder


def read_shape(model: str) -> ModelConfig:
    """Read the shape of a folder or hub id, of which only config.json is fetched."""
    folder = Path(model).expanduser()
    if not folder.is_dir() and HUB_ID.fullmatch(model):
        folder = _download(model, (CONFIG,))
    if not (folder / CONFIG).is_file():
        raise DataError(
            f"model {model!r} is neither a folder with a config.json nor a hub id such as "
            "Qwen/Qwen3-0.6B"
        )
    return from_json(read_json(folder / CONFIG))


def stored_dtype(folder: Path) -> torch.dtype:
    """The type of a folder's weights, as its first tensor has it."""
    files = _weight_files(folder)
    if not files:
        raise DataError(f"model folder {str(folder)!r} has no safetensors weights")
    try:
        with safe_open(files[0], framework="pt") as tensors:
            dtype: torch.dtype = tensors.get_tensor(next(iter(tensors.keys()))).dtype
    except (SafetensorError, OSError, StopIteration) as error:
        raise _unreadable(files[0], error) from error
    return dtype


def load_model(folder: Path, *, dtype: torch.dtype, device: str) -> Transformer:
    """Build and fill the decoder of a folder, which must hold its tensors and no others."""
    cfg = from_json(read_json(folder / CONFIG))
    _check_depth(cfg, folder)
    try:
        model = Transformer(cfg, dtype=dtype, device="meta").to_empty(device=device)
        with torch.device(device):
            model.rope_CD = rope_table(cfg)
    except torch.OutOfMemoryError:
        raise
    except (RuntimeError, MemoryError, OverflowError) as error:
        reason = str(error).partition("\n")[0]
        raise DataError(
            f"a model of the sizes in {str(folder / CONFIG)!r} cannot be allocated: {reason}"
        ) from error
    load_weights(model, folder)
    return model


def _check_depth(cfg: ModelConfig, folder: Path) -> None:
    """Compare the number of layers with the file's names: building a million layers takes long."""
    names = [name for file in _weight_files(folder) for name in read_shapes(file)]
    layers = {
        int(match[1]) for name in names if (match := re.match(r"model\.layers\.(\d+)\.", name))
    }
    if layers and cfg.num_layers > max(layers) + 1:
        raise DataError(
            f"{str(folder / CONFIG)!r} says {cfg.num_layers} layers, but the weights are those of "
            f"{max(layers) + 1}"
        )


def read_shapes(file: Path) -> dict[str, list[int]]:
    """Read the names and shapes of a file's tensors, without the tensors."""
    try:
        with safe_open(file, framework="pt") as tensors:
            names = tensors.keys()
            return {name: tensors.get_slice(name).get_shape() for name in names}
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> DataError:
    return DataError(f"{str(file)!r} is not a readable safetensors file: {error}")


def load_weights(model: Transformer, folder: Path) -> None:
    """Load weights from a folder of the same shape in place, also for whoever shares the memory."""
    wanted = dict(model.named_views())
    files = _weight_files(folder)
    if not files:
        raise DataError(f"model folder {str(folder)!r} has no safetensors weights")
    for file in files:
        fill_weights(file, wanted, str(model.device), ignored=_TIED if model.cfg.tied else _ROPE)
    if wanted:
        raise DataError(
            f"model folder {str(folder)!r} lacks the tensor {min(wanted)} "
            f"({len(wanted)} missing in all)"
        )


def save_model(
    model: Transformer,
    folder: Path,
    *,
    eos_tokens: Collection[int] = (),
) -> None:
    """Write a folder that transformers and vLLM load; the tokenizer saves itself beside it.

    `eos_tokens` go to `generation_config.json`, so that others stop there too.
    """
    tensors = {name: view.to(model.dtype) for name, view in model.named_views()}
    check_finite(tensors.items())
    config: dict[str, Json] = {
        **to_json(model.cfg),
        "torch_dtype": str(model.dtype).removeprefix("torch."),
    }
    stops: list[Json] = [int(token) for token in sorted(eos_tokens)]
    write_tensors(folder / WEIGHTS, tensors)
    if stops:
        config["eos_token_id"] = stops
        write_json(folder / "generation_config.json", {"eos_token_id": stops})
    write_json(folder / CONFIG, config)


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file, whole or not at all; a disk error is one sentence."""
    host = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    partial = file.with_name(f"{file.name}.partial")
    with write_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_file(host, partial, metadata={"format": "pt"})
            partial.replace(file)
        except SafetensorError as error:
            # Its only trace of the system's error is a number in the text.
            code = re.search(r"os error (\d+)", str(error))
            raise OSError(int(code[1]) if code else 0, str(error)) from error
        finally:
            with suppress(OSError):
                partial.unlink()


def check_finite(tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Stop before weights that are not finite are saved or measured."""
    for name, tensor in tensors:
        if not is_finite(tensor):
            raise TrainError(
                f"the weight {name} is no longer finite, so this step is neither measured nor "
                "saved: lower train.lr, and start again or --resume from the last checkpoint"
            )


def is_finite(tensor: Tensor) -> bool:
    return bool(tensor.isfinite().all())


def _download(model: str, files: Collection[str] = DOWNLOADED) -> Path:
    try:
        return Path(snapshot_download(model, allow_patterns=list(files)))
    except (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        OfflineModeIsEnabled,
        OSError,
    ) as error:
        reason = str(error).strip().partition("\n")[0]
        raise DataError(
            f"model {model!r} is no folder here and cannot be had from the hub: {reason}"
        ) from error


def _weight_files(folder: Path) -> list[Path]:
    if (folder / WEIGHTS).is_file():
        return [folder / WEIGHTS]
    if not (folder / INDEX).is_file():
        return []
    places = read_json(folder / INDEX).get("weight_map")
    if not isinstance(places, dict) or not places:
        raise DataError(f"{INDEX} in {str(folder)!r} has no weight_map from tensors to files")
    names = sorted({str(name) for name in places.values()})
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise DataError(
                f"{INDEX} in {str(folder)!r} names {name!r}, which is no file in that folder"
            )
    return [folder / name for name in names]


def fill_weights(
    file: Path, wanted: dict[str, Tensor], device: str, *, ignored: re.Pattern[str] | None = None
) -> None:
    """Copy a file's tensors into the views that await them, taking each off the list."""
    try:
        with safe_open(file, framework="pt", device=device) as tensors:
            for name in tensors.keys():  # noqa: SIM118 - safe_open is no mapping
                if name not in wanted:
                    if ignored is not None and ignored.fullmatch(name):
                        continue
                    raise DataError(
                        f"{str(file)!r} holds a tensor {name} that the model has no place for"
                    )
                view = wanted.pop(name)
                tensor = tensors.get_tensor(name)
                if view.shape != tensor.shape:
                    shapes = f"{list(tensor.shape)}, expected {list(view.shape)}"
                    raise DataError(f"tensor {name} in {str(file)!r} has shape {shapes}")
                if not tensor.is_floating_point():
                    raise DataError(f"tensor {name} in {str(file)!r} is of {tensor.dtype}")
                view.copy_(tensor)
                if not is_finite(view):
                    raise DataError(
                        f"tensor {name} in {str(file)!r} holds values that are not finite, so "
                        "nothing can be computed with it: take an earlier checkpoint or another "
                        "model"
                    )
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def write_json(file: Path, row: dict[str, Json]) -> None:
    with write_errors(file):
        file.write_text(json.dumps(row, indent=2) + "\n", encoding="utf-8")
