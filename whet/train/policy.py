"""A policy: a model, the learner that trains it, and the engine that samples from it."""

from abc import ABC, abstractmethod
from pathlib import Path

import torch

from whet.engine.base import Engine, EngineConfig
from whet.models.load import check_finite
from whet.models.lora import load_trained, save_trained
from whet.models.transformer import Transformer
from whet.rollout.collect import ChatEngine
from whet.text.chat import NO_PROMPT, ChatFormat, PromptConfig
from whet.text.tokenizer import Tokenizer
from whet.train.learner import Learner, LogprobModel
from whet.train.learner_factory import LOCAL_FACTORY, LearnerFactory, build_reference
from whet.train.memory import DeviceMemory, device_memory
from whet.train.settings import TrainConfig
from whet.world import get_world


class TrainableModel(ABC):
    """A model that builds its own learner, critic and reference."""

    model: Transformer
    learner_factory: LearnerFactory
    memory: DeviceMemory | None
    learner: Learner | None

    def build_learner(self, cfg: TrainConfig, *, steps: int) -> Learner:
        """Build a learner of the model, whose updates may free the engine's cache.

        It continues from the weights of the previous learner, which is closed.
        """
        if self.learner is not None:
            self.learner.sync_model()
            self.learner.close()
        self.learner = self.learner_factory.build_learner(
            self.model, cfg, steps=steps, memory=self.memory
        )
        return self.learner

    def build_value_learner(self, cfg: TrainConfig, *, steps: int) -> Learner:
        """Make a learner of a critic that starts from a copy of the weights."""
        return self.learner_factory.build_value_learner(
            self.model, cfg, steps=steps, memory=self.memory
        )

    def build_reference(self, cfg: TrainConfig) -> LogprobModel:
        """Make a frozen model that keeps the current weights."""
        return build_reference(self.model, cfg, self.learner_factory)

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` reads; ranks call it together."""

    def load(self, folder: Path) -> None:
        """Load the weights that `save` wrote, in place."""
        load_trained(self.model, folder)


class Policy(TrainableModel):
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
        prompt: PromptConfig = NO_PROMPT,
        learner_factory: LearnerFactory = LOCAL_FACTORY,
        memory: DeviceMemory | None = None,
        is_central: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.chat = ChatFormat(tokenizer, prompt)
        self.engine = engine
        self.learner_factory = learner_factory
        self.memory = memory or device_memory(model.device)
        if self.memory is not None:
            self.memory.add(engine)
        self.chat_engine = ChatEngine(
            engine=engine, chat=self.chat, name=name, is_central=is_central
        )
        self.learner = None

    def publish(self, version: int) -> None:
        """Hand the weights to the engine, whose next completions carry this version."""
        self._sync_model()
        self.engine.load_weights(self.model.named_weights(), version)

    def check_finite(self) -> None:
        """Raise an error if a weight is not finite."""
        self._sync_model()
        check_finite(self.model.named_parameters())

    def _sync_model(self) -> None:
        if self.learner is not None:
            self.learner.sync_model()

    def __repr__(self) -> str:
        millions = sum(weight.numel() for weight in self.model.parameters()) / 1e6
        return f"<policy {self.chat_engine.name}: {millions:.4g}M weights on {self.model.device}>"

    def save(self, folder: str | Path) -> None:
        """Write a Hugging Face folder, or one of adapters; ranks call it together."""
        self._sync_model()
        stops = sorted(self.chat.stop_tokens)
        generation = self.tokenizer.generation
        save_trained(self.model, Path(folder), eos_tokens=stops, generation=generation)
        if get_world().is_rank_zero:
            self.tokenizer.save(Path(folder))


def build_policy(
    model: Transformer,
    tokenizer: Tokenizer,
    engine: EngineConfig,
    *,
    name: str,
    prompt: PromptConfig = NO_PROMPT,
    learner_factory: LearnerFactory = LOCAL_FACTORY,
    memory: DeviceMemory | None = None,
) -> Policy:
    """Build the engine of the settings, hand it the weights, and make a policy of both."""
    stop_tokens = ChatFormat(tokenizer, prompt).stop_tokens
    built = engine.build(model, stop_tokens=stop_tokens, detokenize=tokenizer.decode)
    policy = Policy(
        model,
        tokenizer,
        engine=built,
        name=name,
        prompt=prompt,
        learner_factory=learner_factory,
        memory=memory,
        is_central=engine.is_central,
    )
    policy.publish(0)
    return policy


def set_arithmetic(*, deterministic: bool) -> None:
    """Let CUDA sum bfloat16 products in float32 from here on, and with `deterministic`, run only
    deterministic kernels.

    A CPU with a fixed number of threads gives the same bits anyway.
    """
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.use_deterministic_algorithms(deterministic)
