"""Rollouts: problems in, scored groups out, in the order of the problems."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from zlib import crc32

from whet.engine.base import Engine, Request, Sampling
from whet.grading.grader import Grader
from whet.rng import derive
from whet.text.chat import ChatFormat
from whet.track.metrics import Clock
from whet.track.progress import bar
from whet.types import Completion, Group, Problem, Role, Rollout
from whet.world import get_world


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
    order in which answers finish, nor on the other requests or the rank that samples it. `progress`
    is called with the number of rollouts just graded. A clock adds up the engine's work, and counts
    as grading the seconds from its last answer to the last score.
    """
    clock = clock or Clock()
    world = get_world()
    own = world.share(list(requests))
    sampler = _Sampler(chat_engine, own)
    rollout_by_id: dict[str, Rollout] = {}
    at = f"answers to {len(requests)} problems (checksum {_checksum(requests):08x}), seed {seed}"
    with clock.measure("sample"):
        with ExitStack() as after_sampling:
            for id, score in grader.grade(sampler.sample(seed, clock, after_sampling)):
                rollout_by_id[id] = replace(sampler.rollout_by_id[id], score=score)
                if progress is not None:
                    progress(world.size)
        groups = [
            tuple(rollout_by_id[_id(request, number)] for number in request.numbers)
            for request in own
        ]
        for counts in world.exchange(chat_engine.engine.counts, at):
            useful = counts.tokens - counts.first_tokens
            clock.count_sampling(tokens=counts.tokens, row_steps=counts.row_steps, useful=useful)
        return world.join(groups, at)


class _Sampler:
    """The rollouts of some requests as the engine ends them, not yet graded."""

    def __init__(self, chat_engine: ChatEngine, requests: Sequence[GroupRequest]) -> None:
        self.chat_engine = chat_engine
        self.requests = requests
        self.prompts = {
            request.index: chat_engine.chat.prompt(request.problem.prompt) for request in requests
        }
        self.rollout_by_id: dict[str, Rollout] = {}

    def sample(
        self, seed: int, clock: Clock, after_sampling: ExitStack
    ) -> Iterator[tuple[str, Problem, str]]:
        """Yield answers to grade; once the engine is done, time counts as grading."""
        request_by_id = {
            _id(request, number): request for request in self.requests for number in request.numbers
        }
        engine = self.chat_engine.engine
        for id, completion in engine.generate(self._engine_requests(seed)):
            rollout = self._rollout(request_by_id[id], id, completion)
            self.rollout_by_id[id] = rollout
            yield id, rollout.problem, rollout.text
        after_sampling.enter_context(clock.measure("grade"))

    def _engine_requests(self, seed: int) -> Iterator[Request]:
        for request in self.requests:
            for number in request.numbers:
                yield Request(
                    id=_id(request, number),
                    prompt=self.prompts[request.index],
                    sampling=request.sampling,
                    seed=derive(seed, request.problem.id, request.index, number),
                )

    def _rollout(self, request: GroupRequest, id: str, completion: Completion) -> Rollout:
        return Rollout(
            id=f"{request.problem.id}:{id}",
            group=f"{request.problem.id}:{request.index}",
            problem=request.problem,
            role=Role.SOLVER,
            model=self.chat_engine.name,
            prompt_tokens=self.prompts[request.index],
            completion=completion,
            text=self.chat_engine.chat.message(completion.tokens),
        )


def _checksum(requests: Sequence[GroupRequest]) -> int:
    """Tell whether ranks were asked for the same answers."""
    wanted = [(r.index, r.problem.id, r.problem.prompt, r.sampling, r.numbers) for r in requests]
    return crc32(repr(wanted).encode(errors="replace"))


def _id(request: GroupRequest, number: int) -> str:
    return f"{request.index}/{number}"


def siblings(rollouts: Iterable[Rollout]) -> list[Group]:
    """Put stored rollouts back into their groups, in order."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group, []).append(rollout)
    return [tuple(group) for group in groups.values()]
