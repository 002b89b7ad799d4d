"""`whet check`: all findings about a file, in a table, without running it."""

from collections.abc import Sequence
from pathlib import Path

from whet.errors import ConfigError, SettingsError
from whet.pipeline.pipeline import PipelineConfig, load_file, load_stages
from whet.preflight.findings import Finding, Level, print_findings
from whet.preflight.preflight import inspect
from whet.track.progress import printer


def check(file: Path, overrides: Sequence[str], out: Path | None) -> bool:
    """Print what passed, what deserves a note and what is wrong; return whether nothing is."""
    findings = _inspect(file, overrides, out or Path("runs") / file.stem)
    print_findings(findings)
    wrong = sum(finding.level is Level.WRONG for finding in findings)
    notes = sum(finding.level is Level.NOTE for finding in findings)
    verdict = f"{wrong} to change before {file} can run" if wrong else f"{file} can run"
    printer.print(f"{verdict}{f', {notes} notes' if notes else ''}", markup=False, style="bold")
    return not wrong


def _inspect(file: Path, overrides: Sequence[str], folder: Path) -> list[Finding]:
    try:
        loaded = load_file(file, overrides)
        stages = load_stages(file, overrides)
    except ConfigError as error:
        words = error.sentences if isinstance(error, SettingsError) else (str(error),)
        return [
            Finding(stage="", subject="settings", level=Level.WRONG, words=line) for line in words
        ]
    is_pipeline = isinstance(loaded.config, PipelineConfig)
    kinds = ", ".join(f"{name} ({stage.kind})" for name, stage in stages.items())
    passed = Finding(
        stage="", subject="settings", level=Level.PASSED, words=f"{len(loaded.origin)} of {kinds}"
    )
    found = inspect(stages, folder, is_pipeline=is_pipeline, is_thorough=True)
    return [passed, *found]
