"""Programming problems: HumanEval, MBPP, LeetCode, Codeforces, LiveCodeBench, TACO and APPS.

Rows whose tests cannot be run here, or that have several right outputs and no checker, are left out
with the reason.
"""

import ast
from dataclasses import replace

from whet.data.importers.base import (
    Draft,
    Fields,
    Format,
    fifth,
    finished,
    items,
    layout,
    optional_text,
    parsed,
    row_id,
    shown,
    table,
    text,
    texts,
    user,
)
from whet.data.importers.wording import FUNCTION, PROGRAM
from whet.errors import DataError
from whet.tasks.code import code_stdin, code_tests, tests_text
from whet.types import Json, Message, Problem

GRADES = {"easy": 1, "medium": 3, "meidum": 3, "hard": 5}
"""One of the LeetCode files misspells its medium."""


def humaneval(row: Fields) -> Draft:
    """What stands in the stub beside the function, imports and helpers, is there for the tests
    too."""
    stub = text(row, "prompt")
    entry = text(row, "entry_point")
    return function_draft(
        user(f"Complete this function:\n\n```python\n{stub.rstrip()}\n```", FUNCTION),
        entry,
        [text(row, "test")],
        setup=_besides(stub, entry),
        answer=stub + text(row, "canonical_solution"),
        id=row_id(row, "task_id"),
    )


def mbpp(row: Fields) -> Draft:
    """The function's name is in the tests only, so the first test is shown."""
    program = text(row, "code")
    tests = texts(row, "test_list")
    called = {node.id for node in ast.walk(tree_of(tests[0])) if isinstance(node, ast.Name)}
    made = [
        node.name
        for node in tree_of(program).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    ]
    entry = next((name for name in reversed(made) if name in called), "")
    imports = items(row, "test_imports") if "test_imports" in row else []
    return function_draft(
        user(
            text(row, "prompt"),
            f"It should pass this test:\n\n```python\n{tests[0]}\n```",
            FUNCTION,
        ),
        entry,
        tests,
        setup="\n".join(str(line) for line in imports),
        answer=program,
        id=row_id(row, "task_id"),
    )


def leetcode(row: Fields) -> Draft:
    level = str(table(row, "meta").get("difficulty", "")).lower() if "meta" in row else ""
    draft = function_draft(
        user(text(row, "query")),
        text(row, "entry_point"),
        [text(row, "test")],
        setup=optional_text(row, "prompt"),
        answer=optional_text(row, "completion") or None,
        id=row_id(row, "task_id"),
    )
    return replace(draft, level=fifth(GRADES[level]) if level in GRADES else None)


def stdin_tests(row: Fields) -> Draft:
    """A list of inputs and outputs, as rllm stores Codeforces; `testtype` functional rows call a
    function."""
    return with_cases(
        text(row, "problem"),
        items({"tests": parsed(row.get("tests"))}, "tests"),
        row,
        row_id(row, "id"),
    )


def livecodebench(row: Fields) -> Draft:
    """Hidden tests that are pickled are left alone: nothing here is ever unpickled."""
    cases = items({"tests": parsed(row.get("public_test_cases"))}, "tests")
    hidden = parsed(row.get("private_test_cases"))
    cases = [*cases, *hidden] if isinstance(hidden, list) else cases
    question = f"{text(row, 'question_title')}\n\n{text(row, 'question_content')}"
    draft = with_cases(question, cases, row, row_id(row, "question_id"))
    level = optional_text(row, "difficulty")
    return replace(draft, level=fifth(GRADES[level]) if level in GRADES else None)


def taco(row: Fields) -> Draft:
    """TACO and APPS: `input_output` is an object, often written as text, with a function's name
    where one is called."""
    solutions = parsed(row.get("solutions"))
    answer = (
        solutions[0]
        if isinstance(solutions, list) and solutions and isinstance(solutions[0], str)
        else None
    )
    id = row_id(row, "problem_id") or row_id(row, "id") or row_id(row, "url")
    draft = in_and_out(
        text(row, "question"), table(row, "input_output"), optional_text(row, "starter_code"), id
    )
    return replace(draft, answer=answer)


def in_and_out(question: str, tests: Fields, starter: str, id: str | None) -> Draft:
    """Read {"inputs": [...], "outputs": [...]}, with "fn_name" where a function is called with each
    input."""
    inputs = items(tests, "inputs")
    outputs = items(tests, "outputs")
    if len(inputs) != len(outputs):
        raise DataError(f"there are {len(inputs)} inputs and {len(outputs)} outputs")
    if unknown := tests.keys() - {"inputs", "outputs", "fn_name"}:
        raise DataError(
            f"tests have the unknown field {min(unknown)!r}; known are inputs, outputs, fn_name"
        )
    if not tests.get("fn_name"):
        pairs = list(zip(inputs, outputs, strict=True))
        return stdin_draft(
            question, [{"input": _joined(a), "output": _joined(b)} for a, b in pairs], id
        )
    calls = [_call(given, wanted) for given, wanted in zip(inputs, outputs, strict=True)]
    return _calling(question, text(tests, "fn_name"), calls, starter, id)


def with_cases(question: str, cases: list[Json], row: Fields, id: str | None) -> Draft:
    """Read [{"input", "output", "testtype"}]; a functional input has one argument a line, as
    JSON."""
    found = [
        case for case in cases if isinstance(case, dict) and "input" in case and "output" in case
    ]
    if not found or len(found) < len(cases):
        raise DataError(
            f"tests should be a list of objects with input and output, not {shown(cases)}"
        )
    if not any(case.get("testtype") == "functional" for case in found):
        return stdin_draft(
            question,
            [{"input": _joined(c["input"]), "output": _joined(c["output"])} for c in found],
            id,
        )
    about = parsed(row.get("metadata"))
    name = about.get("func_name") if isinstance(about, dict) else None
    if not isinstance(name, str):
        raise DataError("tests that call a function need its name as metadata.func_name")
    calls = []
    for case in found:
        lines = _joined(case["input"]).splitlines()
        calls.append(
            _call([parsed(line) for line in lines], parsed(case["output"]), is_wrapped=False)
        )
    return _calling(question, name, calls, optional_text(row, "starter_code"), id)


def stdin_draft(question: str, cases: list[dict[str, Json]], id: str | None) -> Draft:
    payload: dict[str, Json] = {"cases": list[Json](cases), **code_stdin.policies(question)}
    draft = Draft(
        task="code_stdin",
        prompt=user(question, PROGRAM),
        answer=None,
        payload=payload,
        source_id=id,
    )
    return replace(draft, unsupported=code_stdin.unsupported_reason(question, as_problem(draft)))


def function_draft(
    prompt: tuple[Message, ...],
    entry: str,
    tests: list[str],
    *,
    setup: str,
    answer: str | None,
    id: str | None,
) -> Draft:
    payload: dict[str, Json] = {"entry": entry, "tests": list[Json](tests), "setup": setup}
    draft = Draft(task="code_function", prompt=prompt, answer=answer, payload=payload, source_id=id)
    return replace(draft, unsupported=code_tests.unsupported_reason(as_problem(draft)))


def as_problem(draft: Draft) -> Problem:
    """Make a problem for a task to look at; where it is from is left open."""
    return finished(draft, split="test", override=None, source="", place="")


def _calling(question: str, name: str, calls: list[str], starter: str, id: str | None) -> Draft:
    entry = f"Solution().{name}" if "class Solution" in starter or not starter else name
    stub = (
        f"Begin with:\n\n```python\n{starter.rstrip()}\n```" if starter else f"Name it `{entry}`."
    )
    return function_draft(
        user(question, stub, FUNCTION), entry, [_PLAIN, *calls], setup="", answer=None, id=id
    )


_PLAIN = "def plain(x):\n    return [plain(y) for y in x] if isinstance(x, (list, tuple)) else x"
"""JSON cannot tell a tuple from a list, so results are compared as lists."""


def _call(given: Json, wanted: Json, *, is_wrapped: bool = True) -> str:
    """Write a test of one call; the sets wrap each result in a list of one."""
    arguments = given if isinstance(given, list) else [given]
    result = wanted[0] if is_wrapped and isinstance(wanted, list) and len(wanted) == 1 else wanted
    return f"assert plain(candidate(*{arguments!r})) == {result!r}"


def _joined(value: Json) -> str:
    """Take an input or output as text; a list of lines is joined."""
    if isinstance(value, list):
        return "\n".join(_joined(line) for line in value)
    return value if isinstance(value, str) else str(value)


def _besides(source: str, entry: str) -> str:
    """Keep what a stub says outside the function itself."""
    kept = [
        node
        for node in tree_of(source).body
        if not (isinstance(node, ast.FunctionDef) and node.name == entry)
    ]
    return "\n".join(ast.unparse(node) for node in kept)


def tree_of(source: str) -> ast.Module:
    """Parse Python without running it."""
    tree = tests_text.parse(source)
    if tree is None:
        raise DataError(f"holds Python that cannot be read: {source[:80]!r}")
    return tree


_LIVE = "contest_id contest_date platform difficulty starter_code metadata private_test_cases"
_TACO = "problem_id id url solutions starter_code difficulty source name tags skill_types raw_tags Expected"

FORMATS: dict[str, Format] = {
    "humaneval": layout(
        "functions to complete", humaneval, "task_id prompt entry_point canonical_solution test"
    ),
    "mbpp_sanitized": layout(
        "small functions", mbpp, "prompt code test_list", "source_file task_id test_imports"
    ),
    "leetcode": layout(
        "LeetCode methods",
        leetcode,
        "query entry_point test",
        "task_id prompt completion input_output meta",
    ),
    "codeforces_stdin": layout(
        "programs with input and output", stdin_tests, "problem tests", "id metadata starter_code"
    ),
    "livecodebench": layout(
        "LiveCodeBench",
        livecodebench,
        "question_title question_content question_id public_test_cases",
        _LIVE,
    ),
    "taco": layout("TACO and APPS", taco, "question input_output", _TACO),
}
