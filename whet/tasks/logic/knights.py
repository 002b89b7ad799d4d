"""Knights and knaves: knights tell the truth, knaves lie, who is which? One answer holds, proved by
trying them all.

answer   one clause a person: `(1) Ada is a knight`, on lines of their own or with commas between
payload  {"names": [...], "statements": [...]}: what each person says, in machine form, as Logic-RL
writes it:
         ["telling-truth", i], ["lying", i], ["not", s], ["and", s, ...], ["or", s, ...], ["->", s, s], ["<=>", s, s];
         for reading and proof only, the grader needs nothing but the answer
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache, reduce
from operator import and_, or_
from random import Random
from typing import Literal, NamedTuple

from whet.errors import DataError
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import Task
from whet.tasks.generated import GeneratedConfig, fifth, first, level_of, question, split_of, spread
from whet.tasks.logic.words import PEOPLE
from whet.types import Json, Problem, Score, Split


class Statement(NamedTuple):
    """A kind and what it is about: a person for `telling-truth` and `lying`, other statements for
    the rest."""

    kind: str
    person: int = 0
    parts: "tuple[Statement, ...]" = ()


_SIZES = ((2, 2), (3, 3), (4, 5), (6, 7), (8, 10))
"""Fewest and most people in each fifth of difficulty."""
_DEPTHS = (1, 1, 2, 2, 3)
"""How deep statements nest in each fifth."""
_JOINS = {
    "and": "{} and {}",
    "or": "{} or {}",
    "->": "if {} then {}",
    "<=>": "{} if and only if {}",
}
_ASK = (
    "On an island everyone is either a knight, who always tells the truth, or a knave, who always lies. "
    "You meet {names}. {said} Who is a knight and who is a knave? End with everyone between answer tags, one a line: "
    "<answer>(1) NAME is a knight or knave\n(2) ...</answer>"
)
_CLAUSE = re.compile(
    r"(?:\(\d{1,3}\)|\d{1,3}[.)]|[-*])? ?(?:and )?(\S{1,40}?)(?: is an? |: ?)(knight|knave)\.?",
    re.IGNORECASE,
)
_LEAD = re.compile(r"\s*(?:so|thus|therefore|hence)[,:]?\s+", re.IGNORECASE)
_AND = re.compile(r",?\s+and\s+(?=\S{1,40} is an? (?:knight|knave)\b)|, and ", re.IGNORECASE)
_BREAK = re.compile(r"[\n,;]+|(?<!\d)\.(?=\s)")


class KnightsConfig(GeneratedConfig):
    name: Literal["knights"] = "knights"


class Knights(Task):
    """Generated islands of two to ten people, and an exact grader with the share of people told
    right."""

    name = "knights"
    is_bounded = True

    def __init__(self, config: KnightsConfig | None = None) -> None:
        self.config = config or KnightsConfig()

    def problems(self, split: Split) -> Iterator[Problem]:
        return spread(self, self.config, split)

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        place = level_of(seed, level)
        return first(self.name, seed, lambda rng: self._drawn(rng, place, split))

    def score(self, problem: Problem, text: str) -> Score:
        """Compare who is said to be what with the gold answer: everyone once, nobody else.

        Parts: `correct` 0 or 1; `people`, the share of people told right.
        """
        gold = roles_of(problem.answer or "")
        if gold is None:
            raise DataError(
                f"problem {problem.id} needs `NAME is a knight` lines as its answer, not {problem.answer!r}"
            )
        found = read_final(text, roles_of)
        if found is None:
            return no_answer("people")
        span, roles = found
        right = sum(roles.get(name) == role for name, role in gold.items())
        is_right = roles == gold
        return to_score(
            is_right,
            {"people": right / len(gold)},
            span,
            f"{right} of {len(gold)} people are told right",
        )

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f"<answer>{problem.answer}</answer>"

    def _drawn(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n = rng.randint(*_SIZES[fifth(level)])
        names = rng.sample(PEOPLE, n)
        statements = [_statement(person, n, _DEPTHS[fifth(level)], rng) for person in range(n)]
        payload: dict[str, Json] = {
            "names": list(names),
            "statements": [_form(said) for said in statements],
        }
        home = split_of(self.name, payload)
        found = solutions(statements) if split in (None, home) else 0
        if found.bit_count() != 1:
            return None
        truth = found.bit_length() - 1
        lines = [
            f"({i + 1}) {name} is a {_role(truth >> i & 1 == 1)}" for i, name in enumerate(names)
        ]
        asked = _asked(names, statements)
        answer = "\n".join(lines)
        return question(self.name, asked, answer=answer, payload=payload, level=level, split=home)


def roles_of(text: str) -> dict[str, str] | None:
    """Read who is what; None where a clause says anything else, or names someone twice."""
    roles: dict[str, str] = {}
    for clause in _BREAK.split(_AND.sub(", ", _LEAD.sub("", text.replace("*", "")))):
        words = " ".join(clause.split())
        if not words:
            continue
        found = _CLAUSE.fullmatch(words)
        if not found or found[1].casefold() in roles:
            return None
        roles[found[1].casefold()] = found[2].lower()
    return roles or None


def solutions(statements: Sequence[Statement]) -> int:
    """Try all islands at once: bit w of the result is set where world w holds, person i being a
    knight at its bit i."""
    n = len(statements)
    found = _everywhere(n)
    for person, statement in enumerate(statements):
        found &= ~(_knight(person, n) ^ _table(statement, n))
    return found


def statement_of(form: Json) -> Statement:
    """Read a statement in machine form."""
    match form:
        case ["telling-truth" | "lying" as kind, int(person)]:
            return Statement(kind, person)
        case ["not" | "and" | "or" | "->" | "<=>" as kind, *parts]:
            return Statement(kind, parts=tuple(statement_of(part) for part in parts))
    raise DataError(f"not a statement of knights and knaves: {form!r}")


def _table(statement: Statement, n: int) -> int:
    """List the worlds where a statement is true, as bits."""
    if not statement.parts:
        knight = _knight(statement.person, n)
        return knight if statement.kind == "telling-truth" else _everywhere(n) & ~knight
    first, *others = [_table(part, n) for part in statement.parts]
    match statement.kind:
        case "not":
            return _everywhere(n) & ~first
        case "->":
            return _everywhere(n) & ~first | others[0]
        case "<=>":
            return _everywhere(n) & ~(first ^ others[0])
        case "and":
            return reduce(and_, others, first)
        case _:
            return reduce(or_, others, first)


@lru_cache(1 << 8)
def _knight(person: int, n: int) -> int:
    return sum(1 << world for world in range(1 << n) if world >> person & 1)


def _everywhere(n: int) -> int:
    return (1 << (1 << n)) - 1


def _statement(speaker: int, n: int, depth: int, rng: Random) -> Statement:
    """Draw what someone says: of another, or of two statements joined, in which the speaker may
    occur."""
    if rng.random() < 0.2:
        other = rng.randrange(n - 1)
        return _atom(other + (other >= speaker), rng)
    return _compound(n, depth, rng)


def _compound(n: int, depth: int, rng: Random) -> Statement:
    kind = rng.choice(tuple(_JOINS))
    if depth == 1:
        return Statement(
            kind, parts=tuple(_atom(person, rng) for person in rng.sample(range(n), 2))
        )
    nested = _compound(n, depth - 1, rng)
    other = _atom(rng.randrange(n), rng) if rng.random() < 0.5 else _compound(n, depth - 1, rng)
    return Statement(kind, parts=(nested, other) if rng.random() < 0.5 else (other, nested))


def _atom(person: int, rng: Random) -> Statement:
    return Statement("telling-truth" if rng.random() < 0.5 else "lying", person)


def _form(statement: Statement) -> Json:
    return (
        [statement.kind, *(_form(part) for part in statement.parts)]
        if statement.parts
        else [*statement[:2]]
    )


def _asked(names: Sequence[str], statements: Sequence[Statement]) -> str:
    said = [
        f"{name} says: {_said(statement, names, 0)}."
        for name, statement in zip(names, statements, strict=True)
    ]
    return _ASK.format(names=f"{', '.join(names[:-1])} and {names[-1]}", said=" ".join(said))


def _said(statement: Statement, names: Sequence[str], depth: int) -> str:
    if not statement.parts:
        return f"{names[statement.person]} is a {_role(statement.kind == 'telling-truth')}"
    joined = _JOINS[statement.kind].format(
        *(_said(part, names, depth + 1) for part in statement.parts)
    )
    return f"({joined})" if depth else joined


def _role(is_knight: bool) -> str:
    return "knight" if is_knight else "knave"
