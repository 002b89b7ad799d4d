"""The critic of PPO: values for every response token, and a learner of its own that fits them to
their targets."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from pydantic import Field
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from whet.algos.catalog import Algorithm
from whet.algos.critic import explained_variance, value_loss
from whet.algos.weights import token_mean
from whet.config import Config
from whet.data.examples import Batch, Example, to_batch
from whet.errors import ConfigError, DataError
from whet.models.attention import PackedAttention
from whet.models.transformer import Transformer
from whet.models.value import ValueModel
from whet.rng import stream
from whet.train.credit import weigh
from whet.train.learner import Metrics, micro_batches
from whet.train.optim import Optimizer, TrainConfig, learning_rate
from whet.train.weights import load_optimizer, load_trained, save_optimizer, save_trained
from whet.types import Floats, Json

OWN, HEAD = "critic", "value_head.safetensors"


class CriticConfig(Config):
    """How a critic learns, for algorithms that need one. What is not here is as in `train`."""

    lr: float = Field(default=1e-5, gt=0.0)
    """Peak learning rate."""
    clip: float | None = Field(default=0.2, gt=0.0)
    """How far a value may move in a step of several mini-batches and still gain from it; none is no
    bound (PPO)."""
    head_start: int = Field(default=0, ge=0)
    """Steps at the start in which the critic alone learns, since a policy that follows a blind one
    is misled."""


class Critic:
    """Values what the policy does. It starts from the policy's weights; `steps` is how many steps
    the run has."""

    def __init__(
        self,
        policy: Transformer,
        cfg: CriticConfig,
        train: TrainConfig,
        *,
        steps: int,
        minibatches: int = 1,
    ) -> None:
        self.cfg = cfg
        self.minibatches = minibatches
        self.train = train.model_copy(update={"lr": cfg.lr})
        self.steps = steps * minibatches
        self.model = ValueModel(policy)
        self.optimizer = Optimizer(self.model, self.train)
        self.device = policy.device
        self.num_steps = 0
        self.num_updates = 0

    @property
    def is_alone(self) -> bool:
        """Whether the critic is still in its head start, after as many updates as it has had."""
        return self.num_updates <= self.cfg.head_start

    @torch.no_grad()
    def values(self, examples: Sequence[Example]) -> list[Floats]:
        """What the critic expects before each response token of each example, in the order
        given."""
        found: dict[int, Floats] = {}
        for group in micro_batches(self.model.body, examples, self.train.micro_tokens):
            value_M = self._value(to_batch(group, self.device)).cpu().numpy()
            ends = np.cumsum([example.num_targets for example in group])
            parts = np.split(value_M, ends[:-1])
            found |= {id(example): part for example, part in zip(group, parts, strict=True)}
        return [found[id(example)] for example in examples]

    def update(self, examples: Sequence[Example], *, seed: int) -> Metrics:
        """Take an optimiser step a mini-batch towards the targets, none without examples; all
        tokens count the same."""
        values = [example.value for example in examples if example.value is not None]
        targets = [example.value_target for example in examples if example.value_target is not None]
        assert len(values) == len(targets) == len(examples), (
            "a critic learns from valued and credited examples"
        )
        if not examples:
            return {}
        order = list(examples)
        stream(seed, "critic").shuffle(order)
        batches = [
            part
            for part in (order[index :: self.minibatches] for index in range(self.minibatches))
            if part
        ]
        collected = [self._step(weigh(batch, token_mean)) for batch in batches]
        self.num_updates += 1
        means = {
            name: sum(row[name] for row in collected) / len(collected) for name in collected[0]
        }
        return means | {"value/explained_variance": explained_variance(values, targets)}

    def save(self, folder: Path) -> Json:
        """Write all that its next step depends on into a folder of its own within a
        checkpoint's."""
        own = folder / OWN
        save_trained(self.model.body, own)
        save_file(
            {name: tensor.detach().cpu() for name, tensor in self.model.head.state_dict().items()},
            own / HEAD,
        )
        save_optimizer(self.optimizer, own)
        return {"steps": self.num_steps, "updates": self.num_updates}

    def load(self, folder: Path, state: Json) -> None:
        """Take it all back, in place."""
        load_trained(self.model.body, folder / OWN)
        try:
            self.model.head.load_state_dict(load_file(folder / OWN / HEAD))
            load_optimizer(self.optimizer, folder / OWN)
            match state:
                case {"steps": int(steps), "updates": int(updates)}:
                    self.num_steps = steps
                    self.num_updates = updates
                case _:
                    raise ValueError("its state does not count the critic's steps")
        except (OSError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
            raise DataError(
                f"checkpoint {folder} cannot be read ({error}); delete it to use the one before"
            ) from error

    def _step(self, examples: Sequence[Example]) -> Metrics:
        sums = torch.zeros(2, device=self.device)
        for group in micro_batches(self.model.body, examples, self.train.micro_tokens):
            sums += self._forward_backward(to_batch(group, self.device))
        lr = learning_rate(self.train, self.num_steps, self.steps)
        norm = self.optimizer.step(lr)
        self.num_steps += 1
        loss, clipped = sums.tolist()
        return {
            "value/loss": loss,
            "value/clip_fraction": clipped,
            "value/lr": lr,
            "value/grad_norm": norm,
        }

    def _forward_backward(self, batch: Batch) -> Tensor:
        """Add one batch's gradient; its part of the loss, and of the share of tokens beyond the
        clip."""
        assert batch.value_M is not None and batch.value_target_M is not None
        value_M = self._value(batch)
        loss = (
            value_loss(value_M, batch.value_M, batch.value_target_M, clip=self.cfg.clip)
            * batch.weight_M
        ).sum()
        loss.backward()  # type: ignore[no-untyped-call]
        is_beyond_M = (value_M.detach() - batch.value_M).abs() > (self.cfg.clip or float("inf"))
        return torch.stack([loss.detach(), (is_beyond_M * batch.weight_M).sum()])

    def _value(self, batch: Batch) -> Tensor:
        attend = PackedAttention(batch.lengths_S, batch.longest, len(batch.tokens_T))
        value_M: Tensor = self.model(batch.tokens_T, batch.positions_T, attend, batch.source_M)
        return value_M


def build_critic(
    algo: Algorithm, policy: Transformer, cfg: CriticConfig, train: TrainConfig, *, steps: int
) -> Critic | None:
    """Make a critic of the policy's starting model, where the algorithm asks for one."""
    if not algo.needs_values:
        return None
    if cfg.head_start >= steps:
        raise ConfigError(
            f"critic.head_start = {cfg.head_start} leaves the policy none of {steps} steps; lower it"
        )
    return Critic(policy, cfg, train, steps=steps, minibatches=algo.minibatches)


def policy_steps(algo: Algorithm, cfg: CriticConfig, steps: int) -> int:
    """How many optimiser steps are the policy's own: those that a critic's head start leaves."""
    return (steps - cfg.head_start if algo.needs_values else steps) * algo.minibatches


def with_values(examples: Sequence[Example], critic: Critic | None) -> list[Example]:
    """Add what the critic expects at each token; nothing where there is none."""
    if critic is None:
        return list(examples)
    found = critic.values(examples)
    return [replace(example, value=value) for example, value in zip(examples, found, strict=True)]


def kept(critic: Critic | None) -> dict[str, Critic]:
    """What of it belongs to a checkpoint, by name."""
    return {} if critic is None else {"critic": critic}
