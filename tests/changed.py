"""Print the test files that a change concerns, for `make quick`.

A change is what differs from the last commit, or the last commit itself where nothing differs. A
test file is concerned when it changed, or when it imports a changed module of whet; a changed
module's own doctests count too.
"""

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
MOST = 12
"""Test files at most: a module that everything imports is left to `make test`."""


def main() -> None:
    """Print the files, one per line."""
    changed = changed_files()
    tests = [file for file in changed if Path(file).name.startswith("test_")]
    modules = [file for file in changed if file.startswith("whet/") and file.endswith(".py")]
    importing = [test for test in all_tests() if any(imports(test, module) for module in modules)]
    near = sorted(importing, key=lambda test: -shared_folders(test, modules))
    print(*dict.fromkeys([*tests, *near[:MOST], *modules]), sep="\n")


def changed_files() -> list[str]:
    """List what differs from the last commit, or what the last commit changed."""
    files = git("diff", "--name-only", "HEAD") + git("ls-files", "--others", "--exclude-standard")
    files = files or git("diff", "--name-only", "HEAD~1", "HEAD")
    return [file for file in files if (ROOT / file).exists() and file.endswith(".py")]


def all_tests() -> list[str]:
    return [str(file.relative_to(ROOT)) for file in sorted((ROOT / "tests").rglob("test_*.py"))]


def imports(test: str, module: str) -> bool:
    """Tell whether a test file names a module of whet in an import."""
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    parent, _, name = dotted.rpartition(".")
    source = (ROOT / test).read_text()
    return bool(
        re.search(rf"\b{re.escape(dotted)}\b", source)
        or re.search(rf"from {re.escape(parent)} import .*\b{name}\b", source)
    )


def shared_folders(test: str, modules: list[str]) -> int:
    """Count how many folder names a test shares with the nearest changed module."""
    folders = set(Path(test).parts[1:-1])
    return max((len(folders & set(Path(module).parts[1:-1])) for module in modules), default=0)


def git(*args: str) -> list[str]:
    command = ["git", "-C", str(ROOT), *args]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


if __name__ == "__main__":
    sys.exit(main())
