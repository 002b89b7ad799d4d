"""The difficulty stage: its map, the problems it keeps, and what later stages and runs make of them."""

import json
from collections import defaultdict
from pathlib import Path

import pytest
from small import Pipeline, Said, whet, write

from whet.data.difficulty import read_map
from whet.data.problems import problem_file, read_problems, write_problems
from whet.pipeline.pipeline_config import load_stages
from whet.preflight.inputs import InputReader
from whet.store.files import hash_file
from whet.store.run import RunStore
from whet.tasks.base import is_solvable
from whet.testing.fakes import sum_problem
from whet.types import SPLITS, Rollout, Verdict

PIPELINE = """kind = "run"
task.name = "game24"
[stages.problems]
kind = "make"
[stages.traces]
kind = "teach"
problems = "@problems"
[stages.sft]
kind = "sft"
data = "@traces"
problems = "@problems"
model = {{ new = "small" }}
[stages.difficulty]
kind = "difficulty"
model.path = "@sft"
{problems}
[stages.rl]
kind = "rl"
model.path = "@sft"
problems = "@difficulty"
curriculum = {{ kind = "staged", stages = [{{ max_level = 0.5 }}, {{ min_level = 0.5 }}] }}
"""
LENIENT = """from dataclasses import replace
from whet.tasks.game24 import Game24
from whet.types import Verdict
class Lenient(Game24):
    def score(self, problem, text):
        score = super().score(problem, text)
        return replace(score, verdict=Verdict.CORRECT) if len(text) % 2 else score
"""
STAGE = """kind = "run"
[stages.difficulty]
kind = "difficulty"
task = "{task}"
problems = "{problems}"
model.path = "{model}"
samples = 4
sampling.max_tokens = 24
rates = {rates}
"""
STUDY = """kind = "study"
seeds = [1]
rounds = ["group"]
measure = "rl"
metric = "score/correct"
[base]
task = { name = "arithmetic", level = [0.0, 0.199] }
sampling.max_tokens = 8
[base.stages.problems]
kind = "make"
task.count = 40
most = { sft = 12, rl = 8, dev = 4, test = 8 }
[base.stages.answers]
kind = "teach"
problems = "@problems"
per_problem = 1
workers = 1
[base.stages.sft]
kind = "sft"
data = "@answers"
problems = "@problems"
model = { new = "tiny", positions = 64 }
steps = 4
batch_size = 4
[base.stages.difficulty]
kind = "difficulty"
problems = "@problems"
model.path = "@sft"
samples = 2
rates = ["<1"]
[base.stages.rl]
kind = "rl"
problems = "@difficulty"
model.path = "@sft"
steps = 1
problems_per_step = 2
group_size = 2
reward.terms = [{ kind = "random" }]
[factors.group.two]
[factors.group.three]
stages.rl.group_size = 3
"""


def measure(tiny: Pipeline, place: Path, rates: list[str], *, lenient: bool = True) -> Said:
    """Measure forty problems with the model of a finished pipeline, which solves none: a lenient
    grader also accepts responses of an odd length."""
    source = tiny.folder / "01-problems"
    for split in ("rl", "dev"):
        write_problems(place / "data", split, read_problems(problem_file(source, split))[:40])
    task = f"{write(place / 'lenient.py', LENIENT)}:Lenient" if lenient else "game24"
    model = tiny.folder / "03-sft"
    text = STAGE.format(task=task, problems=place / "data", model=model, rates=json.dumps(rates))
    return whet("run", write(place / "d.toml", text), "--out", place / "run")


def view(said: Said, place: Path) -> RunStore:
    assert said.code == 0, said.err
    return RunStore.view(place / "run" / "01-difficulty")


def is_right(rollout: Rollout) -> bool:
    return rollout.score is not None and rollout.score.verdict is Verdict.CORRECT


def read_verdicts(run: RunStore) -> dict[str, list[bool]]:
    """Read the stored responses: whether each is right, by problem."""
    rows: dict[str, list[bool]] = defaultdict(list)
    for rollout in run.rollouts("eval", 0):
        rows[rollout.problem.id].append(is_right(rollout))
    return rows


@pytest.mark.parametrize("problems", ['problems = "@problems"', ""])
def test_a_pipeline_trains_on_the_problems_that_a_difficulty_stage_writes(
    tmp_path: Path, problems: str
) -> None:
    file = write(tmp_path / "p.toml", PIPELINE.format(problems=problems))
    for command in ("check", "plan"):
        said = whet(command, file)
        assert said.code == 0, said.err
    said = whet("run", file, "--smoke", "--out", tmp_path / "run")
    assert said.code == 0, said.err
    folder = tmp_path / "run" / "04-difficulty"
    summary = RunStore.view(folder).summary()
    names = [problem_file(folder, split).name for split in SPLITS]
    assert summary["files"] == {
        name: hash_file(folder / name) for name in (*names, "difficulty.jsonl")
    }
    kept = {problem.id for problem in read_problems(problem_file(folder, "rl"))}
    trained = RunStore.view(tmp_path / "run" / "05-rl").rollouts("train", 1)
    assert {rollout.problem.id for rollout in trained} <= kept
    assert "rl problems kept" in (tmp_path / "run" / "report.html").read_text()


def test_the_map_counts_the_responses_and_the_folder_has_the_problems_within_the_rates(
    tiny: Pipeline, tmp_path: Path
) -> None:
    run = view(measure(tiny, tmp_path, [">0.25", "<0.75"]), tmp_path)
    right = read_verdicts(run)
    counts = {r.problem: r.count for r in read_map(run.folder / "difficulty.jsonl")}
    assert {id: (count.num_correct, count.num_answers) for id, count in counts.items()} == {
        id: (sum(verdicts), 4) for id, verdicts in right.items()
    }
    within = {id for id, verdicts in right.items() if sum(verdicts) == 2}
    too_hard = sum(sum(verdicts) < 2 for verdicts in right.values())
    too_easy = len(right) - too_hard - len(within)
    kept = {problem.id for problem in read_problems(problem_file(run.folder, "rl"))}
    assert kept & right.keys() == within
    assert min(len(within), too_hard, too_easy) > 0
    (note,) = [row["said"] for row in run.events() if row["event"] == "note"]
    assert note == (
        f"{len(within)} of {len(right)} rl problems kept; left out by pass rate: "
        f"{too_hard} not >0.25, {too_easy} not <0.75; "
        f"{40 - len(right)} without a graded response are kept as well"
    )


def test_problems_without_a_solution_are_not_asked_and_stay(tiny: Pipeline, tmp_path: Path) -> None:
    run = view(measure(tiny, tmp_path, [">0"]), tmp_path)
    source = read_problems(problem_file(tmp_path / "data", "rl"))
    unsolvable = {problem.id for problem in source if not is_solvable(problem)}
    assert unsolvable
    assert unsolvable.isdisjoint(read_verdicts(run))
    assert unsolvable <= {problem.id for problem in read_problems(problem_file(run.folder, "rl"))}


def test_without_rates_all_problems_stay_and_other_splits_are_copied(
    tiny: Pipeline, tmp_path: Path
) -> None:
    run = view(measure(tiny, tmp_path, []), tmp_path)
    for split in ("rl", "dev"):
        copied, source = problem_file(run.folder, split), problem_file(tmp_path / "data", split)
        assert copied.read_bytes() == source.read_bytes()
    assert not problem_file(run.folder, "test").exists()


def test_rates_that_leave_no_problem_are_one_sentence(tiny: Pipeline, tmp_path: Path) -> None:
    said = measure(tiny, tmp_path, [">0"], lenient=False)
    assert said.code == 2
    assert "problems has a pass rate within rates = ['>0']: give wider bounds" in said.last


def test_a_killed_attempt_is_not_counted(tiny: Pipeline, tmp_path: Path) -> None:
    run = view(measure(tiny, tmp_path, []), tmp_path)
    file = run.folder / "difficulty.jsonl"
    whole = file.read_text()
    file.write_text(whole.replace("eval-000000.parquet#", "eval-000000.parquet#0"))
    run.summary_file.unlink()
    said = whet("run", tmp_path / "d.toml", "--out", tmp_path / "run", "--resume")
    assert said.code == 0, said.err
    assert file.read_text() == whole


@pytest.mark.parametrize("rule", ["weak<1", "<2", "0.5", "<1.2.3"])
def test_a_rate_that_is_no_bound_is_refused_before_the_run(tmp_path: Path, rule: str) -> None:
    file = write(
        tmp_path / "d.toml",
        STAGE.format(task="game24", problems="p", model="m", rates=json.dumps([rule])),
    )
    said = whet("show", file)
    assert said.code == 2
    assert said.last.startswith("whet: stages.difficulty.rates")
    assert "should be a bound from 0 to 1 without the name of a model" in said.last


def test_runs_of_a_study_share_one_difficulty_map(tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = whet("study", write(tmp_path / "s.toml", STUDY), "--out", out, "--jobs", "1")
    assert said.code == 0, said.err
    results = json.loads((out / "study.json").read_text())
    assert [run["state"] for run in results["runs"]] == ["done", "done"]
    folders = [path.name.partition("-")[0] for path in (out / "stages").iterdir()]
    assert sorted(folders) == ["answers", "difficulty", "problems", "rl", "rl", "sft"]
    maps = [
        out / run / "04-difficulty" / "difficulty.jsonl" for run in ("two+seed1", "three+seed1")
    ]
    assert maps[0].samefile(maps[1])


def test_a_later_stage_is_checked_on_the_rows_that_the_stage_reads(tmp_path: Path) -> None:
    write_problems(tmp_path, "rl", [sum_problem(1, 2)])
    folder = f'problems = "{tmp_path}"'
    for problems, source in (('problems = "@problems"', None), (folder, str(tmp_path)), ("", None)):
        file = write(tmp_path / "p.toml", PIPELINE.format(problems=problems))
        stages = load_stages(file, [])
        reader = InputReader(stages, is_thorough=False)
        rows = reader.read_split(stages["rl"], "rl")
        assert reader.find_folder(stages["rl"]) == source
        assert rows is not None
        assert (len(rows.problems) == 1) == (source is not None)
