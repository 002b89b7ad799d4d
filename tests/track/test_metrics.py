import importlib.util
import io
import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import pytest
from rich.console import Console

from whet.config import Config
from whet.errors import ConfigError
from whet.store.run import RunStore
from whet.testing.fakes import group, rollout, sum_problem
from whet.track.metrics import (
    Clock,
    ConsoleTracker,
    OutsideClock,
    TrackConfig,
    measure_rollouts,
)
from whet.track.sinks import TensorBoardTracker, open_trackers
from whet.types import RAISED, FinishReason, Score, Verdict

WANDB = """
import json
class Session:
    def __init__(self, settings): self.file = open(settings["dir"] + "/sent.jsonl", "a"); self.send(settings)
    def send(self, row): self.file.write(json.dumps(row) + "\\n")
    def log(self, metrics, step): self.send({"step": step, **metrics})
    def finish(self): self.file.close()
def init(**settings): return Session(settings)
def Table(columns, data): return {"columns": columns, "data": data}
"""
USE = """
import sys
from pathlib import Path
from whet.config import Config
from whet.store.run import RunStore
from whet.testing.fakes import rollout
from whet.track.metrics import TrackConfig
from whet.track.sinks import open_trackers
from whet.types import Score, Verdict
with RunStore.open(Path(sys.argv[1]), Config(), {}, resume=False) as run:
    with open_trackers(TrackConfig(sinks=("wandb",), project="p"), run, {"loss": "loss"}) as tracker:
        tracker.log(3, {"loss": 0.5})
        tracker.log_responses(3, [rollout(text="four", score=Score(verdict=Verdict.WRONG, parts={}, note="no"))])
    print(run.id)
"""


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    return RunStore.open(tmp_path / "run", Config(), {}, resume=False)


def test_the_run_and_the_console_get_every_step(
    run: RunStore, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_trackers(TrackConfig(), run, {"reward/mean": "reward", "policy/kl": "kl"}) as tracker:
        tracker.log(7, {"reward/mean": 0.41237, "policy/kl": 2.0, "other": 1.0})
        tracker.log(8, {"other": 1.0})
    captured = capsys.readouterr()
    assert captured.err == "  step   reward       kl\n     7   0.4124        2\n"
    assert captured.out == ""
    assert [row["step"] for row in run.metrics()] == [7, 8]


def test_a_metric_that_is_never_there_has_no_column() -> None:
    stream = io.StringIO()
    ConsoleTracker({"a": "a", "b": "b"}, stream=stream).log(1, {"b": float("nan")})
    assert stream.getvalue() == "  step        b\n     1      nan\n"


def test_a_metric_that_comes_later_gets_a_column_and_one_that_is_missing_a_blank() -> None:
    stream = io.StringIO()
    tracker = ConsoleTracker({"a": "a", "b": "b"}, stream=stream)
    tracker.log(1, {"b": 0.5})
    tracker.log(2, {"a": 2.0})
    tracker.log(3, {"b": 3.0})
    assert stream.getvalue().splitlines() == [
        "  step        b",
        "     1      0.5",
        "  step        a        b",
        "     2        2",
        "     3                 3",
    ]


def test_labels_are_repeated_after_twenty_rows() -> None:
    stream = io.StringIO()
    tracker = ConsoleTracker({"a": "a"}, stream=stream)
    for step in range(1, 42):
        tracker.log(step, {"a": 1.0})
    lines = stream.getvalue().splitlines()
    assert [index for index, line in enumerate(lines) if "step" in line] == [0, 21, 42]


@pytest.mark.parametrize("recipe", ["sft", "rl", "dpo", "distill", "tango"])
def test_the_rows_of_every_recipe_fit_80_columns(recipe: str) -> None:
    columns = import_module(f"whet.recipes.{recipe}").COLUMNS
    stream = io.StringIO()
    tracker = ConsoleTracker(columns, steps=100_000, stream=stream)
    for step in (99_998, 99_999, 100_000):
        tracker.log(step, dict.fromkeys(columns, -1.2345678e-05))
    assert max(map(len, stream.getvalue().splitlines())) <= 80


def test_without_a_terminal_a_row_says_how_long_the_rest_takes() -> None:
    stream = io.StringIO()
    tracker = ConsoleTracker({"a": "a"}, steps=3, stream=stream)
    for step in (1, 2, 3):
        tracker.log(step, {"a": 5.0})
    assert stream.getvalue().splitlines() == [
        "  step        a      left",
        "     1        5",
        "     2        5       0 s",
        "     3        5",
    ]


def test_a_terminal_gets_the_same_row_unwrapped() -> None:
    stream = io.StringIO()
    tracker = ConsoleTracker(
        {"area/name" * 4: "area/name" * 4}, console=Console(file=stream, width=20)
    )
    tracker.log(1, {"area/name" * 4: 1e-9})
    tracker.close()
    assert stream.getvalue() == f"  step {'area/name' * 4}\n     1    1e-09\n"


def test_tensorboard_reads_what_was_logged_and_a_resumed_session_replaces_later_steps(
    run: RunStore,
) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    for first, value in ((1, 0.25), (3, 0.5)):
        tracker = TensorBoardTracker(run)
        for step in range(first, 5):
            tracker.log(step, {"loss": value})
        tracker.close()
    TensorBoardTracker(run).close()
    events = accumulator.EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    seen = [(event.step, event.value) for event in events.Scalars("loss")]
    assert seen == [(1, 0.25), (2, 0.25), (3, 0.5), (4, 0.5)]


def test_tensorboard_is_opened_on_demand(run: RunStore) -> None:
    pytest.importorskip("tensorboard")
    with open_trackers(TrackConfig(sinks=("tensorboard",)), run, {}) as tracker:
        tracker.log(1, {"loss": 1.0})
    assert len(list((run.folder / "tensorboard").iterdir())) == 1


def test_tensorboard_shows_sample_answers_as_a_table(run: RunStore) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    score = Score(verdict=Verdict.WRONG, parts={}, note="no")
    with open_trackers(TrackConfig(sinks=("tensorboard",)), run, {}) as tracker:
        tracker.log_responses(2, [rollout(text="a|b\nc", score=score)])
    events = accumulator.EventAccumulator(str(run.folder / "tensorboard"))
    events.Reload()
    (event,) = events.Tensors("answers")
    assert event.step == 2
    assert event.tensor_proto.string_val[0].decode().splitlines() == [
        "| task | prompt | answer | verdict | note |",
        "| --- | --- | --- | --- | --- |",
        "| sums | 1 + 2 | a\\|b<br>c | wrong | no |",
    ]


def test_a_sink_that_is_not_installed_is_named(run: RunStore) -> None:
    if importlib.util.find_spec("wandb"):
        pytest.skip("wandb is installed here")
    sentence = r'track.sinks names "wandb", which is not installed: pip install wandb'
    trackers = open_trackers(TrackConfig(sinks=("wandb",)), run, {})
    with pytest.raises(ConfigError, match=sentence), trackers:
        pass


def test_wandb_gets_the_project_the_runs_id_and_every_step(tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "wandb.py").write_text(WANDB)
    path = f"{tmp_path / 'fake'}{os.pathsep}{Path(__file__).parents[2]}"
    command = [sys.executable, "-c", USE, str(tmp_path / "game")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    opened, logged, answers = map(
        json.loads, (tmp_path / "game" / "sent.jsonl").read_text().splitlines()
    )
    assert (opened["project"], opened["name"], opened["id"]) == ("p", "game", done.stdout.strip())
    assert logged == {"step": 3, "loss": 0.5}
    assert answers["answers"]["columns"] == ["task", "prompt", "answer", "verdict", "note"]
    assert answers["answers"]["data"] == [["sums", "1 + 2", "four", "wrong", "no"]]


def _clock(*seconds: float) -> Clock:
    """A clock that is looked at at these times; the process takes two gigabytes."""
    times = iter(seconds)
    return Clock(peak_bytes=lambda: 2_000_000_000, now=lambda: next(times))


def test_the_clock_charges_a_second_to_the_innermost_part() -> None:
    clock = _clock(0.0, 1.0, 3.0, 7.0, 8.0, 10.0)
    with clock.measure("sample"), clock.measure("grade"):  # sample from 1, grade from 3 to 7
        pass  # sample ends at 8, the step at 10

    assert clock.lap() == {
        "time/sample": 3.0,
        "time/grade": 4.0,
        "time/score": 0.0,
        "time/update": 0.0,
        "time/step": 10.0,
        "memory/peak_gb": 2.0,
    }


def test_a_lap_starts_the_clock_afresh() -> None:
    clock = _clock(0.0, 1.0, 2.0, 5.0, 9.0)
    with clock.measure("sample"):
        pass
    clock.count_sampling(tokens=1, row_steps=1, useful=1)
    clock.lap()

    metrics = clock.lap()

    assert (metrics["time/sample"], metrics["time/step"]) == (0.0, 4.0)
    assert "engine/slots_busy" not in metrics


def test_what_comes_before_the_start_of_a_step_belongs_to_none() -> None:
    clock = _clock(0.0, 1.0, 4.0, 5.0, 7.0)
    with clock.measure("sample"):
        clock.count_sampling(tokens=1, row_steps=1, useful=1)

    clock.start()  # at 5

    metrics = clock.lap()
    assert (metrics["time/sample"], metrics["time/step"]) == (0.0, 2.0)
    assert "engine/slots_busy" not in metrics


def test_validations_and_checkpoints_have_their_own_seconds() -> None:
    times = iter((3.0, 4.0, 6.0, 10.0, 15.0, 20.0, 21.0))
    clock = OutsideClock(now=lambda: next(times))
    clock.count_start(1.0)  # now is 3
    with clock.measure("validate"):  # from 4 to 6
        pass
    with clock.measure("save"):  # from 10 to 15
        pass
    with clock.measure("validate"):  # from 20 to 21
        pass
    assert clock.seconds == {"start": 2.0, "validate": 3.0, "save": 5.0}


def test_the_speed_of_an_engine_is_over_all_of_its_calls_in_a_step() -> None:
    clock = _clock(0.0, 1.0, 3.0, 4.0)
    with clock.measure("sample"):
        clock.count_sampling(tokens=60, row_steps=80, useful=50)
        clock.count_sampling(tokens=40, row_steps=20, useful=10)

    metrics = clock.lap()

    assert metrics["engine/tokens_per_s"] == 50.0  # 100 tokens in the seconds from 1 to 3
    assert metrics["engine/slots_busy"] == 0.6  # 60 of 100 row steps


def test_the_memory_of_a_process_is_its_largest_resident_size() -> None:
    assert 0.01 < Clock().lap()["memory/peak_gb"] < 1000


def _score(correct: float, verdict: Verdict = Verdict.WRONG) -> Score:
    return Score(verdict=verdict, parts={"correct": correct})


def test_the_metrics_of_a_step_are_worked_by_hand() -> None:
    unscored = Score(verdict=Verdict.UNSCORED, parts={})
    partial = Score(verdict=Verdict.WRONG, parts={"correct": 0.0, "process": 0.8})
    groups = [
        (
            rollout(reward=1.0, score=_score(1.0, Verdict.CORRECT), tokens=[1] * 2),
            rollout(reward=0.0, score=partial, tokens=[1] * 4, finish=FinishReason.LENGTH),
        ),
        (
            rollout(reward=0.5, score=_score(0.5), tokens=[1] * 6),
            rollout(reward=None, score=unscored, tokens=[1] * 8),
        ),
    ]

    assert measure_rollouts(groups) == pytest.approx(
        {
            "reward/mean": 0.5,
            "reward/deviation": (0.5 / 3) ** 0.5,  # deviations .5, -.5 and 0: a variance of .5 / 3
            "score/correct": 0.5,
            "score/process": 0.8 / 3,
            "score/unscored": 1.0,
            "score/raised": 0.0,
            "length/mean": 5.0,
            "length/unfinished": 0.25,
            "groups/equal": 0.5,
        }
    )


def test_groups_of_equal_rewards_are_counted() -> None:
    assert measure_rollouts([group([1.0, 1.0]), group([0.0, 0.0]), group([0.3, 0.4])])[
        "groups/equal"
    ] == pytest.approx(2 / 3)


def test_a_step_that_nothing_was_scored_in_has_no_reward_and_says_so() -> None:
    metrics = measure_rollouts([group([None, None])])

    assert (metrics["reward/mean"], metrics["reward/deviation"], metrics["score/unscored"]) == (
        0.0,
        0.0,
        2.0,
    )


def test_several_tasks_and_sources_have_figures_of_their_own() -> None:
    right = _score(1.0, Verdict.CORRECT)
    other = replace(sum_problem(1, 2), task="maths", source="book")
    groups = [
        (rollout(reward=1.0, score=right, tokens=[1] * 2),),
        (rollout(reward=0.0, score=_score(0.0), tokens=[1] * 4, problem=other),),
    ]

    metrics = measure_rollouts(groups)

    assert {name: value for name, value in metrics.items() if name.count("/") > 1} == {
        "length/mean/sums": 2.0,
        "reward/mean/sums": 1.0,
        "score/correct/sums": 1.0,
        "length/mean/maths": 4.0,
        "reward/mean/maths": 0.0,
        "score/correct/maths": 0.0,
        f"length/mean/source/{sum_problem(1, 2).source}": 2.0,
        f"reward/mean/source/{sum_problem(1, 2).source}": 1.0,
        f"score/correct/source/{sum_problem(1, 2).source}": 1.0,
        "length/mean/source/book": 4.0,
        "reward/mean/source/book": 0.0,
        "score/correct/source/book": 0.0,
    }


def test_responses_that_broke_their_grader_are_counted() -> None:
    broke = Score(verdict=Verdict.WRONG, parts={"correct": 0.0}, note=f"{RAISED}ZeroDivisionError")
    # An answer that a note quotes may hold the same words.
    quotes = replace(broke, note=f'the last line is "{RAISED}the bar": not a number')
    scores = (broke, quotes, _score(0.0))
    groups = [tuple(rollout(reward=0.0, score=score) for score in scores)]

    assert measure_rollouts(groups)["score/raised"] == 1.0
