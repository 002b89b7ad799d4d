"""Split examples into micro-batches of bounded size. Any split gives the same gradient; this one wastes least."""

import heapq
from collections.abc import Sequence

from whet.data.examples import Example
from whet.errors import DataError


def pack(examples: Sequence[Example], token_budget: int, *, is_padded: bool = True) -> list[list[Example]]:
    """Group examples so that each group stays within the budget.

    Where attention runs on a padded grid, its cells count, so examples of like length lie together, longest first.
    Where it runs on the tokens alone, they count, and groups come out alike in size. Ties keep the given order.

    >>> from whet.testing.fakes import example
    >>> examples = [example(length=3), example(length=9), example(length=4)]
    >>> [len(group) for group in pack(examples, token_budget=10)]
    [1, 2]
    >>> [sum(len(item.tokens) for item in group) for group in pack(examples, token_budget=12, is_padded=False)]
    [9, 7]
    """
    for item in examples:
        if len(item.tokens) > token_budget:
            raise DataError(
                f"example {item.rollout} has {len(item.tokens)} tokens, more than train.micro_tokens = {token_budget}; "
                "raise that setting or leave the example out"
            )
    longest_first = sorted(examples, key=lambda example: -len(example.tokens))
    return _grids(longest_first, token_budget) if is_padded else _alike(longest_first, token_budget)


def _grids(examples: Sequence[Example], budget: int) -> list[list[Example]]:
    groups: list[list[Example]] = []
    for item in examples:
        if groups and (len(groups[-1]) + 1) * len(groups[-1][0].tokens) <= budget:
            groups[-1].append(item)
        else:
            groups.append([item])
    return groups


def _alike(examples: Sequence[Example], budget: int) -> list[list[Example]]:
    """Give each example in turn to the group that has least, of as few groups as could hold them all."""
    total = sum(len(item.tokens) for item in examples)
    groups: list[list[Example]] = [[] for _ in range(-(-total // budget))]
    heap = [(0, index) for index in range(len(groups))]
    for item in examples:
        filled, index = heapq.heappop(heap)
        if filled + len(item.tokens) > budget:
            heapq.heappush(heap, (filled, index))
            filled, index = 0, len(groups)
            groups.append([])
        groups[index].append(item)
        heapq.heappush(heap, (filled + len(item.tokens), index))
    return groups
