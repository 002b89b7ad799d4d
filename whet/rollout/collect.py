"""Rollouts: problems in, scored groups out, in the order of the problems; and which of them a
training step uses: which problems get more responses or are replaced, and batches sampled ahead.

Where engine and learner share their weights they take turns, so a lag is a queue; `OverlappedQueue`
in `whet/rollout/overlap.py` and `StreamQueue` in `whet/rollout/stream.py` are for engines with
their own weights.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from zlib import crc32

from pydantic import Field

from whet.config import Config
from whet.engine.base import Engine, Request, SamplingParams
from whet.errors import DataError
from whet.grading.grader import Grader
from whet.rng import derive
from whet.store.rollouts import read_rollouts, write_rollouts
from whet.text.chat import ChatFormat
from whet.track.metrics import Clock
from whet.track.progress import progress_bar
from whet.types import (
    Author,
    Completion,
    FinishReason,
    Group,
    Json,
    Problem,
    Rollout,
    Tokens,
    all_equal,
    rewards_of,
)
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
    """A problem to be answered: its index in the step, and which answers are wanted."""

    index: int
    problem: Problem
    sampling: SamplingParams
    sample_ids: range


def collect(
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
    """Sample `samples` responses to each problem, with a progress bar where it has a label."""
    requests = [
        GroupRequest(index=i, problem=p, sampling=sampling, sample_ids=range(samples))
        for i, p in enumerate(problems)
    ]
    if label is None:
        return collect_groups(chat_engine, grader, requests, seed=seed, clock=clock)
    with progress_bar(label, len(problems) * samples) as advance:
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
    """Sample the requested responses; each is graded while others are still being sampled.

    A response depends only on the seed, its problem, index and sample, and the weights: not on the
    order in which answers finish, nor on the other requests or the rank that samples it. `progress`
    is called with the number of rollouts just graded. A clock adds up the engine's work, and counts
    as grading the seconds from its last response to the last score.
    """
    clock = clock or Clock()
    world = get_world()
    sampler = _Sampler(chat_engine, _own_requests(requests, world, chat_engine.is_central))
    rollout_by_id: dict[str, Rollout] = {}
    tag = f"answers to {len(requests)} problems (checksum {_checksum(requests):08x}), seed {seed}"
    with clock.measure("sample"):
        with ExitStack() as after_sampling:
            for id, score in grader.grade(sampler.sample(seed, clock, after_sampling)):
                rollout_by_id[id] = replace(sampler.rollout_by_id[id], score=score)
                if progress is not None:
                    progress(world.size)
        for stats in world.all_gather(chat_engine.engine.stats, tag):
            useful = stats.tokens - stats.first_tokens
            clock.count_sampling(tokens=stats.tokens, row_steps=stats.row_steps, useful=useful)
        for part in world.all_gather(rollout_by_id, tag):
            rollout_by_id |= part
        return [
            tuple(rollout_by_id[_id(request, sample_id)] for sample_id in request.sample_ids)
            for request in requests
        ]


def _own_requests(
    requests: Sequence[GroupRequest], world: World, is_central: bool
) -> list[GroupRequest]:
    """Return this rank's requests: ranks have equally many samples, and a group that lies on a
    border is cut. Others stay whole, since an engine computes their prompt once."""
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
    """The rollouts of some requests as the engine ends them, not yet graded."""

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
            _id(request, sample_id): request
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
            id=_id(request, sample_id),
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
    """Tell whether ranks were asked for the same responses."""
    wanted = [(r.index, r.problem.id, r.problem.prompt, r.sampling, r.sample_ids) for r in requests]
    return crc32(repr(wanted).encode(errors="replace"))


def _id(request: GroupRequest, sample_id: int) -> str:
    return f"{request.index}/{sample_id}"


def group_rollouts(rollouts: Iterable[Rollout]) -> list[Group]:
    """Put stored rollouts back into their groups, in order."""
    groups: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        groups.setdefault(rollout.group_id, []).append(rollout)
    return [tuple(group) for group in groups.values()]


class DynamicSamplingConfig(Config):
    """Which responses a step samples, and which of them it trains on."""

    max_extra_problems: int | None = Field(default=None, ge=0)
    """Dynamic sampling (DAPO): groups of equal reward are left out, and up to this many more
    problems per step are sampled in their place; none keeps them."""
    first_samples: int | None = Field(default=None, ge=2)
    """Responses to sample first; the others of a group follow only where the first differ in
    reward, or one of them could not be graded; none samples all at once."""
    mask_unfinished: bool = False
    """Leave responses cut at the length limit out of the loss; their rewards still count for their
    siblings."""

    def num_problems_needed(self, groups: Sequence[Group], problems: int) -> int:
        """Return how many problems a step of `problems` asks next, after `groups`.

        First it asks all, then others in place of groups of equal reward, within the budget.
        """
        if not groups:
            return problems
        missing = problems - len(self.choose_groups(groups))
        budget = problems + (self.max_extra_problems or 0) - len(groups)
        return max(0, min(missing, budget))

    def first_requests(self, requests: Sequence[GroupRequest]) -> list[GroupRequest]:
        """Return the requests for the responses to sample first."""
        return [
            replace(request, sample_ids=request.sample_ids[: self.first_samples])
            for request in requests
        ]

    def later_requests(
        self, requests: Sequence[GroupRequest], groups: Sequence[Group]
    ) -> list[GroupRequest]:
        """Return the requests for the others of a group, where its first answers call for them."""
        if self.first_samples is None:
            return []
        return [
            replace(request, sample_ids=request.sample_ids[self.first_samples :])
            for request, group in zip(requests, groups, strict=True)
            if not all_equal(rewards_of(group)) or len(rewards_of(group)) < len(group)
        ]

    def choose_groups(self, groups: Sequence[Group]) -> list[Group]:
        """Choose the groups to train on."""
        if self.max_extra_problems is None:
            return list(groups)
        return [group for group in groups if not all_equal(rewards_of(group))]

    def masked_ids(self, groups: Sequence[Group]) -> set[str]:
        """Return the ids of rollouts without their own loss."""
        rollouts = [rollout for group in groups for rollout in group]
        return {
            r.id
            for r in rollouts
            if self.mask_unfinished and r.completion.finish_reason is FinishReason.LENGTH
        }

    def first_answers(self, groups: Sequence[Group]) -> list[Group]:
        """Cut all groups to the first responses, so that groups of both phases do not bias
        metrics."""
        return [group[: self.first_samples] for group in groups]

    def metrics(
        self, groups: Sequence[Group], step: int, *, problems: int, samples: int
    ) -> dict[str, float]:
        """Count the effects of the active settings on a step."""
        trained = self.choose_groups(groups)
        metrics = {
            "sampling/lag": fmean(
                step - rollout.completion.policy_version for group in groups for rollout in group
            )
        }
        if self.max_extra_problems is not None:
            metrics |= {
                "groups/extra": float(len(groups) - problems),
                "groups/trained": float(len(trained)),
            }
        if self.first_samples is not None:
            metrics["groups/stopped"] = fmean(len(group) < samples for group in groups)
        if self.mask_unfinished:
            metrics["length/masked"] = float(len(self.masked_ids(trained)))
        return metrics


def join_groups(groups: Sequence[Group], later: Sequence[Group]) -> list[Group]:
    """Add later responses to their groups; sampling in two phases gives the same group as in
    one."""
    by_name = {group[0].group_id: group for group in later}
    return [group + by_name.get(group[0].group_id, ()) for group in groups]


Sample = Callable[[int], list[Group]]
"""Step -> its groups, sampled with the current weights."""


class RolloutQueue:
    """Batches of rollouts, each sampled `lag` steps early; checkpoints hold the queue."""

    def __init__(self, sample: Sample, *, steps: int, lag: int) -> None:
        self.sample = sample
        self.steps = steps
        self.lag = lag
        self._waiting: deque[list[Group]] = deque()

    def take(self, step: int) -> list[Group]:
        """Return the batch of a step, after sampling those up to `lag` steps ahead."""
        while len(self._waiting) <= self.lag and step + len(self._waiting) < self.steps:
            self._waiting.append(self.sample(step + len(self._waiting)))
        return self._waiting.popleft()

    def join(self) -> None:
        """Wait until sampling has ended, so that weights may change; here it always has."""

    def metrics(self) -> dict[str, float]:
        """Measure what was sampled in the background since the last call."""
        return {}

    def drop(self) -> None:
        """Empty the queue, once the weights that sampled it have been replaced."""
        self._waiting.clear()

    def save(self, folder: Path) -> Json:
        for index, groups in enumerate(self._waiting if get_world().is_rank_zero else ()):
            write_rollouts(waiting_file(folder, index), groups)
        return len(self._waiting)

    def load(self, folder: Path, state: Json) -> None:
        if not isinstance(state, int):
            raise DataError(
                f"checkpoint {folder} does not record how many batches wait: start the run again"
            )
        self._waiting = deque(
            group_rollouts(read_rollouts(waiting_file(folder, index))) for index in range(state)
        )


def waiting_file(folder: Path, index: int) -> Path:
    """Name the file of a checkpoint that holds sampled groups which no step has trained."""
    return folder / f"waiting-{index:03d}.parquet"
