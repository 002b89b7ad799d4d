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
class ChatEngine:
    """An engine with the chat format of its model, and a name to sign rollouts with."""

    engine: Engine
    chat: ChatFormat
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """A problem to be answered: its index in the step, and which answers are wanted."""

    index: int
    problem: Problem
    sampling: Sampling
    numbers: range


def collect(
    chat_engine: ChatEngine,
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
    requests = [
        GroupRequest(index=i, problem=p, sampling=sampling, numbers=numbers)
        for i, p in enumerate(problems)
    ]
    return collect_groups(chat_engine, grader, requests, seed=seed, progress=progress, clock=clock)


def collect_groups(
    chat_engine: ChatEngine,
    grader: Grader,
    requests: Sequence[GroupRequest],
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
    prompts = {
        request.index: chat_engine.chat.prompt(request.problem.prompt) for request in requests
    }

    asked: dict[str, GroupRequest] = {}
    done: dict[str, Rollout] = {}

    def engine_requests() -> Iterator[Request]:
        for request in requests:
            for number in request.numbers:
                id = f"{request.index}/{number}"
                asked[id] = request
                key = derive(seed, request.problem.id, request.index, number)
                yield Request(
                    id=id, prompt=prompts[request.index], sampling=request.sampling, seed=key
                )

    def answers() -> Iterator[tuple[str, Problem, str]]:
        for id, completion in chat_engine.engine.generate(engine_requests()):
            request = asked[id]
            done[id] = _rollout(chat_engine, request, prompts[request.index], id, completion)
            yield id, request.problem, done[id].text
        counts = chat_engine.engine.counts
        useful = counts.tokens - counts.begun
        clock.count_sampling(tokens=counts.tokens, row_steps=counts.row_steps, useful=useful)
        grading.enter_context(clock.measure("grade"))

    with clock.measure("sample"), ExitStack() as grading:
        for id, score in grader.grade(answers()):
            done[id] = replace(done[id], score=score)
            if progress is not None:
                progress(1)
    return [
        tuple(done[f"{request.index}/{number}"] for number in request.numbers)
        for request in requests
    ]


def _rollout(
    chat_engine: ChatEngine, request: GroupRequest, prompt: Tokens, id: str, completion: Completion
) -> Rollout:
    return Rollout(
        id=f"{request.problem.id}:{id}",
        group=f"{request.problem.id}:{request.index}",
        problem=request.problem,
        role=Role.SOLVER,
        model=chat_engine.name,
        prompt_tokens=prompt,
        completion=completion,
        text=chat_engine.chat.message(completion.tokens),
    )


def siblings(rollouts: Iterable[Rollout]) -> list[Group]:
    """Put rollouts that were stored one by one into their groups again, in order."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return [tuple(group) for group in groups.values()]
