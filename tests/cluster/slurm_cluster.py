"""A real Slurm on this machine: munge, a controller and two node daemons, in a folder of its own."""

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

DAEMONS = ("munged", "slurmctld", "slurmd")
PATHS = os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin", "/sbin"])
CONF = """ClusterName=whet
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire=20
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
JobRequeue=1
KillWait=10
SlurmdTimeout=15
MinJobAge=600
GresTypes=gpu
NodeName=whet[1-2] NodeAddr=127.0.0.1 NodeHostname={host} Port=[{port1}-{port2}] CPUs=2 Gres=gpu:2
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=FORCE
"""


def missing_parts() -> list[str]:
    parts = [name for name in DAEMONS if shutil.which(name, path=PATHS) is None]
    return parts if os.geteuid() == 0 else [*parts, "root, which starts the daemons"]


class SlurmCluster:
    """Two nodes, whet1 and whet2, of two make-believe GPUs each."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        host = socket.gethostname()
        base = _free_ports(3)
        for name in ("state", "spool-whet1", "spool-whet2"):
            (folder / name).mkdir()
        folder.chmod(0o755)
        conf = folder / "slurm.conf"
        conf.write_text(
            CONF.format(host=host, folder=folder, port=base, port1=base + 1, port2=base + 2)
        )
        devices = "".join(f"NodeName=whet[1-2] Name=gpu File=/dev/{d}\n" for d in ("null", "zero"))
        (folder / "gres.conf").write_text(devices)
        self.environ = {**os.environ, "SLURM_CONF": str(conf), "PATH": PATHS}
        key = folder / "munge.key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        try:
            self._start_all(key)
        except BaseException:
            self.stop()
            raise

    def _start_all(self, key: Path) -> None:
        files = [f"--{name}-file={self.folder}/munge.{name}" for name in ("pid", "log", "seed")]
        socket_file = self.folder / "munge.socket"
        self._start("munged", "-F", "-f", f"--key-file={key}", f"--socket={socket_file}", *files)
        wait_for(socket_file.exists, "munged")
        self._start("slurmctld", "-D", "-c")
        for node in ("whet1", "whet2"):
            self.start_node(node)
        wait_for(lambda: self.call("sinfo", "-h", "-o", "%D %t") == "2 idle", "two idle nodes")

    def start_node(self, node: str) -> None:
        self._start("slurmd", "-D", "-N", node, name=node)

    def kill_node(self, node: str) -> None:
        """Kill a node's daemon, its step daemons and all that runs under them."""
        self.processes[node].kill()
        self.processes[node].wait()
        listed = subprocess.run(
            ["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True
        )
        for line in listed.stdout.splitlines()[1:]:
            pid, _, args = line.strip().partition(" ")
            if args.startswith("slurmstepd") and self._is_on(int(pid), node):
                _kill_tree(int(pid))

    def _is_on(self, pid: int, node: str) -> bool:
        children = _descendants(pid)
        return any(f"SLURMD_NODENAME={node}" in _environ(child) for child in children) and any(
            f"SLURM_CONF={self.environ['SLURM_CONF']}" in _environ(child) for child in children
        )

    def call(self, *words: str, cwd: Path | None = None) -> str:
        done = subprocess.run(
            words, env=self.environ, capture_output=True, text=True, timeout=300, cwd=cwd
        )
        return (done.stdout + done.stderr).strip()

    def state(self, job: str) -> str:
        shown = self.call("scontrol", "show", "job", job)
        return next((w.split("=")[1] for w in shown.split() if w.startswith("JobState=")), shown)

    def stop(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        for process in self.processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, *words: str, name: str | None = None) -> None:
        log = self.folder / f"{name or words[0]}.out"
        program = shutil.which(words[0], path=PATHS)
        assert program is not None
        with log.open("ab") as out:
            self.processes[name or words[0]] = subprocess.Popen(
                [program, *words[1:]], env=self.environ, stdout=out, stderr=out
            )


def wait_for(is_there: Callable[[], bool], what: str, *, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_there():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.2)


def _free_ports(count: int) -> int:
    """Find the first of several free ports in a row."""
    for base in range(6900 + os.getpid() % 1000 * 4, 20_000, 5):
        sockets = []
        try:
            for port in range(base, base + count):
                sockets.append(socket.create_server(("127.0.0.1", port)))
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
        return base
    raise AssertionError("no free ports")


def _descendants(pid: int) -> list[int]:
    listed = subprocess.run(["ps", "-eo", "pid,ppid"], capture_output=True, text=True, check=True)
    parents = [tuple(map(int, line.split())) for line in listed.stdout.splitlines()[1:]]
    tree = [pid]
    for one in tree:
        tree += [child for child, parent in parents if parent == one]
    return tree[1:]


def _environ(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/environ").read_bytes().decode(errors="replace")
    except OSError:
        return ""


def _kill_tree(pid: int) -> None:
    for one in [pid, *_descendants(pid)]:
        try:
            os.kill(one, 9)
        except ProcessLookupError:
            continue
