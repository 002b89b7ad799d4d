"""Rows spread over threads: the same completions, failures that show, and no trace of it for other
threads."""

from collections.abc import Iterator
from threading import Thread

import pytest
import torch
from engines import all_requests, assert_same, random_prompts, small_engine

from whet.engine.base import Sampling
from whet.engine.cpu.threads import FEWEST_ROWS, MOST_BYTES, Team, team_for
from whet.testing.tiny import tiny_model


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def test_two_threads_give_what_one_gives() -> None:
    before = torch.get_num_threads()
    requests = all_requests(random_prompts(30), 5, Sampling(max_tokens=40))
    found = []
    for threads in (1, 2):
        torch.set_num_threads(threads)
        engine = small_engine(slots=100)
        found.append(dict(engine.generate(requests)))
        assert engine.counts.row_steps > 30 * FEWEST_ROWS
    torch.set_num_threads(before)

    assert_same(found[1], found[0])


def test_shares_are_nearly_equal_and_worth_a_thread() -> None:
    team = Team(3)

    assert team.shares(100) == [slice(0, 34), slice(34, 67), slice(67, 100)]
    assert team.shares(2 * FEWEST_ROWS) == [slice(0, 32), slice(32, 64)]
    assert team.shares(5) == [slice(0, 5)]


@pytest.mark.usefixtures("two_threads")
def test_each_runs_on_one_core_without_gradient_and_leaves_no_trace() -> None:
    seen: list[tuple[int, bool]] = []
    later: list[int] = []

    Team(2).run([lambda: seen.append((torch.get_num_threads(), torch.is_grad_enabled()))] * 2)
    other = Thread(target=lambda: later.append(torch.get_num_threads()))
    other.start()
    other.join()

    assert seen == [(1, False), (1, False)]
    assert torch.get_num_threads() == 2 and later == [2]
    assert torch.is_grad_enabled()


def test_a_failure_of_one_is_raised() -> None:
    done: list[int] = []

    with pytest.raises(ZeroDivisionError):
        Team(2).run([lambda: done.append(1), lambda: done.append(1 // 0)])

    assert done == [1]


@pytest.mark.usefixtures("two_threads")
def test_only_a_small_model_on_several_cores_has_a_team(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model()
    team = team_for(model)

    assert team is not None and team.members == 2
    monkeypatch.setattr("whet.engine.cpu.threads.MOST_BYTES", 1000)
    assert team_for(model) is None and MOST_BYTES == 2**26
    monkeypatch.undo()
    torch.set_num_threads(1)
    assert team_for(model) is None
