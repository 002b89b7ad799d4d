"""RL on a stream of groups: the planned groups once each, also after kills; what is refused."""

import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from small import Pipeline, check_metrics, cut_after, whet, write

from whet.rollout.stream_plan import read_ranges, read_stream
from whet.store.run import RunStore

RL = """kind = "rl"
task.name = "game24"
problems = "{folder}/01-problems"
model = {{ path = "{folder}/03-sft" }}
seed = 5
steps = {steps}
lag = 2
stream = true
problems_per_step = 4
group_size = 4
sampling = {{ max_tokens = 24 }}
reward = {{ weights = {{ finished = 1.0, lines = -0.1 }} }}
curriculum = {{ kind = "band" }}
algo = {{ importance_correction = {{ rule = "truncate" }} }}
train = {{ lr = 1e-3 }}
validation = {{ every = 3, samples = 1 }}
save = {{ every = 2 }}
engine = {{ kind = "fleet", workers = 2, max_num_seqs = 8 }}
"""


def assert_trained_as_planned(folder: Path, *, steps: int) -> None:
    """Check the ledger, and that it says what the stored rollouts do."""
    run = RunStore.view(folder)
    ledger = read_stream(run.events())
    assert ledger.is_complete(4 * steps)
    for step in range(1, steps + 1):
        rollouts = run.rollouts("train", step)
        numbers = {int(rollout.group_id.rpartition(":")[2]) for rollout in rollouts}
        assert numbers == {number for number, at in ledger.trained.items() if at == step}
        assert len(rollouts) == 16 and len({rollout.id for rollout in rollouts}) == 16
        ages = [step - 1 - rollout.completion.policy_version for rollout in rollouts]
        assert min(ages) >= 0 and max(ages) <= 2
    assert run.summary()["stream"] == {
        "planned": 4 * steps,
        "trained": 4 * steps,
        "trained_twice": 0,
        "dropped": ledger.num_dropped,
    }


def test_a_stream_trains_the_planned_groups_once_also_after_a_resume(
    tiny: Pipeline, tmp_path: Path
) -> None:
    file = write(tmp_path / "rl.toml", RL.format(folder=tiny.folder, steps=6))
    said = whet("rl", file, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert_trained_as_planned(tmp_path / "run", steps=6)
    check_metrics(tmp_path / "run", "rl")
    rows = [row for row in RunStore.view(tmp_path / "run").metrics() if "stream/age" in row]
    assert len(rows) == 6 and all(row["engine/sample_s"] >= 0 for row in rows)
    assert all(0 <= row["stream/overlap"] <= 1 for row in rows)

    cut_after(tmp_path / "run", 4)
    said = whet("rl", file, "--out", tmp_path / "run", "--resume")
    assert said.code == 0, said.err
    assert_trained_as_planned(tmp_path / "run", steps=6)
    before, after = (
        [row for row in RunStore.view(tmp_path / "run").events() if row["event"] == "stream"][part]
        for part in (slice(6), slice(6, None))
    )
    assert [row["step"] for row in before] == [1, 2, 3, 4, 5, 6]
    assert [row["step"] for row in after] == [5, 6], "rows are only added"


def test_a_stream_that_is_killed_goes_on_with_no_group_trained_twice(
    tiny: Pipeline, tmp_path: Path
) -> None:
    file = write(tmp_path / "rl.toml", RL.format(folder=tiny.folder, steps=12))
    command = [sys.executable, "-m", "whet", "rl", file, "--out", tmp_path / "run", "--resume"]
    run = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    ledger = tmp_path / "run" / "ledger.jsonl"
    while run.poll() is None and not (ledger.exists() and b'"step":5' in ledger.read_bytes()):
        time.sleep(0.01)
    os.killpg(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    said = whet("rl", file, "--out", tmp_path / "run", "--resume")
    assert said.code == 0, said.err
    assert_trained_as_planned(tmp_path / "run", steps=12)
    rows = [row for row in RunStore.view(tmp_path / "run").events() if row["event"] == "stream"]
    asked = [read_ranges(str(row["asked"])) for row in rows]
    back = next(n for n, (one, other) in enumerate(pairwise(rows)) if other["step"] <= one["step"])
    assert asked[back + 1], "what was in flight is asked again"


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (("--engine.kind", "native"), "stream"),
        (("--engine.placement", "collocated"), "stream"),
        (("--lag", "0"), "lag = 0 trains only on responses of the current weights"),
        (
            ("--dynamic_sampling.first_samples", "2"),
            "dynamic_sampling.first_samples decide on a step",
        ),
        (("--dynamic_sampling.max_extra_problems", "2"), "dynamic_sampling.max_extra_problems and"),
        (("--final_temperature", "0.5"), "leave out final_temperature"),
    ],
)
def test_a_stream_that_would_have_no_effect_or_could_not_be_is_refused_in_a_sentence(
    tiny: Pipeline, tmp_path: Path, flags: tuple[str, ...], reason: str
) -> None:
    text = RL.format(folder=tiny.folder, steps=4)
    if "native" in flags:
        text, flags = text.replace('kind = "fleet", workers = 2, ', ""), ()
        reason = "the engine does not have its own weights and devices"
    if "collocated" in flags:
        reason = "unless collocated"
    file = write(tmp_path / "rl.toml", text)
    said = whet("rl", file, *flags, "--out", tmp_path / "run")
    assert said.code == 2 and reason in said.last, said.last
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
