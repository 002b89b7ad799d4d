"""Show the progress of long work, as a bar on a terminal or else a line every few seconds, and
handle signals to stop."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from whet.errors import visible

if TYPE_CHECKING:  # it imports numpy, and `whet --help` should not
    from whet.types import Advance

console = Console(stderr=True, highlight=False, soft_wrap=True)
printer = Console(highlight=False, soft_wrap=True)
"""Prints the output of commands to stdout; everything else goes to stderr."""

QUIET_SECONDS = 10.0
"""Interval of progress lines without a terminal."""


class RateColumn(ProgressColumn):
    """The rate per second over the last half minute."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text("" if speed is None else _format_rate(speed), style="cyan")


def say(sentence: str) -> None:
    """Print a sentence to stderr, without markup and with control characters escaped."""
    console.print(visible(sentence), markup=False)


def get_console() -> Console | None:
    """Return the progress bars' console, so that lines appear above them; None if no terminal."""
    return console if console.is_terminal else None


@contextmanager
def progress_bar(
    label: str, total: int, *, done: int = 0, note: Callable[[], str] | None = None
) -> Iterator["Advance"]:
    """Show the progress of work; the yielded function takes the amount just done.

    `note` returns a short text to show, such as the cost so far.
    """
    if console.is_terminal and not console.quiet:
        columns = (
            TextColumn("{task.description:<9}"),
            BarColumn(),
            MofNCompleteColumn(),
            RateColumn(),
            TextColumn("{task.fields[note]}"),
            TimeRemainingColumn(),
        )
        with Progress(*columns, console=console, transient=True) as progress:
            task = progress.add_task(label, total=total, completed=done, note="")
            yield lambda count: progress.update(task, advance=count, note=note() if note else "")
    else:
        yield _plain_progress(label, total, done, note)


def _plain_progress(label: str, total: int, done: int, note: Callable[[], str] | None) -> "Advance":
    start = last = time.monotonic()
    first = done

    def advance(count: int) -> None:
        nonlocal done, last
        done += count
        now = time.monotonic()
        if now - last >= QUIET_SECONDS and done < total:
            last = now
            speed = (done - first) / (now - start)
            left = (total - done) / speed if speed else float("inf")
            clause = f", {note()}" if note is not None else ""
            rate = _format_rate(speed)
            console.print(
                f"{label}: {done:,} of {total:,}, {rate}{clause}, about {left:.0f} s left"
            )

    return advance


def _format_rate(speed: float) -> str:
    return f"{speed:,.0f}/s" if speed >= 10 else f"{speed:.2g}/s"


@contextmanager
def on_stop(handle: Callable[[int], None]) -> Iterator[None]:
    """Call `handle` with the number of a signal to stop, from Ctrl-C or a scheduler.

    Only the main thread receives signals; on other threads this does nothing. A rank handles only
    the first signal: its launcher repeats signals that a scheduler sends to all processes, and
    kills ranks that do not end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    is_rank = "TORCHELASTIC_RUN_ID" in os.environ
    asked: list[int] = []

    def ask(number: int, frame: FrameType | None) -> None:
        asked.append(number)
        if len(asked) == 1 or not is_rank:
            handle(number)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
