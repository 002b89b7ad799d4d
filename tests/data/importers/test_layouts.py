"""Layouts without a file among the shared data, and rows that their layout refuses."""

import json
from random import Random
from textwrap import indent

import pytest

from whet.data.import_rows import check_gradable
from whet.data.importers import FORMATS
from whet.data.importers.base import ParsedRow
from whet.data.importers.graphs import graph_in
from whet.data.importers.math import last_box_text
from whet.errors import DataError
from whet.tasks.registry import build_default_task
from whet.types import Json, Verdict

CRUX: dict[str, Json] = {
    "id": "s1",
    "code": "def f(x):\n    return x + [1]",
    "input": "[2]",
    "output": "[2, 1]",
}
CODEIO: dict[str, Json] = {
    "problem_description": "Double a number.",
    "refcode": "def main_solution(n):\n    return 2 * n",
    "ios": [{"input": {"n": 3}, "output": 6}],
}
LIVE: dict[str, Json] = {
    "question_title": "Sum",
    "question_content": "Add two numbers.",
    "question_id": "lc1",
    "difficulty": "easy",
    "private_test_cases": "eJx not to be unpickled",
}


def verdict(draft: ParsedRow, response: str) -> Verdict:
    problem = draft.to_problem(split="test", override=None, source="x", location="a:1")
    return build_default_task(draft.task).score(problem, response).verdict


def test_cruxeval_asks_for_the_output_or_for_any_input_that_gives_it() -> None:
    out, into = FORMATS["cruxeval_o"].parse(CRUX), FORMATS["cruxeval_i"].parse(CRUX)
    assert (out.answer, into.answer, out.source_id) == ("[2, 1]", "[2]", "s1")
    assert verdict(out, "<answer>[2, 1]</answer>") is Verdict.CORRECT
    assert verdict(into, "<answer>[2]</answer>") is Verdict.CORRECT
    assert verdict(into, "<answer>[3]</answer>") is Verdict.WRONG


def test_codeio_asks_both_ways_about_the_first_pair() -> None:
    out, into = (
        FORMATS["codeio_o"].parse(CODEIO),
        FORMATS["codeio_i"].parse({**CODEIO, "funcname": "main_solution"}),
    )
    assert (out.answer, into.answer, into.payload["entry"]) == ("6", '{"n": 3}', "main_solution")
    assert verdict(out, "```json\n6\n```") is Verdict.CORRECT
    assert verdict(into, '```json\n{"n": 3}\n```') is Verdict.CORRECT
    with pytest.raises(DataError, match="'ios' should be a list of objects"):
        FORMATS["codeio_o"].parse({**CODEIO, "ios": []})


def test_livecodebench_takes_cases_or_calls_and_unpickles_nothing() -> None:
    cases: Json = [{"input": "1 2", "output": "3", "testtype": "stdin"}]
    draft = FORMATS["livecodebench"].parse({**LIVE, "public_test_cases": json.dumps(cases)})
    assert draft.payload["cases"] == [
        {"input": "1 2", "output": "3"}
    ] and draft.level == pytest.approx(0.1)
    calls: Json = [{"input": "1\n[2]", "output": "[1, 2]", "testtype": "functional"}]
    row = {**LIVE, "public_test_cases": calls, "private_test_cases": calls}
    found = FORMATS["livecodebench"].parse(
        {**row, "metadata": '{"func_name": "put"}', "starter_code": "class Solution:"}
    )
    assert found.payload["entry"] == "Solution().put"
    assert isinstance(tests := found.payload["tests"], list) and len(tests) == 3
    program = "```python\nclass Solution:\n    def put(self, a, b):\n        return [a] + b\n```"
    assert verdict(found, program) is Verdict.CORRECT
    with pytest.raises(DataError, match="need its name as metadata"):
        FORMATS["livecodebench"].parse(row)


def test_taco_keeps_its_first_solution() -> None:
    tests: Json = {"inputs": ["1\n"], "outputs": ["2\n"]}
    row: dict[str, Json] = {
        "question": "Add one.",
        "input_output": json.dumps(tests),
        "solutions": '["print(int(input()) + 1)"]',
    }
    draft = FORMATS["taco"].parse(row)
    assert draft.answer == "print(int(input()) + 1)"
    assert verdict(draft, f"```python\n{draft.answer}\n```") is Verdict.CORRECT


def test_several_right_outputs_without_a_checker_are_unsupported() -> None:
    row: dict[str, Json] = {
        "problem": "Print any valid answer.",
        "tests": [{"input": "1", "output": "2"}],
    }
    reason = FORMATS["codeforces_stdin"].parse(row).unsupported
    assert reason is not None and reason.startswith("several outputs are right")


def test_hands_come_as_lists_traces_or_table_lines() -> None:
    listed = FORMATS["game24"].parse({"values": [13, 9, 10, 4]})
    traced = FORMATS["game24"].parse({"input": "4 9 10 13\n", "output": "reach 24!"})
    line = FORMATS["game24"].parse({"Rank": "5", "Puzzles": "4 9 10 13"})
    assert listed.id == traced.id == line.id
    assert listed.prompt[0].content == "13 9 10 4"
    assert (traced.responses[0].text, line.source_id) == ("reach 24!", "5")


@pytest.mark.parametrize(
    ("name", "row", "sentence"),
    [
        ("gsm8k_test", {"question": "x"}, "has no field 'answer'; its fields are question"),
        ("gsm8k_test", {"question": "x", "answer": "5"}, "should end with #### and the answer"),
        (
            "gsm8k_test",
            {"question": 5, "answer": "#### 5"},
            "field 'question' should be text, not 5",
        ),
        (
            "gsm8k_test",
            {"question": "x", "answer": "#### 5", "hint": "y"},
            "unknown field 'hint'; known fields: question, answer",
        ),
        ("math_test", {"problem": "x", "solution": "none", "level": "Level 1"}, r"has no \\boxed"),
        (
            "math_test",
            {"problem": "x", "solution": "\\boxed{1", "level": "Level 1"},
            "is not closed",
        ),
        (
            "math_test",
            {"problem": "x", "solution": "\\boxed{1}", "level": "Level ?"},
            "should be a level from 1 to 5",
        ),
        (
            "math_train",
            {"problem": "x", "answer": "1", "difficulty": "hard"},
            "should be a level from 1 to 5",
        ),
        (
            "mawps",
            {"input": "x", "target": True},
            "field 'target' should be text or a number, not true",
        ),
        ("olympiadbench", {"question": "x", "final_answer": []}, "should be a list of texts"),
        (
            "aqua",
            {"question": "x", "options": ["A)1", "2"], "correct": "A"},
            "should begin with their letters",
        ),
        (
            "aqua",
            {"question": "x", "options": ["A)1", "B)2"], "correct": "C"},
            "should be one of A, B, not 'C'",
        ),
        ("sat_math", {"question": "x", "options": "1 or 2", "Answer": "A"}, "should list A"),
        (
            "mmlu_stem",
            {"question": "x", "choices": ["a", "b"], "answer": 2},
            "should be an index below 2",
        ),
        ("bbh_logic", {"task": "t", "input": "x", "target": "(A)"}, "should end with Options"),
        ("strategyqa_dev", {"question": "x", "answer": "yes"}, "should be true or false"),
        (
            "knights_knaves",
            {
                "quiz": "x",
                "names": ["A"],
                "solution": [1],
                "solution_text_format": "y",
                "statements": "()",
            },
            "should be true or false for each of 1 names",
        ),
        (
            "knights_knaves",
            {
                "quiz": "x",
                "names": ["A"],
                "solution": [True],
                "solution_text_format": "y",
                "statements": "a",
            },
            "should be a list of statements",
        ),
        (
            "knights_knaves",
            {
                "quiz": "x",
                "names": ["A"],
                "solution": [True],
                "solution_text_format": "y",
                "statements": "[{a: b}]",
            },
            "should hold lists and words",
        ),
        ("game24", {"values": [1, 2, 3]}, "four whole numbers from 1 to 13"),
        ("game24", {"Rank": "1"}, "has no field 'input'"),
        (
            "grapharena_problems",
            {
                "task": "VRP",
                "statement": "x",
                "graph": {},
                "optimal_value": 1,
                "one_optimal_answer": [],
            },
            "graph task 'VRP' is unknown; known: TSP, GED",
        ),
        (
            "grapharena_problems",
            {
                "task": "MIS",
                "statement": "x",
                "graph": {},
                "optimal_value": "1",
                "one_optimal_answer": [],
            },
            "'optimal_value' should be a number",
        ),
        (
            "nlgraph",
            {"task": "cycle", "question": "x", "answer": "no", "difficulty": "odd"},
            "difficulty 'odd' is unknown",
        ),
        *(
            (
                "graphwiz",
                {"task": kind, "input_prompt": "nonsense", "answer": "### No"},
                'should name nodes or edges of a graph, not "nonsense"',
            )
            for kind in ("cycle", "substructure")
        ),
        (
            "humaneval",
            {
                "task_id": "1",
                "prompt": "def f(:",
                "entry_point": "f",
                "canonical_solution": "x",
                "test": "y",
            },
            "Python that cannot be read",
        ),
        (
            "codeforces_stdin",
            {"problem": "x", "tests": [{"in": 1}]},
            "should be a list of objects with input and output",
        ),
    ],
)
def test_a_row_that_does_not_fit_its_layout_is_refused(
    name: str, row: dict[str, Json], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        FORMATS[name].parse(row)


@pytest.mark.parametrize(
    ("solution", "answer"),
    [
        (r"\boxed{1} then \boxed{\frac{1}{2}}", r"\frac{1}{2}"),
        (r"so \boxed 7$ is it", "7"),
        (r"\boxed {x}", "x"),
    ],
)
def test_the_last_box_counts(solution: str, answer: str) -> None:
    assert last_box_text(solution) == answer


@pytest.mark.parametrize(
    ("kind", "question", "sentence"),
    [
        ("flow", "edges: (0->1,2)", "should name the two nodes"),
        ("matching", "Applicant 0 is interested in job 1.", "how many applicants and jobs"),
        ("gnn", "The edges are: (0,1)", "every node's embedding"),
    ],
)
def test_a_graph_question_must_say_all_it_needs(kind: str, question: str, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        graph_in(kind, question)


JUNK: tuple[Json, ...] = (
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
    '{"a": 1}',
    "\\boxed{",
    "\ud800",
    "assert",
    "9" * 50,
    [],
    ["x"],
    [[1]],
    [{"role": "user", "content": "x"}],
    [{"input": "1", "output": "2"}],
    {},
    {"a": None},
    {"functional": "f(1)"},
    {"inputs": [1], "outputs": [2], "fn_name": "f"},
    {"nodes": [{"id": 0}], "links": [{"source": 0, "target": 5}]},
    {"style": "rule", "ground_truth": ["x"]},
    {"header": ["a"], "rows": [1]},
    {"level": 2},
    "[" * 3000,
    [1, 2, 3, 4],
)


@pytest.mark.parametrize("name", FORMATS)
def test_no_row_can_raise_anything_but_a_data_error(name: str) -> None:
    layout, rng, num_refused = FORMATS[name], Random(0), 0
    for _ in range(150):
        row = {
            field: rng.choice(JUNK)
            for field in (*layout.required, *(layout.optional or ()))
            if rng.random() < 0.9
        }
        if "data_source" in row:
            row["data_source"] = rng.choice(
                ("math__x", "codegen__x", "table__x", "TSP_x", "GED", "MIS", "kk_logic")
            )
        try:
            draft = layout.parse(row)
            check_gradable(draft.to_problem(split="rl", override=None, source=name, location="a:1"))
        except (DataError, UnicodeError):
            num_refused += 1
    assert num_refused > 0


PLUS_TESTS = """import numpy as np

def is_floats(x):
    return isinstance(x, float) or isinstance(x, np.ndarray)

def assertion(out, exp, atol):
    if atol == 0 and is_floats(exp):
        atol = 1e-6
    if out != exp and atol != 0:
        assert np.allclose(out, exp, rtol=1e-07, atol=atol)
    else:
        assert out == exp
"""


LOOP = "for inp, exp in zip([[1.0], [-2.0]], [0.1, 0.2]):\n    assertion({}(*inp), exp, 0)\n"
TENTH = "def tenth(x):\n    return abs(x) / 10"
PLUS_ROWS: dict[str, dict[str, Json]] = {
    "humaneval_plus": {
        "task_id": "1",
        "prompt": 'def tenth(x):\n    """Divide."""\n',
        "entry_point": "tenth",
        "canonical_solution": "    return abs(x) / 10",
        "test": PLUS_TESTS + "\ndef check(candidate):\n" + indent(LOOP.format("candidate"), "    "),
    },
    "mbpp_plus": {
        "prompt": "Write tenth(x).",
        "code": TENTH,
        "test_list": ["assert tenth(1.0) == 0.1"],
        "test": PLUS_TESTS + LOOP.format("tenth"),
    },
}


@pytest.mark.parametrize("name", PLUS_ROWS)
def test_the_further_tests_of_a_plus_row_are_run(name: str) -> None:
    draft = FORMATS[name].parse(PLUS_ROWS[name])

    assert draft.unsupported is None
    assert verdict(draft, f"```python\n{TENTH}\n```") == "correct"
    assert verdict(draft, f"```python\n{TENTH.replace('/ 10', '* 0.10000001')}\n```") == "correct"
    assert verdict(draft, f"```python\n{TENTH.replace('abs(x)', 'x')}\n```") == "wrong"


def test_a_plus_row_that_needs_more_of_numpy_is_left_out() -> None:
    row: dict[str, Json] = {
        "prompt": "x",
        "code": "def f(x):\n    return x",
        "test_list": ["assert f(1) == 1"],
        "test": "import numpy as np\nassert np.sum(f([1])) == 1",
    }

    assert "numpy" in (FORMATS["mbpp_plus"].parse(row).unsupported or "")
