import io
import re
from contextlib import redirect_stderr

import pytest
from rich.console import Console

from whet.track import progress
from whet.track.progress import console, get_console, progress_bar, say


def shown(action: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a terminal of 100 columns gets while a bar moves."""
    stream = io.StringIO()
    monkeypatch.setattr(
        progress, "console", Console(file=stream, force_terminal=True, width=100, soft_wrap=True)
    )
    with progress_bar(action, 10, done=2) as advance:
        advance(3)
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue())


def test_off_a_terminal_short_work_prints_nothing() -> None:
    stream = io.StringIO()
    with redirect_stderr(stream), progress_bar("rl", 3) as advance:
        for _ in range(3):
            advance(1)
    assert stream.getvalue() == ""


def test_off_a_terminal_long_work_prints_a_line_now_and_then(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "QUIET_SECONDS", 0.0)
    stream = io.StringIO()
    with redirect_stderr(stream), progress_bar("rl", 2000, done=500) as advance:
        advance(1000)
        advance(500)
    assert re.fullmatch(r"rl: 1,500 of 2,000, \S+/s, about \d+ s left\n", stream.getvalue())


def test_on_a_terminal_a_bar_shows_how_far_work_has_come_and_goes_away(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = shown("rl", monkeypatch)
    assert re.search(r"rl +\S+.* 5/10 ", text)


def test_lines_go_above_the_bar_on_a_terminal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    with redirect_stderr(io.StringIO()):
        assert get_console() is None
    terminal = Console(file=io.StringIO(), force_terminal=True)
    monkeypatch.setattr(progress, "console", terminal)
    assert get_console() is terminal


def test_a_long_sentence_is_one_line_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    with redirect_stderr(stream):
        console.print("word " * 60)
    assert stream.getvalue().count("\n") == 1


def test_what_is_said_keeps_its_brackets() -> None:
    stream = io.StringIO()
    with redirect_stderr(stream):
        say("results in runs/[bold]x[/]")
    assert stream.getvalue() == "results in runs/[bold]x[/]\n"


@pytest.mark.parametrize(
    ("speed", "text"), [(1234.5, "1,234/s"), (10.0, "10/s"), (2.345, "2.3/s"), (0.0123, "0.012/s")]
)
def test_a_rate_has_the_digits_one_can_use(speed: float, text: str) -> None:
    assert progress._format_rate(speed) == text


def test_text_of_others_does_not_steer_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(
        progress,
        "console",
        Console(file=stream, force_terminal=True, highlight=False, soft_wrap=True),
    )

    say("a\x1b[2Jb\x07 [bold]c")

    assert stream.getvalue() == "a\\x1b[2Jb\\x07 [bold]c\n"
