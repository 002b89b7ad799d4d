"""The Triton code of this folder's tests, run by Triton's interpreter in a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from whet.kernels import HAS_TRITON, IS_INTERPRETED

FILES = ["norm", "rope", "gate", "attention", "lm_head"]


@pytest.mark.skipif(not HAS_TRITON, reason="triton is not installed")
@pytest.mark.skipif(IS_INTERPRETED, reason="the interpreter is on already")
@pytest.mark.parametrize("name", FILES)
def test_triton_code_passes_in_the_interpreter(name: str) -> None:
    file = Path(__file__).with_name(f"test_{name}_kernels.py")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-k", "triton", str(file)]
    env = os.environ | {"TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout and " skipped" not in done.stdout
