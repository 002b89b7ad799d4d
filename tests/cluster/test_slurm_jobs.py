"""Generated scripts under a real Slurm of two node daemons: to the end, without a lost node, and over
two allocations."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import SlurmCluster, missing_parts, wait_for
from small import Pipeline

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(600),
    pytest.mark.skipif(bool(missing_parts()), reason=f"needs {', '.join(missing_parts())}"),
]
ROOT = Path(__file__).parents[2]
RL = """kind = "rl"
task.name = "game24"
model.path = "{model}"
problems_per_step = 4
group_size = 4
steps = {steps}
sampling = {{ max_tokens = 24, temperature = 1.0 }}
reward = {{ weights = {{ finished = 1.0, lines = -0.1 }} }}
algo.name = "grpo"
validation.every = 1000
save.every = 2
"""


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    cluster = SlurmCluster(tmp_path_factory.mktemp("slurm"))
    cluster.environ |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    yield cluster
    cluster.stop()


class Work:
    """A folder with one RL file in it, and its job."""

    def __init__(self, slurm: SlurmCluster, folder: Path, model: Path, *, steps: int) -> None:
        self.slurm, self.folder, self.steps = slurm, folder, steps
        self.file = folder / "it's mine.toml"
        self.file.write_text(RL.format(model=model, steps=steps))
        self.run = folder / "runs" / self.file.stem
        self.job = ""

    def whet(self, *words: str) -> str:
        return self.slurm.call(sys.executable, "-m", "whet", *words, cwd=self.folder)

    def submit(self, nodes: str) -> None:
        words = ["--nodes", nodes, "--gpus", "1", "--cpus", "1", "--time", "30", "--submit"]
        venv = Path(sys.executable).parents[1]
        said = self.whet("slurm", self.file.name, *words, "--venv", str(venv))
        assert "submitted as job " in said, said
        self.job = said.split()[-1]

    def trained_steps(self) -> list[int]:
        file = self.run / "metrics.jsonl"
        lines = file.read_text().splitlines() if file.is_file() else []
        rows = [json.loads(line) for line in lines if line.endswith("}")]
        return [row["step"] for row in rows if "time/step" in row]

    def wait_for_step(self, step: int) -> None:
        wait_for(lambda: step in self.trained_steps(), f"step {step}", seconds=200)

    def wait_for_end(self) -> None:
        ends = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL")
        wait_for(lambda: self.slurm.state(self.job) in ends, "the end of the job", seconds=300)
        assert self.slurm.state(self.job) == "COMPLETED", self.log()
        assert self.trained_steps() == list(range(1, self.steps + 1))

    def log(self) -> str:
        return "\n".join(file.read_text()[-3000:] for file in self.folder.glob("*.log"))

    def events(self) -> list[str]:
        lines = (self.run / "ledger.jsonl").read_text().splitlines()
        return [json.loads(line)["event"] for line in lines]


def test_a_script_for_two_nodes_runs_to_its_end_and_jobs_shows_it(
    slurm: SlurmCluster, tiny: Pipeline, tmp_path: Path
) -> None:
    work = Work(slurm, tmp_path, tiny.folder / "03-sft", steps=12)
    work.submit("2")
    work.wait_for_step(3)
    shown = work.whet("jobs")
    work.wait_for_end()
    assert f"{work.job}" in shown and "RUNNING" in shown and "it-s-mine" in shown
    assert "running, step " in shown and " of 12, " in shown and " left" in shown
    assert re.search(r"\n  \| +[3-9] +\d", shown), "the last rows of metrics"
    logs = sorted(path.name for path in work.run.glob(f"logs/slurm-{work.job}-0/*.log"))
    assert logs == ["start-0-rank-0000.log", "start-0-rank-0001.log"]


def test_a_job_near_its_end_of_time_writes_a_checkpoint_and_goes_on_in_a_new_allocation(
    slurm: SlurmCluster, tiny: Pipeline, tmp_path: Path
) -> None:
    work = Work(slurm, tmp_path, tiny.folder / "03-sft", steps=40)
    work.submit("2")
    work.wait_for_step(5)
    slurm.call("scancel", "--batch", "--signal=USR1", work.job)  # as Slurm itself does
    wait_for(lambda: "Restarts=1" in slurm.call("scontrol", "show", "job", work.job), "a requeue")
    assert "which has a checkpoint" in work.log()
    work.wait_for_end()
    assert work.events().count("resume") == 1


def test_a_job_goes_on_with_the_node_that_is_left(
    slurm: SlurmCluster, tiny: Pipeline, tmp_path: Path
) -> None:
    work = Work(slurm, tmp_path, tiny.folder / "03-sft", steps=40)
    work.submit("1:2")
    work.wait_for_step(5)
    slurm.kill_node("whet2")
    try:
        work.wait_for_end()
    finally:
        slurm.start_node("whet2")
    assert work.events().count("resume") == 1
    page = (work.run / "failure.txt").read_text()
    assert "failed first, on whet1" in page


def test_the_check_under_srun_looks_at_both_nodes(slurm: SlurmCluster, tmp_path: Path) -> None:
    wait_for(lambda: slurm.call("sinfo", "-h", "-o", "%D %t") == "2 idle", "two nodes", seconds=120)
    words = ["srun", "--nodes=2", "--ntasks-per-node=1", sys.executable, "-m", "whet"]
    said = slurm.call(*words, "cluster", "check", cwd=tmp_path)
    assert "2 nodes reported; faults: 0" in said, said
    assert "whet1" in said and "whet2" in said
    assert list(tmp_path.iterdir()) == []
