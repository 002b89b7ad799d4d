"""The difficulty map on the command line: the commands of docs/sampling.md do what it says."""

import re
import shlex
from pathlib import Path

import pytest
from small import whet

from whet.data.problems import read_problems
from whet.store.files import write_rows
from whet.store.rollouts import write_rollouts
from whet.testing.fakes import sum_problem
from whet.types import Group, Problem, Rollout, Score, Verdict

PAGE = (Path(__file__).parents[2] / "docs" / "sampling.md").read_text()
EASY, MIDDLE, HARD, UNSEEN = (sum_problem(number, 1) for number in range(4))


def grade(problem: Problem, verdicts: str, model: str) -> Group:
    """Make answers of a model that came as text: r is right, w wrong."""
    names = {"r": Verdict.CORRECT, "w": Verdict.WRONG}
    return tuple(
        Rollout.from_text(
            problem, "4", model=model, number=n, score=Score(verdict=names[sign], parts={})
        )
        for n, sign in enumerate(verdicts)
    )


@pytest.fixture
def commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """The commands of the page, in a folder with the runs and problems that they name."""
    monkeypatch.chdir(tmp_path)
    runs = {
        "mine": [grade(EASY, "rrrr", "m"), grade(MIDDLE, "rwww", "m"), grade(HARD, "wwww", "m")],
        "teach": [grade(EASY, "r", "s"), grade(MIDDLE, "rw", "s")],
        "teach_more": [grade(HARD, "ww", "s")],
    }
    for name, groups in runs.items():
        write_rollouts(Path("runs") / name / "rollouts" / "train-000000.parquet", groups)
    problems = (EASY, MIDDLE, HARD, UNSEEN)
    write_rows(Path("data/mine/problems-rl.jsonl"), (problem.to_json() for problem in problems))
    section = PAGE.partition("## Difficulty map\n")[2].partition("\n## ")[0]
    block = re.search(r"^```bash\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    assert block is not None
    return [shlex.split(line)[1:] for line in block[1].splitlines()]


def test_the_commands_fill_show_and_filter(commands: list[list[str]]) -> None:
    said = [whet(*command) for command in commands]

    assert [one.code for one in said] == [0] * len(commands), [one.err for one in said]
    assert "unknown" in said[2].out, "the answers have no tokens"
    kept = read_problems(Path("data/band/problems-rl.jsonl"))
    assert [(problem.id, problem.level) for problem in kept] == [
        (MIDDLE.id, 0.75),
        (UNSEEN.id, UNSEEN.level),
    ]
