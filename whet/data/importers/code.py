"""Programs to write (HumanEval, MBPP, LeetCode, Codeforces, ...) and to trace (CRUXEval, CodeI/O).

Rows are left out, with a reason, if their tests cannot run here, or if several outputs are right
and there is no checker.
"""

import ast
import json
import re
from dataclasses import replace
from functools import partial

from whet.data.importers.base import Fields, ParsedRow, Reader, parse_json, show, to_level, user
from whet.errors import DataError
from whet.rng import derive
from whet.tasks.code import code_stdin, code_tests, prediction, tests_text
from whet.tasks.code.prediction import Direction
from whet.types import Json, Message, Problem

FUNCTION = "Write the function in Python, in one fenced code block, with the imports it needs."
_PROGRAM = (
    "Write a Python program that reads standard input and writes standard output, "
    "in one fenced code block."
)
ASKED: dict[Direction, str] = {
    "output": "Without running it, say what it gives for this input. "
    "End with the output as JSON in a fenced block.",
    "input": "Find an input that gives this output. "
    "End with its arguments as a JSON object in a fenced block.",
}
PLAIN = "def plain(x):\n    return [plain(y) for y in x] if isinstance(x, (list, tuple)) else x"
"""JSON does not distinguish tuples from lists, so results are compared as lists."""
GRADES = {"easy": 1, "medium": 3, "meidum": 3, "hard": 5}
"""One of the LeetCode files misspells its medium."""


_NUMPY = re.compile(r"^import numpy as np$", re.MULTILINE)
_OTHER_NUMPY = re.compile(r"\bnp\.(?!(?:allclose|ndarray|float32|float64)\b)")
_CLOSE = """class np:
    ndarray = type("ndarray", (), {})
    float32 = float64 = float

    @staticmethod
    def allclose(out, exp, rtol=1e-05, atol=1e-08):
        if not isinstance(exp, (list, tuple)):
            return abs(out - exp) <= atol + rtol * abs(exp)
        return len(out) == len(exp) and all(np.allclose(a, b, rtol, atol) for a, b in zip(out, exp))
"""
"""The numpy functions that tests of HumanEval+ and MBPP+ use; tests may not import numpy."""


def humaneval(row: Fields) -> ParsedRow:
    """Complete a stub; the tests may use its imports and helpers."""
    stub = row.text("prompt")
    entry = row.text("entry_point")
    return function_problem(
        user(f"Complete this function:\n\n```python\n{stub.rstrip()}\n```", FUNCTION),
        entry,
        [_without_numpy(row.text("test"))],
        setup=_outside_of(stub, entry),
        answer=stub + row.text("canonical_solution"),
    )


def mbpp(row: Fields, *, is_plus: bool = False) -> ParsedRow:
    """Show the first test, because only tests give the function's name. MBPP+ has its tests in one
    text."""
    program = row.text("code")
    tests = row.texts("test_list")
    used = {node.id for node in ast.walk(tree_of(tests[0])) if isinstance(node, ast.Name)}
    body = tree_of(program).body
    names = [node.name for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    entry = next((name for name in reversed(names) if name in used), "")
    imports = row.entries("test_imports") if "test_imports" in row else []
    shown = f"It should pass this test:\n\n```python\n{tests[0]}\n```"
    return function_problem(
        user(row.text("prompt"), shown, FUNCTION),
        entry,
        [_without_numpy(row.text("test"))] if is_plus else tests,
        setup="\n".join(str(line) for line in imports),
        answer=program,
    )


def _without_numpy(tests: str) -> str:
    """Let tests compare floats without numpy, if they need it only for this."""
    return tests if _OTHER_NUMPY.search(tests) else _NUMPY.sub(lambda _: _CLOSE, tests, count=1)


def leetcode(row: Fields) -> ParsedRow:
    level = str(row.table("meta").get("difficulty", "")).lower() if "meta" in row else ""
    parsed = function_problem(
        user(row.text("query")),
        row.text("entry_point"),
        [row.text("test")],
        setup=row.optional_text("prompt"),
        answer=row.optional_text("completion") or None,
    )
    return replace(parsed, level=_level_of_grade(level))


def stdin_tests(row: Fields) -> ParsedRow:
    """Read a list of inputs and outputs, as rllm stores Codeforces."""
    cases = Fields(tests=parse_json(row.get("tests"))).entries("tests")
    return with_cases(row.text("problem"), cases, row)


def livecodebench(row: Fields) -> ParsedRow:
    """Read public tests, and hidden ones unless they are pickled: nothing is unpickled here."""
    cases = Fields(tests=parse_json(row.get("public_test_cases"))).entries("tests")
    hidden = parse_json(row.get("private_test_cases"))
    cases = [*cases, *hidden] if isinstance(hidden, list) else cases
    question = f"{row.text('question_title')}\n\n{row.text('question_content')}"
    parsed = with_cases(question, cases, row)
    return replace(parsed, level=_level_of_grade(row.optional_text("difficulty")))


def taco(row: Fields) -> ParsedRow:
    """Read TACO and APPS: `input_output` names the function to call, if there is one."""
    solutions = parse_json(row.get("solutions"))
    first = solutions[0] if isinstance(solutions, list) and solutions else None
    starter = row.optional_text("starter_code")
    parsed = in_and_out(row.text("question"), row.table("input_output"), starter)
    return replace(
        parsed,
        answer=first if isinstance(first, str) else None,
        source_id=row.row_id("problem_id", "id", "url"),
    )


def primeintellect(row: Fields) -> ParsedRow:
    """Read PrimeIntellect's tests: calls of a function by its name, or inputs and outputs."""
    question = row.text("problem")
    tests = [Fields(test) for test in _list_tests(row)]
    kinds = {test.text("type") for test in tests}
    pairs = [(test.get("input"), test.get("output")) for test in tests]
    solutions = row.entries("solutions") if row.get("solutions") is not None else []
    answer = next((text for text in solutions if isinstance(text, str) and text.strip()), None)
    if kinds == {"stdin_stdout"}:
        return replace(stdin_problem(question, pairs), answer=answer)
    if kinds != {"function_call"}:
        raise DataError(f"tests should be function_call or stdin_stdout, not {', '.join(kinds)}")
    name = tests[0].text("fn_name")
    calls = [_write_call(given, wanted) for given, wanted in pairs]
    prompt = user(question, f"Name it `{name}`.", FUNCTION)
    return function_problem(prompt, name, [PLAIN, *calls], setup="", answer=answer)


def _list_tests(row: Fields) -> list[dict[str, Json]]:
    cases = Fields(tests=parse_json(row.get("tests"))).entries("tests")
    objects = [case for case in cases if isinstance(case, dict)]
    if not objects or len(objects) < len(cases):
        raise DataError("field 'tests' should be a list of objects with type, input and output")
    return objects


def in_and_out(question: str, tests: Fields, starter: str) -> ParsedRow:
    """Read {"inputs": [...], "outputs": [...]}, with "fn_name" if a function is to be called."""
    inputs = tests.entries("inputs")
    outputs = tests.entries("outputs")
    if len(inputs) != len(outputs):
        raise DataError(f"there are {len(inputs)} inputs and {len(outputs)} outputs")
    if unknown := tests.keys() - {"inputs", "outputs", "fn_name"}:
        raise DataError(
            f"tests have the unknown field {min(unknown)!r}; known fields: inputs, outputs, fn_name"
        )
    pairs = list(zip(inputs, outputs, strict=True))
    if not tests.get("fn_name"):
        return stdin_problem(question, pairs)
    calls = [_write_call(given, wanted) for given, wanted in pairs]
    return _calling(question, tests.text("fn_name"), calls, starter)


def with_cases(question: str, cases: list[Json], row: Fields) -> ParsedRow:
    """Read [{"input", "output", "testtype"}]; a functional input has one JSON argument per line."""
    objects = [case for case in cases if isinstance(case, dict)]
    pairs = [(c["input"], c["output"]) for c in objects if "input" in c and "output" in c]
    if not pairs or len(pairs) < len(cases):
        raise DataError(
            f"tests should be a list of objects with input and output, not {show(cases)}"
        )
    if not any(case.get("testtype") == "functional" for case in objects):
        return stdin_problem(question, pairs)
    about = parse_json(row.get("metadata"))
    name = about.get("func_name") if isinstance(about, dict) else None
    if not isinstance(name, str):
        raise DataError("tests that call a function need its name as metadata.func_name")
    calls = []
    for given, wanted in pairs:
        arguments = [parse_json(line) for line in _join_lines(given).splitlines()]
        calls.append(_write_call(arguments, parse_json(wanted), is_wrapped=False))
    return _calling(question, name, calls, row.optional_text("starter_code"))


def stdin_problem(question: str, pairs: list[tuple[Json, Json]]) -> ParsedRow:
    """Ask for a program that turns the first text of each pair into the second."""
    cases: list[Json] = [{"input": _join_lines(a), "output": _join_lines(b)} for a, b in pairs]
    payload: dict[str, Json] = {"cases": cases, **code_stdin.policies(question)}
    parsed = ParsedRow(
        task="code_stdin", prompt=user(question, _PROGRAM), answer=None, payload=payload
    )
    return replace(parsed, unsupported=code_stdin.unsupported_reason(question, as_problem(parsed)))


def function_problem(
    prompt: tuple[Message, ...], entry: str, tests: list[str], *, setup: str, answer: str | None
) -> ParsedRow:
    payload: dict[str, Json] = {"entry": entry, "tests": list[Json](tests), "setup": setup}
    parsed = ParsedRow(task="code_function", prompt=prompt, answer=answer, payload=payload)
    return replace(parsed, unsupported=code_tests.unsupported_reason(as_problem(parsed)))


def as_problem(parsed: ParsedRow) -> Problem:
    """Wrap a row's problem for a task to inspect; it has no origin."""
    return parsed.to_problem(split="test", override=None, source="", location="")


def _calling(question: str, name: str, calls: list[str], starter: str) -> ParsedRow:
    entry = f"Solution().{name}" if "class Solution" in starter or not starter else name
    begin = f"Begin with:\n\n```python\n{starter.rstrip()}\n```"
    prompt = user(question, begin if starter else f"Name it `{entry}`.", FUNCTION)
    return function_problem(prompt, entry, [PLAIN, *calls], setup="", answer=None)


def _level_of_grade(grade: str) -> float | None:
    return to_level(GRADES[grade]) if grade in GRADES else None


def _write_call(given: Json, wanted: Json, *, is_wrapped: bool = True) -> str:
    """Write a test of one call; datasets wrap each result in a list."""
    arguments = given if isinstance(given, list) else [given]
    result = wanted[0] if is_wrapped and isinstance(wanted, list) and len(wanted) == 1 else wanted
    return f"assert plain(candidate(*{arguments!r})) == {result!r}"


def _join_lines(value: Json) -> str:
    """Return an input or output as text; a list of lines is joined."""
    if isinstance(value, list):
        return "\n".join(_join_lines(line) for line in value)
    return value if isinstance(value, str) else str(value)


def _outside_of(source: str, entry: str) -> str:
    """Return the part of a stub outside its function."""
    lines = []
    for node in tree_of(source).body:
        if not (isinstance(node, ast.FunctionDef) and node.name == entry):
            lines.append(ast.unparse(node))
    return "\n".join(lines)


def tree_of(source: str) -> ast.Module:
    """Parse Python without running it."""
    tree = tests_text.parse_python(source)
    if tree is None:
        raise DataError(f"holds Python that cannot be read: {source[:80]!r}")
    return tree


def read_cruxeval(direction: Direction, row: Fields) -> ParsedRow:
    for name in ("code", "input", "output"):
        row.text(name)
    problem = prediction.problem_of({**row, "id": row.get("id", "")}, direction)
    return ParsedRow(
        task="cruxeval",
        prompt=problem.prompt,
        answer=problem.answer,
        payload=problem.payload,
        id=problem.id,
        unsupported=prediction.unsupported_reason(problem),
    )


def codeio_either(row: Fields) -> ParsedRow:
    """Ask for the input or the output, by a coin toss that depends only on the program."""
    is_input = derive(0, "codeio", row.text("refcode")) % 2
    return read_codeio("input" if is_input else "output", row)


def read_codeio(direction: Direction, row: Fields) -> ParsedRow:
    """Ask about the first of several pairs of input and output."""
    pairs = row.entries("ios")
    if not pairs or not isinstance(pairs[0], dict) or not {"input", "output"} <= pairs[0].keys():
        raise DataError("field 'ios' should be a list of objects with input and output")
    given: Json = pairs[0]["output" if direction == "input" else "input"]
    payload: dict[str, Json] = {"program": row.text("refcode"), "direction": direction, **pairs[0]}
    if row.get("funcname"):
        payload["entry"] = row.text("funcname")
    shown = json.dumps(given, ensure_ascii=False)
    parsed = ParsedRow(
        task="codeio",
        prompt=user(
            row.text("problem_description"),
            row.optional_text("io_requirements"),
            f"```python\n{row.text('refcode').strip()}\n```",
            f"The {'output' if direction == 'input' else 'input'} is: {shown}",
            ASKED[direction],
        ),
        answer=json.dumps(pairs[0][direction], ensure_ascii=False),
        payload=payload,
    )
    return replace(parsed, unsupported=prediction.unsupported_reason(as_problem(parsed)))


READERS: dict[str, Reader] = {
    "humaneval": humaneval,
    "humaneval_plus": humaneval,
    "mbpp_sanitized": mbpp,
    "mbpp_plus": partial(mbpp, is_plus=True),
    "leetcode": leetcode,
    "codeforces_stdin": stdin_tests,
    "livecodebench": livecodebench,
    "taco": taco,
    "cruxeval_i": partial(read_cruxeval, "input"),
    "cruxeval_o": partial(read_cruxeval, "output"),
    "primeintellect": primeintellect,
    "codeio": codeio_either,
    "codeio_i": partial(read_codeio, "input"),
    "codeio_o": partial(read_codeio, "output"),
}
