"""`whet jobs`: the state of runs, how far they are, and what they last said."""

import os
from pathlib import Path

import pytest
from small import Pipeline, whet

from whet.cluster.jobs import RunProgress, find_runs, read_run_progress
from whet.store.lock import Lock


@pytest.fixture
def run(tiny: Pipeline, tmp_path: Path) -> Path:
    """An RL run of six steps that has not finished."""
    folder = tiny.copy(tmp_path / "runs") / "05-rl"
    (folder / "summary.json").unlink()
    return folder


def test_a_finished_run_is_finished_at_its_last_step(tiny: Pipeline) -> None:
    progress = read_run_progress(tiny.folder / "05-rl")
    assert (progress.state, progress.step, progress.steps) == ("finished", 6, 6)
    assert progress.seconds_left is None


def test_a_run_is_running_while_somebody_holds_its_lock(run: Path) -> None:
    assert read_run_progress(run).state == "stopped"
    lock = Lock(run)
    try:
        assert read_run_progress(run).state == "running"
    finally:
        lock.close()


def test_a_failure_page_after_the_last_step_means_failed(run: Path) -> None:
    page = run / "failure.txt"
    page.write_text("rank 1 …")
    assert read_run_progress(run).state == "failed"
    os.utime(page, (0, 0))
    assert read_run_progress(run).state == "stopped"


def test_the_time_left_is_the_steps_left_at_the_mean_of_the_last() -> None:
    progress = RunProgress(
        name="x", state="running", step=90, steps=100, seconds_per_step=3.5, last_lines=()
    )
    assert progress.seconds_left == 35.0


def test_the_last_lines_are_those_of_the_newest_log_of_rank_0(run: Path) -> None:
    for number, name in enumerate(["start-0-rank-0000", "start-1-rank-0000", "start-1-rank-0001"]):
        log = run / "logs" / "slurm-7-0" / f"{name}.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(f"{name}\n\n")
        os.utime(log, (number, number))
    assert read_run_progress(run).last_lines == ("start-1-rank-0000",)


def test_stages_are_listed_with_their_progress_and_control_characters_escaped(run: Path) -> None:
    log = run.parent / "logs" / "a" / "start-0-rank-0000.log"
    log.parent.mkdir(parents=True)
    log.write_text("\x1b[2J[bold]\n")
    said = whet("jobs", run.parent)
    assert said.code == 0
    assert f"{run}: stopped, step 6 of 6, " in said.out
    assert "  | \\x1b[2J[bold]\n" in said.out
    assert len(find_runs([run.parent])) == 6


def test_a_folder_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    said = whet("jobs", tmp_path / "no")
    assert (said.code, said.last) == (2, f"whet: {tmp_path / 'no'} is not a folder of runs")
