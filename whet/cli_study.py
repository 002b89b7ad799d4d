"""The command for studies: many runs of one pipeline, compared."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from whet.track.progress import on_stop, say

_argument = partial(typer.Argument, show_default=False)


def add_to(app: typer.Typer) -> None:
    """Add this command to those of `whet`."""
    settings = {"allow_extra_args": True, "ignore_unknown_options": True}
    app.command(context_settings=settings)(study)


def study(
    ctx: typer.Context,
    file: Annotated[Path, _argument(help="A TOML file of kind study.")],
    out: Annotated[
        Path | None, typer.Option(help="Its folder; runs/NAME of the file by default.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would run and how long, and run nothing.")
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="All rounds in minutes, on tiny random models.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Runs at once; one per GPU, or per core, by default.")
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs of each run.")] = 1,
) -> None:
    """Run a pipeline with different settings and seeds, round after round, and say what won. The
    same command goes on where it stopped."""
    from whet.study.study import run_study

    number = 0

    def stop(now: int) -> None:
        nonlocal number
        number = now
        raise KeyboardInterrupt

    try:
        with on_stop(stop):
            run_study(
                file, ctx.args, out, is_plan=plan, is_smoke=smoke, jobs=jobs, gpus_per_run=gpus
            )
    except KeyboardInterrupt:
        say("stopped; the same command goes on where it was")
        raise typer.Exit(128 + number) from None
