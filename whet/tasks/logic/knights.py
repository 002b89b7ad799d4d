"""Knights and knaves: knights tell the truth, knaves lie; who is which?

Trying every island proves that a generated puzzle has one answer.

answer one clause per person: `(1) Ada is a knight`, on separate lines or with commas between
payload {"names": [...], "statements": [...]}: what each person says, in machine form, as Logic-RL
writes it: ["telling-truth", i], ["lying", i], ["not", s], ["and", s, ...], ["or", s, ...], ["->",
s, s], ["<=>", s, s]; only for reading and proofs, since the grader needs only the answer

In a response, a liar is a knave and a truth-teller a knight, alone or as a gloss, and `Both are
knaves` means everyone. A contradictory gloss is kept, so that nothing is read.
"""

import re
from collections.abc import Sequence
from functools import lru_cache, partial, reduce
from operator import and_, or_
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.level_bands import level_band
from whet.tasks.answers import no_answer, strip_text_commands
from whet.tasks.generated import GeneratedConfig, GeneratedTask, grade_final_answer, read_gold
from whet.tasks.literals import parse_markdown
from whet.tasks.logic.vocabulary import PEOPLE
from whet.types import Json, Problem, Score, Split, Verdict

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
    "On an island everyone is either a knight, who always tells the truth, or a knave, who always "
    "lies. You meet {names}. {statements} Who is a knight and who is a knave? End with everyone "
    "between answer tags, one a line: "
    "<answer>(1) NAME is a knight or knave\n(2) ...</answer>"
)
_CLAUSE = re.compile(
    r"(?:\(\d{1,3}\)|\d{1,3}[.)]|[-*])? ?(?:and )?(\S{1,40}?)"
    r"(?:,? (?:is|must be) (?:(not )?(?:an?|the)|the only) |: ?(?:an? )?| = )(knight|knave)\.?",
    re.IGNORECASE,
)
"""One person's role: `(1) Ada is a knight`, `Bob: knave`."""
_NAME = r"(?!(?:knight|knave)s?\b)[^\s,;.:|()]{1,40}"
_TOGETHER = re.compile(
    rf"(?<!\w)(?:both )?({_NAME}(?:, {_NAME}){{0,20}},? and {_NAME})"
    r" are (?:both |all )?(knight|knave)s\b",
    re.IGNORECASE,
)
"""Several people with one role: `Ada and Bob are knights`."""
_GROUP = re.compile(
    rf"\b(knight|knave)s?: ?({_NAME}(?:(?:, and |, | and ){_NAME}){{0,20}})(?![^\n;.])",
    re.IGNORECASE,
)
"""A role and its people: `Knights: Ada, Bob`."""
_ROLE_AT_END = re.compile(r"\S (?:is (?:not )?an? |: ?)(?:knight|knave)[\s.,;*]*\Z", re.IGNORECASE)
_LEAD = re.compile(
    r"\s*(?:(?:so|thus|therefore|hence)[,:]?\s+)?"
    r"(?:(?:the|my) (?:final )?answer is(?: that)?:?\s+)?",
    re.IGNORECASE,
)
_AND = re.compile(
    r",?\s+and\s+(?=\S{1,40} (?:is|must be) (?:not )?(?:an?|the) (?:knight|knave)\b)|, and ",
    re.IGNORECASE,
)
"""An `and` between two clauses."""
_COMMA_OR_AND = re.compile(r",? and |, ", re.IGNORECASE)
_NO_MARKUP = str.maketrans("", "", "*$")
_NO_BRACES = str.maketrans("", "", "{}\"'")
_BREAK = re.compile(r"[\n,;]+|(?<!\d)\.(?=\s)|\s+(?=\(\d{1,3}\)\s)")
"""What separates clauses: a line break, a comma, a number."""
_LIAR = (
    r"(?:s?he |they |an? |the )?(?:knaves?|liars?|lying|lies|lie|liar-type"
    r"|(?:always|invariably|who(?: always)?) (?:lies|lie|lying|tells? lies))"
)
"""Words for a liar."""
_TRUE = (
    r"(?:s?he |they |an? |the )?(?:knights?|truth[- ]?tellers?|truthful|honest"
    r"|(?:always |who (?:always )?)?(?:tells?|telling|speaks?|speaking) the truth"
    r"|(?:always|who(?: always)?) truthful)"
)
"""Words for a truth-teller."""
_GLOSS = (
    (
        re.compile(
            rf"\b((?:an? |the )?)(?:knave|liar)(s?)"
            rf"(?: ?\({_LIAR}\)|,? (?:i\.e\.,?|that is,?|[–—-]) {_LIAR}|, {_LIAR}(?=[\n.;]|\Z))",
            re.I,
        ),
        r"\1knave\2",
    ),
    (
        re.compile(
            rf"\b((?:an? |the )?)(?:knight|truth[- ]?teller)(s?)"
            rf"(?: ?\({_TRUE}\)|,? (?:i\.e\.,?|that is,?|[–—-]) {_TRUE}|, {_TRUE}(?=[\n.;]|\Z))",
            re.I,
        ),
        r"\1knight\2",
    ),
    (
        re.compile(rf"\b(?:lies|is lying|is dishonest)(?: ?\({_LIAR}\)| and is {_LIAR})?", re.I),
        "is a knave",
    ),
    (
        re.compile(
            rf"\b(?:(?:always )?tells the truth|is (?:telling the truth|truthful|honest))"
            rf"(?: ?\({_TRUE}\)| and is {_TRUE})?",
            re.I,
        ),
        "is a knight",
    ),
    (re.compile(r"\bliar(s?)\b", re.I), r"knave\1"),
    (re.compile(r"\btruth[- ]?teller(s?)\b", re.I), r"knight\1"),
)
"""Other words for the roles, perhaps with a gloss, and their plain form."""
_MAY_GLOSS = re.compile(
    r"\b(?:liars?|lies?|lying|dishonest|truth|truthful|honest)\b|truth-?teller|\(", re.I
)
_SIGNS = re.compile("[ \t]?[✅❌✓✗✔✘☑🗡⚔\ufe0f]+")
_LIE = re.compile(r"\b(?:(?:both|all) )?lie(?=[.;,\n]|\Z)", re.I)
_ONLY_ONE = re.compile(r"\s*(?:so )?(\S{1,40}) is the only (knight|knave)[.!]?\s*", re.I)
_REASON = re.compile(
    r"(?:(?<=knight)|(?<=knave)),? (?:because|since|as|for|by|from) (?!(?:is|are)\b)[^\n;]*", re.I
)
"""A reason after a role: ` because she lies`."""
_DASH = re.compile(r"(?<=\w)\s?(?:[–—→]|->|=>|\s-\s)\s?(?=(?:an? |the )?(?:knight|knave)\b)", re.I)
"""A dash or arrow before a role: `Ada → knight`."""
_IN_BRACKETS = re.compile(r"(?<=\w) \((knight|knave)\)", re.I)
_WHILE = re.compile(r",? (?:while|whereas) ", re.I)
_ELLIPSIS = re.compile(r"(?:,? and |, |; )(\S{1,40}),? (?:an?|the) (knight|knave)\b", re.I)
"""A clause without its verb: `, and Bob a knave`."""
_INVERSE = re.compile(
    r"\b(?:the )?(?:only )?(knight|knave) is (?!an? |the |not )([^\s,.;:()]{1,40})", re.I
)
"""A clause with the role first: `the knave is Bob`."""
_ALL = re.compile(
    r"\s*(?:(?:so|thus|therefore|hence),? )?(?:both(?: of them)?|everyone|everybody|all"
    r"(?: (?:of them|two|three|four|five|six|people|persons|are))?"
    r"|they(?: are)? (?:both|all)|each(?: of them)?)"
    r" (?:are|is)(?: (?:both|all))?(?: an?)? (?P<role>knight|knave)s?[.!]?\s*",
    re.I,
)
_ONLY = re.compile(r"\s*(?:so )?only (\S{1,40}) is an? (knight|knave)[.!]?\s*", re.I)
_NEITHER = re.compile(
    r"\s*(?:so )?neither (\S{1,40}) nor (\S{1,40}) is an? (knight|knave)[.!]?\s*", re.I
)
_OTHER = {"knight": "knave", "knave": "knight"}


class KnightsConfig(GeneratedConfig):
    name: Literal["knights"] = "knights"


class Knights(GeneratedTask):
    """Generated islands of two to ten people, and an exact grader."""

    name = "knights"
    config: KnightsConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare everyone's role with the gold answer; everyone must be named once, and nobody
        else."""
        needs = "`NAME is a knight` lines"
        names = list(read_gold(problem, roles_of, needs))
        read = partial(roles_of, names=names)
        score = grade_final_answer(problem, text, read, _compare, needs=needs)
        if score.verdict is Verdict.CORRECT and _goes_on_above(text, score.answer or ""):
            return no_answer("people")
        return score

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        n = rng.randint(*_SIZES[level_band(level)])
        names = rng.sample(PEOPLE, n)
        statements = [
            _draw_statement(person, n, _DEPTHS[level_band(level)], rng) for person in range(n)
        ]
        payload: dict[str, Json] = {"names": list(names), "statements": statements}
        worlds = solutions(statements)
        if worlds.bit_count() != 1:
            return None
        truth = worlds.bit_length() - 1
        lines = [
            f"({i + 1}) {name} is a {_role(truth >> i & 1 == 1)}" for i, name in enumerate(names)
        ]
        everyone = f"{', '.join(names[:-1])} and {names[-1]}"
        says = [
            f"{name} says: {_write_statement(statement, names)}."
            for name, statement in zip(names, statements, strict=True)
        ]
        prompt = _ASK.format(names=everyone, statements=" ".join(says))
        return self.make_problem(prompt, "\n".join(lines), payload, level, core=payload)


def roles_of(text: str, names: Sequence[str] = ()) -> dict[str, str] | None:
    """Read everyone's role; None if a clause says more or is repeated, empty if two contradict.

    `both` and `everyone` stand for the names.
    """
    roles: dict[str, str] = {}
    only = ""
    plain = strip_text_commands(text.translate(_NO_MARKUP)).replace("\\\\", "\n")
    if (table := parse_markdown(plain)) is not None:
        plain = "\n".join(": ".join(row) for row in table[1:])
    elif plain.strip().startswith("{"):
        plain = plain.translate(_NO_BRACES)
    plain = write_roles_plainly(plain, names)
    plain = _GROUP.sub(lambda group: _list_roles(group[2], group[1]), plain)
    plain = _TOGETHER.sub(lambda group: _list_roles(group[1], group[2]), plain)
    for clause in _BREAK.split(_AND.sub(", ", _LEAD.sub("", plain, count=1))):
        words = " ".join(clause.split())
        if not words:
            continue
        match = _CLAUSE.fullmatch(words)
        if not match:
            return None
        role = _role((match[3].lower() == "knight") != bool(match[2]))
        if (name := match[1].casefold()) in roles:
            return None if roles[name] == role else {}
        roles[name] = role
        only = role if " only " in words else only
    if only and list(roles.values()).count(only) > 1:
        return {}
    return roles or None


def _goes_on_above(text: str, answer: str) -> bool:
    """Whether the line right above a one-line answer also gives a role, so that the answer is
    incomplete."""
    if "\n" in answer or (start := text.rfind(answer)) < 0:
        return False
    above = text[:start].rstrip(" *#>-").split("\n")
    return len(above) > 1 and not above[-1] and _ROLE_AT_END.search(above[-2]) is not None


def write_roles_plainly(text: str, names: Sequence[str] = ()) -> str:
    """Write other words for knights, knaves and everyone plainly, and remove reasons and dashes.

    >>> write_roles_plainly("(1) Ada is a liar (knave)")
    '(1) Ada is a knave'
    >>> write_roles_plainly("Only Bo is a knave.", ["Ada", "Bo"])
    'Bo is a knave, Ada is a knight'
    """
    if _MAY_GLOSS.search(text):
        for pattern, plain in _GLOSS:
            text = pattern.sub(plain, text)
        text = _LIE.sub("are knaves", text)
        text = _IN_BRACKETS.sub(r" is a \1", text)
    text = _SIGNS.sub("", text)
    text = _DASH.sub(": ", _REASON.sub("", text))
    text = _ELLIPSIS.sub(r", \1 is a \2", _WHILE.sub(", ", text))
    text = _INVERSE.sub(r"\2 is a \1", text)
    return _write_everyone(text, names)


def _write_everyone(text: str, names: Sequence[str]) -> str:
    if only := _ONLY.fullmatch(text) or _ONLY_ONE.fullmatch(text):
        role = only[2].lower()
        others = [name for name in names if name.lower() != only[1].lower()]
        if len(others) == len(names) - 1:
            return ", ".join(
                [f"{only[1]} is a {role}", *(f"{name} is a {_OTHER[role]}" for name in others)]
            )
    if neither := _NEITHER.fullmatch(text):
        role = _OTHER[neither[3].lower()]
        return f"{neither[1]} is a {role}, {neither[2]} is a {role}"
    everyone = _ALL.fullmatch(text)
    if everyone and names:
        return ", ".join(f"{name} is a {everyone['role'].lower()}" for name in names)
    return text


def _list_roles(names: str, role: str) -> str:
    """Write out a role that several people have as one clause for each."""
    people = [name for name in _COMMA_OR_AND.split(names) if name.lower() not in ("none", "nobody")]
    return ", ".join(f"{name}: {role}" for name in people)


def solutions(statements: Sequence[Json]) -> int:
    """Try all worlds at once: bit w of the result is set if world w is consistent.

    Person i is a knight in the worlds whose number has bit i.
    """
    n = len(statements)
    worlds = _everywhere(n)
    for person, statement in enumerate(statements):
        worlds &= ~(_knight(person, n) ^ _table(statement, n))
    return worlds


def _table(statement: Json, n: int) -> int:
    """List the worlds in which a statement is true, as bits."""
    match statement:
        case ["telling-truth", int(person)]:
            return _knight(person, n)
        case ["lying", int(person)]:
            return _everywhere(n) & ~_knight(person, n)
        case ["not", part]:
            return _everywhere(n) & ~_table(part, n)
        case ["->", first, second]:
            return _everywhere(n) & ~_table(first, n) | _table(second, n)
        case ["<=>", first, second]:
            return _everywhere(n) & ~(_table(first, n) ^ _table(second, n))
        case ["and" | "or" as kind, first, *others]:
            join = and_ if kind == "and" else or_
            return reduce(join, (_table(part, n) for part in others), _table(first, n))
    raise DataError(f"not a statement of knights and knaves: {statement!r}")


@lru_cache(1 << 8)
def _knight(person: int, n: int) -> int:
    return sum(1 << world for world in range(1 << n) if world >> person & 1)


def _everywhere(n: int) -> int:
    return (1 << (1 << n)) - 1


def _draw_statement(speaker: int, n: int, depth: int, rng: Random) -> Json:
    """Draw a statement: about another person, or two statements joined, about anyone."""
    if rng.random() < 0.2:
        other = rng.randrange(n - 1)
        return _draw_atom(other + (other >= speaker), rng)
    return _draw_compound(n, depth, rng)


def _draw_compound(n: int, depth: int, rng: Random) -> Json:
    kind = rng.choice(tuple(_JOINS))
    if depth == 1:
        return [kind, *(_draw_atom(person, rng) for person in rng.sample(range(n), 2))]
    nested = _draw_compound(n, depth - 1, rng)
    is_simple = rng.random() < 0.5
    other = _draw_atom(rng.randrange(n), rng) if is_simple else _draw_compound(n, depth - 1, rng)
    return [kind, nested, other] if rng.random() < 0.5 else [kind, other, nested]


def _draw_atom(person: int, rng: Random) -> Json:
    return ["telling-truth" if rng.random() < 0.5 else "lying", person]


def _compare(roles: dict[str, str], gold: dict[str, str]) -> tuple[dict[str, float], str]:
    right = sum(roles.get(name) == role for name, role in gold.items())
    return {"people": right / len(gold)}, f"{right} of {len(gold)} people are told right"


def _write_statement(statement: Json, names: Sequence[str], depth: int = 0) -> str:
    match statement:
        case [kind, int(person)]:
            return f"{names[person]} is a {_role(kind == 'telling-truth')}"
        case [str(kind), *parts]:
            sentence = _JOINS[kind].format(*(_write_statement(p, names, depth + 1) for p in parts))
            return f"({sentence})" if depth else sentence
    raise AssertionError(f"not a statement that is drawn: {statement!r}")


def _role(is_knight: bool) -> str:
    return "knight" if is_knight else "knave"
