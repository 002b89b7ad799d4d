"""Write, check and submit a Slurm job with one launcher per node. The job stops with a checkpoint
before its time is up, and resumes in the next allocation."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.cluster.launch import FIRST_PORT, NUM_PORTS, parse_nodes
from whet.errors import ConfigError
from whet.store.files import write_atomic

_MARK = "# Written by `whet slurm`; write it again rather than edit it."
LEAD_SECONDS = 600
"""The checkpoint may take this long at the end of the job's time, or a quarter of that time."""
MAX_REQUEUES = 100
TOOL_SECONDS = 60
"""How long to wait for bash, sbatch and squeue."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What to run, on how many nodes, how long, and in which environment."""

    command: str
    """The command of whet: rl, run, …"""
    file: Path
    settings: Sequence[str]
    """Changed settings, such as --train.lr 1e-6."""
    folder: Path
    """Where the job runs; paths in the file are relative to it."""
    nodes: str
    gpus: int
    cpus: int
    """Processor cores for each GPU."""
    time: str
    partition: str | None = None
    sbatch: Sequence[str] = ()
    """More options of sbatch, such as --account=name."""
    container: Sequence[str] = ()
    """docker or apptainer, and the image."""
    venv: Path | None = None
    conda: str | None = None

    @property
    def name(self) -> str:
        """The name of the file, in characters that never need quoting."""
        return re.sub(r"[^\w.-]+", "-", self.file.stem, flags=re.ASCII).strip("-.") or "whet"


def write_script(job: Job) -> str:
    """Return the text of the sbatch script."""
    low, high = parse_nodes(job.nodes)
    is_elastic = low < high
    seconds = parse_time(job.time)
    options = [
        f"--job-name={job.name}",
        f"--nodes={high}",
        "--ntasks-per-node=1",
        f"--gpus-per-node={job.gpus}",
        f"--cpus-per-task={job.gpus * job.cpus}",
        f"--time={job.time}",
        "--output=%x-%j.log",
        "--open-mode=append",
        "--requeue",
        f"--signal=B:USR1@{min(LEAD_SECONDS, seconds // 4)}",
        *(["--exclusive", "--mem=0"] if high > 1 else []),
        *(["--no-kill"] if is_elastic else []),
        *([f"--partition={_plain('--partition', job.partition)}"] if job.partition else []),
        *(_sbatch_option(option) for option in job.sbatch),
    ]
    words = ["-m", "whet", job.command, str(job.file), *job.settings, "--resume"]
    words += ["--gpus", str(job.gpus), "--nodes", job.nodes]
    lines = ["#!/bin/bash", *(f"#SBATCH {option}" for option in options), _MARK, "set -u"]
    lines.append(f"cd -- {shlex.quote(str(job.folder))} || exit 2")
    if job.conda is not None:
        lines.append('source "$(conda info --base)/etc/profile.d/conda.sh"')
        lines.append(f"conda activate {shlex.quote(job.conda)} || exit 2")
    return "\n".join(lines) + _BODY.format(
        first=FIRST_PORT,
        count=NUM_PORTS,
        requeues=MAX_REQUEUES,
        flags="--no-kill --kill-on-bad-exit=0" if is_elastic else "--kill-on-bad-exit=0",
        command=f"{_spell_python(job)} {shlex.join(words)}",
    )


_BODY = """
# The nodes meet on the first one, at a port of this job's own.
head=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)
address=$(sinfo --noheader --nodes="$head" --format=%o | head -n 1)
port=$(({first} + SLURM_JOB_ID % {count}))

# Before the time is up: a checkpoint, then the queue again. SIGTERM is for the launchers.
stopped=
stop() {{
    stopped=yes
    scancel --signal=TERM "$SLURM_JOB_ID"
}}
trap stop USR1
trap : TERM

srun --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" {flags} \\
    {command} --rendezvous "${{address:-$head}}:$port" &
step=$!
code=0
while kill -0 "$step" 2>/dev/null; do
    wait "$step"
    code=$?
done
if [ -n "$stopped" ] && [ "${{SLURM_RESTART_COUNT:-0}}" -lt {requeues} ]; then
    scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
"""


def _spell_python(job: Job) -> str:
    """Write the job's Python for bash: that of a virtual environment, a container, or the path."""
    if sum([bool(job.container), job.venv is not None, job.conda is not None]) > 1:
        raise ConfigError("choose one of --container, --venv and --conda")
    if job.venv is not None:
        python = job.venv / "bin" / "python"
        if not python.exists():
            raise ConfigError(f"--venv {job.venv}: there is no {python}")
        return shlex.quote(str(python))
    if not job.container:
        return "python"
    kind, image = job.container
    if kind not in CONTAINERS:
        raise ConfigError(f"--container {kind!r} should be docker or apptainer, then an image")
    return f"{CONTAINERS[kind]} {shlex.quote(image)} python"


CONTAINERS = {
    "docker": "docker run --rm --init --gpus all --network host --ipc host --ulimit memlock=-1 "
    "--env SLURM_JOB_ID --env SLURM_NODEID --env SLURMD_NODENAME --env SLURM_RESTART_COUNT "
    '--user "$(id -u):$(id -g)" --volume "$PWD:$PWD" --workdir "$PWD"',
    "apptainer": 'apptainer exec --nv --bind "$PWD" --pwd "$PWD"',
}
"""How a command runs in a container that sees the GPUs, the network and the job's folder."""


def parse_time(text: str) -> int:
    """Return the seconds of a time limit in Slurm's format.

    >>> parse_time("1-12:00:00"), parse_time("90")
    (129600, 5400)
    """
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?", text, re.ASCII)
    if match is None:
        raise ConfigError(f"--time {text!r} should be minutes, hours:minutes:seconds or days-hours")
    days, *parts = match.groups()
    numbers = [int(part) for part in parts if part is not None]
    if days is None and len(numbers) < 3:
        numbers = [0, *numbers]  # minutes come first
    numbers += [0] * (3 - len(numbers))
    seconds = int(days or 0) * 86_400 + numbers[0] * 3600 + numbers[1] * 60 + numbers[2]
    if seconds < 60:
        raise ConfigError(f"--time {text!r} is less than a minute")
    return seconds


def _plain(flag: str, value: str) -> str:
    if not re.fullmatch(r"[\w.,:=@+/-]+", value, re.ASCII):
        raise ConfigError(f"{flag} {value!r} may contain only letters, digits and . , : = @ + / -")
    return value


def _sbatch_option(option: str) -> str:
    if not option.startswith("--"):
        raise ConfigError(f"--sbatch {option!r} should be an option such as --account=name")
    return _plain("--sbatch", option)


def save_script(text: str, path: Path) -> None:
    """Write the script, and have bash and, if it is installed, sbatch check it."""
    if path.exists() and _MARK not in path.read_text(errors="replace"):
        raise ConfigError(f"{path} exists and was not written by whet: choose another with --out")
    write_atomic(path, text)
    run_tool(["bash", "-n", str(path)])
    if shutil.which("sbatch"):
        run_tool(["sbatch", "--test-only", str(path)])


def submit_script(path: Path) -> str:
    """Hand the script to Slurm and return the job's number."""
    if not shutil.which("sbatch"):
        raise ConfigError("--submit: there is no sbatch on this machine")
    return run_tool(["sbatch", "--parsable", str(path)]).split(";")[0].strip()


def run_tool(command: Sequence[str]) -> str:
    """Run a short command and return its output; its error becomes one sentence."""
    try:
        done = subprocess.run(  # noqa: S603 - tools of Slurm and bash, words and no shell
            command, capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        raise ConfigError(f"{command[0]} did not answer within {TOOL_SECONDS} s") from None
    if done.returncode != 0:
        reason = (done.stderr or done.stdout).strip()
        raise ConfigError(f"{shlex.join(command)}: {reason or f'status {done.returncode}'}")
    return done.stdout
