"""A stream of groups: each of the plan is trained once, none too old, whatever finishes when."""

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue

import numpy as np
import pytest

from whet.engine.base import Request, SamplingParams
from whet.errors import DataError, EngineError
from whet.grading.grader import Grader
from whet.proofs.fixtures import ScriptedEngine
from whet.rewards.spec import RewardSpec
from whet.rollout.collect import ChatEngine, GroupRequest
from whet.rollout.stream import StreamQueue
from whet.rollout.stream_plan import StreamPlan, StreamRow, read_stream
from whet.testing.fakes import SumTask, sum_problem
from whet.testing.tiny import tiny_tokenizer
from whet.text.chat import ChatFormat
from whet.track.metrics import Clock
from whet.types import Completion, FinishReason, Group, Json, Problem, Tokens

CHAT = ChatFormat(tiny_tokenizer())
PROBLEMS = {problem.id: problem for problem in (sum_problem(n, 1) for n in range(9))}
SECONDS = 30.0


def say_seed(request: Request) -> Tokens:
    return CHAT.tokenizer.encode(str(request.seed % 100))


class HoldingEngine(ScriptedEngine):
    """Answers at once, but for the requests of some groups, which wait until they are released."""

    def __init__(self) -> None:
        super().__init__(say_seed)
        self.held_numbers: set[int] = set()
        self.held: list[tuple[int, Request]] = []
        self.asked: list[int] = []
        self.seeds: dict[str, list[int]] = {}
        self.num_streams = 0
        self._done: SimpleQueue[tuple[int, Request] | Exception | None] = SimpleQueue()

    def stream(self) -> Iterator[tuple[str, Completion]]:
        self.num_streams += 1
        return self._stream()

    def _stream(self) -> Iterator[tuple[str, Completion]]:
        while (item := self._done.get()) is not None:
            if isinstance(item, Exception):
                raise item
            version, request = item
            tokens = self.answer(request)
            yield (
                request.id,
                Completion(
                    tokens=tokens,
                    logprobs=np.zeros(len(tokens), dtype=np.float32),
                    finish_reason=FinishReason.STOP,
                    policy_version=version,
                ),
            )

    def submit(self, requests: Sequence[Request]) -> None:
        for request in requests:
            number = int(request.id.partition("/")[0])
            self.asked.append(number)
            self.seeds.setdefault(request.id, []).append(request.seed)
            if number in self.held_numbers:
                self.held.append((self.version, request))
            else:
                self._done.put((self.version, request))

    def end_stream(self) -> None:
        self._done.put(None)

    def release(self) -> None:
        self.held_numbers.clear()
        for item in self.held:
            self._done.put(item)
        self.held = []

    def fail(self, error: Exception) -> None:
        self._done.put(error)


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """A queue, its engine, and what it has trained and logged."""

    queue: StreamQueue
    engine: HoldingEngine
    rows: list[StreamRow] = field(default_factory=list)
    groups: list[list[Group]] = field(default_factory=list)
    metrics: list[dict[str, float]] = field(default_factory=list)

    def step(self, step: int) -> list[int]:
        self.engine.load_weights([], step)
        groups = self.queue.take(step)
        self.queue.join()
        self.groups.append(groups)
        self.metrics.append(self.queue.metrics())
        return [int(group[0].group_id.rpartition(":")[2]) for group in groups]

    def await_finished(self, *numbers: int) -> None:
        queue = self.queue
        with queue._changed:
            assert queue._changed.wait_for(
                lambda: all(queue._planned_groups[number].group for number in numbers), SECONDS
            )

    def events(self) -> list[dict[str, Json]]:
        return [{"event": "stream", **row.to_json()} for row in self.rows]


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """Two problems a step, two responses to each; something else needs the engine after a step."""

    pause: int | None

    def take_problems(self, step: int) -> list[Problem]:
        return [list(PROBLEMS.values())[number % 9] for number in (2 * step, 2 * step + 1)]

    def build_request(self, number: int, problem: Problem) -> GroupRequest:
        sampling = SamplingParams(max_tokens=9)
        return GroupRequest(index=number, problem=problem, sampling=sampling, sample_ids=range(2))

    def reward(self, group: Group) -> Group:
        return RewardSpec().apply([group])[0]

    def is_pause(self, step: int) -> bool:
        return step == self.pause


def make_run(*, steps: int = 6, lag: int = 1, pause: int | None = None) -> Run:
    plan = StreamPlan(
        recipe=Recipe(pause=pause), steps=steps, per_step=2, lag=lag, seed=5, problems=PROBLEMS
    )
    engine = HoldingEngine()
    rows: list[StreamRow] = []
    chat_engine = ChatEngine(engine=engine, chat=CHAT, name="script")
    queue = StreamQueue(plan, chat_engine, Grader(SumTask()), clock=Clock(), log=rows.append)
    return Run(queue=queue, engine=engine, rows=rows)


def test_every_group_of_the_plan_is_trained_once_and_none_older_than_the_lag() -> None:
    run = make_run(steps=6, lag=2)

    trained = [run.step(step) for step in range(6)]

    assert sorted(number for numbers in trained for number in numbers) == list(range(12))
    assert read_stream(run.events()).is_complete(12)
    versions = [
        min(r.completion.policy_version for g in groups for r in g) for groups in run.groups
    ]
    ages = [step - version for step, version in enumerate(versions)]
    assert ages == [metrics["stream/oldest"] for metrics in run.metrics] and max(ages) <= 2
    assert sum(metrics["stream/dropped"] for metrics in run.metrics) == 0
    rollouts = [rollout for groups in run.groups for group in groups for rollout in group]
    assert all(rollout.reward is not None for rollout in rollouts) and len(rollouts) == 24


def test_an_engine_faster_than_the_learner_samples_one_step_ahead() -> None:
    run = make_run(steps=6, lag=4)
    for step in range(6):
        run.step(step)
        run.await_finished(*run.queue._planned_groups)
    assert [row.asked for row in run.rows[:3]] == [[0, 1, 2, 3], [4, 5], [6, 7]]
    assert [metrics["stream/age"] for metrics in run.metrics] == [0, 1, 1, 1, 1, 1]


def test_while_the_learner_waits_more_is_asked_but_not_beyond_the_lag() -> None:
    run = make_run(steps=9, lag=3)
    run.engine.held_numbers = {0, 1, 6, 7, 10, 11}
    trained = [run.step(step) for step in range(4)]
    assert trained == [[2, 3], [4, 5], [8, 9], [12, 13]]
    assert [row.asked for row in run.rows] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12, 13]]
    run.engine.release()
    assert [run.step(step) for step in range(4, 9)] and read_stream(run.events()).is_complete(18)


def test_an_engine_that_runs_out_of_work_is_asked_less_far_ahead_again() -> None:
    run = make_run(steps=9, lag=5)
    run.engine.held_numbers = {0, 1, 6, 7, 10, 11}
    assert [run.step(step) for step in range(3)] == [[2, 3], [4, 5], [8, 9]]
    run.engine.release()
    for step in range(3, 6):
        run.await_finished(*run.queue._planned_groups)
        run.step(step)
    assert [row.asked for row in run.rows[2:]] == [[8, 9, 10, 11], [], [], [12, 13]]


def test_overlap_is_the_part_of_sampling_that_no_step_waits_for() -> None:
    run = make_run(lag=2)
    run.engine.held_numbers = {0, 1, 2, 3}
    threading.Timer(0.3, run.engine.release).start()
    run.step(0)
    run.await_finished(*run.queue._planned_groups)

    run.engine.held_numbers = {4}
    run.engine.load_weights([], 1)
    run.queue.take(1)
    threading.Timer(0.3, run.engine.release).start()
    run.await_finished(4)
    run.queue.join()

    assert run.metrics[0]["stream/overlap"] < 0.3
    assert run.queue.metrics()["stream/overlap"] > 0.7


def test_a_group_that_is_late_is_overtaken_and_trained_within_the_lag() -> None:
    run = make_run(lag=2)
    run.engine.held_numbers = {0}
    assert 0 not in run.step(0)
    run.engine.release()
    run.await_finished(0)
    assert 0 in run.step(1), "the oldest goes first"


def test_a_group_older_than_the_lag_is_dropped_counted_and_asked_anew() -> None:
    run = make_run(steps=6, lag=1)
    run.engine.held_numbers = {0}
    first = [run.step(0), run.step(1)]
    run.engine.release()
    run.await_finished(0)

    later = [run.step(step) for step in range(2, 6)]

    assert all(0 not in numbers for numbers in first)
    assert run.rows[2].dropped == {0: "2 steps old"} and 0 in run.rows[2].asked
    assert run.metrics[2]["stream/dropped"] == 1
    assert sum(0 in numbers for numbers in later) == 1
    one, other = run.engine.seeds["0/0"]
    assert one != other, "the same random numbers would give the same long answer"
    ledger = read_stream(run.events())
    assert ledger.is_complete(12) and ledger.num_dropped == 1
    ages = [metrics["stream/oldest"] for metrics in run.metrics]
    assert max(ages) <= 1


def test_a_problem_that_was_asked_anew_is_waited_for() -> None:
    run = make_run(steps=6, lag=1)
    run.engine.held_numbers = {0}
    run.step(0)
    run.step(1)
    run.engine.release()
    run.await_finished(0)
    run.engine.held_numbers = {0}
    run.step(2)
    timer = threading.Timer(0.3, run.engine.release)
    timer.start()
    assert 0 in run.step(3), "it would be older than the lag at the next step"
    assert run.metrics[3]["stream/oldest"] == 1
    assert [run.step(step) for step in (4, 5)] and read_stream(run.events()).is_complete(12)


def test_after_a_resume_what_was_finished_is_kept_and_the_rest_is_asked_again(
    tmp_path: Path,
) -> None:
    run = make_run(steps=4, lag=2)
    run.engine.held_numbers = {3}
    run.step(0)
    run.await_finished(*run.queue._planned_groups.keys() - {3})
    state = run.queue.save(tmp_path)
    run.step(1)

    resumed = make_run(steps=4, lag=2)
    resumed.queue.load(tmp_path, state)
    trained = [resumed.step(step) for step in (1, 2, 3)]

    assert {3} == {*resumed.rows[0].asked} & set(range(4)), "and those of later steps"
    events: list[dict[str, Json]] = [
        *run.events(),
        {"event": "resume"},
        {"event": "continue", "step": 1},
        *resumed.events(),
    ]
    assert read_stream(events).is_complete(8)
    assert len({number for numbers in trained for number in numbers}) == 6


def test_a_checkpoint_that_says_nothing_of_the_stream_is_refused_in_a_sentence(
    tmp_path: Path,
) -> None:
    with pytest.raises(DataError, match="does not say which groups are on their way"):
        make_run().queue.load(tmp_path, 3)
    with pytest.raises(DataError, match="problem gone, which is not in"):
        make_run().queue.load(tmp_path, {"asked": 2, "tickets": [[0, "gone", 0]]})


def test_before_a_pause_everything_is_finished_and_the_engine_is_let_go() -> None:
    run = make_run(steps=4, lag=1, pause=2)
    run.step(0)
    run.engine.held_numbers = {4, 5}
    timer = threading.Timer(0.3, run.engine.release)
    timer.start()
    run.step(1)
    assert run.engine.held == [] and run.queue._threads == []
    assert run.engine.num_streams == 1
    trained = [run.step(2), run.step(3)]
    assert run.engine.num_streams == 2 and len(trained) == 2
    assert read_stream(run.events()).is_complete(8)


def test_what_was_sampled_by_weights_that_were_given_up_is_asked_anew() -> None:
    run = make_run(steps=4, lag=1, pause=2)
    run.step(0)
    run.step(1)
    run.queue.drop()
    run.step(2)
    assert set(run.rows[2].dropped) <= set(run.rows[2].asked)
    assert {*run.rows[2].dropped.values()} == {"its weights were given up"}
    assert {group[0].completion.policy_version for group in run.groups[2]} == {2}
    run.step(3)
    assert read_stream(run.events()).is_complete(8)


def test_an_error_of_the_engine_is_raised_where_the_learner_waits() -> None:
    run = make_run()
    run.engine.held_numbers = set(range(4))
    run.engine.fail(EngineError("no worker of the fleet is left"))
    with pytest.raises(EngineError, match="no worker of the fleet is left"):
        run.step(0)


def test_the_ledger_sees_a_group_that_is_trained_twice_and_one_that_is_missing() -> None:
    def row(step: int, trained: str) -> dict[str, Json]:
        return {"event": "stream", "step": step, "trained": trained, "dropped": {}}

    assert read_stream([row(1, "0-1"), row(2, "2-3")]).is_complete(4)
    assert read_stream([row(1, "0-1"), row(2, "1-2")]).twice == [1]
    assert not read_stream([row(1, "0-1"), row(2, "2")]).is_complete(4)
    again = [row(1, "0-1"), row(2, "2"), {"event": "resume"}, row(1, "0 2"), row(2, "1 3")]
    assert read_stream(again).is_complete(4), "without a checkpoint a run begins again"
    cut = [*again[:2], {"event": "resume"}, {"event": "continue", "step": 1}, row(2, "2-3")]
    assert read_stream(cut).is_complete(4)
