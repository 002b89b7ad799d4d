import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.errors import DataError
from whet.store.rollouts import read_rollouts, stream_rollouts, write_rollouts
from whet.types import (
    Author,
    Completion,
    FinishReason,
    JudgedStep,
    Message,
    Problem,
    Rollout,
    Score,
    Verdict,
)


def problem(number: int) -> Problem:
    return Problem(
        id=f"game24/{number}",
        task="game24",
        prompt=(Message(role="user", content=f"1 2 3 {number}"),),
        answer="24",
        payload={"numbers": [1, 2, 3, number]},
        level=0.5,
        split="rl",
        source="test",
    )


def rollout(
    number: int,
    tokens: int = 3,
    *,
    score: Score | None = None,
    judged_steps: tuple[JudgedStep, ...] = (),
) -> Rollout:
    return Rollout(
        id=f"r{number}",
        group_id=f"g{number // 2}",
        problem=problem(number // 2),
        author=Author.SOLVER,
        model="tiny",
        prompt_tokens=np.array([7, number], dtype=np.int32),
        completion=Completion(
            tokens=np.arange(tokens, dtype=np.int32),
            logprobs=np.linspace(-1, 0, tokens, dtype=np.float32),
            finish_reason=FinishReason.LENGTH,
            policy_version=4,
        ),
        text=f"1 + {number} = ä",
        score=score,
        reward=None if score is None else 0.1,
        judged_steps=judged_steps,
    )


def test_rollouts_come_back_as_they_were(tmp_path: Path) -> None:
    score = Score(
        verdict=Verdict.WRONG,
        parts={"correct": 0.0, "process": 1 / 3},
        answer=None,
        note="misses 24",
    )
    before = [
        rollout(0, score=score, judged_steps=(JudgedStep(start=0, end=2, reward=-1.0),)),
        rollout(1, 0),
        rollout(2),
    ]
    path = tmp_path / "rollouts" / "a.parquet"
    write_rollouts(path, [(before[0], before[1]), (before[2],)])
    after = read_rollouts(path)
    assert [r.id for r in after] == ["r0", "r1", "r2"]
    for old, new in zip(before, after, strict=True):
        assert (new.group_id, new.problem, new.author, new.model, new.text) == (
            old.group_id, old.problem, old.author, old.model, old.text,
        )  # fmt: skip
        assert (new.score, new.reward, new.judged_steps) == (
            old.score,
            old.reward,
            old.judged_steps,
        )
        assert (new.completion.finish_reason, new.completion.policy_version) == (
            FinishReason.LENGTH,
            4,
        )
        assert np.array_equal(new.prompt_tokens, old.prompt_tokens)
        assert np.array_equal(new.completion.tokens, old.completion.tokens)
        assert np.array_equal(new.completion.logprobs, old.completion.logprobs)
        assert new.completion.tokens.dtype.name == "int32"
        assert new.completion.logprobs.dtype.name == "float32"
    assert after[0].problem is after[1].problem


def test_no_rollouts_are_a_file_too(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "a.parquet", [])
    assert read_rollouts(tmp_path / "a.parquet") == []


def test_a_file_that_is_not_whole_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with pytest.raises(DataError, match=f"there is no file {path}"):
        read_rollouts(path)
    write_rollouts(path, [(rollout(0),)])
    whole = path.read_bytes()
    for content in (
        whole[: len(whole) // 2],
        b"",
        b"garbage" * 100,
        whole[:-200] + b"\0" * 192 + whole[-8:],
    ):
        path.write_bytes(content)
        with pytest.raises(
            DataError, match=f"{path} is not a whole Parquet file .*; teach, eval and rl write"
        ):
            read_rollouts(path)


@pytest.mark.parametrize(
    ("column", "value", "told"),
    [
        ("problem", "{}", "not a problem row"),
        ("problem", None, "a row has no problem"),
        ("role", "king", "'king' is not a valid Author"),
        ("parts", "[]", "score parts should be an object"),
        ("steps", "[[1]]", "not enough values"),
        ("tokens", "text", "tokens should be lists of numbers"),
    ],
)
def test_a_row_that_is_no_rollout_is_named(
    tmp_path: Path, column: str, value: str | None, told: str
) -> None:
    path = tmp_path / "a.parquet"
    write_rollouts(path, [(rollout(0, score=Score(verdict=Verdict.WRONG, parts={})),)])
    table = pq.read_table(path)
    changed = table.set_column(
        table.column_names.index(column), column, pa.array([value], pa.string())
    )
    pq.write_table(changed, path)
    with pytest.raises(DataError, match=f"is not a rollout file .*{told}"):
        read_rollouts(path)
    pq.write_table(table.drop_columns([column]), path)
    with pytest.raises(DataError, match=f"is not a rollout file .*{column}"):
        read_rollouts(path)


def test_a_problem_of_many_rollouts_is_stored_once(tmp_path: Path) -> None:
    write_rollouts(tmp_path / "a.parquet", [tuple(rollout(0) for _ in range(100))])
    column = pq.read_table(tmp_path / "a.parquet").column("problem").combine_chunks()
    assert [json.loads(text)["id"] for text in column.dictionary.to_pylist()] == ["game24/0"]


def test_fifty_thousand_teacher_rollouts_take_seconds(tmp_path: Path) -> None:
    groups = [(rollout(number, 0),) for number in range(50_000)]
    start = time.process_time()
    write_rollouts(tmp_path / "a.parquet", groups)
    written = time.process_time()
    assert len(read_rollouts(tmp_path / "a.parquet")) == 50_000
    assert written - start < 4
    assert time.process_time() - written < 4


def test_a_full_disk_leaves_no_half_written_rollouts(tmp_path: Path) -> None:
    script = (
        "import resource, sys; from pathlib import Path; sys.path.insert(0, sys.argv[2])\n"
        "from test_rollouts import rollout; from whet.store.rollouts import write_rollouts\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "write_rollouts(Path(sys.argv[1]), [(rollout(number, 50),) for number in range(2000)])"
    )
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [
        sys.executable,
        "-c",
        script,
        str(tmp_path / "a.parquet"),
        str(Path(__file__).parent),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (
        "a.parquet: File too large; free space or choose another --out"
        in done.stderr.splitlines()[-1]
    )
    assert list(tmp_path.iterdir()) == []


def test_a_stream_of_rollouts_is_read_as_one_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.store.rollouts.BUFFERED_CHARS", 10)
    file = tmp_path / "r.parquet"
    rollouts = [rollout(number) for number in range(7)]
    with stream_rollouts(file) as add:
        for one in rollouts:
            add([one])
    assert pq.ParquetFile(file).num_row_groups == 4
    stored = read_rollouts(file)
    assert [(r.id, r.text, r.problem) for r in stored] == [
        (r.id, r.text, r.problem) for r in rollouts
    ]


def test_a_stream_that_breaks_or_is_empty_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(KeyError), stream_rollouts(tmp_path / "r.parquet") as add:
        add([rollout(1)])
        raise KeyError
    with stream_rollouts(tmp_path / "r.parquet"):
        pass
    assert list(tmp_path.iterdir()) == []
