"""Isolate one process on Linux: an empty network, no other processes, only Python's files. The new
root is a small read-only tmpfs. The standard library and the shared libraries are bound into it
read-only, and the scratch folder `/tmp` is a tmpfs with limits on bytes and files. There is no
/proc, /sys or home folder.

If the kernel refuses us namespaces, bubblewrap creates the same sandbox: a setuid `bwrap` works
even if user namespaces are disabled, any other if the system's rules allow it. It starts a new
Python in its root, so each start costs a Python start. The limits and the system call filter are
still ours. With a setuid `bwrap` the scratch folder is read-only, because it cannot limit its
files.

The filter of system calls (seccomp(2), for x86-64 and 64-bit ARM) refuses new processes, other
programs, sockets and privileges. A refused call fails with EPERM, so that Python raises OSError. A
call for another architecture kills the process.
"""

import ctypes
import errno
import json
import os
import signal
import stat
import struct
import sys
import sysconfig
from collections.abc import Mapping
from pathlib import Path

READY = "in the sandbox"
"""What the process inside bubblewrap writes to its standard error once the sandbox is ready."""

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
_PR_SET_PDEATHSIG = 1
_PR_SET_SECCOMP = 22
_PR_SET_NO_NEW_PRIVS = 38
_MODE_FILTER = 2
_SYS_ADMIN = 1 << 21
_CODE = "/code"
_START = (
    f"import sys; sys.path.insert(0, {_CODE!r}); "
    "from whet.tasks.code import launcher; launcher.run_in_bubblewrap()"
)

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED_CALLS = """
    fork:57:- vfork:58:- execve:59:221 execveat:322:281 socket:41:198 ptrace:101:117
    process_vm_readv:310:270 process_vm_writev:311:271 kcmp:312:272 pidfd_send_signal:424:424
    pidfd_open:434:434 pidfd_getfd:438:438 unshare:272:97 setns:308:268 mount:165:40
    umount2:166:39 pivot_root:155:41 chroot:161:51 open_tree:428:428 move_mount:429:429
    fsopen:430:430 fsconfig:431:431 fsmount:432:432 fspick:433:433 mount_setattr:442:442
    mknod:133:- mknodat:259:33 name_to_handle_at:303:264 open_by_handle_at:304:265
    memfd_create:319:279 memfd_secret:447:447 shmget:29:194 msgget:68:186 semget:64:190
    mq_open:240:180 io_setup:206:0 io_uring_setup:425:425 io_uring_enter:426:426
    io_uring_register:427:427 userfaultfd:323:282 bpf:321:280 perf_event_open:298:241
    add_key:248:217 request_key:249:218 keyctl:250:219 init_module:175:105 finit_module:313:273
    delete_module:176:106 kexec_load:246:104 kexec_file_load:320:294 reboot:169:142
    swapon:167:224 swapoff:168:225 acct:163:89 quotactl:179:60 syslog:103:116 personality:135:92
    modify_ldt:154:- iopl:172:- ioperm:173:- vmsplice:278:75 fanotify_init:300:262
    fanotify_mark:301:263 inotify_init:253:- inotify_init1:294:26 inotify_add_watch:254:27
"""
"""System calls and their numbers on x86-64 and ARM. memfd, shm, msg, sem, mq and vmsplice hold
memory that no limit counts; fanotify and inotify show which shared libraries the host opens."""
_CLONE = (56, 220)
_CLONE3 = 435
_CLONE_THREAD = 0x10000
_X32 = 0x40000000

_LOAD = 0x20
_EQUAL = 0x15
_ANY_BIT = 0x45
_AT_LEAST = 0x35
_RETURN = 0x06
_ALLOW = 0x7FFF0000
_ERRNO = 0x00050000
_KILL = 0x80000000


def sources() -> dict[str, str]:
    """Map the paths in the new root to their sources: standard library, shared libraries,
    devices."""
    library = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib")}
    system = {str(Path(sys.base_prefix, "lib")), "/lib", "/lib64", "/usr/lib", "/usr/lib64"}
    paths: dict[str, str] = {}
    for path in sorted(library | system | set(_DEVICES), key=lambda path: (len(path), path)):
        is_inside = any(path.startswith(f"{outer}/") for outer in paths)
        if Path(path).exists() and not is_inside:
            paths[path] = path
    return paths


def unshare(uid: int | None) -> None:
    """Leave the machine's namespaces: as an unprivileged user if `uid` is None, otherwise as root.

    Children forked after this see only themselves.
    """
    flags = _NEW_NS | _NEW_UTS | _NEW_IPC | _NEW_PID | _NEW_NET
    user = os.getuid()
    group = os.getgid()
    _check(_libc().unshare(flags | (_NEW_USER if uid is None else 0)), "unshare")
    if uid is None:
        Path("/proc/self/setgroups").write_text("deny")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1")


def pivot_root(paths: Mapping[str, str]) -> None:
    """Make a new root from `paths`, target to source, and move into it, out of reach of the old
    one."""
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


def drop_privileges(uid: int | None) -> None:
    """Give up all privileges, and arrange to die with the watcher."""
    if uid is not None:
        os.setgroups([])
        os.setresgid(uid, uid, uid)
        os.setresuid(uid, uid, uid)
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    nothing = (ctypes.c_uint32 * 6)()
    _check(_libc().capset(header, nothing), "capset")
    _libc().prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def install_filter() -> None:
    """Install the system call filter for this process, permanently."""
    program = filter_for(os.uname().machine)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    _check(_libc().prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), "no_new_privs")
    _check(_libc().prctl(_PR_SET_SECCOMP, _MODE_FILTER, header, 0, 0), "seccomp")


def filter_for(machine: str) -> bytes:
    """Write the filter for a machine type; raise OSError if its system calls are not listed
    here."""
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    audit, column = _ARCHITECTURES[machine]
    steps = [_step(_LOAD, 4), _step(_EQUAL, audit, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, 0)]
    steps += [_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _KILL)]
    for call in _REFUSED_CALLS.split():
        _, *numbers = call.split(":")
        if numbers[column] != "-":
            steps += [_step(_EQUAL, int(numbers[column]), 0, 1)]
            steps += [_step(_RETURN, _ERRNO | errno.EPERM)]
    # glibc falls back to clone if clone3 is missing, and clone shows its flags: only threads are
    # allowed.
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    steps += [_step(_EQUAL, _CLONE[column], 0, 3), _step(_LOAD, 16)]
    steps += [_step(_ANY_BIT, _CLONE_THREAD, 1, 0)]
    steps += [_step(_RETURN, _ERRNO | errno.EPERM), _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def bubblewrap_command(tool: str, paths: Mapping[str, str], uid: int | None, job: str) -> list[str]:
    """Write bubblewrap's command line: only libraries, four devices, Python and our code are
    visible."""
    python = str(Path(sys.executable).resolve())
    args = [tool, "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"]
    args += ["--hostname", "sandbox", *(["--unshare-user-try"] if uid is None else [])]
    args += ["--die-with-parent", "--as-pid-1", "--cap-drop", "ALL"]
    for capability in _capabilities(tool, uid):
        args += ["--cap-add", capability]
    binds = {**paths, python: python, f"{_CODE}/whet/tasks/code": str(Path(__file__).parent)}
    folders = {str(folder) for target in binds for folder in Path(target).parents} - {"/"}
    for folder in sorted(folders):
        args += ["--perms", "0755", "--dir", folder]  # or only their owner could enter
    for target, source in binds.items():
        args += ["--dev-bind" if target.startswith("/dev/") else "--ro-bind", source, target]
    args += ["--tmpfs", _SCRATCH, "--remount-ro", _SCRATCH, "--remount-ro", "/"]
    args += ["--chdir", _SCRATCH]
    return [*args, "--", python, "-S", "-P", "-B", "-c", _START, job]


def exec_bubblewrap(
    tool: str, paths: Mapping[str, str], uid: int | None, job: Mapping[str, object]
) -> None:
    """Replace this process with bubblewrap.

    If root may not mount, it becomes an ordinary user now; otherwise it does so inside.
    """
    if uid is not None and not _may_mount():
        drop_privileges(uid)
        uid = None
    line = bubblewrap_command(tool, paths, uid, json.dumps({**job, "uid": uid}))
    os.execve(tool, line, {"PYTHONHASHSEED": "0"})  # noqa: S606  # from our own PATH


def try_mount_scratch() -> None:
    """Mount a bounded scratch folder over the read-only one, if bubblewrap allows it."""
    try:
        _mount_scratch(_SCRATCH)
    except OSError:
        return
    os.chdir(_SCRATCH)


def _may_mount() -> bool:
    lines = Path("/proc/self/status").read_text().splitlines()
    effective = next(line for line in lines if line.startswith("CapEff"))
    return bool(int(effective.split()[1], 16) & _SYS_ADMIN)


def _capabilities(tool: str, uid: int | None) -> list[str]:
    """List the capabilities needed inside to mount the scratch folder and to become a user."""
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
