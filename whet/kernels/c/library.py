"""The C kernels: compiled on first use and cached; without a compiler, plain torch is used.

Each kernel has an equivalent in plain torch and only saves time. `CC` names another compiler, as
for make but without arguments; `CC=false` disables the kernels.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

SOURCES = sorted(Path(__file__).parent.glob("*.[ch]"))
FLAGS = (
    "-std=gnu11",
    "-O3",
    "-march=native",
    "-ffp-contract=fast",
    "-fno-math-errno",
    "-fopenmp",
    "-shared",
    "-fPIC",
)
TIMEOUT_SECONDS = 60
"""Time after which a compiler is killed."""
_POINTER = ctypes.c_void_p
_INT = ctypes.c_int64
_FLOAT = ctypes.c_float
SIGNATURES: dict[str, tuple[tuple[Any, ...], Any]] = {
    "attention_forward": ((_POINTER,), ctypes.c_int),
    "attention_backward": ((_POINTER,), ctypes.c_int),
    "decode_pack": ((_POINTER, _INT, _INT, _POINTER), None),
    "decode_panel": ((), _INT),
    "decode_step": ((_POINTER, _POINTER, _POINTER), ctypes.c_int),
    "layer_add_norm": ((_INT, _INT, *[_POINTER] * 3, _FLOAT, *[_POINTER] * 2, _INT), None),
    "layer_add_norm_backward": ((_INT, _INT, *[_POINTER] * 2, _FLOAT, *[_POINTER] * 5, _INT), None),
    "layer_blocks": ((_INT,), _INT),
    "layer_swiglu": ((_INT, _INT, *[_POINTER] * 2, _INT), None),
    "layer_swiglu_backward": ((_INT, _INT, *[_POINTER] * 3, _INT), None),
    "layer_rope": ((_POINTER,) * 4, None),
    "layer_rope_backward": ((_POINTER,) * 7, None),
    "lm_head_stats": (
        (_POINTER, _INT, _INT, _POINTER, _POINTER, _INT, *(_POINTER,) * 3, _INT),
        ctypes.c_int,
    ),
    "lm_head_grad": ((_POINTER, _INT, _INT, *(_POINTER,) * 7, _INT), None),
}
"""The argument and return types of each kernel."""


@cache
def library() -> ctypes.CDLL | None:
    """Load the kernels, and compile them first if needed; None if that fails."""
    compiler = shutil.which(os.environ.get("CC") or "cc")
    if compiler is None:
        return None
    try:
        file = _cache_folder() / f"kernels-{_build_key(compiler)}.so"
        if not file.is_file():
            _compile(compiler, file)
        kernels = ctypes.CDLL(str(file))
    except (OSError, subprocess.SubprocessError):
        return None
    for name, (argtypes, restype) in SIGNATURES.items():
        kernel = getattr(kernels, name)
        kernel.argtypes = argtypes
        kernel.restype = restype
    return kernels


def _cache_folder() -> Path:
    """Return the user's cache folder, or a temporary one."""
    try:
        folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "whet"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        # Its files are executed, so nobody else may have write access.
        if (
            folder.stat().st_uid == os.getuid()
            and not folder.stat().st_mode & 0o022
            and os.access(folder, os.W_OK)
        ):
            return folder
    except (OSError, RuntimeError):
        pass  # no home, or not writable
    return Path(_temporary_folder().name)


@cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="whet-")


def _build_key(compiler: str) -> str:
    """Hash source, compiler and processor, since code for one processor may not run on another."""
    version = _run([compiler, "--version"])
    cpu = Path("/proc/cpuinfo")
    lines = cpu.read_text().splitlines() if cpu.is_file() else []
    names = "flags", "Features", "model name"
    processor = sorted({line.encode() for line in lines if line.startswith(names)})
    parts = [
        *(file.read_bytes() for file in SOURCES),
        repr(FLAGS).encode(),
        compiler.encode(),
        version,
        platform.machine().encode(),
    ]
    return hashlib.sha256(b"\0".join([*parts, *processor])).hexdigest()[:24]


def _compile(compiler: str, file: Path) -> None:
    """Compile under a temporary name and then rename, so that nobody loads an unfinished file."""
    with tempfile.TemporaryDirectory(dir=file.parent) as folder:
        built = Path(folder) / file.name
        _run(
            [
                compiler,
                *FLAGS,
                "-o",
                str(built),
                *(str(file) for file in SOURCES if file.suffix == ".c"),
                "-lm",
            ]
        )
        built.replace(file)


def _run(command: list[str]) -> bytes:
    """Run the compiler, and return its output."""
    nothing = subprocess.DEVNULL
    return subprocess.run(  # noqa: S603 - a compiler that the user named
        command, stdin=nothing, capture_output=True, timeout=TIMEOUT_SECONDS, check=True
    ).stdout
