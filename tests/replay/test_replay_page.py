"""Every command of docs/replay.md runs."""

import re
import shlex
from pathlib import Path

import pytest
from small import Pipeline, whet, write

PAGE = (Path(__file__).parents[2] / "docs" / "replay.md").read_text()


def blocks(kind: str) -> list[str]:
    return re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_page_run(
    tiny: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "game24").symlink_to(tiny.folder)
    write(tmp_path / "divisors.toml", blocks("text")[0])
    lines = [line for block in blocks("bash") for line in block.splitlines()]
    assert len(lines) == 7
    for line in lines:
        said = whet(*shlex.split(line)[1:])
        assert said.code == 0, f"{line}: {said.err}"
        if "--tokens" in line:
            assert "colours tokens by them" in said.err
        elif line.startswith("whet replay") and "--json" not in line:
            assert "numbers that the run logged come out bit for bit" in said.out


def test_the_columns_of_the_page_are_those_printed(tmp_path: Path) -> None:
    tables = re.findall(
        r"^\| column \| meaning \|\n\|---\|---\|\n((?:\|.*\n)+)", PAGE, re.MULTILINE
    )
    names = [re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE) for table in tables]
    replay = (Path(__file__).parents[2] / "whet" / "replay" / "replay.py").read_text()
    grade = (Path(__file__).parents[2] / "whet" / "commands" / "grade_run.py").read_text()
    for source, listed in zip((replay, grade), names, strict=True):
        columns = [column for name in listed for column in name.split(", ")]
        assert [column for column in columns if f'"{column}"' not in source] == []
