"""The error that a failed rank records, and the page that says which rank failed first, and why."""

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from whet.errors import ConfigError, DataError, EngineError, WhetError, visible

ERROR_FILE = "TORCHELASTIC_ERROR_FILE"
"""Where a rank writes its last error, in torch's format; set by the agent that started it."""
_LAST_LINES = 20
TAIL_BYTES = 64_000
MAX_OTHERS = 8
"""How many further ranks are named besides the one that failed first."""
SAME_FAILURE_SECONDS = 60.0
"""Failures on two nodes within this time are one: the ranks of the second lost their peers."""
OUTSIDE = (signal.SIGKILL, signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)
"""Signals that kill a rank before it can report; the errors of its peers follow from that."""
HINTS = {
    signal.SIGKILL: "the kernel ran out of memory (`dmesg` says so), or it was killed by hand",
    signal.SIGSEGV: "native code crashed",
    signal.SIGBUS: "native code crashed; a full /dev/shm does this",
    signal.SIGILL: "this processor lacks an instruction that was used",
    signal.SIGABRT: "a library gave up; its reason is in the log",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFailure:
    """The end of one rank."""

    rank: int
    size: int
    host: str
    pid: int
    code: int
    """Its exit status, or minus the signal that killed it."""
    time: float
    log: str
    peak_gb: float
    """Peak host memory, as last measured by the agent; 0 if it was never measured."""
    reason: str = ""
    gpu_gb: float | None = None
    is_recorded: bool = False
    """Whether the rank itself left its error; one that was killed cannot."""
    is_final: bool = False
    """Whether it is a mistake in settings or data, which a restart would only repeat."""

    @property
    def order(self) -> tuple[bool, float]:
        """Sort key: a kill from outside comes before the errors that it causes in peers."""
        return -self.code not in OUTSIDE, self.time

    @property
    def status(self) -> int:
        """The exit status as a shell reports it."""
        return self.code if self.code >= 0 else 128 - self.code


def record_error(error: BaseException) -> None:
    """Leave an error for the agent that started this rank, if there is one."""
    path = os.environ.get(ERROR_FILE)
    if not path:
        return
    now = time.time()
    name = "whet" if isinstance(error, WhetError) else type(error).__name__
    message = {"message": f"{name}: {error}", "extraInfo": {"timestamp": str(int(now))}}
    is_final = isinstance(error, ConfigError | DataError | EngineError)
    facts = {"message": message, "time": now, "gpu_gb": _peak_gpu_gb(), "is_final": is_final}
    with contextlib.suppress(OSError):  # a full disk should not hide the error itself
        Path(path).write_text(json.dumps(facts))


def _peak_gpu_gb() -> float | None:
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return float(torch.cuda.max_memory_allocated()) / 1e9


def add_recorded(failure: RankFailure) -> RankFailure:
    """Complete the agent's view of a rank with the rank's own record."""
    try:
        facts = json.loads(Path(failure.log).with_suffix(".json").read_text())
        return replace(
            failure,
            reason=str(facts["message"]["message"]),
            time=float(facts["time"]),
            gpu_gb=facts["gpu_gb"],
            is_recorded=True,
            is_final=bool(facts["is_final"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return replace(failure, reason=_guess_reason(failure.code, Path(failure.log)))


def _guess_reason(code: int, log: Path) -> str:
    if code < 0:
        known = -code in {*signal.Signals}
        name = signal.Signals(-code).name if known else f"signal {-code}"
        hint = HINTS.get(signal.Signals(-code)) if known else None
        return f"killed by {name}" + (f": {hint}" if hint else "")
    lines = [line for line in read_tail(log) if line.strip()]
    return f"ended with status {code}" + (f" after {lines[-1].strip()!r}" if lines else "")


def read_tail(log: Path, count: int = _LAST_LINES) -> list[str]:
    """Read the last lines of a file of any size."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - TAIL_BYTES))
            text = file.read(TAIL_BYTES).decode(errors="replace")
    except OSError:
        return []
    return text.splitlines()[-count:]


def write_failure(
    first: RankFailure, failures: Mapping[int, RankFailure], folder: Path, *, resume: str
) -> str | None:
    """Write RUN/failure.txt about the rank that failed first, and return it; None if a rank of
    another node failed earlier."""
    others = [failure for failure in failures.values() if failure is not first]
    page = _format_page(first, others, resume)
    record = folder / "logs" / "failure.json"
    known = _read_failure(record)
    is_same = known is not None and abs(known.time - first.time) < SAME_FAILURE_SECONDS
    if known is not None and is_same and known.host != first.host and known.order <= first.order:
        return None
    with contextlib.suppress(OSError):  # a full disk should not hide the page
        record.parent.mkdir(parents=True, exist_ok=True)
        record.write_text(json.dumps(asdict(first)))
        (folder / "failure.txt").write_text(page)
    return page


def _read_failure(record: Path) -> RankFailure | None:
    try:
        return RankFailure(**json.loads(record.read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _format_page(first: RankFailure, others: list[RankFailure], resume: str) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(first.time))
    memory = f"{first.peak_gb:.1f} GB of host memory" if first.peak_gb else "not seen"
    if first.gpu_gb is not None:
        memory += f", {first.gpu_gb:.1f} GB of GPU memory"
    lines = [
        f"rank {first.rank} of {first.size} failed first, on {first.host} (process {first.pid}), "
        f"at {when}",
        f"  why:    {first.reason}",
        f"  memory: {memory} at its peak",
        f"  resume: {resume}",
    ]
    lines += [f"  then:   rank {other.rank}: {other.reason}" for other in others[:MAX_OTHERS]]
    if len(others) > MAX_OTHERS:
        lines.append(f"  then:   {len(others) - MAX_OTHERS} more")
    lines += [f"  log:    {first.log}", *(f"    | {line}" for line in read_tail(Path(first.log)))]
    return visible("\n".join(lines)) + "\n"
