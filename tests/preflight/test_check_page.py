"""The commands of docs/check.md do what the page says."""

import re
import shlex
from pathlib import Path

import pytest
from small import Pipeline, whet

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "check.md").read_text()
COMMANDS = [
    line.removeprefix("whet ")
    for block in re.findall(r"```bash\n(.*?)```", PAGE, re.DOTALL)
    for line in block.splitlines()
]


def test_the_commands_run_in_their_order(
    tiny: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    places = {
        "FILE": "first.toml",
        "MODEL": tiny.folder / "03-sft",
        "FOLDER": tiny.folder / "01-problems",
        "experiments/game24_cpu.toml": ROOT / "experiments" / "game24_cpu.toml",
    }
    said = [
        whet(*(places.get(word, word) for word in shlex.split(line)))
        for line in COMMANDS
        if not line.startswith("rl ")
    ]

    assert [one.code for one in said] == [0, 0, 0, 2]
    assert "did you mean 'correct'?" in said[-1].out
    assert whet("check", "mine.toml").code == 0


def test_the_page_names_every_subject() -> None:
    named = set(re.findall(r"^\| (\w+) \|", PAGE, re.MULTILINE)) - {"subject"}
    package = ROOT / "whet"
    sources = [*package.glob("preflight/*.py"), package / "pipeline" / "experiment_file.py"]
    text = "".join(file.read_text() for file in sources)
    used = re.findall(r'(?:catch|add|_pass|_note)\(\s*(?:self\.name, |"", )?"(\w+)"', text)
    used += re.findall(r'subject="(\w+)"', text)
    assert set(used) - {"ok"} == named
