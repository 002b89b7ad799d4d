"""What is set for libraries before they start."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from whet.environment import avoid_broken_amx, can_run_amx

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
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(call=call)],
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the allocator of glibc")
def test_freed_memory_is_used_again_without_new_pages() -> None:
    # 64 MiB are 16,384 pages of 4 KiB; pages of 2 MiB would be 32.
    assert _second_faults("keep_freed_memory()") < 16 < _second_faults("")


def _cpuinfo(folder: Path, flags: str) -> Path:
    file = folder / "cpuinfo"
    file.write_text(
        f"processor\t: 0\nvendor_id\t: GenuineIntel\nflags\t\t: {flags}\nbogomips\t: 4000.00\n"
    )
    return file


AMX = "avx512_bf16 avx512_fp16 amx_bf16 amx_tile amx_int8"


def test_onednn_is_kept_from_amx_that_is_advertised_and_does_not_run(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    avoid_broken_amx(environ, _cpuinfo(tmp_path, AMX), can_run=lambda: False)
    assert environ == {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_FP16"}


def test_amx_that_runs_is_used(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    avoid_broken_amx(environ, _cpuinfo(tmp_path, AMX), can_run=lambda: True)
    assert environ == {}


@pytest.mark.parametrize("name", ["ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"])
def test_a_limit_that_the_user_has_set_is_kept(name: str, tmp_path: Path) -> None:
    environ = {name: "AVX2"}
    avoid_broken_amx(environ, _cpuinfo(tmp_path, AMX), can_run=lambda: False)
    assert environ == {name: "AVX2"}


def _refuse_to_be_asked() -> bool:
    raise AssertionError("no child process is needed")


def test_a_processor_without_amx_is_not_tried(tmp_path: Path) -> None:
    environ: dict[str, str] = {}
    avoid_broken_amx(
        environ, _cpuinfo(tmp_path, "avx512_bf16 avx512_fp16"), can_run=_refuse_to_be_asked
    )
    avoid_broken_amx(environ, tmp_path / "absent", can_run=_refuse_to_be_asked)
    assert environ == {}


@pytest.mark.skipif(
    sys.platform != "linux" or " amx_tile" in Path("/proc/cpuinfo").read_text(),
    reason="a processor that may have tiles",
)
def test_trying_amx_where_there_is_none_says_no_and_kills_nobody() -> None:
    assert not can_run_amx()


def test_importing_whet_settles_the_limit_before_torch_is_loaded() -> None:
    expected: dict[str, str] = {}
    avoid_broken_amx(expected)
    program = (
        "import os, sys, whet; print('torch' in sys.modules, os.environ.get('ONEDNN_MAX_CPU_ISA'))"
    )
    environ = {name: value for name, value in os.environ.items() if "MAX_CPU_ISA" not in name}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environ
    )
    assert done.stdout.split() == ["False", str(expected.get("ONEDNN_MAX_CPU_ISA"))]


def test_tests_that_are_not_of_a_gpu_see_none() -> None:
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert not torch.cuda.is_available()
