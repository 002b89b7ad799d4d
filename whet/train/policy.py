"""A policy: one set of weights, the learner that moves them, and the engine that samples from them."""

from pathlib import Path
from typing import Literal

import torch

from whet.config import Config
from whet.engine.native import EngineConfig, NativeEngine
from whet.errors import ConfigError
from whet.models.load import load_model, resolve, save_model
from whet.models.sizes import new_config
from whet.models.transformer import Transformer, initialise
from whet.rollout.collect import Player
from whet.store.models import model_folder
from whet.text.chat import ChatFormat
from whet.text.pieces import train_pieces
from whet.text.tokenizer import Tokenizer
from whet.train.learner import Learner
from whet.train.optim import TrainConfig

Dtype = Literal["auto", "float32", "bfloat16"]


class ModelSource(Config):
    """Where weights come from: a Hugging Face folder or hub id, or a fresh model of a named size."""

    path: str | None = None
    """A folder, a hub id, or `@stage` in a pipeline."""
    new: str | None = None
    """A size to start from random weights; its tokenizer is trained on the data."""
    positions: int = 256
    """Longest context of a new model."""
    max_pieces: int = 1024
    """Most whole pieces in a new model's tokenizer."""


def torch_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def torch_dtype(name: Dtype) -> torch.dtype:
    """bfloat16 on a GPU unless told otherwise; float32 on a CPU, where bfloat16 is slow and can crash."""
    if name == "auto":
        return torch.bfloat16 if torch_device().type == "cuda" else torch.float32
    return torch.bfloat16 if name == "bfloat16" else torch.float32


def open_model(
    source: ModelSource, *, dtype: torch.dtype, texts: list[str], seed: int
) -> tuple[Transformer, Tokenizer]:
    """Load a model with its tokenizer, or draw a new one whose tokenizer is made for `texts`."""
    device = str(torch_device())
    if (source.path is None) == (source.new is None):
        raise ConfigError("model needs either path (a folder or hub id) or new (a size), not both and not neither")
    if source.path is not None:
        folder = resolve(str(model_folder(source.path)))
        return load_model(folder, dtype=dtype, device=device), Tokenizer.load(folder)
    assert source.new is not None
    if not texts:
        raise ConfigError("model.new needs training texts to make its tokenizer from; only sft can start a new model")
    tokenizer = train_pieces(texts, max_pieces=source.max_pieces)
    shape = new_config(source.new, tokenizer.vocab_size, source.positions)
    model = Transformer(shape, dtype=torch.float32)
    initialise(model, seed)
    return model.to(device=device, dtype=dtype), tokenizer


class Policy:
    """Learner and engine over the same weights: after an update the engine already has them, and the version grows."""

    def __init__(self, model: Transformer, tokenizer: Tokenizer, *, engine: EngineConfig, name: str) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.chat = ChatFormat(tokenizer)
        self.engine = NativeEngine(
            model, engine, stop_tokens=self.chat.stop_tokens, detokenize=lambda tokens: tokenizer.decode(tokens)
        )
        self.player = Player(engine=self.engine, chat=self.chat, name=name)

    def learner(self, cfg: TrainConfig, *, steps: int) -> Learner:
        return Learner(self.model, cfg, steps=steps)

    def publish(self, version: int) -> None:
        """Stamp what is sampled from now on; shared weights need no copy."""
        self.engine.version = version

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder."""
        save_model(self.model, folder, eos_tokens=sorted(self.chat.stop_tokens))
        self.tokenizer.save(folder)
