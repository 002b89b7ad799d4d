"""Run ranks under torch's elastic agent: logs, restarts, a bounded stop, a page about failures.

The rendezvous is always torch's c10d one, because restarted ranks wait forever with a static one.
"""

import logging
import os
import shlex
import signal
import socket
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from torch.distributed.elastic.agent.server.api import (
    RunResult,
    WorkerGroup,
    WorkerSpec,
    WorkerState,
)
from torch.distributed.elastic.agent.server.local_elastic_agent import LocalElasticAgent
from torch.distributed.elastic.multiprocessing import LogsDest, LogsSpecs, SignalException
from torch.distributed.elastic.rendezvous import (
    RendezvousClosedError,
    RendezvousError,
    RendezvousParameters,
)
from torch.distributed.elastic.rendezvous.registry import get_rendezvous_handler

from whet.cluster.failure import ERROR_FILE, RankFailure, add_recorded, write_failure
from whet.cluster.launch import Launch, check_gpus, divide_threads
from whet.errors import TrainError
from whet.track.progress import say

WAIT_SECONDS = 600
"""How long nodes wait for each other, and ranks may take to stop with a checkpoint."""
EXIT_SECONDS = 60
"""How long a node that is done waits for the others."""


def run_ranks(
    command: Sequence[str], layout: Launch, folder: Path, *, program: Sequence[str] = ("-m", "whet")
) -> int:
    """Run `whet` with these arguments on every rank of this node, and return their exit status."""
    if remark := check_gpus(layout.gpus, torch.cuda.device_count()):
        say(remark)
    os.environ.update(divide_threads(layout.gpus))
    logging.disable(logging.ERROR)  # the agent's own remarks; the failure page is clearer
    resume = [] if "--resume" in command else ["--resume"]
    flags = ["--gpus", str(layout.gpus)]
    if layout.max_nodes > 1:
        flags += ["--nodes", f"{layout.min_nodes}:{layout.max_nodes}"]
    spec = WorkerSpec(
        role="",
        local_world_size=layout.gpus,
        entrypoint=sys.executable,
        # The agent replaces ${local_rank} in arguments, and so $$ with $.
        args=("-u", *(word.replace("$", "$$") for word in (*program, *command))),
        rdzv_handler=get_rendezvous_handler(_rendezvous_parameters(layout)),
        max_restarts=layout.restarts,
        monitor_interval=0.1,
    )
    again = shlex.join(["whet", *command, *flags, *resume])
    agent = Agent(spec, RankLogs(folder / "logs" / layout.id), folder, resume=again)
    try:
        return agent.run_to_end()
    except SignalException as stop:
        say(f"stopped by {stop.sigval.name}; the same command with --resume continues")
        return 128 + stop.sigval
    except RendezvousClosedError:
        say(f"the run has ended on another node; if it failed, {folder / 'failure.txt'} says why")
        return 1
    except RendezvousError as error:
        raise TrainError(
            f"fewer than {layout.min_nodes} nodes met at {layout.rendezvous or 'localhost'} "
            f"within {WAIT_SECONDS} s ({error}): `whet cluster check` checks every node"
        ) from error


def _rendezvous_parameters(layout: Launch) -> RendezvousParameters:
    return RendezvousParameters(
        backend="c10d",
        endpoint=layout.rendezvous or "localhost:0",
        run_id=layout.id,
        min_nodes=layout.min_nodes,
        max_nodes=layout.max_nodes,
        join_timeout=WAIT_SECONDS,
        read_timeout=WAIT_SECONDS,
        is_host=layout.is_host,
    )


class RankLogs(LogsSpecs):
    """A log file for each rank and start; the output of rank 0 is also shown."""

    def __init__(self, folder: Path) -> None:
        super().__init__(log_dir=str(folder))
        self.folder = folder
        self.files: dict[int, Path] = {}
        """The newest log of every global rank on this node."""
        self._num_starts = 0

    @property
    def root_log_dir(self) -> str:
        return str(self.folder)

    def reify(self, envs: dict[int, dict[str, str]]) -> LogsDest:
        self.folder.mkdir(parents=True, exist_ok=True)
        dest = LogsDest()
        self.files = {}
        for local_rank, env in envs.items():
            rank = int(env["RANK"])
            log = self.folder / f"start-{self._num_starts}-rank-{rank:04d}.log"
            dest.stdouts[local_rank] = str(log.with_suffix(".out"))
            dest.stderrs[local_rank] = str(log)
            dest.error_files[local_rank] = str(log.with_suffix(".json"))
            if rank == 0:
                dest.tee_stdouts[local_rank] = dest.stdouts[local_rank]
                dest.tee_stderrs[local_rank] = dest.stderrs[local_rank]
            env[ERROR_FILE] = dest.error_files[local_rank]
            # torch does not count a restart because another node came or went.
            count = max(int(env["TORCHELASTIC_RESTART_COUNT"]), self._num_starts)
            env["TORCHELASTIC_RESTART_COUNT"] = str(count)
            self.files[rank] = log
        self._num_starts += 1
        return dest


class Agent(LocalElasticAgent):
    """torch's agent, which also records which rank died first, and the memory of each rank."""

    def __init__(self, spec: WorkerSpec, logs: RankLogs, folder: Path, *, resume: str) -> None:
        super().__init__(
            spec,
            logs,
            exit_barrier_timeout=EXIT_SECONDS,
            log_line_prefix_template="${role_name}",  # which is empty
        )
        self._logs = logs
        self._resume = resume
        self._folder = folder
        self._died: dict[int, float] = {}
        self._peak_gb: dict[int, float] = {}
        self._status = 0

    def run_to_end(self) -> int:
        """Run, and restart while restarts are left; return the ranks' exit status."""
        try:
            self.run()
        except SignalException:  # only of this node: the others may continue
            raise
        except BaseException:
            self._rdzv_handler.shutdown()
            raise
        self._rdzv_handler.shutdown()
        return self._status

    def _monitor_workers(self, worker_group: WorkerGroup) -> RunResult:
        for worker in worker_group.workers:
            self._measure_memory(worker.id)
        result: RunResult = super()._monitor_workers(worker_group)
        if result.state == WorkerState.FAILED:
            self._report(result)
        elif result.state == WorkerState.SUCCEEDED:
            self._status = 0
        return result

    def _measure_memory(self, pid: int) -> None:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            return
        fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        if fields["State"].split()[0] in "ZX":
            self._died.setdefault(pid, time.time())
        elif "VmHWM" in fields:
            self._peak_gb[pid] = int(fields["VmHWM"].split()[0]) * 1024 / 1e9

    def _report(self, result: RunResult) -> None:
        failures = {
            rank: add_recorded(
                RankFailure(
                    rank=rank,
                    size=self._worker_group.workers[0].world_size,
                    host=os.environ.get("SLURMD_NODENAME") or socket.gethostname(),
                    pid=failure.pid,
                    code=failure.exitcode,
                    time=self._died.get(failure.pid, time.time()),
                    log=str(self._logs.files[rank]),
                    peak_gb=self._peak_gb.get(failure.pid, 0.0),
                )
            )
            for rank, failure in result.failures.items()
        }
        own = {  # not those that the agent stopped afterwards
            rank: failure
            for rank, failure in failures.items()
            if failure.pid in self._died or failure.is_recorded
        }
        first = min((own or failures).values(), key=lambda failure: failure.order)
        self._status = first.status
        if first.is_final:
            self._remaining_restarts = 0
            if 0 in failures and failures[0].reason == first.reason:
                return  # rank 0 has printed it
        page = write_failure(first, own, self._folder, resume=self._resume)
        if page is None:
            say(f"this node's ranks lost their peers; {self._folder / 'failure.txt'} says why")
        elif self._remaining_restarts == 0:
            say(page)
        else:
            say(page.partition("\n")[0])
            say(f"  why:    {first.reason}")
        if self._remaining_restarts > 0:
            say(
                f"  all ranks start again from the last checkpoint; restarts left: "
                f"{self._remaining_restarts}"
            )

    def _shutdown(
        self, death_sig: signal.Signals | None = None, timeout: int = 30, **more: bool
    ) -> None:
        """Pass on the signal that stops this process, and wait for checkpoints; Ctrl-C then kills.

        Schedulers send SIGTERM more than once.
        """
        if death_sig is not None and self._pcontext is not None:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            try:
                self._pcontext.close(death_sig, timeout=WAIT_SECONDS)
            except SignalException:
                self._pcontext.close(signal.SIGKILL, timeout=timeout)
        super()._shutdown()
