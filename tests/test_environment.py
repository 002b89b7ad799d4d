"""What is set for libraries before they start."""

import subprocess
import sys

import pytest

PROGRAM = """
import resource
import numpy as np
from whet.environment import keep_freed_memory
{call}
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    np.empty(2**26, dtype=np.uint8).fill(1)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
faults()
print(faults())
"""


def _second_faults(call: str) -> int:
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(call=call)], capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of glibc")
def test_freed_memory_is_used_again_without_new_pages() -> None:
    # 64 MiB are 16,384 pages of 4 KiB; pages of 2 MiB would be 32.
    assert _second_faults("keep_freed_memory()") < 16 < _second_faults("")
