r"""An answer is the same answer in bold, in a box, in tags, behind a heading or one item a line.

Every task of the registry has one problem here, with a right and a wrong answer to it.
"""

import json
from collections.abc import Callable
from functools import cache

import pytest

from whet.tasks.base import Task
from whet.tasks.registry import TASKS, build_default_task
from whet.types import Json, Message, Problem, Verdict

DRESSES = (
    "{}",
    "**{}**",
    "Answer: {}",
    "**Answer:** {}",
    "**Answer: {}**",
    "Answer: **{}**",
    "Final answer: {}",
    "**Final Answer:** {}",
    "### Final Answer\n\n{}",
    "### Final Answer\n**{}**",
    "Answer:\n{}",
    "The answer is {}.",
    "The answer is: {}",
    "The final answer is **{}**.",
    "So the answer is:\n\n{}",
    "I looked at it twice.\n\n{}",
    "<answer>{}</answer>",
    "<answer>\n{}\n</answer>",
    "<answer>**{}**</answer>",
    "Final answer: <answer>{}</answer>",
    "\\boxed{{{}}}",
    "$\\boxed{{\\text{{{}}}}}$",
    "**Final answer:** $\\boxed{{\\text{{{}}}}}$",
    "\\[\n\\boxed{{{}}}\n\\]",
    "<think>It may be anything.</think>\n{}",
    "<think>Hm.</think>\n\nThe answer is **{}**.",
    "```\n{}\n```",
)
SHORT_DRESSES = (
    "### {}",
    "### **{}** ###",
    "= {}",
    "A: {}.",
    "Ans: {}",
    "Result: {}",
    "Result = {}",
    "**Final result:** {}",
    "Output: **{}**",
    "All in all: **{}**.",
    "To sum up: {}",
    "So: {}",
    "Thus, {}.",
    "Therefore, **{}**.",
    "We get {}.",
    "It's {}.",
    "Answer: {}.",
    "Answer: `{}`",
    "*Answer:* {}",
    "My answer: {}",
    "✅ **Answer:** {}",
    "Answer – {}",
    "{}\n\nSanity check: every condition of the statement is met, so I am done.",
    "**{}**\n\nI verified this twice.",
    "The answer is {}. I verified this twice.",
    "{}\n\nHope this helps! Let me know if you want the details.",
    "Answer: {} ✓",
    "<answer>= {}</answer>",
    "One might guess something else, but that is a mistake.\n\n{}",
)
"""Dress that only a reader of bare answers can see through."""
DENIALS = (
    "The answer is not {}.",
    "It is not {}.",
    "It isn't {}.",
    "It cannot be {}.",
    "It might be {}.",
    "Perhaps {}.",
    "not {}",
    "**Not {}**",
    "Answer: not {}",
    "The answer is **not** {}.",
    "The answer is anything but {}.",
    "The answer is unlikely to be {}.",
    "{} is wrong.",
    "{} is not the answer.",
    "Answer: {} (wrong)",
    "The answer {} is incorrect.",
    "If the answer were {}, we would have a contradiction.",
    "Suppose the answer is {}.",
    "I doubt that the answer is {}.",
    "I do not think that the answer is {}.",
    "We cannot say whether it is {}.",
    "Is it {}?",
    "Final answer: {}? No.",
    "The answer is {} or something else.",
    "The answer is {}, or maybe not.",
    "The answer is not \\boxed{{{}}}.",
    "\\boxed{{{}}} is wrong.",
    "It is not <answer>{}</answer>.",
    "The answer is not:\n{}",
    "Not the answer:\n\n{}",
    "Wrong answer: {}",
    "Answer: {}\nThis is a mistake.",
    "Answer: {}\n\nThat is too large.",
    "We never get {}.",
    "Result: {}? No.",
    "So {} or something else.",
    "<think>{}</think>",
)
HEDGES = (
    "The answer is {} or {}.",
    "{} or {}",
    "Either {} or {}.",
    "Answer: {} or {}",
    "Final answer: {}\n\nWait, no.\n\nFinal answer: {}",
    "<answer>{} or {}</answer>",
    "\\boxed{{{} \\text{{ or }} {}}}",
    "<answer>{}</answer>\n<answer>{}</answer>",
    "Answer: {}\n\nI forgot a part, so the answer is {}.",
    "So {} or {}.",
    "Result: {} or {}",
    "Result: {}\nResult: {}",
    "\\boxed{{{}}} \\boxed{{{}}}",
)
PROGRAMS = (
    "```python\n{}\n```",
    "```\n{}\n```",
    "```py\n{}\n```",
    "Here it is:\n\n```python\n{}\n```\n\nIt runs in constant time.",
    "**Final answer:**\n```python\n{}\n```",
    "<answer>\n```python\n{}\n```\n</answer>",
    "<think>```python\nraise\n```</think>\n```python\n{}\n```",
)
LISTS: tuple[Callable[[list[str]], str], ...] = (
    ", ".join,
    lambda items: f"[{', '.join(items)}]",
    json.dumps,
    lambda items: f"{', '.join(items[:-1])} and {items[-1]}",
    lambda items: f"{', '.join(items[:-1])}, and {items[-1]}",
    " -> ".join,
    " → ".join,
    " \\to ".join,
    lambda items: "\n".join(items),
    lambda items: "\n".join(f"- {item}" for item in items),
    lambda items: "\n".join(f"* {item}" for item in items),
    lambda items: "\n".join(f"{n}. {item}" for n, item in enumerate(items, 1)),
    lambda items: "[" + ", ".join(f"\\text{{{item}}}" for item in items) + "]",
    lambda items: ", ".join(f"**{item}**" for item in items),
)
LIST_DRESSES = (
    "{}",
    "Final answer: {}",
    "**Final answer:**\n{}",
    "The answer is:\n{}",
    "<answer>{}</answer>",
    "<answer>\n{}\n</answer>",
    "\\boxed{{{}}}",
)

GRAPH: dict[str, Json] = {
    "nodes": ["Ana Li", "Bo Sun", "Cy Dee", "Di Fox"],
    "edges": [["Ana Li", "Bo Sun"], ["Bo Sun", "Cy Dee"], ["Cy Dee", "Di Fox"]],
}
TRIANGLE: dict[str, Json] = {
    "nodes": ["Ana Li", "Bo Sun", "Cy Dee", "Di Fox"],
    "edges": [
        ["Ana Li", "Bo Sun"],
        ["Bo Sun", "Cy Dee"],
        ["Ana Li", "Cy Dee"],
        ["Cy Dee", "Di Fox"],
    ],
}
FLIGHTS: dict[str, Json] = {
    "nodes": ["AMS", "BER", "CPH", "DUB"],
    "edges": [
        ["AMS", "BER", 1], ["BER", "CPH", 1], ["CPH", "DUB", 1],
        ["AMS", "DUB", 1], ["AMS", "CPH", 3], ["BER", "DUB", 3],
    ],
}  # fmt: skip
PEOPLE: dict[str, Json] = {**GRAPH, "pair": ["Ana Li", "Di Fox"]}
ETHANOL: dict[str, Json] = {"labels": ["C", "C", "O"], "bonds": [[0, 1], [1, 2]]}
BONDS: dict[str, Json] = {"n": 3, "bonds": [[0, 1], [1, 2]]}
HOUSES = '{"House 1": {"Name": "Ann", "Pet": "cat"}, "House 2": {"Name": "Bea", "Pet": "dog"}}'
SEATS = '{"header": ["Position", "Food"], "rows": [["1", "grape"], ["2", "kiwi"]]}'
OPTIONS: dict[str, Json] = {"A": "Rome", "B": "Oslo", "C": "Bonn", "D": "Bern"}
F = "def f(x):\n    return [x, x * x]"
TRIPLE = "def triple(x):\n    return 3 * x"
DOUBLE = "def triple(x):\n    return 2 * x"

SAMPLES: dict[str, tuple[str | None, dict[str, Json], str, str]] = {
    "math": ("391", {}, "391", "392"),
    "game24": (None, {"numbers": [4, 7, 8, 8]}, "(7 - 8 / 8) * 4", "(7 + 8 / 8) * 4"),
    "countdown": (None, {"numbers": [9, 4, 6], "target": 30}, "4 * 9 - 6", "4 * 6 + 9"),
    "arithmetic": ("12", {"expression": "8 + 4"}, "12", "13"),
    "last_letter": ("nda", {"words": ["Ian", "Fred", "Ada"]}, "nda", "dna"),
    "reverse": ("lgguj", {"text": "juggl"}, "lgguj", "lgugj"),
    "tsp": (None, FLIGHTS, "[AMS, BER, CPH, DUB, AMS]", "[AMS, CPH, BER, DUB, AMS]"),
    "ged": (None, {"A": ETHANOL, "B": ETHANOL}, "[0, 1, 2]", "[2, 1, 0]"),
    "mcp": (None, TRIANGLE, "[Ana Li, Bo Sun, Cy Dee]", "[Ana Li, Bo Sun, Di Fox]"),
    "mis": (None, GRAPH, "[Ana Li, Di Fox]", "[Ana Li, Bo Sun]"),
    "mvc": (None, GRAPH, "[Bo Sun, Cy Dee]", "[Bo Sun, Ana Li]"),
    "mcs": (None, {"A": BONDS, "B": BONDS}, "[0, 1, 2], [2, 1, 0]", "[0, 1], [0, 1]"),
    "neighbor": (None, {**GRAPH, "pair": ["Ana Li", "Cy Dee"]}, "[Bo Sun]", "[Di Fox]"),
    "distance": (None, PEOPLE, "[Ana Li, Bo Sun, Cy Dee, Di Fox]", "[Ana Li, Cy Dee, Di Fox]"),
    "connected": (
        None,
        {**GRAPH, "edges": [["Ana Li", "Bo Sun"], ["Cy Dee", "Di Fox"]]},
        "[Ana Li, Cy Dee]",
        "[Ana Li, Bo Sun]",
    ),
    "diameter": (None, GRAPH, "[Ana Li, Bo Sun, Cy Dee, Di Fox]", "[Ana Li, Bo Sun, Cy Dee]"),
    "graphwiz": (
        "Yes",
        {"nodes": 3, "edges": [[0, 1], [1, 2], [0, 2]], "kind": "cycle"},
        "Yes",
        "No",
    ),
    "nlgraph": (
        None,
        {
            "nodes": 4,
            "edges": [[0, 1, 1], [1, 2, 2], [2, 3, 1], [0, 3, 9]],
            "kind": "shortest",
            "pair": [0, 3],
        },
        "0, 1, 2, 3",
        "0, 3",
    ),
    "zebra": (SEATS, {}, SEATS, SEATS.replace("kiwi", "grape")),
    "ordering": (
        '["owl", "crow", "robin"]',
        {},
        '["owl", "crow", "robin"]',
        '["owl", "robin", "crow"]',
    ),
    "knights": (
        "(1) Zoey is a knave\n(2) Liam is a knight",
        {},
        "Zoey is a knave and Liam is a knight",
        "Zoey is a knight and Liam is a knave",
    ),
    "graph_logic": ("vex", {}, "vex", "zim"),
    "zebralogic": (HOUSES, {}, HOUSES, HOUSES.replace("dog", "fish")),
    "arc": ("[[1, 0], [0, 2]]", {}, "[[1, 0], [0, 2]]", "[[1, 0], [2, 0]]"),
    "clrs": ("[2 2 2 0]", {}, "[2 2 2 0]", "[2 2 0 2]"),
    "codeio": (
        "16",
        {
            "program": "def main_solution(x):\n    return 3 * x + 1",
            "direction": "output",
            "input": {"x": 5},
            "output": 16,
        },
        "16",
        "17",
    ),
    "cruxeval": (
        "[5, 25]",
        {"program": F, "direction": "output", "input": "5", "output": "[5, 25]"},
        "[5, 25]",
        "[5, 24]",
    ),
    "code_function": (
        TRIPLE,
        {"entry": "triple", "tests": ["assert triple(7) == 21"]},
        TRIPLE,
        DOUBLE,
    ),
    "code_stdin": (
        "print(3 * int(input()))",
        {"cases": [{"input": "7\n", "output": "21\n"}]},
        "print(3 * int(input()))",
        "print(2 * int(input()))",
    ),
    "code_pytest": (
        TRIPLE,
        {"tests": "from solution import triple\n\ndef test_it():\n    assert triple(7) == 21\n"},
        TRIPLE,
        DOUBLE,
    ),
    "table": ("1,204", {}, "1,204", "1,205"),
    "choice": ("B", {"options": OPTIONS}, "B", "C"),
    "yes_no": ("yes", {}, "yes", "no"),
    "process_bench": ("2", {}, "2", "-1"),
    "ifeval": (
        None,
        {"instructions": [{"id": "startend:quotation"}, {"id": "punctuation:no_comma"}]},
        '"Tea is ready."',
        '"Tea, please."',
    ),
    "livebench": ("yes, no, yes", {"kind": "words"}, "yes, no, yes", "yes, no, no"),
    "judge": ("Oslo", {}, "Oslo", "Rome"),
}

ITEMS = {
    "tsp": ("AMS BER CPH DUB AMS", "AMS CPH BER DUB AMS"),
    "ged": ("0 1 2", "2 1 0"),
    "mcp": ("Ana_Li Bo_Sun Cy_Dee", "Ana_Li Bo_Sun Di_Fox"),
    "mis": ("Ana_Li Di_Fox", "Ana_Li Bo_Sun"),
    "mvc": ("Bo_Sun Cy_Dee", "Bo_Sun Ana_Li"),
    "distance": ("Ana_Li Bo_Sun Cy_Dee Di_Fox", "Ana_Li Cy_Dee Di_Fox"),
    "connected": ("Ana_Li Cy_Dee", "Ana_Li Bo_Sun"),
    "diameter": ("Ana_Li Bo_Sun Cy_Dee Di_Fox", "Ana_Li Bo_Sun Cy_Dee"),
    "nlgraph": ("0 1 2 3", "0 3"),
    "ordering": ("owl crow robin", "owl robin crow"),
}
"""Right and wrong items of the tasks above whose answers are lists of names or nodes."""
IN_CODE = ("code_function", "code_stdin", "code_pytest")
IN_WORDS = tuple(name for name in TASKS if name not in IN_CODE)
AS_A_WHOLE = ("{}", "<think>It may be anything.</think>\n{}")
"""For ifeval, which judges every word of the response."""
UNSTATED = ("{}", "**{}**", "I looked", "<think>It may", "```")
"""The judge is asked about what is stated as an answer only."""


def verdict_of(name: str, text: str) -> Verdict:
    answer, payload, *_ = SAMPLES[name]
    prompt = (Message(role="user", content="What is asked?"),)
    problem = Problem(
        id=f"{name}/0", task=name, prompt=prompt, answer=answer, payload=payload,
        level=None, split="test", source="test",
    )  # fmt: skip
    return load_task(name).score(problem, text).verdict


@cache
def load_task(name: str) -> Task:
    return build_default_task(name)


def test_every_task_has_a_sample() -> None:
    assert set(SAMPLES) == set(TASKS)


@pytest.mark.parametrize("name", TASKS)
def test_an_answer_is_the_same_in_every_dress(name: str) -> None:
    *_, right, wrong = SAMPLES[name]
    dresses = PROGRAMS if name in IN_CODE else DRESSES
    if name == "ifeval":
        dresses = AS_A_WHOLE
    if name == "judge":
        dresses = tuple(dress for dress in dresses if not dress.startswith(UNSTATED))

    refused = [dress for dress in dresses if verdict_of(name, dress.format(right)) != "correct"]
    accepted = [dress for dress in dresses if verdict_of(name, dress.format(wrong)) == "correct"]

    assert (refused, accepted) == ([], [])


LETTERED = {"choice": ("A: {}.", "We get {}."), "math": ("Ans: {}", *SHORT_DRESSES[-7:])}
"""`A:` names an option; mathematics has a reader of its own."""


@pytest.mark.parametrize("name", [name for name in IN_WORDS if name not in ("ifeval", "judge")])
def test_an_answer_is_the_same_behind_a_few_words_and_before_a_remark(name: str) -> None:
    *_, right, wrong = SAMPLES[name]
    dresses = [dress for dress in SHORT_DRESSES if dress not in LETTERED.get(name, ())]

    refused = [dress for dress in dresses if verdict_of(name, dress.format(right)) != "correct"]
    accepted = [dress for dress in dresses if verdict_of(name, dress.format(wrong)) == "correct"]

    assert (refused, accepted) == ([], [])


@pytest.mark.parametrize("name", [name for name in IN_WORDS if name != "ifeval"])
def test_an_answer_denied_doubted_supposed_or_offered_with_another_is_not_right(name: str) -> None:
    *_, right, wrong = SAMPLES[name]
    texts = [form.format(right) for form in DENIALS]
    texts += [form.format(right, wrong) for form in HEDGES]

    assert [text for text in texts if verdict_of(name, text) == "correct"] == []


@pytest.mark.parametrize(
    "name", [name for name in IN_WORDS if name not in ("ifeval", "math", "judge")]
)
def test_two_answers_below_one_another_are_none(name: str) -> None:
    *_, right, wrong = SAMPLES[name]

    assert verdict_of(name, f"Answer: {right}\n{wrong}") != "correct"


@pytest.mark.parametrize("name", ITEMS)
def test_a_list_is_the_same_however_its_items_are_set_apart(name: str) -> None:
    right, wrong = ([item.replace("_", " ") for item in row.split()] for row in ITEMS[name])
    forms = [(dress, write) for dress in LIST_DRESSES for write in LISTS]

    answers = [dress.format(write(right)) for dress, write in forms]
    others = [dress.format(write(wrong)) for dress, write in forms]

    assert [text for text in answers if verdict_of(name, text) != "correct"] == []
    assert [text for text in others if verdict_of(name, text) == "correct"] == []


@pytest.mark.parametrize("name", ["arithmetic", "table", "codeio"])
@pytest.mark.parametrize(
    "form",
    [
        "The answer is greater than {}.",
        "It is more than {}.",
        "The answer is at least {}.",
        "The answer is {} or more.",
        "The answer is between 1 and {}.",
        "Answer: at most {}",
        "Answer: about {}",
        "<answer>more than {}</answer>",
        "\\boxed{{>{}}}",
    ],
)
def test_a_bound_is_not_the_number(name: str, form: str) -> None:
    assert verdict_of(name, form.format(SAMPLES[name][2])) != "correct"
