"""Load Hugging Face folders into the fused matrices: all rows, or those that a rank holds."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from huggingface_hub import snapshot_download
from huggingface_hub.errors import HFValidationError
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from whet.errors import DataError, TrainError
from whet.models.config import ModelConfig, from_hf_config
from whet.models.transformer import Transformer, rope_table
from whet.store.files import write_errors
from whet.text.tokenizer import read_model_json

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
ADAPTER_CONFIG = "adapter_config.json"
DOWNLOADED = ("*.safetensors", "*.json", "*.jinja", "*.txt")
"""Files downloaded for a hub id. Pickled weights are never downloaded."""
LIGHT = DOWNLOADED[1:]
"""The downloaded files other than weights."""

HUB_ID = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
_ROPE = re.compile(r".*\.rotary_emb\.inv_freq")
_TIED = re.compile(rf"lm_head\.weight|{_ROPE.pattern}")
"""Tensors of published files that the decoder does not need: rope tables, a tied head."""


def resolve(model: str) -> Path:
    """Find the folder of a model or adapters; download a hub id that is not cached."""
    folder = Path(model).expanduser()
    if not folder.is_dir():
        if folder.exists() or model.startswith((".", "/", "~")) or not HUB_ID.fullmatch(model):
            raise DataError(
                f"model {model!r} is neither a folder nor a hub id such as Qwen/Qwen3-0.6B"
            )
        folder = _download(model)
    if (folder / ADAPTER_CONFIG).is_file():
        return folder
    if not (folder / CONFIG).is_file() or not weight_files(folder):
        raise DataError(f"model folder {str(folder)!r} needs a config.json and safetensors weights")
    return folder


def resolve_light(model: str) -> Path:
    """Find the folder of a model as `resolve` does, but without the weights of a hub id."""
    is_hub_id = not Path(model).expanduser().is_dir() and HUB_ID.fullmatch(model)
    return _download(model, LIGHT) if is_hub_id else resolve(model)


def read_shape(model: str) -> ModelConfig:
    """Read the shape of a model folder, or of a hub id by fetching only its config.json."""
    folder = Path(model).expanduser()
    if not folder.is_dir() and HUB_ID.fullmatch(model):
        folder = _download(model, (CONFIG,))
    if not (folder / CONFIG).is_file():
        raise DataError(
            f"model {model!r} is neither a folder with a config.json nor a hub id such as "
            "Qwen/Qwen3-0.6B"
        )
    return from_hf_config(read_model_json(folder / CONFIG))


def stored_dtype(folder: Path) -> torch.dtype:
    """Read the dtype of a folder's weights from its first tensor."""
    files = weight_files(folder)
    if not files:
        raise DataError(f"model folder {str(folder)!r} has no safetensors weights")
    try:
        with safe_open(files[0], framework="pt") as tensors:
            dtype: torch.dtype = tensors.get_tensor(next(iter(tensors.keys()))).dtype
    except (SafetensorError, OSError, StopIteration) as error:
        raise _unreadable(files[0], error) from error
    return dtype


def load_decoder(folder: Path, *, dtype: torch.dtype, device: str) -> Transformer:
    """Build the decoder of a folder and load its weights; missing or extra tensors are errors."""
    cfg = from_hf_config(read_model_json(folder / CONFIG))
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
    """Check the number of layers against the tensor names, since building a million is slow."""
    names = [name for file in weight_files(folder) for name in read_shapes(file)]
    layers = {
        int(match[1]) for name in names if (match := re.match(r"model\.layers\.(\d+)\.", name))
    }
    if layers and cfg.num_layers > max(layers) + 1:
        raise DataError(
            f"{str(folder / CONFIG)!r} says {cfg.num_layers} layers, but the weights are those of "
            f"{max(layers) + 1}"
        )


def read_shapes(file: Path) -> dict[str, list[int]]:
    """Read the names and shapes of a file's tensors without loading them."""
    try:
        with safe_open(file, framework="pt") as tensors:
            names = tensors.keys()
            return {name: tensors.get_slice(name).get_shape() for name in names}
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error


def _unreadable(file: Path, error: Exception) -> DataError:
    return DataError(f"{str(file)!r} is not a readable safetensors file: {error}")


class TensorRows(NamedTuple):
    """A range of a tensor's rows: the first is `start` of `num_rows`, and `view` receives them."""

    view: Tensor
    start: int
    num_rows: int


def load_weights(model: Transformer, folder: Path) -> None:
    """Load weights in place from a folder of the same shape, also for models that share them."""
    wanted = {name: TensorRows(view, 0, len(view)) for name, view in model.named_views()}
    load_rows(wanted, folder, ignored=_TIED if model.cfg.tied else _ROPE)


class Location(NamedTuple):
    """The position of a folder's tensor in the model: a parameter and the first row in it."""

    parameter: str
    start: int
    shape: torch.Size


def locate_tensors(cfg: ModelConfig) -> dict[str, Location]:
    """Locate the tensor of each Hugging Face name in the fused parameters."""
    model = Transformer(cfg, device="meta")
    views = model.named_views()
    locations: dict[str, Location] = {}
    for parameter_name, parameter in model.named_parameters():
        start = 0
        while start < len(parameter):  # views come in the order of the parameters
            name, view = next(views)
            locations[name] = Location(parameter_name, start, view.shape)
            start += len(view)
        assert start == len(parameter), "a parameter is made of whole tensors"
    return locations


def load_shards(cfg: ModelConfig, shards: Mapping[str, tuple[Tensor, int]], folder: Path) -> None:
    """Load only the rows of each parameter that a rank holds, in place.

    `shards` maps the name of a parameter to its rows and the index of the first.
    """
    wanted: dict[str, TensorRows] = {}
    for name, (parameter, first, shape) in locate_tensors(cfg).items():
        held, start = shards[parameter]
        begin = max(first, start)
        end = max(begin, min(first + shape[0], start + len(held)))
        wanted[name] = TensorRows(held[begin - start : end - start], begin - first, shape[0])
    load_rows(wanted, folder, ignored=_TIED if cfg.tied else _ROPE)


def load_rows(wanted: dict[str, TensorRows], folder: Path, *, ignored: re.Pattern[str]) -> None:
    """Load rows by tensor name from the weight file of a folder, or from all its weight files."""
    files = weight_files(folder)
    if not files:
        raise DataError(f"model folder {str(folder)!r} has no safetensors weights")
    for path in files:
        fill_rows(path, wanted, ignored=ignored)
    if wanted:
        raise DataError(
            f"model folder {str(folder)!r} lacks the tensor {min(wanted)} "
            f"({len(wanted)} missing in all)"
        )


_DEFERRED: ContextVar[list[Callable[[], None]] | None] = ContextVar("deferred", default=None)
"""Pending writes inside `defer_writes`; None in other threads, which write at once."""


@contextmanager
def defer_writes(is_on: bool = True) -> Iterator[list[Callable[[], None]]]:
    """Let `write_tensors` only copy tensors to host memory; the yielded list has pending writes."""
    later: list[Callable[[], None]] = []
    token = _DEFERRED.set(later if is_on else None)
    try:
        yield later
    finally:
        _DEFERRED.reset(token)


def write_tensors(file: Path, tensors: Mapping[str, Tensor]) -> None:
    """Write a safetensors file atomically; a disk error is one sentence.

    Inside `defer_writes` on this thread, tensors are copied now and written later.
    """
    later = _DEFERRED.get()
    host = {
        name: tensor.detach().to("cpu", copy=later is not None).contiguous()
        for name, tensor in tensors.items()
    }
    if later is not None:
        later.append(partial(_write_tensors, file, host))
    else:
        _write_tensors(file, host)


def _write_tensors(file: Path, host: Mapping[str, Tensor]) -> None:
    unfinished = file.with_name(f"{file.name}.partial")
    with write_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            save_file(dict(host), unfinished, metadata={"format": "pt"})
            unfinished.replace(file)
        except SafetensorError as error:
            # The system's error code is only in the text.
            code = re.search(r"os error (\d+)", str(error))
            raise OSError(int(code[1]) if code else 0, str(error)) from error
        finally:
            with suppress(OSError):
                unfinished.unlink()


def check_finite(tensors: Iterable[tuple[str, Tensor]]) -> None:
    """Raise if a weight is not finite, before it is saved or measured."""
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
    except (HFValidationError, OSError) as error:  # the hub's other errors are OSErrors
        reason = str(error).strip().partition("\n")[0]
        parent = Path(model).parent
        if parent.is_dir():  # the user meant a run or a folder
            names = ", ".join(sorted(path.name for path in parent.iterdir() if path.is_dir()))
            raise DataError(
                f"there is no folder {model}; {parent} has {names or 'none'}"
            ) from error
        raise DataError(
            f"model {model!r} is not a folder here and could not be downloaded from the hub: "
            f"{reason}"
        ) from error


def weight_files(folder: Path, file: str = WEIGHTS) -> list[Path]:
    """List the weight file of a folder, or its parts; empty if there is none."""
    index = f"{file}.index.json"
    if (folder / file).is_file():
        return [folder / file]
    if not (folder / index).is_file():
        return []
    weight_map = read_model_json(folder / index).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise DataError(f"{index} in {str(folder)!r} has no weight_map from tensors to files")
    names = sorted({str(name) for name in weight_map.values()})
    for name in names:
        if Path(name).name != name or not (folder / name).is_file():
            raise DataError(
                f"{index} in {str(folder)!r} names {name!r}, which is not a file in that folder"
            )
    return [folder / name for name in names]


def fill_rows(
    file: Path, wanted: dict[str, TensorRows], *, ignored: re.Pattern[str] | None = None
) -> None:
    """Copy a file's tensors into the views in `wanted`, and remove them from it."""
    for name, shape in read_shapes(file).items():
        if name not in wanted:
            if ignored is not None and ignored.fullmatch(name):
                continue
            raise DataError(f"{str(file)!r} holds a tensor {name} that the model has no place for")
        view, start, num_rows = wanted.pop(name)
        expected = [num_rows, *view.shape[1:]]
        if shape != expected:
            raise DataError(
                f"tensor {name} in {str(file)!r} has shape {shape}, expected {expected}"
            )
        if not len(view):
            continue
        view.copy_(_read_rows(file, name, start, start + len(view), str(view.device)))
        if not is_finite(view):
            raise DataError(
                f"tensor {name} in {str(file)!r} holds values that are not finite, so nothing can "
                "be computed with it: take an earlier checkpoint or another model"
            )


def _read_rows(file: Path, name: str, start: int, stop: int, device: str) -> Tensor:
    """Read some rows of a tensor.

    The file is opened for each tensor, because pages of an open file count as used memory.
    """
    try:
        with safe_open(file, framework="pt", device=device) as tensors:
            rows: Tensor = tensors.get_slice(name)[start:stop]
    except (SafetensorError, OSError) as error:
        raise _unreadable(file, error) from error
    if not rows.is_floating_point():
        raise DataError(f"tensor {name} in {str(file)!r} is of {rows.dtype}")
    return rows
