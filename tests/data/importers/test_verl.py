"""Rows of verl's schema find their task by their source; what a reward would miss is refused when
the row is read."""

import json

import pytest

from whet.data.importers import FORMATS
from whet.data.importers.base import ParsedRow
from whet.errors import DataError
from whet.tasks.registry import build_default_task
from whet.types import Json, Verdict

CHECK = "def check(candidate):\n    assert candidate(2) == 4\n\ncheck(Solution().double)"
GRAPH = {
    "nodes": [{"id": 0, "name": "Ann"}, {"id": 1, "name": "Bob"}, {"id": 2, "name": "Cy"}],
    "links": [{"source": 0, "target": 1}, {"source": 1, "target": 2}],
}
CHAIN = {
    "nodes": [{"id": n, "label": "C"} for n in range(3)],
    "links": [{"source": 0, "target": 1}],
}


def row(
    source: str, truth: Json, *, asked: str = "What is it?", extra: dict[str, Json] | None = None
) -> dict[str, Json]:
    return {
        "data_source": source,
        "prompt": [{"role": "user", "content": asked}],
        "ability": "any",
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": 7, "split": "train", **(extra or {})},
    }


def verdict(draft: ParsedRow, response: str) -> Verdict:
    problem = draft.to_problem(split="rl", override=None, source="verl", location="a:1")
    return build_default_task(draft.task).score(problem, response).verdict


def test_a_row_keeps_prompt_id_and_split() -> None:
    draft = FORMATS["verl"].parse(row("openai/gsm8k", "72"))
    assert (draft.task, draft.answer, draft.source_id, draft.split) == ("math", "72", "7", "rl")
    assert draft.prompt[0].content == "What is it?"


def test_the_bare_question_of_a_row_is_kept_beside_its_prompt() -> None:
    asked = "Answer in steps. User: What is 8 * 9? Assistant:"
    draft = FORMATS["tango"].parse(
        row("Eurus-2-RL-Data", "72", asked=asked, extra={"question": "What is 8 * 9?"})
    )
    assert (draft.prompt[0].content, dict(draft.payload)) == (asked, {"question": "What is 8 * 9?"})


@pytest.mark.parametrize("extra", [{}, {"question": ""}, {"question": None}, {"question": "It?"}])
def test_a_question_that_says_no_more_than_the_prompt_is_not_kept(extra: dict[str, Json]) -> None:
    assert FORMATS["tango"].parse(row("MATH500", "72", asked="It?", extra=extra)).payload == {}


@pytest.mark.parametrize(
    ("source", "truth", "task", "right", "wrong"),
    [
        ("math__deepscaler", "\\frac{1}{2}", "math", "\\boxed{0.5}", "\\boxed{50}"),
        ("math__dapo", ["3", "4"], "math", "\\boxed{4}", "\\boxed{5}"),
        (
            "logic__zebra_puzzle_2",
            {"header": ["Position", "Pet"], "rows": [["1", "cat"], ["2", "dog"]]},
            "zebra",
            '<answer>{"header": ["Position", "Pet"], "rows": [["1", "cat"], ["2", "dog"]]}</answer>',
            '<answer>{"header": ["Position", "Pet"], "rows": [["1", "dog"], ["2", "cat"]]}</answer>',
        ),
        (
            "logic__ordering_puzzle",
            ["Ann", "Bob"],
            "ordering",
            "<answer>['Ann', 'Bob']</answer>",
            "<answer>['Bob', 'Ann']</answer>",
        ),
        (
            "logic__graph_logical",
            "blomish",
            "graph_logic",
            "<answer>Blomish</answer>",
            "<answer>other</answer>",
        ),
        (
            "simulation__arcagi1",
            [[1, 0], [0, 1]],
            "arc",
            "<answer>[[1, 0], [0, 1]]</answer>",
            "<answer>[[0]]</answer>",
        ),
        (
            "simulation__codeio",
            '"output": {"a": 1}',
            "codeio",
            '```json\n{"output": {"a": 1}}\n```',
            '```json\n{"a": 2}\n```',
        ),
        ("table__hitab", "12|cat", "table", "\\boxed{cat | 12}", "\\boxed{1200 | cat}"),
        ("table__finqa", 0.14457, "table", "\\boxed{0.1446}", "\\boxed{14.46}"),
        ("stem__gpqa_diamond", "C", "choice", "\\boxed{C}", "\\boxed{B}"),
        (
            "kk_logic",
            {"solution_text_format": "(1) Zoey is a knight\n(2) Ian is a knave"},
            "knights",
            "<answer>(1) Zoey is a knight\n(2) Ian is a knave</answer>",
            "<answer>(1) Zoey is a knave\n(2) Ian is a knave</answer>",
        ),
        (
            "countdown",
            {"numbers": [2, 3, 4], "target": 24},
            "countdown",
            "<answer>2 * 3 * 4</answer>",
            "<answer>24</answer>",
        ),
        ("StrategyQA", True, "yes_no", "\\boxed{yes}", "\\boxed{no}"),
        ("BGQA", "Uncertain", "table", "\\boxed{Uncertain}", "\\boxed{True}"),
        (
            "CRUXEval",
            "['a', 1]",
            "cruxeval",
            "<answer>['a', 1]</answer>",
            "<answer>['a', 2]</answer>",
        ),
    ],
)
def test_a_source_leads_to_its_task_and_its_gold_is_right(
    source: str, truth: Json, task: str, right: str, wrong: str
) -> None:
    draft = FORMATS["verl"].parse(row(source, truth))
    assert draft.task == task and draft.unsupported is None
    assert verdict(draft, right) is Verdict.CORRECT
    assert verdict(draft, wrong) is not Verdict.CORRECT


def test_free_answers_go_to_the_judge_with_their_question() -> None:
    draft = FORMATS["guru"].parse(
        row("stem_web", "a photon", extra={"question": "What is emitted?"})
    )
    assert (draft.task, draft.answer, draft.payload) == (
        "judge",
        "a photon",
        {"question": "What is emitted?"},
    )


def test_tests_that_call_check_lose_the_call_and_name_the_entry() -> None:
    truth = json.dumps({"functional": CHECK})
    draft = FORMATS["guru"].parse(
        row("codegen__leetcode2k", truth, extra={"prefix": "import math"})
    )
    assert draft.payload["entry"] == "Solution().double" and draft.payload["setup"] == "import math"
    assert (
        verdict(
            draft, "```python\nclass Solution:\n    def double(self, x):\n        return 2 * x\n```"
        )
        is Verdict.CORRECT
    )
    assert (
        verdict(
            draft,
            "```python\nclass Solution:\n    def double(self, x):\n        raise SystemExit(0)\n```",
        )
        is Verdict.WRONG
    )


def test_bare_assertions_name_the_function_they_call() -> None:
    draft = FORMATS["guru"].parse(row("codegen__mbpp", {"functional": "assert area(2) == 4"}))
    assert draft.payload["entry"] == "area"
    method = FORMATS["guru"].parse(
        row("codegen__lcb", {"functional": "assert Solution().area(List(2)) == 4"})
    )
    assert method.payload["entry"] == "Solution"


def test_inputs_and_outputs_become_cases_and_calls() -> None:
    truth: Json = {"inputs": ["1 2\n", ["3", "4"]], "outputs": ["3\n", "7"]}
    draft = FORMATS["verl"].parse(row("taco", json.dumps(truth)))
    assert draft.task == "code_stdin"
    assert draft.payload["cases"] == [
        {"input": "1 2\n", "output": "3\n"},
        {"input": "3\n4", "output": "7"},
    ]
    calls = FORMATS["verl"].parse(
        row("apps", {"inputs": [[[1, 2]]], "outputs": [[[2, 1]]], "fn_name": "turn"})
    )
    assert calls.payload["entry"] == "Solution().turn"
    assert (
        verdict(
            calls,
            "```python\nclass Solution:\n    def turn(self, x):\n        return tuple(x[::-1])\n```",
        )
        is Verdict.CORRECT
    )


def test_pytest_modules_are_kept_or_left_out_with_the_reason() -> None:
    fine = FORMATS["guru"].parse(
        row(
            "codegen__x",
            {"pytest": "from solution import f\ndef test_f():\n    assert f(1) == 1\n"},
        )
    )
    assert fine.task == "code_pytest" and fine.unsupported is None
    other = FORMATS["guru"].parse(
        row("codegen__x", {"pytest": "import requests\ndef test_f():\n    assert requests\n"})
    )
    assert other.unsupported is not None and "requests" in other.unsupported


def test_what_only_the_prompt_holds_is_unsupported() -> None:
    codeio = FORMATS["guru"].parse(row("simulation__codeio", '"input": {"n": 3}'))
    crux = FORMATS["guru"].parse(
        row("simulation__cruxeval-o", {"functional": "def f(x): return x"})
    )
    assert codeio.unsupported is not None and crux.unsupported is not None
    asked = "```python\nassert f(??) == 'ab'\n```"
    found = FORMATS["guru"].parse(
        row("simulation__cruxeval-i", {"functional": "def f(x): return x"}, asked=asked)
    )
    assert found.payload["output"] == "'ab'" and found.unsupported is None


@pytest.mark.parametrize(
    ("source", "graph", "tail", "payload"),
    [
        (
            "MIS_easy_binary",
            GRAPH,
            "",
            {"nodes": ["Ann", "Bob", "Cy"], "edges": [["Ann", "Bob"], ["Bob", "Cy"]]},
        ),
        (
            "Distance_complicated",
            GRAPH,
            "Please determine the shortest path between Ann and Cy in this network.",
            {
                "nodes": ["Ann", "Bob", "Cy"],
                "edges": [["Ann", "Bob"], ["Bob", "Cy"]],
                "pair": ["Ann", "Cy"],
            },
        ),
        (
            "TSP_binary",
            {},
            "- Airports to visit: AAA, BBB\nAAA to BBB: 12\n",
            {"nodes": ["AAA", "BBB"], "edges": [["AAA", "BBB", 12]]},
        ),
        (
            "GED_hard_binary",
            [CHAIN, CHAIN],
            "",
            {
                "A": {"labels": ["C"] * 3, "bonds": [[0, 1]]},
                "B": {"labels": ["C"] * 3, "bonds": [[0, 1]]},
            },
        ),
        (
            "MCS",
            [CHAIN, CHAIN],
            "",
            {"A": {"n": 3, "bonds": [[0, 1]]}, "B": {"n": 3, "bonds": [[0, 1]]}},
        ),
    ],
)
def test_graphs_of_npg_come_from_their_node_link_form(
    source: str, graph: Json, tail: str, payload: Json
) -> None:
    extra: dict[str, Json] = {
        "graph": json.dumps(graph),
        "problem_text": f"Ask.\n**Problem to Solve**\n{tail}",
        "exact_answer": "2",
    }
    draft = FORMATS["npg"].parse(row(source, None, extra=extra))
    assert isinstance(payload, dict)
    assert draft.payload == {**payload, "optimum": 2}
    assert draft.level is not None and 0 <= draft.level <= 1


def test_an_optimum_that_the_row_does_not_tell_is_found() -> None:
    extra: dict[str, Json] = {
        "graph": json.dumps(GRAPH),
        "problem_text": "Ask.",
        "exact_answer": None,
    }
    draft = FORMATS["npg"].parse(row("MIS_hard_binary", None, extra=extra))
    assert (draft.payload["optimum"], draft.payload["proven"]) == (2, True)
    assert verdict(draft, "[Ann, Cy]") is Verdict.CORRECT
    assert verdict(draft, "[Ann, Ann]") is Verdict.WRONG


def test_the_pass_rate_of_a_weak_model_is_the_level() -> None:
    draft = FORMATS["guru"].parse(
        {**row("math__x", "1"), "qwen2.5_7b_pass_rate": 0.25, "qwen3_30b_pass_rate": 0.9}
    )
    assert draft.level == 0.75


def test_a_raw_prompt_and_stored_responses_are_taken() -> None:
    given = {
        **row("math__x", "1"),
        "apply_chat_template": False,
        "raw_prompt": "User: 1?",
        "responses": ["one", ""],
    }
    draft = FORMATS["verl"].parse(given)
    assert draft.prompt[0].content == "User: 1?"
    assert [answer.text for answer in draft.responses] == ["one"]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"data_source": "geo3k"},
            r"data_source 'geo3k' is unknown; known sources: openai/gsm8k, .*math\*",
        ),
        (
            {"reward_model": {"style": "vote", "ground_truth": "1"}},
            "reward_model should have a ground_truth and the style",
        ),
        ({"reward_model": {"style": "rule"}}, "reward_model should have a ground_truth"),
        (
            {"reward_model": {"ground_truth": "1", "margin": 2}},
            "reward_model has the unknown field 'margin'",
        ),
        ({"reward_model": "1"}, "field 'reward_model' should be an object"),
        ({"data_source": "codegen__x"}, "field 'ground_truth' should be an object"),
        (
            {"prompt": [{"role": "tool", "content": "x"}]},
            "role 'tool' is unknown; known: system, user",
        ),
        ({"colour": "red"}, "has the unknown field 'colour'; known fields: data_source"),
        (
            {"extra_info": {"reward_metric": "vibes"}},
            'reward_metric "vibes" is unknown; known metrics: default',
        ),
        ({"extra_info": {"split": "holdout"}}, "split 'holdout' is unknown; known: sft"),
        (
            {"data_source": "stem__gpqa", "reward_model": {"ground_truth": "cat"}},
            "should be a letter from A to J",
        ),
        (
            {"data_source": "StrategyQA", "reward_model": {"ground_truth": "perhaps"}},
            "should be true or false",
        ),
        ({"data_source": "simulation__codeio"}, 'should be "input": value or "output": value'),
        (
            {"data_source": "codegen__x", "reward_model": {"ground_truth": {"stdin": 1}}},
            "unknown field 'stdin'; known fields: functional",
        ),
        (
            {
                "data_source": "codegen__x",
                "reward_model": {"ground_truth": {"functional": "assert ("}},
            },
            "Python that cannot be read",
        ),
        (
            {
                "data_source": "taco",
                "reward_model": {"ground_truth": {"inputs": ["1"], "outputs": []}},
            },
            "1 inputs and 0 outputs",
        ),
        ({"data_source": "MIS_x"}, "has no field 'problem_text'"),
        (
            {"data_source": "MIS", "extra_info": {"problem_text": "x", "graph": "7"}},
            "should be a graph in node-link form",
        ),
        (
            {"data_source": "GED", "extra_info": {"problem_text": "x", "graph": "[]"}},
            "should be two graphs for ged",
        ),
    ],
)
def test_what_a_reward_could_not_use_is_refused_with_what_would_be_right(
    change: dict[str, Json], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        FORMATS["verl"].parse({**row("openai/gsm8k", "72"), **change})


def test_guru_knows_no_sources_of_others() -> None:
    with pytest.raises(DataError, match="data_source 'kk_logic' is unknown"):
        FORMATS["guru"].parse(row("kk_logic", {}))


def test_areal_loses_the_marks_of_its_template_and_its_boxes() -> None:
    given: dict[str, Json] = {
        "prompt": "<｜User｜>Find x.\nBox it.<｜Assistant｜><think>\n",
        "task": "math",
        "query_id": "q1",
        "solutions": ["\\boxed{2}", "$\\boxed{\\frac{4}{2}}$"],
    }
    draft = FORMATS["areal"].parse(given)
    assert draft.prompt[0].content == "Find x.\nBox it."
    assert (draft.answer, draft.payload, draft.source_id) == (
        "2",
        {"answers": ["2", "\\frac{4}{2}"]},
        "q1",
    )
    tests: Json = {"inputs": ["1"], "outputs": ["2"]}
    code = FORMATS["areal"].parse(
        {"prompt": "Add one.", "task": "code", "input_output": json.dumps(tests)}
    )
    assert code.payload["cases"] == [{"input": "1", "output": "2"}]
    with pytest.raises(DataError, match="task 'stem' is unknown; known: math, code"):
        FORMATS["areal"].parse({**given, "task": "stem"})
