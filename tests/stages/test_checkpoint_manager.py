"""Which checkpoints are written, which is handed on, and what a resumed run knows of it."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from small import Pipeline

from whet.config import Config
from whet.engine.base import SamplingParams
from whet.engine.native import NativeConfig
from whet.errors import TrainError
from whet.evals.stats import Estimate
from whet.evals.summary import EvalSummary
from whet.grading.grader import Grader
from whet.models.source import ModelSource, load_model, torch_device
from whet.recipes.evaluate import SAMPLED
from whet.rollout.collect import ChatEngine
from whet.stages.checkpoint_manager import (
    CheckpointManager,
    SaveConfig,
)
from whet.stages.guard import CollapseGuard, GuardConfig
from whet.stages.training import (
    MAX_EMPTY_STEPS,
    EmptyStepLimit,
    TrainingLoop,
    finish_training,
)
from whet.stages.validation import ValidationConfig, Validator
from whet.store.run import RunStore
from whet.tasks.game24.task import Game24, Game24Config
from whet.testing.fakes import rollout, sum_problem
from whet.track.metrics import Clock, Tracker
from whet.train.critic import Critic, CriticConfig
from whet.train.policy import build_policy
from whet.train.settings import TrainConfig
from whet.types import Group, Metrics, Problem, Rollout, Score, Verdict


class Job(Config):
    seed: int = 0


class Scripted(Validator):
    """Finds what it is told to, one value a validation, every second step."""

    def __init__(
        self, values: list[float], example: EvalSummary, groups: Sequence[Group] = ()
    ) -> None:
        task = Game24()
        super().__init__(
            ValidationConfig(every=2),
            Grader(task),
            list(task.problems("dev")),
            SamplingParams(),
            seed=0,
        )
        self.values, self.example, self.groups = list(values), example, list(groups)

    def validate(self, chat_engine: ChatEngine) -> tuple[EvalSummary, list[Group]]:
        value = self.values.pop(0)
        found = Estimate(mean=value, low=value, high=value, count=1)
        return replace(self.example, pass_at={1: found}), self.groups


class Notes(Tracker):
    """Keeps what it is given."""

    def __init__(self) -> None:
        self.metrics: list[tuple[int, Metrics]] = []
        self.responses: list[tuple[int, list[str]]] = []

    def log(self, step: int, metrics: Metrics) -> None:
        self.metrics.append((step, metrics))

    def log_responses(self, step: int, rollouts: Sequence[Rollout]) -> None:
        self.responses.append((step, [rollout.problem.id for rollout in rollouts]))


@pytest.fixture
def example(tiny: Pipeline) -> EvalSummary:
    return EvalSummary.from_json(RunStore.view(tiny.folder / "04-sft_eval").evals()[SAMPLED])


def manager(tiny: Pipeline, run: RunStore, validator: Validator) -> CheckpointManager:
    source = ModelSource(path=str(tiny.folder / "03-sft"))
    model, tokenizer = load_model(
        source, dtype=torch.float32, device=torch_device(), texts=[], seed=0
    )
    policy = build_policy(model, tokenizer, NativeConfig(), name="tiny")
    learner = policy.build_learner(TrainConfig(), steps=10)
    stateful = {"empty_steps": EmptyStepLimit()}
    return CheckpointManager(
        SaveConfig(every=3), run, policy, learner, validator, steps=10, stateful=stateful
    )


def test_empty_steps_count_in_a_row_and_a_step_with_a_gradient_starts_again() -> None:
    limit = EmptyStepLimit()
    for _ in range(3):
        for _ in range(MAX_EMPTY_STEPS - 1):
            limit.check(is_empty=True)
        limit.check(is_empty=False)
    for _ in range(MAX_EMPTY_STEPS - 1):
        limit.check(is_empty=True)
    with pytest.raises(TrainError, match=f"^{MAX_EMPTY_STEPS} steps in a row"):
        limit.check(is_empty=True)


def test_validation_keeps_only_problems_that_have_a_solution() -> None:
    task = Game24(Game24Config(unsolvable=True))
    problems = list(task.problems("dev"))
    validator = Validator(ValidationConfig(), Grader(task), problems, SamplingParams(), seed=0)

    expected = [problem for problem in problems if problem.payload["solvable"]]
    assert 0 < len(expected) < len(problems)
    assert validator.problems == expected


def make_validator(every: int, problems: list[Problem]) -> Validator:
    cfg = ValidationConfig(every=every)
    return Validator(cfg, Grader(Game24()), problems, SamplingParams(), seed=0)


def test_validation_before_the_first_step_needs_an_interval_and_problems() -> None:
    problems = list(Game24().problems("dev"))
    assert make_validator(2, problems).is_due_first
    assert not make_validator(0, problems).is_due_first
    assert not make_validator(2, []).is_due_first


def test_validation_is_due_at_its_interval_and_after_the_last_step() -> None:
    problems = list(Game24().problems("dev"))
    assert make_validator(2, problems).steps_due(5) == {2, 4, 5}
    assert make_validator(0, problems).steps_due(5) == {5}
    assert make_validator(2, []).steps_due(5) == set()


def end_step(kept: CheckpointManager, step: int, tracker: Tracker) -> None:
    """End a step, from 1 on, as the loop over steps does."""
    steps = range(kept.steps)
    loop = TrainingLoop(manager=kept, clock=Clock(), tracker=tracker, advance=None, steps=steps)
    loop.end_step(step - 1)


def walk(kept: CheckpointManager, start: int, end: int) -> None:
    for step in range(start + 1, end + 1):
        kept.stateful["empty_steps"].num_empty = step
        end_step(kept, step, Notes())


def open_run(folder: Path, *, resume: bool = False) -> RunStore:
    return RunStore.open(folder, Job(), {}, resume=resume)


def test_the_checkpoint_with_the_best_validation_is_handed_on_and_kept(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary
) -> None:
    with open_run(tmp_path / "run") as run:
        kept = manager(tiny, run, Scripted([0.1, 0.5, 0.3, 0.2, 0.4], example))
        assert kept.resume() == 0
        walk(kept, 0, 10)
        assert kept.result() == (4, run.checkpoint_folder / "000004")
        assert kept.checkpoints.steps() == [4, 9, 10]


def test_checkpoints_are_written_at_their_interval_and_at_validations(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary
) -> None:
    with open_run(tmp_path / "run") as run:
        kept = manager(tiny, run, Scripted([0.1, 0.2], example))
        seen = []
        for step in range(1, 6):
            walk(kept, step - 1, step)
            if step in kept.checkpoints.steps():
                seen.append(step)
        assert seen == [2, 3, 4]


def test_a_resumed_run_knows_the_best_validation_of_the_past(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary
) -> None:
    with open_run(tmp_path / "run") as run:
        walk(manager(tiny, run, Scripted([0.1, 0.5, 0.3], example)), 0, 7)
    with open_run(tmp_path / "run", resume=True) as run:
        kept = manager(tiny, run, Scripted([0.2, 0.4], example))
        start = kept.resume()
        assert (start, kept.stateful["empty_steps"].num_empty) == (6, 6)
        walk(kept, start, 10)
        assert kept.result()[0] == 4
        assert kept.best.value == 0.5
        assert list(run.evals()) == [2, 4, 6, 8, 10]


def test_a_best_that_came_after_the_checkpoint_resumed_from_is_forgotten(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary
) -> None:
    with open_run(tmp_path / "run") as run:
        walk(manager(tiny, run, Scripted([0.1, 0.5], example)), 0, 4)
        (run.checkpoint_folder / "000004" / "model.safetensors").write_bytes(b"")
    with open_run(tmp_path / "run", resume=True) as run:
        kept = manager(tiny, run, Scripted([], example))
        assert kept.resume() == 3
        assert (kept.best.step, kept.best.value) == (2, 0.1)
        assert kept.result()[0] == 2


def test_a_validation_reaches_the_trackers_by_task_and_source_with_sample_answers(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary
) -> None:
    right = Score(verdict=Verdict.CORRECT, parts={"correct": 1.0})
    wrong = Score(verdict=Verdict.WRONG, parts={"correct": 0.0})
    sums = [sum_problem(1, other) for other in range(31)]
    maths = replace(sum_problem(2, 2), task="maths", source="book")
    groups = [
        (
            rollout(problem=problem, score=wrong, tokens=[1] * 2),
            rollout(problem=problem, score=right, tokens=[1] * 4),
        )
        for problem in sums
    ]
    groups.append((rollout(problem=maths, score=right, tokens=[1] * 6),) * 2)
    notes = Notes()
    with open_run(tmp_path / "run") as run:
        end_step(manager(tiny, run, Scripted([0.5], example, groups)), 2, notes)

        assert run.metrics() == [], "the run's own file is one of the trackers"
    source = f"source/{sums[0].source}"
    assert notes.metrics == [
        (
            2,
            {
                "validation/pass@1": 0.5,
                "validation/tokens": example.tokens.mean,
                "validation/pass@1/sums": 0.5,
                "validation/tokens/sums": 3.0,
                "validation/pass@1/maths": 1.0,
                "validation/tokens/maths": 6.0,
                f"validation/pass@1/{source}": 0.5,
                f"validation/tokens/{source}": 3.0,
                "validation/pass@1/source/book": 1.0,
                "validation/tokens/source/book": 6.0,
            },
        )
    ]
    assert notes.responses == [(2, [problem.id for problem in sums[::2]])], (
        "16 of 32, spread evenly"
    )


@pytest.mark.parametrize(
    ("count", "distance"), [(0, 1), (1, 1), (16, 1), (17, 2), (31, 2), (32, 2), (33, 3)]
)
def test_a_validation_shows_at_most_sixteen_problems_spread_evenly(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary, count: int, distance: int
) -> None:
    problems = [sum_problem(1, other) for other in range(count)]
    groups = [(rollout(problem=problem),) for problem in problems]
    notes = Notes()
    with open_run(tmp_path / "run") as run:
        end_step(manager(tiny, run, Scripted([0.5], example, groups)), 2, notes)

    assert notes.responses == [(2, [problem.id for problem in problems[::distance]])]
    assert len(notes.responses[0][1]) <= 16


def test_a_guard_takes_the_critic_back_with_the_policy(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary
) -> None:
    with open_run(tmp_path / "run") as run:
        before = manager(tiny, run, Scripted([0.5, 0.5, 0.1], example))
        policy, learner = before.policy, before.learner
        build_value_learner = policy.build_value_learner(TrainConfig(), steps=10)
        critic = Critic(build_value_learner, CriticConfig(warmup_steps=1))
        guard = CollapseGuard(GuardConfig(restores=1), run, learner, before.validator.cfg)
        kept = CheckpointManager(
            SaveConfig(),
            run,
            policy,
            learner,
            before.validator,
            steps=10,
            guard=guard,
            critic=critic,
        )
        kept.validate_first(0, Notes())
        head, norm = build_value_learner.value_model.head.weight, policy.model.norm.weight
        head.data.fill_(2.0)
        critic.learner.num_optim_steps, critic.num_updates = 2, 2
        end_step(kept, 2, Notes())
        head.data.fill_(3.0)
        norm.data.fill_(3.0)
        critic.learner.num_optim_steps, critic.num_updates = 4, 4
        end_step(kept, 4, Notes())
        assert guard.num_restores == 1
        assert head.unique().tolist() == [2.0], "the critic is that of step 2, the best validation"
        assert norm.max().item() != 3.0
        assert (critic.learner.num_optim_steps, critic.num_updates) == (4, 2), (
            "its schedule goes on"
        )


def test_only_a_validation_above_all_before_it_is_called_the_best(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_run(tmp_path / "run") as run:
        kept = manager(tiny, run, Scripted([0.3, 0.2, 0.3, 0.4, 0.4, 0.1], example))
        kept.validate_first(kept.resume(), Notes())
        walk(kept, 0, 10)
    lines = [line for line in capsys.readouterr().err.splitlines() if "validation at" in line]
    assert ["kept as best" in line for line in lines] == [False, False, False, True, False, False]
    assert kept.best.step == 8, "of equals the later has seen more"


def test_the_first_validation_is_not_called_the_best_of_one(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_run(tmp_path / "run") as run:
        kept = manager(tiny, run, Scripted([0.0, 0.1, 0.1, 0.1, 0.1], example))
        walk(kept, 0, 10)
    lines = [line for line in capsys.readouterr().err.splitlines() if "validation at" in line]
    assert ["kept as best" in line for line in lines] == [False, True, False, False, False]
    assert kept.best.step == 10


def test_a_model_that_ends_worse_than_it_began_is_told_of_and_recorded(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_run(tmp_path / "run") as run:
        kept = manager(tiny, run, Scripted([0.5, 0.2, 0.3, 0.1, 0.1, 0.1], example))
        kept.validate_first(kept.resume(), Notes())
        walk(kept, 0, 10)
        finish_training(run, kept)
        sentence = (
            "the model ends worse than it began: 30.0 % of dev solved at its best validation, at "
            "step 4, and 50.0 % before the first step; see docs/troubleshooting.md"
        )
        assert sentence in " ".join(capsys.readouterr().err.split())
        assert [row["said"] for row in run.events() if row["event"] == "worse"] == [
            f"after 10 steps, {sentence}"
        ]


def test_a_model_that_improves_is_not_called_worse_also_after_a_resume(
    tiny: Pipeline, tmp_path: Path, example: EvalSummary
) -> None:
    with open_run(tmp_path / "run") as run:
        kept = manager(tiny, run, Scripted([0.1, 0.2, 0.3, 0.4], example))
        kept.validate_first(kept.resume(), Notes())
        walk(kept, 0, 6)
    with open_run(tmp_path / "run", resume=True) as run:
        kept = manager(tiny, run, Scripted([0.05, 0.05], example))
        walk(kept, kept.resume(), 10)
        finish_training(run, kept)
        assert not [row for row in run.events() if row["event"] == "worse"]
