"""Check every node before a run: versions, GPUs, interfaces, clocks, the shared folder.

A process on each node reports to the first node over TCP, as ranks will. Every wait has a limit.
"""

import json
import os
import platform
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from secrets import token_hex

from rich.table import Table
from rich.text import Text

from whet.cluster.launch import find_rendezvous
from whet.errors import ConfigError, visible
from whet.store.provenance import package_version
from whet.track.progress import printer, say

WAIT_SECONDS = 60.0
"""How long to wait for nodes."""
TOOL_SECONDS = 20.0
"""How long nvidia-smi and a node's answer may take; a broken driver hangs the first."""
MAX_OFFSET = 2.0
"""Seconds that clocks may differ."""
BUSY_GIB = 1.0
"""A GPU with at least this much memory in use counts as busy."""
NUM_PINGS = 5
MISSING = "not installed"
ALIKE = ("python", "torch", "whet", "driver", "gpus")
"""What should be the same on all nodes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeReport:
    """What one node reports about itself."""

    name: str
    python: str
    torch: str
    whet: str
    driver: str
    gpus: str
    interfaces: str
    faults: list[str]
    clock: float = 0.0
    """Seconds by which its clock is ahead of the first node's."""


def describe_node(name: str, folder: Path, token: str | None) -> NodeReport:
    """Describe this machine; the shared folder holds the first node's token."""
    gpus = _query_gpus()
    counts = Counter(gpu for gpu, _, _ in gpus)
    busy = [(index, gib) for index, (_, _, gib) in enumerate(gpus) if gib > BUSY_GIB]
    return NodeReport(
        name=name,
        python=platform.python_version(),
        torch=package_version("torch") or MISSING,
        whet=package_version("whet") or MISSING,
        driver=gpus[0][1] if gpus else "none",
        gpus=", ".join(f"{count} x {gpu}" for gpu, count in counts.items()) or "none",
        interfaces=", ".join(_list_interfaces()) or "none is up",
        faults=[f"somebody uses {gib:.0f} GiB of GPU {index}" for index, gib in busy]
        + _try_folder(folder, token),
    )


def _query_gpus() -> list[tuple[str, str, float]]:
    """Ask nvidia-smi for the name, driver and used GiB of every GPU."""
    query = "--query-gpu=name,driver_version,memory.used"
    try:
        text = subprocess.run(  # noqa: S603 - fixed words
            ["nvidia-smi", query, "--format=csv,noheader,nounits"],  # noqa: S607
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS,
            check=True,
        ).stdout
    except FileNotFoundError:
        return []
    except (OSError, subprocess.SubprocessError) as error:
        return [("GPU that does not answer", f"{type(error).__name__} in nvidia-smi", 0.0)]
    rows = [line.split(", ") for line in text.splitlines()]
    return [(row[0], row[1], float(row[2]) / 1024) for row in rows if len(row) == 3]


def _list_interfaces() -> list[str]:
    """List active network interfaces with their speed, and InfiniBand ports."""
    lines = []
    for path in sorted(Path("/sys/class/net").glob("*")):
        if path.name != "lo" and _read_file(path / "operstate") == "up":
            speed = _read_file(path / "speed")  # Mb/s, or -1
            lines.append(
                f"{path.name} {int(speed) / 1000:g} Gb/s" if speed.isdigit() else path.name
            )
    ports = sorted(Path("/sys/class/infiniband").glob("*/ports/*"))
    return lines + [
        f"{p.parts[-3]} {_read_file(p / 'rate')} {_read_file(p / 'phys_state')}" for p in ports
    ]


def _read_file(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def _try_folder(folder: Path, token: str | None) -> list[str]:
    """Read the first node's token and write a file; return the problem, if any."""
    deadline = time.monotonic() + TOOL_SECONDS
    while not (seen := _read_file(folder / "token")) and time.monotonic() < deadline:
        time.sleep(0.1)
    if not seen or token not in (None, seen):
        return [f"{folder.parent} is not the folder of the first node: runs need a shared one"]
    try:
        (folder / token_hex(8)).write_text(seen)
    except OSError as error:
        return [f"{folder.parent} cannot be written: {error.strerror}"]
    return []


def report_to(address: str, folder: Path, *, name: str, token: str | None) -> None:
    """Send this node's facts to the first node, and answer its requests for the time."""
    node = describe_node(name, folder, token)
    host, _, port = (_read_file(folder / "address") or address).rpartition(":")
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            link = socket.create_connection((host, int(port)), timeout=TOOL_SECONDS)
            break
        except OSError as error:
            if time.monotonic() > deadline or isinstance(error, socket.gaierror):
                raise ConfigError(f"{name} cannot reach {address}: {error}") from error
            time.sleep(0.2)
    with link, link.makefile("rw") as stream:
        print(json.dumps(asdict(node)), file=stream, flush=True)
        while stream.readline():
            print(time.time(), file=stream, flush=True)


def gather_reports(
    server: socket.socket, children: Sequence["subprocess.Popen[bytes]"], count: int
) -> list[NodeReport]:
    """Collect the reports of up to `count` nodes that arrive before the deadline."""
    nodes: list[NodeReport] = []
    deadline = time.monotonic() + WAIT_SECONDS
    server.settimeout(1.0)
    while len(nodes) + sum((child.poll() or 0) != 0 for child in children) < count:
        if time.monotonic() > deadline:
            break
        try:
            link, _ = server.accept()
            with link:
                link.settimeout(TOOL_SECONDS)
                nodes.append(_receive_report(link))
        except (
            OSError,
            ValueError,
            TypeError,
        ):  # nobody yet, a connection cut off, or not one of our nodes
            continue
    return nodes


def _receive_report(link: socket.socket) -> NodeReport:
    with link.makefile("rw") as stream:
        node = NodeReport(**json.loads(stream.readline(1_000_000)))
        samples = []
        for _ in range(NUM_PINGS):
            before = time.time()
            print("?", file=stream, flush=True)
            remote = float(stream.readline(100))
            after = time.time()
            samples.append((after - before, remote - (before + after) / 2))
    return replace(node, clock=min(samples)[1])  # the fastest reply gives the most accurate time


def find_faults(nodes: Sequence[NodeReport], expected: Sequence[str]) -> list[str]:
    """List faults: nodes that are silent, differ, are busy, or do not share the folder."""
    faults = [
        f"{name} did not report within {WAIT_SECONDS:.0f} s: it is down, cannot start whet, or "
        "cannot reach the first node"
        for name in sorted(set(expected) - {node.name for node in nodes})
    ]
    tables = [asdict(node) for node in nodes]
    for key in ALIKE if nodes else ():
        usual = Counter(table[key] for table in tables).most_common(1)[0][0]
        odd = [table for table in tables if table[key] != usual]
        faults += [f"{table['name']} has {key} {table[key]}, others {usual}" for table in odd]
    for node in nodes:
        faults += [f"{node.name}: {fault}" for fault in node.faults]
        if abs(node.clock) > MAX_OFFSET:
            faults.append(f"{node.name}: its clock is {node.clock:+.1f} s off")
    return faults


def check_cluster(nodes: str | None, environ: Mapping[str, str] = os.environ) -> bool:
    """Check the listed machines, or those of this srun step, or this one alone."""
    own = environ.get("SLURMD_NODENAME") or socket.gethostname()
    names = [own] if nodes is None else nodes.split(",")
    for name in names:
        if not name or name.startswith("-"):
            raise ConfigError(f"--nodes: {name!r} is not a machine name")
    count = int(environ.get("SLURM_STEP_NUM_TASKS", "1")) if nodes is None else len(names)
    is_step = nodes is None and count > 1
    key = f"{environ['SLURM_JOB_ID']}-{environ['SLURM_STEP_ID']}" if is_step else token_hex(4)
    folder = Path(f".whet-check-{key}").absolute()
    address = find_rendezvous(environ) if is_step else f"{socket.getfqdn()}:0"
    if is_step and environ["SLURM_PROCID"] != "0":
        report_to(address, folder, name=own, token=None)
        return True
    with socket.create_server(("", int(address.rpartition(":")[2]))) as server:
        host = "localhost" if nodes is None else socket.getfqdn()
        report = [f"{host}:{server.getsockname()[1]}", str(folder), "--token", token_hex(8)]
        children: list[subprocess.Popen[bytes]] = []
        folder.mkdir()
        try:
            (folder / "address").write_text(f"{socket.getfqdn()}:{server.getsockname()[1]}")
            (folder / "token").write_text(report[-1])
            children += [_start(name, report, is_remote=nodes is not None) for name in names]
            reports = gather_reports(server, children, count)
        finally:
            for child in children:
                child.kill()
                child.wait()
            shutil.rmtree(folder)
    faults = find_faults(reports, names)
    if is_step and len(reports) < count:
        faults.append(f"{count - len(reports)} of {count} nodes did not report")
    print_nodes(reports, faults)
    return not faults


def _start(name: str, report: list[str], *, is_remote: bool) -> "subprocess.Popen[bytes]":
    """Start the report of a node, here or over ssh, in the same folder with the same Python."""
    words = [sys.executable, "-m", "whet", "cluster", "report", *report, "--name", name]
    if is_remote:
        command = f"cd -- {shlex.quote(str(Path.cwd()))} && {shlex.join(words)}"
        words = ["ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15", "--", name, command]
    return subprocess.Popen(words, stdin=subprocess.DEVNULL)  # noqa: S603 - quoted words


def print_nodes(nodes: Sequence[NodeReport], faults: Sequence[str]) -> None:
    """Print a table of the nodes, and the faults below it."""
    table = Table("node", *ALIKE, "interfaces", "clock")
    for node in sorted(nodes, key=lambda node: node.name):
        facts = asdict(node) | {"clock": f"{node.clock:+.3f} s"}
        keys = ("name", *ALIKE, "interfaces", "clock")
        table.add_row(*(Text(visible(facts[key])) for key in keys))
    printer.print(table)
    for fault in faults:
        say(fault)
    say(f"{len(nodes)} nodes reported; faults: {len(faults)}")
