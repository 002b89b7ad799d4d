"""The command that shows runs in a browser."""

from pathlib import Path
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Add it to the commands of `whet`."""
    app.command()(view)


def view(
    folder: Annotated[Path, typer.Argument(help="A run, or a folder with runs in it.")] = Path(
        "runs"
    ),
    host: Annotated[
        str, typer.Option(help="Address to listen at; other than this machine's, with a token.")
    ] = "localhost",
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port; the first free one from 8024 on.")
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Ask for a token, also on this machine alone.")
    ] = False,
    browser: Annotated[bool, typer.Option("--open", help="Open a browser, too.")] = False,
) -> None:
    """Show runs in a web page: curves, rollouts, settings, data, results. Runs are only read."""
    from whet.viewer.server import serve

    serve(folder, host=host, port=port, token=token, is_opened=browser)
