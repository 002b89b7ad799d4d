"""The commands that look at finished runs: several side by side, and the card of one."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

_argument = partial(typer.Argument, show_default=False)
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(compare)
    app.command()(card)


def compare(
    runs: Annotated[
        list[Path], _argument(help="Folders of runs, stages or pipelines; the first is the base.")
    ],
    out: Annotated[Path | None, typer.Option(help="The page; compare.html by default.")] = None,
    as_json: AsJson = False,
) -> None:
    """Compare runs: what differs in their settings, curves, and scores with intervals over seeds
    and problems. Runs that differ in their seed alone are one arm."""
    from whet.results.compare import compare_runs

    page = out or (None if as_json else Path("compare.html"))
    compare_runs(runs, page, as_json=as_json)


def card(
    run: Annotated[Path, _argument(help="The folder of a run, stage or pipeline.")],
    out: Annotated[Path | None, typer.Option(help="Write the Markdown there.")] = None,
    as_json: AsJson = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compute a sample of it again, and compare.")
    ] = False,
    price: Annotated[
        float | None, typer.Option(min=0.0, help="Dollars for a GPU and an hour.")
    ] = None,
) -> None:
    """Print the card of a run: data, code, settings, time, cost, evaluations, deviations. With
    `--verify`, exits with 1 where something does not agree with what is stored."""
    from whet.results.card import print_card
    from whet.results.verify import verify_card

    if verify:
        if not verify_card(run, as_json=as_json):
            raise typer.Exit(1)
        return
    print_card(run, out, as_json=as_json, price=price)
