"""The same sandbox made by bubblewrap, for machines that allow namespaces to it and not to us.

A setuid `bwrap` works where user namespaces are switched off, others where the system's rules name
it. It makes the namespaces and the root, and starts a new Python there; limits and the filter of
system calls are ours again. A start costs as much as a Python does. Where it is setuid the scratch
folder is read-only, since it cannot bound its files.
"""

import json
import os
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

from whet.tasks.code import namespaces

CODE = "/code"
SETTLED = "in the sandbox"
"""What the process inside says on its standard error when all is in place, and nothing else before
that."""

_START = "import sys; sys.path.insert(0, '/code'); from whet.tasks.code import launcher; launcher.inside()"
_HERE = Path(__file__).parent
_SYS_ADMIN = 1 << 21


def command(tool: str, paths: Mapping[str, str], uid: int | None, job: str) -> list[str]:
    """Write the call of bubblewrap: nothing of the machine but libraries, four devices, Python and
    our own code."""
    python = str(Path(sys.executable).resolve())
    args = [
        tool,
        "--unshare-ipc",
        "--unshare-pid",
        "--unshare-net",
        "--unshare-uts",
        "--hostname",
        "sandbox",
    ]
    args += [
        *(["--unshare-user-try"] if uid is None else []),
        "--die-with-parent",
        "--as-pid-1",
        "--cap-drop",
        "ALL",
    ]
    for right in _rights(tool, uid):
        args += ["--cap-add", right]
    binds = {**paths, python: python, f"{CODE}/whet/tasks/code": str(_HERE)}
    for folder in sorted(
        {str(folder) for place in binds for folder in Path(place).parents} - {"/"}
    ):
        args += ["--perms", "0755", "--dir", folder]  # or only their owner could enter
    for place, source in binds.items():
        args += ["--dev-bind" if place.startswith("/dev/") else "--ro-bind", source, place]
    args += ["--tmpfs", "/tmp", "--remount-ro", "/tmp", "--remount-ro", "/", "--chdir", "/tmp"]  # noqa: S108
    return [*args, "--", python, "-S", "-P", "-B", "-c", _START, job]


def become(
    tool: str, paths: Mapping[str, str], uid: int | None, job: Mapping[str, str | int]
) -> None:
    """Replace this process by bubblewrap. Root that may not mount becomes a user now, any other
    root once inside."""
    if uid is not None and not is_admin():
        namespaces.surrender(uid)
        uid = None
    line = command(tool, paths, uid, json.dumps({**job, "uid": uid}))
    os.execve(tool, line, {"PYTHONHASHSEED": "0"})  # noqa: S606  # found on our own path


def furnish() -> None:
    """Put a scratch folder with limits over the read-only one, where bubblewrap left us the right
    to."""
    try:
        namespaces.scratch("/tmp")  # noqa: S108
    except OSError:
        return
    os.chdir("/tmp")  # noqa: S108


def is_admin() -> bool:
    """Tell whether this process may mount things."""
    rights = next(
        line
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff")
    )
    return bool(int(rights.split()[1], 16) & _SYS_ADMIN)


def _rights(tool: str, uid: int | None) -> list[str]:
    """List what the process inside needs before it gives up everything: the scratch folder, and to
    become a user."""
    if uid is not None:
        return ["CAP_SYS_ADMIN", "CAP_SETUID", "CAP_SETGID"]
    is_setuid = Path(tool).stat().st_mode & stat.S_ISUID
    return [] if is_setuid else ["CAP_SYS_ADMIN"]
