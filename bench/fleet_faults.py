"""Faults of a streamed run on a fleet, at random moments: each planned group is trained once.

    python bench/fleet_faults.py --out runs/faults --faults 50 --seed 0

A run of 10 steps streams groups from two workers. At a random moment comes one fault:

    engine kill      SIGKILL of a worker; the run goes on
    learner kill     SIGKILL of the learner, then --resume
    hang             SIGSTOP of a worker; the run goes on after engine.wait
    full disk        the run folder is on a small tmpfs, which is filled up; the run ends with a
                     sentence; then there is room again, and --resume
    cut checkpoint   SIGKILL of the learner, half of a file of the newest checkpoint, then --resume
    lost node        a node of a Ray cluster is removed, with its worker; the run goes on

A trial passes if the run ends by itself in time, its ledger says that every group of the plan was
trained once, and this is what the stored rollouts hold, none older than `lag`. Full disks need
root, lost nodes Ray; without them these faults are left out, which the last line says.
"""

import argparse
import importlib.util
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))  # whet need not be installed

from whet.rollout.stream_plan import read_stream
from whet.store.run import RunStore

ROOT = Path(__file__).parents[1]
STEPS, PER_STEP, GROUP, LAG = 10, 4, 4, 2
WAIT = 30.0
"""Seconds of silence after which a worker counts as lost; it may take as long to start."""
DEADLINE = 240.0
"""Seconds that a run, or what is left of one, may take; it takes about ten alone on a core."""
ORPHAN_SECONDS = WAIT
"""How long workers may outlive a learner that was killed: one that is still loading notices when it
has loaded."""
DISK = "24M"
START = """kind = "run"
task.name = "game24"
seed = 3
[stages.problems]
kind = "make"
most = { sft = 64, rl = 64, dev = 8, test = 0 }
[stages.traces]
kind = "teach"
problems = "@problems"
per_problem = 2
workers = 1
[stages.sft]
kind = "sft"
data = "@traces"
steps = 30
batch_size = 32
model = { new = "tiny", positions = 64 }
train = { lr = 5e-3, warmup_steps = 5 }
sampling = { max_tokens = 40 }
"""
RL = f"""kind = "rl"
task.name = "game24"
problems = "{{start}}/01-problems"
model = {{{{ path = "{{start}}/03-sft" }}}}
seed = {{seed}}
steps = {STEPS}
lag = {LAG}
stream = true
problems_per_step = {PER_STEP}
group_size = {GROUP}
sampling = {{{{ max_tokens = 40 }}}}
reward = {{{{ weights = {{{{ finished = 1.0, lines = -0.1 }}}} }}}}
algo = {{{{ importance_correction = {{{{ rule = "truncate" }}}} }}}}
train = {{{{ lr = 1e-3 }}}}
validation = {{{{ every = 4, samples = 1 }}}}
save = {{{{ every = 2 }}}}
engine = {{{{ kind = "fleet", workers = 2, max_num_seqs = 4, wait = {WAIT} }}}}
"""


@dataclass(slots=True, kw_only=True, eq=False)
class Trial:
    """One run with one fault: when it comes, and what was found wrong."""

    number: int
    kind: str
    folder: Path
    file: Path
    step: int
    delay: float
    draws: random.Random
    flags: tuple[str, ...] = ()
    slowest: float = 0.0
    notes: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    process: subprocess.Popen[bytes] | None = None
    began: float = 0.0

    def start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "whet", "rl", str(self.file), *self.flags]
        command += ["--out", str(self.folder), "--resume"]
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        with self.log.open("ab") as log:
            self.began = time.monotonic()
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env=environment, start_new_session=True
            )
        return self.process

    @property
    def log(self) -> Path:
        return self.file.with_suffix(".log")

    def await_moment(self) -> None:
        """Wait for the moment of the fault: some time after a step, or for 0 after a worker was
        started; or the end of the run."""
        assert self.process is not None
        ledger = self.folder / "ledger.jsonl"
        word = f'"event":"stream","step":{self.step},'.encode()
        while self.process.poll() is None and self.seconds < DEADLINE:
            if not self.step and (find_workers(self.process.pid) or self.flags):
                break
            if self.step and ledger.is_file() and word in ledger.read_bytes():
                break
            time.sleep(0.005)
        time.sleep(self.delay)

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def finish(self, *, code: int | None = 0) -> None:
        """Wait for the run; an end after the deadline, or with another code, is wrong."""
        assert self.process is not None
        try:
            ended = self.process.wait(max(0.0, DEADLINE - self.seconds))
        except subprocess.TimeoutExpired:
            self.wrong.append(f"still ran after {DEADLINE:g} s")
            os.killpg(self.process.pid, signal.SIGKILL)
            ended = self.process.wait()
        self.slowest = max(self.slowest, self.seconds)
        if code is not None and ended != code:
            self.wrong.append(f"ended with code {ended}, not {code}")

    def kill_learner(self) -> None:
        """Kill the learner alone; its workers have to end by themselves."""
        assert self.process is not None
        workers = find_workers(self.process.pid)
        self.process.kill()
        ended = self.process.wait()
        self.notes.append(f"killed, code {ended}, with {len(workers)} workers")
        until = time.monotonic() + ORPHAN_SECONDS
        while any(is_running(pid) for pid in workers) and time.monotonic() < until:
            time.sleep(0.05)
        for pid in filter(is_running, workers):
            self.wrong.append(f"worker {pid} outlived its learner")
            os.kill(pid, signal.SIGKILL)


def main(options: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--faults", type=int, default=50)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", help="one kind of fault")
    args = parser.parse_args(options)
    out = args.out.absolute()
    prepare(out)
    with open_ray() as ray:
        kinds = {"lost node": ray.lose_node} if ray is not None else {}
        kinds |= {"full disk": fill_disk} if os.geteuid() == 0 else {}
        kinds |= FAULTS
        left_out = [kind for kind in ("full disk", "lost node") if kind not in kinds]
        chosen = [args.only] if args.only else sorted(kinds)
        trials = draw(out, args.faults, args.seed, chosen)
        for trial in trials:
            if trial.kind == "lost node" and ray is not None:
                trial.flags = ("--engine.ray", ray.address)
            run_trial(trial, kinds[trial.kind])
    passed = sum(not trial.wrong for trial in trials)
    counts = Counter(trial.kind for trial in trials)
    print(
        f"{passed} of {len(trials)} faults passed "
        f"({', '.join(f'{count} {kind}' for kind, count in sorted(counts.items()))}; left out: "
        f"{', '.join(left_out) or 'none'}); the slowest run took "
        f"{max(trial.slowest for trial in trials):.0f} s of {DEADLINE:g}"
    )
    return 0 if passed == len(trials) else 1


def draw(out: Path, count: int, seed: int, kinds: Sequence[str]) -> list[Trial]:
    """Draw the moments; kinds come in turn, so that there are as many of each."""
    draws = random.Random(seed)
    return [
        Trial(
            number=number,
            kind=kinds[number % len(kinds)],
            folder=out / f"run-{number}",
            file=out / f"run-{number}.toml",
            step=draws.randrange(STEPS),
            delay=draws.uniform(0.0, 0.3),
            draws=random.Random(draws.random()),
        )
        for number in range(count)
    ]


def run_trial(trial: Trial, fault: Callable[[Trial], None]) -> None:
    start = trial.file.parent / "start"
    trial.file.write_text(RL.format(start=start, seed=trial.number))
    trial.log.unlink(missing_ok=True)
    shutil.rmtree(trial.folder, ignore_errors=True)
    fault(trial)
    trial.wrong += list(check(trial.folder))
    if b"Traceback" in trial.log.read_bytes():
        trial.wrong.append("printed a traceback")
    words = "; ".join(trial.wrong) or "each group once"
    moment = f"{trial.delay:.2f} s after step {trial.step}"
    notes = f" ({'; '.join(trial.notes)})" if trial.notes else ""
    print(f"{trial.number + 1:>3} {trial.kind} {moment}{notes}: {words}", flush=True)
    if not trial.wrong:
        shutil.rmtree(trial.folder)


def check(folder: Path) -> Iterator[str]:
    """Say what is wrong with a run that has ended."""
    if not (folder / "summary.json").is_file():
        yield "has no summary"
        return
    run = RunStore.view(folder)
    ledger = read_stream(run.events())
    if ledger.twice:
        yield f"trained twice: {ledger.twice}"
    if missing := set(range(STEPS * PER_STEP)) - ledger.trained.keys():
        yield f"never trained: {sorted(missing)}"
    seen: set[str] = set()
    for step in range(1, STEPS + 1):
        rollouts = run.rollouts("train", step)
        numbers = {int(rollout.group_id.rpartition(":")[2]) for rollout in rollouts}
        if numbers != {number for number, at in ledger.trained.items() if at == step}:
            yield f"the rollouts of step {step} are not those of the ledger"
        if seen & {rollout.id for rollout in rollouts} or len(rollouts) != PER_STEP * GROUP:
            yield f"step {step} has answers of other steps, or not all"
        seen |= {rollout.id for rollout in rollouts}
        if max(step - 1 - rollout.completion.policy_version for rollout in rollouts) > LAG:
            yield f"step {step} trained on answers older than lag = {LAG}"
    if [int(row["step"]) for row in run.metrics() if "time/step" in row] != [*range(1, STEPS + 1)]:
        yield "the metrics are not of each step once"


def kill_engine(trial: Trial) -> None:
    trial.start()
    trial.await_moment()
    signal_worker(trial, signal.SIGKILL)
    trial.finish()


def hang_engine(trial: Trial) -> None:
    trial.start()
    trial.await_moment()
    signal_worker(trial, signal.SIGSTOP)
    trial.finish()


def kill_learner(trial: Trial) -> None:
    trial.start()
    trial.await_moment()
    trial.kill_learner()
    trial.start()
    trial.finish()


def cut_checkpoint(trial: Trial) -> None:
    trial.start()
    trial.await_moment()
    trial.kill_learner()
    folders = sorted(trial.folder.glob("checkpoints/[0-9]*"))
    if folders and not (trial.folder / "summary.json").exists():
        files = [path for path in sorted(folders[-1].rglob("*")) if path.is_file()]
        file = trial.draws.choice(files)
        os.truncate(file, file.stat().st_size // 2)
        trial.notes.append(f"cut {file.relative_to(trial.folder / 'checkpoints')}")
    trial.start()
    trial.finish()


def fill_disk(trial: Trial) -> None:
    trial.folder.mkdir(parents=True)
    disk = str(trial.folder)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK}", "tmpfs", disk], check=True)
    kept = trial.folder.with_name(f"{trial.folder.name}-kept")
    try:
        process = trial.start()
        trial.await_moment()
        filler = trial.folder / ".filler.new"
        fill(filler)
        trial.finish(code=None)
        last = trial.log.read_text().strip().rpartition("\n")[2]
        is_full = process.returncode != 0
        if is_full and "No space left" not in last and "no space left" not in last:
            trial.wrong.append(f"did not say that the disk is full: {last}")
        trial.notes.append("ended: " + last[:60] if is_full else "was done already")
        filler.unlink(missing_ok=True)
        trial.start()
        trial.finish()
        shutil.rmtree(kept, ignore_errors=True)
        shutil.copytree(trial.folder, kept)
    finally:
        subprocess.run(["umount", "-l", disk], check=True)
    trial.folder.rmdir()
    kept.rename(trial.folder)


def fill(file: Path) -> None:
    """Write until there is no room."""
    try:
        with file.open("wb", buffering=0) as output:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while output.write(bytes(size)) == size:
                        pass
                except OSError:
                    continue
    except OSError:
        return


FAULTS: dict[str, Callable[[Trial], None]] = {
    "engine kill": kill_engine,
    "learner kill": kill_learner,
    "hang": hang_engine,
    "cut checkpoint": cut_checkpoint,
}


def signal_worker(trial: Trial, number: signal.Signals) -> None:
    """Send a signal to one of the workers, if there are some at that moment."""
    assert trial.process is not None
    workers = find_workers(trial.process.pid)
    if workers:
        os.kill(trial.draws.choice(workers), number)
    else:
        trial.notes.append("no worker ran")


def find_workers(learner: int) -> list[int]:
    """List the worker processes that a learner has started."""
    workers = []
    for children in Path(f"/proc/{learner}/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:
            continue
        for pid in pids:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"process_worker" in words:
                workers.append(int(pid))
    return workers


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


class RayNodes:
    """A Ray cluster of a head and three nodes of one processor."""

    def __init__(self) -> None:
        from ray.cluster_utils import Cluster  # noqa: TID251 - optional

        os.environ["PYTHONPATH"] = str(ROOT)
        head = {"num_cpus": 0, "object_store_memory": 10**8, "include_dashboard": False}
        self.cluster = Cluster(initialize_head=True, head_node_args=head)
        self.nodes = [self._add() for _ in range(3)]
        self.address = self.cluster.address

    def _add(self) -> object:
        return self.cluster.add_node(num_cpus=1, object_store_memory=10**8)

    def lose_node(self, trial: Trial) -> None:
        trial.start()
        trial.await_moment()
        lost = self.nodes.pop(trial.draws.randrange(len(self.nodes)))
        self.cluster.remove_node(lost, allow_graceful=False)
        trial.finish()
        self.nodes.append(self._add())

    def close(self) -> None:
        self.cluster.shutdown()


@contextmanager
def open_ray() -> Iterator[RayNodes | None]:
    if importlib.util.find_spec("ray") is None:
        yield None
        return
    nodes = RayNodes()
    try:
        yield nodes
    finally:
        nodes.close()


def prepare(out: Path) -> None:
    """Make the problems and the model that all runs start from."""
    out.mkdir(parents=True, exist_ok=True)
    (out / "start.toml").write_text(START)
    command = [sys.executable, "-m", "whet", "run", str(out / "start.toml")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    with (out / "start.log").open("ab") as log:
        subprocess.run(
            [*command, "--out", str(out / "start"), "--resume"],
            stdout=log,
            stderr=log,
            env=environment,
            check=True,
        )


if __name__ == "__main__":
    sys.exit(main())
