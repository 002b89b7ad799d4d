"""The image recipes: what they copy is there, and what they start are commands of whet."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCKER = (ROOT / "Dockerfile").read_text()
APPTAINER = (ROOT / "apptainer.def").read_text()


def sections(text: str) -> dict[str, list[str]]:
    """Split an Apptainer recipe into its sections, without comments."""
    parts = re.split(r"^%(\w+)\n", text, flags=re.MULTILINE)
    return {
        name: [line.strip() for line in body.splitlines() if line.strip() and "# " not in line]
        for name, body in zip(parts[1::2], parts[2::2], strict=True)
    }


def docker_copies() -> list[str]:
    lines = re.findall(r"^COPY (.+)$", DOCKER, re.MULTILINE)
    return [word for line in lines for word in line.split()[:-1]]


def apptainer_copies() -> list[str]:
    return [line.split()[0] for line in sections(APPTAINER)["files"]]


def test_both_copy_the_same_files_and_they_exist() -> None:
    assert docker_copies() == apptainer_copies()
    assert [path for path in docker_copies() if not (ROOT / path).exists()] == []


def test_what_the_package_is_built_from_is_copied() -> None:
    needed = re.findall(
        r'^(?:readme|license-files) = \[?"([^"]+)"', (ROOT / "pyproject.toml").read_text(), re.M
    )
    assert len(needed) == 2
    assert set(needed) <= set(docker_copies())


def test_both_start_from_the_same_python_and_install_the_same_packages() -> None:
    images = re.findall(r"^(?:FROM|From:) (.+)$", DOCKER + APPTAINER, re.MULTILINE)
    assert len(images) == 2 and len(set(images)) == 1
    installs = re.findall(r"apt-get install (.+?)(?: \\)?$", DOCKER + APPTAINER, re.MULTILINE)
    assert len(installs) == 2 and len(set(installs)) == 1
    minimum = re.search(r'requires-python = ">=3\.(\d+)"', (ROOT / "pyproject.toml").read_text())
    version = re.search(r"python:3\.(\d+)", images[0])
    assert minimum and version and int(version[1]) >= int(minimum[1])


@pytest.mark.parametrize("line", ["python -m whet", '"python", "-m", "whet"'])
def test_both_start_whet(line: str) -> None:
    assert line in DOCKER + APPTAINER
    assert (ROOT / "whet" / "__main__.py").is_file()


def test_docker_files_have_known_instructions_only() -> None:
    joined = re.sub(r"\\\n", " ", DOCKER)
    words = [line.split()[0] for line in joined.splitlines() if line and not line.startswith("#")]
    assert set(words) <= {"FROM", "RUN", "WORKDIR", "COPY", "ENV", "CMD"}
    assert set(sections(APPTAINER)) == {"files", "post", "environment", "runscript"}
