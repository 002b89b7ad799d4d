"""An engine plays a task: problems in, scored groups out, in the order of the problems."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from whet.engine.base import Engine, Request, Sampling
from whet.grading.grader import Grader
from whet.rng import derive
from whet.text.chat import ChatFormat
from whet.track.metrics import Clock
from whet.types import Completion, Group, Problem, Role, Rollout, Tokens

Progress = Callable[[int], None]
"""Told how many rollouts have just been finished."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Player:
    """An engine with the chat format of its model, and a name to sign rollouts with."""

    engine: Engine
    chat: ChatFormat
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A problem to be answered: its index in the step, and which answers are wanted."""

    index: int
    problem: Problem
    sampling: Sampling
    numbers: range


def collect(
    player: Player,
    grader: Grader,
    problems: Sequence[Problem],
    sampling: Sampling,
    *,
    samples: int,
    seed: int,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> list[Group]:
    """Sample `samples` answers to each problem, all in one way."""
    numbers = range(samples)
    asks = [
        Ask(index=i, problem=p, sampling=sampling, numbers=numbers) for i, p in enumerate(problems)
    ]
    return play(player, grader, asks, seed=seed, progress=progress, clock=clock)


def play(
    player: Player,
    grader: Grader,
    asks: Sequence[Ask],
    *,
    seed: int,
    progress: Progress | None = None,
    clock: Clock | None = None,
) -> list[Group]:
    """Sample what is asked for; each answer is graded while others are still being sampled.

    An answer depends on the seed, its problem, place and number, and the weights only: not on the
    order in which answers finish, nor on what else is asked for. A clock counts what the engine
    did, and as grading the seconds from its last answer to the last score.
    """
    clock = clock or Clock()
    prompts = {ask.index: player.chat.prompt(ask.problem.prompt) for ask in asks}

    asked: dict[str, Ask] = {}
    done: dict[str, Rollout] = {}

    def requests() -> Iterator[Request]:
        for ask in asks:
            for number in ask.numbers:
                id = f"{ask.index}/{number}"
                asked[id] = ask
                key = derive(seed, ask.problem.id, ask.index, number)
                yield Request(id=id, prompt=prompts[ask.index], sampling=ask.sampling, seed=key)

    def answers() -> Iterator[tuple[str, Problem, str]]:
        for id, completion in player.engine.generate(requests()):
            ask = asked[id]
            done[id] = _rollout(player, ask, prompts[ask.index], id, completion)
            yield id, ask.problem, done[id].text
        counts = player.engine.counts
        useful = counts.tokens - counts.begun
        clock.count_sampling(tokens=counts.tokens, row_steps=counts.row_steps, useful=useful)
        grading.enter_context(clock.measure("grade"))

    with clock.measure("sample"), ExitStack() as grading:
        for id, score in grader.grade(answers()):
            done[id] = replace(done[id], score=score)
            if progress is not None:
                progress(1)
    return [tuple(done[f"{ask.index}/{number}"] for number in ask.numbers) for ask in asks]


def _rollout(player: Player, ask: Ask, prompt: Tokens, id: str, completion: Completion) -> Rollout:
    return Rollout(
        id=f"{ask.problem.id}:{id}",
        group=f"{ask.problem.id}:{ask.index}",
        problem=ask.problem,
        role=Role.SOLVER,
        model=player.name,
        prompt_tokens=prompt,
        completion=completion,
        text=player.chat.message(completion.tokens),
    )


def siblings(rollouts: Iterable[Rollout]) -> list[Group]:
    """Put rollouts that were stored one by one into their groups again, in order."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return [tuple(group) for group in groups.values()]
