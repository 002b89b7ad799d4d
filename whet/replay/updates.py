"""Repeat stored updates: a run's trainer without an engine, and the record of an update."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import numpy as np
import torch
from torch import Tensor, nn

from whet.algos.objectives import LossSums, Objective
from whet.algos.settings import AlgoConfig
from whet.batching.examples import Example
from whet.models.lora import save_trained
from whet.models.source import load_model, torch_device, torch_dtype
from whet.models.transformer import Transformer
from whet.recipes.rl import RLConfig, sampling_at
from whet.replay.stored_run import Start, StoredRun
from whet.rng import derive
from whet.store.files import read_object
from whet.train.learner import (
    Learner,
    LocalLearner,
    LogprobModel,
    compute_per_token,
    forward_logprobs,
)
from whet.train.learner_factory import LOCAL_FACTORY, LearnerFactory
from whet.train.memory import DeviceMemory, device_memory
from whet.train.policy import TrainableModel, set_arithmetic
from whet.train.rl_step import RLTrainer, StepResult
from whet.train.settings import TrainConfig
from whet.train.training_state import STATE, load_training_state, save_training_state
from whet.train.value_model import ValueModel
from whet.types import Advance, Floats, Group, Json, Metrics, rewards_of


@dataclass(slots=True, kw_only=True)
class UpdateRecord:
    """What an update used, summed over its mini-batches."""

    examples: list[Example] = field(default_factory=list)
    """Those that had a loss."""
    gradients: dict[str, Tensor] = field(default_factory=dict)
    """Before clipping, in host memory, by the name of the weight."""
    has_tokens: bool = False
    """Whether to compute log-probabilities and entropies too, for another forward pass."""
    per_token: list[Floats] = field(default_factory=list)
    """Log-probability and entropy of each token of each example, at its mini-batch's weights."""


class RecordingLearner(LocalLearner):
    """A learner on one device that records the examples and gradients of its updates."""

    record: UpdateRecord | None = None

    def accumulate(self, examples: Sequence[Example], objective: Objective) -> LossSums:
        if self.record is not None:
            self.record.examples += examples
        if self.record is not None and self.record.has_tokens:
            self.record.per_token += compute_per_token(
                self.model,
                examples,
                self.cfg.micro_batch_tokens,
                lambda batch: torch.stack(forward_logprobs(self.model, batch), dim=1),
            )
        return super().accumulate(examples, objective)

    def optim_step(self) -> Metrics:
        if self.record is not None:
            for name, gradient in self.optimizer.gradients().items():
                part = gradient.detach().to("cpu", torch.float32, copy=True)
                part /= self.optimizer.loss_scale
                before = self.record.gradients.get(name)
                self.record.gradients[name] = part if before is None else before.add_(part)
        return super().optim_step()


class RecordingLearnerFactory(LearnerFactory):
    """Builds learners on one device: recording ones for policies, plain ones for critics."""

    def build_learner(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None,
    ) -> Learner:
        kind = LocalLearner if isinstance(model, ValueModel) else RecordingLearner
        return kind(model, cfg, steps=steps, memory=memory)

    def build_frozen_model(
        self, model: Transformer, cfg: TrainConfig, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> LogprobModel:
        return LOCAL_FACTORY.build_frozen_model(model, cfg, offloaded=offloaded)


class TrainedModel(TrainableModel):
    """A policy without an engine, which never samples."""

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self.learner_factory = RecordingLearnerFactory()
        self.memory = device_memory(model.device)
        self.learner = None

    def save(self, folder: str | Path) -> None:
        save_trained(self.model, Path(folder))


Trainer = RLTrainer[TrainedModel]


def build_trainer(run: StoredRun, cfg: RLConfig, state: Path | None) -> Trainer:
    """Build the trainer of a run, under its own or other settings, with the state of a checkpoint.

    None is the state before the first step. The reference is always the starting model.
    """
    set_arithmetic(deterministic=cfg.is_deterministic)
    device = torch_device()
    model, _ = load_model(
        cfg.model, dtype=torch_dtype(cfg.train.dtype), device=device, texts=[], seed=cfg.seed
    )
    trainer = RLTrainer(
        TrainedModel(model),
        resolve_algo(run, cfg),
        cfg.train,
        max_tokens=cfg.sampling.max_tokens,
        steps=cfg.steps,
        critic=cfg.critic,
    )
    if state is not None:
        values = load_training_state(state, trainer.policy, trainer.learner)
        trainer.baseline.load(state, values.get("baseline"))
        if trainer.critic is not None:
            trainer.critic.load(state, values.get("critic"))
        num_restores = values.get("guard")
        if isinstance(num_restores, int):
            trainer.learner.scale_lr(cfg.guard.lr_factor**num_restores)
    return trainer


def resolve_algo(run: StoredRun, cfg: RLConfig) -> AlgoConfig:
    """Return the algorithm settings that the run used after its exactness check."""
    return cfg.algo if run.exactness is None else run.exactness.apply(cfg.algo, lag=cfg.lag)


def _save_trainer(trainer: Trainer, folder: Path, before: Path | None) -> None:
    """Write a state for `build_trainer`; there is no restore between it and the one before."""
    state: dict[str, Json] = {"baseline": trainer.baseline.save(folder)}
    if trainer.critic is not None:
        state["critic"] = trainer.critic.save(folder)
    if before is not None:
        state["guard"] = read_object(before / STATE).get("guard")
    save_training_state(folder, trainer.policy, trainer.learner, state)


def step_trainer(trainer: Trainer, cfg: RLConfig, step: int, groups: Sequence[Group]) -> StepResult:
    """Take the update of a step, counted from 1, as `whet/recipes/rl.py` does."""
    return trainer.step(
        groups,
        dynamic_sampling=cfg.dynamic_sampling,
        temperature=sampling_at(cfg, step - 1).temperature,
        seed=derive(cfg.seed, "update", step - 1),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A number that differs from the logged one."""

    step: int
    metric: str
    logged: float
    replayed: float

    @property
    def relative(self) -> float:
        return abs(self.replayed - self.logged) / max(abs(self.logged), 1e-300)


@dataclass(slots=True, kw_only=True)
class LogCheck:
    """Numbers of replayed updates compared with those in metrics.jsonl, bit for bit."""

    num_compared: int = 0
    differences: list[Difference] = field(default_factory=list)

    def compare(self, run: StoredRun, step: int, metrics: Metrics) -> None:
        """Compare all numbers of an update that its step logged."""
        logged = run.logged.get(step, {})
        for name in metrics.keys() & logged.keys():
            self.num_compared += 1
            if metrics[name] != logged[name]:
                self.differences.append(
                    Difference(step=step, metric=name, logged=logged[name], replayed=metrics[name])
                )


@contextmanager
def state_before(
    run: StoredRun, start: Start, step: int, check: LogCheck, advance: Advance
) -> Iterator[Path | None]:
    """Apply the stored updates from a start up to a step; yield the state before its update.

    The state is a checkpoint in a temporary folder; None is the starting model.
    """
    with TemporaryDirectory(prefix="whet-replay-") as temporary:
        state = start.folder
        numbers = range(start.step + 1, step)
        for _, same in groupby(numbers, key=lambda number: run.settings_at(number).steps):
            steps = list(same)
            target = Path(temporary, f"{steps[-1]:06d}")
            target.mkdir()
            _apply_updates(run, state, steps, target, check, advance)
            state = target
        yield state


def _apply_updates(
    run: StoredRun,
    state: Path | None,
    steps: Sequence[int],
    target: Path,
    check: LogCheck,
    advance: Advance,
) -> None:
    cfg = run.settings_at(steps[0])
    trainer = build_trainer(run, cfg, state)
    for step in steps:
        check.compare(run, step, step_trainer(trainer, cfg, step, run.groups(step)).metrics)
        advance(1)
    _save_trainer(trainer, target, state)


def start_record(trainer: Trainer, record: UpdateRecord) -> RecordingLearner:
    """Let the policy's learner record its updates from now on; return it."""
    learner = trainer.learner
    assert isinstance(learner, RecordingLearner), "the learner of a policy records"
    learner.record = record
    return learner


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Update:
    """An update, and the record of what it used."""

    metrics: Metrics
    """As the run logs them."""
    gradients: dict[str, Tensor]
    """Sums over mini-batches before clipping, by the name of the weight."""
    change: float
    """Norm of the change of all weights."""
    token_fraction: float
    """Share of the response tokens of the step that had a loss."""
    mean_reward: float | None


def take_update(
    run: StoredRun, cfg: RLConfig, state: Path | None, step: int, groups: Sequence[Group]
) -> Update:
    """Take the update of a step from the state before it, and record it."""
    trainer = build_trainer(run, cfg, state)
    record = UpdateRecord()
    masters = start_record(trainer, record).optimizer.masters
    before = {name: master.detach().cpu().clone() for name, master in masters.items()}
    result = step_trainer(trainer, cfg, step, groups)
    squares = [
        float((masters[name].detach().cpu().double() - old).square().sum())
        for name, old in before.items()
    ]
    num_tokens = sum(len(rollout.completion.tokens) for group in groups for rollout in group)
    rewards = [reward for group in groups for reward in rewards_of(group)]
    return Update(
        metrics=result.metrics,
        gradients=record.gradients,
        change=math.sqrt(sum(squares)),
        token_fraction=_count_tokens(record, trainer) / max(num_tokens, 1),
        mean_reward=fmean(rewards) if rewards else None,
    )


def _count_tokens(record: UpdateRecord, trainer: Trainer) -> int:
    """Count the tokens whose loss has a gradient: through the advantage, KL or entropy."""
    if trainer.algo.trains_on_zero_advantage:
        return sum(example.num_targets for example in record.examples)
    return sum(
        int(np.count_nonzero(np.broadcast_to(example.advantage, (example.num_targets,))))
        for example in record.examples
    )
