"""A kind of stage that the package does not know, that of docs/add_a_stage.md."""

import re
from pathlib import Path

import pytest
from small import whet, write

from whet.errors import ConfigError
from whet.pipeline.pipeline_config import find_kind
from whet.store.run import RunStore

PAGE = (Path(__file__).parents[2] / "docs" / "add_a_stage.md").read_text()
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my_vote.py", BLOCKS["python"])
    return write(tmp_path / "vote.toml", BLOCKS["TOML"])


def test_a_kind_from_a_file_is_shown_checked_planned_and_run_like_any_other(file: Path) -> None:
    shown = whet("show", file, "--explain")
    checked = whet("check", file)
    planned = whet("plan", file)
    ended = whet("run", file, "--smoke", "--out", "run")
    again = whet("run", file, "--smoke", "--out", "run")

    lines = [" ".join(line.split()) for line in shown.out.splitlines()]
    assert "stages.vote.votes = 16 # vote.toml: Responses that vote on each problem" in lines, (
        shown.err
    )
    assert checked.code == 0, checked.out
    assert re.search(r"vote +sample .* 1 ", planned.out), planned.out
    assert ended.code == 0, ended.err
    run = RunStore.view(Path("run/03-vote"))
    assert len(run.rollouts("eval", 0)) == 2 * run.summary()["problems"], "two votes in a smoke run"
    assert [row["step"] for row in run.metrics()] == [1, 2]
    assert "Solved by that many votes" in Path("run/report.html").read_text()
    assert "03-vote: done before" in again.err

    write(Path("my_vote.py"), BLOCKS["python"] + "\n")
    assert (
        "03-vote: its settings or inputs changed"
        in whet("run", file, "--smoke", "--out", "run").err
    )


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("vote", "kind = 'my_vote.py:vote' should name a class that inherits from StageConfig"),
        ("Bare", "kind = 'my_vote.py:Bare' lacks run_in.*; whet/stages/stage.py describes each"),
        ("Voteconfig", "my_vote.py has no Voteconfig; .* did you mean VoteConfig?"),
    ],
)
def test_a_name_that_is_no_kind_is_one_sentence(file: Path, name: str, sentence: str) -> None:
    code = BLOCKS["python"] + "\n\nclass Bare(ModelStageConfig):\n    pass\n"
    write(Path("other.py"), code)
    write(file, BLOCKS["TOML"].replace("my_vote.py:VoteConfig", f"other.py:{name}"))

    said = whet("show", file)

    assert said.code == 2
    assert re.search(sentence.replace("my_vote", "other"), said.last), said.last


def test_a_setting_that_the_kind_does_not_have_is_refused_by_its_own_names(file: Path) -> None:
    said = whet("show", file, "--stages.vote.vote", "3")

    assert said.code == 2
    assert said.last.endswith(
        """kind = 'my_vote.py:VoteConfig': unknown key "vote"; did you mean "votes"?"""
    )


def test_an_unknown_kind_is_none_and_a_missing_file_is_named() -> None:
    assert find_kind("dance") is None
    with pytest.raises(ConfigError, match=r"kind = 'nowhere.py:Name': there is no file nowhere.py"):
        find_kind("nowhere.py:Name")
