"""CLRS-Text: carry out a textbook algorithm on a small input and print its output, or its states
and then its output.

answer   the output as CLRS-Text prints it; where the question asks for a trace, `state, state, ...
| output` payload  {"algorithm": name, "size": n}, for reading only

All thirty algorithms can be made here, three of them with traces; imported rows may hold the traces
of any.
"""

from collections.abc import Iterator
from random import Random
from typing import Literal, NamedTuple

from whet.errors import DataError
from whet.tasks.algorithms.arrays import Item, matching, parse
from whet.tasks.algorithms.inputs import ALGORITHMS, TRACED
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import Task
from whet.tasks.generated import GeneratedConfig, fifth, first, level_of, question, split_of, spread
from whet.types import Problem, Score, Split

_SIZES = ((4, 4), (5, 7), (8, 10), (11, 13), (14, 16))
"""Smallest and largest input in each fifth of difficulty."""


class ClrsConfig(GeneratedConfig):
    name: Literal["clrs"] = "clrs"
    trace: bool = False
    """Ask for the states on the way too, of the algorithms that have them here."""


class Printout(NamedTuple):
    """The states on the way, None where there is no trace, and the output."""

    trace: tuple[Item, ...] | None
    output: tuple[Item, ...]


class Clrs(Task):
    """Generated runs of thirty algorithms, and an exact grader for their printouts."""

    name = "clrs"
    is_bounded = True

    def __init__(self, config: ClrsConfig | None = None) -> None:
        self.config = config or ClrsConfig()

    def problems(self, split: Split) -> Iterator[Problem]:
        return spread(self, self.config, split)

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        place = level_of(seed, level)
        return first(self.name, seed, lambda rng: self._drawn(rng, place, split))

    def score(self, problem: Problem, text: str) -> Score:
        """Compare printouts: every number by its exact value, every bracket and the order as they
        are.

        Parts: `correct` 0 or 1; `output`, 1 where what stands after the trace is right; `trace`,
        the share of right states, where the gold answer has them.
        """
        gold = printout_of(problem.answer or "")
        if gold is None:
            raise DataError(
                f"problem {problem.id} needs a CLRS printout as its answer, not {problem.answer!r}"
            )
        names = ("output",) if gold.trace is None else ("output", "trace")
        found = read_final(text, printout_of)
        if found is None:
            return no_answer(*names)
        told = found[1]
        parts = {"output": float(told.output == gold.output)}
        if gold.trace is not None:
            parts["trace"] = 0.0 if told.trace is None else matching(told.trace, gold.trace)
        is_right = told == gold
        note = "the output is right" if parts["output"] else "not the output"
        if gold.trace is not None:
            note += f", {parts['trace']:.0%} of the trace is right"
        return to_score(is_right, parts, found[0], note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else problem.answer.strip()

    def _drawn(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        least, most = _SIZES[fifth(level)]
        known = {
            name: each
            for name, each in (TRACED if self.config.trace else ALGORITHMS).items()
            if each.size is None or least <= each.size <= most
        }
        algorithm = rng.choice(sorted(known))
        size = known[algorithm].size or rng.randint(least, most)
        shown, trace, output = known[algorithm].draw(rng, size)
        home = split_of(self.name, shown.partition(", initial_trace")[0])
        if split in (None, home):
            return question(
                self.name,
                f"{algorithm}:\n{shown}\n{known[algorithm].output}:\n",
                answer=f"{trace}{output}",
                payload={"algorithm": algorithm, "size": size},
                level=level,
                split=home,
            )
        return None


def printout_of(text: str) -> Printout | None:
    """Read `output` or `trace | output`; None where it is neither, or there is no output."""
    before, bar, after = text.rpartition("|")
    trace = parse(before) if bar else None
    output = parse(after)
    if not output or (bar and trace is None):
        return None
    return Printout(trace, output)
