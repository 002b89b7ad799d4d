"""Clean: every row kept or listed with its reason and partner, whole files or none."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from whet.commands.clean_files import CleanOptions, clean_problems, left_out_file
from whet.data.clean import cleaning
from whet.data.problems import read_problems
from whet.errors import ConfigError, DataError
from whet.store.files import read_rows, write_rows
from whet.testing.tiny import tiny_policy
from whet.types import Message, Problem, content_id

TRAIN = "a train leaves the old station at noon and travels north at sixty miles an hour"
OTHER = "three friends share a bag of marbles so that each of them gets two more than the last"


def problem(text: str, answer: str = "1", **payload: str) -> Problem:
    return Problem(
        id=content_id("math", [text, answer]),
        task="math",
        prompt=(Message(role="user", content=text),),
        answer=answer,
        payload=dict(payload),
        level=None,
        split="rl",
        source="mine",
    )


def long_text(*changes: str) -> str:
    """Ninety words; each change replaces one of them."""
    words = [f"{word}{number}" for number in range(6) for word in TRAIN.split()][:90]
    for place, change in enumerate(changes, start=1):
        words[20 * place] = change
    return " ".join(words)


def write(file: Path, problems: Sequence[Problem]) -> Path:
    write_rows(file, (one.to_json() for one in problems))
    return file


def clean(folder: Path, problems: Sequence[Problem], **options: object) -> list[dict[str, object]]:
    """Clean problems; the kept ones have to be the others, and the rows left out come back."""
    file, out = write(folder / "in.jsonl", problems), folder / "out.jsonl"
    clean_problems([file], out, CleanOptions(**options))  # type: ignore[arg-type]
    left_out = read_rows(left_out_file(out))
    gone = [row["at"] for row in left_out]
    kept = [one for line, one in enumerate(problems, 1) if f"{file} line {line}" not in gone]
    assert read_problems(out) == kept
    return [dict(row) for row in left_out]


def test_copies_are_left_out_for_the_first_row_and_nothing_else_is(tmp_path: Path) -> None:
    rows = clean(
        tmp_path,
        [
            problem(OTHER),
            problem(long_text()),
            problem(OTHER.upper() + " "),
            problem(long_text("fast")),
            problem("something else"),
        ],
    )
    assert [(row["reason"], row["partner"], row["partner_at"]) for row in rows] == [
        ("exact_duplicate", problem(OTHER).id, f"{tmp_path}/in.jsonl line 1"),
        ("near_duplicate", problem(long_text()).id, f"{tmp_path}/in.jsonl line 2"),
    ]
    assert rows[1]["similarity"] == round(85 / 91, 3)
    assert rows[0]["problem"] == problem(OTHER.upper() + " ").to_json()


def test_a_similar_question_with_another_answer_is_another_problem(tmp_path: Path) -> None:
    rows = [problem(long_text("forty"), "40"), problem(long_text("fifty"), "50")]
    assert clean(tmp_path, rows) == []
    (row,) = clean(tmp_path / "any", rows, is_any_answer=True)
    assert row["reason"] == "near_duplicate"


def test_an_equal_question_with_another_answer_is_left_out_and_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (row,) = clean(tmp_path, [problem(OTHER, "1"), problem(OTHER, "2")])
    assert row["note"] == "the partner has another answer"
    assert (
        "1 of the repeated rows have a different answer from the first" in capsys.readouterr().err
    )


def test_problems_without_an_answer_are_compared_by_their_payload(tmp_path: Path) -> None:
    def graph(text: str, edges: str) -> Problem:
        return Problem(**{**{name: getattr(problem(text), name) for name in Problem.__slots__}, "answer": None, "payload": {"edges": edges}})  # type: ignore[arg-type]  # fmt: skip

    assert clean(tmp_path, [graph(long_text("a"), "1-2"), graph(long_text("b"), "2-3")]) == []
    assert (
        len(clean(tmp_path / "b", [graph(long_text("a"), "1-2"), graph(long_text("b"), "1-2")]))
        == 1
    )


def test_near_one_leaves_near_duplicates_in(tmp_path: Path) -> None:
    assert clean(tmp_path, [problem(long_text()), problem(long_text("fast"))], near=1.0) == []


def test_overlap_names_the_evaluation_row_and_the_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evals = tmp_path / "evals"
    evals.mkdir()
    (evals / "bench.jsonl").write_text(
        json.dumps({"question": "unrelated"}) + "\n" + json.dumps({"qid": "q7", "question": OTHER})
    )
    (row,) = clean(tmp_path, [problem(f"Puzzle: {OTHER}!"), problem("new")], against=(evals,))
    assert (row["reason"], row["partner"]) == ("overlap", "q7")
    assert row["partner_at"] == f"{evals}/bench.jsonl line 2"
    assert row["shared"] == " ".join(OTHER.split()[:13])
    assert f"1 rows overlap with {evals}/bench.jsonl" in capsys.readouterr().err


def test_words_that_most_rows_share_are_a_frame_and_no_overlap(tmp_path: Path) -> None:
    frame = "Reason step by step and then write your final answer in a box at the end."
    (tmp_path / "eval.jsonl").write_text(json.dumps({"question": f"{OTHER} {frame}"}))
    rows = [problem(f"question {number} of many? {frame}", str(number)) for number in range(12)]
    (row,) = clean(
        tmp_path, [*rows, problem(f"{OTHER}? {frame}")], against=(tmp_path / "eval.jsonl",)
    )
    assert row["at"] == f"{tmp_path}/in.jsonl line 13"


def test_a_question_that_many_rows_repeat_is_no_frame(tmp_path: Path) -> None:
    (tmp_path / "eval.jsonl").write_text(json.dumps({"question": OTHER}))
    rows = [problem(f"{OTHER} {number}") for number in range(12)]
    left_out = clean(tmp_path, [*rows, problem("new")], against=(tmp_path / "eval.jsonl",))
    assert [row["reason"] for row in left_out] == ["overlap"] * 12


def test_a_row_left_out_for_another_reason_is_no_partner_of_a_duplicate(tmp_path: Path) -> None:
    evals = tmp_path / "evals.jsonl"
    evals.write_text(json.dumps({"question": " ".join(long_text().split()[12:25])}))
    rows = [problem(long_text()), problem(long_text("fast")), problem(long_text("slow"))]
    first, second = clean(tmp_path, rows, against=(evals,))
    assert (first["reason"], second["reason"]) == ("overlap", "near_duplicate")
    assert second["partner"] == rows[1].id


def test_prompts_of_more_tokens_than_asked_for_are_left_out(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.save(tmp_path / "model")
    rows = [problem("1 2 3 4"), problem("1 2 3 4 5 6 7 8 9")]
    short, long = (len(policy.chat.encode_prompt(row.prompt)) for row in rows)
    options = {"model": str(tmp_path / "model")}
    assert clean(tmp_path / "long", rows, max_tokens=long, **options) == []
    (row,) = clean(tmp_path / "short", rows, max_tokens=long - 1, **options)
    assert (row["reason"], row["tokens"], short < long) == ("too_long", long, True)


def test_rows_are_written_as_they_were(tmp_path: Path) -> None:
    file = tmp_path / "in.jsonl"
    row = problem("1 + 1").to_json()
    text = json.dumps(row, indent=None, separators=(" , ", " : "))
    file.write_bytes(b"\xef\xbb\xbf" + text.encode() + b"\r\n\n" + text.encode())
    clean_problems([file], tmp_path / "out.jsonl", CleanOptions())
    assert (tmp_path / "out.jsonl").read_text() == text + "\n"


def test_several_processes_decide_as_one_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    problems = [problem(long_text(f"w{n % 7}", f"v{n % 5}"), str(n % 2)) for n in range(60)]
    alone = clean(tmp_path, problems, workers=1)
    monkeypatch.setattr(cleaning, "MIN_SHARED_BYTES", 0)
    (tmp_path / "many").mkdir()
    shared = clean(tmp_path / "many", problems, workers=2)
    assert len(alone) > 20
    assert [row["problem"] for row in shared] == [row["problem"] for row in alone]


def test_a_broken_row_is_named_and_nothing_is_written(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [problem("1 + 1")])
    file.write_text(file.read_text() + "\n" + '{"id": 3}\n')
    with pytest.raises(DataError, match=r"in\.jsonl line 3: not a problem row"):
        clean_problems([file], tmp_path / "out.jsonl", CleanOptions())
    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_a_file_is_replaced_by_force_alone(tmp_path: Path) -> None:
    file, out = write(tmp_path / "in.jsonl", [problem("1 + 1")]), tmp_path / "out.jsonl"
    out.write_text("mine")
    with pytest.raises(ConfigError, match=r"out\.jsonl already exists: add --force"):
        clean_problems([file], out, CleanOptions())
    assert out.read_text() == "mine"
    clean_problems([file], out, CleanOptions(), force=True)
    assert read_problems(out) == [problem("1 + 1")]
    with pytest.raises(ConfigError, match="is one of the files to read"):
        clean_problems([out], out, CleanOptions(), force=True)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"near": 0.3}, "--near 0.3 should be from 0.5 to 1"),
        ({"ngram": 5}, "--ngram 5 should be at least 8"),
        ({"max_tokens": 5}, "give --model and --max-tokens, or neither"),
        ({"workers": 0}, "--workers 0 should be from 1 to 16"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, object], sentence: str
) -> None:
    file = write(tmp_path / "in.jsonl", [problem("1 + 1")])
    with pytest.raises(ConfigError, match=sentence):
        clean_problems([file], tmp_path / "o.jsonl", CleanOptions(**options))  # type: ignore[arg-type]


def test_nothing_is_written_where_no_row_is_left(tmp_path: Path) -> None:
    file = write(tmp_path / "in.jsonl", [problem(OTHER)])
    evals = write(tmp_path / "evals.jsonl", [problem(OTHER)])
    with pytest.raises(DataError, match="no row would be left: 1 that overlap with an evaluation"):
        clean_problems([file], tmp_path / "out.jsonl", CleanOptions(against=(evals,)))
    assert not (tmp_path / "out.jsonl").exists()


def test_the_report_shows_what_was_left_out_and_runs_no_script(tmp_path: Path) -> None:
    hostile = problem("<script>alert(1)</script>")
    file = write(tmp_path / "in.jsonl", [problem(OTHER), problem(OTHER), hostile])
    clean_problems([file], tmp_path / "out.jsonl", CleanOptions(), report=tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "2 problems of 3 are kept." in page
    assert "exact duplicate" in page and "default-src &#39;none&#39;; style-src &#39;sha" in page
    assert "<script" not in page
