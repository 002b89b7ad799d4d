"""A folder of problems without a dev file: some are held out of training, if a run validates."""

import shutil
from pathlib import Path

from small import Pipeline, Said, cut_after, whet, write

from bench.kill_resume import facts
from whet.data.problems import choose_held_out, normalised_question, read_problems, write_problems
from whet.evals.summary import EvalSummary
from whet.store.run import RunStore
from whet.tasks.base import keep_solvable

RL = """kind = "rl"
task.name = "game24"
model = {{ path = "{model}" }}
problems = "{problems}"
steps = 2
problems_per_step = 8
group_size = 2
sampling = {{ max_tokens = 24 }}
validation = {{ samples = 1, every = {every} }}
save = {{ every = 1 }}
"""
SFT = """kind = "sft"
task.name = "game24"
data = "{data}"
model = {{ new = "tiny", positions = 48 }}
problems = "{problems}"
steps = 1
sampling = {{ max_tokens = 24 }}
validation = {{ samples = 1, every = 1 }}
"""


def rl(tiny: Pipeline, folder: Path, *, every: int) -> Said:
    problems = folder / "problems"
    problems.mkdir()
    shutil.copy(tiny.folder / "01-problems" / "problems-rl.jsonl", problems)
    model = tiny.folder / "03-sft"
    text = RL.format(model=model, problems=problems, every=every)
    return whet("rl", write(folder / "rl.toml", text), "--out", folder / "run")


def test_a_run_that_does_not_validate_needs_no_dev_problems(tiny: Pipeline, tmp_path: Path) -> None:
    said = rl(tiny, tmp_path, every=0)
    assert said.code == 0, said.err
    assert "held out" not in said.err
    assert RunStore.view(tmp_path / "run").summary()["validation_pass@1"] is None


def test_problems_to_validate_on_are_held_out_of_training_and_a_resumed_run_is_the_same(
    tiny: Pipeline, tmp_path: Path
) -> None:
    said = rl(tiny, tmp_path, every=1)
    assert said.code == 0, said.err
    problems = tmp_path / "problems"
    rows = read_problems(problems / "problems-rl.jsonl")
    held_out = {normalised_question(problem) for problem in choose_held_out(rows, str(problems))}
    assert 0.03 < len(held_out) / len(rows) < 0.07
    line = f"{problems} has no problems-dev.jsonl: {len(held_out)} of its problems are held out"
    assert line in said.err

    run = RunStore.view(tmp_path / "run")
    validations = [EvalSummary.from_json(row).pass_at[1] for row in run.evals().values()]
    solvable = keep_solvable(choose_held_out(rows, str(problems)))
    assert [estimate.count for estimate in validations] == 3 * [len(solvable)]
    trained = {
        normalised_question(r.problem) for step in (1, 2) for r in run.rollouts("train", step)
    }
    assert len(trained) == 16 and not trained & held_out
    whole = facts(tmp_path, ["run"])
    cut_after(tmp_path / "run", 1)
    again = whet("rl", tmp_path / "rl.toml", "--out", tmp_path / "run", "--resume")
    assert again.code == 0, again.err
    assert facts(tmp_path, ["run"]) == whole


def test_sft_does_not_imitate_answers_to_problems_it_validates_on(
    tiny: Pipeline, tmp_path: Path
) -> None:
    problems = tmp_path / "problems"
    problems.mkdir()
    shutil.copy(tiny.folder / "01-problems" / "problems-sft.jsonl", problems)
    text = SFT.format(data=tiny.folder / "02-traces", problems=problems)
    said = whet("sft", write(tmp_path / "sft.toml", text), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    answers = RunStore.view(tiny.folder / "02-traces").rollouts("train", 0)
    rows = read_problems(problems / "problems-sft.jsonl")
    held_out = {normalised_question(problem) for problem in choose_held_out(rows, str(problems))}
    kept = [answer for answer in answers if normalised_question(answer.problem) not in held_out]
    assert len(kept) < len(answers)
    assert f"{len(kept):,} examples" in said.err


def test_too_few_problems_to_hold_some_out_are_refused(tiny: Pipeline, tmp_path: Path) -> None:
    problems = tmp_path / "problems"
    rows = keep_solvable(read_problems(tiny.folder / "01-problems" / "problems-rl.jsonl"))
    write_problems(problems, "rl", rows[:1])
    text = RL.format(model=tiny.folder / "03-sft", problems=problems, every=1)
    said = whet("rl", write(tmp_path / "rl.toml", text), "--out", tmp_path / "run")
    assert said.code == 2
    assert "too few to hold some out of training: add problems-dev.jsonl" in said.last
