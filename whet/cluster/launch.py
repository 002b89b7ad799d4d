"""Start one process per GPU: parse `--gpus` and `--nodes`, and find where nodes meet.

torch's elastic agent (`agent.py`) starts, watches and restarts the processes; this module does not
import torch.
"""

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass

from whet.errors import ConfigError

RANK_VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
FIRST_PORT = 20_000
NUM_PORTS = 10_000
"""Ports that jobs meet on, below those that Linux hands out to clients."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """The number of processes and nodes, and where the nodes meet."""

    gpus: int
    min_nodes: int
    max_nodes: int
    restarts: int
    rendezvous: str | None
    """HOST:PORT where the nodes meet; None on one node."""
    is_host: bool | None
    """Whether this node is the one they meet on; None lets torch compare host names."""
    id: str
    """The id of this run: the same on every node, and different from any other run's."""

    @property
    def is_alone(self) -> bool:
        """Whether the layout is a single process on one node, which needs no launcher."""
        return self.gpus == self.max_nodes == 1


def is_rank(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether torchrun, or whet's own launcher, started this process."""
    return all(name in environ for name in RANK_VARIABLES)


def parse_layout(
    gpus: int,
    nodes: str,
    *,
    rendezvous: str | None = None,
    restarts: int = 3,
    environ: Mapping[str, str] = os.environ,
) -> Launch:
    """Parse `--gpus 8 --nodes 2:4`; under Slurm, nodes meet at the first one of the job."""
    min_nodes, max_nodes = parse_nodes(nodes)
    meeting = None
    if max_nodes > 1:
        meeting = rendezvous or find_rendezvous(environ)
        if not re.fullmatch(r"[\w.-]+:\d{1,5}", meeting):
            raise ConfigError(f"--rendezvous {meeting!r} should be HOST:PORT, such as node1:29500")
    if "SLURM_JOB_ID" in environ:
        name = f"slurm-{environ['SLURM_JOB_ID']}-{environ.get('SLURM_RESTART_COUNT', '0')}"
    else:
        now = f"{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
        name = re.sub(r"\W", "-", meeting) if meeting else now
    node = environ.get("SLURM_NODEID")
    return Launch(
        gpus=gpus,
        min_nodes=min_nodes,
        max_nodes=max_nodes,
        restarts=restarts,
        rendezvous=meeting,
        is_host=None if meeting is None or node is None else node == "0",
        id=name,
    )


def parse_nodes(nodes: str) -> tuple[int, int]:
    """Parse a number of nodes, or the fewest and the most.

    >>> parse_nodes("2:4")
    (2, 4)
    """
    match = re.fullmatch(r"(\d{1,5})(?::(\d{1,5}))?", nodes, re.ASCII)
    low = int(match[1]) if match else 0
    high = int(match[2] or low) if match else 0
    if not 1 <= low <= high:
        raise ConfigError(f"--nodes {nodes!r} should be a number such as 4, or MIN:MAX such as 2:4")
    return low, high


def find_rendezvous(environ: Mapping[str, str]) -> str:
    """Derive HOST:PORT from Slurm's variables: the first node, and a port that the job decides."""
    nodes = environ.get("SLURM_STEP_NODELIST") or environ.get("SLURM_JOB_NODELIST")
    job = environ.get("SLURM_JOB_ID", "")
    if not nodes or not job.isdigit():
        raise ConfigError(
            "--nodes above 1 needs a rendezvous: start the command on every node with "
            "--rendezvous HOST:PORT of one of them, or under srun"
        )
    return f"{first_host(nodes)}:{FIRST_PORT + int(job) % NUM_PORTS}"


def first_host(nodes: str) -> str:
    """Expand the first name of a Slurm node list.

    >>> first_host("gpu[007-012,20],login1"), first_host("a1,a2")
    ('gpu007', 'a1')
    """
    match = re.match(r"([^,\[]+)(?:\[(\w+)[^\]]*\]([^,\[]*))?", nodes)
    return f"{match[1]}{match[2] or ''}{match[3] or ''}" if match else nodes


def check_gpus(gpus: int, num_visible: int, environ: Mapping[str, str] = os.environ) -> str | None:
    """Refuse more processes than GPUs; without GPUs, return a sentence about the CPU."""
    if num_visible == 0:
        return f"no GPU here: {gpus} {'process' if gpus == 1 else 'processes'} on the CPU over gloo"
    if gpus > num_visible:
        visible = environ.get("CUDA_VISIBLE_DEVICES")
        why = f" (CUDA_VISIBLE_DEVICES={visible})" if visible is not None else ""
        raise ConfigError(f"--gpus {gpus}, but this machine shows {num_visible}{why}")
    return None


def divide_threads(gpus: int, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Divide the cores among the processes, unless the user has set the number of threads."""
    if "OMP_NUM_THREADS" in environ:
        return {}
    return {"OMP_NUM_THREADS": str(max(1, len(os.sched_getaffinity(0)) // gpus))}
