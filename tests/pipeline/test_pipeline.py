import json
import os
import time
from pathlib import Path

import pytest
from small import Pipeline, files, half_written, whet, write

from whet.store.lock import Lock

STAGES = ["01-problems", "02-traces", "03-sft", "04-sft_eval", "05-rl", "06-rl_eval"]
JUST_MAKE = 'kind = "run"\ntask.name = "game24"\n[stages.problems]\nkind = "make"\n'


def stage_files(folder: Path) -> dict[str, dict[str, tuple[str, int]]]:
    return {path.name: files(path) for path in sorted(folder.glob("[0-9][0-9]-*"))}


def test_stages_run_in_the_order_of_the_file_each_in_a_folder_of_its_own(tiny: Pipeline) -> None:
    assert sorted(path.name for path in tiny.folder.glob("[0-9][0-9]-*")) == STAGES
    shown = [line for line in tiny.said.err.splitlines() if line in STAGES]
    assert shown == STAGES


def test_the_summary_has_pass_at_1_with_its_interval_after_sft_and_after_rl(tiny: Pipeline) -> None:
    summary = json.loads((tiny.folder / "summary.json").read_text())
    assert [row["name"] for row in summary["stages"]] == ["sft", "rl"]
    for row in summary["stages"]:
        one = row["pass@1"]
        assert 0 <= one["low"] <= one["mean"] <= one["high"] <= 1
        assert one["count"] == 409
        assert row["samples"] == 2
    assert summary["seed"] == 3


def test_the_summary_says_how_long_each_stage_took(tiny: Pipeline) -> None:
    seconds = json.loads((tiny.folder / "summary.json").read_text())["seconds"]
    assert list(seconds) == ["problems", "traces", "sft", "sft_eval", "rl", "rl_eval"]
    assert all(0 < value < 300 for value in seconds.values())


def test_the_seconds_of_a_stage_include_a_killed_attempt_until_its_last_metric(
    tiny: Pipeline, tmp_path: Path
) -> None:
    folder = tiny.copy(tmp_path / "run")
    stage = folder / "05-rl"
    key = json.loads((stage / "stage.json").read_text())["key"]
    unfinish(stage)
    began = time.time() - 5000
    facts = {"key": key, "began": began, "spent": 100.0}
    (stage / "stage.json").write_text(json.dumps(facts))
    os.utime(stage / "metrics.jsonl", (began + 2000, began + 2000))

    assert whet("run", tiny.file, "--out", folder, "--resume").code == 0

    seconds = json.loads((folder / "summary.json").read_text())["seconds"]["rl"]
    assert 2100 < seconds < 2400


def test_nothing_half_written_is_left(tiny: Pipeline) -> None:
    assert half_written(tiny.folder) == []


def test_a_second_call_repeats_nothing_and_is_quick(tiny: Pipeline, tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path / "run")
    before = stage_files(folder)
    began = time.monotonic()
    said = whet("run", tiny.file, "--out", folder)
    assert said.code == 0
    assert stage_files(folder) == before
    assert said.err.count("done before") == 6
    assert time.monotonic() - began < 3


def test_a_changed_setting_runs_its_stage_and_those_that_depend_on_it_and_only_those(
    tiny: Pipeline, tmp_path: Path
) -> None:
    folder = tiny.copy(tmp_path / "run")
    before = stage_files(folder)
    said = whet("run", tiny.file, "--out", folder, "--stages.rl.steps", "2")
    after = stage_files(folder)
    assert said.code == 0, said.err
    assert {name for name in STAGES if after[name] == before[name]} == set(STAGES[:4])
    assert "05-rl: its settings or inputs changed; the old result moves to" in said.err
    assert files(folder / ".old-05-rl-1") == before["05-rl"]
    assert files(folder / ".old-06-rl_eval-1") == before["06-rl_eval"]


def test_code_of_the_users_that_changed_runs_its_stage_again(tmp_path: Path) -> None:
    code = tmp_path / "mine.py"
    task = """
from whet.tasks.base import Task
from whet.types import Message, Problem, Score, Verdict

class Mine(Task):
    name = "mine"

    def problems(self, split):
        prompt = (Message(role="user", content="TEXT"),)
        fields = {"payload": {}, "level": None, "source": "mine"}
        yield Problem(
            id="mine/1", task="mine", prompt=prompt, answer="1", split=split, **fields
        )

    def score(self, problem, text):
        return Score(verdict=Verdict.CORRECT if text == "1" else Verdict.WRONG)

    def solve(self, problem, seed):
        return "1"
"""
    file = write(
        tmp_path / "p.toml",
        f'kind = "run"\ntask = "{code}:Mine"\n[stages.problems]\nkind = "make"\n',
    )
    said = []
    for text in ("one", "one", "two"):
        code.write_text(task.replace("TEXT", text))
        said.append(whet("run", file, "--out", tmp_path / "run"))
        assert said[-1].code == 0, said[-1].err
    assert "01-problems: done before" in said[1].err
    assert "01-problems: its settings or inputs changed" in said[2].err


def test_a_result_that_moves_aside_twice_keeps_both_old_ones(tmp_path: Path) -> None:
    file = write(tmp_path / "p.toml", JUST_MAKE)
    for most in (0, 1, 2):
        assert (
            whet("run", file, "--out", tmp_path / "run", "--stages.problems.most.sft", most).code
            == 0
        )
    aside = sorted(path.name for path in (tmp_path / "run").glob(".old-*"))
    assert aside == [".old-01-problems-1", ".old-01-problems-2"]


def test_another_seed_makes_no_other_problems_so_those_that_are_there_stay(tmp_path: Path) -> None:
    file, folder = write(tmp_path / "p.toml", JUST_MAKE), tmp_path / "run"
    assert whet("run", file, "--out", folder).code == 0
    said = whet("run", file, "--out", folder, "--seed", 1)
    assert said.code == 0 and "01-problems: done before" in said.err
    unfinish(folder / "01-problems")
    said = whet("run", file, "--out", folder, "--seed", 2, "--resume")
    assert said.code == 0, said.err
    assert not list(folder.glob(".old-*"))


def test_the_seed_of_the_file_is_that_of_every_stage_that_names_none(tmp_path: Path) -> None:
    text = 'kind = "run"\ntask.name = "game24"\nseed = 9\n[stages.a]\nkind = "make"\n[stages.b]\nkind = "make"\nseed = 4\n'
    said = whet("show", write(tmp_path / "p.toml", text))
    seeds = [line.split()[2] for line in said.out.splitlines() if ".seed" in line]
    assert seeds == ["9", "4"]


def test_where_a_value_came_from_is_in_the_settings_of_its_stage(tiny: Pipeline) -> None:
    text = (tiny.folder / "05-rl" / "config.toml").read_text()
    rows = [line.split() for line in text.splitlines() if line.startswith("# ") and " = " in line]
    origins = {row[1]: row[-1] for row in rows}
    assert origins["group_size"] == "tiny.toml"
    assert origins["algo.clip_low"] == "default"


@pytest.mark.parametrize("other", ["nowhere", "later", "sft"])
def test_a_reference_to_no_earlier_stage_is_one_sentence(tmp_path: Path, other: str) -> None:
    text = f"""kind = "run"
task.name = "game24"
[stages.problems]
kind = "make"
[stages.sft]
kind = "sft"
data = "@{other}"
model = {{ new = "tiny" }}
[stages.later]
kind = "teach"
"""
    said = whet("run", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert said.code == 2
    assert said.err == (
        f"whet: stage 'sft' refers to @{other}, which is not an earlier stage; earlier ones: "
        "problems\n"
    )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("verb", ["run", "plan", "show"])
@pytest.mark.parametrize("others", [("a", "b"), ("b", "a")])
def test_stages_that_refer_to_themselves_or_in_a_circle_are_one_sentence(
    tmp_path: Path, verb: str, others: tuple[str, str]
) -> None:
    stages = [
        f'[stages.{n}]\nkind = "rl"\nmodel = {{ path = "@{o}" }}\n'
        for n, o in zip("ab", others, strict=True)
    ]
    said = whet(
        verb, write(tmp_path / "p.toml", 'kind = "run"\ntask.name = "game24"\n' + "".join(stages))
    )
    assert said.code == 2
    assert said.err == (
        f"whet: stage 'a' refers to @{others[0]}, which is not an earlier stage; earlier "
        "ones: none\n"
    )


def test_a_circle_by_a_flag_is_found_before_a_smoke_run_writes_anything(tmp_path: Path) -> None:
    file = write(
        tmp_path / "p.toml",
        'kind = "run"\ntask.name = "game24"\n[stages.a]\nkind = "rl"\nmodel = { path = "x" }\n',
    )
    said = whet("run", file, "--out", tmp_path / "run", "--smoke", "--stages.a.model.path", "@a")
    assert said.code == 2 and "refers to @a, which is not an earlier stage" in said.last
    assert not (tmp_path / "run").exists()


def test_a_lone_stage_is_planned_without_going_in_circles(tmp_path: Path) -> None:
    said = whet(
        "plan",
        write(
            tmp_path / "rl.toml", 'kind = "rl"\ntask.name = "game24"\nmodel = { path = "@rl" }\n'
        ),
    )
    assert said.code == 2 and said.err.count("\n") == 1 and "@rl" in said.last


def test_text_that_begins_with_an_at_sign_is_a_stage_only_where_a_place_is_asked_for(
    tmp_path: Path,
) -> None:
    text = (
        'kind = "run"\ntask.name = "game24"\n[stages.a]\nkind = "rl"\nmodel = { path = "x" }\n'
        'track = { sinks = ["wandb"], project = "@end" }\n'
    )
    said = whet("show", write(tmp_path / "p.toml", text))
    assert said.code == 0, said.err
    assert '"@end"' in said.out


def test_an_unfinished_stage_asks_for_resume(tiny: Pipeline, tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path / "run")
    unfinish(folder / "05-rl")
    said = whet("run", tiny.file, "--out", folder)
    assert said.code == 2
    assert said.last == (
        f"whet: {folder / '05-rl'} holds an unfinished run (step 6, checkpoint of step 6): "
        "add --resume to continue it, or choose another folder"
    )


def test_resume_goes_on_with_the_unfinished_stage_alone(tiny: Pipeline, tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path / "run")
    before = stage_files(folder)
    unfinish(folder / "05-rl")
    said = whet("run", tiny.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    after = stage_files(folder)
    assert "resuming from step 6" in said.err
    assert {name for name in STAGES if after[name] == before[name]} == {*STAGES} - {"05-rl"}


def test_a_stage_that_ended_just_before_a_kill_counts_as_done(
    tiny: Pipeline, tmp_path: Path
) -> None:
    folder = tiny.copy(tmp_path / "run")
    facts = json.loads((folder / "05-rl" / "stage.json").read_text())
    (folder / "05-rl" / "stage.json").write_text(json.dumps({"key": facts["key"], "spent": 1.0}))
    said = whet("run", tiny.file, "--out", folder)
    assert said.code == 0
    assert "step" not in said.err.split("05-rl")[1].split("06-rl_eval")[0]


def test_two_processes_cannot_share_a_run_folder(tiny: Pipeline, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    lock = Lock(folder)
    said = whet("run", tiny.file, "--out", folder)
    lock.close()
    assert said.code == 2
    assert "is being written by process" in said.last
    assert [path.name for path in folder.iterdir()] == [".lock"]


@pytest.mark.parametrize("name", ["../out", "a b", ".x", ""])
def test_a_stage_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    file = write(
        tmp_path / "p.toml",
        f'kind = "run"\ntask.name = "game24"\n[stages."{name}"]\nkind = "make"\n',
    )
    said = whet("run", file, "--out", tmp_path / "run")
    assert said.code == 2
    assert f"the stage name {name!r} may contain only letters, digits, _ and -" in said.err
    assert not (tmp_path / "run").exists()


def test_a_pipeline_without_stages_says_so(tmp_path: Path) -> None:
    said = whet(
        "run",
        write(tmp_path / "p.toml", 'kind = "run"\ntask.name = "game24"\n[stages]\n'),
        "--out",
        tmp_path / "run",
    )
    assert said.code == 2
    assert "stages" in said.err
    assert not (tmp_path / "run").exists()


def test_a_folder_with_brackets_in_its_name_is_named_in_full(tmp_path: Path) -> None:
    folder = tmp_path / "a[b]c"
    said = whet("run", write(tmp_path / "p.toml", JUST_MAKE), "--out", folder)
    assert said.code == 0, said.err
    assert f"problems in {folder}/01-problems/problems-sft.jsonl" in said.err
    assert f"Report   {folder}/report.html" in said.err


def unfinish(folder: Path) -> None:
    """Make a stage look like one that was killed before its summary."""
    (folder / "summary.json").unlink()
    facts = json.loads((folder / "stage.json").read_text())
    (folder / "stage.json").write_text(json.dumps({"key": facts["key"], "spent": facts["spent"]}))
