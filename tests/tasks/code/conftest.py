"""These tests run programs in the real sandbox. They skip only where the kernel refuses namespaces.

Those that take a `mode` run in bubblewrap too, where it is installed.
"""

import ctypes
import os
import shutil
import sys

import pytest

from whet.tasks.code.sandbox import Mode


def kernel_allows_namespaces() -> bool:
    """Ask the kernel itself, in a child, and not the code under test."""
    if sys.platform != "linux":
        return False
    child = os.fork()
    if child == 0:
        alone = 0x20000 | 0x20000000 | 0x40000000 | (0x10000000 if os.getuid() else 0)
        os._exit(1 if ctypes.CDLL(None).unshare(alone) else 0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.fixture(scope="session", autouse=True)
def namespaces() -> None:
    if not kernel_allows_namespaces():
        pytest.skip("this kernel, or the container around it, refuses namespaces to everyone")


@pytest.fixture(params=["namespaces", "bubblewrap"])
def mode(request: pytest.FixtureRequest) -> Mode:
    if request.param == "bubblewrap" and shutil.which("bwrap") is None:
        pytest.skip("bubblewrap is not installed")
    chosen: Mode = request.param
    return chosen
