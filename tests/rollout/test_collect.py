"""An engine plays a task: groups in the order of the problems, scored, whatever finishes first."""

from collections.abc import Hashable, Iterable, Iterator
from typing import TypeVar

import numpy as np
import pytest

from whet.engine.base import Request, SamplingParams
from whet.grading.grader import Grader
from whet.proofs.fixtures import ScriptedEngine
from whet.rollout.collect import (
    ChatEngine,
    GroupRequest,
    collect_groups,
    requests_of_rank,
    sample_and_grade,
)
from whet.testing.fakes import SumTask, sum_problem
from whet.testing.tiny import tiny_policy, tiny_tokenizer
from whet.text.chat import ChatFormat
from whet.track.metrics import Clock
from whet.types import Author, Completion, Group, Problem, Score, Tokens, Verdict
from whet.world import T, World, world_of_thread

K = TypeVar("K", bound=Hashable)

PROBLEMS = [sum_problem(1, 2), sum_problem(20, 22), sum_problem(1, 2)]
CHAT = ChatFormat(tiny_tokenizer())


class LastFirst(ScriptedEngine):
    """Finishes requests in the opposite order."""

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        return iter(list(super().generate(requests))[::-1])


def _say_42(request: Request) -> Tokens:
    return np.append(CHAT.tokenizer.encode("42"), np.int32(min(CHAT.stop_tokens)))


def _say_seed(request: Request) -> Tokens:
    return CHAT.tokenizer.encode(str(request.seed % 100))


def _play(engine: ScriptedEngine, *, samples: int = 2, seed: int = 5) -> list[Group]:
    chat_engine = ChatEngine(engine=engine, chat=CHAT, name="script")
    return sample_and_grade(
        chat_engine,
        Grader(SumTask()),
        PROBLEMS,
        SamplingParams(max_tokens=9),
        samples=samples,
        seed=seed,
    )


def test_every_problem_gets_its_group_of_scored_responses() -> None:
    groups = _play(ScriptedEngine(_say_42), samples=3)

    assert [[rollout.problem for rollout in group] for group in groups] == [
        [problem] * 3 for problem in PROBLEMS
    ]
    for group, verdict in zip(groups, [Verdict.WRONG, Verdict.CORRECT, Verdict.WRONG], strict=True):
        assert [rollout.score.verdict for rollout in group if rollout.score] == [verdict] * 3
        for rollout in group:
            assert (rollout.text, rollout.author, rollout.model, rollout.reward) == (
                "42",
                Author.SOLVER,
                "script",
                None,
            )
            np.testing.assert_array_equal(
                rollout.prompt_tokens, CHAT.encode_prompt(rollout.problem.prompt)
            )


def test_ids_are_unique_and_siblings_share_their_group_even_when_a_problem_comes_twice() -> None:
    groups = _play(ScriptedEngine(_say_42))

    rollouts = [rollout for group in groups for rollout in group]
    assert len({rollout.id for rollout in rollouts}) == 6
    assert [len({rollout.group_id for rollout in group}) for group in groups] == [1, 1, 1]
    assert len({rollout.group_id for rollout in rollouts}) == 3


def test_the_order_of_finishing_changes_nothing() -> None:
    first, last = _play(ScriptedEngine(_say_seed)), _play(LastFirst(_say_seed))

    assert [[r.id for r in group] for group in first] == [[r.id for r in group] for group in last]
    assert [[r.text for r in group] for group in first] == [
        [r.text for r in group] for group in last
    ]


def test_samples_have_their_own_seeds_and_the_seed_decides_them_all() -> None:
    seeds: list[int] = []

    def note(request: Request) -> Tokens:
        seeds.append(request.seed)
        return _say_42(request)

    _play(ScriptedEngine(note), samples=4)
    assert len(set(seeds)) == 12
    once = list(seeds)
    seeds.clear()
    _play(ScriptedEngine(note), samples=4)
    assert seeds == once
    seeds.clear()
    _play(ScriptedEngine(note), samples=4, seed=6)
    assert not set(seeds) & set(once)


def test_a_bar_hears_of_every_rollout() -> None:
    heard: list[int] = []
    chat_engine = ChatEngine(engine=ScriptedEngine(_say_42), chat=CHAT, name="script")

    requests = [
        GroupRequest(index=index, problem=problem, sampling=SamplingParams(), sample_ids=range(2))
        for index, problem in enumerate(PROBLEMS)
    ]

    collect_groups(chat_engine, Grader(SumTask()), requests, seed=0, advance=heard.append)

    assert heard == [1] * 6


class FirstOfTwo(World):
    """The first of two ranks, where the second has no responses."""

    size = 2

    def all_gather(self, part: T, tag: str) -> list[T]:
        return [part]


def test_a_bar_hears_once_of_a_rollout_where_one_rank_samples_for_all() -> None:
    heard: list[int] = []
    chat_engine = ChatEngine(
        engine=ScriptedEngine(_say_42), chat=CHAT, name="script", is_central=True
    )
    request = GroupRequest(
        index=0, problem=PROBLEMS[0], sampling=SamplingParams(), sample_ids=range(3)
    )

    with world_of_thread(FirstOfTwo()):
        collect_groups(chat_engine, Grader(SumTask()), [request], seed=0, advance=heard.append)

    assert heard == [1] * 3


class LateGrader(Grader):
    """Grades when all answers are there, and takes a second for each."""

    def __init__(self, watch: list[float]) -> None:
        super().__init__(SumTask())
        self.watch = watch

    def grade(self, answers: Iterable[tuple[K, Problem, str]]) -> Iterator[tuple[K, Score]]:
        for key, score in super().grade(list(answers)):
            self.watch[0] += 1.0
            yield key, score


def test_a_clock_counts_as_grading_what_is_waited_for_after_the_last_answer() -> None:
    watch = [0.0]
    clock = Clock(now=lambda: watch[0])

    def say_42_slowly(request: Request) -> Tokens:
        watch[0] += 10.0
        return _say_42(request)

    chat_engine = ChatEngine(engine=ScriptedEngine(say_42_slowly), chat=CHAT, name="script")
    sample_and_grade(
        chat_engine, LateGrader(watch), PROBLEMS, SamplingParams(), samples=2, seed=0, clock=clock
    )

    metrics = clock.lap()
    assert (metrics["time/sample"], metrics["time/grade"]) == (60.0, 6.0)


def test_a_clock_counts_the_tokens_and_row_steps_of_the_engine() -> None:
    clock = Clock()
    chat_engine = tiny_policy(slots=2).chat_engine
    sampling = SamplingParams(max_tokens=4)

    groups = sample_and_grade(
        chat_engine, Grader(SumTask()), PROBLEMS, sampling, samples=2, seed=1, clock=clock
    )

    tokens = sum(len(rollout.completion.tokens) for group in groups for rollout in group)
    metrics = clock.lap()
    assert metrics["engine/tokens_per_s"] * metrics["time/sample"] == pytest.approx(tokens)
    assert metrics["engine/slots_busy"] == (tokens - 6) / chat_engine.engine.stats.row_steps


@pytest.mark.parametrize("slots", [1, 4])
def test_the_native_engine_gives_the_same_rollouts_through_any_number_of_slots(slots: int) -> None:
    many, few = (tiny_policy(slots=number).chat_engine for number in (32, slots))
    sampling = SamplingParams(max_tokens=10)

    expected = sample_and_grade(many, Grader(SumTask()), PROBLEMS, sampling, samples=3, seed=1)
    found = sample_and_grade(few, Grader(SumTask()), PROBLEMS, sampling, samples=3, seed=1)

    assert [[r.text for r in group] for group in found] == [
        [r.text for r in group] for group in expected
    ]


class OneOf(World):
    """A rank of several."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size


@pytest.mark.parametrize(("num_groups", "samples", "size"), [(9, 8, 8), (1, 5, 3), (4, 4, 2)])
def test_ranks_sample_equal_shares_that_are_disjoint_and_complete(
    num_groups: int, samples: int, size: int
) -> None:
    requests = [
        GroupRequest(
            index=index,
            problem=PROBLEMS[0],
            sampling=SamplingParams(),
            sample_ids=range(samples),
        )
        for index in range(num_groups)
    ]

    shares = [
        [
            (request.index, sample_id)
            for request in requests_of_rank(requests, OneOf(rank, size), is_central=False)
            for sample_id in request.sample_ids
        ]
        for rank in range(size)
    ]

    every = [(index, sample_id) for index in range(num_groups) for sample_id in range(samples)]
    assert [pair for share in shares for pair in share] == every
    assert max(map(len, shares)) - min(map(len, shares)) <= 1
