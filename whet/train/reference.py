"""Models that read and never move: the starting policy of a KL or a preference, or a teacher.

They can wait in host memory.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from whet.data.examples import Example, PreferencePair
from whet.errors import ConfigError
from whet.models.lora import twin
from whet.models.source import ModelSource, open_model
from whet.models.transformer import Transformer
from whet.train.learner import score_examples
from whet.train.offload import host_room
from whet.train.policy import Policy
from whet.types import Floats


class Reference:
    """Scores tokens. `far` are weights that wait in host memory between two passes.

    All of them come at once: they take no more room than the gradients that come after them.
    """

    def __init__(self, model: Transformer, *, far: Sequence[nn.Parameter] = ()) -> None:
        self.model = model
        self.device = model.device
        self.far = list(far)
        for weight in self.far:
            weight.data = host_room(weight.shape, weight.dtype).copy_(weight.detach())

    def logprobs(self, examples: Sequence[Example], micro_tokens: int) -> list[Floats]:
        """Log-probabilities of each example's response tokens, in the order given."""
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
    """Copy the starting policy: what is trained is frozen, what is not is shared."""
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
    """Load a teacher, and see that it can read all that the policy writes."""
    teacher, tokenizer = open_model(source, dtype=dtype, texts=[], seed=0)
    if tokenizer.vocabulary != policy.tokenizer.vocabulary:
        raise ConfigError(
            f"teacher.path = {source.path!r} has another tokenizer than the model, so that it "
            "cannot read its tokens; "
            "take a teacher of the same family"
        )
    longest = teacher.cfg.max_positions
    if longest < policy.engine.context:
        raise ConfigError(
            f"teacher.path = {source.path!r} reads {longest} tokens, fewer than the "
            f"{policy.engine.context} of the "
            f"policy; set engine.context to {longest} at most"
        )
    teacher.requires_grad_(False)
    return Reference(teacher, far=[*teacher.parameters()] if offload else ())


def score_pairs(
    pairs: Sequence[PreferencePair], reference: Transformer, micro_tokens: int
) -> list[PreferencePair]:
    """Add what the reference thinks of each token; an answer of several pairs is run once."""
    examples = {id(item): item for pair in pairs for item in (pair.chosen, pair.rejected)}
    logprobs = score_examples(reference, list(examples.values()), micro_tokens)
    scored = {
        key: replace(item, ref_logprob=logprob)
        for (key, item), logprob in zip(examples.items(), logprobs, strict=True)
    }
    return [
        PreferencePair(chosen=scored[id(pair.chosen)], rejected=scored[id(pair.rejected)])
        for pair in pairs
    ]


def weigh_pairs(pairs: Sequence[PreferencePair]) -> list[Example]:
    """Lay out all pairs of one optimiser step, numbered, each with the same weight."""
    weight = 1.0 / len(pairs)
    return [
        replace(item, pair=number, is_chosen=is_chosen, weight=weight)
        for number, pair in enumerate(pairs)
        for item, is_chosen in ((pair.chosen, True), (pair.rejected, False))
    ]
