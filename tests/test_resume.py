"""A run that was stopped, killed or damaged ends as one that was not. `bench/kill_resume.py` does
more of the same."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from small import Pipeline, cut_after, half_written, whet, write

from bench.kill_resume import facts
from whet.store.checkpoint_folders import Checkpoints
from whet.store.run import RunStore

STAGES = ("01-sft", "02-rl")
SHORT = """kind = "run"
task.name = "game24"
seed = 5
[stages.sft]
kind = "sft"
data = "{folder}/02-traces"
steps = 40
batch_size = 32
model = {{ new = "tiny", positions = 48 }}
train = {{ lr = 3e-3, warmup_steps = 5, lr_schedule = "cosine" }}
sampling = {{ max_tokens = 24 }}
validation = {{ every = 20, samples = 1 }}
save = {{ every = 7 }}
[stages.rl]
kind = "rl"
model = {{ path = "@sft" }}
problems = "{folder}/01-problems"
steps = 14
problems_per_step = 8
group_size = 4
sampling = {{ max_tokens = 24 }}
final_temperature = 0.8
reward = {{ weights = {{ finished = 1.0, lines = -0.1 }} }}
algo = {{ name = "game24", kl_coef = 0.01, num_minibatches = 2 }}
train = {{ lr = 1e-3 }}
validation = {{ every = 6, samples = 1 }}
save = {{ every = 4 }}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Straight:
    """A run that nothing stopped."""

    file: Path
    folder: Path
    facts: dict[str, object]


@pytest.fixture(scope="module")
def straight(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Straight:
    place = tmp_path_factory.mktemp("straight")
    file = write(place / "short.toml", SHORT.format(folder=tiny.folder))
    said = whet("run", file, "--out", place / "run")
    assert said.code == 0, said.err
    return Straight(file=file, folder=place / "run", facts=facts(place / "run", STAGES))


def start(file: Path, folder: Path) -> subprocess.Popen[str]:
    """Start the pipeline in a process group of its own, on one thread: the order of a sum depends
    on their number."""
    return subprocess.Popen(
        [sys.executable, "-m", "whet", "run", str(file), "--out", str(folder), "--resume"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        start_new_session=True,
    )


def stop(
    child: subprocess.Popen[str], is_due: Callable[[], bool], how: signal.Signals = signal.SIGKILL
) -> tuple[int, str]:
    """Send a signal to a run's whole group once it is due, unless the run ends first; its exit code
    and last words."""
    while child.poll() is None and not is_due():
        time.sleep(0.002)
    if child.poll() is None:
        os.killpg(child.pid, how)
    _, said = child.communicate()
    return child.returncode, said


def has_reached(folder: Path, step: int) -> Callable[[], bool]:
    """Whether a run has logged a step, as seen from outside."""
    row = f'{{"step":{step},'
    return lambda: (
        (folder / "metrics.jsonl").exists() and row in (folder / "metrics.jsonl").read_text()
    )


@pytest.mark.parametrize(
    ("stage", "step", "how", "code"),
    [("01-sft", 12, signal.SIGINT, 130), ("02-rl", 9, signal.SIGTERM, 143)],
)
def test_a_signal_stops_a_run_after_its_step_and_resume_goes_on_from_there(
    straight: Straight, tmp_path: Path, stage: str, step: int, how: signal.Signals, code: int
) -> None:
    folder = tmp_path / "run"
    ended, said = stop(start(straight.file, folder), has_reached(folder / stage, step), how)
    assert ended == code
    match = re.search(
        r"stopped after step (\d+) of \d+, which has a checkpoint; the same command with --resume "
        r"continues from there\n$",
        said,
    )
    assert match, said
    assert int(match[1]) >= step
    assert "Traceback" not in said
    assert half_written(folder) == []
    last = json.loads((folder / stage / "ledger.jsonl").read_text().splitlines()[-1])
    assert (last["event"], last["step"]) == ("stop", int(match[1]))
    said_again = whet("run", straight.file, "--out", folder, "--resume")
    assert said_again.code == 0, said_again.err
    assert f"resuming from step {match[1]}\n" in said_again.err
    assert facts(folder, STAGES) == straight.facts


def test_checkpoints_written_in_the_background_are_those_written_in_turn(
    straight: Straight, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    flags = ("--cluster.background_saves", "true")
    said = whet("run", straight.file, "--out", folder, *flags)
    assert said.code == 0, said.err
    assert half_written(folder) == []
    assert facts(folder, STAGES) == straight.facts


def test_three_kills_end_with_the_same_weights_and_nothing_stands_twice(
    straight: Straight, tmp_path: Path
) -> None:
    folder = tmp_path / "run"
    for stage, step in (("01-sft", 11), ("01-sft", 31), ("02-rl", 9)):
        code, _ = stop(start(straight.file, folder), has_reached(folder / stage, step))
        assert code == -signal.SIGKILL
    said = whet("run", straight.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    assert facts(folder, STAGES) == straight.facts
    events = [row["event"] for row in RunStore.view(folder / "01-sft").events()]
    again = ["resume", "machine", "continue"]
    assert events == ["start", "inputs", "machine", *again, *again, "seconds", "finish"]


def test_each_step_has_one_row_of_training_and_at_most_one_validation(straight: Straight) -> None:
    for stage, steps in zip(STAGES, (40, 14), strict=True):
        rows = RunStore.view(straight.folder / stage).metrics()
        validations = [row["step"] for row in rows if "validation/pass@1" in row]
        assert [row["step"] for row in rows if "validation/pass@1" not in row] == list(
            range(1, steps + 1)
        )
        assert len(validations) == len(set(validations))


def cut_short(file: Path) -> None:
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip_a_byte(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[-100] ^= 1
    file.write_bytes(content)


def another_number(file: Path) -> None:
    file.write_text(file.read_text().replace("0", "1", 1))


@pytest.mark.parametrize(
    ("stage", "name", "damage", "before"),
    [
        ("01-sft", "model.safetensors", cut_short, 35),
        ("01-sft", "optimizer/state.safetensors", flip_a_byte, 35),
        ("02-rl", "optimizer/state.safetensors", cut_short, 12),
        ("02-rl", "state.json", another_number, 12),
    ],
)
def test_a_damaged_checkpoint_is_named_and_the_one_before_it_used(
    straight: Straight,
    tmp_path: Path,
    stage: str,
    name: str,
    damage: Callable[[Path], None],
    before: int,
) -> None:
    folder = Path(shutil.copytree(straight.folder, tmp_path / "run"))
    unfinish(folder / stage)
    newest = max(path for path in (folder / stage / "checkpoints").iterdir() if path.name.isdigit())
    damage(newest / name)
    said = whet("run", straight.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    told = [
        line
        for line in said.err.splitlines()
        if line.startswith(f"checkpoint {newest} is damaged (")
    ]
    assert len(told) == 1
    assert name in told[0]
    assert told[0].endswith("; the one before it is used")
    assert f"resuming from step {before}" in said.err
    assert facts(folder, STAGES) == straight.facts


def test_with_every_checkpoint_damaged_a_run_begins_again_and_ends_the_same(
    straight: Straight, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(straight.folder, tmp_path / "run"))
    unfinish(folder / "02-rl")
    for path in (folder / "02-rl" / "checkpoints").iterdir():
        if path.is_dir():
            cut_short(path / "model.safetensors")
    said = whet("run", straight.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    assert "resuming from" not in said.err
    assert facts(folder, STAGES) == straight.facts


def test_a_newest_checkpoint_that_was_deleted_is_made_again(
    straight: Straight, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(straight.folder, tmp_path / "run"))
    unfinish(folder / "01-sft")
    shutil.rmtree(folder / "01-sft" / "checkpoints" / "000040")
    said = whet("run", straight.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    assert facts(folder, STAGES) == straight.facts


def test_a_best_checkpoint_that_was_deleted_leaves_the_newest_to_hand_on(
    straight: Straight, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(straight.folder, tmp_path / "run"))
    unfinish(folder / "01-sft")
    checkpoints = folder / "01-sft" / "checkpoints"
    newest = checkpoints / "000040"
    state = json.loads((newest / "state.json").read_text())
    saved = Checkpoints(checkpoints)
    with saved.start(40) as new:
        _with_state(newest, new, {**state, "best": [20, 1.0]})
    saved.complete(40)
    said = whet("run", straight.file, "--out", folder, "--resume")
    assert said.code == 0, said.err
    assert RunStore.view(folder / "01-sft").summary()["model"] == "checkpoints/000040"


TASK = Path(__file__).with_name("finished.py")
SAMPLED = """kind = "rl"
seed = 6
model = {{ path = "{folder}/03-sft" }}
task = "{task}:Finished"
steps = 8
problems_per_step = 6
group_size = 4
sampling = {{ max_tokens = 24 }}
algo = {{ name = "game24", num_minibatches = 2, importance_correction = {{ rule = "truncate" }} }}
train = {{ lr = 3e-4 }}
validation = {{ every = 4, samples = 1 }}
save = {{ every = 2, keep = 9 }}
"""
SETTINGS = {
    "refill": (
        "--dynamic_sampling.max_extra_problems",
        "5",
        "--dynamic_sampling.first_samples",
        "2",
        "--dynamic_sampling.mask_unfinished",
        "true",
    ),
    "band": ("--curriculum", '{ kind = "band", low = 0.3, high = 0.7, rest = 1 }'),
    "staged": (
        "--curriculum",
        '{ kind = "staged", easy_tokens = 16, stages = [{ max_level = 0.6, max_tokens = 20 }, { min_level = 0.3 }] }',
    ),
    "lag": ("--lag", "2"),
    "all": (
        "--lag",
        "2",
        "--dynamic_sampling.max_extra_problems",
        "4",
        "--curriculum",
        '{ kind = "band", low = 0.3, high = 0.7 }',
    ),
}

DID = {
    "refill": ("groups/extra", "groups/stopped"),
    "band": ("curriculum/passed_over",),
    "staged": ("curriculum/stage",),
    "lag": ("sampling/lag",),
    "all": ("sampling/lag", "groups/extra", "curriculum/passed_over"),
}
"""Metrics that show that a setting was at work in the steps that are repeated."""


@pytest.mark.parametrize("name", SETTINGS)
def test_a_cut_run_takes_the_same_steps_whatever_decides_what_is_sampled(
    tiny: Pipeline, tmp_path: Path, name: str
) -> None:
    """A checkpoint must hold all that the steps behind it depend on."""
    file = write(tmp_path / "rl.toml", SAMPLED.format(folder=tiny.folder, task=TASK))
    said = whet("rl", file, "--out", tmp_path / "run", *SETTINGS[name])
    assert said.code == 0, said.err
    expected = facts(tmp_path, ("run",))
    rows = [row for row in RunStore.view(tmp_path / "run").metrics() if "groups/equal" in row]
    idle = [metric for metric in DID[name] if not any(row[metric] > 0 for row in rows[4:])]
    assert idle == []
    cut_after(tmp_path / "run", 4)
    said = whet("rl", file, "--out", tmp_path / "run", *SETTINGS[name], "--resume")
    assert said.code == 0 and "resuming from step 4" in said.err
    assert facts(tmp_path, ("run",)) == expected


def test_a_kill_in_the_middle_of_sampling_ahead_changes_nothing(
    tiny: Pipeline, tmp_path: Path
) -> None:
    stage = SAMPLED.format(folder=tiny.folder, task=TASK).replace(
        'kind = "rl"', '[stages.rl]\nkind = "rl"'
    )
    file = write(
        tmp_path / "pipeline.toml",
        f'kind = "run"\ntask.name = "game24"\n{stage}lag = 2\ndynamic_sampling = {{ max_extra_problems = 4, first_samples = 2 }}\n',
    )
    said = whet("run", file, "--out", tmp_path / "straight")
    assert said.code == 0, said.err
    code, _ = stop(start(file, tmp_path / "killed"), has_reached(tmp_path / "killed" / "01-rl", 5))
    assert code == -signal.SIGKILL
    said = whet("run", file, "--out", tmp_path / "killed", "--resume")
    assert said.code == 0, said.err
    assert facts(tmp_path / "killed", ("01-rl",)) == facts(tmp_path / "straight", ("01-rl",))


def _with_state(old: Path, new: Path, state: dict[str, object]) -> None:
    shutil.copytree(old, new, dirs_exist_ok=True)
    (new / "manifest.json").unlink()
    (new / "state.json").write_text(json.dumps(state))


def unfinish(folder: Path) -> None:
    """Make a stage look like one that was killed after its last checkpoint."""
    (folder / "summary.json").unlink()
    seen = json.loads((folder / "stage.json").read_text())
    (folder / "stage.json").write_text(json.dumps({"key": seen["key"], "spent": seen["spent"]}))
