"""What libraries read from the environment when they start, set before they do, and only where the user has not."""

import os


def share_cores() -> None:
    """Let threads that wait for each other sleep early.

    On two cores with one busy neighbour, spinning as long as libgomp likes makes a training step 1.6 times as long;
    giving up after 1,000 turns costs nothing on an idle machine (docs/LOG.md).
    """
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")


def fix_cublas() -> None:
    """Give cuBLAS one workspace a stream, which makes its sums come in the same order every time."""
    os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
