"""Groups of a step: asked in two phases, refilled within a budget, masked; with the divisors that
follow."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from whet.algos.losses import sequence_mean
from whet.engine.base import SamplingParams
from whet.grading.grader import Grader
from whet.proofs.fixtures import ScriptedEngine
from whet.rewards.spec import RewardSpec
from whet.rollout.collect import ChatEngine, GroupRequest, collect_groups, sample_and_grade
from whet.rollout.step_groups import DynamicSamplingConfig, join_groups
from whet.testing.fakes import SumTask, group, rollout, sum_problem
from whet.testing.tiny import tiny_tokenizer
from whet.text.chat import ChatFormat
from whet.types import FinishReason, Group, all_equal, rewards_of

CHAT = ChatFormat(tiny_tokenizer())


class Script:
    """Answers whose rewards are written down: the n-th problem asked gets the n-th row."""

    def __init__(self, *rows: Sequence[float | None]) -> None:
        self.rows = rows
        self.asked: list[tuple[int, range]] = []

    def new(self, first: int, count: int) -> list[GroupRequest]:
        places = range(first, first + count)
        size = len(self.rows[0])
        return [
            GroupRequest(
                index=i,
                problem=sum_problem(i, 1),
                sampling=SamplingParams(),
                sample_ids=range(size),
            )
            for i in places
        ]

    def answer(self, requests: Sequence[GroupRequest]) -> list[Group]:
        self.asked += [(request.index, request.sample_ids) for request in requests]
        return [
            tuple(
                replace(
                    rollout(
                        problem=request.problem,
                        reward=self.rows[request.index][number],
                        number=number,
                    ),
                    id=f"{request.index}/{number}",
                )
                for number in request.sample_ids
            )
            for request in requests
        ]


def collect(script: Script, cfg: DynamicSamplingConfig, problems: int) -> list[Group]:
    """Ask as the recipe does."""
    groups: list[Group] = []
    while count := cfg.num_problems_needed(groups, problems):
        requests = script.new(len(groups), count)
        first = script.answer(cfg.first_requests(requests))
        groups += join_groups(first, script.answer(cfg.later_requests(requests, first)))
    return groups


def rewards(groups: Sequence[Group]) -> list[list[float | None]]:
    return [[rollout.reward for rollout in group] for group in groups]


def test_without_refill_equal_groups_stay_and_are_trained_on() -> None:
    script, cfg = Script([1, 1], [1, 0]), DynamicSamplingConfig()
    groups = collect(script, cfg, 2)

    assert rewards(cfg.choose_groups(groups)) == [[1, 1], [1, 0]]
    assert cfg.metrics(groups, 0, problems=2, samples=2) == {"sampling/lag": 0.0}


def test_more_groups_missing_than_the_budget_has_ask_for_the_budget() -> None:
    script = Script([1, 1], [0, 0], [1, 1], [1, 0], [0, 1])
    groups = collect(script, DynamicSamplingConfig(max_extra_problems=1), 3)

    assert [index for index, _ in script.asked] == [0, 1, 2, 3]
    assert len(groups) == 4


def test_groups_of_equal_reward_are_replaced_until_there_are_enough() -> None:
    script, cfg = (
        Script([1, 1], [1, 0], [0, 0], [0, 1], [1, 0]),
        DynamicSamplingConfig(max_extra_problems=9),
    )
    groups = collect(script, cfg, 2)

    assert [index for index, _ in script.asked] == [0, 1, 2, 3]
    assert rewards(cfg.choose_groups(groups)) == [[1, 0], [0, 1]]
    assert cfg.metrics(groups, 0, problems=2, samples=2) == {
        "sampling/lag": 0.0,
        "groups/extra": 2.0,
        "groups/trained": 2.0,
    }


def test_a_spent_budget_goes_on_with_fewer_groups_which_alone_are_the_divisor() -> None:
    script, cfg = (
        Script([1, 1], [0, 0], [0, 0], [0, 1], [1, 0]),
        DynamicSamplingConfig(max_extra_problems=2),
    )
    trained = cfg.choose_groups(collect(script, cfg, 2))

    assert [index for index, _ in script.asked] == [0, 1, 2, 3]
    assert rewards(trained) == [[0, 1]]
    # Two answers of three tokens: each token weighs 1 / (2 * 3), as if nothing else had been asked.
    assert sequence_mean([len(r.completion.tokens) for group in trained for r in group]) == [
        1 / 6,
        1 / 6,
    ]


def test_a_budget_of_zero_only_leaves_equal_groups_out() -> None:
    script, cfg = Script([1, 1], [1, 0]), DynamicSamplingConfig(max_extra_problems=0)

    assert rewards(cfg.choose_groups(collect(script, cfg, 2))) == [[1, 0]]


def test_the_rest_of_a_group_is_sampled_only_where_the_first_differ_or_one_was_not_graded() -> None:
    script = Script([1, 1, 0, 0], [1, 0, 1, 1], [0, 0, 0, 1], [0, None, 0, 1])
    cfg = DynamicSamplingConfig(first_samples=2)
    groups = collect(script, cfg, 4)

    assert rewards(groups) == [[1, 1], [1, 0, 1, 1], [0, 0], [0, None, 0, 1]]
    assert script.asked[4:] == [(1, range(2, 4)), (3, range(2, 4))]
    assert rewards(cfg.first_responses(groups)) == [[1, 1], [1, 0], [0, 0], [0, None]]
    assert cfg.metrics(groups, 3, problems=4, samples=4) == {
        "sampling/lag": 3.0,
        "groups/stopped": 0.5,
    }


def test_both_phases_of_every_round_are_refilled() -> None:
    script, cfg = (
        Script([1, 1, 0], [1, 0, 1], [0, 0, 0]),
        DynamicSamplingConfig(first_samples=2, max_extra_problems=2),
    )

    assert rewards(collect(script, cfg, 1)) == [[1, 1], [1, 0, 1]]


def test_a_group_in_two_phases_is_the_group_of_one() -> None:
    """Same seeds, same answers; the statistics are those of all answers together."""

    def say(request: object) -> np.ndarray:
        return CHAT.tokenizer.encode(str(request.seed % 4))  # type: ignore[attr-defined]

    chat_engine, grader = (
        ChatEngine(engine=ScriptedEngine(say), chat=CHAT, name="script"),
        Grader(SumTask()),
    )
    problems = [sum_problem(1, n % 3) for n in range(12)]
    reward = RewardSpec()
    whole = reward.apply(
        sample_and_grade(chat_engine, grader, problems, SamplingParams(), samples=4, seed=7)
    )

    def answer(requests: list[GroupRequest]) -> list[Group]:
        return reward.apply(collect_groups(chat_engine, grader, requests, seed=7))

    requests = [
        GroupRequest(index=i, problem=problem, sampling=SamplingParams(), sample_ids=range(4))
        for i, problem in enumerate(problems)
    ]
    cfg = DynamicSamplingConfig(first_samples=2)
    first = answer(cfg.first_requests(requests))
    groups = join_groups(first, answer(cfg.later_requests(requests, first)))
    completed = [(one, other) for one, other in zip(groups, whole, strict=True) if len(one) == 4]
    assert 0 < len(completed) < 12
    for one, other in completed:
        assert [(r.id, r.group_id, r.text, r.reward) for r in one] == [
            (r.id, r.group_id, r.text, r.reward) for r in other
        ]


def test_unfinished_responses_are_masked_where_asked_for() -> None:
    siblings = (
        replace(rollout(reward=1.0, number=0), id="a"),
        replace(rollout(reward=0.0, number=1, finish=FinishReason.LENGTH), id="b"),
    )
    assert DynamicSamplingConfig(mask_unfinished=True).masked_ids([siblings]) == {"b"}
    assert DynamicSamplingConfig().masked_ids([siblings]) == set()
    assert (
        DynamicSamplingConfig(mask_unfinished=True).metrics([siblings], 0, problems=1, samples=2)[
            "length/masked"
        ]
        == 1.0
    )


@pytest.mark.parametrize(
    ("rewards", "equal"),
    [([1, 1], True), ([1, 0], False), ([1, None], True), ([None, None], True), ([], True)],
)
def test_equal_is_a_group_without_a_better_answer(rewards: list[float | None], equal: bool) -> None:
    assert all_equal(rewards_of(group(rewards))) is equal
