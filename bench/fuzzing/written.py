"""Rows for tasks whose problems come from files: question, answer, payload, and another way to
write the answer."""

from collections.abc import Sequence
from typing import Any

_TRIPLE = "def triple(x):\n    return 3 * x"
_RUN = "def main_solution(x):\n    return 3 * x + 1"
Written = tuple[str, str, dict[str, Any]] | tuple[str, str, dict[str, Any], str]
# fmt: off
WRITTEN: dict[str, Sequence[Written]] = {
    "math": (
        ("How many are there?", "271828", {}),
        ("What share is it?", "\\frac{7}{113}", {}, "7113"),
        ("Find the root.", "-4177", {}),
        ("Factor or expand it.", "x^2+37x-1013", {}),
        ("Where is it?", "(17, -29)", {}, "1729"),
        ("Name the set.", "\\{11, 23, 58\\}", {}, "2358"),
        ("On which interval?", "[-13, 57)", {}, "1357"),
        ("Give the exact value.", "\\frac{19\\sqrt{83}}{47}", {}, "1983"),
        ("What is it in metres?", "61.75", {}),
        ("Give the matrix.", "\\begin{pmatrix} 31 & 7 \\\\ 5 & 43 \\end{pmatrix}", {}, "317543"),
        ("Solve for x.", "x=5371", {}, "5371"),
        ("About how much?", "9613", {"error": 1e-6}),
        ("Compute $23+4$.", "27", {}),
        ("Compute $76-(-4\\cdot8-2)+13$.", "123", {}),
        ("Expand $(x+3)(x-5)$.", "x^2-2x-15", {}),
        ("Factor $x^2-9$.", "(x-3)(x+3)", {}, "x3x3"),
        ("Evaluate $\\dbinom{8}{3}$.", "56", {}),
        ("Evaluate $\\lfloor\\sqrt{2023}\\rfloor$.", "44", {}),
        ("Solve $3x=51$.", "17", {}),
        ("Solve $|x|<7$.", "(-7, 7)", {}, "77"),
        ("Simplify $\\frac{84}{245}$.", "\\frac{12}{35}", {}, "1235"),
        ("Find the area of the ring.", "\\pi(R^2-r^2)", {}, "rrr2", "r2rr", "rrrr"),
        ("Which share does it get?", "\\frac{m}{M+m}", {}),
        ("How many are left?", "N-n", {}),
        ("How many people?", "2,003", {}, "2003"),
        ("On which interval does it rise?", "[-4, 9]", {}, "49"),
        ("How many ways?", "50!", {}, "50"),
        ("Give the value.", "e^{100}+3", {}, "e1003"),
        ("How many pairs are there?", "\\lfloor\\frac{n}{3}\\rfloor", {}, "n3"),
        ("Give the force.", "5\\mathbf{i}-7\\mathbf{j}", {}, "5mathbfi"),
    ),
    "table": (
        ("| a | 1 |\nHow many in all?", "48271", {}),
        ("| a | 1 |\nWhich team won?", "Harlequins", {}),
        ("| a | 1 |\nWhat was the cost?", "73.19", {"unit": "dollars"}),
        ("| a | 1 |\nWho came first and second?", "Brunel | Telford", {}, "telfordbrunel"),
        ("| a | 1 |\nBy how much did it grow?", "39.47", {"tolerance": 0.0001}),
    ),
    "choice": (
        ("Which is it?\nA) 4\nB) 5\nC) 6\nD) 7", "B", {"options": ["4", "5", "6", "7"]}),
        ("Who wrote it?\nA) Ada\nB) Bea\nC) Cleo\nD) Dora", "C", {"options": ["Ada", "Bea", "Cleo", "Dora"]}),
        ("Which holds?\nA) x > 1\nB) x < 1\nC) x = 1\nD) none of these", "D",
         {"options": ["x > 1", "x < 1", "x = 1", "none of these"]}),
    ),
    "yes_no": (
        ("Do whales breathe air? Answer yes or no.", "yes", {}),
        ("Is the moon a planet? Answer yes or no.", "no", {}),
    ),
    "process_bench": (
        ("<paragraph_0>\nSo it is 4.\n</paragraph_0>\nWhich is wrong?", "17", {}),
        ("<paragraph_0>\nSo it is 4.\n</paragraph_0>\nWhich is wrong?", "-1", {}, "1"),
    ),
    "ifeval": (
        ("Offer tea. Ask for questions at the end, and do not deny.", "Tea is ready now. Any other questions?",
         {"instructions": [{"id": "startend:end_checker", "end_phrase": "Any other questions?"},
                           {"id": "keywords:forbidden_words", "forbidden_words": ["not", "maybe"]}]}),
    ),
    "livebench": (
        ("Who tells the truth?", "yes, no, unknown", {"kind": "words"}),
        ("Group the words.", "ant, bee, fly, wasp, oak, elm, ash, fir", {"kind": "groups"}, "elm"),
        ("Join the tables.", '{"name": "title", "born": "year"}', {"kind": "mapping"}),
        ("Mend the text.", "We were there, and they're here now.", {"kind": "text"}),
        ("Put it in order.", "Zoe wakes. Bob calls. They meet at nine.", {"kind": "order"}),
    ),
    "judge": (
        ("How do plants feed?", "photosynthesis", {"answers": ["the photosynthetic process"]}, "photosynthetic"),
        ("How far is it, in km?", "384400", {}),
        ("Who painted it?", "Artemisia Gentileschi", {}),
    ),
    "codeio": (
        ("```python\ndef main_solution(x): ...\n```\nWhat is the output?", "[17, 29, 31]",
         {"program": _RUN, "direction": "output", "input": {"x": 5}, "output": [17, 29, 31]}, "172931"),
        ("```python\ndef main_solution(x): ...\n```\nWhat is the output?", "48271",
         {"program": _RUN, "direction": "output", "input": {"x": 5}, "output": 48271}),
    ),
    "cruxeval": (
        ("What is f(5)?", "[61, 'seven', 83]",
         {"program": "def f(x): ...", "direction": "output", "input": "5", "output": "[61, 'seven', 83]"}, "seven"),
        ("What is f(6)?", "58213",
         {"program": "def f(x): ...", "direction": "output", "input": "6", "output": "58213"}),
    ),
    "codeio_run": (
        ("Which input gives 1234?", "411",
         {"program": _RUN, "direction": "input", "input": {"x": 411}, "output": 1234}),
    ),
    "cruxeval_run": (
        ("assert f(??) == 1234", "411",
         {"program": "def f(x):\n    return 3 * x + 1", "direction": "input", "input": "411", "output": "1234"}),
    ),
    "code_function": (
        ("Write triple(x).", _TRIPLE,
         {"entry": "triple", "tests": ["assert triple(7) == 21", "assert triple(-2) == -6"]}),
        ("Write triple(x).", _TRIPLE,
         {"entry": "triple", "tests": ["def check(candidate):\n    assert [candidate(7), candidate(4)] == [21, 12]"]}),
    ),
    "code_stdin": (
        ("Read a number and print three times it.", "print(3 * int(input()))",
         {"cases": [{"input": "7\n", "output": "21\n"}, {"input": "4\n", "output": "12\n"}]}),
    ),
    "code_pytest": (
        ("Write a module with triple(x).", _TRIPLE,
         {"tests": "from solution import triple\n\ndef test_it():\n    assert [triple(7), triple(4)] == [21, 12]\n"}),
    ),
}
# fmt: on
