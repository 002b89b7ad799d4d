"""Rollouts for a person: the question, the answer, who wrote it, and what its grader says."""

from pathlib import Path

from rich.console import Console, Group
from rich.panel import Panel
from rich.text import Text

from whet.commands.problem_files import list_sections, shorten
from whet.errors import ConfigError, DataError, visible
from whet.store.rollouts import is_rollout_file, read_rollouts
from whet.types import FinishReason, Rollout


def has_rollouts(file: Path) -> bool:
    """Whether a file holds rollouts and not problems."""
    return file.suffix == ".parquet" and file.is_file() and is_rollout_file(file)


def show_rollouts(file: Path, n: int = 3, *, console: Console | None = None) -> None:
    """Print the first rollouts of a file: in frames on a terminal, as plain lines elsewhere."""
    if n < 1:
        raise ConfigError(f"-n {n} should be at least 1")
    console = console or Console(highlight=False)
    rollouts = read_rollouts(file, limit=n)
    for rollout in rollouts:
        sections = list_rollout_sections(rollout)
        if console.is_terminal:
            parts = [
                Text(f"{title}\n", style="bold").append(content, style="not bold")
                for title, content in sections
            ]
            heading = Text(format_rollout_heading(rollout))
            console.print(
                Panel(Group(*parts), title=heading, title_align="left", border_style="dim")
            )
        else:
            lines = [format_rollout_heading(rollout)]
            for title, content in sections:
                lines += [f"  {title}:", *(f"    {line}".rstrip() for line in content.splitlines())]
            console.print("\n".join(lines) + "\n", markup=False, soft_wrap=True)
    if not rollouts:
        raise DataError(f"{file} has no rollouts")


def format_rollout_heading(rollout: Rollout) -> str:
    """Name a rollout, its author, its verdict and its reward in one line."""
    parts = [rollout.id, f"{rollout.author} {rollout.model}".strip()]
    parts.append("not graded" if rollout.score is None else rollout.score.verdict.replace("_", " "))
    if rollout.reward is not None:
        parts.append(f"reward {rollout.reward:g}")
    if num_tokens := len(rollout.completion.tokens):
        parts.append(f"{num_tokens:,} tokens")
    if rollout.completion.finish_reason is FinishReason.LENGTH:
        parts.append("cut off at the limit")
    return visible(" · ".join(parts))


def list_rollout_sections(rollout: Rollout) -> list[tuple[str, str]]:
    """List the titles and texts below the heading: the problem, the answer, its score."""
    sections = [*list_sections(rollout.problem), ("response", shorten(rollout.text))]
    if rollout.score is not None:
        scored = [f"{name}: {value:g}" for name, value in rollout.score.parts.items()]
        if rollout.score.answer is not None:
            scored.append(f"read as: {rollout.score.answer}")
        if rollout.score.note:
            scored.append(f"note: {rollout.score.note}")
        sections.append(("score", shorten("\n".join(scored))))
    return sections
