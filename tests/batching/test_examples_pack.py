"""Micro-batches: every example once, within the budget, no more grids than needed."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.batching.examples import Example, pack
from whet.errors import DataError
from whet.testing.fakes import example


def packed(
    examples: list[Example], token_budget: int, *, ranks: int = 1, is_padded: bool = True
) -> list[list[Example]]:
    groups = pack(examples, token_budget, ranks=ranks, is_padded=is_padded)
    return [[examples[index] for index in group] for group in groups]


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(2, 40), max_size=30), st.integers(40, 200))
def test_every_example_is_in_one_group_and_every_grid_within_the_budget(
    lengths: list[int], budget: int
) -> None:
    examples = [example(length=length, seed=index) for index, length in enumerate(lengths)]

    groups = packed(examples, budget)

    assert sorted(item.rollout_id for group in groups for item in group) == sorted(
        item.rollout_id for item in examples
    )
    for group in groups:
        assert group
        assert len(group) * max(len(item.tokens) for item in group) <= budget


def test_like_lengths_lie_together_and_ties_keep_their_order() -> None:
    examples = [example(length=length, seed=index) for index, length in enumerate([3, 9, 3, 8, 3])]

    groups = packed(examples, token_budget=18)

    assert [[item.rollout_id for item in group] for group in groups] == [
        ["r1", "r3"],
        ["r0", "r2", "r4"],
    ]


def test_samples_of_one_prompt_lie_together() -> None:
    prompts = [example(length=3, seed=90), example(length=3, seed=91)]
    examples = [
        replace(
            item, tokens=np.concatenate([prompts[index % 2].tokens, item.tokens]), response_start=3
        )
        for index, item in enumerate(
            example(length=length, seed=length) for length in (9, 8, 7, 6, 5, 4)
        )
    ]

    groups = packed(examples, token_budget=36)

    assert [[item.rollout_id for item in group] for group in groups] == [
        ["r9", "r7", "r5"],
        ["r8", "r6", "r4"],
    ]


def test_a_longer_example_of_another_prompt_widens_the_grid() -> None:
    """In the order of prompts: 10, 3, 9, 5. The 9 makes the grid of the 3 nine wide, and a third
    does not fit in 18."""
    prompt = example(length=2, seed=90).tokens
    alike = [
        replace(item, tokens=np.concatenate([prompt, item.tokens[2:]]), response_start=2)
        for item in (example(length=10, seed=10), example(length=3, seed=3))
    ]

    groups = packed([*alike, example(length=9, seed=9), example(length=5, seed=5)], token_budget=18)

    assert [[item.rollout_id for item in group] for group in groups] == [
        ["r10"],
        ["r3", "r9"],
        ["r5"],
    ]


def test_no_examples_make_no_groups() -> None:
    assert pack([], 10) == []


def test_an_example_longer_than_the_budget_is_named() -> None:
    with pytest.raises(
        DataError, match=r"r7 has 11 tokens, more than train.micro_batch_tokens = 10"
    ):
        pack([example(length=11, seed=7)], 10)


@settings(deadline=None, derandomize=True, database=None)
@given(st.lists(st.integers(2, 40), max_size=30), st.integers(40, 200))
def test_without_padding_tokens_count_and_groups_are_alike(lengths: list[int], budget: int) -> None:
    examples = [example(length=length, seed=index) for index, length in enumerate(lengths)]

    groups = packed(examples, budget, is_padded=False)

    assert sorted(item.rollout_id for group in groups for item in group) == sorted(
        item.rollout_id for item in examples
    )
    sizes = [sum(len(item.tokens) for item in group) for group in groups]
    assert all(0 < size <= budget for size in sizes)
    assert len(groups) <= 2 * -(-sum(lengths) // budget)
    if sum(lengths) <= budget:
        assert len(groups) <= 1
    elif len(groups) == -(-sum(lengths) // budget):
        # No group was opened beyond those needed: the emptiest always got the next, so none is
        # ahead by more than one.
        assert max(sizes) - min(sizes) <= max(lengths)


def _pairs(lengths: list[tuple[int, int]]) -> list[Example]:
    """Two examples a pair; all the better ones first, so that no pair lies together."""
    return [
        replace(example(length=pair[side], seed=2 * index + side), pair=index, is_chosen=side == 0)
        for side in (0, 1)
        for index, pair in enumerate(lengths)
    ]


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.integers(2, 40), st.integers(2, 40)), max_size=20),
    st.integers(80, 200),
    st.booleans(),
)
def test_the_two_of_a_pair_lie_in_one_group_within_the_budget(
    lengths: list[tuple[int, int]], budget: int, is_padded: bool
) -> None:
    examples = _pairs(lengths)

    groups = packed(examples, budget, is_padded=is_padded)

    assert sorted(item.rollout_id for group in groups for item in group) == sorted(
        item.rollout_id for item in examples
    )
    for group in groups:
        assert {item.pair for item in group if item.is_chosen} == {
            item.pair for item in group if not item.is_chosen
        }
        longest, total = (
            max(len(item.tokens) for item in group),
            sum(len(item.tokens) for item in group),
        )
        assert (len(group) * longest if is_padded else total) <= budget


def test_a_pair_larger_than_the_budget_is_named() -> None:
    with pytest.raises(
        DataError,
        match=r"the pair of r0 and r1 takes 22 tokens, more than train.micro_batch_tokens = 20",
    ):
        pack(_pairs([(11, 4)]), 20)
    assert len(pack(_pairs([(11, 4)]), 20, is_padded=False)) == 1


@settings(deadline=None, derandomize=True, database=None)
@given(
    st.lists(st.tuples(st.integers(2, 40), st.integers(2, 40)), max_size=20),
    st.integers(80, 200),
    st.booleans(),
    st.integers(1, 4),
)
def test_every_rank_gets_as_many_groups_and_each_example_goes_to_one(
    lengths: list[tuple[int, int]], budget: int, is_padded: bool, ranks: int
) -> None:
    examples = [*_pairs(lengths), *(example(length=20, seed=seed) for seed in range(100, 105))]

    groups = pack(examples, budget, ranks=ranks, is_padded=is_padded)

    shares = [groups[rank::ranks] for rank in range(ranks)]
    assert len({len(share) for share in shares}) == 1
    positions = [index for share in shares for group in share for index in group]
    assert sorted(positions) == list(range(len(examples)))
    for group in groups:
        pairs = [examples[index].pair for index in group if examples[index].pair is not None]
        assert all(pairs.count(pair) == 2 for pair in pairs)
    assert ranks > 1 or all(groups)


def test_a_rank_without_examples_gets_an_empty_group() -> None:
    examples = [example(length=5, seed=seed) for seed in range(3)]

    assert pack(examples, 5, ranks=2) == [[0], [1], [2], []]
    assert pack(examples, 15, ranks=2, is_padded=False) == [[0, 2], [1]]


def test_with_padding_too_every_rank_gets_its_part_of_what_one_micro_batch_could_hold() -> None:
    """Four examples of 5 tokens, 20 cells: at 100 cells one grid holds all, at 10 for each of two
    ranks there are two of two."""
    examples = [example(length=5, seed=seed) for seed in range(4)]

    assert pack(examples, 100) == [[0, 1, 2, 3]]
    assert pack(examples, 100, ranks=2) == [[0, 1], [2, 3]]


def test_no_rank_gets_less_than_the_largest_example() -> None:
    """24 cells are 8 for each of three ranks; the longest example takes 12, and so may the rest."""
    examples = [example(length=length, seed=seed) for seed, length in enumerate((12, 4, 4, 4))]

    assert pack(examples, 100, ranks=3) == [[0], [1, 2, 3], []]


def test_the_budget_bounds_a_micro_batch_also_when_each_rank_needs_several() -> None:
    """20 cells are 10 for each of two ranks, but a micro-batch may have 5."""
    examples = [example(length=5, seed=seed) for seed in range(4)]

    assert pack(examples, 5, ranks=2) == [[0], [1], [2], [3]]
