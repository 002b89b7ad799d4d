from pathlib import Path
from statistics import fmean

import pytest
from small import Pipeline, Said, whet, write

from whet.engine.base import Sampling
from whet.recipes.rl import RLConfig, temperature_at
from whet.store.run import RunStore
from whet.train.policy import ModelSource

RL = """kind = "rl"
seed = 2
model = {{ path = "{model}" }}
problems_per_step = 8
group_size = 8
sampling = {{ max_tokens = 24 }}
exam = {{ samples = 1 }}
"""


def rl(tiny: Pipeline, folder: Path, *flags: object) -> Said:
    file = write(folder.parent / "rl.toml", RL.format(model=tiny.folder / "03-sft"))
    return whet("rl", file, "--out", folder, *flags)


def rows(folder: Path) -> list[dict[str, float]]:
    """The training rows of a run, without those of exams."""
    return [row for row in RunStore.view(folder).metrics() if "exam/pass@1" not in row]


def test_the_policy_learns_what_is_rewarded(tiny: Pipeline, tmp_path: Path) -> None:
    """Fewer lines are better here, which even a tiny model finds out within seconds."""
    said = rl(tiny, tmp_path / "run", "--steps", 20, "--train.lr", 3e-3, "--reward.weights", "{ lines = -1.0 }")
    assert said.code == 0, said.err
    rewards = [row["reward/mean"] for row in rows(tmp_path / "run")]
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 1


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


def test_engine_and_learner_agree_on_log_probabilities(tiny: Pipeline) -> None:
    """Of the first mini-batch at temperature 1; a second is one update away, and stays near."""
    assert rows(tiny.folder / "05-rl")[0]["policy/engine_gap"] < 0.1


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
        assert {rollout.completion.version for rollout in rollouts} == {step - 1}


def test_no_problem_comes_twice_before_all_came_once(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "05-rl")
    asked = [
        group for step in run.rollout_steps("train") for group in {r.problem.id for r in run.rollouts("train", step)}
    ]
    assert len(asked) == len(set(asked)) == 24


def test_problems_without_a_solution_are_not_trained_on(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "05-rl")
    rollouts = [rollout for step in run.rollout_steps("train") for rollout in run.rollouts("train", step)]
    assert all(rollout.problem.payload["solvable"] is True for rollout in rollouts)


def test_the_temperature_goes_from_first_to_last_by_a_constant_factor(tiny: Pipeline) -> None:
    found = [row["sampling/temperature"] for row in rows(tiny.folder / "05-rl")]
    # From 1 to 0.5 over six steps: a factor of 0.5 ** (1 / 5) each.
    assert found == pytest.approx([1.0, 0.87055, 0.75786, 0.65975, 0.57435, 0.5], abs=1e-5)


@pytest.mark.parametrize(("steps", "final"), [(5, None), (1, 0.5)])
def test_the_temperature_stays_without_a_final_one_or_in_a_single_step(steps: int, final: float | None) -> None:
    cfg = RLConfig(
        model=ModelSource(path="m"), steps=steps, sampling=Sampling(temperature=0.7), final_temperature=final
    )
    assert [temperature_at(cfg, step) for step in range(steps)] == [0.7] * steps


def test_the_best_exam_decides_which_checkpoint_is_handed_on(tiny: Pipeline) -> None:
    for stage in ("03-sft", "05-rl"):
        run = RunStore.view(tiny.folder / stage)
        exams = {int(row["step"]): row["exam/pass@1"] for row in run.metrics() if "exam/pass@1" in row}
        best = max(exams, key=lambda step: (exams[step], step))
        assert run.summary() == {"model": f"checkpoints/{best:06d}", "step": best, "exam_pass@1": exams[best]}


def test_a_step_in_which_all_siblings_are_equal_is_counted_and_moves_nothing(tiny: Pipeline, tmp_path: Path) -> None:
    said = rl(tiny, tmp_path / "run", "--steps", 3, "--reward.weights", "{ lines = 0.0 }", "--save.every", 1)
    assert said.code == 0, said.err
    for row in rows(tmp_path / "run"):
        assert row["groups/equal"] == 1
        assert row["step/empty"] == 1
        assert "loss" not in row
    weights = {path.read_bytes() for path in (tmp_path / "run" / "checkpoints").glob("*/model.safetensors")}
    assert len(weights) == 1


def test_ten_steps_in_a_row_without_a_signal_stop_the_run_with_one_sentence(tiny: Pipeline, tmp_path: Path) -> None:
    flags = ("--steps", 30, "--reward.weights", "{ lines = 0.0 }", "--save.every", 4)
    said = rl(tiny, tmp_path / "run", *flags)
    assert said.code == 2
    assert said.last.startswith("whet: 10 steps in a row had no group with answers of different reward")
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(1, 11))
    again = rl(tiny, tmp_path / "run", *flags, "--resume")
    assert again.code == 2
    assert "going on from step 8" in again.err
    assert [row["step"] for row in rows(tmp_path / "run")] == list(range(1, 11))


@pytest.mark.parametrize(("name", "word"), [("ppo", "a critic"), ("tango_grpo", "no judge")])
def test_an_algorithm_that_needs_more_than_a_policy_is_refused_before_anything_is_sampled(
    tiny: Pipeline, tmp_path: Path, name: str, word: str
) -> None:
    said = rl(tiny, tmp_path / "run", "--steps", 2, "--algo.name", name)
    assert said.code == 2 and word in said.err
    assert not list((tmp_path / "run").glob("rollouts/*"))
