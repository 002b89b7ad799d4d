"""What libraries read at start, mainly environment variables; those the user set are kept."""

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, MutableMapping
from pathlib import Path

_M_TRIM_THRESHOLD = -1
_M_MMAP_THRESHOLD = -3
_KEPT_BYTES = 2**30
"""Constants of malloc.h, and the size up to which freed blocks are kept."""
_PR_SET_PDEATHSIG = 1
_CPUINFO = Path("/proc/cpuinfo")
_ONEDNN_LIMITS = ("ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA")
"""The variable that oneDNN reads, and its older name, which still works."""


def limit_thread_spinning() -> None:
    """Let threads that wait for each other sleep early.

    On two cores with one other busy process, libgomp's default spinning makes a training step 1.6
    times as long; stopping after 1,000 iterations costs nothing on an idle machine (docs/LOG.md).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def keep_sums_in_order() -> None:
    """Leave cuBLAS no workspace to split sums among workers, so that a row of a product has the
    same bits every time and for any other rows in the product."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "1")
    os.environ.setdefault("TORCH_BLAS_PREFER_CUBLASLT", "1")


def can_run_amx() -> bool:
    """Try to multiply two tiles in a child process, which an illegal instruction may kill."""
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

    Some virtual machines advertise AMX, and their kernel grants it, but they have no tiles; a
    bfloat16 product then dies of an illegal instruction
    (https://github.com/uxlfoundation/oneDNN/issues/5689). Only running an instruction shows it. No
    child process is started if the processor does not advertise AMX.
    """
    if (
        not any(name in environ for name in _ONEDNN_LIMITS)
        and _advertises_amx(cpuinfo)
        and not can_run()
    ):
        environ[_ONEDNN_LIMITS[0]] = "AVX512_CORE_FP16"


def _advertises_amx(cpuinfo: Path) -> bool:
    """Read only the flags of the first core, since the file has about a thousand bytes per core."""
    if not cpuinfo.is_file():
        return False
    with cpuinfo.open() as lines:
        flags = next((line for line in lines if line.startswith("flags")), "")
    return "amx_tile" in flags.split()


def keep_freed_memory() -> None:
    """Let glibc reuse freed blocks instead of returning them to the system, for work on a CPU.

    Otherwise every allocation of a large tensor costs a page fault per 4 KiB.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):
            library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
            library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)


def die_with_parent(number: int) -> None:
    """Let the kernel send this process a signal when its parent dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
