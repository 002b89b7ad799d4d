"""A policy: a model, the learner that trains it, and the engine that samples from it.

Also models that only compute log-probabilities: the starting policy of a KL or a preference, or a
teacher. They can be kept in host memory between passes.
"""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from whet.data.examples import Example, PreferencePair, with_field
from whet.engine.base import Engine, EngineConfig
from whet.errors import ConfigError
from whet.models.load import check_finite
from whet.models.lora import copy_trainable, load_trained, save_trained
from whet.models.source import ModelSource, open_model, read_tokenizer, torch_dtype
from whet.models.transformer import Transformer
from whet.rollout.collect import ChatEngine
from whet.text.chat import NO_PROMPT, ChatFormat, PromptConfig
from whet.text.tokenizer import Tokenizer
from whet.train.learner import Learner, LocalLearner, LogprobModel, ValueModel, compute_logprobs
from whet.train.memory import DeviceMemory, device_memory
from whet.train.offload import OffloadedWeights
from whet.train.optim import TrainConfig
from whet.train.served_model import ServedModel
from whet.types import Floats
from whet.user_code import check_complete, load_from_file
from whet.world import get_world

SERVED_SECONDS = 600.0
"""How long a teacher behind a server may take for a response."""


class LearnerFactory(ABC):
    """Builds the learners and frozen models of a model, and so decides on their devices.

    Every learner, critic, reference and teacher of a run comes from the factory of its policy.
    """

    @abstractmethod
    def make_learner(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None,
    ) -> Learner:
        """Make a learner that moves `model` in place, whose schedule spans `steps` updates.

        Updates on a device may free the caches of the engines that share its `memory`.
        """

    def make_value_learner(
        self, policy: Transformer, cfg: TrainConfig, *, steps: int, memory: DeviceMemory | None
    ) -> Learner:
        """Make a learner of a critic that starts from a copy of the policy's weights."""
        return self.make_learner(ValueModel(policy), cfg, steps=steps, memory=memory)

    @abstractmethod
    def make_frozen_model(
        self, model: Transformer, cfg: TrainConfig, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> LogprobModel:
        """Wrap a frozen model; weights in `offloaded` wait in host memory."""


class LocalLearnerFactory(LearnerFactory):
    """Runs each model on the device where it is."""

    def make_learner(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None,
    ) -> Learner:
        return LocalLearner(model, cfg, steps=steps, memory=memory)

    def make_frozen_model(
        self, model: Transformer, cfg: TrainConfig, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> LogprobModel:
        return FrozenModel(model, cfg.micro_batch_tokens, offloaded=offloaded)


class FSDPLearnerFactory(LearnerFactory):
    """Runs each model over all ranks, in shards (`whet/train/fsdp_learner.py`)."""

    def make_learner(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None,
    ) -> Learner:
        # A single process does not need torch.distributed.
        from whet.train.fsdp_learner import FSDPLearner  # noqa: PLC0415

        return FSDPLearner(model, cfg, steps=steps, memory=memory)

    def make_value_learner(
        self, policy: Transformer, cfg: TrainConfig, *, steps: int, memory: DeviceMemory | None
    ) -> Learner:
        from whet.train.shards import needs_shards, rank_world  # noqa: PLC0415

        # Shards are copies already.
        critic = ValueModel(policy, is_shared=needs_shards(policy, rank_world()))
        return self.make_learner(critic, cfg, steps=steps, memory=memory)

    def make_frozen_model(
        self, model: Transformer, cfg: TrainConfig, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> LogprobModel:
        from whet.train.fsdp_learner import FrozenShardedModel  # noqa: PLC0415

        return FrozenShardedModel(model, cfg, offloaded=offloaded)


LOCAL = LocalLearnerFactory()
LEARNERS: dict[str, LearnerFactory] = {"local": LOCAL, "fsdp": FSDPLearnerFactory()}
"""Learner factories by the name in `TrainConfig.learner`: the only list of them."""


def build_learners(cfg: TrainConfig) -> LearnerFactory:
    """Return the factory of all learners and frozen models of a policy.

    Another kind is one more entry of `LEARNERS`, or the user's own class; see
    docs/add_a_learner.md.
    """
    name = cfg.learner
    if name == "auto":
        name = "local" if get_world().size == 1 else "fsdp"
    if name in LEARNERS:
        return LEARNERS[name]
    if ":" not in name:
        known = ", ".join(LEARNERS)
        raise ConfigError(
            f'train.learner = "{name}" should be one of auto, {known}, or my_learner.py:Factory'
        )
    return _load_factory(name)


def _load_factory(code_path: str) -> LearnerFactory:
    """Make the user's own factory; a method that it or a learner in its file lacks is named."""
    label = f'train.learner = "{code_path}"'
    factory = load_from_file(code_path, "train.learner")
    if not isinstance(factory, type) or LearnerFactory not in factory.__mro__:
        raise ConfigError(
            f"{label} should name a class that inherits from LearnerFactory (docs/add_a_learner.md)"
        )
    check_complete(factory, label, LearnerFactory)
    for value in vars(sys.modules[factory.__module__]).values():
        is_model = isinstance(value, type) and issubclass(value, LogprobModel)
        if is_model and not value.__subclasses__():
            check_complete(value, f"{label}: {value.__name__}", Learner)
    made: LearnerFactory = factory()
    return made


class Trainable(ABC):
    """A model, and what makes its learner, its critic and its reference."""

    model: Transformer
    learners: LearnerFactory
    memory: DeviceMemory | None
    learner: Learner | None

    def make_learner(self, cfg: TrainConfig, *, steps: int) -> Learner:
        """Make a learner of the same weights, whose updates may free the engine's cache.

        It starts where the one before has left them, which is closed.
        """
        if self.learner is not None:
            self.learner.sync_model()
            self.learner.close()
        self.learner = self.learners.make_learner(self.model, cfg, steps=steps, memory=self.memory)
        return self.learner

    def make_value_learner(self, cfg: TrainConfig, *, steps: int) -> Learner:
        """Make a learner of a critic that starts from a copy of the weights."""
        return self.learners.make_value_learner(self.model, cfg, steps=steps, memory=self.memory)

    def make_reference(self, cfg: TrainConfig) -> LogprobModel:
        """Make a frozen model that keeps the present weights."""
        return make_reference(self.model, cfg, self.learners)

    @abstractmethod
    def save(self, folder: str | Path) -> None:
        """Write a folder that `load` reads; ranks call it together."""

    def load(self, folder: Path) -> None:
        """Load the weights that `save` wrote, in place."""
        load_trained(self.model, folder)


class Policy(Trainable):
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
        learners: LearnerFactory = LOCAL,
        memory: DeviceMemory | None = None,
        is_central: bool = False,
    ) -> None:
        self.model = model
        self.tokenizer = tokenizer
        self.chat = ChatFormat(tokenizer, prompt)
        self.engine = engine
        self.learners = learners
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
        """Stop before weights that are not finite are measured."""
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
    learners: LearnerFactory = LOCAL,
    memory: DeviceMemory | None = None,
) -> Policy:
    """Build the engine that the settings name, hand it the weights, and make a policy of both."""
    stop_tokens = ChatFormat(tokenizer, prompt).stop_tokens
    built = engine.build(model, stop_tokens=stop_tokens, detokenize=tokenizer.decode)
    policy = Policy(
        model,
        tokenizer,
        engine=built,
        name=name,
        prompt=prompt,
        learners=learners,
        memory=memory,
        is_central=engine.is_central,
    )
    policy.publish(0)
    return policy


def set_determinism(deterministic: bool) -> None:
    """Allow or forbid, before CUDA starts, kernels whose results vary from run to run.

    A CPU with a fixed number of threads gives the same bits anyway.
    """
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.use_deterministic_algorithms(deterministic)


class FrozenModel(LogprobModel):
    """A model that computes log-probabilities and is not trained.

    The weights in `offloaded` are kept in host memory between passes.
    """

    def __init__(
        self, model: Transformer, micro_batch_tokens: int, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> None:
        self.model = model
        self.micro_batch_tokens = micro_batch_tokens
        self.offloaded = OffloadedWeights(offloaded, model.device) if offloaded else None

    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        with self.offloaded.on_device() if self.offloaded else nullcontext():
            return compute_logprobs(self.model, examples, self.micro_batch_tokens)


def make_reference(
    model: Transformer, cfg: TrainConfig, learners: LearnerFactory = LOCAL
) -> LogprobModel:
    """Copy the starting policy: weights that train are copied and frozen, the others shared; or
    take the one that a server has."""
    if cfg.reference_url is not None:
        return ServedModel(cfg.reference_url, setting="train.reference_url", wait=SERVED_SECONDS)
    copied = copy_trainable(model).requires_grad_(False)
    shared = {id(weight) for weight in model.parameters()}
    copies = [weight for weight in copied.parameters() if id(weight) not in shared]
    return learners.make_frozen_model(
        copied, cfg, offloaded=copies if cfg.offload_reference else ()
    )


def add_ref_logprobs(examples: Sequence[Example], reference: LogprobModel) -> list[Example]:
    """Add the log-probability that the reference gives each token."""
    return with_field(examples, "ref_logprob_M", reference.compute_logprobs(examples))


def open_teacher(
    source: ModelSource, policy: Policy, cfg: TrainConfig, *, url: str | None = None
) -> LogprobModel:
    """Load a teacher, or take the one that a server has, and check that it can read everything the
    policy writes."""
    if url is not None:
        shape, tokenizer = read_tokenizer(source)
        _check_teacher(source, tokenizer, shape.max_positions, policy)
        return ServedModel(url, setting="teacher_url", wait=SERVED_SECONDS)
    teacher, tokenizer = open_model(
        source, dtype=torch_dtype(cfg.dtype), device=policy.model.device, texts=[], seed=0
    )
    _check_teacher(source, tokenizer, teacher.cfg.max_positions, policy)
    teacher.requires_grad_(False)
    offloaded = [*teacher.parameters()] if cfg.offload_reference else ()
    return policy.learners.make_frozen_model(teacher, cfg, offloaded=offloaded)


def _check_teacher(source: ModelSource, tokenizer: Tokenizer, longest: int, policy: Policy) -> None:
    if tokenizer.vocabulary != policy.tokenizer.vocabulary:
        raise ConfigError(
            f"teacher.path = {source.path!r} has a different tokenizer from the model, so it "
            "cannot read its tokens; choose a teacher of the same family"
        )
    if longest < policy.engine.max_model_len:
        raise ConfigError(
            f"teacher.path = {source.path!r} reads {longest} tokens, fewer than the "
            f"{policy.engine.max_model_len} of the policy; set engine.max_model_len to at most "
            f"{longest}"
        )


def add_pair_ref_logprobs(
    pairs: Sequence[PreferencePair], reference: LogprobModel
) -> list[PreferencePair]:
    """Add the reference's log-probabilities; a response in several pairs is computed once."""
    examples = list(dict.fromkeys(item for pair in pairs for item in (pair.chosen, pair.rejected)))
    with_logprobs = dict(zip(examples, add_ref_logprobs(examples, reference), strict=True))
    return [
        PreferencePair(chosen=with_logprobs[pair.chosen], rejected=with_logprobs[pair.rejected])
        for pair in pairs
    ]


def set_pair_loss_weights(pairs: Sequence[PreferencePair]) -> list[Example]:
    """Number the pairs of an optimizer step, give each the same weight, and list their examples."""
    loss_weight = 1.0 / len(pairs)
    return [
        replace(item, pair=number, is_chosen=is_chosen, loss_weight=loss_weight)
        for number, pair in enumerate(pairs)
        for item, is_chosen in ((pair.chosen, True), (pair.rejected, False))
    ]
