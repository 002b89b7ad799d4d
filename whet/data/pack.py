"""Split examples into micro-batches of bounded size. Any split gives the same gradient; this one
wastes least."""

import heapq
from collections.abc import Sequence

from whet.data.examples import Example
from whet.errors import DataError

Unit = list[Example]
"""What is never split: an example, or the two of a pair."""


def pack(
    examples: Sequence[Example], token_budget: int, *, is_padded: bool = True
) -> list[list[Example]]:
    """Group examples so that each group stays within the budget; the two of a pair stay together.

    Where attention runs on a padded grid, its cells count, so examples of like length lie together,
    longest first, and after each those that begin with the same prompt, which is then run once for
    all of them. Where it runs on the tokens alone, they count, and groups come out alike in size.
    Ties keep the given order.

    >>> from whet.testing.fakes import example
    >>> examples = [example(length=3), example(length=9), example(length=4)]
    >>> [len(group) for group in pack(examples, token_budget=10)]
    [1, 2]
    >>> [sum(len(item.tokens) for item in group) for group in pack(examples, token_budget=12, is_padded=False)]
    [9, 7]
    """
    units = _units(examples)
    size = _cells if is_padded else _tokens
    for unit in units:
        if (found := size(unit)) > token_budget:
            names = " and ".join(item.rollout for item in unit)
            what = f"example {names} has" if len(unit) == 1 else f"the pair of {names} takes"
            raise DataError(
                f"{what} {found} tokens, more than train.micro_tokens = {token_budget}; "
                f"raise that setting or leave the {'example' if len(unit) == 1 else 'pair'} out"
            )
    longest_first = sorted(units, key=lambda unit: -_width(unit))
    return (
        _grids(_by_prompt(longest_first), token_budget)
        if is_padded
        else _alike(longest_first, token_budget)
    )


def _units(examples: Sequence[Example]) -> list[Unit]:
    units: list[Unit] = []
    pairs: dict[int, Unit] = {}
    for item in examples:
        if item.pair in pairs:
            pairs[item.pair].append(item)
            continue
        units.append([item])
        if item.pair is not None:
            pairs[item.pair] = units[-1]
    return units


def _width(unit: Unit) -> int:
    return max(len(item.tokens) for item in unit)


def _cells(unit: Unit) -> int:
    return len(unit) * _width(unit)


def _tokens(unit: Unit) -> int:
    return sum(len(item.tokens) for item in unit)


def _by_prompt(units: Sequence[Unit]) -> list[Unit]:
    """Let each unit be followed by those of the same prompt."""
    found: dict[bytes, list[Unit]] = {}
    for unit in units:
        found.setdefault(unit[0].tokens[: unit[0].start].tobytes(), []).append(unit)
    return [unit for same in found.values() for unit in same]


def _grids(units: Sequence[Unit], budget: int) -> list[list[Example]]:
    groups: list[list[Example]] = []
    width = 0
    for unit in units:
        widest = max(width, _width(unit))
        if groups and (len(groups[-1]) + len(unit)) * widest <= budget:
            groups[-1].extend(unit)
            width = widest
        else:
            groups.append(list(unit))
            width = _width(unit)
    return groups


def _alike(units: Sequence[Unit], budget: int) -> list[list[Example]]:
    """Give each unit in turn to the group that has least, of as few groups as could hold them
    all."""
    total = sum(_tokens(unit) for unit in units)
    groups: list[list[Example]] = [[] for _ in range(-(-total // budget))]
    heap = [(0, index) for index in range(len(groups))]
    for unit in units:
        filled, index = heapq.heappop(heap)
        if filled + _tokens(unit) > budget:
            heapq.heappush(heap, (filled, index))
            filled = 0
            index = len(groups)
            groups.append([])
        groups[index].extend(unit)
        heapq.heappush(heap, (filled + _tokens(unit), index))
    return groups
