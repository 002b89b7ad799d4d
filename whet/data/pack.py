"""Split examples into micro-batches of bounded size. Any split gives the same gradient; this one wastes least."""

from collections.abc import Sequence

from whet.data.examples import Example
from whet.errors import DataError


def pack(examples: Sequence[Example], token_budget: int) -> list[list[Example]]:
    """Group examples of like length so that each group, laid out as a grid, stays within the budget.

    The grid counts (rows times the longest row), since attention runs on it. Longest first, ties in the given order.

    >>> from whet.testing.fakes import example
    >>> [len(group) for group in pack([example(length=3), example(length=9), example(length=4)], token_budget=10)]
    [1, 2]
    """
    groups: list[list[Example]] = []
    columns = 0
    for item in sorted(examples, key=lambda example: -len(example.tokens)):
        length = len(item.tokens)
        if length > token_budget:
            raise DataError(
                f"example {item.rollout} has {length} tokens, more than train.micro_tokens = {token_budget}; "
                "raise that setting or leave the example out"
            )
        if groups and (len(groups[-1]) + 1) * columns <= token_budget:
            groups[-1].append(item)
        else:
            groups.append([item])
            columns = length
    return groups
