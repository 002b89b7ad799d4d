"""One of two co-trained policies, with its learner, its algorithm and its reference."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.algos.advantages import State
from whet.algos.algorithm import Algorithm, build_algorithm
from whet.algos.settings import AlgoConfig
from whet.engine.base import Sampling
from whet.engine.build import EngineConfig
from whet.models.source import ModelSource, open_model, torch_dtype
from whet.track.metrics import Clock
from whet.train.checkpoint import Trained
from whet.train.credit import credit, flatten, select
from whet.train.learner import LocalLearner, Metrics, update
from whet.train.memory import DeviceMemory
from whet.train.optim import TrainConfig
from whet.train.policy import Policy, Reference, build_policy, reference_of, with_reference
from whet.types import Group


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Trainee:
    policy: Policy
    learner: LocalLearner
    algo: Algorithm
    sampling: Sampling
    reference: Reference | None

    @property
    def checkpointed_pair(self) -> Trained:
        return Trained(self.policy, self.learner)

    def improve(
        self,
        groups: Sequence[Group],
        baseline: State,
        *,
        seed: int,
        progress: float = 0.0,
        has_steps: bool = False,
        weights: Mapping[str, float] | None = None,
        clock: Clock | None = None,
    ) -> tuple[Metrics, State]:
        """Take one update on rewarded groups; `weights` multiply advantages by group name."""
        clock = clock or Clock()
        algo = self.algo if has_steps else replace(self.algo, step_credit=None)
        selection = select(groups, algo)
        examples = flatten(selection, temperature=self.sampling.temperature)
        self.learner.make_room(examples)
        if self.reference is not None:
            with clock.measure("score"):
                examples = with_reference(examples, self.reference, self.learner.cfg.micro_tokens)
        examples, baseline = credit(selection, examples, algo, baseline, progress=progress)
        if weights is not None:
            examples = [
                replace(item, advantage=item.advantage * weights[item.group]) for item in examples
            ]
        with clock.measure("update"):
            return update(self.learner, examples, algo, seed=seed), baseline


def open_trainee(
    source: ModelSource,
    algo: AlgoConfig,
    sampling: Sampling,
    train: TrainConfig,
    engine: EngineConfig,
    *,
    updates: int,
    name: str,
    seed: int,
    prove: Callable[[AlgoConfig, Policy], AlgoConfig] = lambda algo, policy: algo,
    memory: DeviceMemory | None = None,
) -> Trainee:
    """Load one of the models and all that trains it; `updates` is how many its schedule spans.

    `prove` sees the policy before anything else is loaded, and says which algorithm is right for
    it.
    """
    model, tokenizer = open_model(source, dtype=torch_dtype(train.dtype), texts=[], seed=seed)
    policy = build_policy(model, tokenizer, engine, name=name, memory=memory)
    built = build_algorithm(prove(algo, policy), max_tokens=sampling.max_tokens)
    reference = (
        reference_of(model, offload=train.offload_reference) if built.needs_reference else None
    )
    learner = policy.learner(train, steps=max(updates, 1) * built.minibatches)
    return Trainee(
        policy=policy, learner=learner, algo=built, sampling=sampling, reference=reference
    )
