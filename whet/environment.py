"""What libraries read from the environment when they start, set before they do, and only where the user has not."""

import ctypes
import os
import sys

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD, _KEPT_BYTES = -1, -3, 2**30
"""Names of malloc.h, and the size up to which blocks are kept."""


def share_cores() -> None:
    """Let threads that wait for each other sleep early.

    On two cores with one busy neighbour, spinning as long as libgomp likes makes a training step 1.6 times as long;
    giving up after 1,000 turns costs nothing on an idle machine (docs/LOG.md).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def keep_sums_in_order() -> None:
    """Leave cuBLAS no room to split a sum over several workers: each row of a product then has the same bits whatever
    other rows are computed with it, and every time.
    """
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":16:8")
    os.environ.setdefault("CUBLASLT_WORKSPACE_SIZE", "1")
    os.environ.setdefault("TORCH_BLAS_PREFER_CUBLASLT", "1")


def keep_freed_memory() -> None:
    """Let glibc hand freed blocks out again instead of returning them to the system, for work on a CPU.

    A large tensor otherwise costs a page fault every 4 KiB, each time.
    """
    if sys.platform == "linux":
        library = ctypes.CDLL(None)
        if hasattr(library, "mallopt"):
            library.mallopt(_M_MMAP_THRESHOLD, _KEPT_BYTES)
            library.mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)
