"""The system calls model code may not make: processes, other programs, sockets, rights.

A filter in the kernel's packet language (seccomp(2)), for x86-64 and 64-bit ARM. A refused call
fails with EPERM, so that Python raises OSError; a call in a foreign convention kills the process.
"""

import ctypes
import errno
import platform
import struct

_ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED: dict[str, tuple[int | None, int | None]] = {
    "fork": (57, None), "vfork": (58, None), "execve": (59, 221), "execveat": (322, 281),
    "socket": (41, 198), "ptrace": (101, 117), "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271), "kcmp": (312, 272), "pidfd_send_signal": (424, 424),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "unshare": (272, 97), "setns": (308, 268),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51),
    "open_tree": (428, 428), "move_mount": (429, 429), "fsopen": (430, 430), "fsconfig": (431, 431),
    "fsmount": (432, 432), "fspick": (433, 433), "mount_setattr": (442, 442), "mknod": (133, None),
    "mknodat": (259, 33), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265),
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180), "io_setup": (206, 0),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "userfaultfd": (323, 282), "bpf": (321, 280), "perf_event_open": (298, 241),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106),
    "kexec_load": (246, 104), "kexec_file_load": (320, 294), "reboot": (169, 142),
    "swapon": (167, 224), "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "syslog": (103, 116), "personality": (135, 92), "modify_ldt": (154, None), "iopl": (172, None),
    "ioperm": (173, None),
}  # fmt: skip
"""Numbers on x86-64 and ARM. memfd, shm, msg, sem and mq hold memory that no limit counts."""
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
_PR_SET_NO_NEW_PRIVS = 38
_PR_SET_SECCOMP = 22
_MODE_FILTER = 2


def install() -> None:
    """Refuse the calls for this process, for good."""
    program = filter_for(platform.machine())
    libc = ctypes.CDLL(None, use_errno=True)
    code = ctypes.create_string_buffer(program, len(program))
    header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    has_failed = libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
    if has_failed or libc.prctl(_PR_SET_SECCOMP, _MODE_FILTER, header, 0, 0):
        raise OSError(ctypes.get_errno(), "seccomp")


def filter_for(machine: str) -> bytes:
    """Write the filter of a machine type; OSError for one whose calls are not known here."""
    if machine not in _ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no system call filter for {machine}")
    audit, column = _ARCHITECTURES[machine]
    steps = [_step(_LOAD, 4), _step(_EQUAL, audit, 1, 0), _step(_RETURN, _KILL), _step(_LOAD, 0)]
    steps += [_step(_AT_LEAST, _X32, 0, 1), _step(_RETURN, _KILL)]
    for numbers in _REFUSED.values():
        number = numbers[column]
        if number is not None:
            steps += [_step(_EQUAL, number, 0, 1), _step(_RETURN, _ERRNO | errno.EPERM)]
    # glibc falls back to clone where clone3 is not known, and clone shows its flags: threads only.
    steps += [_step(_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _ERRNO | errno.ENOSYS)]
    steps += [_step(_EQUAL, _CLONE[column], 0, 3), _step(_LOAD, 16)]
    steps += [_step(_ANY_BIT, _CLONE_THREAD, 1, 0)]
    steps += [_step(_RETURN, _ERRNO | errno.EPERM), _step(_RETURN, _ALLOW)]
    return b"".join(steps)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)
