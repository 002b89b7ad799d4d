"""Load and save adapters in peft's format."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from whet.errors import DataError
from whet.models.load import ADAPTER_CONFIG as CONFIG
from whet.models.lora import TARGETS, LoraConfig, LoraTransformer
from whet.types import Json

WEIGHTS = "adapter_model.safetensors"
PLAIN: dict[str, Json] = {
    "bias": "none",
    **dict.fromkeys(("fan_in_fan_out", "use_rslora", "use_dora", "lora_bias"), False),
    **dict.fromkeys(("modules_to_save", "layers_to_transform", "layers_pattern")),
    "rank_pattern": {},
    "alpha_pattern": {},
}
"""What peft can vary and we do not: written as it stands, and anything else refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """What an adapter folder says of itself: the weights it is for, and its shape."""

    base: str
    lora: LoraConfig


def is_adapter(folder: Path) -> bool:
    return (folder / CONFIG).is_file()


def read_adapter(folder: Path) -> Adapter:
    """Read `adapter_config.json`; refuse what the decoder would compute wrongly."""
    file = folder / CONFIG
    try:
        row = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise DataError(f"{str(file)!r} cannot be read as JSON: {error}") from error
    if not isinstance(row, dict) or row.get("peft_type") != "LORA":
        raise DataError(f"{str(file)!r} should be an object that says peft_type = 'LORA'")
    for key, plain in PLAIN.items():
        if row.get(key) not in (plain, None) and row[key]:
            raise DataError(f"{str(file)!r} says {key} = {row[key]!r}; only {plain!r} is supported")
    base = row.get("base_model_name_or_path")
    targets = row.get("target_modules")
    if not isinstance(base, str) or not isinstance(targets, list):
        raise DataError(
            f"{str(file)!r} needs base_model_name_or_path, a text, and target_modules, a list of "
            "names"
        )
    try:
        lora = LoraConfig.model_validate(
            {"rank": row.get("r"), "alpha": row.get("lora_alpha"), "targets": tuple(targets)}
        )
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        raise DataError(
            f"{str(file)!r}: r, lora_alpha or target_modules is wrong ({wrong['msg']}); "
            f"targets are {', '.join(TARGETS)}"
        ) from error
    return Adapter(base=base, lora=lora)


def save_adapters(model: LoraTransformer, folder: Path) -> None:
    """Write a folder that peft loads over the base model as it is."""
    tensors = {}
    for name, A_RI, B_OR in model.adapters():
        for letter, view in (("A", A_RI), ("B", B_OR)):
            tensors[_key(name, letter)] = view.cpu().clone(memory_format=torch.contiguous_format)
    config: dict[str, Json] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model.base,
        "r": model.lora.rank,
        "lora_alpha": model.lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(model.lora.targets),
        "inference_mode": True,
        "init_lora_weights": True,
        "revision": None,
        **PLAIN,
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_file(tensors, folder / WEIGHTS, metadata={"format": "pt"})
        (folder / CONFIG).write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    except (OSError, SafetensorError) as error:
        raise DataError(f"cannot write the adapters to {str(folder)!r}: {error}") from error


@torch.no_grad()
def load_adapters(model: LoraTransformer, folder: Path) -> None:
    """Fill the adapters in place; every tensor must be there, in its shape, and no other."""
    file = folder / WEIGHTS
    try:
        tensors = load_file(file)
    except (OSError, SafetensorError) as error:
        raise DataError(f"{str(file)!r} is not a readable safetensors file: {error}") from error
    for name, A_RI, B_OR in model.adapters():
        for letter, view in (("A", A_RI), ("B", B_OR)):
            key = _key(name, letter)
            if key not in tensors:
                raise DataError(f"{str(file)!r} lacks the tensor {key}")
            tensor = tensors.pop(key)
            if tensor.shape != view.shape:
                shapes = f"{list(tensor.shape)}, expected {list(view.shape)}"
                raise DataError(f"tensor {key} in {str(file)!r} has shape {shapes}")
            view.copy_(tensor)
    if tensors:
        raise DataError(
            f"{str(file)!r} holds a tensor {min(tensors)} that the model has no place for"
        )


def _key(name: str, letter: str) -> str:
    return f"base_model.model.{name}.lora_{letter}.weight"
