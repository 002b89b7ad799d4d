"""Contexts spread over forward passes, worked by hand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from whet.engine.scheduler import plan_prefill
from whet.types import Tokens


def _contexts(*lengths: int) -> dict[int, Tokens]:
    return {10 + n: np.arange(length, dtype=np.int32) + 100 * n for n, length in enumerate(lengths)}


def test_the_layout_is_worked_by_hand() -> None:
    [layout] = plan_prefill(_contexts(2, 1, 3), max_tokens=99, chunked=True)

    assert layout.tokens_T.tolist() == [0, 1, 100, 200, 201, 202]
    assert layout.positions_T.tolist() == [0, 1, 0, 0, 1, 2]
    assert layout.row_T.tolist() == [10, 10, 11, 12, 12, 12]
    assert layout.starts_S1.tolist() == [0, 2, 3, 6]
    assert (layout.row_S.tolist(), layout.before_S.tolist()) == ([10, 11, 12], [0, 0, 0])
    assert (layout.end_Q.tolist(), layout.row_Q.tolist()) == ([1, 2, 5], [10, 11, 12])


def test_a_long_context_is_split_where_the_pass_is_full() -> None:
    first, second, third = plan_prefill(_contexts(3, 7), max_tokens=4, chunked=True)

    assert first.tokens_T.tolist() == [0, 1, 2, 100]
    assert (first.end_Q.tolist(), first.row_Q.tolist()) == ([2], [10])
    assert (second.positions_T.tolist(), second.before_S.tolist()) == ([1, 2, 3, 4], [1])
    assert len(second.end_Q) == 0
    assert (third.positions_T.tolist(), third.before_S.tolist(), third.row_Q.tolist()) == (
        [5, 6],
        [5],
        [11],
    )


def test_contexts_that_must_stay_whole_fill_passes_one_after_the_other() -> None:
    found = plan_prefill(_contexts(3, 2, 9, 1), max_tokens=4, chunked=False)

    assert [layout.row_S.tolist() for layout in found] == [[10], [11], [12], [13]]
    assert [
        layout.row_S.tolist()
        for layout in plan_prefill(_contexts(3, 1, 4), max_tokens=4, chunked=False)
    ] == [[10, 11], [12]]


def test_nothing_to_run_makes_no_pass() -> None:
    assert plan_prefill({}, max_tokens=4, chunked=True) == []


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12), st.integers(1, 20))
def test_passes_hold_every_token_once_in_order_and_none_is_too_large(
    lengths: list[int], most: int
) -> None:
    contexts = _contexts(*lengths)

    found = plan_prefill(contexts, max_tokens=most, chunked=True)

    assert max(len(layout.tokens_T) for layout in found) <= most
    assert len(found) == -(-sum(lengths) // most)
    for row, context in contexts.items():
        tokens = np.concatenate([layout.tokens_T[layout.row_T == row] for layout in found])
        positions = np.concatenate([layout.positions_T[layout.row_T == row] for layout in found])
        assert tokens.tolist() == context.tolist() and positions.tolist() == list(
            range(len(context))
        )
    assert [row for layout in found for row in layout.row_Q.tolist()] == list(contexts)
