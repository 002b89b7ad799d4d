"""An engine plays a task: problems in, scored groups out, in the order of the problems."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from whet.engine.base import Engine, Request, Sampling
from whet.grading.grader import Grader
from whet.rng import derive
from whet.text.chat import ChatFormat
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
    """A problem to be answered: its place among those of a step, and which of its answers are
    wanted."""

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
) -> list[Group]:
    """Sample `samples` answers to each problem, all in one way."""
    numbers = range(samples)
    asks = [
        Ask(index=i, problem=p, sampling=sampling, numbers=numbers) for i, p in enumerate(problems)
    ]
    return play(player, grader, asks, seed=seed, progress=progress)


def play(
    player: Player,
    grader: Grader,
    asks: Sequence[Ask],
    *,
    seed: int,
    progress: Progress | None = None,
) -> list[Group]:
    """Sample what is asked for; each answer is graded while others are still being sampled.

    An answer depends on the seed, its problem, place and number, and the weights only: not on the
    order in which answers finish, nor on what else is asked for.
    """
    by_index = {ask.index: ask for ask in asks}
    prompts = {ask.index: player.chat.prompt(ask.problem.prompt) for ask in asks}

    def requests() -> Iterator[Request]:
        for ask in asks:
            for number in ask.numbers:
                key = derive(seed, ask.problem.id, ask.index, number)
                prompt = prompts[ask.index]
                yield Request(
                    id=f"{ask.index}/{number}", prompt=prompt, sampling=ask.sampling, seed=key
                )

    done: dict[str, Rollout] = {}

    def answers() -> Iterator[tuple[str, Problem, str]]:
        for id, completion in player.engine.generate(requests()):
            index = int(id.split("/")[0])
            problem = by_index[index].problem
            done[id] = _rollout(player, problem, prompts[index], id, completion)
            yield id, problem, done[id].text

    for id, score in grader.grade(answers()):
        done[id] = replace(done[id], score=score)
        if progress is not None:
            progress(1)
    return [tuple(done[f"{ask.index}/{number}"] for number in ask.numbers) for ask in asks]


def _rollout(
    player: Player, problem: Problem, prompt: Tokens, id: str, completion: Completion
) -> Rollout:
    return Rollout(
        id=f"{problem.id}:{id}",
        group=f"{problem.id}:{id.split('/')[0]}",
        problem=problem,
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
