"""Environment variables that libraries read at start, set before they start unless the user has set
them."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 2**30
"""Names of malloc.h, and the size up to which blocks are kept."""
_PR_SET_PDEATHSIG = 1
_CPUINFO = Path("/proc/cpuinfo")
_ONEDNN_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""The variable oneDNN reads, and its older name, which it still reads."""


def limit_thread_spinning() -> None:
    """Let threads that wait for each other sleep early.

    On two cores with one busy neighbour, spinning as long as libgomp likes makes a training step
    1.6 times as long; giving up after 1,000 turns costs nothing on an idle machine (docs/LOG.md).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def keep_sums_in_order() -> None:
    """Leave cuBLAS no room to split a sum over several workers: each row of a product then has the
    same bits whatever other rows are computed with it, and every time.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "1")
    os.environ.setdefault("TORCH_BLAS_PREFER_CUBLASLT", "1")


def can_run_amx() -> bool:
    """Multiply two tiles in a child process, which an illegal instruction may kill."""
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("amx_probe.py"))]
    nothing = subprocess.DEVNULL
    try:
        child = subprocess.run(  # noqa: S603 - this Python and a file of our own
            command, stdin=nothing, stdout=nothing, stderr=nothing, timeout=10
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return child.returncode == 0


def avoid_broken_amx(
    environ: MutableMapping[str, str] = os.environ,
    cpuinfo: Path = _CPUINFO,
    can_run: Callable[[], bool] = can_run_amx,
) -> None:
    """Keep oneDNN from using AMX on a processor that advertises it but cannot run it.

    Some virtual machines show AMX, and their kernel even grants it, but have no tiles; a bfloat16
    product then dies of an illegal instruction
    (https://github.com/uxlfoundation/oneDNN/issues/5689). Only running one shows it. A processor
    that does not advertise AMX costs no child process.
    """
    if (
        not any(name in environ for name in _ONEDNN_LIMITS)
        and _advertises_amx(cpuinfo)
        and not can_run()
    ):
        environ[_ONEDNN_LIMITS[0]] = "AVX512_CORE_FP16"


def _advertises_amx(cpuinfo: Path) -> bool:
    """Read the flags of the first core; the file has a thousand bytes for each."""
    if not cpuinfo.is_file():
        return False
    with cpuinfo.open() as lines:
        flags = next((line for line in lines if line.startswith("flags")), "")
    return "amx_tile" in flags.split()


def keep_freed_memory() -> None:
    """Let glibc hand freed blocks out again instead of returning them to the system, for work on a
    CPU.

    A large tensor otherwise costs a page fault every 4 KiB, each time.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):
            library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
            library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def die_with_parent(number: int) -> None:
    """Have the kernel send this process a signal once its parent is dead."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
