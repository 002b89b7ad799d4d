"""A policy: one set of weights, the learner that moves them, and the engine that samples them."""

from collections.abc import Collection
from pathlib import Path

import torch

from whet.engine.base import Engine
from whet.engine.native import EngineConfig, build_engine
from whet.models.adapters import load_adapters, save_adapters
from whet.models.load import load_weights, save_model
from whet.models.lora import LoraTransformer, named_weights
from whet.models.transformer import Transformer
from whet.rollout.collect import Player
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Tokenizer
from whet.train.learner import LocalLearner
from whet.train.memory import DeviceMemory, device_memory
from whet.train.optim import TrainConfig


class Policy:
    """A model, and the engine that samples from it once its weights are published.

    Policies on one device share its `memory`.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        *,
        engine: Engine,
        name: str,
        memory: DeviceMemory | None = None,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.chat = ChatFormat(tokenizer)
        self.engine = engine
        self.memory = memory or device_memory(model.device)
        if self.memory is not None:
            self.memory.add(engine)
        self.player = Player(engine=engine, chat=self.chat, name=name)

    def learner(self, cfg: TrainConfig, *, steps: int) -> LocalLearner:
        """Make a learner of the same weights; the engine's cache gives way to its updates."""
        return LocalLearner(self.model, cfg, steps=steps, memory=self.memory)

    def publish(self, version: int) -> None:
        """Hand the weights to the engine, which stamps what it samples from now on."""
        self.engine.load_weights(named_weights(self.model), version)

    def save(self, folder: Path) -> None:
        """Write a Hugging Face folder, or one of adapters."""
        save_weights(self.model, folder, eos_tokens=sorted(self.chat.stop_tokens))
        self.tokenizer.save(folder)


def build_policy(
    model: Transformer,
    tokenizer: Tokenizer,
    engine: EngineConfig,
    *,
    name: str,
    memory: DeviceMemory | None = None,
) -> Policy:
    """Build the engine that the settings name, and a policy that samples with it."""
    stop_tokens = ChatFormat(tokenizer).stop_tokens
    built = build_engine(engine, model, stop_tokens=stop_tokens, detokenize=tokenizer.decode)
    return Policy(model, tokenizer, engine=built, name=name, memory=memory)


def save_weights(model: Transformer, folder: Path, *, eos_tokens: Collection[int] = ()) -> None:
    """Write a Hugging Face folder, or in peft's format the adapters of one."""
    if isinstance(model, LoraTransformer):
        save_adapters(model, folder)
    else:
        save_model(model, folder, eos_tokens=eos_tokens)


def load_trained_weights(model: Transformer, folder: Path) -> None:
    """Fill what is trained, in place."""
    if isinstance(model, LoraTransformer):
        load_adapters(model, folder)
    else:
        load_weights(model, folder)


def set_determinism(deterministic: bool) -> None:
    """Choose before CUDA starts whether kernels whose results vary from run to run are allowed.

    A CPU with a fixed number of threads gives the same bits anyway.
    """
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.use_deterministic_algorithms(deterministic)
