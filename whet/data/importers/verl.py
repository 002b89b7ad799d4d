"""Rows of verl and its kin (Reasoning360's GURU, Tango, NPG-Muse) and of AReaL.

verl's rows have one schema, and `data_source` says what their ground truth means. What the reward
would need and the row does not have is refused when the file is read. An unknown source is refused
with the list of those that are known.
"""

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from whet.data.importers import code, graphs
from whet.data.importers.base import (
    Answer,
    Draft,
    Fields,
    Format,
    check_name,
    layout,
    parse_json,
    show,
)
from whet.data.importers.mapped import parse_split
from whet.data.importers.math import last_box_text
from whet.errors import DataError
from whet.tasks.code import code_tests, tests_text
from whet.types import Json, Message

STYLES = ("rule", "rule-based", "model")
PASS_RATES = ("low_pass_rate", "qwen2.5_7b_pass_rate")
"""How often a weak model solves the row; the rest is its level."""
TESTS = [
    "functional",
    "pytest",
    "inputs",
    "outputs",
    "fn_name",
    "complete_inputs",
    "complete_outputs",
]
SUBJECTS = (
    "Algebra",
    "Counting",
    "Geometry",
    "Intermediate Algebra",
    "Number Theory",
    "Prealgebra",
    "Precalculus",
)
"""NPG-Muse validates on MATH under the names of its subjects."""
METRICS = ("default", "prime_math", "math_llm_judge")
YES_NO = {"true": "yes", "yes": "yes", "false": "no", "no": "no"}

_ASKED_INPUT = re.compile(r"assert f\(\?\?\) == (.+)")
_CHAT_MARKS = re.compile(
    r"<[|｜](?:begin[_▁]of[_▁]sentence|User|Assistant|im_start|im_end)[|｜]>"
    r"(?:user\n|assistant\n)?"
)
_OPEN_THOUGHT = re.compile(r"\s*<think>\s*$")


class Truth(Fields):
    """The field `ground_truth` of a row, with what else it may need."""

    def __init__(
        self, value: Json, *, extra: Fields, prompt: tuple[Message, ...], source: str
    ) -> None:
        super().__init__(ground_truth=value)
        self.value = value
        self.extra = extra
        self.prompt = prompt
        self.source = source

    @property
    def question(self) -> str:
        return self.prompt[-1].content


Build = Callable[[Truth], Draft]


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Read rows by their source: by its whole name, or by the longest known beginning."""

    routes: Mapping[str, Build]

    def __call__(self, row: Fields) -> Draft:
        source = row.text("data_source")
        extra = row.table("extra_info") if row.get("extra_info") is not None else Fields()
        prompt = _prompt(row)
        truth = row.table("reward_model")
        _check_fields("reward_model", truth, ("style", "ground_truth"))
        if "ground_truth" not in truth or truth.get("style", "rule") not in STYLES:
            raise DataError(
                f"reward_model should have a ground_truth and the style rule, not {show(truth)}"
            )
        build = self._find(source)
        draft = build(Truth(truth["ground_truth"], extra=extra, prompt=prompt, source=source))
        split = extra.get("split")
        ids = [extra.row_id(name) for name in ("index", "idx", "id")]
        responses = row.get("responses")
        texts = responses if isinstance(responses, list) else []
        return replace(
            draft,
            prompt=prompt,
            level=draft.level if draft.level is not None else _level(row),
            split=parse_split(split) if isinstance(split, str) else None,
            source_id=next((id for id in ids if id is not None), None),
            answers=tuple(Answer(text=t) for t in texts if isinstance(t, str) and t.strip()),
        )

    def _find(self, source: str) -> Build:
        if source in self.routes:
            return self.routes[source]
        prefixes = [name[:-1] for name in self.routes if name.endswith("*")]
        known = [prefix for prefix in prefixes if source.startswith(prefix)]
        if not known:
            raise DataError(
                f"data_source {source!r} is not known; known are {', '.join(self.routes)}"
            )
        return self.routes[max(known, key=len) + "*"]


def _prompt(row: Fields) -> tuple[Message, ...]:
    is_raw = row.get("apply_chat_template") is False and isinstance(row.get("raw_prompt"), str)
    if is_raw or isinstance(parse_json(row["prompt"]), str):
        return (Message(role="user", content=row.text("raw_prompt" if is_raw else "prompt")),)
    return row.messages("prompt")


def _level(row: Fields) -> float | None:
    rates = [row.get(name) for name in PASS_RATES]
    known = [rate for rate in rates if isinstance(rate, int | float) and 0 <= rate <= 1]
    return 1.0 - float(known[0]) if known else None


def _check_fields(owner: str, table: Fields, known: Sequence[str]) -> None:
    if unknown := table.keys() - set(known):
        raise DataError(
            f"{owner} has the unknown field {min(unknown)!r}; known are {', '.join(known)}"
        )


def mathematics(truth: Truth) -> Draft:
    """Read one reference answer, or a list of which any is right."""
    metric = truth.extra.get("reward_metric")
    if metric is not None and metric not in METRICS:
        raise DataError(
            f"extra_info.reward_metric {show(metric)} is not known; known are {', '.join(METRICS)}"
        )
    value = truth.value
    if isinstance(value, str) and value.startswith("["):
        value = parse_json(value)
    if isinstance(value, list) and value and all(isinstance(answer, str) for answer in value):
        return _draft("math", str(value[0]), {"answers": value} if len(value) > 1 else {})
    return _draft("math", truth.scalar("ground_truth"))


def program(truth: Truth) -> Draft:
    """Read tests: a source that calls the program, pytest, or inputs and outputs."""
    tests = truth.table("ground_truth")
    _check_fields("ground_truth", tests, TESTS)
    if "functional" in tests:
        source, entry = _find_entry(tests.text("functional"))
        prefix = truth.extra.get("prefix")
        setup = prefix if isinstance(prefix, str) else ""
        return code.function_draft(truth.prompt, entry, [source], setup=setup, answer=None, id=None)
    if "pytest" in tests:
        draft = _draft("code_pytest", None, {"tests": tests.text("pytest")})
        return replace(draft, unsupported=code_tests.unsupported_reason(code.as_problem(draft)))
    starter = truth.extra.get("starter_code")
    plain = Fields({k: v for k, v in tests.items() if not k.startswith("complete_")})
    return code.in_and_out(truth.question, plain, starter if isinstance(starter, str) else "", None)


def codeio(truth: Truth) -> Draft:
    """Read one pair, `"output": value`; the program itself is in the prompt only."""
    pair = parse_json("{" + truth.text("ground_truth") + "}")
    if not isinstance(pair, dict) or len(pair) != 1 or not pair.keys() <= {"input", "output"}:
        raise DataError(
            f'ground_truth should be "input": value or "output": value, not {show(truth.value)}'
        )
    ((direction, value),) = pair.items()
    answer = json.dumps(value, ensure_ascii=False)
    draft = _draft("codeio", answer, {"direction": direction, direction: value})
    if direction == "output":
        return draft
    reason = "the program to try a predicted input on is not in the row by itself"
    return replace(draft, unsupported=reason)


def cruxeval(truth: Truth) -> Draft:
    """Read GURU's rows, which keep the function; the question is in the prompt."""
    source = truth.table("ground_truth").text("functional")
    outputs = _ASKED_INPUT.findall(truth.question)
    if not truth.source.endswith("-i") or not outputs:
        reason = "the row does not record the function's output"
        return replace(_draft("cruxeval", None), unsupported=reason)
    payload: dict[str, Json] = {"program": source, "direction": "input", "input": ""}
    return _draft("cruxeval", None, {**payload, "output": outputs[-1].strip()})


def cruxeval_in_box(truth: Truth) -> Draft:
    output = truth.text("ground_truth")
    return _draft("cruxeval", output, {"direction": "output", "output": output})


def grid(truth: Truth) -> Draft:
    value = Fields(ground_truth=parse_json(truth.value))
    return _draft("arc", json.dumps(value.entries("ground_truth")))


def zebra(truth: Truth) -> Draft:
    gold = truth.table("ground_truth")
    solution: dict[str, Json] = {"header": gold.entries("header"), "rows": gold.entries("rows")}
    return _draft("zebra", json.dumps(solution, ensure_ascii=False))


def ordering(truth: Truth) -> Draft:
    names = Fields(names=parse_json(truth.value)).texts("names")
    return _draft("ordering", json.dumps(names, ensure_ascii=False))


def word(truth: Truth) -> Draft:
    return _draft("graph_logic", truth.text("ground_truth"))


def knights(truth: Truth) -> Draft:
    return _draft("knights", truth.table("ground_truth").text("solution_text_format"))


def countdown(truth: Truth) -> Draft:
    gold = truth.table("ground_truth")
    numbers = gold.entries("numbers" if "numbers" in gold else "nums")
    target = int(gold.number("target"))
    return _draft("countdown", None, {"numbers": numbers, "target": target, "use": "all"})


def tabular(truth: Truth) -> Draft:
    """Join several answers by bars; FinQA's are results of a calculation, never rounded."""
    values = truth.value if isinstance(truth.value, list) else [truth.value]
    answers = [Fields(ground_truth=value).scalar("ground_truth") for value in values]
    parts = [part.strip() for answer in answers for part in answer.split("|")]
    tolerance: dict[str, Json] = {"tolerance": 1e-3} if "finqa" in truth.source else {}
    return _draft("table", " | ".join(parts), tolerance)


def letter(truth: Truth) -> Draft:
    option = truth.scalar("ground_truth").strip("() ")
    if not re.fullmatch("[A-J]", option):
        raise DataError(f"ground_truth should be a letter from A to J, not {show(truth.value)}")
    return _draft("choice", option)


def yes_or_no(truth: Truth) -> Draft:
    answer = YES_NO.get(str(truth.value).strip().lower())
    if answer is None:
        raise DataError(f"ground_truth should be true or false, yes or no, not {show(truth.value)}")
    return _draft("yes_no", answer)


def judge(truth: Truth) -> Draft:
    question = truth.extra.get("question")
    payload: dict[str, Json] = {"question": question} if isinstance(question, str) else {}
    return _draft("judge", truth.scalar("ground_truth"), payload)


def graph(truth: Truth) -> Draft:
    """Read NPG-Muse's source `Task[_easy|_hard]_reward`; whet's settings choose the reward."""
    task = graphs.TASKS[truth.source.split("_")[0]]
    payload = graphs.node_link(task, truth.extra)
    if truth.extra.get("exact_answer") is not None:
        best = truth.extra.amount("exact_answer")
        payload["optimum"] = int(best) if best.is_integer() else best
    else:
        payload |= graphs.optimum(task, payload)
    return replace(_draft(task, None, payload), level=graphs.level(task, payload))


def _draft(task: str, answer: str | None, payload: dict[str, Json] | None = None) -> Draft:
    return Draft(task=task, prompt=(), answer=answer, payload=payload or {})


def _find_entry(source: str) -> tuple[str, str]:
    """Find what a test source calls: a final `check(entry)`, which is cut, or an undefined name."""
    tree = code.tree_of(source)
    last = tree.body[-1].value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if isinstance(last, ast.Call) and last.args and ast.unparse(last.func) == "check":
        return "\n".join(ast.unparse(node) for node in tree.body[:-1]), ast.unparse(last.args[0])
    free = tests_text.free_names(tree)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    names = [call.id for call in calls if isinstance(call, ast.Name) and call.id in free]
    return source, "Solution" if "Solution" in free else next(iter(names), "")


def areal(row: Fields) -> Draft:
    """Read AReaL's rows, without the marks of the chat template that their prompts hold."""
    task = check_name("task", row.text("task"), ("math", "code")) if "task" in row else "math"
    id = row.row_id("query_id")
    if isinstance(row["prompt"], list):
        prompt = row.messages("prompt")
    else:
        content = _OPEN_THOUGHT.sub("", _CHAT_MARKS.sub("", row.text("prompt")))
        prompt = (Message(role="user", content=content.strip()),)
    if task == "code":
        tests = row.table("input_output")
        starter = row.optional_text("starter_code")
        return code.in_and_out(prompt[-1].content, tests, starter, id)
    answers = [
        last_box_text(solution) if "\\boxed" in solution else solution.strip()
        for solution in row.texts("solutions")
    ]
    payload: dict[str, Json] = {"answers": list[Json](answers)} if len(answers) > 1 else {}
    return Draft(task="math", prompt=prompt, answer=answers[0], payload=payload, source_id=id)


def _routes(table: Mapping[Build, str]) -> dict[str, Build]:
    return {source: build for build, sources in table.items() for source in sources.split()}


STOCK = _routes(
    {
        mathematics: "openai/gsm8k lighteval/MATH DigitalLearningGmbH/MATH-lighteval "
        "HuggingFaceH4/MATH-500 math_dapo* aime* numina_*",
        program: "apps taco codecontests codeforces",
        knights: "kk_logic",
        countdown: "countdown",
    }
)
TANGO = _routes(
    {
        mathematics: "PRIME-RL/Eurus-2-RL-Data Eurus-2-RL-Data zwhe99/DeepMath-103K DeepMath-103K "
        "MATH500 AMC2023 AIME2024 AIME2025 OlympiadBench",
        cruxeval_in_box: "CRUXEval",
        tabular: "BGQA TableBench",
        yes_or_no: "StrategyQA",
    }
)
GURU = _routes(
    {
        mathematics: "math*",
        program: "codegen*",
        codeio: "simulation__codeio*",
        cruxeval: "simulation__cruxeval*",
        grid: "simulation__arcagi* simulation__barc* logic__arcagi* logic__barc* arcagi* barc*",
        zebra: "logic__zebra_puzzle* zebra_puzzle*",
        ordering: "logic__ordering_puzzle* ordering_puzzle*",
        word: "logic__graph* graph_logical*",
        tabular: "table*",
        letter: "stem__gpqa* stem__supergpqa*",
        judge: "stem_web* stem__web*",
    }
)
NPG: dict[str, Build] = {
    **{f"{name}{ending}": graph for name in graphs.TASKS for ending in ("", "_*")},
    **{f"{subject}*": mathematics for subject in SUBJECTS},
}


def _format(about: str, routes: Mapping[str, Build]) -> Format:
    return layout(
        about,
        Router(routes=routes),
        "data_source prompt reward_model",
        "ability extra_info apply_chat_template raw_prompt responses is_unique agent_name level",
        split="rl",
    )


FORMATS: dict[str, Format] = {
    "verl": _format("verl rows of any known source", {**STOCK, **TANGO, **GURU, **NPG}),
    "guru": _format("Reasoning360's GURU rows", GURU),
    "tango": _format("Tango's rows, for training and evaluation", {**STOCK, **TANGO}),
    "npg": _format("NPG-Muse's graph rows", NPG),
    "areal": layout(
        "AReaL's rows",
        areal,
        "prompt",
        "task query_id solutions input_output starter_code source",
        split="rl",
    ),
}
