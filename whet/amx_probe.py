"""Test whether AMX works: multiply two tiles, in a separate process that may crash."""

import ctypes
import mmap
import resource
import sys

_SYS_ARCH_PRCTL = 158
_ARCH_REQ_XCOMP_PERM = 0x1023
_XFEATURE_XTILEDATA = 18
_CODE = bytes.fromhex(
    "c4e2784907"  # ldtilecfg (%rdi)
    "c4e27b49c0"  # tilezero %tmm0
    "c4e27b49c8"  # tilezero %tmm1
    "c4e27b49d0"  # tilezero %tmm2
    "c4e26a5cc1"  # tdpbf16ps %tmm2, %tmm1, %tmm0
    "c4e27849c0"  # tilerelease
    "c3"  # ret
)
_PALETTE = bytes([1])
_ROW_BYTES = bytes([64, 0])
_NUM_ROWS = bytes([16])
_TILES = (
    _PALETTE.ljust(16, b"\0") + (_ROW_BYTES * 3).ljust(32, b"\0") + (_NUM_ROWS * 3).ljust(16, b"\0")
)
"""The operand of ldtilecfg: three tiles of 16 rows of 64 bytes."""


def main() -> None:
    """Multiply two tiles and exit; an illegal instruction kills the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if ctypes.CDLL(None).syscall(_SYS_ARCH_PRCTL, _ARCH_REQ_XCOMP_PERM, _XFEATURE_XTILEDATA) != 0:
        sys.exit("the kernel does not allow AMX")
    page = mmap.mmap(-1, mmap.PAGESIZE, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    page.write(_CODE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    ctypes.CFUNCTYPE(None, ctypes.c_char_p)(address)(_TILES)


if __name__ == "__main__":
    main()
