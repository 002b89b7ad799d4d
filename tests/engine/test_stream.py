"""Streams: weights change under running requests, and each answer says which its oldest are."""

import copy
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest
import torch
from engines import all_requests, assert_same, random_prompts, small_engine

from whet.engine.base import EngineStats, OpenRequests, Request, SamplingParams
from whet.engine.fleet import Fleet
from whet.engine.fleet_config import FleetConfig, VllmConfig
from whet.engine.fleet_member import FleetEvent, Member
from whet.engine.kv_cache import BuildCache
from whet.engine.native import NativeEngine
from whet.engine.server_calls import DIALECTS, Dialect
from whet.engine.weight_files import Weights, make_canary
from whet.engine.worker import FinishedRequest, Report, WorkerReport
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.testing.server import Asked, InferenceServer, serve_inference
from whet.testing.tiny import tiny_model
from whet.testing.workers import Fault, ThreadWorker, with_version
from whet.types import Completion, FinishReason

LONG = SamplingParams(max_tokens=40)
SECONDS = 60.0


def moved(model: Transformer) -> Transformer:
    other = copy.deepcopy(model)
    with torch.no_grad():
        for weight in other.parameters():
            weight += 0.05 * torch.randn(weight.shape, generator=torch.manual_seed(5))
    return other


class ChangingRequests(OpenRequests):
    """Changes an engine's weights after some windows, and then has more requests."""

    def __init__(
        self, engine: NativeEngine, weights: Transformer, first: Sequence[Request], after: int
    ) -> None:
        self.engine = engine
        self.weights = weights
        self.waiting = list(first)
        self.later: list[Request] = []
        self.num_windows = 0
        self.after = after

    def __next__(self) -> Request:
        if not self.waiting:
            raise StopIteration
        return self.waiting.pop(0)

    def end_window(self) -> None:
        self.num_windows += 1
        if self.num_windows == self.after:
            self.engine.load_weights(self.weights.named_weights(), 1)
            self.waiting += self.later


def own_engine(model: Transformer, build: BuildCache, slots: int = 8) -> NativeEngine:
    own = copy.deepcopy(model).requires_grad_(False)
    return small_engine(own, build=build, slots=slots, stops=frozenset())


def test_weights_change_between_two_tokens_and_the_version_is_that_of_the_first(
    build: BuildCache,
) -> None:
    old = tiny_model(positions=64)
    new = moved(old)
    engine = own_engine(old, build)
    first = all_requests(random_prompts(3), 2, LONG)
    later = [replace(request, id=f"later {request.id}") for request in first]
    requests = ChangingRequests(engine, new, first, after=2)
    requests.later = later

    done = dict(engine.generate(requests))

    before = dict(own_engine(old, build).generate(first))
    for request in first:
        answer, undisturbed = done[request.id], before[request.id]
        assert answer.policy_version == 0 and len(answer.tokens) == 40
        same = min(2, 2 * engine.window)
        np.testing.assert_array_equal(answer.tokens[:same], undisturbed.tokens[:same])
        assert not np.array_equal(answer.logprobs[-8:], undisturbed.logprobs[-8:])
    fresh = dict(own_engine(new, build).generate(later))
    assert_same({id: done[id] for id in fresh}, fresh), "the same prompts, and no old keys"
    assert {done[request.id].policy_version for request in later} == {1}


def test_a_prompt_cached_under_old_weights_is_computed_again_under_new_ones(
    build: BuildCache,
) -> None:
    old = tiny_model(positions=64)
    new = moved(old)
    engine = own_engine(old, build)
    (first,) = all_requests(random_prompts(1), 1, LONG)
    later = replace(first, id="later")
    requests = ChangingRequests(engine, new, [first], after=2)
    requests.later = [later]

    done = dict(engine.generate(requests))

    assert_same({"later": done["later"]}, dict(own_engine(new, build).generate([later])))


def test_a_push_of_the_same_weights_changes_no_token(build: BuildCache) -> None:
    model = tiny_model(positions=64)
    engine = own_engine(model, build)
    first = all_requests(random_prompts(3), 2, LONG)
    done = dict(engine.generate(ChangingRequests(engine, model, first, after=3)))
    assert_same(done, dict(own_engine(model, build).generate(first)))


def test_weights_of_an_engine_change_only_between_windows() -> None:
    model = tiny_model()
    engine = small_engine(model)
    answers = iter(engine.generate(all_requests(random_prompts(3), 1, LONG)))
    next(answers)
    with pytest.raises(EngineError, match="weights cannot change while requests run"):
        engine.load_weights(model.named_weights(), 1)


class Reader:
    """Reads a stream in a thread."""

    def __init__(self, fleet: Fleet) -> None:
        self.fleet = fleet
        self.done: dict[str, Completion] = {}
        self.error: Exception | None = None
        self.changed = threading.Condition()
        self.answers = fleet.stream()
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self) -> None:
        try:
            for id, completion in self.answers:
                with self.changed:
                    assert id not in self.done, "an answer comes once"
                    self.done[id] = completion
                    self.changed.notify_all()
        except EngineError as error:
            self.error = error

    def await_answers(self, count: int) -> None:
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.done) >= count, SECONDS)


@contextmanager
def streaming(fleet: Fleet) -> Iterator[Reader]:
    reader = Reader(fleet)
    try:
        yield reader
    finally:
        fleet.end_stream()
        reader.thread.join(SECONDS)
        assert not reader.thread.is_alive()


def make_worker(model: Transformer, name: str, fault: Fault) -> ThreadWorker:
    def build() -> NativeEngine:
        own = copy.deepcopy(model).requires_grad_(False)
        return small_engine(own, slots=5, stops=frozenset())

    return ThreadWorker(name, build, num_slots=4, fault=fault)


def pass_on(worker: ThreadWorker, result: WorkerReport) -> WorkerReport | None:
    return result


def make_fleet(model: Transformer, *faults: Fault, wait: float = 30.0) -> Fleet:
    workers = [make_worker(model, f"worker {n}", fault) for n, fault in enumerate(faults)]
    fleet = Fleet(workers, model, wait=wait)
    fleet.load_weights(model.named_weights(), 0)
    return fleet


def test_weights_are_pushed_under_requests_that_fill_all_slots_and_wait_for_none() -> None:
    old = tiny_model(positions=1280)
    new = moved(old)
    fleet = make_fleet(old, pass_on)
    endless = all_requests(random_prompts(5), 1, SamplingParams(max_tokens=1200))
    brief = replace(endless[0], id="brief", sampling=SamplingParams(max_tokens=1))
    fleet.model = new
    with streaming(fleet) as reader:
        fleet.submit([*endless[:3], brief])
        reader.await_answers(1)
        fleet.submit(endless[3:])
        fleet.load_weights(new.named_weights(), 1)
        num_done = len(reader.done)
        reader.await_answers(6)
        versions = [reader.done[request.id].policy_version for request in endless]
        short = all_requests(random_prompts(4), 2, LONG)
        fleet.submit([replace(request, id=f"short {request.id}") for request in short])
        reader.await_answers(14)

    assert num_done == 1 and fleet.canary_gap < 1e-4
    assert versions[:3] == [0, 0, 0] and versions[4] == 1, "three had begun, the last found no slot"
    expected = dict(small_engine(new, stops=frozenset()).generate(short))
    assert_same({id: reader.done[f"short {id}"] for id in expected}, expected)
    assert reader.done["short 0/0"].policy_version == 1 and fleet.faults == []


def test_a_worker_that_dies_in_a_stream_loses_no_request_and_comes_back() -> None:
    model = tiny_model(positions=64)
    died: list[str] = []

    def die_once(worker: ThreadWorker, result: WorkerReport) -> WorkerReport | None:
        if worker.num_finished != 3 or died:
            return result
        died.append(worker.name)
        worker.die()
        return None

    fleet = make_fleet(model, die_once, die_once)
    requests = all_requests(random_prompts(10), 2, LONG)
    with streaming(fleet) as reader:
        fleet.submit(requests[:8])
        fleet.load_weights([], 1)
        fleet.submit(requests[8:])
        reader.await_answers(20)

    assert_same(reader.done, dict(small_engine(model, stops=frozenset()).generate(requests)))
    assert len(died) == 1 and fleet.faults[0].startswith(f"{died[0]} has died by signal 9")


class LateWorker:
    """Answers the canary of an earlier start before that of its own."""

    name = "late worker"
    num_slots = 4

    def __init__(self, weights: Weights) -> None:
        self.weights = weights
        self.asked: list[str] = []

    def start(self, report: Report) -> None:
        self.report = report

    def load(self, weights: Weights) -> None:
        self.weights = weights

    def submit(self, call: int, requests: Sequence[Request]) -> None:
        (request,) = requests
        for id, version in (("canary of before", 0), (request.id, self.weights.version)):
            canary = self.weights.canary
            completion = Completion(
                tokens=canary.tokens,
                logprobs=canary.logprobs,
                finish_reason=FinishReason.LENGTH,
                policy_version=version,
            )
            self.report(
                FinishedRequest(call=call, id=id, completion=completion, stats=EngineStats())
            )
        self.asked.append(request.id)

    def cancel(self) -> None: ...

    def sleep(self) -> None: ...

    def close(self) -> None: ...


def test_a_late_canary_of_another_start_is_not_taken_for_that_of_this_one(tmp_path: Path) -> None:
    canary = make_canary(tiny_model(positions=64), 64)
    weights = [Weights(version=n, file=tmp_path / "weights", canary=canary) for n in (1, 2)]
    worker = LateWorker(weights[0])
    member = Member(worker=worker)
    events: SimpleQueue[FleetEvent] = SimpleQueue()

    member.prepare(weights[0], events, 5.0, 1, True)
    member.prepare(weights[1], events, 5.0, 1, False)

    reports = [events.get_nowait() for _ in range(2)]
    assert [report[2].version for report in reports] == [1, 2]  # a WorkerError has none
    assert len({*worker.asked, "canary of before"}) == 3, "an engine runs canaries side by side"


@pytest.mark.parametrize("version", [1, 3])
def test_an_answer_of_weights_before_its_request_or_still_to_come_is_refused(version: int) -> None:
    model = tiny_model(positions=64)
    lies = [version]

    def lie_once(worker: ThreadWorker, result: WorkerReport) -> WorkerReport | None:
        if not isinstance(result, FinishedRequest) or result.call == 0 or not lies:
            return result
        return with_version(result, lies.pop())

    fleet = make_fleet(model, lie_once)
    fleet.load_weights([], 2)
    with streaming(fleet) as reader:
        fleet.submit(all_requests(random_prompts(3), 1, LONG))
        reader.await_answers(3)

    assert {completion.policy_version for completion in reader.done.values()} == {2}
    (fault,) = fleet.faults
    assert fault.startswith(f"worker 0 answered with weights of version {version}, not 2; its ")


def test_a_push_that_no_worker_takes_ends_the_stream_and_says_why() -> None:
    old = tiny_model(positions=64)
    fleet = make_fleet(old, pass_on, wait=1.0)
    worker = fleet._members[0].worker
    assert isinstance(worker, ThreadWorker)
    reader = Reader(fleet)
    worker.stale_loads = 99
    fleet.model = moved(old)
    with pytest.raises(EngineError, match="no worker of the fleet is left: worker 0 has other"):
        fleet.load_weights(fleet.model.named_weights(), 1)
    reader.thread.join(SECONDS)
    assert reader.error is not None


def test_a_process_takes_weights_in_mid_answer() -> None:
    old = tiny_model(tied=True, positions=2000)
    new = moved(old)
    cfg = FleetConfig(workers=1, max_num_seqs=2, wait=60.0)
    fleet = cfg.build(old, stop_tokens=frozenset())
    try:
        fleet.load_weights(old.named_weights(), 0)
        fleet.model = new
        with streaming(fleet) as reader:
            (short,) = all_requests(random_prompts(1), 1, SamplingParams(max_tokens=1))
            long = replace(short, id="long", sampling=SamplingParams(max_tokens=1900))
            fleet.submit([short, long])
            reader.await_answers(1)  # the two have begun together
            fleet.load_weights(new.named_weights(), 1)
            assert "long" not in reader.done
            reader.await_answers(2)
    finally:
        fleet.close()
    assert reader.done["long"].policy_version == 0
    assert fleet.faults == []


def hold_first(server: InferenceServer, asked: Asked) -> str | None:
    is_held = asked.body.get("prompt", asked.body.get("token_ids", asked.body.get("input_ids")))
    return "hold" if is_held == [7, 7, 7] and server.version == "0" else None


@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.name)
def test_a_server_is_pushed_under_a_request_whose_version_is_the_oldest(dialect: Dialect) -> None:
    model = tiny_model(tied=True)
    fault: Callable[[InferenceServer, Asked], str | None] = hold_first
    if dialect.name == "vLLM without versions":
        held = [True]

        def fault(server: InferenceServer, asked: Asked) -> str | None:
            return "hold" if asked.body.get("prompt") == [7, 7, 7] and held.pop() else None

    with serve_inference(model, dialect, fault=fault) as place:
        cfg = VllmConfig(urls=(place.url,), max_num_seqs=4, wait=20.0)
        fleet = cfg.build(model, stop_tokens=frozenset())
        try:
            fleet.load_weights(model.named_weights(), 0)
            request = Request(
                id="held", prompt=np.array([7, 7, 7], dtype=np.int32), sampling=LONG, seed=0
            )
            with streaming(fleet) as reader:
                fleet.submit([request])
                while not place.server._held:
                    pass
                fleet.load_weights(model.named_weights(), 1)
                reader.await_answers(1)
                fleet.submit([replace(request, id="later", prompt=request.prompt[:2])])
                reader.await_answers(2)
        finally:
            fleet.close()
    assert reader.done["held"].policy_version == 0 and fleet.faults == []
    assert reader.done["later"].policy_version == 1
