"""Tasks that generate their problems: shared settings, the base class, and the choice of splits.

A task's `generate(seed, level, split)` draws the core of a problem (its solution, its numbers)
until the core's hash falls in the requested split. Equal problems have equal cores, so splits
cannot overlap.
"""

from collections.abc import Callable, Iterator
from itertools import count
from random import Random
from typing import Protocol, TypeVar, runtime_checkable

from pydantic import Field

from whet.answers.final_answer import decided_text
from whet.answers.pieces import read_stated
from whet.config import Config
from whet.rng import derive, make_rng
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import ConfiguredTask, check_split, data_error
from whet.tasks.literals import read_field
from whet.types import Json, Message, Problem, Score, Split, content_id

T = TypeVar("T")


_BANDS: tuple[tuple[int, Split], ...] = ((35, "sft"), (70, "rl"), (80, "dev"), (100, "test"))
_PATIENCE = 300
"""Consecutive draws without a new problem after which a split ends early."""


class GeneratedConfig(Config):
    count: int = Field(default=1000, ge=0)
    """Problems in each split; fewer if there are not enough different ones."""
    level: tuple[float, float] = (0.0, 1.0)
    """Lowest and highest level of difficulty; 0 is the easiest and 1 the hardest."""
    seed: int = 0
    """Seed of the problems; splits do not overlap, even between seeds."""


@runtime_checkable
class Generator(Protocol):
    """A task that can make a problem from a seed."""

    name: str

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        """Make a problem, equal for equal arguments; without a level, the level is random."""
        ...


class GeneratedTask(ConfiguredTask):
    """A task that draws each problem from its own random stream."""

    is_bounded = True
    config: GeneratedConfig

    def draw(self, rng: Random, level: float, split: Split | None) -> Problem | None:
        """Draw a problem; None if the draw is unusable. A draw may stop before its costly part if
        it belongs to another split."""
        raise NotImplementedError

    def problems(self, split: Split) -> Iterator[Problem]:
        """Yield different problems with levels uniform in the configured range."""
        check_split(split)
        low, high = self.config.level
        seen: set[str] = set()
        index = last = 0
        while len(seen) < self.config.count and index - last <= _PATIENCE:
            seed = derive(self.config.seed, self.name, split, index)
            level = low + (high - low) * make_rng(seed, "level").random()
            problem = self.generate(seed, level, split)
            index += 1
            if problem.id not in seen:
                last = index
                seen.add(problem.id)
                yield problem

    def generate(
        self, seed: int, level: float | None = None, split: Split | None = None
    ) -> Problem:
        """Draw from successive streams of the seed until one gives a problem of the split."""
        if split is not None:
            check_split(split)
        level = level_of(seed, level)
        draws = (self.draw(make_rng(seed, self.name, attempt), level, split) for attempt in count())
        return next(problem for problem in draws if problem and split in (None, problem.split))

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer and f"<answer>{problem.answer}</answer>"

    def make_problem(
        self, prompt: str, answer: str, payload: dict[str, Json], level: float, core: Json
    ) -> Problem:
        """Make a problem with one user message, in the split of its core."""
        split = split_of(self.name, core)
        return question(self.name, prompt, answer=answer, payload=payload, level=level, split=split)


def grade_final_answer(
    problem: Problem,
    text: str,
    read: Callable[[str], T | None],
    compare: Callable[[T, T], tuple[dict[str, float], str]],
    *,
    needs: str,
    may_be_stated: bool = False,
) -> Score:
    """Compare the final answer of a response with the gold answer; `read` parses both.

    A JSON object is read by its answer field if `read` cannot parse it. With `may_be_stated`, the
    last sentence may state the answer among other words: `the row is [1 2], so`.

    `compare(answer, gold)` returns the parts besides `correct`, and a note.
    """
    gold = read_gold(problem, read, needs)
    final = read_final(text, lambda span: _read_span(span, read))
    if final is None and may_be_stated and (shown := decided_text(text)):
        final = read_stated(shown, read)
    if final is None:
        return no_answer(*compare(gold, gold)[0])
    span, answer = final
    parts, note = compare(answer, gold)
    return to_score(answer == gold, parts, span, note)


def _read_span(span: str, read: Callable[[str], T | None]) -> T | None:
    value = read(span)
    return read_field(span, read) if value is None else value


def read_gold(problem: Problem, read: Callable[[str], T | None], needs: str) -> T:
    """Read the gold answer; an error uses `needs` to say what it should be."""
    gold = read(problem.answer or "")
    if gold is None:
        raise data_error(problem, f"{needs} as its answer", problem.answer)
    return gold


def split_of(task: str, core: Json) -> Split:
    """Return the split of a core: 35 % sft, 35 % rl, 10 % dev, 20 % test."""
    return split_of_id(content_id(task, core))


def split_of_id(id: str) -> Split:
    """Return the split of a problem by the hash in its id."""
    percentile = int(id.rpartition("/")[2], 16) % 100
    return next(split for end, split in _BANDS if percentile < end)


def level_of(seed: int, level: float | None) -> float:
    """Clamp a given level to 0 to 1, or draw a random one."""
    return make_rng(seed, "level").random() if level is None else min(max(level, 0.0), 1.0)


def question(
    task: str, content: str, *, answer: str, payload: dict[str, Json], level: float, split: Split
) -> Problem:
    """Make a problem with one user message; its id is the hash of the message."""
    return Problem(
        id=content_id(task, content),
        task=task,
        prompt=(Message(role="user", content=content),),
        answer=answer,
        payload=payload,
        level=level,
        split=split,
        source=task,
    )
