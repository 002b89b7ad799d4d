"""Micro-batches: every example once, within the budget, no more grids than needed."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.data.pack import pack
from whet.errors import DataError
from whet.testing.fakes import example


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(2, 40), max_size=30), st.integers(40, 200))
def test_every_example_is_in_one_group_and_every_grid_within_the_budget(lengths: list[int], budget: int) -> None:
    examples = [example(length=length, seed=index) for index, length in enumerate(lengths)]

    groups = pack(examples, budget)

    assert sorted(item.rollout for group in groups for item in group) == sorted(item.rollout for item in examples)
    for group in groups:
        assert group
        assert len(group) * max(len(item.tokens) for item in group) <= budget


def test_like_lengths_lie_together_and_ties_keep_their_order() -> None:
    examples = [example(length=length, seed=index) for index, length in enumerate([3, 9, 3, 8, 3])]

    groups = pack(examples, token_budget=18)

    assert [[item.rollout for item in group] for group in groups] == [["r1", "r3"], ["r0", "r2", "r4"]]


def test_no_examples_make_no_groups() -> None:
    assert pack([], 10) == []


def test_an_example_longer_than_the_budget_is_named() -> None:
    with pytest.raises(DataError, match=r"r7 has 11 tokens, more than train.micro_tokens = 10"):
        pack([example(length=11, seed=7)], 10)


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(2, 40), max_size=30), st.integers(40, 200))
def test_without_padding_tokens_count_and_groups_are_alike(lengths: list[int], budget: int) -> None:
    examples = [example(length=length, seed=index) for index, length in enumerate(lengths)]

    groups = pack(examples, budget, is_padded=False)

    assert sorted(item.rollout for group in groups for item in group) == sorted(item.rollout for item in examples)
    sizes = [sum(len(item.tokens) for item in group) for group in groups]
    assert all(0 < size <= budget for size in sizes)
    assert len(groups) <= 2 * -(-sum(lengths) // budget)
    if sum(lengths) <= budget:
        assert len(groups) <= 1
    elif len(groups) == -(-sum(lengths) // budget):
        # No group was opened beyond those needed: the emptiest always got the next, so none is ahead by more than one.
        assert max(sizes) - min(sizes) <= max(lengths)
