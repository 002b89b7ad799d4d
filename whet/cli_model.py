"""The commands for models: info, template, new, pull."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

model = typer.Typer(
    help="Models: info, template, new, pull.", no_args_is_help=True, rich_markup_mode=None
)

_argument = partial(typer.Argument, show_default=False)
_required = partial(typer.Option, show_default=False)
Location = Annotated[str, _argument(help="A run folder, a model folder, or a hub id.")]


@model.command()
def info(location: Location) -> None:
    """Print a model's shape, dtype, template, stop tokens, and the memory that it takes."""
    from whet.commands.model_info import print_info

    print_info(location)


@model.command()
def template(
    location: Location,
    set: Annotated[
        str | None,
        typer.Option(help="Another template: a jinja file, or raw, plain, chatml, think."),
    ] = None,
    lint: Annotated[bool, typer.Option("--lint", help="Check the template.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the model with the other template.")
    ] = None,
) -> None:
    """Print a model's chat template, or what another one would change. `--lint` exits with 1 where
    it finds a fault."""
    from whet.commands.model_template import show_template

    if not show_template(location, other=set, is_linted=lint, out=out):
        raise typer.Exit(1)


@model.command()
def new(
    size: Annotated[str, _argument(help="tiny, mini, small, medium or large.")],
    out: Annotated[Path, _required(help="A new folder for the model.")],
    texts: Annotated[
        Path, _required(help="Problems, rollouts or lines that its tokenizer is trained on.")
    ],
    family: Annotated[str, typer.Option(help="qwen2, qwen3, llama or mistral.")] = "qwen3",
    positions: Annotated[int, typer.Option(min=1, help="Longest context in tokens.")] = 256,
    max_pieces: Annotated[int, typer.Option(min=0, help="Most whole pieces as tokens.")] = 1024,
    seed: Annotated[int, typer.Option(help="Decides the weights.")] = 0,
) -> None:
    """Write a model of random weights, with a tokenizer of its own."""
    from whet.commands.export_model import new_model

    new_model(
        size,
        out,
        texts=texts,
        family=family,
        positions=positions,
        max_pieces=max_pieces,
        seed=seed,
    )


@model.command()
def pull(
    hub_id: Annotated[str, _argument(help="Such as Qwen/Qwen3-0.6B.")],
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit; main by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the files; the hub's cache by default.")
    ] = None,
) -> None:
    """Download a model from the hub: only what training needs, resumed where it stopped, and
    checked."""
    from whet.commands.model_pull import pull_model

    pull_model(hub_id, revision=revision, out=out)
