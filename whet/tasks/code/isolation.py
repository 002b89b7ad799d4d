"""Isolate one process on Linux: an empty network, no other processes, no files but Python's.

The new root is a small read-only tmpfs. The standard library and the shared libraries are bound
into it read-only, the scratch folder `/tmp` is a tmpfs with limits on bytes and files, and there is
no /proc, no /sys, no home.

Where the kernel refuses namespaces to us, bubblewrap makes the same: a setuid `bwrap` works where
user namespaces are switched off, others where the system's rules name it. It starts a new Python in
its root, so a start costs as much as a Python does; limits and the filter of system calls are ours
again. Where it is setuid the scratch folder is read-only, since it cannot bound its files.
"""

import ctypes
import json
import os
import stat
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

READY = "in the sandbox"
"""What the process inside bubblewrap writes to its standard error once all is in place."""

_NEW_NS = 0x20000
_NEW_UTS = 0x4000000
_NEW_IPC = 0x8000000
_NEW_USER = 0x10000000
_NEW_PID = 0x20000000
_NEW_NET = 0x40000000
_SCRATCH_OPTIONS = "size=64m,nr_inodes=4096,mode=0777"
_RDONLY = 1
_NOSUID = 2
_NODEV = 4
_REMOUNT = 32
_BIND = 4096
_REC = 16384
_PRIVATE = 1 << 18
_INHERITED_FLAGS = 1 | 2 | 4 | 8 | 1024 | 2048
_DETACH = 2
_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_BASE = "/tmp"  # noqa: S108  # a mount point, in a mount namespace of our own
_SCRATCH = "/tmp"  # noqa: S108  # the scratch folder inside
_DEVICES = ("/dev/null", "/dev/zero", "/dev/urandom", "/dev/random")
_PR_SET_PDEATHSIG, _SIGKILL = 1, 9
_SYS_ADMIN = 1 << 21
_CODE = "/code"
_START = (
    f"import sys; sys.path.insert(0, {_CODE!r}); "
    "from whet.tasks.code import launcher; launcher.run_in_bubblewrap()"
)


def sources() -> dict[str, str]:
    """List what the new root is made of: standard library, shared libraries, four devices."""
    library = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    system = {str(Path(sys.base_prefix, "lib")), "/lib", "/lib64", "/usr/lib", "/usr/lib64"}
    paths: dict[str, str] = {}
    for path in sorted(library | system | set(_DEVICES), key=lambda path: (len(path), path)):
        is_inside = any(path.startswith(f"{outer}/") for outer in paths)
        if Path(path).exists() and not is_inside:
            paths[path] = path
    return paths


def leave(uid: int | None) -> None:
    """Leave the machine's namespaces, as a user without `uid` and as root with it.

    Children made after this are alone.
    """
    flags = _NEW_NS | _NEW_UTS | _NEW_IPC | _NEW_PID | _NEW_NET
    user = os.getuid()
    group = os.getgid()
    _check(_libc().unshare(flags | (_NEW_USER if uid is None else 0)), "unshare")
    if uid is None:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def move(paths: Mapping[str, str]) -> None:
    """Make a new root of `paths`, target by source, and move into it, out of reach of the old."""
    _mount(None, "/", None, _REC | _PRIVATE)
    descriptors = {target: os.open(source, os.O_PATH) for target, source in paths.items()}
    _mount("tmpfs", _BASE, "tmpfs", _NOSUID | _NODEV, "size=1m,nr_inodes=4096,mode=0755")
    scratch = f"{_BASE}{_SCRATCH}"
    Path(scratch).mkdir()
    _mount_scratch(scratch)
    for target, fd in descriptors.items():
        _bind(fd, f"{_BASE}{target}")
    _mount(None, _BASE, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)
    os.chdir(_BASE)
    _check(_libc().syscall(_PIVOT_ROOT[os.uname().machine], b".", b"."), "pivot_root")
    _check(_libc().umount2(b".", _DETACH), "umount")
    os.chdir(_SCRATCH)
    _libc().sethostname(b"sandbox", 7)


def surrender(uid: int | None) -> None:
    """Give up every right, and die with the process that watches."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc().capset(header, nothing), "capset")
    _libc().prctl(_PR_SET_PDEATHSIG, _SIGKILL, 0, 0, 0)


def bubblewrap_command(tool: str, paths: Mapping[str, str], uid: int | None, job: str) -> list[str]:
    """Write the call of bubblewrap: nothing but libraries, four devices, Python and our code."""
    python = str(Path(sys.executable).resolve())
    args = [tool, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    args += ["--hostname", "sandbox", *(["--unshare-user-try"] if uid is None else [])]
    args += ["--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
    for right in _rights(tool, uid):
        args += ["--cap-add", right]
    binds = {**paths, python: python, f"{_CODE}/whet/tasks/code": str(Path(__file__).parent)}
    folders = {str(folder) for target in binds for folder in Path(target).parents} - {"/"}
    for folder in sorted(folders):
        args += ["--perms", "0755", "--dir", folder]  # or only their owner could enter
    for target, source in binds.items():
        args += ["--dev-bind" if target.startswith("/dev/") else "--ro-bind", source, target]
    args += ["--tmpfs", _SCRATCH, "--remount-ro", _SCRATCH, "--remount-ro", "/"]
    args += ["--chdir", _SCRATCH]
    return [*args, "--", python, "-S", "-P", "-B", "-c", _START, job]


def become_bubblewrap(
    tool: str, paths: Mapping[str, str], uid: int | None, job: Mapping[str, str | int]
) -> None:
    """Replace this process by bubblewrap.

    Root that may not mount becomes a user now, any other root once inside.
    """
    if uid is not None and not _may_mount():
        surrender(uid)
        uid = None
    line = bubblewrap_command(tool, paths, uid, json.dumps({**job, "uid": uid}))
    os.execve(tool, line, {"PYTHONHASHSEED": "0"})  # noqa: S606  # from our own PATH


def try_mount_scratch() -> None:
    """Put a bounded scratch folder over the read-only one, where bubblewrap left us the right."""
    try:
        _mount_scratch(_SCRATCH)
    except OSError:
        return
    os.chdir(_SCRATCH)


def _may_mount() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    rights = next(line for line in lines if line.startswith("CapEff"))
    return bool(int(rights.split()[1], 16) & _SYS_ADMIN)


def _rights(tool: str, uid: int | None) -> list[str]:
    """List what the process inside needs to mount the scratch folder and to become a user."""
    if uid is not None:
        return ["CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID"]
    is_setuid = Path(tool).stat().st_mode & stat.S_ISUID
    return [] if is_setuid else ["CAP_SYS_ADMIN"]


def _mount_scratch(folder: str) -> None:
    """Mount an empty folder with limits on bytes and files."""
    _mount("tmpfs", folder, "tmpfs", _NOSUID | _NODEV, _SCRATCH_OPTIONS)


def _bind(fd: int, target: str) -> None:
    source = f"/proc/self/fd/{fd}"
    if Path(source).is_dir():
        Path(target).mkdir(parents=True, exist_ok=True)
    else:
        Path(target).parent.mkdir(parents=True, exist_ok=True)
        Path(target).touch()
    _mount(source, target, None, _BIND | _REC)
    inherited = os.statvfs(target).f_flag & _INHERITED_FLAGS
    _mount(None, target, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | inherited)


def _mount(
    source: str | None, target: str, kind: str | None, flags: int, options: str = ""
) -> None:
    texts = [None if text is None else text.encode() for text in (source, target, kind)]
    result = _libc().mount(*texts, ctypes.c_ulong(flags), options.encode() or None)
    _check(result, f"mount {target}")


def _check(result: int, what: str) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)
