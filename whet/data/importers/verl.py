"""Rows of verl and its derivatives (Reasoning360's GURU, Tango, NPG-Muse), and of AReaL.

All of verl's rows share a schema, and `data_source` says what their ground truth means. Reading a
file fails if a row lacks a field that its reward needs, or has an unknown source; the error lists
the known sources.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.data.importers import code, graphs, qa
from whet.data.importers.base import (
    Fields,
    ImportedResponse,
    ParsedRow,
    Reader,
    check_name,
    parse_json,
    show,
)
from whet.data.importers.mapped import parse_split
from whet.data.importers.math import last_box_text
from whet.errors import DataError
from whet.tasks.code import code_tests, prediction, tests_text
from whet.types import Json, Message

STYLES = ("rule", "rule-based", "model")
PASS_RATES = ("low_pass_rate", "qwen2.5_7b_pass_rate")
"""How often a weak model solves the row; the rest is its level."""
DEEPMATH_HARDEST = 10.0
"""DeepMath grades difficulty from -1 to 10; Efficient RL-Tango keeps it as the level."""
TESTS = ("functional", "pytest", "inputs", "outputs", "fn_name")
MORE_TESTS = ("complete_inputs", "complete_outputs")
SUBJECTS = (
    *("Algebra", "Counting", "Geometry", "Intermediate Algebra"),
    *("Number Theory", "Prealgebra", "Precalculus"),
)
"""NPG-Muse validates on MATH under the names of its subjects."""
METRICS = ("default", "prime_math", "math_llm_judge")
_YES_NO = {"true": "yes", "yes": "yes", "false": "no", "no": "no"}

_ASKED_INPUT = re.compile(r"assert f\(\?\?\) == (.+)")
_ASKED_OUTPUT = re.compile(r"assert f\((.*)\) == \?\?")
_GIVEN_OUTPUT = re.compile(r"Given the following output: ?\n(.*?)\nCan you predict", re.DOTALL)
_GIVEN_PROGRAM = re.compile(
    r"not copy spans of code directly\.\s*\n(.*?)\s*(?:Please output the final answer[^\n]*)?$",
    re.DOTALL,
)
_CHAT_MARKS = re.compile(
    r"<[|｜](?:begin[_▁]of[_▁]sentence|User|Assistant|im_start|im_end)[|｜]>"
    r"(?:user\n|assistant\n)?"
)
_OPEN_THOUGHT = re.compile(r"\s*<think>\s*$")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerlRow:
    """A row's ground truth, and other fields for grading."""

    source: str
    truth: Fields
    """The field `reward_model`, which has a `ground_truth`."""
    extra: Fields
    prompt: tuple[Message, ...]

    @property
    def value(self) -> Json:
        return self.truth["ground_truth"]

    @property
    def question(self) -> str:
        return self.prompt[-1].content


Build = Callable[[VerlRow], ParsedRow]


def by_source(builders: Mapping[str, Build]) -> Reader:
    """Read rows by source: by its full name, or by the longest known prefix."""

    def read(row: Fields) -> ParsedRow:
        source = row.text("data_source")
        extra = row.table("extra_info") if row.get("extra_info") is not None else Fields()
        prompt = _prompt(row)
        truth = row.table("reward_model")
        _check_fields("reward_model", truth, ("style", "ground_truth"))
        if "ground_truth" not in truth or truth.get("style", "rule") not in STYLES:
            raise DataError(
                f"reward_model should have a ground_truth and the style rule, not {show(truth)}"
            )
        build = _find_builder(builders, source)
        parsed = build(VerlRow(source=source, truth=truth, extra=extra, prompt=prompt))
        split = extra.get("split")
        responses = row.get("responses")
        texts = responses if isinstance(responses, list) else []
        imported = (ImportedResponse(text=t) for t in texts if isinstance(t, str) and t.strip())
        return replace(
            parsed,
            prompt=prompt,
            payload={**_read_question(extra, prompt), **parsed.payload},
            level=parsed.level if parsed.level is not None else _read_level(row),
            split=parse_split(split) if isinstance(split, str) else None,
            source_id=extra.row_id("index", "idx", "id"),
            responses=tuple(imported),
        )

    return read


def _find_builder(builders: Mapping[str, Build], source: str) -> Build:
    prefixes = [name for name in builders if name[-1] == "*" and source.startswith(name[:-1])]
    name = source if source in builders else max(prefixes, key=len, default="")
    if not name:
        raise DataError(f"data_source {source!r} is unknown; known sources: {', '.join(builders)}")
    return builders[name]


def _prompt(row: Fields) -> tuple[Message, ...]:
    is_raw = row.get("apply_chat_template") is False and isinstance(row.get("raw_prompt"), str)
    if is_raw or isinstance(parse_json(row["prompt"]), str):
        return (Message(role="user", content=row.text("raw_prompt" if is_raw else "prompt")),)
    return row.messages("prompt")


def _read_question(extra: Fields, prompt: Sequence[Message]) -> dict[str, Json]:
    """Keep the bare question for a verifier or judge, if the prompt says more."""
    question = extra.get("question")
    is_in_prompt = not isinstance(question, str) or question.strip() in (
        "",
        prompt[-1].content.strip(),
    )
    return {} if is_in_prompt else {"question": question}


def _read_level(row: Fields) -> float | None:
    rates = [row.get(name) for name in PASS_RATES]
    known = [rate for rate in rates if isinstance(rate, int | float) and 0 <= rate <= 1]
    if known:
        return 1.0 - float(known[0])
    if "DeepMath" in row.text("data_source") and isinstance(row.get("level"), int | float):
        return min(max(row.number("level") / DEEPMATH_HARDEST, 0.0), 1.0)
    return None


def _check_fields(owner: str, table: Fields, known: Sequence[str]) -> None:
    if unknown := table.keys() - set(known):
        raise DataError(
            f"{owner} has the unknown field {min(unknown)!r}; known fields: {', '.join(known)}"
        )


def read_mathematics(row: VerlRow) -> ParsedRow:
    """Read a reference answer, or a list of them, any of which is right."""
    metric = row.extra.get("reward_metric")
    if metric is not None and metric not in METRICS:
        raise DataError(
            f"extra_info.reward_metric {show(metric)} is unknown; known metrics: "
            f"{', '.join(METRICS)}"
        )
    value = row.value
    if isinstance(value, str) and value.startswith("["):
        value = parse_json(value)
    if isinstance(value, list) and value and all(isinstance(answer, str) for answer in value):
        return _to_row("math", str(value[0]), {"answers": value} if len(value) > 1 else {})
    return _to_row("math", row.truth.scalar("ground_truth"))


def read_program(row: VerlRow) -> ParsedRow:
    """Read tests: a source that calls the program, pytest, or inputs and outputs."""
    tests = row.truth.table("ground_truth")
    _check_fields("ground_truth", tests, TESTS + MORE_TESTS)
    if "functional" in tests:
        source, entry = _find_entry(tests.text("functional"))
        prefix = row.extra.get("prefix")
        setup = prefix if isinstance(prefix, str) else ""
        return code.function_problem(row.prompt, entry, [source], setup=setup, answer=None)
    if "pytest" in tests:
        parsed = _to_row("code_pytest", None, {"tests": tests.text("pytest")})
        return replace(parsed, unsupported=code_tests.unsupported_reason(code.as_problem(parsed)))
    starter = row.extra.get("starter_code")
    plain = Fields({k: v for k, v in tests.items() if k not in MORE_TESTS})
    return code.in_and_out(row.question, plain, starter if isinstance(starter, str) else "")


def read_guru_codeio(row: VerlRow) -> ParsedRow:
    """Read one pair, `"output": value`; the program and the given side are in the prompt only."""
    pair = parse_json("{" + row.truth.text("ground_truth") + "}")
    if not isinstance(pair, dict) or len(pair) != 1 or not pair.keys() <= {"input", "output"}:
        raise DataError(
            f'ground_truth should be "input": value or "output": value, not {show(row.value)}'
        )
    ((direction, value),) = pair.items()
    answer = json.dumps(value, ensure_ascii=False)
    payload: dict[str, Json] = {"direction": direction, direction: value}
    if direction == "output":
        return _to_row("codeio", answer, payload)
    program = _GIVEN_PROGRAM.search(row.question)
    output = _GIVEN_OUTPUT.search(row.question)
    if program is None or output is None or "def main_solution" not in program[1]:
        reason = "the prompt does not hold the program to try a predicted input on"
        return replace(_to_row("codeio", answer, payload), unsupported=reason)
    payload |= {"program": program[1], "output": parse_json(output[1].strip())}
    parsed = _to_row("codeio", answer, payload)
    return replace(parsed, unsupported=prediction.unsupported_reason(code.as_problem(parsed)))


def read_guru_cruxeval(row: VerlRow) -> ParsedRow:
    """Read GURU's rows, which keep the function; the question is in the prompt."""
    source = row.truth.table("ground_truth").text("functional")
    outputs = _ASKED_INPUT.findall(row.question)
    inputs = _ASKED_OUTPUT.findall(row.question)
    reference = row.extra.get("reference")
    if outputs:
        payload: dict[str, Json] = {"program": source, "direction": "input", "input": ""}
        return _to_row("cruxeval", None, {**payload, "output": outputs[-1].strip()})
    if inputs and isinstance(reference, str) and reference.strip():
        payload = {"program": source, "direction": "output", "input": inputs[-1].strip()}
        return _to_row("cruxeval", reference, {**payload, "output": reference})
    reason = "the row does not record the function's output"
    return replace(_to_row("cruxeval", None), unsupported=reason)


def read_cruxeval_in_box(row: VerlRow) -> ParsedRow:
    output = row.truth.text("ground_truth")
    return _to_row("cruxeval", output, {"direction": "output", "output": output})


def read_arc(row: VerlRow) -> ParsedRow:
    value = Fields(ground_truth=parse_json(row.value))
    return _to_row("arc", json.dumps(value.entries("ground_truth")))


def read_zebra(row: VerlRow) -> ParsedRow:
    gold = row.truth.table("ground_truth")
    solution = {name: gold.entries(name) for name in ("header", "rows")}
    return _to_row("zebra", json.dumps(solution, ensure_ascii=False))


def read_ordering(row: VerlRow) -> ParsedRow:
    names = Fields(names=parse_json(row.value)).texts("names")
    return _to_row("ordering", json.dumps(names, ensure_ascii=False))


def read_graph_logic(row: VerlRow) -> ParsedRow:
    return _to_row("graph_logic", row.truth.text("ground_truth"))


def read_knights(row: VerlRow) -> ParsedRow:
    return _to_row("knights", row.truth.table("ground_truth").text("solution_text_format"))


def read_countdown(row: VerlRow) -> ParsedRow:
    gold = row.truth.table("ground_truth")
    numbers = gold.entries("numbers" if "numbers" in gold else "nums")
    target = int(gold.number("target"))
    return _to_row("countdown", None, {"numbers": numbers, "target": target, "use": "all"})


def read_tabular(row: VerlRow) -> ParsedRow:
    """Join several answers by bars; FinQA's are results of a calculation and never rounded."""
    values = row.value if isinstance(row.value, list) else [row.value]
    answers = [Fields(ground_truth=value).scalar("ground_truth") for value in values]
    parts = [part.strip() for answer in answers for part in answer.split("|")]
    return _to_row("table", " | ".join(parts), {"tolerance": 1e-3} if "finqa" in row.source else {})


def read_letter(row: VerlRow) -> ParsedRow:
    option = row.truth.scalar("ground_truth").strip("() ")
    if not re.fullmatch("[A-J]", option):
        raise DataError(f"ground_truth should be a letter from A to J, not {show(row.value)}")
    return _to_row("choice", option)


def read_yes_or_no(row: VerlRow) -> ParsedRow:
    answer = _YES_NO.get(str(row.value).strip().lower())
    if answer is None:
        raise DataError(f"ground_truth should be true or false, yes or no, not {show(row.value)}")
    return _to_row("yes_no", answer)


def read_judge(row: VerlRow) -> ParsedRow:
    question = row.extra.get("question")
    payload = {"question": question} if isinstance(question, str) else {}
    return _to_row("judge", row.truth.scalar("ground_truth"), payload)


def read_instructions(row: VerlRow) -> ParsedRow:
    arguments = Fields(ground_truth=parse_json(row.value)).entries("ground_truth")
    return qa.make_instructions_row(row.extra.texts("instruction_id_list"), arguments)


def read_livebench(row: VerlRow) -> ParsedRow:
    text = row.value if isinstance(row.value, str) else json.dumps(row.value, ensure_ascii=False)
    return qa.make_livebench_row(row.extra.text("task"), text)


def read_ungraded(row: VerlRow) -> ParsedRow:
    return replace(_to_row("judge", None), unsupported=f"whet has no grader for {row.source}")


def read_graph(row: VerlRow) -> ParsedRow:
    """Read NPG-Muse's source `Task[_easy|_hard]_reward`; whet's settings choose the reward."""
    return graphs.read_node_link(graphs.GRAPH_ARENA_TASKS[row.source.split("_")[0]], row.extra)


def _to_row(task: str, answer: str | None, payload: Mapping[str, Json] | None = None) -> ParsedRow:
    return ParsedRow(task=task, prompt=(), answer=answer, payload=payload or {})


def _find_entry(source: str) -> tuple[str, str]:
    """Find the function under test: the argument of a final `check(entry)`, which is cut off, or an
    undefined name."""
    tree = code.tree_of(source)
    last = tree.body[-1].value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if isinstance(last, ast.Call) and last.args and ast.unparse(last.func) == "check":
        return "\n".join(ast.unparse(node) for node in tree.body[:-1]), ast.unparse(last.args[0])
    free = tests_text.free_names(tree)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [call.id for call in calls if isinstance(call, ast.Name) and call.id in free]
    return source, "Solution" if "Solution" in free else next(iter(names), "")


def areal(row: Fields) -> ParsedRow:
    """Read AReaL's rows, without the marks of the chat template that their prompts hold."""
    task = check_name("task", row.text("task"), ("math", "code")) if "task" in row else "math"
    if isinstance(row["prompt"], list):
        prompt = row.messages("prompt")
    else:
        content = _OPEN_THOUGHT.sub("", _CHAT_MARKS.sub("", row.text("prompt")))
        prompt = (Message(role="user", content=content.strip()),)
    if task == "code":
        tests = row.table("input_output")
        starter = row.optional_text("starter_code")
        return code.in_and_out(prompt[-1].content, tests, starter)
    answers = [
        last_box_text(solution) if "\\boxed" in solution else solution.strip()
        for solution in row.texts("solutions")
    ]
    payload: dict[str, Json] = {"answers": list[Json](answers)} if len(answers) > 1 else {}
    return ParsedRow(task="math", prompt=prompt, answer=answers[0], payload=payload)


def _by_name(table: Mapping[Build, str]) -> dict[str, Build]:
    return {source: build for build, sources in table.items() for source in sources.split()}


STOCK = _by_name(
    {
        read_mathematics: "openai/gsm8k lighteval/MATH DigitalLearningGmbH/MATH-lighteval "
        "HuggingFaceH4/MATH-500 math_dapo* aime* numina_* train-math-*",
        read_program: "apps taco codecontests codeforces",
        read_knights: "kk_logic",
        read_countdown: "countdown",
    }
)
TANGO = _by_name(
    {
        read_mathematics: "PRIME-RL/Eurus-2-RL-Data Eurus-2-RL-Data zwhe99/DeepMath-103K "
        "DeepMath-103K MATH500 AMC2023 AIME2024 AIME2025 OlympiadBench",
        read_cruxeval_in_box: "CRUXEval",
        read_tabular: "BGQA TableBench",
        read_yes_or_no: "StrategyQA",
    }
)
GURU = _by_name(
    {
        read_mathematics: "math*",
        read_program: "codegen*",
        read_guru_codeio: "simulation__codeio*",
        read_guru_cruxeval: "simulation__cruxeval*",
        read_arc: "simulation__arcagi* simulation__barc* logic__arcagi* logic__barc* arcagi* barc*",
        read_zebra: "logic__zebra_puzzle* zebra_puzzle*",
        read_ordering: "logic__ordering_puzzle* ordering_puzzle*",
        read_graph_logic: "logic__graph* graph_logical*",
        read_tabular: "table*",
        read_letter: "stem__gpqa* stem__supergpqa*",
        read_judge: "stem_web* stem__web*",
        read_instructions: "ood__ifeval*",
        read_livebench: "ood__livebench*",
        read_ungraded: "ood__* reasoning_gym*",
    }
)
NPG: dict[str, Build] = {
    **{f"{name}{ending}": read_graph for name in graphs.GRAPH_ARENA_TASKS for ending in ("", "_*")},
    **{f"{subject}*": read_mathematics for subject in SUBJECTS},
}


READERS: dict[str, Reader] = {
    "verl": by_source({**STOCK, **TANGO, **GURU, **NPG}),
    "guru": by_source(GURU),
    "tango": by_source({**STOCK, **TANGO}),
    "npg": by_source(NPG),
    "areal": areal,
}
