"""The locks: one for users, which is all that whet needs to run and little of it, and one for
developers on top."""

import re
import tomllib
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
MOST = 48
"""Packages of users besides torch and what torch itself needs."""
PIN = re.compile(r"[A-Za-z0-9._-]+==[0-9][0-9A-Za-z.]*")


def pinned(lock: str) -> list[str]:
    lines = [line for line in (ROOT / lock).read_text().splitlines() if line[:1] not in "#-"]
    assert [line for line in lines if not PIN.fullmatch(line)] == []
    return [canonicalize_name(line.partition("==")[0]) for line in lines]


def closure(requirements: list[str]) -> set[str]:
    """Follow what installed packages need on this machine, without their extras."""
    names: set[str] = set()
    waiting = [Requirement(text) for text in requirements]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        is_needed = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if is_needed and name not in names:
            names.add(name)
            waiting += [Requirement(text) for text in distribution(name).requires or []]
    return names


def runtime() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return closure(project["dependencies"])


def test_users_install_at_most_48_packages_besides_those_of_torch() -> None:
    assert len(set(pinned("requirements.lock")) - closure(["torch"])) <= MOST


def test_the_lock_of_users_is_what_the_package_needs_and_no_more() -> None:
    # pip brings setuptools along; torch's builds for GPUs name NVIDIA's libraries themselves.
    of_torch = closure(["torch"])
    users = set(pinned("requirements.lock"))
    assert runtime() - of_torch <= users <= runtime()


def test_the_lock_of_developers_adds_to_that_of_users_and_repeats_nothing() -> None:
    developers = pinned("requirements-dev.lock")
    assert "-r requirements.lock" in (ROOT / "requirements-dev.lock").read_text().splitlines()
    assert {"pytest", "ruff", "mypy", "mkdocs-material"} <= set(developers)
    assert set(developers) & set(pinned("requirements.lock")) == set()
    assert len(developers) == len(set(developers))


def test_make_train_needs_no_package_of_developers() -> None:
    makefile = (ROOT / "Makefile").read_text()
    rules = dict(re.findall(r"^(\S+): (.*)$", makefile, re.MULTILINE))
    assert rules["train"] == "$(USER)"
    assert rules["$(USER)"] == "requirements.lock pyproject.toml"
    install = makefile.partition("\n$(USER): ")[2]
    assert "pip install" in install and "--quiet" not in install, "it shows that it goes on"
