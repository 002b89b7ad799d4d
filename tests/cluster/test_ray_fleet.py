"""Native engines on the nodes of a Ray cluster: the answers of one process, whatever is killed."""

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from small import Pipeline, whet, write

from whet.store.run import RunStore

sys.path.append(str(Path(__file__).parents[1] / "recipes"))
from test_rl_fleet import assert_same_rollouts

ray = pytest.importorskip("ray", reason="ray is not installed (make test-cluster installs it)")
pytestmark = [pytest.mark.cluster, pytest.mark.filterwarnings("ignore")]

RL = """kind = "rl"
task.name = "game24"
problems = "{folder}/01-problems"
model = {{ path = "{folder}/03-sft" }}
seed = 3
steps = {steps}
lag = 1
problems_per_step = 13
group_size = 8
sampling = {{ max_tokens = 24 }}
reward = {{ weights = {{ finished = 1.0, lines = -0.1 }} }}
algo = {{ kl_coef = 0.001, num_minibatches = 2 }}
train = {{ lr = 2e-4, warmup_steps = 2 }}
validation = {{ every = 0 }}
save = {{ every = 100 }}
engine = {{ max_num_seqs = 16 }}
"""


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """Three nodes of one processor each, besides the head."""
    from ray.cluster_utils import Cluster  # noqa: TID251

    os.environ["PYTHONPATH"] = str(Path(__file__).parents[2])
    args = {"num_cpus": 0, "object_store_memory": 10**8, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=args)
    for _ in range(3):
        cluster.add_node(num_cpus=1, object_store_memory=10**8)
    try:
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def native(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run in one process, one step ahead."""
    place = tmp_path_factory.mktemp("native")
    file = write(place / "rl.toml", RL.format(folder=tiny.folder, steps=6))
    said = whet("rl", file, "--out", place / "run")
    assert said.code == 0, said.err
    return place


@pytest.mark.parametrize("num_killed", [0, 1, 2])
def test_three_nodes_answer_as_one_process_with_engines_killed_in_a_batch(
    address: str,
    native: Path,
    num_killed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from whet.engine.ray_worker import RayWorker

    killed: list[str] = []
    submit = RayWorker.submit

    def submit_and_kill(self: RayWorker, call: int, requests: list) -> None:  # type: ignore[type-arg]
        submit(self, call, requests)
        if call >= 3 and self.name not in killed and len(killed) < num_killed:
            killed.append(self.name)
            os.kill(self.pid, 9)

    monkeypatch.setattr(RayWorker, "submit", submit_and_kill)
    flags = ["--engine.kind", "fleet", "--engine.workers", 3, "--engine.ray", address]
    said = whet("rl", native / "rl.toml", *flags, "--engine.wait", 60, "--out", tmp_path / "run")

    assert said.code == 0, said.err
    assert_same_rollouts(native / "run", tmp_path / "run", steps=6)
    rollouts = [RunStore.view(tmp_path / "run").rollouts("train", step) for step in range(1, 7)]
    assert sum(map(len, rollouts)) == 624
    assert len(killed) == num_killed
    assert said.err.count("has died") == num_killed, said.err
    assert all(f"{name} has died" in said.err for name in killed)


def test_a_learner_waits_at_most_15_percent_of_the_time_that_engines_of_known_delay_sample(
    address: str, tiny: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import time

    from whet.engine import fleet_config
    from whet.testing.workers import SlowConfig
    from whet.train.rl_step import RLTrainer

    step = RLTrainer.step

    def slow_step(self: RLTrainer, *args: object, **named: object) -> object:
        time.sleep(1.0)
        return step(self, *args, **named)  # type: ignore[arg-type]

    # 104 answers on three engines of 20 ms each are about 0.7 s, less than an update takes.
    monkeypatch.setattr(fleet_config, "NativeConfig", partial(SlowConfig, delay=0.02))
    monkeypatch.setattr(RLTrainer, "step", slow_step)
    file = write(tmp_path / "rl.toml", RL.format(folder=tiny.folder, steps=12))
    flags = ["--engine.kind", "fleet", "--engine.workers", 3, "--engine.ray", address]
    said = whet("rl", file, *flags, "--out", tmp_path / "run")
    assert said.code == 0, said.err

    rows = [row for row in RunStore.view(tmp_path / "run").metrics() if "engine/sample_s" in row]
    waited = sum(row["time/sample"] for row in rows)
    sampled = sum(row["engine/sample_s"] for row in rows)
    print(f"waited {waited:.2f} s of {sampled:.2f} s of sampling")
    assert sampled > 12 * 104 / 3 * 0.02 * 0.9
    assert waited <= 0.15 * sampled
