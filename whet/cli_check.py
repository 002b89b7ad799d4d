"""The commands before a run: write a first experiment, and look a file over; and the version."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from whet.track.progress import say

_argument = partial(typer.Argument, show_default=False)


def add_to(app: typer.Typer) -> None:
    """Add these commands, and the options of `whet` itself."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.callback()(whet)
    app.command()(init)
    app.command("check", context_settings=settings)(check_file)


def print_version(is_asked: bool) -> None:
    """Print the version, and end."""
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"whet {version('whet')}")
        raise typer.Exit


def whet(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version, and end."
        ),
    ] = False,
) -> None:
    """Hold the options of `whet` itself."""


def init(
    model: Annotated[str | None, typer.Option(help="A model folder or hub id.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder of problems, or a file of answers.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="rl, sft or run.")] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write a first experiment for your model and data, with what each setting means."""
    from whet.pipeline.experiment_file import write_experiment

    written = write_experiment(out, kind=kind, model=model, data=data)
    say(f"wrote {out}: `whet check {out}` looks it over, `whet {written} {out}` runs it")


def check_file(
    ctx: typer.Context,
    file: Annotated[Path, _argument(help="A TOML file; its first line says its kind.")],
    out: Annotated[
        Path | None, typer.Option(help="Run folder; runs/NAME of the file by default.")
    ] = None,
) -> None:
    """Look over a file before it runs: settings, data, template, grader, lengths, memory, disk.
    Exits with 2 where something is wrong."""
    from whet.pipeline.experiment_file import check

    if not check(file, ctx.args, out):
        raise typer.Exit(2)
