"""One RL step after sampling: rewarded groups become examples with advantages, and an update.

`RLTrainer.step` calls the functions below it in this order: `select_rollouts`, `to_examples`,
`assign_advantages`, `update_policy`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
import torch

from whet.algos.advantages import Baseline, whiten
from whet.algos.algorithm import Algorithm, build_algorithm
from whet.algos.losses import exceeds_limit, kl
from whet.algos.settings import AlgoConfig
from whet.algos.step_credit import blend_advantages
from whet.batching.examples import Example, split_minibatches, with_field
from whet.errors import ConfigError
from whet.rng import make_rng
from whet.rollout.step_groups import DynamicSamplingConfig
from whet.track.metrics import Clock
from whet.train.critic import CriticConfig, add_values, build_critic, count_policy_steps
from whet.train.learner import Learner, add_logprobs, average_metrics, set_loss_weights
from whet.train.policy import TrainableModel
from whet.train.settings import TrainConfig
from whet.train.training_state import read_numbers
from whet.types import Doubles, Group, Json, Metrics, Rollout, all_equal, rewards_of

P = TypeVar("P", bound=TrainableModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """The result of a step. Recipes act on its fields; metrics are only logged."""

    learner_metrics: Metrics
    """Metrics of the learner, and of the critic if there is one."""
    is_empty: bool = False
    """Whether no rollout had a gradient, so that no optimizer step was taken."""

    @property
    def metrics(self) -> Metrics:
        """The metrics to log: those of the update, and whether the step was empty."""
        return self.learner_metrics | {"step/empty": float(self.is_empty)}


class RLTrainer(Generic[P]):
    """A policy with its learner and algorithm, and the reference and critic that it needs.

    `step` updates the policy. All state is in `policy`, `learner`, `critic` and `baseline`, each
    saved separately.
    """

    def __init__(
        self,
        policy: P,
        algo: AlgoConfig,
        train: TrainConfig,
        *,
        max_tokens: int,
        steps: int,
        critic: CriticConfig | None = None,
    ) -> None:
        """Train for `steps` steps on responses of at most `max_tokens` tokens."""
        critic = critic or CriticConfig()
        self.policy = policy
        self.algo = build_algorithm(algo, max_tokens=max_tokens)
        self.reference = policy.build_reference(train) if self.algo.needs_reference else None
        self.critic = build_critic(self.algo, policy, critic, train, steps=steps)
        self.learner = policy.build_learner(
            train, steps=count_policy_steps(self.algo, critic, steps)
        )
        self.baseline = RunningBaseline()

    def step(
        self,
        groups: Sequence[Group],
        *,
        temperature: float,
        seed: int,
        run_fraction: float = 0.0,
        dynamic_sampling: DynamicSamplingConfig | None = None,
        has_step_credit: bool = True,
        advantage_factors: Mapping[str, float] | None = None,
        clock: Clock | None = None,
    ) -> StepResult:
        """Take one update on rewarded groups.

        `run_fraction`, from 0 to 1, is how much of the run is done. `advantage_factors` multiply
        advantages, by group id.
        """
        clock = clock or Clock()
        algo = self.algo if has_step_credit else replace(self.algo, step_credit=None)
        selection = select_rollouts(groups, algo, dynamic_sampling)
        examples = to_examples(selection, temperature=temperature)
        self.learner.reserve_memory(examples)
        with clock.measure("logprobs"):
            if self.reference is not None:
                examples = add_logprobs(examples, "ref_logprob_M", self.reference)
            if self.critic is not None:
                examples = add_values(examples, self.critic)
            if algo.kl_in_reward != 0 and algo.needs_old_logprobs:
                examples = add_logprobs(examples, "old_logprob_M", self.learner)
        examples, self.baseline.numbers = assign_advantages(
            selection, examples, algo, self.baseline.numbers, run_fraction=run_fraction
        )
        if advantage_factors is not None:
            examples = [
                replace(example, advantage=example.advantage * advantage_factors[example.group_id])
                for example in examples
            ]
        with clock.measure("update"):
            if self.critic is None:
                return update_policy(self.learner, examples, algo, seed=seed)
            if not examples:
                return StepResult(learner_metrics={}, is_empty=True)
            is_warming_up = self.critic.is_warming_up
            metrics = self.critic.update(examples, seed=seed)
            if is_warming_up:
                return StepResult(learner_metrics=metrics)
            result = update_policy(self.learner, examples, algo, seed=seed)
            return replace(result, learner_metrics=metrics | result.learner_metrics)


class RunningBaseline:
    """The running baseline of the advantage: numbers by name, which checkpoints keep."""

    def __init__(self) -> None:
        self.numbers: Baseline = {}

    def save(self, folder: Path) -> Json:
        return {**self.numbers}

    def load(self, folder: Path, state: Json) -> None:
        self.numbers = read_numbers(state)


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The rollouts of a step that training uses, all of them rewarded."""

    groups: list[Group]
    masked_ids: frozenset[str] = frozenset()
    """Ids of rollouts whose reward counts for their group, but which have no loss."""

    @property
    def rollouts(self) -> list[Rollout]:
        return [rollout for group in self.groups for rollout in group]


def select_rollouts(
    groups: Sequence[Group], algo: Algorithm, dynamic_sampling: DynamicSamplingConfig | None = None
) -> Selection:
    """Choose the rollouts whose rewards count in a step.

    Leaves out groups of equal reward that were replaced, rollouts without a reward, and groups with
    a single rollout left if rollouts of a group are compared. Later, `assign_advantages` drops
    masked rollouts, and `update_policy` those without a gradient.
    """
    dynamic_sampling = dynamic_sampling or DynamicSamplingConfig()
    min_group_size = 2 if algo.compares_responses else 1
    rewarded = [
        tuple(rollout for rollout in group if rollout.reward is not None)
        for group in dynamic_sampling.choose_groups(groups)
    ]
    usable = [group for group in rewarded if len(group) >= min_group_size]
    return Selection(groups=usable, masked_ids=frozenset(dynamic_sampling.masked_ids(usable)))


def to_examples(selection: Selection, *, temperature: float) -> list[Example]:
    """Turn each rollout into an example, without an advantage yet."""
    return [to_example(rollout, temperature) for rollout in selection.rollouts]


def to_example(rollout: Rollout, temperature: float) -> Example:
    """Turn a rollout into an example with its sampling log-probabilities."""
    completion = rollout.completion
    return Example(
        tokens=np.concatenate([rollout.prompt_tokens, completion.tokens]),
        response_start=len(rollout.prompt_tokens),
        group_id=rollout.group_id,
        rollout_id=rollout.id,
        temperature=temperature or 1.0,
        sampling_logprob_M=completion.logprobs,
    )


def assign_advantages(
    selection: Selection,
    examples: Sequence[Example],
    algo: Algorithm,
    baseline: Baseline,
    *,
    run_fraction: float = 0.0,
) -> tuple[list[Example], Baseline]:
    """Give each example of `to_examples` its advantage; return those that have a loss, and the next
    running baseline.

    `run_fraction`, from 0 to 1, is how much of the run is done; the fraction of step credit falls
    with it.
    """
    assert [item.rollout_id for item in examples] == [item.id for item in selection.rollouts], (
        "examples belong to the rollouts of their groups, in order"
    )
    credited, has_signal, baseline = _credit_outcome(selection.groups, examples, algo, baseline)
    if algo.whitens:
        whitened = whiten([_per_token(item) for item in credited], has_signal)
        credited = [
            _with_advantage(item, array) for item, array in zip(credited, whitened, strict=True)
        ]
    if algo.step_credit is not None:
        judged_steps = [
            [(rollout.judged_steps, len(rollout.completion.tokens)) for rollout in group]
            for group in selection.groups
        ]
        steps = [array for group in algo.step_credit(judged_steps) for array in group]
        fraction = algo.step_credit_fraction(run_fraction)
        credited = [
            _with_advantage(item, blend_advantages(_per_token(item), step, fraction))
            for item, step in zip(credited, steps, strict=True)
        ]
    return [item for item in credited if item.rollout_id not in selection.masked_ids], baseline


def _credit_outcome(
    groups: Sequence[Group], examples: Sequence[Example], algo: Algorithm, baseline: Baseline
) -> tuple[list[Example], list[bool], Baseline]:
    """Credit the reward of the whole response, less the KL where it is subtracted from rewards.

    Also returns for each example whether its group has different rewards to learn from.
    """
    rewards = [rewards_of(group) for group in groups]
    penalties = [_kl_penalty(example, algo) for example in examples]
    if algo.advantage is None:
        flat = [reward for group in rewards for reward in group]
        credited = [
            _credit_tokens(example, reward, penalty, algo)
            for example, reward, penalty in zip(examples, flat, penalties, strict=True)
        ]
        return credited, [True] * len(credited), baseline
    next_penalty = iter(penalties)
    totals = [[reward - float(next(next_penalty).sum()) for reward in group] for group in rewards]
    advantages, baseline = algo.advantage(totals, baseline)
    flat = [value for group in advantages for value in group]
    credited = with_field(examples, "advantage", flat)
    return credited, [not all_equal(group) for group in totals for _ in group], baseline


def _credit_tokens(example: Example, reward: float, penalty: Doubles, algo: Algorithm) -> Example:
    """Spread the reward, which belongs to the last token, over the tokens before it."""
    assert algo.token_advantage is not None, "tokens are credited by a token advantage"
    if algo.needs_values and example.value_M is None:
        raise ConfigError(
            "this algorithm needs a critic, and there is none: set algo.name to another, "
            'such as "grpo"'
        )
    token_rewards = -penalty
    token_rewards[-1] += reward
    value = None if example.value_M is None else example.value_M.astype(np.float64)
    advantage, target = algo.token_advantage(token_rewards, value)
    return replace(
        _with_advantage(example, advantage),
        value_target_M=None if target is None else target.astype(np.float32),
    )


def _kl_penalty(example: Example, algo: Algorithm) -> Doubles:
    """Compute the KL to the reference that is subtracted from the reward of each token.

    It is that of the old log-probabilities: the learner's, or the engine's with
    `old_logprobs = "engine"`, where its gap to the learner counts as a KL too.
    """
    if algo.kl_in_reward == 0:
        return np.zeros(example.num_targets)
    own = example.old_logprob_M if algo.needs_old_logprobs else example.sampling_logprob_M
    assert own is not None and example.ref_logprob_M is not None, (
        "a KL in the reward needs a reference and old log-probabilities"
    )
    policy, reference = (
        torch.from_numpy(logprobs.astype(np.float64)) for logprobs in (own, example.ref_logprob_M)
    )
    return algo.kl_in_reward * kl(policy, reference, algo.kl_estimator).numpy()


def _per_token(example: Example) -> Doubles:
    return np.broadcast_to(np.asarray(example.advantage, dtype=np.float64), (example.num_targets,))


def _with_advantage(example: Example, advantage: Doubles) -> Example:
    return replace(example, advantage=advantage.astype(np.float32))


def update_policy(
    learner: Learner, examples: Sequence[Example], algo: Algorithm, *, seed: int
) -> StepResult:
    """Take one optimizer step per mini-batch.

    If a zero advantage means a zero gradient, such examples are skipped, but still count in the
    divisors. Updates that the early stop skips are counted.
    """
    if algo.num_minibatches == 1:
        # Without old log-probabilities, which a KL in the reward needed, the ratio is exactly 1.
        examples = [replace(example, old_logprob_M=None) for example in examples]
    elif algo.needs_old_logprobs and any(example.old_logprob_M is None for example in examples):
        examples = add_logprobs(examples, "old_logprob_M", learner)
    minibatch_metrics: list[Metrics] = []
    rng = None
    if algo.num_minibatches > 1:
        rng = make_rng(seed, "num_minibatches")  # another name would deal other mini-batches
    batches = split_minibatches(examples, algo.num_minibatches, rng)
    num_skipped = 0
    for index, batch in enumerate(batches):
        trainable = [
            example
            for example in set_loss_weights(batch, algo.loss_weights)
            if np.any(example.advantage) or algo.trains_on_zero_advantage
        ]
        if not trainable:
            continue
        metrics, is_skipped = _step_minibatch(learner, trainable, algo)
        minibatch_metrics.append(metrics)
        num_skipped += is_skipped
        if is_skipped and algo.early_stop.action == "stop":
            num_skipped += len(batches) - index - 1
            break
    if not minibatch_metrics:
        return StepResult(learner_metrics={}, is_empty=True)
    skipped = {"step/skipped": float(num_skipped)} if algo.early_stop.limit is not None else {}
    return StepResult(learner_metrics=average_metrics(minibatch_metrics) | skipped)


def _step_minibatch(
    learner: Learner, examples: Sequence[Example], algo: Algorithm
) -> tuple[Metrics, bool]:
    """Take the optimizer step of a mini-batch, unless the early stop skips it; also return whether
    it does."""
    loss_sums = learner.accumulate(examples, algo.objective)
    stop_signal = loss_sums.mean_stop_signal
    if stop_signal is None or algo.early_stop.scope == "micro_batch":
        return loss_sums.means | learner.optim_step(), False
    is_skipped = exceeds_limit(stop_signal, algo.early_stop)
    if is_skipped:
        learner.zero_grad()
    takes_step = not is_skipped or algo.early_stop.action == "zero"
    return loss_sums.means | (learner.optim_step() if takes_step else {}), is_skipped
