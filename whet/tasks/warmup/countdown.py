"""Countdown: reach a target from given numbers with + - * /, each at most once, or exactly once.

answer   an expression that reaches the target, or nothing where none is known: any right expression
is right payload  {"numbers": [...], "target": n, "use": "all" or "some"}; without `use` the
settings decide
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Literal

from whet.errors import DataError
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.game24.expression import Expression, parse
from whet.tasks.game24.values import SYMBOLS, Value, combine
from whet.tasks.generated import GeneratedConfig, GeneratedTask, fifth, question, split_of
from whet.types import Json, Problem, Score, Split

Use = Literal["all", "some"]
Term = tuple[Value, str]
"""A number at hand and the expression that made it."""

_SHAPES = ((3, 3, 9, 40), (4, 4, 12, 100), (4, 5, 25, 300), (5, 5, 50, 600), (6, 6, 100, 999))
"""Fewest and most numbers, the largest of them, and the largest target in each fifth of
difficulty."""
_WORDS: dict[Use, str] = {"all": "each number exactly once", "some": "each number at most once"}
_ASK = (
    "Make {target} from the numbers {numbers} with + - * / and brackets. Use {use}. "
    "End with the expression between answer tags: <answer>(a + b) * c</answer>"
)
_SIGNS = {"\N{MULTIPLICATION SIGN}": "*", "\N{DIVISION SIGN}": "/", "\N{MINUS SIGN}": "-", "$": ""}
_LATEX = {r"\times": "*", r"\cdot": "*", r"\div": "/", r"\left": "", r"\right": ""}
_SIGN = re.compile("|".join(re.escape(sign) for sign in (*_SIGNS, *_LATEX)))
_MAX_SEARCH = 20_000


class CountdownConfig(GeneratedConfig):
    name: Literal["countdown"] = "countdown"
    use: Use = "all"
    """Whether every number must be used, once each, or some may be left over."""


class Countdown(GeneratedTask):
    """Generated targets that can be reached, an exact grader in whole fractions, and a gold
    expression."""

    name = "countdown"
    has_one_answer = False
    config: CountdownConfig

    def __init__(self, config: CountdownConfig | None = None) -> None:
        self.config = config or CountdownConfig()

    def score(self, problem: Problem, text: str) -> Score:
        """Check the expression of the answer: its value exactly, and the numbers in it.

        Parts: `correct` 0 or 1; `numbers`, 1 where it uses the given numbers as asked; `value`, 1
        where it makes the target, whatever numbers it uses.
        """
        numbers, target, use = self._given(problem)
        found = read_final(text, lambda span: _expression(span, target))
        if found is None:
            return no_answer("numbers", "value")
        span, expression = found
        used = Counter(expression.leaves)
        given = Counter(numbers)
        fits = used == given if use == "all" else used <= given
        reaches = expression.value == (target, 1)
        note = f"makes {target}" if reaches else f"does not make {target}"
        if not fits:
            note += f", but not with {_WORDS[use]} of {' '.join(map(str, numbers))}"
        return to_score(
            fits and reaches, {"numbers": float(fits), "value": float(reaches)}, span, note
        )

    def solve(self, problem: Problem, seed: int) -> str | None:
        """Give the known expression, or search for one; None where the search finds none in its
        bounds."""
        numbers, target, use = self._given(problem)
        known = problem.answer and f"<answer>{problem.answer}</answer>"
        if known and self.score(problem, known).parts["correct"] == 1.0:
            return known
        found = search(numbers, target, use)[0]
        return None if found is None else f"<answer>{found}</answer>"

    def _given(self, problem: Problem) -> tuple[list[int], int, Use]:
        match problem.payload:
            case {"numbers": list(numbers), "target": int(target)}:
                whole = [number for number in numbers if isinstance(number, int)]
                if len(whole) == len(numbers):
                    use = problem.payload.get("use", self.config.use)
                    return whole, target, "some" if use == "some" else "all"
        raise DataError(
            f"problem {problem.id} needs payload.numbers and payload.target, not {dict(problem.payload)!r}"
        )

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        fewest, most, highest, top = _SHAPES[fifth(level)]
        numbers = [rng.randint(1, highest) for _ in range(rng.randint(fewest, most))]
        home = split_of(self.name, [*sorted(numbers)])
        spare = self.config.use == "some" and len(numbers) > 3
        joined = _joined(numbers[:-1] if spare else numbers, rng) if split in (None, home) else None
        if joined is None or joined[0][1] != 1 or not highest < joined[0][0] <= top:
            return None
        target = joined[0][0]
        use = self.config.use
        asked = _ASK.format(target=target, numbers=" ".join(map(str, numbers)), use=_WORDS[use])
        payload: dict[str, Json] = {"numbers": list(numbers), "target": target, "use": use}
        return question(
            self.name, asked, answer=joined[1], payload=payload, level=level, split=home
        )


def search(numbers: Sequence[int], target: int, use: Use) -> tuple[str | None, int]:
    """Find an expression, trying every join of two numbers; also count the joins tried, which are
    bounded."""
    seen: set[tuple[Value, ...]] = set()
    stack: list[list[Term]] = [[((number, 1), str(number)) for number in numbers]]
    tried = 0
    while stack and tried < _MAX_SEARCH:
        terms = stack.pop()
        for value, written in terms:
            if value == (target, 1) and (use == "some" or len(terms) == 1):
                return written, tried
        for (i, (a, a_text)), (j, (b, b_text)) in combinations(enumerate(terms), 2):
            rest = [term for place, term in enumerate(terms) if place not in (i, j)]
            for value, written in _joins(a, a_text, b, b_text):
                tried += 1
                state = [*rest, (value, written)]
                key = tuple(sorted(term[0] for term in state))
                if key not in seen:
                    seen.add(key)
                    stack.append(state)
    return None, tried


def _joins(a: Value, a_text: str, b: Value, b_text: str) -> Iterator[Term]:
    for left, one, symbol, right, other in (
        (a, a_text, "+", b, b_text),
        (a, a_text, "*", b, b_text),
        (a, a_text, "-", b, b_text),
        (b, b_text, "-", a, a_text),
        (a, a_text, "/", b, b_text),
        (b, b_text, "/", a, a_text),
    ):
        value = combine(left, symbol, right)
        if value is not None:
            yield value, f"({one} {symbol} {other})"


def _expression(span: str, target: int) -> Expression | None:
    """Parse `EXPR` or `EXPR = target`."""
    body, equals, claim = _SIGN.sub(lambda sign: {**_SIGNS, **_LATEX}[sign[0]], span).partition("=")
    if equals and claim.strip().rstrip(".") != str(target):
        return None
    return parse(body.strip())


def _joined(numbers: Sequence[int], rng: Random) -> Term | None:
    """Join numbers at random, in whole steps only; None where a draw does not allow it."""
    terms: list[Term] = [((number, 1), str(number)) for number in numbers]
    while len(terms) > 1:
        a, a_text = terms.pop(rng.randrange(len(terms)))
        b, b_text = terms.pop(rng.randrange(len(terms)))
        symbol = rng.choice(SYMBOLS)
        value = combine(a, symbol, b)
        if value is None or value[1] != 1 or value[0] < 1 or (symbol in "*/" and b == (1, 1)):
            return None
        terms.append((value, f"({a_text} {symbol} {b_text})"))
    value, written = terms[0]
    return value, written[1:-1]
