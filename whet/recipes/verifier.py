"""The verifier that trains beside a generator: it judges solutions, is compared with the truth, and
weighs right and wrong solutions by how rare they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from whet.algos.agreement import Agreement, BalanceRule, class_weights, count_agreement
from whet.engine.base import SamplingParams
from whet.rng import derive
from whet.rollout.collect import sample_and_grade
from whet.rollout.verification import (
    check_verifier_room,
    make_verifications,
    mark_verifier,
    outcome_pairs,
    step_pairs,
)
from whet.stages.checkpoint_manager import CheckpointedValue
from whet.stages.stage import ModelWork, TrainingConfig
from whet.stages.training import Session, check_exactness, open_policy
from whet.tasks.verify import VERDICT_WORDS, Verify
from whet.train.policy import Policy
from whet.train.rl_step import RLTrainer
from whet.train.training_state import read_numbers
from whet.types import Group


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Verifier:
    """A policy that judges the solutions of a session's policy, with its trainer."""

    session: Session[TrainingConfig]
    task: Verify
    sampling: SamplingParams
    trainer: RLTrainer[Policy]
    class_counts: CheckpointedValue
    """Running counts of right and wrong solutions that it trained on."""

    def judge(self, step: int, solved: Sequence[Group], samples: int) -> list[Group]:
        """Sample verifications of every solution that can be judged."""
        policy = self.trainer.policy
        room = policy.engine.max_model_len - self.sampling.max_tokens
        judged = sample_and_grade(
            policy.chat_engine,
            self.session.grader,
            make_verifications(solved, self.task, policy.chat_engine, room),
            self.sampling,
            samples=samples,
            seed=derive(self.session.cfg.seed, "verify", step),
            clock=self.session.clock,
        )
        return mark_verifier(judged)

    def measure_agreement(
        self, solved: Sequence[Group], judged: Sequence[Group]
    ) -> tuple[Agreement, Agreement]:
        """Compare final verdicts with the truth, and verdicts on steps with the task's labels."""
        steps = step_pairs(solved, judged, self.task, self.session.task)
        return count_agreement(outcome_pairs(judged, self.task)), count_agreement(steps)

    def weigh_groups(self, judged: Sequence[Group], rule: BalanceRule) -> dict[str, float]:
        """Count right and wrong solutions, and weigh verifications by how rare their kind is."""
        is_right = [group[0].problem.answer == VERDICT_WORDS[True] for group in judged]
        weights, counts = class_weights(is_right, read_numbers(self.class_counts.value), rule=rule)
        self.class_counts.value = {**counts}
        return {group[0].group_id: weight for group, weight in zip(judged, weights, strict=True)}


def open_verifier(session: Session[TrainingConfig], work: ModelWork, task: Verify) -> Verifier:
    """Load the verifier's model beside the session's policy; refuse limits without room for a
    solution."""
    assert work.train is not None and work.algo is not None, "a verifier trains"
    cfg = session.cfg
    policy = open_policy(
        work,
        name=f"{session.run.folder.name}-verifier",
        prompt=cfg.prompt,
        seed=cfg.seed,
        memory=session.policy.memory,
    )
    trainer = RLTrainer(
        policy,
        check_exactness(work.algo, policy, session.run),
        work.train,
        max_tokens=work.sampling.max_tokens,
        steps=max(work.steps, 1),
    )
    check_verifier_room(
        policy.engine.max_model_len,
        solution=cfg.sampling.max_tokens,
        verification=work.sampling.max_tokens,
        micro_batch_tokens=work.train.micro_batch_tokens,
    )
    return Verifier(
        session=session,
        task=task,
        sampling=work.sampling,
        trainer=trainer,
        class_counts=CheckpointedValue({}),
    )
