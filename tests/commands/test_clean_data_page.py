"""Every command of docs/clean_data.md does what the page says, in the order of the page."""

import re
import shlex
from pathlib import Path

import pytest
from small import whet

from whet.data.problems import read_problems
from whet.store.files import read_rows, write_rows
from whet.store.rollouts import write_rollouts
from whet.testing.fakes import rollout
from whet.testing.tiny import tiny_policy
from whet.types import Message, Problem, content_id

PAGE = Path(__file__).parents[2] / "docs" / "clean_data.md"
CSV = "question,gold,difficulty,solve_rate\n1 + 1?,2,easy,0.9\n17 * 3?,51,medium,0.5\n2^11?,2048,hard,0.1\n"


def make(number: int, task: str, text: str) -> Problem:
    return Problem(
        id=content_id(task, text),
        task=task,
        prompt=(Message(role="user", content=text),),
        answer=str(number),
        payload={},
        level=number % 5 / 5,
        split="rl",
        source="mine",
    )


def prepare(folder: Path) -> None:
    """Write the files that the page speaks of."""
    raw = [make(n, "math", f"{n} {n + 1} {n + 2} {n * n}") for n in range(60)]
    copy = make(3, "math", "3  4 5 9")
    asked = make(9, "math", "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17")
    more = [make(n, "table", f"sum of {n} and {n * 7}") for n in range(40)]
    write_rows(folder / "raw.jsonl", (p.to_json() for p in [*raw, copy, asked]))
    write_rows(folder / "more.jsonl", (p.to_json() for p in more))
    (folder / "evals").mkdir()
    question = "what is 1 2 3 4 5 6 7 8 9 10 11 12 13 14"
    write_rows(folder / "evals" / "bench.jsonl", [{"id": "b1", "question": question}])
    (folder / "FILE.csv").write_text(CSV)
    tiny_policy().save(folder / "MODEL")
    write_rollouts(folder / "RUN/rollouts/train-000001.parquet", [(rollout(), rollout(number=1))])


def commands() -> list[list[str]]:
    blocks = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    return [shlex.split(line.replace("import FILE", "import FILE.csv"))[1:] for line in lines]


def test_the_commands_of_the_page_run_and_do_what_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    prepare(tmp_path)
    for command in commands():
        said = whet(*command)
        assert said.code == 0, (command, said.err)

    reasons = {row["reason"]: row["partner"] for row in read_rows(Path("clean.left_out.jsonl"))}
    assert reasons == {"exact_duplicate": content_id("math", "3 4 5 9"), "overlap": "b1"}
    assert len(read_problems(Path("clean.jsonl"))) == 100
    splits = [Path(f"data/mine/problems-{name}.jsonl") for name in ("rl", "dev", "test")]
    assert sum(len(read_problems(file)) for file in splits) == 100
    assert [p.level for p in read_problems(Path("rated.jsonl"))] != []
    assert [p.level for p in read_problems(Path("leveled.jsonl"))] == pytest.approx(
        [1 / 6, 0.5, 5 / 6]
    )
    curriculum = read_problems(Path("curriculum.jsonl"))
    assert [p.level for p in curriculum] == sorted(p.level or 0 for p in curriculum)
    assert [sum(p.task == task for p in curriculum) for task in ("math", "table")] == [40, 40]
    assert [sum(p.task == task for p in read_problems(Path("weighted.jsonl"))) for task in ("math", "table")] == [20, 10]  # fmt: skip
    assert "100 problems of 102 are kept." in Path("clean.html").read_text()


def test_every_option_of_the_page_is_one_of_the_command() -> None:
    for name in ("clean", "split", "mix", "stats"):
        shown = whet("data", name, "--help").out
        used = {
            word for line in commands() if line[1] == name for word in line if word.startswith("--")
        }
        assert [option for option in sorted(used) if option not in shown] == []
