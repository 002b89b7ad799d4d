"""A study as a command: stages that runs share are computed once, a failed run does not end it, and
the same command resumes where it stopped."""

import json
from pathlib import Path

import pytest
from small import files, whet, write

from whet.study.runs import RunPlanner
from whet.study.study_file import load_study

STUDY = """kind = "study"
seeds = [1]
rounds = ["temperature"]
[base]
task = { name = "arithmetic", level = [0.0, 0.199] }
sampling.max_tokens = 16
[base.stages.problems]
kind = "make"
task.count = 40
most = { sft = 12, rl = 0, dev = 4, test = 8 }
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
[base.stages.after]
kind = "eval"
problems = "@problems"
model.path = "@sft"
samples = 2
[factors.temperature.one]
[factors.temperature.half]
stages.after.sampling.temperature = 0.5
[factors.temperature.nowhere]
stages.after.problems = "nowhere"
"""


def test_a_study_shares_stages_survives_a_failure_and_repeats_nothing(tmp_path: Path) -> None:
    file, out = write(tmp_path / "s.toml", STUDY), tmp_path / "out"
    said = whet("study", file, "--out", out, "--jobs", "2")
    assert said.code == 0, said.err
    results = json.loads((out / "study.json").read_text())
    states = {run["name"]: run["state"] for run in results["runs"]}
    assert states == {"one+seed1": "done", "half+seed1": "done", "nowhere+seed1": "failed"}
    assert "nowhere" in results["rounds"][0]["failed"]["nowhere+seed1"]
    assert results["rounds"][0]["sentence"].endswith("1 of its runs failed and are left out.")
    assert "cannot tell" in said.out and (out / "study.html").is_file()
    first = files(out / "stages")
    folders = [path.name.partition("-")[0] for path in (out / "stages").iterdir()]
    assert sorted(folders) == ["after", "after", "after", "answers", "problems", "sft"]
    said = whet("study", file, "--out", out, "--seeds", "[1, 2]", "--budget.runs", "3")
    assert (said.code, said.last) == (
        2,
        (
            "whet: the budget of 3 runs is spent; with a larger --budget.runs the same command "
            "continues"
        ),
    )
    assert files(out / "stages") == first


def test_runs_have_the_keys_of_shared_stages_in_common(tmp_path: Path) -> None:
    study = load_study(write(tmp_path / "s.toml", STUDY), ["--seeds=[1, 2]"])
    planner = RunPlanner(study=study, folder=tmp_path / "out")
    runs = planner.list_runs(study.config.rounds[0], study.first_levels)
    keys = {run.name: [stage.key for stage in run.stages] for run in runs}
    assert keys["one+seed1"][:3] == keys["half+seed1"][:3]
    assert keys["one+seed1"][0] == keys["one+seed2"][0]
    assert keys["one+seed1"][1:] != keys["one+seed2"][1:]
    assert keys["one+seed1"][3] != keys["half+seed1"][3]


def test_a_plan_counts_runs_and_shared_stages_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = whet("study", write(tmp_path / "s.toml", STUDY), "--plan", "--jobs", "2")
    assert said.code == 0, said.err
    assert "3 runs of 12 stages, of which 6 are shared and computed once, 2 at a time" in said.out
    assert [path.name for path in tmp_path.iterdir()] == ["s.toml"]
