"""Answers are shown with their question, author, verdict and reward."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from small import whet

from whet.commands.show_responses import show_rollouts
from whet.errors import ConfigError, DataError
from whet.store.rollouts import write_rollouts
from whet.testing.fakes import rollout
from whet.types import FinishReason, Score, Verdict

SCORE = Score(verdict=Verdict.NO_ANSWER, parts={"correct": 0.0}, answer="4", note="no box")


def write(file: Path, count: int = 3) -> Path:
    texts = [f"answer {number} [red]" for number in range(count)]
    answers = [
        rollout(reward=0.5, score=SCORE, number=number, text=text, finish=FinishReason.LENGTH)
        for number, text in enumerate(texts)
    ]
    write_rollouts(file, [tuple(answers)])
    return file


def test_the_first_rollouts_are_printed_with_what_their_grader_says(tmp_path: Path) -> None:
    said = whet("data", "show", write(tmp_path / "r.parquet"), "-n", 2)
    assert said.code == 0, said.err
    assert said.out.count("reward 0.5 · 3 tokens · cut off at the limit") == 2
    assert "no answer" in said.out and "  user:\n    1 + 2\n" in said.out
    assert "  response:\n    answer 1 [red]\n" in said.out and "answer 2" not in said.out
    assert "  score:\n    correct: 0\n    read as: 4\n    note: no box\n" in said.out


def test_on_a_terminal_a_rollout_has_a_frame(tmp_path: Path) -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=80, color_system=None)
    show_rollouts(write(tmp_path / "r.parquet"), 1, console=console)
    assert "╭─" in screen.getvalue() and "answer 0 [red]" in screen.getvalue()


def test_a_file_without_rollouts_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"r\.parquet has no rollouts"):
        show_rollouts(write(tmp_path / "r.parquet", 0), 1)
    with pytest.raises(ConfigError, match="-n 0 should be at least 1"):
        show_rollouts(write(tmp_path / "r.parquet"), 0)
