"""Facts about a process that its run stores: versions, machine, command line, commit."""

import os
import platform
import shlex
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from whet.store.files import Row

GIT_SECONDS = 10.0
"""Time limit of git; on a slow file system the run starts without this information."""


def collect_provenance(seed: int | None) -> Row:
    """Collect the facts of this process, without importing anything for them."""
    repository = Path(__file__).parents[2]
    return {
        "whet": package_version("whet"),
        "python": platform.python_version(),
        "torch": package_version("torch"),
        "numpy": package_version("numpy"),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "command": shlex.join(sys.argv),
        "folder": str(Path.cwd()),
        "commit": read_commit(repository),
        "changed": has_changes(repository),
        "seed": seed,
        "started": utc_now(),
    }


def utc_now() -> str:
    """Return the time in UTC, to the second, as ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def read_commit(repository: Path) -> str | None:
    """Read the commit of the checkout; None outside a repository."""
    git = repository / ".git"
    try:
        if git.is_file():  # a linked worktree
            git = repository / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return head or None
        return _read_ref(git, head.removeprefix("ref: "))
    except (OSError, UnicodeDecodeError):
        return None


@cache
def has_changes(repository: Path) -> bool | None:
    """Whether files of the package differ from the commit; None if git cannot tell.

    Git is asked once, because a process keeps the code it has loaded.
    """
    git = shutil.which("git")
    if git is None or not (repository / ".git").exists():
        return None
    ask = [git, "--no-optional-locks", "-C", str(repository)]
    command = [*ask, "status", "--porcelain", "--", "whet"]
    try:
        done = subprocess.run(  # noqa: S603 - the user's git, on our own files
            command, capture_output=True, timeout=GIT_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return bool(done.stdout.strip())


def _read_ref(git: Path, ref: str) -> str | None:
    shared = git / (git / "commondir").read_text().strip() if (git / "commondir").is_file() else git
    if (shared / ref).is_file():
        return (shared / ref).read_text().strip()
    lines = (shared / "packed-refs").read_text().splitlines()
    return next((line.split()[0] for line in lines if line.endswith(f" {ref}")), None)


def package_version(package: str) -> str | None:
    """Return the version of an installed package; None if it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None
