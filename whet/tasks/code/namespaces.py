"""A world of its own for one process, on Linux namespaces: an empty network, no other processes, no
files but Python's.

The new root is a small read-only tmpfs. The standard library and the shared libraries are bound
into it read-only, the scratch folder `/tmp` is a tmpfs with limits on bytes and files, and there is
no /proc, no /sys, no home.
"""

import ctypes
import os
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

NEW_NS = 0x20000
NEW_UTS = 0x4000000
NEW_IPC = 0x8000000
NEW_USER = 0x10000000
NEW_PID = 0x20000000
NEW_NET = 0x40000000
SCRATCH = "size=64m,nr_inodes=4096,mode=0777"

_RDONLY = 1
_NOSUID = 2
_NODEV = 4
_REMOUNT = 32
_BIND = 4096
_REC = 16384
_PRIVATE = 1 << 18
_KEPT_FLAGS = 1 | 2 | 4 | 8 | 1024 | 2048
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_BASE = "/tmp"  # noqa: S108  # only a place to mount on, in a mount namespace of our own
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def sources() -> dict[str, str]:
    """List what the new root is made of: the standard library, shared libraries and four
    devices."""
    library = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")} | {
        str(Path(sys.base_prefix, "lib"))
    }
    system = {"/lib", "/lib64", "/usr/lib", "/usr/lib64"}
    wanted = sorted(library | system | set(_DEVICES), key=lambda path: (len(path), path))
    found: dict[str, str] = {}
    for path in wanted:
        is_inside = any(path.startswith(f"{outer}/") for outer in found)
        if Path(path).exists() and not is_inside:
            found[path] = path
    return found


def leave(uid: int | None) -> None:
    """Leave the machine's namespaces; children made after this are alone. Without `uid` as a user,
    with it as root."""
    flags = NEW_NS | NEW_UTS | NEW_IPC | NEW_PID | NEW_NET
    own = os.getuid()
    group = os.getgid()
    _done(_libc().unshare(flags | (NEW_USER if uid is None else 0)), "unshare")
    if uid is None:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{own} {own} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def move(paths: Mapping[str, str]) -> None:
    """Make the new root of `paths`, place by source, and move into it; nothing of the old one is in
    reach then."""
    _mount(None, "/", None, _REC | _PRIVATE)
    opened = {place: os.open(source, os.O_PATH) for place, source in paths.items()}
    _mount("tmpfs", _BASE, "tmpfs", _NOSUID | _NODEV, "size=1m,nr_inodes=4096,mode=0755")
    place = f"{_BASE}/tmp"  # noqa: S108
    Path(place).mkdir()
    scratch(place)
    for target, fd in opened.items():
        _bind(fd, f"{_BASE}{target}")
    _mount(None, _BASE, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)
    os.chdir(_BASE)
    _done(_libc().syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _done(_libc().umount2(b".", _DETACH), "umount")
    os.chdir("/tmp")  # noqa: S108  # the scratch folder of the sandbox
    _libc().sethostname(b"sandbox", 7)


def scratch(place: str) -> None:
    """Mount an empty folder with limits on bytes and files."""
    _mount("tmpfs", place, "tmpfs", _NOSUID | _NODEV, SCRATCH)


def surrender(uid: int | None) -> None:
    """Give up every right, and die with the process that watches."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _done(_libc().capset(header, nothing), "capset")
    _libc().prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def _bind(fd: int, target: str) -> None:
    source = f"/proc/self/fd/{fd}"
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    _mount(source, target, None, _BIND | _REC)
    kept = os.statvfs(target).f_flag & _KEPT_FLAGS
    _mount(None, target, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | kept)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str = ""
) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    _done(_libc().mount(*texts, ctypes.c_ulong(flags), options.encode() or None), f"mount {target}")


def _done(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
