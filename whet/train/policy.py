"""A policy: a model, the learner that trains it, and the engine that samples from it.

Also models that only score tokens: the starting policy of a KL or a preference, or a teacher. They
can be kept in host memory between passes.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import torch
from torch import nn

from whet.data.examples import Example, PreferencePair
from whet.engine.base import Engine, EngineConfig
from whet.errors import ConfigError
from whet.models.load import load_weights, save_model
from whet.models.lora import LoraTransformer, load_adapters, save_adapters, twin
from whet.models.source import ModelSource, open_model
from whet.models.transformer import Transformer
from whet.rollout.collect import ChatEngine
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Tokenizer
from whet.train.learner import LocalLearner, score_examples
from whet.train.memory import DeviceMemory, device_memory
from whet.train.offload import host_room
from whet.train.optim import TrainConfig
from whet.types import Floats


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
        self.chat_engine = ChatEngine(engine=engine, chat=self.chat, name=name)

    def learner(self, cfg: TrainConfig, *, steps: int) -> LocalLearner:
        """Make a learner of the same weights, whose updates may free the engine's cache."""
        return LocalLearner(self.model, cfg, steps=steps, memory=self.memory)

    def publish(self, version: int) -> None:
        """Hand the weights to the engine, which stamps what it samples from now on."""
        self.engine.load_weights(self.model.named_weights(), version)

    def __repr__(self) -> str:
        millions = sum(weight.numel() for weight in self.model.parameters()) / 1e6
        return f"<policy {self.chat_engine.name}: {millions:.4g}M weights on {self.model.device}>"

    def save(self, folder: str | Path) -> None:
        """Write a Hugging Face folder, or one of adapters."""
        save_weights(self.model, Path(folder), eos_tokens=sorted(self.chat.stop_tokens))
        self.tokenizer.save(Path(folder))


def build_policy(
    model: Transformer,
    tokenizer: Tokenizer,
    engine: EngineConfig,
    *,
    name: str,
    memory: DeviceMemory | None = None,
) -> Policy:
    """Build the engine that the settings name, hand it the weights, and make a policy of both."""
    stop_tokens = ChatFormat(tokenizer).stop_tokens
    built = engine.build(model, stop_tokens=stop_tokens, detokenize=tokenizer.decode)
    policy = Policy(model, tokenizer, engine=built, name=name, memory=memory)
    policy.publish(0)
    return policy


def save_weights(model: Transformer, folder: Path, *, eos_tokens: Collection[int] = ()) -> None:
    """Write a Hugging Face folder, or one of adapters in peft's format."""
    if isinstance(model, LoraTransformer):
        save_adapters(model, folder)
    else:
        save_model(model, folder, eos_tokens=eos_tokens)


def load_trained_weights(model: Transformer, folder: Path) -> None:
    """Load the trained weights in place: all of them, or the adapters."""
    if isinstance(model, LoraTransformer):
        load_adapters(model, folder)
    else:
        load_weights(model, folder)


def set_determinism(deterministic: bool) -> None:
    """Allow or forbid, before CUDA starts, kernels whose results vary from run to run.

    A CPU with a fixed number of threads gives the same bits anyway.
    """
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    torch.use_deterministic_algorithms(deterministic)


class Reference:
    """A model that scores tokens and is not trained.

    The weights in `far` are kept in host memory between passes. They are copied to the device all
    at once, since they need no more memory than the gradients that follow.
    """

    def __init__(self, model: Transformer, *, far: Sequence[nn.Parameter] = ()) -> None:
        self.model = model
        self.device = model.device
        self.far = list(far)
        for weight in self.far:
            weight.data = host_room(weight.shape, weight.dtype).copy_(weight.detach())

    def logprobs(self, examples: Sequence[Example], micro_tokens: int) -> list[Floats]:
        """Compute the log-probabilities of each example's response tokens, in the order given."""
        with self._on_device():
            return score_examples(self.model, examples, micro_tokens)

    @contextmanager
    def _on_device(self) -> Iterator[None]:
        homes = [weight.data for weight in self.far]
        for weight, home in zip(self.far, homes, strict=True):
            weight.data = home.to(self.device, non_blocking=True, copy=True)
        try:
            yield
        finally:
            for weight, home in zip(self.far, homes, strict=True):
                weight.data = home


def reference_of(model: Transformer, *, offload: bool = False) -> Reference:
    """Copy the starting policy: weights that train are copied and frozen, the others shared."""
    copied = twin(model).requires_grad_(False)
    shared = {id(weight) for weight in model.parameters()}
    return Reference(
        copied, far=[w for w in copied.parameters() if id(w) not in shared] if offload else ()
    )


def with_reference(
    examples: Sequence[Example], reference: Reference, micro_tokens: int
) -> list[Example]:
    """Add the log-probability that the reference gives each token."""
    return [
        replace(example, ref_logprob=logprob)
        for example, logprob in zip(
            examples, reference.logprobs(examples, micro_tokens), strict=True
        )
    ]


def open_teacher(
    source: ModelSource, policy: Policy, *, dtype: torch.dtype, offload: bool = False
) -> Reference:
    """Load a teacher, and check that it can read everything the policy writes."""
    teacher, tokenizer = open_model(source, dtype=dtype, texts=[], seed=0)
    if tokenizer.vocabulary != policy.tokenizer.vocabulary:
        raise ConfigError(
            f"teacher.path = {source.path!r} has another tokenizer than the model, so that it "
            "cannot read its tokens; take a teacher of the same family"
        )
    longest = teacher.cfg.max_positions
    if longest < policy.engine.context:
        raise ConfigError(
            f"teacher.path = {source.path!r} reads {longest} tokens, fewer than the "
            f"{policy.engine.context} of the policy; set engine.context to {longest} at most"
        )
    teacher.requires_grad_(False)
    return Reference(teacher, far=[*teacher.parameters()] if offload else ())


def score_pairs(
    pairs: Sequence[PreferencePair], reference: Transformer, micro_tokens: int
) -> list[PreferencePair]:
    """Add the reference's log-probabilities; an answer that is in several pairs is scored once."""
    examples = list(dict.fromkeys(item for pair in pairs for item in (pair.chosen, pair.rejected)))
    scored = {
        example: replace(example, ref_logprob=logprob)
        for example, logprob in zip(
            examples, score_examples(reference, examples, micro_tokens), strict=True
        )
    }
    return [
        PreferencePair(chosen=scored[pair.chosen], rejected=scored[pair.rejected]) for pair in pairs
    ]


def weigh_pairs(pairs: Sequence[PreferencePair]) -> list[Example]:
    """Number the pairs of an optimiser step, give each the same weight, and list their examples."""
    weight = 1.0 / len(pairs)
    return [
        replace(item, pair=number, is_chosen=is_chosen, weight=weight)
        for number, pair in enumerate(pairs)
        for item, is_chosen in ((pair.chosen, True), (pair.rejected, False))
    ]
