"""Rows as the public files have them and the seeds' scripts read them: the same problems as rows in
our own layout, and gold is right."""

import json
from pathlib import Path

import pytest

from whet.data.importers import FORMATS
from whet.data.importers.base import ParsedRow
from whet.data.importers.graphs import kind_in
from whet.data.row_files import iterate_rows
from whet.errors import DataError
from whet.tasks.registry import build_default_task
from whet.types import Json, Verdict

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"


def parse(name: str, row: dict[str, Json]) -> ParsedRow:
    return FORMATS[name].parse(row)


def verdict(parsed: ParsedRow, response: str) -> Verdict:
    problem = parsed.to_problem(split="test", override=None, source="x", location="a:1")
    return build_default_task(parsed.task).score(problem, response).verdict


@pytest.mark.parametrize(
    ("name", "row", "source_id"),
    [
        (  # Maxwell-Jia/AIME_2024
            "aime24",
            {"ID": "2024-I-4", "Problem": "What is it?", "Solution": "Long.", "Answer": 116},
            "2024-I-4",
        ),
        (  # yentinglin/aime_2025
            "aime25",
            {
                **{"id": 0, "problem": "What is it?", "answer": "116", "solution": "Long."},
                **{"url": "u", "year": 2025, "__index_level_0__": 24},
            },
            "0",
        ),
        # math-ai/aime25 and others that call the problem a question
        ("aime25", {"id": "I-1", "question": "What is it?", "answer": "116"}, "I-1"),
        # math-ai/amc23
        ("amc23", {"id": 3, "question": "What is it?", "answer": "116.0", "url": "u"}, "3"),
        # knoveleng/OlympiadBench
        ("olympiadbench", {"id": 5, "question": "What is it?", "answer": "$116$"}, "5"),
        # zwhe99/DeepMath-103K, agentica-org/DeepScaleR-Preview-Dataset, SynthLabsAI's Big-Math
        (
            "deepmath",
            {
                **{"question": "What is it?", "final_answer": "116", "difficulty": 5.5},
                **{"topic": "Algebra", "r1_solution_1": "a", "r1_solution_2": "b"},
            },
            None,
        ),
        ("deepscaler", {"problem": "What is it?", "answer": "116", "solution": "Long."}, None),
        (
            "bigmath",
            {
                **{"problem": "What is it?", "answer": "116", "source": "orca_math"},
                **{"domain": ["Algebra"], "llama8b_solve_rate": 0.5},
            },
            None,
        ),
        # HuggingFaceH4/MATH-500
        (
            "math500",
            {
                **{"problem": "What is it?", "solution": "Long.", "answer": "116"},
                **{"subject": "Algebra", "level": 2, "unique_id": "t/1.json"},
            },
            "t/1.json",
        ),
    ],
)
def test_a_competition_is_read_by_the_columns_of_its_public_file(
    name: str, row: dict[str, Json], source_id: str | None
) -> None:
    parsed = parse(name, row)

    assert parsed.prompt[0].content.startswith("What is it?\n")
    assert parsed.source_id == source_id
    assert verdict(parsed, "\\boxed{116}") is Verdict.CORRECT
    assert verdict(parsed, "\\boxed{117}") is Verdict.WRONG


def test_a_column_of_our_layout_goes_before_that_of_the_public_file() -> None:
    parsed = parse("amc23", {"problem": "Ours?", "question": "Theirs?", "answer": 1})

    assert parsed.prompt[0].content.startswith("Ours?")


@pytest.mark.parametrize("facts", [["Fire is hot.", "Ice is cold."], "Fire is hot.\nIce is cold."])
def test_strategyqa_shows_the_facts_that_a_row_has(facts: Json) -> None:
    parsed = parse("strategyqa_train", {"question": "Is ice hot?", "answer": False, "facts": facts})

    text = parsed.prompt[0].content
    assert text.index("Fire is hot.") < text.index("Ice is cold.") < text.index("Is ice hot?")
    assert verdict(parsed, "no") is Verdict.CORRECT


@pytest.mark.parametrize("facts", [{}, {"facts": []}, {"facts": None}, {"facts": ""}])
def test_strategyqa_needs_no_facts(facts: dict[str, Json]) -> None:
    parsed = parse("strategyqa_dev", {"question": "Is ice hot?", "answer": False, **facts})

    assert parsed.prompt[0].content.startswith("Is ice hot?\n")


@pytest.mark.parametrize(
    ("label", "right", "wrong"),
    [
        ("proved", "True", "False"),
        ("disproved", "False", "Uncertain"),
        ("unknown", "Uncertain", "True"),
    ],
)
def test_boardgame_qa_is_true_false_or_uncertain(label: str, right: str, wrong: str) -> None:
    parsed = parse("bgqa", {"example": "The cat sees the dog. Is it so?", "label": label})

    assert verdict(parsed, f"\\boxed{{{right}}}") is Verdict.CORRECT
    assert verdict(parsed, f"\\boxed{{{wrong}}}") is Verdict.WRONG


NL = "Determine if there is a path. Graph: (0,1) (1,2)\nQ: Is there a path between node {}?\nA:"


def test_a_question_about_a_node_without_edges_is_read() -> None:
    parsed = parse(
        "nlgraph",
        {
            "question": NL.format("7 and node 1"),
            "answer": "The answer is no.",
            "difficulty": "easy",
        },
    )

    assert (parsed.payload["kind"], parsed.payload["nodes"]) == ("connectivity", 8)
    assert verdict(parsed, "### no") is Verdict.CORRECT
    assert verdict(parsed, "### yes") is Verdict.WRONG


def test_graphwiz_may_call_its_question_query_and_leave_out_its_task() -> None:
    asked = (
        "Determine whether or not there is a cycle in an undirected graph. Q: The nodes are "
        "numbered from 0 to 2, and the edges are: (0, 1) (1, 2) (0, 2). Is there a cycle in this "
        "graph?"
    )
    parsed = parse("graphwiz", {"query": asked, "answer": "### Yes"})

    assert parsed.payload["kind"] == "cycle"
    assert verdict(parsed, "### yes") is Verdict.CORRECT


@pytest.mark.parametrize("name", ["nlgraph", "graphwiz"])
def test_the_kind_of_a_graph_question_is_told_by_its_words(name: str) -> None:
    file = SHARED / f"{name}.jsonl"
    if not file.is_file():
        pytest.skip("the shared data are not here")
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    wrong = {
        (row["task"], kind)
        for row in rows
        if (kind := kind_in(row.get("input_prompt") or row["question"]))
        != {"shortest_path": "shortest", "GNN": "gnn"}.get(row["task"], row["task"])
    }

    assert wrong == set()


def test_grapharena_is_read_in_its_own_columns() -> None:
    graph = {
        "nodes": [{"id": 0, "name": "Ann"}, {"id": 1, "name": "Bob"}, {"id": 2, "name": "Cy"}],
        "links": [{"source": 0, "target": 1}, {"source": 1, "target": 2}],
    }
    row: dict[str, Json] = {
        "id": 4,
        "task": "MVC",
        "problem_text": "Cover all friendships. Please answer [A, B].",
        "graph": json.dumps(graph),
        "exact_answer": 1,
    }
    parsed = parse("grapharena_problems", row)

    assert parsed.prompt[0].content == "Cover all friendships. Please answer [A, B]."
    assert parsed.payload["optimum"] == 1
    assert verdict(parsed, "[Bob]") is Verdict.CORRECT
    assert verdict(parsed, "[Ann, Cy]") is Verdict.WRONG
    unsolved = parse("grapharena_problems", {**row, "exact_answer": None})
    assert unsolved.payload["optimum"] == 1


RESULT = (
    "system\nPlay 24 game. For example, input: '10 1 12 3', the last line should be the "
    "expression.\nuser\n13 2 2 2\n\nassistant\n(2) / (2) = 1, left: (2 / 2) = 1, 13, 2\n"
    "reach 24! expression: (2 * (13 - (2 / 2)))"
)


def test_result_files_of_llm4game24_are_hands_with_answers(tmp_path: Path) -> None:
    file = tmp_path / "short.json"
    file.write_text(json.dumps([RESULT, RESULT]))
    parsed, again = (parse("game24_results", row.fields) for row in iterate_rows(file))
    assert again == parsed

    assert parsed.prompt[0].content == "13 2 2 2"
    assert parsed.responses[0].text.startswith("(2) / (2) = 1")
    assert parsed.responses[0].text.endswith("expression: (2 * (13 - (2 / 2)))")
    assert parsed.responses[0].is_good is None


CODEIO = """You are given a question that requires some input and output variables as follows:
Double a number.
The input and output requirements are as follows:
x is a number.
Given the following {given}:{space}
{value}
Can you predict {wanted} without writing any code? Please reason and put your final answer in the \
following json format. Please put your answer in \\boxed{{}} tags.
Tip: Here is a reference code snippet for this question. You can refer to this code tov guide your \
reasoning but not copy spans of code directly.
def main_solution(x):
    return abs(2 * x)

Please output the final answer within ```json```"""


def codeio_row(truth: str, **words: str) -> dict[str, Json]:
    return {
        "data_source": "simulation__codeio",
        "prompt": [{"role": "user", "content": CODEIO.format(space=" ", **words)}],
        "reward_model": {"style": "rule", "ground_truth": truth},
        "extra_info": {"index": 1},
    }


def test_both_halves_of_codeio_are_read_from_gurus_rows() -> None:
    forth = parse(
        "guru", codeio_row('"output": 6', given="input", value='{"x": 3}', wanted="the output")
    )
    back = parse(
        "guru",
        codeio_row('"input": {"x": 3}', given="output", value="6", wanted="a feasible input"),
    )

    assert forth.unsupported is None and back.unsupported is None
    assert verdict(forth, '```json\n{"output": 6}\n```') is Verdict.CORRECT
    assert verdict(back, '```json\n{"input": {"x": 3}}\n```') is Verdict.CORRECT
    assert verdict(back, '```json\n{"input": {"x": -3}}\n```') is Verdict.CORRECT
    assert verdict(back, '```json\n{"input": {"x": 4}}\n```') is Verdict.WRONG


def test_a_codeio_input_without_its_program_is_left_out() -> None:
    row = codeio_row('"input": {"x": 3}', given="output", value="6", wanted="a feasible input")
    row["prompt"] = [{"role": "user", "content": "Which input gives 6?"}]

    assert "program" in str(parse("guru", row).unsupported)


def test_cruxeval_outputs_of_guru_are_compared_with_their_reference() -> None:
    source = "def f(x):\n    return x + [1]"
    asked = f"Complete it.\n\n```python\n{source}\nassert f([2]) == ??\n```\n"
    row: dict[str, Json] = {
        "data_source": "simulation__cruxeval-o",
        "prompt": [{"role": "user", "content": asked}],
        "reward_model": {"style": "rule", "ground_truth": json.dumps({"functional": source})},
        "extra_info": {"index": 1, "reference": "[2, 1]"},
    }
    parsed = parse("guru", row)

    assert parsed.unsupported is None
    assert verdict(parsed, "```python\nassert f([2]) == [2, 1]\n```") is Verdict.CORRECT
    assert verdict(parsed, "```python\nassert f([3]) == [2, 1]\n```") is Verdict.WRONG
    assert verdict(parsed, "```python\nassert f([2]) == [2]\n```") is Verdict.WRONG
    row["extra_info"] = {"index": 1}
    assert "output" in str(parse("guru", row).unsupported)


@pytest.mark.parametrize("source", ["ood__ifbench", "reasoning_gym"])
def test_sources_of_guru_without_a_grader_are_left_out_with_the_reason(source: str) -> None:
    row: dict[str, Json] = {
        "data_source": source,
        "prompt": [{"role": "user", "content": "Write a poem."}],
        "reward_model": {"style": "rule", "ground_truth": [{"num_words": 3}]},
        "extra_info": {"instruction_id_list": ["length_constraints:number_words"]},
    }

    assert "grader" in str(parse("guru", row).unsupported)


def test_the_difficulty_of_deepmath_is_the_level() -> None:
    row: dict[str, Json] = {
        "data_source": "DeepMath-103K",
        "prompt": [{"role": "user", "content": "What is it?"}],
        "reward_model": {"style": "rule", "ground_truth": "1"},
        "extra_info": {"index": 1},
    }

    assert parse("tango", {**row, "level": 5.0}).level == 0.5
    assert parse("tango", {**row, "level": -1.0}).level == 0.0
    assert parse("tango", row).level is None


STEPS: dict[str, Json] = {
    "id": "olympiadbench-12",
    "generator": "Qwen2-7B-Instruct",
    "problem": "What is 2 + 3 * 4?",
    "steps": ["3 * 4 is 12.", "2 + 12 is 15.", "So it is 15."],
    "final_answer_correct": False,
    "label": 1,
}


def test_process_bench_asks_for_the_first_wrong_step_and_declares_its_half() -> None:
    wrong, right = parse("process_bench", STEPS), parse("process_bench", {**STEPS, "label": -1})

    assert "<paragraph_1>\n2 + 12 is 15.\n</paragraph_1>" in wrong.prompt[0].content
    assert wrong.payload == {"f1": {"subset": "olympiadbench", "half": "error"}}
    assert right.payload == {"f1": {"subset": "olympiadbench", "half": "correct"}}
    assert verdict(wrong, "\\boxed{1}") is verdict(right, "\\boxed{-1}") is Verdict.CORRECT
    with pytest.raises(DataError, match="index of one of 3 steps"):
        parse("process_bench", {**STEPS, "label": 3})


FOLLOW: dict[str, Json] = {
    "key": 1001,
    "prompt": "Name a city in at least two words, without commas.",
    "instruction_id_list": ["punctuation:no_comma", "length_constraints:number_words"],
    "kwargs": [{"num_words": None}, {"num_words": 2.0, "relation": "at least", "letter": None}],
}


def test_ifeval_is_read_from_its_own_file_and_from_gurus_rows() -> None:
    own = parse("ifeval", FOLLOW)
    guru = parse(
        "guru",
        {
            "data_source": "ood__ifeval",
            "prompt": [{"role": "user", "content": FOLLOW["prompt"]}],
            "reward_model": {"style": "rule", "ground_truth": FOLLOW["kwargs"]},
            "extra_info": {"instruction_id_list": FOLLOW["instruction_id_list"]},
        },
    )

    assert own.payload == guru.payload and own.source_id == "1001"
    for parsed in (own, guru):
        assert parsed.unsupported is None
        assert verdict(parsed, "New York") is Verdict.CORRECT
        assert verdict(parsed, "York") is verdict(parsed, "York, Oslo") is Verdict.WRONG


@pytest.mark.parametrize(("language", "is_graded"), [("ko", True), ("hi", False), ("de", False)])
def test_a_language_that_shares_its_script_is_left_out(language: str, is_graded: bool) -> None:
    parsed = parse(
        "ifeval",
        {
            "prompt": "Say hello.",
            "instruction_id_list": ["language:response_language"],
            "kwargs": [{"language": language}],
        },
    )
    assert (parsed.unsupported is None) == is_graded
    assert is_graded or language in str(parsed.unsupported)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"kwargs": [{}]}, "2 instructions and arguments for 1"),
        ({"kwargs": [{}, {}]}, "number_words: 'num_words'"),
        ({"kwargs": [{}, {"num_words": 2, "relation": "about"}]}, "less than or at least"),
        ({"instruction_id_list": ["punctuation:no_comma", "x:y"]}, "'x:y' is unknown"),
    ],
)
def test_an_instruction_without_its_arguments_is_refused(
    change: dict[str, Json], reason: str
) -> None:
    with pytest.raises(DataError, match=reason):
        parse("ifeval", {**FOLLOW, **change})


PAPER = (
    "Node 0 is linked to 1, 2. Label of 1: Neural_Networks. Which label of Theory, Neural_Networks?"
)
HOSTILE = (
    "",
    PAPER,
    "<think>\\boxed{{{}}}",
    "\\boxed{{{}",
    "\\boxed{{Theory, Neural_Networks, yes, no}}",
    "It is not {}.",
    '{{"correct": 1.0}}',
    "yes or no " * 50_000,
)


@pytest.mark.parametrize(
    ("name", "answer", "right", "wrong"),
    [
        ("node_classification", "Neural_Networks", "neural_networks", "Theory"),
        ("node_classification", "Type 1 Diabetes", "\\text{type 1 diabetes}", "Type 2 Diabetes"),
        ("link_prediction", "Yes", "yes", "no"),
        ("link_prediction", "No", "\\text{No}", "yes"),
    ],
)
def test_labels_and_links_of_g1_are_compared_whole(
    name: str, answer: str, right: str, wrong: str
) -> None:
    parsed = parse(name, {"prompt": PAPER, "answer": answer})
    hostile = [text.format(answer) for text in HOSTILE]

    assert verdict(parsed, f"Therefore, the final answer is: $\\boxed{{{right}}}$.") == "correct"
    assert verdict(parsed, f"Therefore, the final answer is: $\\boxed{{{wrong}}}$.") == "wrong"
    assert [text[:40] for text in hostile if verdict(parsed, text) == "correct"] == []


def test_a_link_that_is_neither_yes_nor_no_is_refused() -> None:
    with pytest.raises(DataError, match="'perhaps' is unknown"):
        parse("link_prediction", {"prompt": PAPER, "answer": "Perhaps"})


@pytest.mark.parametrize(
    ("task", "truth", "right", "wrong"),
    [
        ("web_of_lies_v2", "yes, no, yes", "So it is **yes, no, yes**.", "**yes, no, no**"),
        ("house_traversal", "Ann Bo Cy", "The order is **Ann, Bo, Cy**.", "**Ann, Cy, Bo**"),
        ("zebra_puzzle", "four", "***4***", "***five***"),
        ("tablejoin", "{'a': 'b', 'c': None}", '```json\n{"a": "b"}\n```', '{"a": "c"}'),
        ("typos", "There is a cat.", "Here it is:\n\nThere is a cat.", "There is a cat!"),
        ("plot_unscrambling", "A. B.", "<PLOT_SUMMARY>A. B.</PLOT_SUMMARY>", "B. A."),
    ],
)
def test_livebench_is_read_from_its_own_file_and_from_gurus_rows(
    task: str, truth: str, right: str, wrong: str
) -> None:
    own = parse("livebench", {"turns": ["It?"], "ground_truth": truth, "task": task})
    guru = parse(
        "guru",
        {
            "data_source": "ood__livebench",
            "prompt": [{"role": "user", "content": "It?"}],
            "reward_model": {"style": "rule", "ground_truth": truth},
            "extra_info": {"task": task, "category": "any"},
        },
    )

    assert (own.answer, own.payload) == (guru.answer, guru.payload)
    for parsed in (own, guru):
        assert parsed.unsupported is None
        assert verdict(parsed, right) == "correct" and verdict(parsed, wrong) == "wrong"


@pytest.mark.parametrize(
    ("task", "truth"),
    [("plot_unscrambling", "..."), ("tablereformat", "a,b"), ("cta", "this or that")],
)
def test_a_livebench_row_that_is_not_exact_is_left_out(task: str, truth: str) -> None:
    row: dict[str, Json] = {"turns": ["It?"], "ground_truth": truth, "task": task}
    assert parse("livebench", row).unsupported is not None
