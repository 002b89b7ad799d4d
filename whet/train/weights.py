"""What a checkpoint holds of a model and its optimiser: all that is trained, the whole model or its
adapters."""

from collections.abc import Collection
from pathlib import Path

from safetensors.torch import load_file, save_file

from whet.models.adapters import load_adapters, save_adapters
from whet.models.load import load_weights, save_model
from whet.models.lora import LoraTransformer
from whet.models.transformer import Transformer
from whet.train.optim import Optimizer

OPTIMIZER = "optimizer.safetensors"


def save_trained(model: Transformer, folder: Path, *, eos_tokens: Collection[int] = ()) -> None:
    """Write a Hugging Face folder, or in peft's format the adapters of one."""
    if isinstance(model, LoraTransformer):
        save_adapters(model, folder)
    else:
        save_model(model, folder, eos_tokens=eos_tokens)


def load_trained(model: Transformer, folder: Path) -> None:
    """Fill what is trained, in place."""
    if isinstance(model, LoraTransformer):
        load_adapters(model, folder)
    else:
        load_weights(model, folder)


def save_optimizer(optimizer: Optimizer, folder: Path) -> None:
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in optimizer.tensors().items()
    }
    save_file(tensors, folder / OPTIMIZER)


def load_optimizer(optimizer: Optimizer, folder: Path) -> None:
    optimizer.load(load_file(folder / OPTIMIZER).items())
