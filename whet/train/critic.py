"""The critic of PPO: a value for every response token, and a learner that fits them to targets.

Its model is the decoder with a value head in place of the vocabulary. Shapes: T tokens, H hidden, M
states to value.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from whet.algos.advantages import explained_variance
from whet.algos.algorithm import Algorithm
from whet.algos.losses import token_mean, value_loss
from whet.config import Config
from whet.data.examples import Batch, Example
from whet.errors import ConfigError, DataError
from whet.models.load import check_finite, write_tensors
from whet.models.lora import twin
from whet.models.transformer import Attend, PackedAttention, Transformer
from whet.rng import stream
from whet.train.learner import (
    LocalLearner,
    Metrics,
    average,
    backward,
    divide,
    read_tokens,
    weigh,
)
from whet.train.memory import DeviceMemory
from whet.train.optim import TrainConfig
from whet.train.policy import Policy, load_trained_weights, save_weights
from whet.types import Floats, Json


class ValueModel(nn.Module):
    """Values the state before each token, from the hidden state that predicts the token.

    The body starts as a copy of the policy; under adapters the two share the frozen weights. The
    head starts at zero, so all first values are 0.
    """

    def __init__(self, policy: Transformer) -> None:
        super().__init__()
        self.body = twin(policy)
        # A critic needs no vocabulary head.
        self.body.head = None
        self.body.cfg = replace(policy.cfg, tied=True)
        self.head = nn.Linear(policy.cfg.hidden_size, 1, dtype=torch.float32, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, tokens_T: Tensor, positions_T: Tensor, attend: Attend, source_M: Tensor
    ) -> Tensor:
        hidden_MH = self.body(tokens_T, positions_T, attend)[source_M]
        return F.linear(hidden_MH.float(), self.head.weight, self.head.bias)[:, 0]


OWN, HEAD = "critic", "value_head.safetensors"


class CriticConfig(Config):
    """How a critic learns, for algorithms that need one; everything else is as in `train`."""

    lr: float = Field(default=1e-5, gt=0.0)
    """Peak learning rate."""
    clip: float | None = Field(default=0.2, gt=0.0)
    """How far a value may move within a step of several mini-batches before its gradient stops
    (PPO); none is no bound."""
    head_start: int = Field(default=0, ge=0)
    """Steps at the start in which only the critic learns, since its first values are useless to the
    policy."""


class Critic:
    """A value model that starts from the policy's weights, with its learner, for `steps` steps."""

    def __init__(
        self,
        policy: Transformer,
        cfg: CriticConfig,
        train: TrainConfig,
        *,
        steps: int,
        minibatches: int = 1,
        memory: DeviceMemory | None = None,
    ) -> None:
        self.cfg = cfg
        self.minibatches = minibatches
        self.model = ValueModel(policy)
        self.learner = LocalLearner(
            self.model.body,
            train.model_copy(update={"lr": cfg.lr}),
            steps=steps * minibatches,
            memory=memory,
            trained=self.model,
        )
        self.num_updates = 0

    @property
    def is_alone(self) -> bool:
        """Whether the critic is still in its head start, after as many updates as it has had."""
        return self.num_updates <= self.cfg.head_start

    def values(self, examples: Sequence[Example]) -> list[Floats]:
        """Compute the value before each response token of each example."""
        micro_tokens = self.learner.cfg.micro_tokens
        return read_tokens(self.model.body, examples, micro_tokens, self._read)

    def update(self, examples: Sequence[Example], *, seed: int) -> Metrics:
        """Take an optimiser step per mini-batch towards the targets, averaged over tokens."""
        values = [example.value for example in examples if example.value is not None]
        targets = [example.value_target for example in examples if example.value_target is not None]
        assert len(values) == len(targets) == len(examples), (
            "a critic learns from valued and credited examples"
        )
        if not examples:
            return {}
        order = list(examples)
        stream(seed, "critic").shuffle(order)
        batches = [order[index :: self.minibatches] for index in range(self.minibatches)]
        collected = [self._step(weigh(batch, token_mean)) for batch in batches if batch]
        self.num_updates += 1
        return average(collected) | {
            "value/explained_variance": explained_variance(values, targets)
        }

    def save(self, folder: Path) -> Json:
        """Write model and optimiser to a folder in a checkpoint; return its counters."""
        own = folder / OWN
        save_weights(self.model.body, own)
        head = self.model.head.state_dict()
        check_finite((f"value_head.{name}", tensor) for name, tensor in head.items())
        write_tensors(own / HEAD, head)
        self.learner.save(own)
        return {"steps": self.learner.num_steps, "updates": self.num_updates}

    def load(self, folder: Path, state: Json) -> None:
        """Load what `save` wrote, in place."""
        load_trained_weights(self.model.body, folder / OWN)
        try:
            match state:
                case {"steps": int(steps), "updates": int(updates)}:
                    self.model.head.load_state_dict(load_file(folder / OWN / HEAD))
                    self.learner.load(folder / OWN, steps)
                    self.num_updates = updates
                case _:
                    raise ValueError("its state does not count the critic's steps")
        except (OSError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
            raise DataError(
                f"checkpoint {folder} cannot be read ({error}); delete it to use the one before"
            ) from error

    def _step(self, examples: Sequence[Example]) -> Metrics:
        metrics = divide(self.learner.run_backward(examples, self._forward_backward))
        moved = self.learner.optim_step()
        return {
            "value/loss": metrics["loss"],
            "value/clip_fraction": metrics["value/clip_fraction"],
            "value/lr": moved["train/lr"],
            "value/grad_norm": moved["train/grad_norm"],
        }

    def _forward_backward(self, batch: Batch) -> dict[str, Tensor]:
        assert batch.value is not None and batch.value_target is not None
        value_M = self._read(batch)
        loss_M = value_loss(value_M, batch.value, batch.value_target, clip=self.cfg.clip)
        is_beyond_M = (value_M.detach() - batch.value).abs() > (self.cfg.clip or float("inf"))
        return backward(batch, loss_M, {"value/clip_fraction": is_beyond_M.float()})

    def _read(self, batch: Batch) -> Tensor:
        attend = PackedAttention(batch.lengths_S, batch.longest, len(batch.tokens_T))
        value_M: Tensor = self.model(batch.tokens_T, batch.positions_T, attend, batch.source_M)
        return value_M


def build_critic(
    algo: Algorithm, policy: Policy, cfg: CriticConfig, train: TrainConfig, *, steps: int
) -> Critic | None:
    """Make a critic from the policy's starting model, if the algorithm needs one."""
    if not algo.needs_values:
        return None
    if cfg.head_start >= steps:
        raise ConfigError(
            f"critic.head_start = {cfg.head_start} leaves the policy none of {steps} steps; "
            "lower it"
        )
    return Critic(
        policy.model,
        cfg,
        train,
        steps=steps,
        minibatches=algo.minibatches,
        memory=policy.memory,
    )


def policy_steps(algo: Algorithm, cfg: CriticConfig, steps: int) -> int:
    """Count the policy's optimiser steps, which exclude the critic's head start."""
    return (steps - cfg.head_start if algo.needs_values else steps) * algo.minibatches


def with_values(examples: Sequence[Example], critic: Critic) -> list[Example]:
    """Add the critic's value at each token."""
    return [
        replace(example, value=value)
        for example, value in zip(examples, critic.values(examples), strict=True)
    ]
