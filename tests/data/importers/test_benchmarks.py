"""Every benchmark file is imported whole under its own name, and what comes out can be graded."""

import json
from itertools import islice
from pathlib import Path

import pytest

from whet.data.importers import FORMATS
from whet.data.importers.base import ParsedRow
from whet.data.row_files import iterate_rows
from whet.errors import DataError
from whet.store.files import to_line
from whet.tasks.registry import TASKS, build_default_task
from whet.types import Json, Problem, Verdict

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"
FILES = sorted(file for file in DATA.glob("*.*") if file.stem in FORMATS)
ROWS_GRADED = 12
NOT_PROBLEMS = {
    "README": "no data",
    "equivalence": "pairs of answers, without questions",
    "reward_shaping": "texts and rewards, without questions",
    "grapharena_responses": "answers whose problems are in another file",
    "prm800k_samples": "labels of steps",
    "math_shepherd_samples": "labels of steps",
}
JUNK: tuple[Json, ...] = (
    *(
        None,
        True,
        0,
        -3,
        2.5,
        1e300,
        "",
        "x",
        "A",
        "[",
        "{}",
        "\\boxed{",
        "\ud800",
        "(",
        "9" * 50,
        [],
        ["x"],
        {},
    ),
    *(
        [None],
        [{}],
        [True, 2],
        [[1]],
        {"a": None},
        {"level": "x"},
        {"header": ["a"], "rows": [1]},
        [1, 2, 3, 4],
    ),
    *(
        {"A": {}, "B": 1},
        {"nodes": [1], "edges": [[1]]},
        {"pair": 3, "nodes": []},
        "[" * 3000,
        [[None]],
    ),
    {"columns": [], "data": [1]},
)
LEFT_OUT = {"tablebench": 25, "tablebench_outputs": 3, "codeforces_stdin": 21}
NO_GOLD = {"gaokao2023en": 2, "zebralogic_prompts": 60, "codeforces_stdin": 179}

pytestmark = pytest.mark.skipif(
    not FILES, reason="the shared data files are not beside the repository"
)
each_file = pytest.mark.parametrize("file", FILES, ids=[file.stem for file in FILES])


def drafts(file: Path) -> list[tuple[str, ParsedRow]]:
    layout = FORMATS[file.stem]
    return [(row.location, layout.parse(row.fields)) for row in iterate_rows(file)]


def problems(file: Path) -> list[Problem]:
    return [
        draft.to_problem(
            split=FORMATS[file.stem].split, override=None, source=file.stem, location=place
        )
        for place, draft in drafts(file)
        if draft.unsupported is None
    ]


def test_every_file_has_a_format_or_a_reason_for_none() -> None:
    without = {file.stem for file in DATA.glob("*.*")} - FORMATS.keys()
    assert without == NOT_PROBLEMS.keys()


@each_file
def test_all_rows_become_problems_that_come_back_from_disk(file: Path) -> None:
    found, known = problems(file), TASKS
    num_rows = sum(1 for _ in iterate_rows(file))
    assert len(found) == num_rows - LEFT_OUT.get(file.stem, 0)
    for problem in found:
        assert problem.task in known
        assert problem.prompt[-1].role == "user" and problem.prompt[-1].content.strip()
        assert problem.level is None or 0 <= problem.level <= 1
        assert Problem.from_json(json.loads(to_line(problem.to_json()))) == problem
    if not file.stem.endswith("_outputs"):
        assert sum(problem.answer is None for problem in found) == NO_GOLD.get(file.stem, 0)


@each_file
def test_ids_are_stable_and_equal_only_for_equal_problems(file: Path) -> None:
    first, again = problems(file), problems(file)
    assert [problem.id for problem in first] == [problem.id for problem in again]
    by_id: dict[str, Problem] = {}
    for problem in first:
        other = by_id.setdefault(problem.id, problem)
        assert (other.answer, other.task) == (problem.answer, problem.task)


@each_file
def test_gold_is_right_on_the_first_rows(file: Path) -> None:
    for problem in islice((p for p in problems(file) if p.answer is not None), ROWS_GRADED):
        task = build_default_task(problem.task)
        gold = task.solve(problem, 0)
        assert gold is not None
        score = task.score(problem, gold)
        assert score.verdict is Verdict.CORRECT, f"{problem.source_id}: {score.note}"


@each_file
def test_a_spoilt_row_is_read_or_refused_and_never_raises_anything_else(file: Path) -> None:
    layout, row, num_refused = FORMATS[file.stem], next(iter(iterate_rows(file))).fields, 0
    for place in row:
        for value in JUNK:
            try:
                draft = layout.parse({**row, place: value})
                draft.to_problem(split="test", override=None, source=file.stem, location="a:1")
            except DataError:
                num_refused += 1
    assert num_refused >= 20


@pytest.mark.parametrize(
    ("name", "number", "expected"),
    [
        ("gsm8k_test", 0, "gsm8k_test.jsonl:1"),
        ("math500", 0, "test/intermediate_algebra/1994.json"),
        ("humaneval", 0, "HumanEval/0"),
        ("leetcode", 0, "count-zero-request-servers"),
        ("zebra_puzzle", 0, "zebra-0-000"),
        ("grapharena_problems", 0, "grapharena-neighbor-example"),
        ("olympiadbench", 0, "1612"),
        ("game24", 1, "2"),
        ("aime25", 0, "I-1"),
        ("strategyqa_dev", 0, "e0044a7b4d146d611e73"),
    ],
)
def test_a_row_keeps_its_own_id_or_its_file_and_line(name: str, number: int, expected: str) -> None:
    file = next(file for file in FILES if file.stem == name)
    place, draft = drafts(file)[number]
    assert (draft.source_id or f"{file.name}:{place.split()[-1]}") == expected


def draft(name: str, number: int) -> ParsedRow:
    return drafts(next(file for file in FILES if file.stem == name))[number][1]


def test_a_worked_example_does_not_tell_its_answer() -> None:
    for number in range(0, 20, 2):
        example = draft("grapharena_problems", number)
        assert example.answer is not None
        assert example.answer not in example.prompt[0].content


def test_the_answer_of_graphwiz_is_that_of_the_independent_solver() -> None:
    file = next(file for file in FILES if file.stem == "graphwiz")
    rows = [(row.fields, FORMATS["graphwiz"].parse(row.fields)) for row in iterate_rows(file)]
    wrong = [(row["answer"], draft.answer) for row, draft in rows if row["answer_agrees"] is False]
    assert len(wrong) == 8
    assert all(isinstance(said, str) and answer not in said for said, answer in wrong)


def test_levels_follow_the_row() -> None:
    assert draft("math500", 0).level == pytest.approx(0.9)
    assert draft("zebra_puzzle", 0).level == pytest.approx(1.5 / 20)
    assert draft("leetcode", 0).level == pytest.approx(0.5)
    assert draft("grapharena_problems", 19).level == pytest.approx(0.25)


def test_an_absolute_error_is_kept_where_a_row_allows_one() -> None:
    file = next(file for file in FILES if file.stem == "olympiadbench")
    assert [draft.payload for _, draft in drafts(file) if draft.payload] == [{"error": 0.1}]


def test_labelled_answers_come_along() -> None:
    first = draft("qwen_math_outputs", 0)
    assert len(first.responses) == 8 and first.responses[0].is_good is True
    assert draft("gsm8k_model_solutions", 0).responses[0].model == "6b_finetuning"
    assert draft("game24_search_outputs", 0).responses[0].is_good is True
    assert [draft("bigbench_mistake", number).responses[0].is_good for number in (0, 400)] == [
        False,
        True,
    ]


def test_traces_with_mistakes_are_problems_of_four_tasks() -> None:
    file = next(file for file in FILES if file.stem == "bigbench_mistake")
    found = {row.fields["task"]: FORMATS[file.stem].parse(row.fields) for row in iterate_rows(file)}
    tasks = {kind: draft.task for kind, draft in found.items()}
    assert tasks == {
        "logical_deduction": "choice",
        "tracking_shuffled_objects": "choice",
        "multistep_arithmetic": "math",
        "word_sorting": "ordering",
        "dyck_languages": "ordering",
    }
    row = next(iter(iterate_rows(file))).fields
    with pytest.raises(DataError, match="task 'chess' is unknown; known: logical_deduction, "):
        FORMATS[file.stem].parse({**row, "task": "chess"})
