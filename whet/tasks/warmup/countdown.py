"""Countdown: reach a target from given numbers with + - * /, each at most once, or exactly once.

answer an expression that reaches the target, if one is known; any other one is also right payload
{"numbers": [...], "target": n, "use": "all" or "some"}; the settings' `use` if missing
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Literal

from whet.answers.final_answer import decided_text
from whet.answers.pieces import last_sentence
from whet.level_bands import level_band
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import data_error
from whet.tasks.expressions import (
    SIGNS,
    SYMBOLS,
    Expression,
    Value,
    combine,
    read_chain,
    write_plainly,
)
from whet.tasks.game24.lines import unbox_result
from whet.tasks.generated import GeneratedConfig, GeneratedTask
from whet.types import Json, Problem, Score, Split

Use = Literal["all", "some"]
_Term = tuple[Value, str]
"""An available number and the expression that made it."""

_SHAPES = ((3, 3, 9, 40), (4, 4, 12, 100), (4, 5, 25, 300), (5, 5, 50, 600), (6, 6, 100, 999))
"""Fewest and most numbers, the largest number, and the largest target, for each fifth of
difficulty."""
_WORDS: dict[Use, str] = {"all": "each number exactly once", "some": "each number at most once"}
_ASK = (
    "Make {target} from the numbers {numbers} with + - * / and brackets. Use {use}. "
    "End with the expression between answer tags: <answer>(a + b) * c</answer>"
)
_MAKES = re.compile(r"(?<=[0-9)]),? (?:which )?(?:equals|is|gives|makes|yields|reaches) (?=[0-9])")
_RUN = re.compile(r"(?<![\w.])[0-9(][0-9 ()*/+=-]*")
_MAX_SEARCH = 20_000


class CountdownConfig(GeneratedConfig):
    name: Literal["countdown"] = "countdown"
    use: Use = "all"
    """Whether every number must be used exactly once, or some may be left over."""


class Countdown(GeneratedTask):
    """Generated targets that can be reached, an exact grader, and a gold expression."""

    name = "countdown"
    has_one_answer = False
    config: CountdownConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Check the expression of the answer: its value exactly, and the numbers in it.

        Parts: `correct` 0 or 1; `numbers`, 1 if it uses the given numbers as asked; `value`, 1 if
        it makes the target with any numbers.
        """
        numbers, target, use = self._read_payload(problem)
        text = unbox_result(text)
        answer = read_final(text, lambda span: _parse(span, target))
        if answer is None and (shown := decided_text(text)):
            answer = _read_sentence(shown, target)
        if answer is None:
            return no_answer("numbers", "value")
        span, expression = answer
        used = Counter(expression.leaves)
        given = Counter(numbers)
        fits = used == given if use == "all" else used <= given
        reaches = expression.value == (target, 1)
        note = f"makes {target}" if reaches else f"does not make {target}"
        if not fits:
            note += f", but not with {_WORDS[use]} of {' '.join(map(str, numbers))}"
        parts = {"numbers": float(fits), "value": float(reaches)}
        return to_score(fits and reaches, parts, span, note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        """Write the known expression, or search for one; None if a bounded search finds none."""
        numbers, target, use = self._read_payload(problem)
        known = problem.answer and f"<answer>{problem.answer}</answer>"
        if known and self.score(problem, known).parts["correct"] == 1.0:
            return known
        expression = search(numbers, target, use)[0]
        return None if expression is None else f"<answer>{expression}</answer>"

    def _read_payload(self, problem: Problem) -> tuple[list[int], int, Use]:
        match problem.payload:
            case {"numbers": list(numbers), "target": int(target)}:
                whole = [number for number in numbers if isinstance(number, int)]
                if len(whole) == len(numbers):
                    use = problem.payload.get("use", self.config.use)
                    return whole, target, "some" if use == "some" else "all"
        raise data_error(problem, "payload.numbers and payload.target", dict(problem.payload))

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        fewest, most, highest, top = _SHAPES[level_band(level)]
        numbers = [rng.randint(1, highest) for _ in range(rng.randint(fewest, most))]
        use = self.config.use
        has_spare = use == "some" and len(numbers) > 3
        term = _join_all(numbers[:-1] if has_spare else numbers, rng)
        if term is None or term[0][1] != 1 or not highest < term[0][0] <= top:
            return None
        (target, _), answer = term
        asked = _ASK.format(target=target, numbers=" ".join(map(str, numbers)), use=_WORDS[use])
        payload: dict[str, Json] = {"numbers": list(numbers), "target": target, "use": use}
        return self.make_problem(asked, answer, payload, level, core=[*sorted(numbers)])


def search(numbers: Sequence[int], target: int, use: Use) -> tuple[str | None, int]:
    """Find an expression by trying every pair of numbers; also count the tries, up to a limit."""
    seen: set[tuple[Value, ...]] = set()
    stack: list[list[_Term]] = [[((number, 1), str(number)) for number in numbers]]
    num_tried = 0
    while stack and num_tried < _MAX_SEARCH:
        terms = stack.pop()
        for value, text in terms:
            if value == (target, 1) and (use == "some" or len(terms) == 1):
                return text, num_tried
        for (i, a), (j, b) in combinations(enumerate(terms), 2):
            rest = [term for index, term in enumerate(terms) if index not in (i, j)]
            for joined in _joins(a, b):
                num_tried += 1
                state = [*rest, joined]
                key = tuple(sorted(term[0] for term in state))
                if key not in seen:
                    seen.add(key)
                    stack.append(state)
    return None, num_tried


def _joins(a: _Term, b: _Term) -> Iterator[_Term]:
    for symbol in "+*-/":
        for (left, one), (right, other) in ((a, b), (b, a))[: 1 if symbol in "+*" else 2]:
            value = combine(left, symbol, right)
            if value is not None:
                yield value, f"({one} {symbol} {other})"


def _parse(span: str, target: int) -> Expression | None:
    """Parse `EXPR`, `EXPR = target`, `EXPR = EXPR = target` or `target = EXPR`."""
    plain = write_plainly(span.translate(SIGNS).replace("$", ""))
    return read_chain(plain.strip().removesuffix("."), target)


def _read_sentence(text: str, target: int) -> tuple[str, Expression] | None:
    """Read the only expression of the last sentence: `So 2 * 9 + 7 makes 25.`"""
    sentence = last_sentence(text)
    if sentence is None:
        return None
    plain = _MAKES.sub(" = ", sentence.translate(SIGNS))
    expression_by_key: dict[tuple[object, ...], tuple[str, Expression]] = {}
    for run in _RUN.finditer(plain):
        expression = _parse(run[0].strip(" ="), target)
        if expression is not None and len(expression.leaves) > 1:
            key = (*expression.leaves, expression.value)
            expression_by_key[key] = (run[0].strip(" ="), expression)
    return next(iter(expression_by_key.values())) if len(expression_by_key) == 1 else None


def _join_all(numbers: Sequence[int], rng: Random) -> _Term | None:
    """Combine numbers at random, with whole results only; None if a draw fails."""
    terms: list[_Term] = [((number, 1), str(number)) for number in numbers]
    while len(terms) > 1:
        a, a_text = terms.pop(rng.randrange(len(terms)))
        b, b_text = terms.pop(rng.randrange(len(terms)))
        symbol = rng.choice(SYMBOLS)
        value = combine(a, symbol, b)
        if value is None or value[1] != 1 or value[0] < 1 or (symbol in "*/" and b == (1, 1)):
            return None
        terms.append((value, f"({a_text} {symbol} {b_text})"))
    value, text = terms[0]
    return value, text[1:-1]
