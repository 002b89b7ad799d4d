"""Who runs, who waits, who gives way: worked by hand on a small pool, then under random
pressure."""

from collections.abc import Iterator

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.engine.base import LOOK_AHEAD, Request, SamplingParams
from whet.engine.paged_cache import PageAllocator
from whet.engine.scheduler import Scheduler, Sequences, WindowOutput

PAGE, CONTEXT = 4, 64


def _request(id: str, prompt: list[int], max_tokens: int = 20) -> Request:
    sampling = SamplingParams(max_tokens=max_tokens)
    return Request(id=id, prompt=np.array(prompt, dtype=np.int32), sampling=sampling, seed=0)


def _scheduler(
    pages: int, requests: list[Request], *, slots: int = 4, window: int = 4
) -> Scheduler:
    blocks = PageAllocator(num_pages=pages, num_rows=slots + 1, longest=CONTEXT, page_size=PAGE)
    scheduler = Scheduler(
        blocks, Sequences(2 * slots, CONTEXT), slots=slots, context=CONTEXT, window=window
    )
    scheduler.start(iter(requests))
    return scheduler


def _blocks(scheduler: Scheduler) -> PageAllocator:
    assert isinstance(scheduler.allocator, PageAllocator)
    return scheduler.allocator


def _read_all(scheduler: Scheduler) -> None:
    """Read back all that was asked for, as if no row had stopped."""
    sequences, sequence_B = scheduler.sequences, scheduler.running_B.copy()
    count_B = sequences.scheduled_S[sequence_B].copy()
    shape = (len(sequence_B), int((count_B - sequences.count_S[sequence_B]).max(initial=0)))
    tokens, logprobs = np.full(shape, 7, dtype=np.int32), np.zeros(shape, dtype=np.float32)
    is_done_B = count_B >= sequences.limit_S[sequence_B]
    sequences.append_output(
        WindowOutput(
            sequence_B=sequence_B,
            is_done_B=is_done_B,
            count_B=count_B,
            tokens_BW=tokens,
            logprobs_BW=logprobs,
        )
    )


def test_samples_of_one_prompt_run_it_once_and_share_its_full_pages() -> None:
    scheduler = _scheduler(20, [_request(str(n), [1, 2, 3, 4, 5]) for n in range(3)])

    admission = scheduler.admit()

    assert admission is not None
    assert (
        admission.rows,
        admission.to_prefill,
        admission.source_B.tolist(),
        admission.cached_row,
    ) == (slice(0, 3), [0], [0] * 3, 0)
    table = _blocks(scheduler).table_RA
    assert len({int(page) for page in table[[0, 1, 2, 4], 0]}) == 1
    assert len({int(page) for page in table[[0, 1, 2, 4], 1]}) == 4


def test_samples_that_come_later_find_the_prompt_kept() -> None:
    requests = [_request("a", [9, 9]), *[_request(str(n), [1, 2, 3, 4, 5]) for n in range(3)]]
    scheduler = _scheduler(20, requests, slots=2)
    scheduler.admit()
    scheduler.remove_rows([0, 1])

    admission = scheduler.admit()

    assert admission is not None
    assert (admission.to_prefill, admission.source_B.tolist(), admission.cached_row) == (
        [],
        [2, 2],
        None,
    )


def test_a_newcomer_waits_unless_a_page_for_each_row_in_use_stays_free() -> None:
    # Each takes two pages, for three tokens of prompt and four of the window, and can come to need
    # more.
    requests = [_request(str(n), [n, 2, 3]) for n in range(3)]

    admitted = {}
    for pages in (4, 5, 7, 8, 11):
        scheduler = _scheduler(pages, requests)
        scheduler.admit()
        admitted[pages] = scheduler.num_rows

    assert admitted == {4: 1, 5: 2, 7: 2, 8: 3, 11: 3}


def test_requests_are_pulled_only_so_far_ahead() -> None:
    pulled = []

    def stream() -> Iterator[Request]:
        for n in range(100):
            pulled.append(n)
            yield _request(str(n), [n, 2, 3])

    scheduler = _scheduler(5, [])
    scheduler.start(stream())
    scheduler.admit()
    scheduler.admit()

    assert scheduler.num_rows == 2
    assert len(pulled) <= LOOK_AHEAD * scheduler.slots + 3 + 1 < 100


def test_a_new_start_counts_anew_who_gave_way() -> None:
    scheduler = _scheduler(8, [_request(str(n), [n, 2, 3]) for n in range(9)])
    scheduler.admit()
    scheduler.advance(4)
    _read_all(scheduler)
    assert scheduler.preempt_rows() == [2]

    scheduler.start(iter([]))

    assert scheduler.num_preempted == 0


def test_of_several_that_gave_way_the_oldest_comes_back_first() -> None:
    scheduler = _scheduler(12, [_request(str(n), [n, 2, 3]) for n in range(4)])
    scheduler.admit()
    for _ in range(3):
        scheduler.advance(4)
        _read_all(scheduler)

    given = scheduler.preempt_rows()
    scheduler.remove_rows(given)
    scheduler.remove_rows([0])
    scheduler.admit()

    assert given == [3, 2]
    assert [scheduler.sequences.request(sequence).id for sequence in scheduler.running_B] == [
        "1",
        "2",
    ]


def test_the_youngest_gives_way_and_is_the_first_to_come_back() -> None:
    scheduler = _scheduler(8, [_request(str(n), [n, 2, 3]) for n in range(9)])
    scheduler.admit()
    assert [scheduler.sequences.request(sequence).id for sequence in scheduler.running_B] == [
        "0",
        "1",
        "2",
    ]
    scheduler.advance(4)
    _read_all(scheduler)

    given = scheduler.preempt_rows()

    # Three tokens of prompt, five sampled, four to come, the newest not cached: three pages each,
    # and there are eight.
    assert given == [2] and scheduler.num_preempted == 1
    scheduler.remove_rows(given)
    assert scheduler.admit() is None
    scheduler.remove_rows([0])
    admission = scheduler.admit()
    assert admission is not None
    assert [scheduler.sequences.request(sequence).id for sequence in scheduler.running_B] == [
        "1",
        "2",
    ]
    assert admission.to_prefill == [1]
    assert scheduler.sequences.context(int(scheduler.running_B[1])).tolist() == [2, 2, 3, *[7] * 5]


def test_one_who_gave_way_is_not_taken_in_before_its_tokens_are_read() -> None:
    scheduler = _scheduler(20, [_request("a", [1]), _request("b", [2])])
    scheduler.admit()
    scheduler.advance(4)
    youngest = int(scheduler.running_B[1])
    scheduler.remove_rows([1])
    scheduler._waiting.append(youngest)

    assert scheduler.admit() is None
    scheduler.sequences.count_S[youngest] = scheduler.sequences.scheduled_S[youngest]
    assert scheduler.admit() is not None


def test_rows_from_the_end_close_the_gaps() -> None:
    scheduler = _scheduler(40, [_request(name, [1]) for name in "abcd"])
    scheduler.admit()

    source, target = scheduler.remove_rows([0, 2])

    assert (source.tolist(), target.tolist()) == ([3], [0])
    assert [scheduler.sequences.request(sequence).id for sequence in scheduler.running_B] == [
        "d",
        "b",
    ]


def test_rows_at_their_limit_are_known_without_a_look() -> None:
    scheduler = _scheduler(
        40, [_request("a", [1], max_tokens=1), _request("b", [1], 5), _request("c", [1], 6)]
    )
    scheduler.admit()

    assert scheduler.rows_at_limit() == [0]
    scheduler.advance(4)
    assert scheduler.rows_at_limit() == [0, 1]


def test_a_kept_prompt_makes_room_for_a_request_that_needs_all() -> None:
    scheduler = _scheduler(
        5, [_request("a", [1, 2]), _request("b", list(range(15)), max_tokens=4)], slots=1
    )
    scheduler.admit()
    scheduler.remove_rows([0])
    assert _blocks(scheduler).num_free == 4

    admission = scheduler.admit()

    assert admission is not None and admission.to_prefill == [0]


@settings(max_examples=60, deadline=None)
@given(
    pages=st.integers(8, 40),
    window=st.integers(1, 9),
    lengths=st.lists(st.tuples(st.integers(1, 14), st.integers(1, 16)), min_size=1, max_size=20),
)
def test_under_pressure_every_request_ends_and_every_page_comes_back(
    pages: int, window: int, lengths: list[tuple[int, int]]
) -> None:
    requests = [
        _request(str(n), [n % 3] * prompt, most) for n, (prompt, most) in enumerate(lengths)
    ]
    scheduler = _scheduler(pages, requests, slots=5, window=window)
    ended: list[str] = []
    for _ in range(2000):
        scheduler.remove_rows(scheduler.preempt_rows())
        scheduler.admit()
        if not scheduler.num_rows:
            break
        scheduler.advance(window)
        _read_all(scheduler)
        full = scheduler.rows_at_limit()
        ended.extend(scheduler.sequences.request(int(scheduler.sequence_R[row])).id for row in full)
        for row in full:
            scheduler.sequences.remove(int(scheduler.sequence_R[row]))
        scheduler.remove_rows(full)

    assert sorted(ended, key=int) == [request.id for request in requests]
    scheduler.start([])
    assert _blocks(scheduler).num_free == pages
