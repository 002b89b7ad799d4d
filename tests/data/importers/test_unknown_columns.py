"""Columns that a format does not know are named and counted, and not read; a strict import refuses
them."""

import json
from pathlib import Path

import pytest

from whet.commands.problem_files import import_file
from whet.data.problems import read_problems
from whet.errors import DataError
from whet.types import Json

OLYMPIAD: dict[str, Json] = {"id": 1, "question": "What is 1 + 1?", "final_answer": ["2"]}
GRAPH: dict[str, Json] = {
    "task": "cycle",
    "input_prompt": "Is there a cycle? The nodes are numbered from 0 to 2, and the edges are: "
    "(0, 1) (1, 2).",
    "answer": "### No",
}
PLUS: dict[str, Json] = {
    "task_id": "HumanEval/0",
    "prompt": 'def f(x):\n    """Give it back."""\n',
    "entry_point": "f",
    "canonical_solution": "    return x\n",
    "test": "def check(candidate):\n    assert candidate(1) == 1\n",
}
AREAL: dict[str, Json] = {"prompt": "What is 1 + 1?", "task": "math", "solutions": ["\\boxed{2}"]}


def write_rows(folder: Path, *rows: dict[str, Json]) -> Path:
    file = folder / "rows.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


@pytest.mark.parametrize(
    ("name", "row", "extra"),
    [
        ("olympiadbench", OLYMPIAD, {"modality": "Text-only", "difficulty": "Competition"}),
        ("graphwiz", GRAPH, {"difficulty": "easy"}),
        ("humaneval_plus", PLUS, {"base_input": [[1]], "plus_input": [[2]]}),
        ("areal", AREAL, {"hint": "add them"}),
        ("verl", {"data_source": "openai/gsm8k", "prompt": [{"role": "user", "content": "1 + 1?"}],
                  "reward_model": {"style": "rule", "ground_truth": "2"}}, {"colour": "red"}),
    ],
)  # fmt: skip
def test_unknown_columns_are_counted_and_not_read(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    name: str,
    row: dict[str, Json],
    extra: dict[str, Json],
) -> None:
    file = write_rows(tmp_path, row, {**row, **extra})

    counts = import_file(file, tmp_path / "p.jsonl", format=name)

    assert counts.unread == dict.fromkeys(extra, 1)
    assert counts.num_problems == 2 and not counts.unsupported
    first, second = read_problems(tmp_path / "p.jsonl")
    assert first.id == second.id
    named = ", ".join(f"{column} (1)" for column in extra)
    assert (
        f"{len(extra)} columns that the format does not know are not read (rows): {named}"
        in capsys.readouterr().err
    )
    with pytest.raises(DataError, match=f"line 2: has the unknown field '{next(iter(extra))}'"):
        import_file(file, tmp_path / "q.jsonl", format=name, is_strict=True)


def test_a_needed_column_under_another_name_is_refused_by_its_own_name(tmp_path: Path) -> None:
    file = write_rows(tmp_path, {"id": 1, "ask": "What is 1 + 1?", "final_answer": ["2"]})
    with pytest.raises(DataError, match="has no field 'question'; its fields are id, ask"):
        import_file(file, tmp_path / "p.jsonl", format="olympiadbench")


def test_a_column_of_levels_is_read_although_the_format_does_not_know_it(tmp_path: Path) -> None:
    file = write_rows(tmp_path, {**OLYMPIAD, "grade": 3})
    counts = import_file(
        file, tmp_path / "p.jsonl", format="olympiadbench", level="grade", bins="2,4"
    )

    assert not counts.unread
    assert [problem.level for problem in read_problems(tmp_path / "p.jsonl")] == [0.5]


def test_a_question_with_a_picture_is_left_out(tmp_path: Path) -> None:
    rows = ({**OLYMPIAD, "image_1": None}, {**OLYMPIAD, "id": 2, "image_1": "<image_1>"})
    file = write_rows(tmp_path, *rows)
    counts = import_file(file, tmp_path / "p.jsonl", format="olympiadbench")

    assert counts.num_problems == 1 and not counts.unread
    assert [left.reason for left in counts.unsupported] == ["the question has a picture"]
