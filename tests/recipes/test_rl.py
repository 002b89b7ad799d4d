import re
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest
from small import Pipeline, Said, check_clock, cut_after, whet, write

from bench.kill_resume import facts
from whet.algos.settings import AlgoConfig
from whet.data.problems import load_problems, write_problems
from whet.engine.base import SamplingParams
from whet.evals.summary import EvalSummary
from whet.grading.grader import Grader
from whet.models.source import ModelSource
from whet.pipeline.report import write_pipeline_results
from whet.recipes.rl import RLConfig, build_request, sampling_at, step_metrics
from whet.rollout.step_groups import DynamicSamplingConfig
from whet.stages.training import Session, vary_problem
from whet.store.files import write_json
from whet.store.run import RunStore
from whet.tasks.game24.task import Game24
from whet.tasks.task_config import build_task
from whet.testing.fakes import SumTask, group, sum_problem
from whet.testing.tiny import tiny_policy
from whet.track.metrics import MACHINE_AREAS, Clock
from whet.train.settings import TrainConfig
from whet.types import Message, Problem

RL = """kind = "rl"
task.name = "game24"
seed = 2
model = {{ path = "{model}" }}
problems_per_step = 8
group_size = 8
sampling = {{ max_tokens = 24 }}
validation = {{ samples = 1 }}
"""


def rl(tiny: Pipeline, folder: Path, *flags: object) -> Said:
    file = write(folder.parent / "rl.toml", RL.format(model=tiny.folder / "03-sft"))
    return whet("rl", file, "--out", folder, *flags)


def finished(tiny: Pipeline, folder: Path, *flags: object) -> Said:
    """Train on a task that the tiny model solves now and then."""
    task = Path(__file__).parents[1] / "finished.py"
    return rl(tiny, folder, "--task", f"{task}:Finished", *flags)


def rows(folder: Path, *, areas: tuple[str, ...] = MACHINE_AREAS) -> list[dict[str, float]]:
    """The training rows of a run, without those of validations and what a clock measured."""
    return [
        {name: value for name, value in row.items() if not name.startswith(areas)}
        for row in RunStore.view(folder).metrics()
        if "validation/pass@1" not in row
    ]


def test_the_policy_learns_what_is_rewarded(tiny: Pipeline, tmp_path: Path) -> None:
    """Fewer lines are better here, which even a tiny model finds out within seconds."""
    said = rl(
        tiny,
        tmp_path / "run",
        "--steps",
        20,
        "--train.lr",
        3e-3,
        "--reward.weights",
        "{ lines = -1.0 }",
    )
    assert said.code == 0, said.err
    rewards = [row["reward/mean"] for row in rows(tmp_path / "run")]
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 1


def test_micro_batches_too_small_for_the_longest_response_are_refused_before_the_first_step(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = rl(tiny, tmp_path / "run", "--steps", 1, "--train.micro_batch_tokens", 25)
    assert said.code == 2
    assert re.search(
        r"train\.micro_batch_tokens = 25 is below \d+, the tokens of the longest prompt with a response of "
        r"sampling\.max_tokens = 24: raise the first or lower the second$",
        said.last,
    )
    assert not (tmp_path / "run").exists()


def test_every_step_logs_where_its_time_went(tiny: Pipeline) -> None:
    check_clock(tiny.folder / "05-rl", samples=True)
    steps = rows(tiny.folder / "05-rl", areas=())
    assert steps and all(row["time/score"] > 0 for row in steps), "algo.kl_coef is above 0"


def test_validation_before_the_first_step_is_measured_and_changes_no_weight(
    tiny: Pipeline, tmp_path: Path
) -> None:
    for name, every in (("off", 0), ("on", 1)):
        said = finished(
            tiny, tmp_path / name, "--steps", 2, "--train.lr", 1e-3, "--validation.every", every
        )
        assert said.code == 0, said.err
    assert list(RunStore.view(tmp_path / "off").evals()) == [2]
    assert list(RunStore.view(tmp_path / "on").evals()) == [0, 1, 2]
    last = "checkpoints/000002/model.safetensors"
    assert (tmp_path / "on" / last).read_bytes() == (tmp_path / "off" / last).read_bytes()
    assert rows(tmp_path / "on") == rows(tmp_path / "off")


def test_a_validation_stores_the_rate_of_each_problem(tiny: Pipeline) -> None:
    folder = str(tiny.folder / "01-problems")
    ids = {problem.id for problem in load_problems(Game24(), folder, "dev")}
    for row in RunStore.view(tiny.folder / "05-rl").evals().values():
        summary = EvalSummary.from_json(row)
        assert summary.rates.keys() == ids
        assert fmean(summary.rates.values()) == pytest.approx(summary.pass_at[1].mean)


def test_a_run_that_only_gets_worse_hands_on_a_trained_checkpoint(
    tiny: Pipeline, tmp_path: Path
) -> None:
    """Where training starts from is shown, and is no result of it."""
    said = rl(tiny, tmp_path / "run", "--steps", 1, "--validation.every", 1)
    assert said.code == 0, said.err
    assert RunStore.view(tmp_path / "run").summary()["step"] == 1


def test_every_step_logs_what_tells_whether_it_is_sound(tiny: Pipeline) -> None:
    found = rows(tiny.folder / "05-rl")
    assert [row["step"] for row in found] == [1, 2, 3, 4, 5, 6]
    wanted = {
        "reward/mean", "reward/deviation", "score/correct", "score/finished", "length/mean", "length/unfinished",
        "groups/equal", "policy/entropy", "policy/kl", "policy/clip_fraction", "policy/engine_gap", "loss",
        "train/lr", "train/grad_norm", "step/empty", "sampling/temperature",
    }  # fmt: skip
    for row in found:
        assert wanted <= set(row)


def test_engine_and_learner_agree_on_log_probabilities(tiny: Pipeline, tmp_path: Path) -> None:
    """With one mini-batch a step nothing but the order of float32 sums is between them.

    The longest sum of the tiny model has 128 terms, so 128 roundings of 2^-24, in each of two
    layers and the head.
    """
    said = rl(
        tiny,
        tmp_path / "run",
        "--steps",
        3,
        "--train.lr",
        1e-3,
        "--final_temperature",
        0.5,
        "--reward.weights",
        "{ lines = -1.0 }",
    )
    assert said.code == 0, said.err
    gaps = [row["policy/engine_gap"] for row in rows(tmp_path / "run")]
    assert len(gaps) == 3
    assert max(gaps) < 3 * 128 * 2**-24


def test_rewards_follow_from_the_stored_facts(tiny: Pipeline) -> None:
    for rollout in RunStore.view(tiny.folder / "05-rl").rollouts("train", 4):
        assert rollout.score is not None
        parts = rollout.score.parts
        assert rollout.reward == pytest.approx(parts["finished"] - 0.1 * parts["lines"])


def test_each_step_stores_its_rollouts_with_the_version_that_wrote_them(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "05-rl")
    assert run.rollout_steps("train") == [1, 2, 3, 4, 5, 6]
    for step in run.rollout_steps("train"):
        rollouts = run.rollouts("train", step)
        assert len(rollouts) == 16
        assert {rollout.completion.policy_version for rollout in rollouts} == {step - 1}


def test_no_problem_comes_twice_before_all_came_once(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "05-rl")
    asked = [
        group
        for step in run.rollout_steps("train")
        for group in {r.problem.id for r in run.rollouts("train", step)}
    ]
    assert len(asked) == len(set(asked)) == 24


def test_problems_without_a_solution_are_not_trained_on(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "05-rl")
    rollouts = [
        rollout for step in run.rollout_steps("train") for rollout in run.rollouts("train", step)
    ]
    assert all(rollout.problem.payload["solvable"] is True for rollout in rollouts)


def test_the_temperature_goes_from_first_to_last_by_a_constant_factor(tiny: Pipeline) -> None:
    found = [row["sampling/temperature"] for row in rows(tiny.folder / "05-rl")]
    # From 1 to 0.5 over six steps: a factor of 0.5 ** (1 / 5) each.
    assert found == pytest.approx([1.0, 0.87055, 0.75786, 0.65975, 0.57435, 0.5], abs=1e-5)


@pytest.mark.parametrize(("steps", "final"), [(5, None), (1, 0.5)])
def test_the_temperature_stays_without_a_final_one_or_in_a_single_step(
    steps: int, final: float | None
) -> None:
    cfg = RLConfig(
        task="game24",
        model=ModelSource(path="m"),
        steps=steps,
        sampling=SamplingParams(temperature=0.7),
        final_temperature=final,
    )
    assert [sampling_at(cfg, step).temperature for step in range(steps)] == [0.7] * steps


@pytest.mark.parametrize("final", [None, 1.0, 0.5])
def test_a_served_reference_needs_temperature_1_up_to_the_last_step(final: float | None) -> None:
    def build() -> RLConfig:
        return RLConfig(
            task="game24",
            model=ModelSource(path="m"),
            final_temperature=final,
            train=TrainConfig(reference_url="http://localhost:1"),
            algo=AlgoConfig(kl_coef=0.1),
        )

    if final == 0.5:
        with pytest.raises(ValueError, match=r"responses are sampled at 0\.5"):
            build()
    else:
        assert build().final_temperature == final


def test_the_best_validation_decides_which_checkpoint_is_handed_on(tiny: Pipeline) -> None:
    for stage in ("03-sft", "05-rl"):
        run = RunStore.view(tiny.folder / stage)
        validations = {
            int(row["step"]): row["validation/pass@1"]
            for row in run.metrics()
            if "validation/pass@1" in row
        }
        best = max(validations, key=lambda step: (validations[step], step))
        assert run.summary() == {
            "model": f"checkpoints/{best:06d}",
            "step": best,
            "validation_pass@1": validations[best],
        }


def test_a_step_in_which_all_siblings_are_equal_is_counted_and_moves_nothing(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = rl(
        tiny,
        tmp_path / "run",
        "--steps",
        3,
        "--reward.weights",
        "{ lines = 0.0 }",
        "--save.every",
        1,
    )
    assert said.code == 0, said.err
    for row in rows(tmp_path / "run"):
        assert row["groups/equal"] == 1
        assert row["step/empty"] == 1
        assert "loss" not in row
    weights = {
        path.read_bytes() for path in (tmp_path / "run" / "checkpoints").glob("*/model.safetensors")
    }
    assert len(weights) == 1


def test_ten_steps_in_a_row_without_a_signal_stop_the_run_with_one_sentence(
    tiny: Pipeline, tmp_path: Path
) -> None:
    flags = ("--steps", 30, "--reward.weights", "{ lines = 0.0 }", "--save.every", 4)
    said = rl(tiny, tmp_path / "run", *flags)
    assert said.code == 2
    assert said.last.startswith(
        "whet: 10 steps in a row had no group with responses of different reward"
    )
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(1, 11))
    again = rl(tiny, tmp_path / "run", *flags, "--resume")
    assert again.code == 2
    assert "resuming from step 8" in again.err
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(1, 11))


def test_groups_of_equal_reward_are_replaced_within_the_budget_and_counted(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = finished(
        tiny,
        tmp_path / "run",
        "--steps",
        3,
        "--dynamic_sampling.max_extra_problems",
        5,
        "--group_size",
        4,
    )
    assert said.code == 0, said.err
    run = RunStore.view(tmp_path / "run")
    for row in rows(tmp_path / "run"):
        groups: dict[str, set[float | None]] = {}
        for rollout in run.rollouts("train", int(row["step"])):
            groups.setdefault(rollout.group_id, set()).add(rollout.reward)
        assert len(groups) == 8 + row["groups/extra"]
        assert row["groups/trained"] == sum(len(rewards) > 1 for rewards in groups.values())
        assert row["groups/trained"] == 8 or row["groups/extra"] == 5


def test_a_step_without_any_group_to_train_on_is_an_empty_one(
    tiny: Pipeline, tmp_path: Path
) -> None:
    flags = (
        "--steps",
        2,
        "--dynamic_sampling.max_extra_problems",
        1,
        "--reward.weights",
        "{ lines = 0.0 }",
    )
    said = rl(tiny, tmp_path / "run", *flags)
    assert said.code == 0, said.err
    for row in rows(tmp_path / "run"):
        assert (row["groups/trained"], row["groups/extra"], row["step/empty"]) == (0, 1, 1)


def test_metrics_of_two_phases_are_over_the_first_responses_of_every_group() -> None:
    """The first group was completed: over all six responses the mean would be 2/3."""
    cfg = RLConfig(
        task="game24",
        model=ModelSource(path="m"),
        group_size=4,
        dynamic_sampling=DynamicSamplingConfig(first_samples=2),
    )

    metrics = step_metrics(cfg, [group([1.0, 0.0, 1.0, 1.0]), group([1.0, 0.0])], 0)

    assert metrics["reward/mean"] == 0.5
    assert metrics["groups/stopped"] == 0.5


def test_masked_responses_are_not_trained_on(tiny: Pipeline, tmp_path: Path) -> None:
    """With a limit of one token every answer is cut, whatever its reward."""
    flags = (
        "--steps",
        1,
        "--sampling.max_tokens",
        1,
        "--algo.kl_coef",
        0.1,
        "--dynamic_sampling.mask_unfinished",
    )
    for value, is_empty in (("true", 1), ("false", 0)):
        said = rl(tiny, tmp_path / value, *flags, value)
        assert said.code == 0, said.err
        assert rows(tmp_path / value)[0]["step/empty"] == is_empty


def test_with_a_lag_rollouts_are_trained_on_so_many_versions_later(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = rl(
        tiny, tmp_path / "run", "--steps", 5, "--lag", 2, "--reward.weights", "{ lines = -1.0 }"
    )
    assert said.code == 0, said.err
    run = RunStore.view(tmp_path / "run")
    versions = [
        {r.completion.policy_version for r in run.rollouts("train", step)} for step in range(1, 6)
    ]
    assert versions == [{0}, {0}, {0}, {1}, {2}]
    assert [row["sampling/lag"] for row in rows(tmp_path / "run")] == [0, 1, 2, 2, 2]


def test_stages_ask_their_levels_within_their_limits(tiny: Pipeline, tmp_path: Path) -> None:
    stages = "[{ max_level = 0.6, max_tokens = 9, temperature = 0.5 }, { min_level = 0.7 }]"
    said = rl(
        tiny,
        tmp_path / "run",
        "--steps",
        4,
        "--curriculum",
        f'{{ kind = "staged", stages = {stages} }}',
    )
    assert said.code == 0, said.err
    run = RunStore.view(tmp_path / "run")
    found = [
        [r for step in steps for r in run.rollouts("train", step)] for steps in ((1, 2), (3, 4))
    ]
    assert (
        max(r.problem.level or 0.0 for r in found[0])
        <= 0.6
        < 0.7
        <= min(r.problem.level or 0.0 for r in found[1])
    )
    assert (
        max(len(r.completion.tokens) for r in found[0])
        == 9
        < max(len(r.completion.tokens) for r in found[1])
    )
    assert [row["sampling/temperature"] for row in rows(tmp_path / "run")] == [0.5, 0.5, 1.0, 1.0]


def test_what_saves_memory_changes_no_bit(tiny: Pipeline, tmp_path: Path) -> None:
    saving = (
        "--train.offload_optimizer",
        "true",
        "--train.offload_reference",
        "true",
        "--train.gradient_checkpointing",
        "on",
    )
    for name, flags in (("plain", ()), ("saving", saving)):
        said = rl(
            tiny,
            tmp_path / name,
            "--steps",
            3,
            "--reward.weights",
            "{ lines = -1.0 }",
            "--algo.kl_coef",
            0.1,
            *flags,
        )
        assert said.code == 0, said.err
    assert rows(tmp_path / "plain") == rows(tmp_path / "saving")
    weights = {
        path.read_bytes() for path in tmp_path.glob("*/checkpoints/000003/model.safetensors")
    }
    assert len(weights) == 1


GUARDED = (
    "--steps", 6, "--validation.every", 2, "--save.every", 1,
    "--train.lr", 30.0, "--guard.restores", 1, "--guard.lr_factor", 1e-9,
)  # fmt: skip


def test_a_collapse_is_caught_and_the_run_ends_with_the_best_weights(
    tiny: Pipeline, tmp_path: Path
) -> None:
    """The rate of 30 destroys the policy at once; a billionth of it leaves what was restored as it
    was."""
    said = finished(tiny, tmp_path / "run", *GUARDED)
    assert said.code == 0, said.err
    run = RunStore.view(tmp_path / "run")
    validations = {row["step"]: row for row in run.metrics() if "validation/pass@1" in row}
    assert [validations[step]["guard/restores"] for step in (0, 2, 4, 6)] == [0, 1, 1, 1]
    assert (
        validations[2]["validation/pass@1"]
        < 0.1
        < validations[0]["validation/pass@1"]
        == validations[4]["validation/pass@1"]
        == validations[6]["validation/pass@1"]
    )
    event = next(event for event in run.events() if event["event"] == "restore")
    assert (event["step"], event["best"], event["validation"]) == (
        2,
        0,
        validations[2]["validation/pass@1"],
    )
    assert re.search(
        r"collapse after step 2: .* back to the weights of step 0 at train.lr 3e-08", said.err
    )
    rates = {row["step"]: row["train/lr"] for row in rows(tmp_path / "run") if "train/lr" in row}
    assert {step: rates[step] for step in (1, 3, 6)} == pytest.approx({1: 30.0, 3: 3e-8, 6: 3e-8})
    assert run.summary()["validation_pass@1"] == validations[0]["validation/pass@1"]
    write_json(run.folder / "stage.json", {"seconds": 1.0})
    stage = RLConfig(task="game24", model=ModelSource(path="nowhere"))
    write_pipeline_results(2, {"rl": stage}, {"rl": run.folder}, tmp_path)
    assert (
        "after step 2 to the weights of step 0, at train.lr 3e-08"
        in (tmp_path / "report.html").read_text()
    )


def test_a_guard_goes_back_no_more_often_than_it_may(tiny: Pipeline, tmp_path: Path) -> None:
    said = finished(tiny, tmp_path / "run", *GUARDED, "--guard.lr_factor", 0.9)
    assert said.code == 0, said.err
    validations = [
        row for row in RunStore.view(tmp_path / "run").metrics() if "validation/pass@1" in row
    ]
    assert [row["guard/restores"] for row in validations] == [0, 1, 1, 1]
    assert validations[-1]["validation/pass@1"] < 0.1
    assert RunStore.view(tmp_path / "run").summary()["step"] == 0


def test_a_guarded_run_that_was_cut_after_going_back_ends_the_same(
    tiny: Pipeline, tmp_path: Path
) -> None:
    flags = (*GUARDED, "--steps", 4, "--lag", 1, "--save.keep", 9)
    finished(tiny, tmp_path / "run", *flags)
    assert [row["sampling/lag"] for row in rows(tmp_path / "run")[:4]] == [0, 1, 0, 1], (
        "what waited was dropped"
    )
    expected = facts(tmp_path, ("run",))
    for last in (0, 3):
        cut_after(tmp_path / "run", last)
        said = finished(tiny, tmp_path / "run", *flags, "--resume")
        assert said.code == 0 and f"resuming from step {last}" in said.err
        assert facts(tmp_path, ("run",)) == expected


OWN = """from whet.tasks.game24 import Game24


class Bare(Game24):
    name = "bare"

    def problems(self, split):
        return super().problems(split) if split in {splits} else iter(())
"""


def bare(tiny: Pipeline, folder: Path, splits: tuple[str, ...], *flags: object) -> Said:
    """Train on a task that makes problems of some splits alone."""
    task = write(folder.parent / "own.py", OWN.format(splits=splits))
    return rl(tiny, folder, "--task", f"{task}:Bare", "--steps", 1, *flags)


def test_a_task_without_problems_says_what_to_set(tiny: Pipeline, tmp_path: Path) -> None:
    said = bare(tiny, tmp_path / "run", ())
    assert said.code == 2
    assert said.last == (
        "whet: the task 'bare' makes no problems of the split rl: set `problems` to a folder that has some"
    )


def test_without_dev_problems_there_is_no_validation_to_sum_up(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = bare(tiny, tmp_path / "run", ("rl",))
    assert said.code == 0, said.err
    assert RunStore.view(tmp_path / "run").summary() == {
        "model": "checkpoints/000001",
        "step": 1,
        "validation_pass@1": None,
    }


def test_a_guard_without_dev_problems_is_refused_in_a_sentence(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = bare(tiny, tmp_path / "run", ("rl",), "--guard.restores", 1, "--validation.every", 1)
    assert said.code == 2
    assert (
        said.last
        == "whet: guard.restores = 1 needs validation to watch, and the split dev has no problems to ask"
    )


def test_a_guard_without_validations_is_refused_in_a_sentence(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = rl(tiny, tmp_path / "run", "--guard.restores", 1)
    assert said.code == 2
    assert (
        said.last
        == "whet: guard.restores = 1 needs validation to watch: set validation.every to a few steps"
    )


@pytest.mark.parametrize(("name", "word"), [("tango_grpo", "no judge")])
def test_an_algorithm_that_needs_more_than_a_policy_is_refused_before_anything_is_sampled(
    tiny: Pipeline, tmp_path: Path, name: str, word: str
) -> None:
    said = rl(tiny, tmp_path / "run", "--steps", 2, "--algo.name", name)
    assert said.code == 2 and word in said.err
    assert not list((tmp_path / "run").glob("rollouts/*"))


def test_a_problem_that_comes_again_is_sampled_anew(tiny: Pipeline, tmp_path: Path) -> None:
    task = build_task(RLConfig(task="game24", model=ModelSource(path="model")).task)
    asked = {problem.prompt[-1].content: problem for problem in load_problems(task, None, "rl")}
    problem = asked["5 5 5 5"]  # whose numbers cannot be shuffled
    write_problems(tmp_path / "one", "rl", [replace(problem, task="finished")])
    write_problems(tmp_path / "one", "dev", [])

    said = finished(
        tiny, tmp_path / "run", "--steps", 2, "--problems", tmp_path / "one", "--train.lr", 1e-12
    )

    assert said.code == 0, said.err
    run = RunStore.view(tmp_path / "run")
    first, second = ([r.text for r in run.rollouts("train", step)] for step in (1, 2))
    assert first != second


class Wordy(SumTask):
    """Asks in other words, up to 59 more of them."""

    def vary(self, problem: Problem, seed: int) -> Problem:
        asked = Message(role="user", content=problem.prompt[0].content + " 7" * (seed % 60))
        return replace(problem, prompt=(asked,))


def wordy_session(folder: Path, micro_batch_tokens: int) -> Session[RLConfig]:
    cfg = RLConfig(
        task={"name": "game24"},
        model=ModelSource(path="model"),
        sampling=SamplingParams(max_tokens=10),
        train=TrainConfig(micro_batch_tokens=micro_batch_tokens),
    )
    return Session(
        cfg=cfg,
        run=RunStore(folder, lock=None),
        task=Wordy(),
        policy=tiny_policy(),
        grader=Grader(Wordy()),
        clock=Clock(),
    )


def test_a_problem_that_comes_again_is_varied_anew(tmp_path: Path) -> None:
    session = wordy_session(tmp_path, micro_batch_tokens=99)
    problem = sum_problem(2, 3)

    prompts = {build_request(session, step, 0, problem).problem.prompt for step in range(6)}

    assert len(prompts) > 1


def test_a_problem_that_comes_twice_in_a_step_is_varied_each_time(tmp_path: Path) -> None:
    session = wordy_session(tmp_path, micro_batch_tokens=99)
    problem = sum_problem(2, 3)

    prompts = {build_request(session, 0, index, problem).problem.prompt for index in range(6)}

    assert len(prompts) > 1


@pytest.mark.parametrize(
    ("words", "micro_batch_tokens", "is_varied"),
    [(3, 18, True), (3, 17, False), (58, 64, True), (58, 63, False), (59, 99, False)],
)
def test_other_words_are_used_where_the_longest_response_to_them_fits(
    words: int, micro_batch_tokens: int, is_varied: bool, tmp_path: Path
) -> None:
    # A prompt of 5 + words tokens and an answer of up to 10, in a context of 64.
    session = wordy_session(tmp_path, micro_batch_tokens)
    problem = sum_problem(2, 3)

    assert (vary_problem(session, problem, words) != problem) is is_varied
