"""Problems for `fuzz.py`, each with a way to spoil its answer that is wrong by construction. No
files are read.

What is wrong is settled here without asking the grader: one digit of a number is changed, a node is
left out of an optimal list, a name is put in that no graph has. `holds` is the caution for texts
that are made at random: it says where one may be right by chance, and then its verdict is not held
against the grader.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import islice
from random import Random

from fuzzing import spoil as spoils
from fuzzing.written import WRITTEN
from whet.tasks.base import Task
from whet.tasks.task_config import build_task, read_task_config
from whet.types import Json, Message, Problem, content_id

NUM_PROBLEMS = 24
Spoil = Callable[[str, Random], str]
Holds = Callable[[str], bool]

LISTED = ("tsp", "mcp", "mis", "mvc", "neighbor", "distance", "connected", "diameter")
NUMBERED = ("graphwiz", "nlgraph")
MADE = (
    "game24", "countdown", "arithmetic", "last_letter", "reverse", *LISTED, "ged", "mcs", *NUMBERED,
    "zebra", "ordering", "knights", "graph_logic", "zebralogic", "arc", "clrs",
)  # fmt: skip
KINDS = (*MADE, *WRITTEN)
"""Every task of the package, and the two kinds of rows that run code for tasks that otherwise do
not."""
RUNS_CODE = ("code_function", "code_stdin", "code_pytest", "codeio_run", "cruxeval_run")
"""Kinds of rows that start sandboxes; the last two are the tasks codeio and cruxeval asked for an
input."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A problem, its gold response cut in three around the answer, and what is known to be
    wrong."""

    problem: Problem
    before: str
    answer: str
    after: str
    spoil: Spoil
    holds: Holds

    @property
    def gold(self) -> str:
        return self.with_answer(self.answer)

    def with_answer(self, answer: str) -> str:
        return f"{self.before}{answer}{self.after}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """The rows of one task, and the task."""

    name: str
    task: Task
    rows: tuple[Row, ...]


def kind_of(name: str) -> Kind:
    """Make the rows of a task by its name, or of `codeio_run` and `cruxeval_run`."""
    task = build_task(
        read_task_config({"name": name.removesuffix("_run"), **_SETTINGS.get(name, {})})
    )
    if name in MADE:
        problems = list(islice(task.problems("rl"), NUM_PROBLEMS))
        rows = [_made(task, problem, name) for problem in problems]
    else:
        rows = [_written(task, name, *row) for row in WRITTEN[name]]
    return Kind(name=name, task=task, rows=tuple(row for row in rows if row is not None))


@lru_cache(1 << 10)
def key(text: str) -> str:
    """Reduce a text to its letters and digits, whatever they are dressed in."""
    return "".join(
        sign for sign in unicodedata.normalize("NFKC", text).casefold() if sign.isalnum()
    )


def _made(task: Task, problem: Problem, name: str) -> Row | None:
    gold = task.solve(problem, 0)
    if gold is None:
        return None
    if name in NUMBERED:
        return _numbered_row(problem, gold)
    answer = gold if name == "game24" else problem.answer or gold
    start = gold.rfind(answer)
    spoil, holds = _spoiled(problem, name, answer)
    return Row(
        problem=problem,
        before=gold[:start],
        answer=answer,
        after=gold[start + len(answer) :],
        spoil=spoil,
        holds=holds,
    )


def _spoiled(problem: Problem, name: str, answer: str) -> tuple[Spoil, Holds]:
    if name in LISTED:
        nodes = [str(node) for node in _list(problem.payload.get("nodes"))]
        return partial(spoils.listed, nodes), partial(
            _has_names, frozenset(map(key, nodes)), answer == "[]"
        )
    if name in ("ged", "mcs"):
        return spoils.numbered, _has_numbers
    if name in ("game24", "countdown"):
        hand = [str(card) for card in _list(problem.payload.get("numbers"))]
        return (spoils.last_line if name == "game24" else spoils.digit), partial(_has_all, hand)
    if name == "knights":
        return spoils.roles, partial(
            _has_all, [key(line.partition(" ")[2]) for line in answer.split("\n")], fold=key
        )
    if name == "zebra":
        return spoils.cells, partial(_has_all, list(map(key, answer.split('"rows"'))), fold=key)
    return _PLAIN[name], partial(_has_key, (key(answer),))


def _numbered_row(problem: Problem, gold: str) -> Row:
    """Cut a yes, a no or a number out of its sentence; a list stays in it."""
    answer = problem.answer or ""
    if answer in ("Yes", "No") or answer.isdigit():

        def spoil(text: str, rng: Random) -> str:
            return {"Yes": "No", "No": "Yes"}.get(text) or str(int(text) + rng.randrange(1, 99))

        said = ("yes", "thereis", "thereexists") if answer == "Yes" else ("no",)
        signs = said if answer in ("Yes", "No") else (answer,)
        before, _, after = gold.rpartition(answer)
        return Row(
            problem=problem,
            before=before,
            answer=answer,
            after=after,
            spoil=spoil,
            holds=partial(_has_key, signs),
        )
    kind = problem.payload["kind"]
    ways: Spoil = (
        spoils.digit if kind == "gnn" else spoils.pairs if kind == "matching" else spoils.numbered
    )
    return Row(problem=problem, before="", answer=gold, after="", spoil=ways, holds=_has_numbers)


def _has_key(signs: Sequence[str], text: str) -> bool:
    bare = re.sub(r"(?<![0-9.])0+(?=[0-9])|\b(?:a|an|the|and)\s", "", text)
    return any(sign in found for sign in signs for found in (key(text), key(bare)))


def _adds_up(answer: str, text: str) -> bool:
    """Whether a polynomial is the answer in other terms: 38x - 1x is 37x."""
    return _coefficients(text) == _coefficients(answer)


def _coefficients(text: str) -> dict[int, int] | None:
    written = re.sub(r"[\s{}$.]", "", text)
    # No step back into a term: digits could be split in exponentially many ways.
    if not re.fullmatch(r"(?:[+-]*+\d*+x(?:\^\d)?|[+-]*+\d++)++", written):
        return None
    found: dict[int, int] = {}
    for signs, number, power in re.findall(r"([+-]*)(\d*)((?:x(?:\^\d)?)?)", written):
        if number or power:
            degree = 0 if not power else int(power[2:] or 1)
            found[degree] = found.get(degree, 0) + (-1) ** signs.count("-") * int(number or 1)
    return {degree: count for degree, count in found.items() if count}


def _has_all(signs: Sequence[str], text: str, fold: Callable[[str], str] = str) -> bool:
    plain = fold(unicodedata.normalize("NFKC", text))
    return "solution" in plain or all(each in plain for each in signs)


def _has_numbers(text: str) -> bool:
    return len(re.findall(r"\d", text)) > 1


def _has_names(names: frozenset[str], is_empty: bool, text: str) -> bool:
    """A text may be right where every name in its last brackets is a node's; without brackets, if
    one is said."""
    if is_empty:
        return True
    inside = re.findall(r"\[([^\[\]]*)\]", text)
    if inside:
        return any(
            all(key(piece) in names for piece in each.split(",") if key(piece)) for each in inside
        )
    found = key(text)
    return any(name in found for name in names)


def _has_letter(letter: str, option: str, text: str) -> bool:
    plain = unicodedata.normalize("NFKC", text)
    is_said = (
        letter in plain or re.search(rf"(?<![a-z]){letter.lower()}(?![a-z])", plain) is not None
    )
    return is_said or key(option) in key(text)


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _written(
    task: Task, name: str, asked: str, answer: str, payload: dict[str, Json], *signs: str
) -> Row:
    """Make a row of a question in `written.py`; further signs are other ways to write its
    answer."""
    problem = Problem(
        id=content_id(task.name, [asked, answer, payload]),
        task=task.name,
        prompt=(Message(role="user", content=asked),),
        answer=answer,
        payload=payload,
        level=None,
        split="rl",
        source="fuzz",
    )
    gold = task.solve(problem, 0) or ""
    start = gold.rfind(answer.strip())
    spoil, holds = _ways(problem, name, answer, signs)
    return Row(
        problem=problem,
        before=gold[:start],
        answer=answer.strip(),
        after=gold[start + len(answer.strip()) :],
        spoil=spoil,
        holds=holds,
    )


def _ways(problem: Problem, name: str, answer: str, signs: Sequence[str]) -> tuple[Spoil, Holds]:
    has_it = partial(_has_key, (key(answer), *signs))
    if name in _FIXED:
        return _FIXED[name]
    if name == "choice":
        options = [str(text) for text in _list(problem.payload["options"])]
        return partial(spoils.other_of, "ABCD"), partial(
            _has_letter, answer, options["ABCD".index(answer)]
        )
    if name == "yes_no":
        return partial(spoils.other_of, ("yes", "no")), partial(
            _has_key, ("yes", "true") if answer == "yes" else ("no", "false")
        )
    if name.endswith("_run") or re.fullmatch(r"-?\d+", answer):
        return (spoils.digit, _has_numbers) if name.endswith("_run") else (spoils.number, has_it)
    may_be = (lambda text: has_it(text) or _adds_up(answer, text)) if "x^" in answer else has_it
    if any(sign.isdigit() for sign in answer):
        return spoils.digit, may_be
    return (spoils.letter if "\\" in answer else spoils.word), may_be


_PROGRAM: tuple[Spoil, Holds] = (
    spoils.program,
    partial(_has_key, ("def", "print", "class", "import")),
)
_FIXED: dict[str, tuple[Spoil, Holds]] = {
    **dict.fromkeys(("code_function", "code_stdin", "code_pytest"), _PROGRAM),
    "ifeval": (spoils.another_end, partial(_has_key, (key("Any other questions?"),))),
}
_PLAIN: dict[str, Spoil] = {
    "arithmetic": spoils.number,
    "last_letter": spoils.word,
    "reverse": spoils.word,
    "graph_logic": spoils.word,
    "zebralogic": spoils.houses,
    "ordering": spoils.order,
    "arc": spoils.grid,
    "clrs": spoils.digit,
}
_SETTINGS: dict[str, dict[str, Json]] = {
    **{name: {"count": NUM_PROBLEMS} for name in MADE if name != "game24"},
    "zebra": {"count": NUM_PROBLEMS, "level": [0.0, 0.6]},
    "game24": {"unsolvable": True},
    **{name: {"seconds": 4.0} for name in RUNS_CODE},
}
