"""The order in which requests begin."""

from itertools import count, islice

import numpy as np

from whet.engine.base import Request, SamplingParams, longest_first


def request(name: str, limit: int, prompt: int) -> Request:
    return Request(
        id=name,
        prompt=np.array([prompt], np.int32),
        sampling=SamplingParams(max_tokens=limit),
        seed=0,
    )


def names(requests: list[Request], ahead: int) -> str:
    return "".join(each.id for each in longest_first(requests, ahead=ahead))


def test_longer_limits_begin_first_and_equal_ones_keep_their_order() -> None:
    limits = {"a": 5, "b": 9, "c": 5, "d": 7}
    assert (
        names([request(name, limit, ord(name)) for name, limit in limits.items()], ahead=4)
        == "bdac"
    )


def test_requests_of_one_prompt_stay_together_at_the_place_of_their_longest() -> None:
    requests = [request("a", 6, 1), request("b", 2, 2), request("c", 9, 2), request("d", 7, 3)]
    assert names(requests, ahead=4) == "bcda"


def test_no_more_is_pulled_than_is_looked_at() -> None:
    pulled = []

    def source():
        for index in range(100):
            pulled.append(index)
            yield request(str(index), 100 - index, index)

    first = list(islice(longest_first(source(), ahead=10), 3))
    assert [each.id for each in first] == ["0", "1", "2"]
    # Ten for the first, one more for each of the others; and a block ends where the next begins, so
    # one more is seen.
    assert len(pulled) == 10 + 2 + 1


def test_nothing_is_lost_and_nothing_comes_twice() -> None:
    limits = [(7 * index) % 13 + 1 for index in range(50)]
    requests = [request(str(index), limit, index // 3) for index, limit in enumerate(limits)]
    for ahead in (1, 4, 100):
        assert sorted(each.id for each in longest_first(requests, ahead=ahead)) == sorted(
            each.id for each in requests
        )


def test_a_stream_of_one_prompt_that_never_ends_is_passed_on() -> None:
    endless = (request(str(index), 5, 1) for index in count())
    assert [each.id for each in islice(longest_first(endless, ahead=4), 6)] == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "5",
    ]
