"""Rewrite the weights of a model folder in another dtype, one file at a time."""

from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from whet.errors import DataError
from whet.models.load import CONFIG, WEIGHTS, is_finite, weight_files, write_tensors
from whet.store.files import write_json
from whet.text.tokenizer import read_json

DTYPES = {name: getattr(torch, name) for name in ("bfloat16", "float16", "float32")}
"""Types to write weights in, by name."""


def convert_weights(folder: Path, dtype: torch.dtype) -> None:
    """Rewrite all weights in place; what does not fit into the new type is refused."""
    num_bytes = 0
    for file in weight_files(folder):
        tensors = _read_as(file, dtype)
        num_bytes += sum(tensor.nbytes for tensor in tensors.values())
        write_tensors(file, tensors)
    index = folder / f"{WEIGHTS}.index.json"
    if index.is_file():
        write_json(index, read_json(index) | {"metadata": {"total_size": num_bytes}})
    name = str(dtype).removeprefix("torch.")
    config = read_json(folder / CONFIG)
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
