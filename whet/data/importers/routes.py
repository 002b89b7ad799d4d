"""What the ground truth of each known `data_source` means: its task, its answer, its payload."""

import ast
import json
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from whet.data.importers import code, graphs
from whet.data.importers.base import (
    Draft,
    Fields,
    amount,
    items,
    number,
    parsed,
    scalar,
    shown,
    table,
    text,
    texts,
)
from whet.errors import DataError
from whet.tasks.code import code_tests, tests_text
from whet.types import Json, Message


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """A row's ground truth, with what it may need beside it."""

    value: Json
    extra: Fields
    prompt: tuple[Message, ...]
    source: str

    @property
    def fields(self) -> Fields:
        return {"ground_truth": self.value}

    @property
    def question(self) -> str:
        return self.prompt[-1].content


Build = Callable[[Truth], Draft]

TESTS = (
    "functional",
    "pytest",
    "inputs",
    "outputs",
    "fn_name",
    "complete_inputs",
    "complete_outputs",
)
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

_ASKED_INPUT = re.compile(r"assert f\(\?\?\) == (.+)")


def mathematics(truth: Truth) -> Draft:
    """A list holds several references, any of which is right."""
    metric = truth.extra.get("reward_metric")
    if metric is not None and metric not in METRICS:
        raise DataError(
            f"extra_info.reward_metric {shown(metric)} is not known; known are {', '.join(METRICS)}"
        )
    several = (
        parsed(truth.value)
        if isinstance(truth.value, str) and truth.value.startswith("[")
        else truth.value
    )
    if isinstance(several, list) and several and all(isinstance(each, str) for each in several):
        return _draft("math", str(several[0]), {"answers": several} if len(several) > 1 else {})
    return _draft("math", scalar(truth.fields, "ground_truth"))


def program(truth: Truth) -> Draft:
    """Tests as one source that calls the program, as pytest, or as inputs and outputs."""
    tests = table(truth.fields, "ground_truth")
    if unknown := tests.keys() - {*TESTS}:
        raise DataError(
            f"ground_truth has the unknown field {min(unknown)!r}; known are {', '.join(TESTS)}"
        )
    if "functional" in tests:
        source, entry = _called(text(tests, "functional"))
        prefix = truth.extra.get("prefix")
        setup = prefix if isinstance(prefix, str) else ""
        return code.function_draft(truth.prompt, entry, [source], setup=setup, answer=None, id=None)
    if "pytest" in tests:
        draft = _draft("code_pytest", None, {"tests": text(tests, "pytest")})
        return replace(draft, unsupported=code_tests.unsupported_reason(code.as_problem(draft)))
    starter = truth.extra.get("starter_code")
    plain: dict[str, Json] = {
        name: tests[name] for name in tests if not name.startswith("complete_")
    }
    return code.in_and_out(truth.question, plain, starter if isinstance(starter, str) else "", None)


def codeio(truth: Truth) -> Draft:
    """The truth is one pair, `"output": value`; the program that any input could be tried on is in
    the prompt only."""
    found = parsed("{" + text(truth.fields, "ground_truth") + "}")
    if not isinstance(found, dict) or len(found) != 1 or not found.keys() <= {"input", "output"}:
        raise DataError(
            f'ground_truth should be "input": value or "output": value, not {shown(truth.value)}'
        )
    ((direction, value),) = found.items()
    draft = _draft(
        "codeio", json.dumps(value, ensure_ascii=False), {"direction": direction, direction: value}
    )
    missing = (
        "the program to try a predicted input on is not in the row by itself"
        if direction == "input"
        else None
    )
    return replace(draft, unsupported=missing)


def cruxeval(truth: Truth) -> Draft:
    """GURU keeps the function; what is asked of it stands in the prompt."""
    source = text(table(truth.fields, "ground_truth"), "functional")
    asked = _ASKED_INPUT.findall(truth.question)
    if not truth.source.endswith("-i") or not asked:
        return replace(
            _draft("cruxeval", None), unsupported="the row does not record the function's output"
        )
    payload: dict[str, Json] = {
        "program": source,
        "direction": "input",
        "input": "",
        "output": asked[-1].strip(),
    }
    return _draft("cruxeval", None, payload)


def cruxeval_boxed(truth: Truth) -> Draft:
    output = text(truth.fields, "ground_truth")
    return _draft("cruxeval", output, {"direction": "output", "output": output})


def grid(truth: Truth) -> Draft:
    return _draft("arc", json.dumps(items({"ground_truth": parsed(truth.value)}, "ground_truth")))


def zebra(truth: Truth) -> Draft:
    gold = table(truth.fields, "ground_truth")
    table_of: dict[str, Json] = {"header": items(gold, "header"), "rows": items(gold, "rows")}
    return _draft("zebra", json.dumps(table_of, ensure_ascii=False))


def ordering(truth: Truth) -> Draft:
    return _draft(
        "ordering", json.dumps(texts({"names": parsed(truth.value)}, "names"), ensure_ascii=False)
    )


def word(truth: Truth) -> Draft:
    return _draft("graph_logic", text(truth.fields, "ground_truth"))


def knights(truth: Truth) -> Draft:
    return _draft("knights", text(table(truth.fields, "ground_truth"), "solution_text_format"))


def countdown(truth: Truth) -> Draft:
    gold = table(truth.fields, "ground_truth")
    name = "numbers" if "numbers" in gold else "nums"
    return _draft(
        "countdown",
        None,
        {"numbers": items(gold, name), "target": int(number(gold, "target")), "use": "all"},
    )


def tabular(truth: Truth) -> Draft:
    """Several answers are joined by bars; FinQA's are results of a calculation, never rounded."""
    several = truth.value if isinstance(truth.value, list) else [truth.value]
    parts = [
        part.strip()
        for each in several
        for part in scalar({"ground_truth": each}, "ground_truth").split("|")
    ]
    return _draft(
        "table", " | ".join(parts), {"tolerance": 1e-3} if "finqa" in truth.source else {}
    )


def letter(truth: Truth) -> Draft:
    found = scalar(truth.fields, "ground_truth").strip("() ")
    if not re.fullmatch("[A-J]", found):
        raise DataError(f"ground_truth should be a letter from A to J, not {shown(truth.value)}")
    return _draft("choice", found)


def yes_or_no(truth: Truth) -> Draft:
    names = {"true": "yes", "yes": "yes", "false": "no", "no": "no"}
    found = names.get(str(truth.value).strip().lower())
    if found is None:
        raise DataError(
            f"ground_truth should be true or false, yes or no, not {shown(truth.value)}"
        )
    return _draft("yes_no", found)


def judged(truth: Truth) -> Draft:
    question = truth.extra.get("question")
    payload: dict[str, Json] = {"question": question} if isinstance(question, str) else {}
    return _draft("judge", scalar(truth.fields, "ground_truth"), payload)


def graph(truth: Truth) -> Draft:
    """NPG-Muse: the source is `Task[_easy|_hard]_reward`; the reward is a matter of settings
    here."""
    task = graphs.TASKS[truth.source.split("_")[0]]
    payload = graphs.node_link(task, truth.extra)
    if truth.extra.get("exact_answer") is not None:
        best = amount(truth.extra, "exact_answer")
        payload["optimum"] = int(best) if best.is_integer() else best
    else:
        payload |= graphs.optimum(task, payload)
    return replace(_draft(task, None, payload), level=graphs.level(task, payload))


def _draft(task: str, answer: str | None, payload: dict[str, Json] | None = None) -> Draft:
    return Draft(task=task, prompt=(), answer=answer, payload=payload or {})


def _called(source: str) -> tuple[str, str]:
    """Find what a test source calls: `check(entry)` at its end, which is taken off, or else a name
    it does not make."""
    tree = code.tree_of(source)
    last = tree.body[-1].value if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    if (
        isinstance(last, ast.Call)
        and isinstance(last.func, ast.Name)
        and last.func.id == "check"
        and last.args
    ):
        return "\n".join(ast.unparse(node) for node in tree.body[:-1]), ast.unparse(last.args[0])
    free = tests_text.free_names(tree)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    called = [call.id for call in calls if isinstance(call, ast.Name) and call.id in free]
    return source, "Solution" if "Solution" in free else next(iter(called), "")


STOCK: dict[str, Build] = {
    **dict.fromkeys(
        ("openai/gsm8k", "lighteval/MATH", "DigitalLearningGmbH/MATH-lighteval"), mathematics
    ),
    **dict.fromkeys(("HuggingFaceH4/MATH-500", "math_dapo*", "aime*", "numina_*"), mathematics),
    **dict.fromkeys(("apps", "taco", "codecontests", "codeforces"), program),
    "kk_logic": knights,
    "countdown": countdown,
}
TANGO: dict[str, Build] = {
    **dict.fromkeys(("PRIME-RL/Eurus-2-RL-Data", "Eurus-2-RL-Data"), mathematics),
    **dict.fromkeys(("zwhe99/DeepMath-103K", "DeepMath-103K"), mathematics),
    **dict.fromkeys(("MATH500", "AMC2023", "AIME2024", "AIME2025", "OlympiadBench"), mathematics),
    "CRUXEval": cruxeval_boxed,
    "BGQA": tabular,
    "StrategyQA": yes_or_no,
    "TableBench": tabular,
}
GURU: dict[str, Build] = {
    "math*": mathematics,
    "codegen*": program,
    "simulation__codeio*": codeio,
    "simulation__cruxeval*": cruxeval,
    **dict.fromkeys(
        ("simulation__arcagi*", "simulation__barc*", "logic__arcagi*", "logic__barc*"), grid
    ),
    **dict.fromkeys(("arcagi*", "barc*"), grid),
    **dict.fromkeys(("logic__zebra_puzzle*", "zebra_puzzle*"), zebra),
    **dict.fromkeys(("logic__ordering_puzzle*", "ordering_puzzle*"), ordering),
    **dict.fromkeys(("logic__graph*", "graph_logical*"), word),
    "table*": tabular,
    **dict.fromkeys(("stem__gpqa*", "stem__supergpqa*"), letter),
    **dict.fromkeys(("stem_web*", "stem__web*"), judged),
}
NPG: dict[str, Build] = {
    **{f"{name}{ending}": graph for name in graphs.TASKS for ending in ("", "_*")},
    **dict.fromkeys((f"{subject}*" for subject in SUBJECTS), mathematics),
}
