"""Import, make and show: whole files or none, everything counted, and every mistake one
sentence."""

import io
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from whet.commands.problem_files import import_file, make_problems, show_problems
from whet.data.importers import FORMATS
from whet.data.importers.graphs import GRAPH_ARENA_TASKS
from whet.data.importers.mapped import MAPPED_FIELDS
from whet.data.importers.verl import GURU, NPG, STOCK, TANGO
from whet.data.problems import read_problems
from whet.errors import ConfigError, DataError
from whet.store.rollouts import read_rollouts
from whet.tasks.registry import build_default_task
from whet.types import Author, Json, Verdict


def lines(file: Path, *rows: dict[str, Json]) -> Path:
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def gsm(question: str, answer: int) -> dict[str, Json]:
    return {"question": question, "answer": f"It is so.\n#### {answer}"}


def test_a_file_becomes_problems_with_source_and_place(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, out = (
        lines(tmp_path / "mine.jsonl", gsm("1 + 1?", 2), gsm("1 + 2?", 3)),
        tmp_path / "deep" / "p.jsonl",
    )
    counts = import_file(file, out, format="gsm8k_train")
    problems = read_problems(out)
    assert [(p.task, p.answer, p.split, p.source, p.source_id) for p in problems] == [
        ("math", "2", "rl", "gsm8k_train", "mine.jsonl:1"),
        ("math", "3", "rl", "gsm8k_train", "mine.jsonl:2"),
    ]
    assert counts.num_problems == 2
    assert f"2 problems in {out} (2 math)" in capsys.readouterr().err
    assert sorted(path.name for path in out.parent.iterdir()) == ["p.jsonl", "p.rollouts.parquet"]


def test_worked_solutions_are_kept_as_answers_to_the_prompt_of_rl(tmp_path: Path) -> None:
    row = {
        "question": "Ann has 4 apples, Bo half of them. Together?",
        "answer": "Bo has 4/2 = <<4/2=2>>2.\nTogether 4+2 = <<4+2=6>>6.\n#### 6",
    }
    file = lines(tmp_path / "a.jsonl", row)
    import_file(file, tmp_path / "p.jsonl", format="gsm8k_train")
    (problem,) = read_problems(tmp_path / "p.jsonl")
    (rollout,) = read_rollouts(tmp_path / "p.rollouts.parquet")
    assert rollout.problem == problem
    assert "\\boxed{}" in problem.prompt[-1].content
    assert rollout.text == "Bo has 4/2 = 2.\nTogether 4+2 = 6.\n\n\\boxed{6}"
    assert build_default_task("math").score(problem, rollout.text).verdict is Verdict.CORRECT


def test_a_split_that_is_given_goes_before_that_of_the_format(tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    import_file(
        lines(tmp_path / "a.jsonl", gsm("1 + 1?", 2)), out, format="gsm8k_train", split="dev"
    )
    assert [problem.split for problem in read_problems(out)] == ["dev"]


def test_the_same_rows_have_the_same_ids_in_every_file_and_kind(tmp_path: Path) -> None:
    rows = [gsm("1 + 1?", 2), gsm("1 + 2?", 3)]
    lines(tmp_path / "a.jsonl", *rows)
    (tmp_path / "b.json").write_text(json.dumps(rows))
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "c.parquet")
    ids = []
    for name in ("a.jsonl", "b.json", "c.parquet"):
        import_file(tmp_path / name, tmp_path / "p.jsonl", format="gsm8k_test", force=True)
        ids.append([problem.id for problem in read_problems(tmp_path / "p.jsonl")])
    assert ids[0] == ids[1] == ids[2] and len(set(ids[0])) == 2


def test_repeats_are_counted_and_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = lines(
        tmp_path / "a.jsonl", gsm("1 + 1?", 2), gsm("1 + 2?", 3), gsm("1 + 1?", 2), gsm("1 + 1?", 4)
    )
    counts = import_file(file, tmp_path / "p.jsonl", format="gsm8k_test")
    assert (counts.num_problems, counts.num_repeats) == (4, 1), (
        "another answer makes another problem"
    )
    assert (
        "1 of them ask what an earlier row asks (line 3 repeats line 1); they are kept"
        in capsys.readouterr().err
    )


def test_bad_rows_are_counted_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [gsm("1 + 1?", 2), {"question": "1 + 2?"}, gsm("1 + 3?", 4), {"question": 5}]
    file = lines(tmp_path / "a.jsonl", *rows)

    counts = import_file(file, tmp_path / "p.jsonl", format="gsm8k_test")

    assert (counts.num_problems, len(counts.unsupported)) == (2, 2)
    listed = [
        json.loads(line) for line in (tmp_path / "p.unsupported.jsonl").read_text().splitlines()
    ]
    assert [(row["place"], row["source_id"]) for row in listed] == [
        ("line 2", "a.jsonl:2"),
        ("line 4", "a.jsonl:4"),
    ]
    assert listed[0]["reason"] == "has no field 'answer'; its fields are question"
    said = capsys.readouterr().err
    assert "2 rows left out, listed in" in said
    assert "has no field 'answer'; its fields are question (first: line 2, a.jsonl:2)" in said


def test_a_file_of_bad_rows_alone_is_refused_with_the_first(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"question": "1 + 2?"}, {"question": "1 + 3?"})
    with pytest.raises(
        DataError, match="none of 2 rows can be imported; the first, line 1: has no field 'answer'"
    ):
        import_file(file, tmp_path / "p.jsonl", format="gsm8k_test")
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


def test_strict_stops_at_a_bad_row_and_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    out.write_text("old")
    file = lines(tmp_path / "a.jsonl", gsm("1 + 1?", 2), {"question": "1 + 2?"})
    with pytest.raises(
        DataError, match=r"a\.jsonl line 2: has no field 'answer'; its fields are question"
    ):
        import_file(file, out, format="gsm8k_test", is_strict=True, force=True)
    assert out.read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.jsonl", "p.jsonl"]


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        (
            '{"question": "\\ud800", "answer": "#### 1"}',
            "line 1: has a value that cannot be written as JSON",
        ),
        (
            '{"question": "x", "answer": "#### 1", "level": 1e999}',
            "line 1: 1e999 is too large for a number",
        ),
        ('{"question": "x", "answer": "#### 1", "level": 1}', "unknown field 'level'"),
    ],
)
def test_what_json_cannot_hold_is_refused(row: str, sentence: str, tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(row)
    with pytest.raises(DataError, match=sentence):
        import_file(tmp_path / "a.jsonl", tmp_path / "p.jsonl", format="gsm8k_test", is_strict=True)


def test_a_response_that_no_file_can_hold_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"q": "x", "r": "\\udfff y"}')
    with pytest.raises(DataError, match="line 1: has a value that cannot be written as JSON"):
        import_file(
            tmp_path / "a.jsonl", tmp_path / "p.jsonl", map=["prompt=q", "response=r"], task="math"
        )


def test_a_number_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"q": "x", "n": 1e999}')
    with pytest.raises(DataError, match="line 1: 1e999 is too large for a number"):
        import_file(
            tmp_path / "a.jsonl", tmp_path / "p.jsonl", map=["prompt=q", "payload.n=n"], task="math"
        )


def test_own_columns_are_mapped_from_csv(tmp_path: Path) -> None:
    file, out = tmp_path / "a.csv", tmp_path / "p.jsonl"
    file.write_text("uid,q,gold\n7,Is it?,yes\n")
    import_file(file, out, map=["prompt=q", "answer=gold", "id=uid"], task="yes_no", split="test")
    (problem,) = read_problems(out)
    assert (problem.task, problem.answer, problem.source, problem.source_id) == (
        "yes_no",
        "yes",
        "a.csv",
        "7",
    )


ROWS = """
from whet.data.importers.base import ParsedRow, user


def read(row):
    return ParsedRow(task="math", prompt=user(row.text("q")), answer=row.scalar("gold"), split="dev")


def broken(row):
    return row["nothing"]


def plain(row):
    return dict(row)


def two(row, split):
    return None
"""


def test_a_function_of_the_users_own_reads_rows(tmp_path: Path) -> None:
    (tmp_path / "my_rows.py").write_text(ROWS)
    file = lines(tmp_path / "a.jsonl", {"q": "1 + 1?", "gold": 2, "id": 7})

    import_file(file, tmp_path / "p.jsonl", format=f"{tmp_path}/my_rows.py:read")

    (problem,) = read_problems(tmp_path / "p.jsonl")
    assert (problem.answer, problem.split, problem.source_id) == ("2", "dev", "7")


@pytest.mark.parametrize(
    ("name", "fields", "sentence"),
    [
        ("read", {"q": "x"}, r"a\.jsonl line 1: has no field 'gold'; its fields are q"),
        ("broken", {"q": "x"}, r"line 1: --format = .*broken' raised KeyError in line 10: 'noth"),
        ("plain", {"q": "x"}, r"line 1: --format = .* should return a ParsedRow, not {'q': 'x'}"),
        ("two", {"q": "x"}, r"--format = .* should take \(row\), not \(row, split\)"),
    ],
)
def test_mistakes_of_a_users_function_of_rows_are_named(
    tmp_path: Path, name: str, fields: dict[str, Json], sentence: str
) -> None:
    (tmp_path / "my_rows.py").write_text(ROWS)
    file = lines(tmp_path / "a.jsonl", fields)
    with pytest.raises((ConfigError, DataError), match=sentence):
        import_file(file, tmp_path / "p.jsonl", format=f"{tmp_path}/my_rows.py:{name}")


def test_a_task_of_the_users_own_is_taken_by_its_path(tmp_path: Path) -> None:
    file, out = lines(tmp_path / "a.jsonl", {"q": "x"}), tmp_path / "p.jsonl"
    mine = tmp_path / "my_task.py"
    mine.write_text(
        "from whet.tasks.warmup.letters import Reverse\n\n\nclass Name(Reverse):\n    name = 'mine'\n"
    )
    import_file(file, out, map=["prompt=q"], task=f"{mine}:Name")
    assert read_problems(out)[0].task == f"{mine}:Name"


@pytest.mark.parametrize("task", ["missing.py:Name", "{place}/empty.py:Name"])
def test_a_task_of_the_users_own_that_is_not_there_is_refused(task: str, tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"q": "x"})
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(
        ConfigError, match=r"there is no file missing\.py|has no Name; it has nothing"
    ):
        import_file(file, tmp_path / "p.jsonl", map=["prompt=q"], task=task.format(place=tmp_path))
    assert not (tmp_path / "p.jsonl").exists()


def test_chats_become_teacher_rollouts_beside_the_problems(tmp_path: Path) -> None:
    chat: list[Json] = [
        {"role": "user", "content": "2 + 2?"},
        {"role": "assistant", "content": "4"},
    ]
    again: list[Json] = [chat[0], {"role": "assistant", "content": "four"}]
    file = lines(
        tmp_path / "chats.jsonl", {"messages": chat, "id": "c1"}, {"messages": again, "id": "c2"}
    )
    counts = import_file(file, tmp_path / "p.jsonl", format="messages")
    rollouts = read_rollouts(tmp_path / "p.rollouts.parquet")
    assert [(r.author, r.text, r.score) for r in rollouts] == [
        (Author.TEACHER, "4", None),
        (Author.TEACHER, "four", None),
    ]
    assert {(r.group_id, r.problem.source_id, r.problem.split) for r in rollouts} == {
        (rollouts[0].problem.id, "c1", "sft")
    }
    assert (counts.num_problems, counts.num_rollouts, len(read_problems(tmp_path / "p.jsonl"))) == (
        1,
        2,
        1,
    )


def test_preference_pairs_become_two_rollouts_with_a_score(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"prompt": "2 + 2?", "chosen": "4", "rejected": "5"})
    import_file(file, tmp_path / "p.jsonl", format="preferences")
    rollouts = read_rollouts(tmp_path / "p.rollouts.parquet")
    scores = [(r.text, r.score.verdict, r.score.note) for r in rollouts if r.score is not None]
    assert scores == [("4", Verdict.CORRECT, "chosen"), ("5", Verdict.WRONG, "rejected")]
    assert rollouts[0].group_id == rollouts[1].group_id and rollouts[0].id != rollouts[1].id


def test_unsupported_rows_are_left_out_and_listed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tests: Json = [{"input": "1", "output": "2"}]
    rows: list[dict[str, Json]] = [
        {"id": "cf-1", "problem": "Add one.", "tests": tests},
        {"id": "cf-2", "problem": "Print any of them.", "tests": tests},
    ]
    counts = import_file(
        lines(tmp_path / "a.jsonl", *rows), tmp_path / "p.jsonl", format="codeforces_stdin"
    )
    assert [problem.source_id for problem in read_problems(tmp_path / "p.jsonl")] == ["cf-1"]
    (left,) = counts.unsupported
    assert json.loads((tmp_path / "p.unsupported.jsonl").read_text()) == {
        "place": "line 2",
        "source_id": "cf-2",
        "reason": left.reason,
    }
    said = capsys.readouterr().err
    assert "1 rows left out, listed in" in said and "(first: line 2, cf-2)" in said
    with pytest.raises(DataError, match="line 1: several outputs"):
        import_file(
            lines(tmp_path / "b.jsonl", rows[1]), tmp_path / "q.jsonl", format="codeforces_stdin"
        )
    assert not (tmp_path / "q.jsonl").exists()


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({}, "say how rows are laid out: --map field=column"),
        ({"format": "gsm9k"}, "there is no format 'gsm9k'"),
        ({"format": "gsm8k_test", "map": ["prompt=q"]}, "--format and --map cannot be combined"),
        ({"format": "gsm8k_test", "task": "math"}, "--task needs --map"),
        (
            {"map": ["prompt=q"], "task": "maths"},
            "there is no task 'maths'; known tasks: math, game24",
        ),
        (
            {"format": "gsm8k_test", "split": "train"},
            "--split train should be one of sft, rl, dev, test",
        ),
    ],
)
def test_flags_that_do_not_go_together_are_refused(
    given: dict[str, object], sentence: str, tmp_path: Path
) -> None:
    file = lines(tmp_path / "a.jsonl", gsm("1 + 1?", 2))
    with pytest.raises(ConfigError, match=sentence):
        import_file(file, tmp_path / "p.jsonl", **given)  # type: ignore[arg-type]


def test_the_result_is_json_lines_and_never_the_file_itself(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", gsm("1 + 1?", 2))
    with pytest.raises(ConfigError, match="should end in"):
        import_file(file, tmp_path / "p.parquet", format="gsm8k_test")
    with pytest.raises(ConfigError, match="is the file to import"):
        import_file(file, tmp_path / "x" / ".." / "a.jsonl", format="gsm8k_test")


def test_an_empty_file_or_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("\n")
    with pytest.raises(DataError, match=r"a\.jsonl has no rows"):
        import_file(tmp_path / "a.jsonl", tmp_path / "p.jsonl", format="gsm8k_test")
    with pytest.raises(DataError, match="there is no file"):
        import_file(tmp_path / "b.jsonl", tmp_path / "p.jsonl", format="gsm8k_test")


def test_an_unknown_task_in_a_row_is_refused_at_the_row(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"q": "x", "t": "poetry"})
    with pytest.raises(
        DataError, match=r"a\.jsonl line 1: task 'poetry' is unknown; known tasks: math"
    ):
        import_file(file, tmp_path / "p.jsonl", map=["prompt=q", "task=t"])


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"q": "x", "a": "perhaps", "t": "yes_no"}, "line 1: problem yes_no/.* needs"),
        ({"q": "x", "a": "7", "t": "game24"}, "line 1: problem game24/.* needs four whole numbers"),
        (
            {"q": "x", "a": "1", "t": "code_stdin"},
            "line 1: problem code_stdin/.* needs cases in payload.cases",
        ),
        (
            {"q": "x", "a": "[A]", "t": "mis"},
            "line 1: a graph needs the lists payload.nodes and payload.edges",
        ),
    ],
)
def test_a_row_that_its_grader_could_not_use_is_refused_at_import(
    row: dict[str, Json], sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=sentence):
        import_file(
            lines(tmp_path / "a.jsonl", row),
            tmp_path / "p.jsonl",
            map=["prompt=q", "answer=a", "task=t"],
        )
    assert not (tmp_path / "p.jsonl").exists()


def test_made_problems_are_different_and_the_same_for_the_same_seed(tmp_path: Path) -> None:
    made = {}
    for name, seed in (("a", 1), ("b", 1), ("c", 2)):
        make_problems("countdown", 20, out=tmp_path / name, level=2, seed=seed)
        made[name] = (tmp_path / name).read_text()
    ids = {problem.id for problem in read_problems(tmp_path / "a")}
    assert len(ids) == 20
    assert made["a"] == made["b"] != made["c"]
    assert {round(problem.level or 0, 6) for problem in read_problems(tmp_path / "a")} == {0.3}


@pytest.mark.parametrize(("level", "low", "high"), [(1, 0.0, 0.2), (5, 0.8, 1.0), (0.5, 0.4, 0.6)])
def test_a_task_with_a_list_of_its_own_is_drawn_from_it(
    level: float, low: float, high: float, tmp_path: Path
) -> None:
    make_problems("game24", 30, out=tmp_path / "p.jsonl", level=level, seed=3)
    levels = [problem.level for problem in read_problems(tmp_path / "p.jsonl")]
    assert len(levels) == 30 and all(found is not None and low <= found <= high for found in levels)


@pytest.mark.parametrize(
    ("task", "n", "level", "sentence"),
    [
        ("maths", 1, None, "there is no task 'maths'"),
        ("math", 3, None, "task 'math' makes no problems of its own, and -n asks for 3"),
        (
            "game24",
            5000,
            None,
            "task 'game24' has only 1,362 different problems, and -n asks for 5,000",
        ),
        ("game24", 0, None, "-n 0 should be at least 1"),
        ("game24", 1, 6, "--level 6 should be 1, 2, 3, 4 or 5"),
        ("game24", 1, -0.5, "--level -0.5 should be"),
    ],
)
def test_what_cannot_be_made_is_said(
    task: str, n: int, level: float | None, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        make_problems(task, n, out=tmp_path / "p.jsonl", level=level)
    assert list(tmp_path.iterdir()) == []


def shown(file: Path, n: int, *, is_terminal: bool) -> str:
    screen = io.StringIO()
    show_problems(
        file,
        n,
        console=Console(file=screen, force_terminal=is_terminal, width=100, color_system=None),
    )
    return screen.getvalue()


def test_problems_are_shown_as_plain_lines_off_a_terminal(tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    row: dict[str, Json] = {
        "q": "Which [b]one[/b]?\nA or B",
        "a": "B",
        "o": {"A": "1", "B": "2"},
        "l": 0.5,
    }
    import_file(
        lines(tmp_path / "a.jsonl", row, {**row, "a": "A"}),
        out,
        map=["prompt=q", "answer=a", "payload.options=o", "level=l"],
        task="choice",
        split="test",
    )
    id = read_problems(out)[0].id
    assert shown(out, 1, is_terminal=False) == (
        f"{id} · level 3 (0.50) · test · a.jsonl a.jsonl:1\n"
        "  user:\n    Which [b]one[/b]?\n    A or B\n"
        "  answer:\n    B\n"
        '  payload:\n    options: {"A": "1", "B": "2"}\n\n'
    )


def test_problems_are_shown_in_frames_on_a_terminal(tmp_path: Path) -> None:
    make_problems("knights", 2, out=tmp_path / "p.jsonl", level=1)
    text = shown(tmp_path / "p.jsonl", 2, is_terminal=True)
    assert text.count("╭─ knights/") == 2
    assert "user" in text and "answer" in text and "is a knight" in text


def test_long_payloads_and_texts_are_cut_and_say_so(tmp_path: Path) -> None:
    row: dict[str, Json] = {"q": "x" * 5000, "t": ["y" * 50] * 9}
    import_file(
        lines(tmp_path / "a.jsonl", row),
        tmp_path / "p.jsonl",
        map=["prompt=q", "payload.tests=t"],
        task="math",
    )
    text = shown(tmp_path / "p.jsonl", 1, is_terminal=False)
    assert (
        "… and 1,000 more characters" in text
        and "… (9 items)" in text
        and "answer:\n    none" in text
    )


def test_a_file_of_something_else_is_not_shown(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", {"question": "x"})
    with pytest.raises(DataError, match=r"a\.jsonl line 1: not a problem row"):
        show_problems(file)
    (tmp_path / "b.jsonl").write_text("")
    with pytest.raises(DataError, match=r"b\.jsonl has no problems"):
        show_problems(tmp_path / "b.jsonl")


def test_the_document_lists_every_format_field_and_source() -> None:
    text = (Path(__file__).parents[2] / "docs" / "data.md").read_text()
    for name, layout in FORMATS.items():
        may = f"[{', '.join(layout.optional)}]" if layout.optional else ""
        may = "[*]" if layout.optional is None else may
        fields = " ".join(part for part in (", ".join(layout.required), may) if part)
        assert f"| `{name}` | {layout.about} | {fields} |\n" in text, name
    for name, about in MAPPED_FIELDS.items():
        assert f"| `{name}` | {about} |\n" in text, name
    assert [
        source
        for source in (*STOCK, *TANGO, *GURU, *NPG)
        if source not in GRAPH_ARENA_TASKS and f"`{source}`" not in text
    ] == []


def test_a_file_that_is_there_is_replaced_only_by_force(tmp_path: Path) -> None:
    file = lines(tmp_path / "a.jsonl", gsm("1 + 1?", 2))
    out = tmp_path / "p.jsonl"
    out.write_text("mine")
    with pytest.raises(ConfigError, match=r"p\.jsonl already exists: add --force"):
        import_file(file, out, format="gsm8k_test")
    with pytest.raises(ConfigError, match=r"p\.jsonl already exists: add --force"):
        make_problems("countdown", 1, out=out)
    assert out.read_text() == "mine"
    import_file(file, out, format="gsm8k_test", force=True)
    assert len(read_problems(out)) == 1
    make_problems("countdown", 2, out=out, force=True)
    assert len(read_problems(out)) == 2


def test_what_an_earlier_import_wrote_beside_a_file_goes_with_it(tmp_path: Path) -> None:
    out = tmp_path / "p.jsonl"
    rows = (gsm("1 + 1?", 2), {"question": "1 + 2?"})
    import_file(lines(tmp_path / "a.jsonl", *rows), out, format="gsm8k_test")
    names = {"p.jsonl", "p.rollouts.parquet", "p.unsupported.jsonl"}
    assert names <= {path.name for path in tmp_path.iterdir()}
    plain = lines(tmp_path / "b.jsonl", {"q": "1 + 1?", "gold": 2})
    pairs = ["prompt=q", "answer=gold"]
    import_file(plain, out, map=pairs, task="math", force=True)
    assert names & {path.name for path in tmp_path.iterdir()} == {"p.jsonl"}


def import_levels(folder: Path, values: list[Json], **options: object) -> list[float | None]:
    rows = [{"q": f"{n} + 1?", "a": n + 1, "d": value} for n, value in enumerate(values)]
    file, out = lines(folder / "rows.jsonl", *rows), folder / "p.jsonl"
    pairs = ["prompt=q", "answer=a"]
    import_file(file, out, map=pairs, task="math", level="d", **options)  # type: ignore[arg-type]
    return [problem.level for problem in read_problems(out)]


def test_levels_are_made_of_words_in_order(tmp_path: Path) -> None:
    levels = import_levels(tmp_path, ["HARD", "easy", "medium"], bins="easy,medium,hard")
    assert levels == pytest.approx([5 / 6, 1 / 6, 0.5])


def test_levels_are_equal_parts_of_any_numbers_and_low_ones_may_be_hard(tmp_path: Path) -> None:
    numbers: list[Json] = [100, 7, "3.5", -2]
    assert import_levels(tmp_path, numbers, bins="2") == [0.75, 0.75, 0.25, 0.25]
    (tmp_path / "p.jsonl").unlink()
    assert import_levels(tmp_path, numbers, bins="2", is_reversed=True) == [0.25, 0.25, 0.75, 0.75]


def test_levels_are_parted_by_edges(tmp_path: Path) -> None:
    assert import_levels(tmp_path, [1, 3, 5], bins="3,4") == pytest.approx([1 / 6, 0.5, 5 / 6])


def test_a_row_without_a_level_of_the_column_is_left_out_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert import_levels(tmp_path, ["easy", None, "simple"], bins="easy,hard") == [0.25]
    said = capsys.readouterr().err
    assert '1 has the level "simple", which is not one of easy, hard (first: line 3' in said


def test_a_column_of_one_number_has_no_levels(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="all rows have the same number, 4"):
        import_levels(tmp_path, [4, 4], bins="2")
    with pytest.raises(DataError, match="no row has a number to compute levels from"):
        import_levels(tmp_path, ["a", "b"], bins="2")
