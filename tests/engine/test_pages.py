"""The page allocator: every page is free or held, shared only where it is full, and freed by the
last row that reads it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.engine.paged_cache import PageAllocator

PAGE, ROWS, LONGEST = 4, 6, 40


def _allocator(pages: int) -> PageAllocator:
    return PageAllocator(num_pages=pages, num_rows=ROWS, longest=LONGEST, page_size=PAGE)


def _rows(*rows: int) -> np.ndarray:
    return np.array(rows, dtype=np.int64)


def _held(allocator: PageAllocator, row: int) -> list[int]:
    return [int(page) for page in allocator.table_RA[row, : allocator.held_R[row]]]


def _place(
    allocator: PageAllocator,
    row: int,
    tokens: int,
    *,
    ahead: int = 0,
    most: int = 0,
    source: int | None = None,
) -> bool:
    ahead = max(tokens, ahead)
    return allocator.allocate(
        row, tokens=tokens, reserve=ahead, max_tokens=max(ahead, most), source=source
    )


def test_a_row_takes_the_pages_its_tokens_need() -> None:
    allocator = _allocator(10)

    assert _place(allocator, 0, 4) and _place(allocator, 1, 5, ahead=9)

    assert (len(_held(allocator, 0)), len(_held(allocator, 1)), allocator.num_free) == (1, 3, 6)


def test_full_pages_of_a_prompt_are_shared_and_the_partial_one_is_copied() -> None:
    allocator = _allocator(10)
    _place(allocator, 0, 10, ahead=12)

    assert _place(allocator, 1, 10, ahead=13, source=0)

    first, second = _held(allocator, 0), _held(allocator, 1)
    assert second[:2] == first[:2] and not set(second[2:]) & set(first)
    assert (len(first), len(second), allocator.num_free) == (3, 4, 5)
    assert allocator.pop_copies().tolist() == [[first[2], second[2]]]
    assert allocator.pop_copies().tolist() == []


def test_a_prompt_that_fills_its_pages_is_copied_nowhere() -> None:
    allocator = _allocator(10)
    _place(allocator, 0, 8, ahead=12)

    assert _place(allocator, 1, 8, ahead=9, source=0)

    assert len(allocator.pop_copies()) == 0 and allocator.num_free == 6


def test_a_shared_page_falls_free_with_its_last_reader() -> None:
    allocator = _allocator(3)
    _place(allocator, 0, 8)
    _place(allocator, 1, 8, source=0)

    allocator.free(_rows(0))
    assert allocator.num_free == 1
    allocator.free(_rows(1))
    assert allocator.num_free == 3


def test_many_rows_grow_at_once_or_not_at_all() -> None:
    allocator = _allocator(7)
    for row in range(3):
        _place(allocator, row, 4)

    assert allocator.grow(_rows(0, 1, 2), _rows(8, 4, 12))
    assert [len(_held(allocator, row)) for row in range(3)] == [2, 1, 3] and allocator.num_free == 1
    assert not allocator.grow(_rows(0, 1, 2), _rows(12, 8, 12))
    assert [len(_held(allocator, row)) for row in range(3)] == [2, 1, 3] and allocator.num_free == 1


def test_a_page_stays_free_for_each_row_that_can_still_grow() -> None:
    allocator = _allocator(6)
    _place(allocator, 0, 4, most=8)
    _place(allocator, 1, 4, most=4)

    assert not _place(allocator, 2, 16)
    assert _held(allocator, 2) == [] and allocator.num_free == 4
    assert _place(allocator, 2, 12)


def test_what_fits_alone_is_what_the_whole_pool_takes() -> None:
    assert _allocator(3).can_hold(12) and not _allocator(3).can_hold(13)


operations = st.one_of(
    st.tuples(
        st.just("place"), st.integers(0, ROWS - 1), st.integers(1, 20), st.integers(0, ROWS - 1)
    ),
    st.tuples(st.just("grow"), st.integers(1, 30), st.integers(1, 30), st.just(0)),
    st.tuples(st.just("release"), st.integers(0, ROWS - 1), st.integers(0, ROWS - 1), st.just(0)),
    st.tuples(st.just("move"), st.integers(0, ROWS - 1), st.integers(0, ROWS - 1), st.just(0)),
)


@settings(max_examples=300, deadline=None)
@given(pages=st.integers(1, 24), todo=st.lists(operations, max_size=40))
def test_pages_are_free_or_held_and_shared_only_where_full(
    pages: int, todo: list[tuple[str, int, int, int]]
) -> None:
    allocator = _allocator(pages)
    prompts: dict[int, int] = {}
    for name, one, two, three in todo:
        _act(allocator, prompts, name, one, two, three)
        _check(allocator, prompts)
    allocator.clear()
    assert (
        allocator.num_free == pages
        and not allocator.ref_count_E.any()
        and not allocator.held_R.any()
    )


def _act(
    allocator: PageAllocator, prompts: dict[int, int], name: str, one: int, two: int, three: int
) -> None:
    """Do one thing as the engine might; `prompts` holds the prompt length of each row in use."""
    if name == "place" and one not in prompts:
        source = three if three in prompts else None
        tokens = two if source is None else prompts[source]
        before = (allocator.num_free, allocator.ref_count_E.copy())
        if _place(allocator, one, tokens, ahead=two, source=source):
            prompts[one] = tokens
        else:
            assert allocator.num_free == before[0] and (allocator.ref_count_E == before[1]).all()
    elif name == "grow" and prompts:
        allocator.grow(
            np.array(sorted(prompts)), np.linspace(one, two, len(prompts)).astype(np.int64)
        )
    elif name == "release":
        allocator.free(np.unique([one, two]))
        prompts.pop(one, None)
        prompts.pop(two, None)
    elif name == "move" and one in prompts and two not in prompts:
        allocator.move(_rows(one), _rows(two))
        prompts[two] = prompts.pop(one)


def _check(allocator: PageAllocator, prompts: dict[int, int]) -> None:
    holders: dict[int, list[tuple[int, int]]] = {}
    for row in range(ROWS):
        assert (row in prompts) or allocator.held_R[row] == 0
        for place, page in enumerate(_held(allocator, row)):
            holders.setdefault(page, []).append((row, place))
    for page in range(allocator.num_pages):
        assert allocator.ref_count_E[page] == len(holders.get(page, []))
    for users in holders.values():
        assert len(users) == 1 or all((place + 1) * PAGE <= prompts[row] for row, place in users)
        assert len({place for _, place in users}) == 1
    free = allocator._free_pages[: allocator.num_free].tolist()
    assert sorted([*free, *holders]) == list(range(allocator.num_pages))
    for source, target in allocator.pop_copies():
        assert source != target and len(holders[int(target)]) == 1
