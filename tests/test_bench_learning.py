"""The learning studies run from their command line to their last line, and go on where they
were."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "bench"))

from cotrain import reached  # noqa: E402
from learning import best, candidates, to_table  # noqa: E402
from study.arms import EXPERIMENT, Plan, check, settings  # noqa: E402
from study.countdown import GRID, METHODS  # noqa: E402
from study.curves import Line, Panel, draw  # noqa: E402
from study.jobs import Clock, Job, Machine, run_all  # noqa: E402

MAKE = """kind = "run"
task.name = "game24"
[stages.problems]
kind = "make"
task = {{ name = "countdown", count = {count}, level = [0.0, 0.199] }}
"""
SMALL = [
    "problems.most={ sft = 200, rl = 40, dev = 20, test = 20 }",
    "traces.per_problem=2", 'sft.model={ new = "tiny", positions = 48 }', "sft.steps=20", "sft.batch_size=32",
    "forms.samples=1", 'verifier.model={ new = "tiny", positions = 192 }', "verifier.steps=10", "verifier.batch_size=16",
    "tango.steps=6", "tango.warmup=2", "tango.problems_per_step=4", "tango.group_size=4", "tango.verifier_group_size=4",
    "outcome.steps=3", "outcome.problems_per_step=4", "outcome.group_size=4",
]  # fmt: skip
HERE = Machine(jobs=2, threads=1, device="cpu")


def bench(name: str, out: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [
        sys.executable,
        str(ROOT / "bench" / f"{name}.py"),
        "--threads",
        "1",
        "--out",
        str(out),
        *options,
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=240, cwd=out.parent)


@pytest.mark.slow
@pytest.mark.cluster
def test_the_learning_study_measures_methods_from_one_start_and_repeats_nothing(
    tmp_path: Path,
) -> None:
    options = [
        "--seeds",
        "1",
        "--methods",
        "GRPO",
        "DPO",
        "--lr",
        "1e-3",
        "--steps",
        "2",
        "--sft-steps",
        "40",
    ]
    options += ["--problems", "120"]
    done = bench("learning", tmp_path / "out", *options)
    assert done.returncode == 0, done.stderr[-2000:]
    row = json.loads(done.stdout.splitlines()[-1])
    assert row["failed"] == []
    assert {name: found["lr"] for name, found in row["methods"].items()} == {
        "GRPO": 1e-3,
        "DPO": 1e-3,
    }
    run = row["methods"]["GRPO"]["runs"]["1"]
    assert run["before"] == row["methods"]["DPO"]["runs"]["1"]["before"]
    assert run["gain"]["mean"] == pytest.approx(run["after"]["mean"] - run["before"]["mean"])
    assert run["gain"]["count"] == 120
    assert done.stdout.count("\n| ") == 3, "a rule and two methods below the head"
    assert json.loads((tmp_path / "out" / "learning.json").read_text()) == row
    assert "not empty" in bench("learning", tmp_path / "out", *options).stderr
    again = bench("learning", tmp_path / "out", *options, "--resume")
    assert again.stderr.count("done before") == 3
    assert json.loads(again.stdout.splitlines()[-1]) == row


@pytest.mark.slow
def test_a_job_runs_after_what_it_needs_and_one_that_failed_takes_what_needs_it_along(
    tmp_path: Path,
) -> None:
    good = Job(
        name="good", text=MAKE.format(count=3), folder=tmp_path / "good", needs=("elsewhere",)
    )
    bad = Job(name="bad", text=MAKE.format(count=-1), folder=tmp_path / "bad")
    later = Job(name="later", text=MAKE.format(count=3), folder=tmp_path / "later", needs=("bad",))
    failed = run_all([later, bad, good], HERE)
    assert set(failed) == {"bad", "later"}
    assert "count" in failed["bad"]
    assert good.is_done and not later.folder.exists()
    began = time.monotonic()
    assert run_all([good], HERE) == {}
    assert time.monotonic() - began < 1.0, "what is done is not started again"
    assert not Job(name="good", text=MAKE.format(count=4), folder=tmp_path / "good").is_done


def test_time_left_is_that_of_the_work_left_over_all_jobs_at_once() -> None:
    clock = Clock(total=10.0, at_once=2)
    clock.count(4.0, 20.0)
    assert clock.left() == "about 15 s left"


def test_the_search_tries_every_rate_with_every_choice_and_takes_the_best_on_dev() -> None:
    tried = candidates(METHODS["GSPO"])
    assert [method.lr for method in tried] == [*GRID, *GRID]
    assert len({method.settings for method in tried}) == 2
    assert best(tried, [None, 0.2, 0.1, 0.3, 0.0, 0.3, None, 0.1]) is tried[3]


def test_a_method_that_did_not_end_has_a_row_that_says_so() -> None:
    lines = to_table([1, 2], {"PPO": None}).splitlines()
    assert lines[0].count("|") == lines[2].count("|")
    assert "did not end" in lines[2]


@pytest.mark.slow
@pytest.mark.cluster
def test_the_co_training_study_runs_both_arms_from_one_start_and_draws_them(tmp_path: Path) -> None:
    options = [
        "--seeds",
        "1",
        "--jobs",
        "2",
        "--every",
        "3",
        "--samples",
        "1",
        "--svg",
        str(tmp_path / "curves.svg"),
    ]
    done = bench("cotrain", tmp_path / "out", *options, "--set", *SMALL)
    assert done.returncode == 0, done.stderr[-2000:]
    row = json.loads(done.stdout.splitlines()[-1])
    assert (row["seeds"], row["failed"], row["updates"]) == ([1], [], 3)
    tango, outcome = (row["runs"][arm]["1"]["pass_at_1"] for arm in ("tango", "outcome"))
    assert list(tango) == list(outcome) == ["0", "3"]
    assert tango["0"] == outcome["0"]
    assert set(row["runs"]["tango"]["1"]["step_f1"]) == {"0", "3"}
    assert row["runs"]["outcome"]["1"]["step_f1"] == {}
    assert "co-training" in (tmp_path / "curves.svg").read_text()


def plan(tmp_path: Path, *changes: str) -> Plan:
    return Plan(out=tmp_path, stages=settings(EXPERIMENT, changes, 4), every=6)


def test_both_arms_of_the_experiment_have_as_many_updates_of_the_generator(tmp_path: Path) -> None:
    check(plan(tmp_path))
    assert plan(tmp_path).updates == [6, 12, 18, 24, 30, 36]
    # 12 steps of warm-up, then one of the verifier after every three of the generator.
    assert [plan(tmp_path).step("tango", update) for update in (0, 6, 36)] == [12, 20, 60]
    with pytest.raises(SystemExit, match=r"outcome.steps = 30 are 52 steps of co-training, not 60"):
        check(plan(tmp_path, "outcome.steps=30"))


def test_an_arm_reads_its_start_from_the_folder_of_another_pipeline(tmp_path: Path) -> None:
    jobs = {job.name: job for job in plan(tmp_path).jobs(2)}
    tango, curve = jobs["tango, seed 2"], jobs["tango_curve, seed 2"]
    assert (tango.needs, curve.needs) == (("verifier, seed 2",), ("tango, seed 2",))
    assert f'path = "{tmp_path}/sft-2/03-sft"' in tango.text
    assert f'path = "{tmp_path}/verifier-2/02-verifier"' in tango.text
    assert "every = 4\n" in tango.text, "steps 20, 28, 36, 44 and 52 have a checkpoint"
    assert f'path = "{tmp_path}/tango-2/01-tango/checkpoints/000060"' in curve.text
    assert "@" not in tango.text + curve.text


def test_updates_needed_lie_on_a_straight_line_between_two_measurements() -> None:
    rising = {0: 0.1, 6: 0.2, 12: 0.4}
    assert reached(rising, 0.25) == pytest.approx(7.5)
    assert reached(rising, 0.1) == 0
    assert reached(rising, 0.5) is None


def test_a_curve_has_its_band_and_a_thin_one_no_name() -> None:
    whole = Line(
        name="mean", colour="#111", at=[0, 1], values=[0.1, 0.2], low=[0.0, 0.1], high=[0.2, 0.3]
    )
    thin = Line(name="seed", colour="#222", at=[0, 1], values=[0.1, 0.3], is_thin=True)
    drawn = draw([Panel(title="a < b", axis="steps", lines=[whole, thin])])
    assert (drawn.count("<polygon"), drawn.count("<polyline")) == (1, 2)
    assert ">mean<" in drawn and ">seed<" not in drawn
    assert "a &lt; b" in drawn
