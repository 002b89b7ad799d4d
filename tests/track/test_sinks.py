import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from whet.config import Config
from whet.errors import ConfigError
from whet.store.run import RunStore
from whet.track.sinks import ConsoleTracker, TensorBoardTracker, TrackConfig, open_trackers

WANDB = """
import json
class Session:
    def __init__(self, settings): self.file = open(settings["dir"] + "/sent.jsonl", "a"); self.send(settings)
    def send(self, row): self.file.write(json.dumps(row) + "\\n")
    def log(self, metrics, step): self.send({"step": step, **metrics})
    def finish(self): self.file.close()
def init(**settings): return Session(settings)
"""
USE = """
import sys
from pathlib import Path
from whet.config import Config
from whet.store.run import RunStore
from whet.track.sinks import TrackConfig, open_trackers
with RunStore.open(Path(sys.argv[1]), Config(), {}, resume=False) as run:
    with open_trackers(TrackConfig(sinks=("wandb",), project="p"), run, {"loss": "loss"}) as tracker:
        tracker.log(3, {"loss": 0.5})
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
    assert captured.err == "step      7  reward 0.4124    kl 2       \n"
    assert captured.out == ""
    assert [row["step"] for row in run.metrics()] == [7, 8]


def test_a_missing_column_is_left_out_of_the_line() -> None:
    stream = io.StringIO()
    ConsoleTracker({"a": "a", "b": "b"}, stream=stream).log(1, {"b": float("nan")})
    assert stream.getvalue() == "step      1  b nan     \n"


def test_a_terminal_gets_the_same_line_unwrapped() -> None:
    stream = io.StringIO()
    tracker = ConsoleTracker(
        {"area/name" * 4: "area/name" * 4}, console=Console(file=stream, width=20)
    )
    tracker.log(1, {"area/name" * 4: 1e-9})
    tracker.close()
    assert stream.getvalue() == f"step      1  {'area/name' * 4} 1e-09   \n"


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


def test_a_sink_that_is_not_installed_is_named(run: RunStore) -> None:
    if importlib.util.find_spec("wandb"):
        pytest.skip("wandb is installed here")
    with pytest.raises(
        ConfigError, match=r'track.sinks names "wandb", which is not installed: pip install wandb'
    ):
        open_trackers(TrackConfig(sinks=("wandb",)), run, {})


def test_wandb_gets_the_project_the_runs_id_and_every_step(tmp_path: Path) -> None:
    (tmp_path / "fake").mkdir()
    (tmp_path / "fake" / "wandb.py").write_text(WANDB)
    path = f"{tmp_path / 'fake'}{os.pathsep}{Path(__file__).parents[2]}"
    command = [sys.executable, "-c", USE, str(tmp_path / "game")]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    opened, logged = map(json.loads, (tmp_path / "game" / "sent.jsonl").read_text().splitlines())
    assert (opened["project"], opened["name"], opened["id"]) == ("p", "game", done.stdout.strip())
    assert logged == {"step": 3, "loss": 0.5}
