"""Rollouts: problems in, scored groups out, in the order of the problems."""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from zlib import crc32

from whet.engine.base import Engine, Request, SamplingParams
from whet.grading.grader import Grader
from whet.rng import derive
from whet.text.chat import ChatFormat
from whet.track.metrics import Clock
from whet.track.progress import progress_bar
from whet.types import Advance, Author, Completion, Group, Problem, Rollout, Tokens
from whet.world import World, get_world


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChatEngine:
    """An engine with the chat format of its model, and a name to sign rollouts with."""

    engine: Engine
    chat: ChatFormat
    name: str
    is_central: bool = False
    """Whether the first rank's engine samples for all ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRequest:
    """A problem to answer: its index in the step, and which responses to sample."""

    index: int
    problem: Problem
    sampling: SamplingParams
    sample_ids: range


def sample_and_grade(
    chat_engine: ChatEngine,
    grader: Grader,
    problems: Sequence[Problem],
    sampling: SamplingParams,
    *,
    samples: int,
    seed: int,
    clock: Clock | None = None,
    label: str | None = None,
) -> list[Group]:
    """Sample `samples` responses to each problem, with a progress bar if there is a `label`."""
    requests = [
        GroupRequest(index=i, problem=p, sampling=sampling, sample_ids=range(samples))
        for i, p in enumerate(problems)
    ]
    if label is None:
        return collect_groups(chat_engine, grader, requests, seed=seed, clock=clock)
    with progress_bar(label, len(problems) * samples) as advance:
        return collect_groups(
            chat_engine, grader, requests, seed=seed, advance=advance, clock=clock
        )


def collect_groups(
    chat_engine: ChatEngine,
    grader: Grader,
    requests: Sequence[GroupRequest],
    *,
    seed: int,
    advance: Advance | None = None,
    clock: Clock | None = None,
) -> list[Group]:
    """Sample the requested responses, and grade each while others are still being sampled.

    A response depends only on the seed, its problem, index and sample, and the weights: not on the
    order in which responses finish, the other requests, or the rank that samples it. Each graded
    rollout calls `advance` with the number of ranks that sample. A clock adds up the engine's work;
    the seconds from its last response to the last score count as grading.
    """
    clock = clock or Clock()
    world = get_world()
    sampler = _Sampler(chat_engine, requests_of_rank(requests, world, chat_engine.is_central))
    num_sampling_ranks = 1 if chat_engine.is_central else world.size
    rollout_by_id: dict[str, Rollout] = {}
    tag = f"responses to {len(requests)} problems (checksum {_checksum(requests):08x}), seed {seed}"
    with clock.measure("sample"):
        with ExitStack() as after_sampling:
            for id, score in grader.grade(sampler.sample(seed, clock, after_sampling)):
                rollout_by_id[id] = replace(sampler.rollout_by_id[id], score=score)
                if advance is not None:
                    advance(num_sampling_ranks)
        for stats in world.all_gather(chat_engine.engine.stats, tag):
            useful = stats.tokens - stats.first_tokens
            clock.count_sampling(tokens=stats.tokens, row_steps=stats.row_steps, useful=useful)
        for part in world.all_gather(rollout_by_id, tag):
            rollout_by_id |= part
        return [
            tuple(
                rollout_by_id[_request_id(request, sample_id)] for sample_id in request.sample_ids
            )
            for request in requests
        ]


def requests_of_rank(
    requests: Sequence[GroupRequest], world: World, is_central: bool
) -> list[GroupRequest]:
    """Return this rank's requests: ranks get equally many samples. Only a group on a border is cut,
    since an engine prefills the prompt of a whole group once."""
    if is_central:
        return list(requests) if world.is_rank_zero else []
    total = sum(len(request.sample_ids) for request in requests)
    start, stop = (total * rank // world.size for rank in (world.rank, world.rank + 1))
    own = []
    first = 0
    for request in requests:
        ids = request.sample_ids[max(start - first, 0) : max(stop - first, 0)]
        if ids:
            own.append(replace(request, sample_ids=ids))
        first += len(request.sample_ids)
    return own


class _Sampler:
    """Samples the rollouts of some requests, not yet graded."""

    def __init__(self, chat_engine: ChatEngine, requests: Sequence[GroupRequest]) -> None:
        self.chat_engine = chat_engine
        self.requests = requests
        self.prompts = {
            request.index: chat_engine.chat.encode_problem(request.problem) for request in requests
        }
        self.rollout_by_id: dict[str, Rollout] = {}

    def sample(
        self, seed: int, clock: Clock, after_sampling: ExitStack
    ) -> Iterator[tuple[str, Problem, str]]:
        """Yield responses to grade; once the engine is done, time counts as grading."""
        request_by_id = {
            _request_id(request, sample_id): request
            for request in self.requests
            for sample_id in request.sample_ids
        }
        engine = self.chat_engine.engine
        for id, completion in engine.generate(self._engine_requests(seed)):
            request = request_by_id[id]
            prompt = self.prompts[request.index]
            rollout = make_rollout(self.chat_engine, request, prompt, id, completion)
            self.rollout_by_id[id] = rollout
            yield id, rollout.problem, rollout.text
        after_sampling.enter_context(clock.measure("grade"))

    def _engine_requests(self, seed: int) -> Iterator[Request]:
        for request in self.requests:
            yield from engine_requests(request, self.prompts[request.index], seed)


def engine_requests(request: GroupRequest, prompt: Tokens, seed: int) -> Iterator[Request]:
    """Make the engine's requests for a group, each with its own seed."""
    for sample_id in request.sample_ids:
        yield Request(
            id=_request_id(request, sample_id),
            prompt=prompt,
            sampling=request.sampling,
            seed=derive(seed, request.problem.id, request.index, sample_id),
        )


def make_rollout(
    chat_engine: ChatEngine, request: GroupRequest, prompt: Tokens, id: str, completion: Completion
) -> Rollout:
    """Make a rollout of a completion, not yet graded."""
    return Rollout(
        id=f"{request.problem.id}:{id}",
        group_id=f"{request.problem.id}:{request.index}",
        problem=request.problem,
        author=Author.SOLVER,
        model=chat_engine.name,
        prompt_tokens=prompt,
        completion=completion,
        text=chat_engine.chat.decode_message(completion.tokens),
    )


def _checksum(requests: Sequence[GroupRequest]) -> int:
    """Hash the requests, to compare them between ranks."""
    wanted = [(r.index, r.problem.id, r.problem.prompt, r.sampling, r.sample_ids) for r in requests]
    return crc32(repr(wanted).encode(errors="replace"))


def _request_id(request: GroupRequest, sample_id: int) -> str:
    return f"{request.index}/{sample_id}"


def group_rollouts(rollouts: Iterable[Rollout]) -> list[Group]:
    """Put stored rollouts back into their groups, in order."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group_id, []).append(rollout)
    return [tuple(group) for group in groups.values()]
