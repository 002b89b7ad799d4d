"""docs/evaluation.md: its commands run, its suite loads, its table names every suite."""

import re
import shlex
from pathlib import Path

import pytest
from small import whet, write
from two_models import TwoModels

from whet.suites.suite import list_suites, load_suite
from whet.testing.server import chat_reply, serve_replies

PAGE = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text()
COMMANDS = re.search(r"^```bash\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SUITE = re.search(r"^```text\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_commands_of_the_page_run(
    two_models: TwoModels, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert COMMANDS is not None
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("API_KEY", "secret")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    for name in ("aime24", "aime25", "gpqa_diamond"):
        said = whet(
            "data", "make", "arithmetic", "--out", tmp_path / "made.jsonl", "-n", 2, "--force"
        )
        assert said.code == 0, said.err
        folder = tmp_path / "data" / name
        folder.mkdir(parents=True)
        (tmp_path / "made.jsonl").rename(folder / "problems-test.jsonl")
    with serve_replies(lambda asked: chat_reply("7")) as server:
        words = {
            "OTHER_MODEL": str(two_models.two),
            "MODEL": str(two_models.one),
            "http://127.0.0.1:8000/v1": server.url,
        }
        for line in COMMANDS[1].splitlines():
            for word, real in words.items():
                line = re.sub(rf"(?<=[ ]){word}(?=[ #])", real, line)
            said = whet(*shlex.split(line)[1:], "--limit", 2, "--max-tokens", 4)
            assert said.code == 0, said.err
    assert {asked.key for asked in server.asked} == {"Bearer secret"}
    boards = {path.parent.name for path in tmp_path.glob("runs/*/leaderboard.html")}
    assert boards == {"generated-fast", "generated-all", "rlinf-fast"}


def test_the_suite_of_the_page_loads(tmp_path: Path) -> None:
    assert SUITE is not None
    _, benchmarks = load_suite(str(write(tmp_path / "own.toml", SUITE[1])), "all")
    assert [benchmark.label for benchmark in benchmarks.values()] == ["maj@8", "pass@4"]


def test_the_table_of_the_page_names_every_suite() -> None:
    table = PAGE.partition("## Suites")[2].partition("## ")[0]
    assert sorted(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)) == list_suites()
