import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small import Pipeline, half_written, whet, write

from whet.recipes.teach import TeachConfig, teach, write_groups
from whet.store.run import RunStore
from whet.tasks.game24.task import Game24
from whet.types import Author, Rollout, Verdict


def taught(folder: Path, *, workers: int, seed: int = 0) -> list[tuple[str, str, str]]:
    cfg = TeachConfig(task="game24", split="dev", per_problem=3, workers=workers, seed=seed)
    with RunStore.open(folder, cfg, {}, resume=False) as run:
        teach(cfg, run)
        return [(r.id, r.problem.prompt[-1].content, r.text) for r in run.rollouts("train", 0)]


def test_every_answer_is_right_and_signed_by_a_teacher(tiny: Pipeline) -> None:
    rollouts = RunStore.view(tiny.folder / "02-traces").rollouts("train", 0)
    assert {rollout.score.verdict for rollout in rollouts if rollout.score is not None} == {
        Verdict.CORRECT
    }
    assert {rollout.author for rollout in rollouts} == {Author.TEACHER}
    assert {rollout.problem.split for rollout in rollouts} == {"sft"}


def test_no_question_has_the_same_answer_twice(tiny: Pipeline) -> None:
    rollouts = RunStore.view(tiny.folder / "02-traces").rollouts("train", 0)
    pairs = [(rollout.problem.prompt[-1].content, rollout.text) for rollout in rollouts]
    assert len(pairs) == len(set(pairs))
    assert len({rollout.id for rollout in rollouts}) == len(rollouts)


def test_the_summary_counts_problems_and_traces(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "02-traces")
    rollouts: list[Rollout] = run.rollouts("train", 0)
    assert run.summary() == {"problems": 568, "traces": len(rollouts)}
    assert (
        f"{len(rollouts):,} traces of 568 problems, 2 tries each, repeats left out" in tiny.said.err
    )


def test_hands_without_a_solution_are_left_out_unless_asked_for(
    tiny: Pipeline, tmp_path: Path
) -> None:
    problems = str(tiny.folder / "01-problems")
    cfg = TeachConfig(task="game24", split="dev", per_problem=1, workers=1, problems=problems)
    with RunStore.open(tmp_path / "run", cfg, {}, resume=False) as run:
        teach(cfg, run)
        assert run.summary()["problems"] == 102


def test_the_number_of_workers_changes_nothing(tmp_path: Path) -> None:
    assert taught(tmp_path / "one", workers=1) == taught(tmp_path / "two", workers=2)


def test_another_seed_writes_other_answers(tmp_path: Path) -> None:
    assert taught(tmp_path / "a", workers=1) != taught(tmp_path / "b", workers=1, seed=1)


OWN = """from whet.tasks.game24 import Game24


class Strict(Game24):
    name = "strict"

    def solve(self, problem, seed):
        return "1 + 1 = 2"


class Empty(Game24):
    name = "empty"

    def problems(self, split):
        return iter(())
"""


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (
            "Strict",
            "the task's own response to strict/5e587f332d26 is graded no_answer (the last line is not an answer)",
        ),
        (
            "Empty",
            "the task 'empty' makes no problems of the split sft: set `problems` to a folder that has some",
        ),
    ],
)
def test_a_task_of_ones_own_that_is_at_fault_is_one_sentence(
    tmp_path: Path, name: str, words: str
) -> None:
    task = write(tmp_path / "own.py", OWN)
    file = write(tmp_path / "t.toml", f'kind = "teach"\nworkers = 1\ntask = "{task}:{name}"\n')
    said = whet("teach", file, "--out", tmp_path / "run")
    assert said.code == 2 and words in said.last
    assert "Traceback" not in said.err and not (tmp_path / "run" / "summary.json").exists()


def long_teach_run(tmp_path: Path) -> subprocess.Popen[str]:
    """Start a teach run with two workers that would take a minute; come back when both are at work."""
    file = write(
        tmp_path / "long.toml",
        'kind = "teach"\ntask.name = "game24"\nper_problem = 300\nworkers = 2\n',
    )
    child = subprocess.Popen(
        [sys.executable, "-m", "whet", "teach", str(file), "--out", str(tmp_path / "run")],
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    while (
        len(members(child.pid)) < 4 and child.poll() is None
    ):  # whet, two workers, and Python's resource tracker
        time.sleep(0.01)
    return child


def members(group: int) -> list[int]:
    """The living processes of a process group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, of = stat.read_text().rpartition(") ")[2].split()[:3]
        except OSError:
            continue
        if int(of) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found


def is_empty_within(group: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while members(group) and time.monotonic() < end:
        time.sleep(0.02)
    return not members(group)


def test_ctrl_c_ends_a_teach_run_and_its_workers_without_a_traceback(tmp_path: Path) -> None:
    child = long_teach_run(tmp_path)
    os.killpg(child.pid, signal.SIGINT)
    _, said = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "Traceback" not in said
    assert said.endswith(
        "stopped; the same command with --resume continues from the last checkpoint\n"
    )
    assert is_empty_within(child.pid, 5)
    assert half_written(tmp_path) == []


def test_workers_do_not_outlive_a_killed_teach_run(tmp_path: Path) -> None:
    child = long_teach_run(tmp_path)
    child.kill()
    child.communicate(timeout=60)
    ended = is_empty_within(child.pid, 5)
    for process in members(child.pid):
        os.kill(process, signal.SIGKILL)
    assert ended


def test_a_worker_writes_groups_whose_answers_depend_on_the_problem_alone() -> None:
    cfg = TeachConfig(task="game24", per_problem=2)
    problems = list(Game24().problems("dev"))[:3]
    together = [[r.text for r in group] for group in write_groups(cfg, problems)]
    apart = [
        [r.text for r in group] for problem in problems for group in write_groups(cfg, [problem])
    ]
    assert together == apart
