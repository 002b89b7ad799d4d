"""Several engines behind one: the same answers whatever happens to a worker, and faults named."""

import copy
import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch
from engines import all_requests, assert_same, random_prompts, small_engine

from whet.engine.base import ExpectedLengths, Request, SamplingParams
from whet.engine.fleet import Fleet
from whet.engine.fleet_config import FleetConfig
from whet.engine.native import NativeEngine
from whet.engine.process_worker import ProcessWorker
from whet.engine.worker import FinishedRequest, WorkerReport
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.testing.contracts import check_engine
from whet.testing.tiny import tiny_model, tiny_tokenizer
from whet.testing.workers import Fault, ThreadWorker, with_version
from whet.types import Completion

SAMPLING = SamplingParams(max_tokens=12)


@pytest.fixture
def model() -> Transformer:
    return tiny_model(tied=True)


def build(model: Transformer) -> Callable[[], NativeEngine]:
    def make() -> NativeEngine:
        own = copy.deepcopy(model).requires_grad_(False)
        for weight in own.parameters():
            weight.zero_()
        return small_engine(own, slots=4)

    return make


def pass_on(worker: ThreadWorker, result: WorkerReport) -> WorkerReport | None:
    return result


def make_fleet(model: Transformer, *faults: Fault, wait: float = 30.0) -> Fleet:
    workers = [
        ThreadWorker(f"worker {n}", build(model), fault=fault) for n, fault in enumerate(faults)
    ]
    fleet = Fleet(workers, model, wait=wait)
    fleet.load_weights(model.named_weights(), 0)
    return fleet


def workers_of(fleet: Fleet) -> list[ThreadWorker]:
    workers = [member.worker for member in fleet._members]
    assert all(isinstance(worker, ThreadWorker) for worker in workers)
    return workers  # type: ignore[return-value]


def settle(fleet: Fleet) -> None:
    """Wait until workers that start again serve."""
    while any(member.state.name == "PREPARING" for member in fleet._members):
        fleet._handle(fleet._events.get())


def expected(model: Transformer, requests: list[Request]) -> dict[str, Completion]:
    return dict(small_engine(model).generate(requests))


def test_a_fleet_of_processes_keeps_the_contract_of_engines() -> None:
    model = tiny_model(tied=True, vocab_size=tiny_tokenizer().vocab_size)
    decode = tiny_tokenizer().decode
    cfg = FleetConfig(workers=2, max_num_seqs=4, wait=60.0)
    engine = cfg.build(model, stop_tokens=frozenset({3}), detokenize=decode)
    prompts = [np.array([1, 2, 3], dtype=np.int32), np.array([7], dtype=np.int32)]
    check_engine(engine, prompts, weights=model.named_weights(), detokenize=decode)
    assert engine.faults == []


def test_a_pipe_is_not_closed_under_the_thread_that_reads_it() -> None:
    model = tiny_model()
    fleet = FleetConfig(workers=1, max_num_seqs=4, wait=60.0).build(model, stop_tokens=frozenset())
    fleet.load_weights(model.named_weights(), 0)
    worker = fleet._members[0].worker
    assert isinstance(worker, ProcessWorker)
    pipe = worker._pipe
    fleet.close()
    assert worker.pid is None
    assert pipe is not None and not pipe.closed


def test_three_workers_give_the_answers_of_one_engine_and_share_the_work(
    model: Transformer,
) -> None:
    fleet = make_fleet(model, pass_on, pass_on, pass_on)
    requests = all_requests(random_prompts(12), 4, SAMPLING)

    done = dict(fleet.generate(requests))

    assert_same(done, expected(model, requests))
    assert len(done) == 48 and min(worker.num_finished for worker in workers_of(fleet)) > 0
    assert fleet.stats.tokens == sum(len(completion.tokens) for completion in done.values())
    assert fleet.stats.row_steps >= fleet.stats.tokens - fleet.stats.first_tokens > 0
    assert fleet.canary_gap < 1e-5


@pytest.mark.parametrize("num_killed", [1, 2])
def test_workers_that_die_change_no_answer_and_come_back_with_the_newest_weights(
    model: Transformer, num_killed: int
) -> None:
    killed: set[str] = set()

    def die_once(worker: ThreadWorker, result: WorkerReport) -> WorkerReport | None:
        is_due = worker.num_finished == 3 and len(killed) < num_killed
        if not is_due or worker.name in killed:
            return result
        killed.add(worker.name)
        worker.die()
        return None

    fleet = make_fleet(model, die_once, die_once, die_once)
    requests = all_requests(random_prompts(12), 4, SAMPLING)

    done = dict(fleet.generate(requests))

    assert_same(done, expected(model, requests))
    assert len(done) == 48 and fleet.stats.lost_workers == num_killed
    assert {fault.partition(" has died")[0] for fault in fleet.faults} == killed
    assert all("requests go to others" in fault for fault in fleet.faults)
    settle(fleet)
    fleet.load_weights(model.named_weights(), 1)
    again = dict(fleet.generate(requests))
    assert {completion.policy_version for completion in again.values()} == {1}
    assert not any(member.is_lost for member in fleet._members)
    back = [worker for worker in workers_of(fleet) if worker.name in killed]
    assert [(worker.num_starts, worker.versions[-1]) for worker in back] == [(2, 1)] * num_killed


def test_a_silent_worker_is_named_after_the_wait_and_others_answer(model: Transformer) -> None:
    def fall_silent(worker: ThreadWorker, result: WorkerReport) -> WorkerReport | None:
        return result if result_is_canary(result) or worker.num_starts > 1 else None

    fleet = make_fleet(model, fall_silent, pass_on, wait=2.0)
    requests = all_requests(random_prompts(6), 2, SAMPLING)

    assert_same(dict(fleet.generate(requests)), expected(model, requests))
    assert fleet.faults[0].startswith("worker 0 has not answered for 2 s; its ")


def test_an_answer_of_an_old_version_is_refused_and_asked_for_again(model: Transformer) -> None:
    def lie_once(worker: ThreadWorker, result: WorkerReport) -> WorkerReport | None:
        is_due = worker.num_finished == 2 and not result_is_canary(result)
        return with_version(result, 6) if is_due else result

    fleet = make_fleet(model, lie_once)
    fleet.load_weights([], 7)
    requests = all_requests(random_prompts(6), 1, SAMPLING)

    done = dict(fleet.generate(requests))

    assert len(done) == 6 and {item.policy_version for item in done.values()} == {7}
    assert fleet.faults[0].startswith("worker 0 answered with weights of version 6, not 7; its ")
    assert workers_of(fleet)[0].versions == [0, 7, 7], "its weights are pushed again"


def test_a_worker_with_stale_weights_is_found_by_the_canary_and_gets_them_again(
    model: Transformer, capsys: pytest.CaptureFixture[str]
) -> None:
    fleet = make_fleet(model, pass_on, pass_on)
    workers_of(fleet)[1].stale_loads = 1
    move(model)

    fleet.load_weights(model.named_weights(), 1)

    said = capsys.readouterr().err
    assert "worker 1 has other weights than version 1" in said and "pushed again" in said
    assert fleet.faults == [] and fleet.canary_gap < 1e-5
    requests = all_requests(random_prompts(6), 1, SAMPLING)
    assert_same(dict(fleet.generate(requests)), expected(model, requests))


def test_one_that_keeps_stale_weights_is_left_out_and_a_fleet_of_none_says_why(
    model: Transformer,
) -> None:
    fleet = make_fleet(model, pass_on, wait=1.0)
    workers_of(fleet)[0].stale_loads = 99
    move(model)
    with pytest.raises(EngineError, match=r"no worker of the fleet is left: worker 0 has other"):
        fleet.load_weights(model.named_weights(), 1)


def move(model: Transformer) -> None:
    with torch.no_grad():
        for weight in model.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=torch.manual_seed(5))


def test_weights_that_are_pushed_in_the_middle_of_a_batch_are_refused(model: Transformer) -> None:
    fleet = make_fleet(model, pass_on)
    answers = iter(fleet.generate(all_requests(random_prompts(6), 1, SAMPLING)))
    next(answers)
    with pytest.raises(EngineError, match="weights cannot change while requests run"):
        fleet.load_weights(model.named_weights(), 1)
    assert {completion.policy_version for _, completion in answers} == {0}


def test_a_request_that_kills_every_worker_ends_the_call_and_is_named(model: Transformer) -> None:
    def die(worker: ThreadWorker, result: WorkerReport) -> WorkerReport | None:
        if isinstance(result, FinishedRequest) and result.call and result.id == "0/0":
            worker.die()
            return None
        return result

    fleet = make_fleet(model, die, die, wait=1.0)
    with pytest.raises(EngineError, match=r"request 0/0 was with 6 workers when they were lost"):
        list(fleet.generate(all_requests(random_prompts(1), 1, SAMPLING)))


def test_a_call_that_runs_in_another_thread_ends_when_the_fleet_is_closed(
    model: Transformer,
) -> None:
    fleet = make_fleet(model, lambda worker, result: result if result_is_canary(result) else None)
    raised: list[Exception] = []

    def read() -> None:
        try:
            list(fleet.generate(all_requests(random_prompts(2), 1, SAMPLING)))
        except EngineError as error:
            raised.append(error)

    thread = threading.Thread(target=read)
    thread.start()
    fleet.close()
    thread.join(10)
    assert str(raised[0]) == "the fleet is closed"


def result_is_canary(result: WorkerReport) -> bool:
    return isinstance(result, FinishedRequest) and result.call == 0


def test_answers_are_expected_to_be_as_long_as_those_before() -> None:
    lengths = ExpectedLengths()
    request, other = all_requests(random_prompts(2), 1, SAMPLING)
    assert lengths.expect(request) == 12
    lengths.add(request, 4)
    lengths.add(request, 8)
    assert lengths.expect(request) == 6 and lengths.expect(other) == 12


def test_the_prompt_that_was_not_asked_for_longest_is_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whet.engine.base.MAX_PROMPTS", 2)
    lengths = ExpectedLengths()
    first, second, third = all_requests(random_prompts(3), 1, SAMPLING)
    for request in (first, second, first, third):
        lengths.add(request, 4)
    assert [lengths.expect(request) for request in (first, second, third)] == [4, 12, 4]


def test_long_requests_begin_first_across_workers(model: Transformer) -> None:
    begun: list[str] = []

    class Watching(ThreadWorker):
        def submit(self, call: int, requests: list[Request]) -> None:  # type: ignore[override]
            begun.extend(request.id for request in requests if call)
            super().submit(call, requests)

    fleet = Fleet([Watching("worker 0", build(model), num_slots=1)], model, wait=30.0)
    fleet.load_weights(model.named_weights(), 0)

    def requests() -> Iterator[Request]:
        for limit, prompt in zip((2, 9, 5), random_prompts(3), strict=True):
            sampling = SamplingParams(max_tokens=limit)
            yield Request(id=str(limit), prompt=prompt, sampling=sampling, seed=0)

    assert len(list(fleet.generate(requests()))) == 3
    assert begun == ["9", "5", "2"]
