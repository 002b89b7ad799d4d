"""The critic of PPO: a value for every response token, fitted to targets by its own learner.

Its model, `ValueModel`, is the decoder with a value head in place of the vocabulary.
"""

from collections.abc import Sequence
from pathlib import Path

from pydantic import Field
from safetensors import SafetensorError

from whet.algos.advantages import explained_variance
from whet.algos.algorithm import Algorithm
from whet.algos.losses import token_mean
from whet.algos.values import ValueObjective
from whet.batching.examples import Example, split_minibatches, with_field
from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.rng import make_rng
from whet.train.learner import Learner, average_metrics, set_loss_weights
from whet.train.policy import TrainableModel
from whet.train.settings import TrainConfig
from whet.types import Json, Metrics

_FOLDER = "critic"


class CriticConfig(Config):
    """How a critic learns, for algorithms that need one; everything else is as in `train`."""

    lr: float = Field(default=1e-5, gt=0.0)
    """Peak learning rate."""
    clip: float | None = Field(default=0.2, gt=0.0)
    """How far a value may move within a step of several mini-batches before its gradient stops
    (PPO); none means no bound."""
    warmup_steps: int = Field(default=0, ge=0)
    """First steps, in which only the critic learns, since its first values are useless to the
    policy."""


class Critic:
    """Values of response tokens, and the learner that fits them in `num_minibatches` updates."""

    def __init__(self, learner: Learner, cfg: CriticConfig, *, num_minibatches: int = 1) -> None:
        self.learner = learner
        self.cfg = cfg
        self.num_minibatches = num_minibatches
        self.num_updates = 0

    @property
    def is_warming_up(self) -> bool:
        """Whether only the critic learns in the next update."""
        return self.num_updates < self.cfg.warmup_steps

    def update(self, examples: Sequence[Example], *, seed: int) -> Metrics:
        """Take an optimizer step per mini-batch towards the targets, averaged over tokens."""
        values = [example.value_M for example in examples if example.value_M is not None]
        targets = [
            example.value_target_M for example in examples if example.value_target_M is not None
        ]
        assert len(values) == len(targets) == len(examples), (
            "a critic learns from valued and credited examples"
        )
        if not examples:
            return {}
        batches = split_minibatches(examples, self.num_minibatches, make_rng(seed, "critic"))
        collected = [self._step(set_loss_weights(batch, token_mean)) for batch in batches]
        self.num_updates += 1
        return average_metrics(collected) | {
            "value/explained_variance": explained_variance(values, targets)
        }

    def save(self, folder: Path) -> Json:
        """Write model and optimizer to a folder in a checkpoint; return its counters."""
        self.learner.save(folder / _FOLDER)
        return {"steps": self.learner.num_optim_steps, "updates": self.num_updates}

    def load(self, folder: Path, state: Json) -> None:
        """Load the files of `save`, in place."""
        try:
            match state:
                case {"steps": int(steps), "updates": int(updates)}:
                    self.learner.load(folder / _FOLDER, steps)
                    self.num_updates = updates
                case _:
                    raise ValueError("its state does not count the critic's steps")
        except (OSError, SafetensorError, RuntimeError, KeyError, ValueError) as error:
            raise DataError(
                f"checkpoint {folder} cannot be read ({error}); delete it to use the one before"
            ) from error

    def _step(self, examples: Sequence[Example]) -> Metrics:
        metrics = self.learner.update(examples, ValueObjective(clip=self.cfg.clip))
        return {
            "value/loss": metrics["loss"],
            "value/clip_fraction": metrics["value/clip_fraction"],
            "value/lr": metrics["train/lr"],
            "value/grad_norm": metrics["train/grad_norm"],
        }


def build_critic(
    algo: Algorithm, policy: TrainableModel, cfg: CriticConfig, train: TrainConfig, *, steps: int
) -> Critic | None:
    """Make a critic from the policy's starting model, if the algorithm needs one."""
    if not algo.needs_values:
        return None
    if cfg.warmup_steps >= steps:
        raise ConfigError(
            f"critic.warmup_steps = {cfg.warmup_steps} leaves the policy none of {steps} steps; "
            "lower it"
        )
    learner = policy.build_value_learner(
        train.model_copy(update={"lr": cfg.lr}), steps=steps * algo.num_minibatches
    )
    return Critic(learner, cfg, num_minibatches=algo.num_minibatches)


def count_policy_steps(algo: Algorithm, cfg: CriticConfig, steps: int) -> int:
    """Count the policy's optimizer steps, which exclude the critic's warm-up."""
    return (steps - cfg.warmup_steps if algo.needs_values else steps) * algo.num_minibatches


def add_values(examples: Sequence[Example], critic: Critic) -> list[Example]:
    """Add the critic's value at each token."""
    return with_field(examples, "value_M", critic.learner.compute_values(examples))
