import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.batching.rollout_datasets import choose_responses, read_data, split_off_responses
from whet.errors import DataError
from whet.types import Json, Message, Rollout, Verdict

CHAT: Json = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
]


def lines(folder: Path, *rows: Json) -> str:
    file = folder / "mine.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(file)


def test_rows_of_messages_are_answers_to_what_comes_before_the_last(tmp_path: Path) -> None:
    (rollout,) = read_data(lines(tmp_path, {"messages": CHAT}))
    assert rollout.text == "4"
    assert rollout.problem.prompt == (
        Message(role="system", content="Be brief."),
        Message(role="user", content="2 + 2?"),
    )


@pytest.mark.parametrize("column", ["response", "completion"])
def test_rows_of_prompt_and_response_are_answers(column: str, tmp_path: Path) -> None:
    (rollout,) = read_data(lines(tmp_path, {"prompt": "2 + 2?", column: "4", "topic": "sums"}))
    assert (rollout.problem.prompt[-1].content, rollout.text) == ("2 + 2?", "4")


def test_parquet_rows_are_told_from_stored_rollouts_by_their_columns(tmp_path: Path) -> None:
    file = tmp_path / "mine.parquet"
    pq.write_table(pa.table({"prompt": ["2 + 2?", "3?"], "response": ["4", "3"]}), file)
    assert [rollout.text for rollout in read_data(str(file))] == ["4", "3"]


def test_a_column_of_verdicts_decides_which_rows_are_imitated(tmp_path: Path) -> None:
    rows: list[Json] = [
        {"prompt": "2 + 2?", "response": "4", "verdict": "correct"},
        {"prompt": "2 + 2?", "response": "5", "verdict": "wrong"},
        {"prompt": "3 + 3?", "response": "6", "correct": True},
        {"prompt": "3 + 3?", "response": "7", "correct": False},
        {"prompt": "4 + 4?", "response": "8"},
    ]
    kept, left_out = choose_responses(read_data(lines(tmp_path, *rows)), "correct")
    assert [rollout.text for rollout in kept] == ["4", "6", "8"]
    assert left_out == {Verdict.WRONG: 2}


def test_answers_to_one_prompt_have_different_ids_and_one_problem(tmp_path: Path) -> None:
    first, second = read_data(
        lines(tmp_path, {"prompt": "?", "response": "a"}, {"prompt": "?", "response": "b"})
    )
    assert first.id != second.id and first.problem.id == second.problem.id


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (
            {"question": "2 + 2?", "answer": "4"},
            "line 2 should hold messages, or prompt and response; its columns are question, answer",
        ),
        ({"prompt": "2 + 2?"}, "line 2 should hold messages, or prompt and response"),
        (
            {"prompt": "2 + 2?", "response": "4", "verdict": "good"},
            "line 2 has the verdict 'good'; known verdicts: correct, wrong, no_answer, unscored",
        ),
        ({"prompt": "?", "response": "4", "correct": 1}, "line 2 has 1 for `correct`"),
        ({"messages": CHAT[:2]}, "line 2 "),
    ],
)
def test_a_row_of_another_kind_is_named_by_its_line(
    row: dict[str, Json], words: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        read_data(lines(tmp_path, {"prompt": "?", "response": "!"}, row))
    assert words in str(caught.value)


def read_five(folder: Path) -> list[Rollout]:
    rows: list[Json] = [
        {"prompt": f"{index // 2}?", "response": f"answer {index}"} for index in range(10)
    ]
    return read_data(lines(folder, *rows))


def test_held_out_answers_share_no_problem_with_those_trained_on(tmp_path: Path) -> None:
    train, held_out = split_off_responses(read_five(tmp_path), 3, seed=0)
    assert len(train) == 6 and len(held_out) == 4
    assert not {r.problem.id for r in train} & {r.problem.id for r in held_out}


def test_nothing_is_held_out_unless_asked_for(tmp_path: Path) -> None:
    train, held_out = split_off_responses(read_five(tmp_path), 0, seed=0)
    assert (len(train), held_out) == (10, [])


def test_holding_out_everything_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="held_out = 10 leaves nothing to train on"):
        split_off_responses(read_five(tmp_path), 10, seed=0)
