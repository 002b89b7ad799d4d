"""The findings of a preflight: one line for each check that passed, left a note, or failed."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum

from rich.markup import escape

from whet.errors import WhetError, visible
from whet.track.progress import printer


class Level(StrEnum):
    """The severity of a finding."""

    PASSED = "ok"
    NOTE = "note"
    WRONG = "wrong"


STYLES = {Level.PASSED: "green", Level.NOTE: "yellow", Level.WRONG: "bold red"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line: stage, subject, severity, and what to change."""

    stage: str
    """Name of a pipeline's stage; empty for the whole file, or for a file with one stage."""
    subject: str
    level: Level
    message: str

    def __str__(self) -> str:
        return f"stages.{self.stage}: {self.message}" if self.stage else self.message


class Findings:
    """Collects the findings of a preflight in order, without repeated notes and errors."""

    def __init__(self) -> None:
        self.list: list[Finding] = []

    def add(self, stage: str, subject: str, level: Level, message: str) -> None:
        """Add a finding; a note or an error that was already added is dropped."""
        if level is Level.PASSED or all(message != other.message for other in self.list):
            self.list.append(Finding(stage=stage, subject=subject, level=level, message=message))

    @contextmanager
    def catch(self, stage: str, subject: str) -> Iterator[None]:
        """Turn an error that a user can fix into a finding."""
        try:
            yield
        except WhetError as error:
            self.add(stage, subject, Level.WRONG, str(error))

    def of(self, level: Level) -> list[Finding]:
        """List the findings of one level."""
        return [finding for finding in self.list if finding.level is level]


def print_findings(findings: Sequence[Finding]) -> None:
    """Print a line for each finding, passed checks first and errors last."""
    width = max((len(finding.stage) for finding in findings), default=0)
    for level in Level:
        for finding in findings:
            if finding.level is level:
                where = f"{finding.stage:<{width}}  {finding.subject:<8}"
                message = escape(visible(finding.message))
                printer.print(f"[{STYLES[level]}]{level:<5}[/]  {escape(where)}  {message}")
