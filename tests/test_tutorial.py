"""The path of docs/tutorial.md, walked as its reader does: the task, its check, and a model that has
learned it."""

import re
import shlex
from pathlib import Path

import pytest
from small import Said, whet, write

from whet.store.run import RunStore

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tutorial.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SMALLER = {"steps = 200": "steps = 120", "steps = 100": "steps = 4", "every = 25": "every = 4"}
"""What differs from the file of the page, so that the walk takes seconds."""
TRIALS = "--out "
"""Commands that train once more are only parsed, by tests/test_docs.py."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tutorial")
    write(folder / "change.py", text_of("python"))
    settings = text_of("toml")
    for old, new in SMALLER.items():
        assert old in settings, f"{old} is no longer in the file of the page"
        settings = settings.replace(old, new)
    write(folder / "change.toml", settings)
    return folder


@pytest.fixture(scope="module")
def said(folder: Path) -> dict[str, Said]:
    lines = [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        return {line: whet(*shlex.split(line)[1:]) for line in lines if TRIALS not in line}


def text_of(kind: str) -> str:
    return next(text for block, text in BLOCKS if block == kind)


def test_the_task_has_at_most_40_lines() -> None:
    assert len(text_of("python").splitlines()) <= 40


def test_every_command_of_the_tutorial_succeeds(said: dict[str, Said]) -> None:
    assert {line: one.code for line, one in said.items()} == dict.fromkeys(said, 0)
    assert len(said) == 6


def test_the_check_prints_what_the_page_shows(said: dict[str, Said]) -> None:
    printed = said["whet tasks check change.py:Change"]
    shown = next(text for kind, text in BLOCKS if kind == "text")
    assert shown.strip() in printed.out + printed.err


def test_the_weaker_grader_that_the_page_names_is_found_out(folder: Path) -> None:
    old, new = "word == str(coin)", "str(coin) in word"
    assert f"`{old}` with `{new}`" in PAGE.replace("\n", " ")
    write(folder / "weak.py", text_of("python").replace(old, new))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        assert whet("tasks", "check", "weak.py:Change").code == 2


def test_a_grader_that_raises_on_an_empty_text_is_found_before_the_run(folder: Path) -> None:
    fragile = text_of("python").replace("words = text.split()", "words = [text.split()[0]]")
    write(folder / "fragile.py", fragile)
    settings = text_of("toml").replace("change.py:Change", "fragile.py:Change")
    write(folder / "fragile.toml", settings)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        said = whet("check", "fragile.toml")
    assert said.code == 2 and "IndexError" in said.out


def test_the_model_of_the_tutorial_learns_and_is_exported(
    folder: Path, said: dict[str, Said]
) -> None:
    assert "whet run change.toml" in said
    rows = RunStore.view(folder / "runs" / "change" / "02-sft").metrics()
    losses = [row["loss"] for row in rows if "loss" in row]
    assert losses[-1] < losses[0] / 4
    assert (folder / "my-model" / "model.safetensors").is_file()
