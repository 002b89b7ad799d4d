"""Ranks that stop, fail, disagree or are asked to end: a sentence and a checkpoint, never a hang."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from transformers import AutoModelForCausalLM

from whet.store.run import RunStore

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))
from rank_kills import kill_rank, main, sampled, wait_for_step  # noqa: E402
from ranks import MAX_GAP, torchrun, weight_gap  # noqa: E402

pytestmark = pytest.mark.cluster
WAIT = 10
GRACE = 30
"""Seconds that torchrun gives ranks to end, before it kills them."""
SLACK = 45
"""Seconds for a busy machine."""
STEPS = 12
"""Steps of a run that ends."""
MADE = """
kind = "run"
task.name = "game24"
[stages.problems]
kind = "make"
most = { sft = 64, rl = 32, dev = 12, test = 0 }
[stages.traces]
kind = "teach"
problems = "@problems"
per_problem = 2
workers = 1
[stages.sft]
kind = "sft"
data = "@traces"
steps = 2
batch_size = 16
model = { new = "tiny", positions = 48 }
sampling = { max_tokens = 24 }
validation = { every = 0 }
"""
SFT = """
kind = "sft"
task = "TASK"
data = "MADE/02-traces"
steps = NUM_STEPS
batch_size = 16
model = { new = "tiny", positions = 48 }
sampling = { max_tokens = 24 }
validation = { every = 2, samples = 1 }
"""
RL = """
kind = "rl"
task = "TASK"
model = { path = "MADE/03-sft" }
steps = NUM_STEPS
problems_per_step = 4
group_size = 4
sampling = { max_tokens = 24 }
reward = { weights = { finished = 1.0, lines = -0.1 } }
algo = { name = "game24", kl_coef = 0.01, num_minibatches = 2 }
train = { lr = 1e-4 }
validation = { every = 0 }
"""
OWN_PROBLEMS = """
import os
from itertools import islice
from whet.tasks.game24 import Game24

class Uneven(Game24):
    name = "uneven"

    def problems(self, split):
        return islice(super().problems(split), int(os.environ.get("RANK", "0")), 40)

class Failing(Game24):
    name = "failing"

    def problems(self, split):
        if os.environ.get("RANK") == "1":
            raise RuntimeError("this rank has no disk")
        return super().problems(split)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems, answers and a model, made by one process."""
    folder = tmp_path_factory.mktemp("made")
    (folder / "own.py").write_text(OWN_PROBLEMS)
    (folder / "made.toml").write_text(MADE)
    process, log = start([], "run", folder / "made.toml", folder / "run")
    assert process.wait(200) == 0, log.read_text()
    return folder


def write(folder: Path, made: Path, text: str, *, task: str = "game24", steps: int = 4_000) -> Path:
    own = task if task == "game24" else f"{made}/own.py:{task}"
    text = text.replace("TASK", own).replace("MADE", str(made / "run"))
    file = folder / "stage.toml"
    file.write_text(text.replace("NUM_STEPS", str(steps)))
    return file


def start(
    launcher: list[str], kind: str, file: Path, out: Path, *flags: str
) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a command; return its process and the file with what it prints."""
    command = [sys.executable, *launcher, "-m", "whet", kind, str(file), "--out", str(out)]
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    log = out.with_suffix(".log")
    with log.open("ab") as stream:
        process = subprocess.Popen([*command, *flags], stdout=stream, stderr=stream, env=environ)
    return process, log


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_that_stops_answering_ends_the_run_and_is_named(
    made: Path, tmp_path: Path, rank: int
) -> None:
    file = write(tmp_path, made, RL)
    flags = ("--cluster.timeout", str(WAIT))
    agent, log = start(torchrun(2), "rl", file, tmp_path / "run", *flags)
    wait_for_step(agent, tmp_path / "run" / "metrics.jsonl", 2)
    began = time.monotonic()
    assert kill_rank(agent, rank, signal.SIGSTOP)
    assert agent.wait(WAIT + GRACE + SLACK) != 0
    assert time.monotonic() - began < WAIT + GRACE + SLACK
    assert f"whet: rank {1 - rank}: rank {rank} on " in log.read_text() or (
        rank == 1 and "whet: rank 1 on " in log.read_text()
    )
    assert f"did not answer within {WAIT} s" in log.read_text()


@pytest.mark.parametrize(("kind", "text"), [("rl", RL), ("sft", SFT)])
def test_ranks_with_other_problems_end_in_a_sentence(
    made: Path, tmp_path: Path, kind: str, text: str
) -> None:
    file = write(tmp_path, made, text, task="Uneven")
    agent, log = start(torchrun(2), kind, file, tmp_path / "run")
    assert agent.wait(200) != 0
    assert (
        "whet: the ranks are not at the same place: rank 0 is at 'responses to " in log.read_text()
    )


def test_an_error_of_one_rank_ends_the_others_too(made: Path, tmp_path: Path) -> None:
    file = write(tmp_path, made, RL, task="Failing")
    agent, log = start(torchrun(2), "rl", file, tmp_path / "run")
    assert agent.wait(200) != 0
    assert "whet: rank 1: the task 'failing' in " in log.read_text()
    assert "raised RuntimeError in line 17: this rank has no disk" in log.read_text()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_three_ranks_asked_to_end_leave_a_checkpoint_that_any_number_goes_on_from(
    made: Path, tmp_path: Path, number: signal.Signals
) -> None:
    file = write(tmp_path, made, RL, steps=STEPS)
    agent, log = start(torchrun(3), "rl", file, tmp_path / "run")
    wait_for_step(agent, tmp_path / "run" / "metrics.jsonl", 3)
    agent.send_signal(number)
    agent.wait(GRACE + SLACK)
    [checkpoint] = (tmp_path / "run" / "checkpoints").glob("0*")
    assert f"stopped after step {int(checkpoint.name)} of {STEPS}, which has a checkpoint" in (
        log.read_text()
    )
    model = AutoModelForCausalLM.from_pretrained(checkpoint, local_files_only=True)
    assert model.num_parameters() > 0
    one, *others = [go_on(file, tmp_path, size) for size in (1, 2, 4)]
    for other in others:
        assert sampled(one) == sampled(other)
        assert weight_gap(one.checkpoint_folder, other.checkpoint_folder) <= MAX_GAP


def go_on(file: Path, folder: Path, size: int) -> RunStore:
    """Go on with a copy of the run; one rank is a process without torchrun."""
    out = folder / f"on-{size}"
    shutil.copytree(folder / "run", out)
    process, log = start(torchrun(size) if size > 1 else [], "rl", file, out, "--resume")
    assert process.wait(250) == 0, log.read_text()
    run = RunStore.view(out)
    trained = [row["step"] for row in run.metrics() if "reward/mean" in row]
    assert trained == list(range(1, STEPS + 1))
    return run


def test_runs_with_a_killed_rank_train_on_the_same_tokens_as_undisturbed(tmp_path: Path) -> None:
    assert main(["--out", str(tmp_path), "--kills", "2", "--seed", "3"]) == 0
