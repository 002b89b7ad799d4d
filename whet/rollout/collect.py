"""Rollouts: problems in, scored groups out, in the order of the problems."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from whet.engine.base import Engine, Request, Sampling
from whet.grading.grader import Grader
from whet.rng import derive
from whet.text.chat import ChatFormat
from whet.track.metrics import Clock
from whet.track.progress import bar
from whet.types import Completion, Group, Problem, Role, Rollout, Tokens


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
    clock: Clock | None = None,
    label: str | None = None,
) -> list[Group]:
    """Sample `samples` answers to each problem, with a progress bar where it has a label."""
    numbers = range(samples)
    requests = [
        GroupRequest(index=i, problem=p, sampling=sampling, numbers=numbers)
        for i, p in enumerate(problems)
    ]
    if label is None:
        return collect_groups(chat_engine, grader, requests, seed=seed, clock=clock)
    with bar(label, len(problems) * samples) as advance:
        return collect_groups(
            chat_engine, grader, requests, seed=seed, progress=advance, clock=clock
        )


def collect_groups(
    chat_engine: ChatEngine,
    grader: Grader,
    requests: Sequence[GroupRequest],
    *,
    seed: int,
    progress: Callable[[int], None] | None = None,
    clock: Clock | None = None,
) -> list[Group]:
    """Sample the requested answers; each is graded while others are still being sampled.

    An answer depends only on the seed, its problem, index and number, and the weights: not on the
    order in which answers finish, nor on the other requests. `progress` is called with the number
    of rollouts just graded. A clock counts what the engine did, and as grading the seconds from
    its last answer to the last score.
    """
    clock = clock or Clock()
    prompts = {
        request.index: chat_engine.chat.prompt(request.problem.prompt) for request in requests
    }

    request_by_id: dict[str, GroupRequest] = {}
    rollout_by_id: dict[str, Rollout] = {}

    def engine_requests() -> Iterator[Request]:
        for request in requests:
            for number in request.numbers:
                id = f"{request.index}/{number}"
                request_by_id[id] = request
                key = derive(seed, request.problem.id, request.index, number)
                yield Request(
                    id=id, prompt=prompts[request.index], sampling=request.sampling, seed=key
                )

    def answers() -> Iterator[tuple[str, Problem, str]]:
        for id, completion in chat_engine.engine.generate(engine_requests()):
            request = request_by_id[id]
            rollout_by_id[id] = _rollout(
                chat_engine, request, prompts[request.index], id, completion
            )
            yield id, request.problem, rollout_by_id[id].text
        counts = chat_engine.engine.counts
        useful = counts.tokens - counts.begun
        clock.count_sampling(tokens=counts.tokens, row_steps=counts.row_steps, useful=useful)
        grading.enter_context(clock.measure("grade"))

    with clock.measure("sample"), ExitStack() as grading:
        for id, score in grader.grade(answers()):
            rollout_by_id[id] = replace(rollout_by_id[id], score=score)
            if progress is not None:
                progress(1)
    return [
        tuple(rollout_by_id[f"{request.index}/{number}"] for number in request.numbers)
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
    """Put stored rollouts back into their groups, in order."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return [tuple(group) for group in groups.values()]
