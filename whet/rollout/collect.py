"""An engine plays a task: problems in, scored groups out, in the order of the problems."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from whet.engine.base import Engine, Request, Sampling
from whet.rng import derive
from whet.tasks.pool import Grader
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
    """Sample `samples` answers to each problem; each is graded while others are still being sampled.

    The result depends on the seed and the weights only, not on the order in which answers finish.
    """
    prompts = [player.chat.prompt(problem.prompt) for problem in problems]

    def requests() -> Iterator[Request]:
        for index, prompt in enumerate(prompts):
            for number in range(samples):
                key = derive(seed, problems[index].id, index, number)
                yield Request(id=f"{index}/{number}", prompt=prompt, sampling=sampling, seed=key)

    done: dict[str, Rollout] = {}

    def answers() -> Iterator[tuple[str, Problem, str]]:
        for id, completion in player.engine.generate(requests()):
            index = int(id.split("/")[0])
            done[id] = _rollout(player, problems[index], prompts[index], id, completion)
            yield id, problems[index], done[id].text

    for id, score in grader.grade(answers()):
        done[id] = replace(done[id], score=score)
        if progress is not None:
            progress(1)
    return [tuple(done[f"{index}/{number}"] for number in range(samples)) for index in range(len(problems))]


def _rollout(player: Player, problem: Problem, prompt: Tokens, id: str, completion: Completion) -> Rollout:
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
