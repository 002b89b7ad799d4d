"""RL on a fleet: sampling one step ahead, in other processes, gives the answers of one process."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from small import Pipeline, cut_after, whet, write

from whet.store.run import RunStore

RL = """kind = "rl"
task.name = "game24"
problems = "{folder}/01-problems"
model = {{ path = "{folder}/03-sft" }}
seed = 5
steps = 4
lag = 1
problems_per_step = 4
group_size = 4
sampling = {{ max_tokens = 24 }}
reward = {{ weights = {{ finished = 1.0, lines = -0.1 }} }}
dynamic_sampling = {{ max_extra_problems = 2 }}
curriculum = {{ kind = "band" }}
train = {{ lr = 1e-3 }}
validation = {{ every = 2, samples = 1 }}
save = {{ every = 2 }}
"""
FLEET = ("--engine.kind", "fleet", "--engine.workers", 2, "--engine.max_num_seqs", 8)


def assert_same_rollouts(one: Path, other: Path, steps: int) -> None:
    for step in range(1, steps + 1):
        pair = [RunStore.view(folder).rollouts("train", step) for folder in (one, other)]
        left, right = ({rollout.id: rollout for rollout in rollouts} for rollouts in pair)
        assert left.keys() == right.keys() and left
        for id, rollout in left.items():
            np.testing.assert_array_equal(rollout.completion.tokens, right[id].completion.tokens)
            # Prompts are computed together in batches of other shapes, which round differently.
            np.testing.assert_allclose(
                rollout.completion.logprobs, right[id].completion.logprobs, rtol=0, atol=1e-4
            )
            assert rollout.completion.policy_version == right[id].completion.policy_version


def test_a_lag_that_overlaps_has_the_answers_of_one_process_also_after_a_resume(
    tiny: Pipeline, tmp_path: Path
) -> None:
    file = write(tmp_path / "rl.toml", RL.format(folder=tiny.folder))
    assert whet("rl", file, "--out", tmp_path / "native").code == 0

    said = whet("rl", file, *FLEET, "--out", tmp_path / "fleet")
    assert said.code == 0, said.err
    assert_same_rollouts(tmp_path / "native", tmp_path / "fleet", steps=4)
    cut_after(tmp_path / "fleet", 2)
    said = whet("rl", file, *FLEET, "--out", tmp_path / "fleet", "--resume")
    assert said.code == 0, said.err
    assert_same_rollouts(tmp_path / "native", tmp_path / "fleet", steps=4)
    rows = [row for row in RunStore.view(tmp_path / "fleet").metrics() if "time/sample" in row]
    assert len(rows) == 4 and all(row["engine/sample_s"] > 0 for row in rows[:1])


def test_an_evaluation_takes_a_fleet_by_settings_and_gives_the_same_answers(
    tiny: Pipeline, tmp_path: Path
) -> None:
    text = f'''kind = "eval"
task = {{ name = "game24" }}
model = {{ path = "{tiny.folder}/03-sft" }}
problems = "{tiny.folder}/01-problems"
split = "dev"
samples = 1
sampling = {{ max_tokens = 12 }}
'''
    file = write(tmp_path / "eval.toml", text)
    for name, flags in (("native", ()), ("fleet", FLEET)):
        said = whet("eval", file, *flags, "--out", tmp_path / name)
        assert said.code == 0, said.err
    one, other = (
        [r.completion.tokens.tolist() for r in RunStore.view(tmp_path / name).rollouts("eval", 0)]
        for name in ("native", "fleet")
    )
    assert one == other and one


def test_without_ray_a_fleet_on_ray_is_refused_in_a_sentence(
    tiny: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "whet.engine.ray_worker", raising=False)
    file = write(tmp_path / "rl.toml", RL.format(folder=tiny.folder))
    said = whet("rl", file, *FLEET, "--engine.ray", "auto", "--out", tmp_path / "run")
    assert said.code == 2
    assert "engine.ray needs the package ray, which is not installed: pip install" in said.last


def test_nothing_of_ray_or_vllm_is_imported_unless_a_setting_names_it() -> None:
    code = "import sys, whet.recipes.rl; print([n for n in ('ray', 'vllm') if n in sys.modules])"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert printed.stdout == "[]\n", printed.stderr
