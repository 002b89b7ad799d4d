"""Formats of sources of which only the schema is known: the right answer is right, a wrong one
wrong, and what the prompt must show is in it."""

import json

import pytest

from whet.data.importers import FORMATS
from whet.data.importers.base import ParsedRow
from whet.errors import DataError
from whet.tasks.registry import build_default_task
from whet.types import Json, Verdict

GRID: Json = [[1, 0], [0, 2]]
TURNED: Json = [[0, 1], [2, 0]]


def parse(name: str, row: dict[str, Json]) -> ParsedRow:
    return FORMATS[name].parse(row)


def grade(parsed: ParsedRow, response: str) -> Verdict:
    problem = parsed.to_problem(split="test", override=None, source="x", location="a:1")
    return build_default_task(parsed.task).score(problem, response).verdict


def is_graded(parsed: ParsedRow, right: str, wrong: str) -> bool:
    verdicts = grade(parsed, right), grade(parsed, wrong)
    return verdicts == (Verdict.CORRECT, Verdict.WRONG)


def gpqa_row(question: str) -> dict[str, Json]:
    wrong = {f"Incorrect Answer {number}": f"wrong {number}" for number in (1, 2, 3)}
    return {"Question": question, "Correct Answer": "right", "Record ID": "r", **wrong}


def test_gpqa_shuffles_its_options_by_the_question_alone() -> None:
    letters = []
    for number in range(40):
        parsed = parse("gpqa", gpqa_row(f"Which, {number}?"))
        assert parsed == parse("gpqa", {**gpqa_row(f"Which, {number}?"), "Record ID": "s"})
        options = parsed.payload["options"]
        assert isinstance(options, dict) and options[parsed.answer or ""] == "right"
        letters.append(parsed.answer)
    assert set(letters) == set("ABCD")
    other = "A" if letters[0] != "A" else "B"
    parsed = parse("gpqa", gpqa_row("Which, 0?"))
    assert is_graded(parsed, f"So \\boxed{{{letters[0]}}}", f"So \\boxed{{{other}}}")


def test_supergpqa_keeps_the_order_of_its_options() -> None:
    row: dict[str, Json] = {"question": "Which?", "options": [f"o{n}" for n in range(10)]}
    parsed = parse("supergpqa", {**row, "answer_letter": "J", "answer": "o9"})
    assert "J. o9" in parsed.prompt[0].content
    assert is_graded(parsed, "\\boxed{J}", "\\boxed{A}")
    with pytest.raises(DataError, match="should be one of A, B"):
        parse("supergpqa", {**row, "answer_letter": "K"})


def test_hitab_may_have_several_answers() -> None:
    table: Json = {"texts": [["", "2020"], ["men", 3.0], ["women", 5]]}
    parsed = parse("hitab", {"question": "Who?", "answer": ["men", "women"], "table": table})
    assert "| men | 3 |" in parsed.prompt[0].content
    assert is_graded(parsed, "\\boxed{women | men}", "\\boxed{men}")


def test_multihiertt_shows_its_tables_with_the_cells_that_wide_ones_cover() -> None:
    html = "<table><tr><td colspan='2'>Sales</td><td>2020</td></tr><tr><td>a|b</td></tr></table>"
    qa: Json = {"question": "How much?", "answer": 5.5, "text_evidence": []}
    parsed = parse("multihiertt", {"uid": "u", "paragraphs": [], "tables": [html], "qa": qa})
    assert "| Sales |  | 2020 |\n|---|---|---|\n| a/b |  |  |" in parsed.prompt[0].content
    assert is_graded(parsed, "\\boxed{5.5}", "\\boxed{5}")
    with pytest.raises(DataError, match="tables in HTML"):
        parse("multihiertt", {"tables": ["no table"], "qa": qa})


def test_finqa_allows_for_the_rounding_of_its_answers() -> None:
    row: dict[str, Json] = {
        **{"pre_text": ["Before"], "post_text": ["After"], "table": [["", "2020"], ["x", "7"]]},
        **{"question": "What is the change?", "answer": "14.1%"},
    }
    parsed = parse("finqa", row)
    shown = parsed.prompt[0].content
    assert shown.index("Before") < shown.index("| x | 7 |") < shown.index("After")
    assert is_graded(parsed, "\\boxed{14.105%}", "\\boxed{15.1%}")


def test_arc_asks_for_the_first_test_after_at_most_six_examples() -> None:
    pair: Json = {"input": GRID, "output": TURNED}
    last: Json = {"input": [[3]], "output": [[4, 5]]}
    parsed = parse("arc", {"train": [pair] * 8, "test": [last, pair]})
    shown = parsed.prompt[0].content
    assert "Example 6" in shown and "Example 7" not in shown and "Input: [[3]]" in shown
    assert is_graded(parsed, "<answer>[[4, 5]]</answer>", "<answer>[[4, 6]]</answer>")


def test_barc_asks_for_the_pair_behind_those_it_shows() -> None:
    pairs: list[Json] = [[GRID, TURNED], [[[1.0]], [[2.0]]]]
    parsed = parse("barc", {"examples": pairs, "seeds": [], "code": "x"})
    assert "Example 1" in parsed.prompt[0].content and "Example 2" not in parsed.prompt[0].content
    assert is_graded(parsed, "<answer>[[2]]</answer>", "<answer>[[1]]</answer>")


@pytest.mark.parametrize("grid", [None, [], [[]], [["a"]], [[0.5]], [[True]], "[[", [1]])
def test_a_grid_that_is_none_is_refused(grid: Json) -> None:
    with pytest.raises(DataError, match="'train'"):
        parse("arc", {"train": [{"input": grid, "output": GRID}], "test": []})


def test_primeintellect_calls_a_function_or_feeds_a_program() -> None:
    calls: list[Json] = [
        {"type": "function_call", "fn_name": "double", "input": [n], "output": [2 * n]}
        for n in (2, 5)
    ]
    parsed = parse("primeintellect", {"problem": "Double.", "tests": json.dumps(calls)})
    right, wrong = (f"```python\ndef double(x):\n    return x * {n}\n```" for n in (2, 3))
    assert "`double`" in parsed.prompt[0].content
    assert is_graded(parsed, right, wrong)
    cases: list[Json] = [{"type": "stdin_stdout", "input": "1\n", "output": "2\n"}]
    parsed = parse("primeintellect", {"problem": "Add one.", "tests": json.dumps(cases)})
    right, wrong = (f"```python\nprint(int(input()) + {n})\n```" for n in (1, 2))
    assert is_graded(parsed, right, wrong)
    with pytest.raises(DataError, match="should be function_call or stdin_stdout"):
        parse("primeintellect", {"problem": "?", "tests": json.dumps([{"type": "other"}])})


def test_zebralogic_has_gold_where_its_file_has_solutions() -> None:
    solution: dict[str, Json] = {"header": ["House", "Name"], "rows": [["1", "Ann"], ["2", "Bob"]]}
    parsed = parse("zebralogic", {"puzzle": "Who lives where?", "solution": solution})
    right, wrong = (
        json.dumps({"solution": {"House 1": {"Name": a}, "House 2": {"Name": b}}})
        for a, b in (("Ann", "Bob"), ("Bob", "Ann"))
    )
    assert is_graded(parsed, right, wrong)
    hidden: dict[str, Json] = {**solution, "rows": [["___", "___"], ["___", "___"]]}
    assert parse("zebralogic", {"puzzle": "Who?", "solution": hidden}).answer is None


def test_either_direction_of_codeio_is_asked_about_and_always_the_same() -> None:
    directions = set()
    for number in range(20):
        row: dict[str, Json] = {
            "problem_description": "Add.",
            "refcode": f"def main_solution(x):\n    return x + {number}",
            "ios": [{"input": {"x": 1}, "output": 1 + number}],
        }
        parsed = parse("codeio", row)
        assert parsed == parse("codeio", row)
        directions.add(parsed.payload["direction"])
    assert directions == {"input", "output"}


def test_livemathbench_shows_the_options_of_a_choice() -> None:
    row: dict[str, Json] = {"question": "1 + 1?", "answer": "2", "question_type": "single-choice"}
    parsed = parse("livemathbench", {**row, "options": ["A. 1", "B. 2"]})
    assert parsed.prompt[0].content.startswith("1 + 1? A. 1 B. 2\n")
    assert is_graded(parse("livemathbench", row), "\\boxed{2}", "\\boxed{3}")


def test_worked_solutions_are_answers_that_their_grader_accepts() -> None:
    numina: dict[str, Json] = {"problem": "1 + 1?", "answer": "2", "solution": "It is two."}
    deepmath: dict[str, Json] = {"question": "1 + 1?", "final_answer": "2", "difficulty": 1}
    for number in (1, 2, 3):
        deepmath[f"r1_solution_{number}"] = f"<think>{number}</think> So \\boxed{{2}}."
    aqua: dict[str, Json] = {
        **{"question": "1 + 1?", "options": ["A)1", "B)2"], "correct": "B"},
        "rationale": "One and one is two.",
    }
    for name, row, count in (("numina", numina, 1), ("deepmath", deepmath, 3), ("aqua", aqua, 1)):
        parsed = parse(name, row)
        assert [grade(parsed, answer.text) for answer in parsed.responses] == [
            Verdict.CORRECT
        ] * count
        assert all(answer.is_worked for answer in parsed.responses)
