"""The commands for models: try and export one; info, template, new, pull."""

from pathlib import Path
from typing import Annotated

import typer

from whet.cli.options import Location, argument, required

model = typer.Typer(
    help="Models: info, template, new, pull.", no_args_is_help=True, rich_markup_mode=None
)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command("try")(try_)
    app.command()(export)
    app.add_typer(model, name="model")


def try_(
    location: Location,
    question: Annotated[str, argument(help='What to ask, such as "4 6 8 1".')],
    samples: Annotated[
        int, typer.Option(min=1, max=1000, help="Responses to sample; the first is greedy.")
    ] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest response, in tokens.")] = 512,
    seed: Annotated[int, typer.Option(help="Determines the sampled responses.")] = 0,
) -> None:
    """Ask a trained model a question."""
    from whet.commands.show_responses import ask_model

    ask_model(location, question, samples=samples, max_tokens=max_tokens, seed=seed)


def export(
    location: Annotated[Path, argument(help="A run folder.")],
    out: Annotated[Path, argument(help="A new folder for the model.")],
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16, float16 or float32; unchanged by default.")
    ] = None,
) -> None:
    """Write the model of a run as a Hugging Face folder."""
    from whet.commands.model_folders import export_model

    export_model(location, out, dtype)


@model.command()
def info(location: Location) -> None:
    """Print a model's shape, dtype, template, stop tokens and memory."""
    from whet.commands.model_info import print_info

    print_info(location)


@model.command()
def template(
    location: Location,
    set: Annotated[
        str | None,
        typer.Option(help="Another template: a jinja file, or raw, plain, chatml or think."),
    ] = None,
    lint: Annotated[bool, typer.Option("--lint", help="Check the template.")] = False,
    out: Annotated[
        Path | None, typer.Option(help="A new folder for the model with the other template.")
    ] = None,
) -> None:
    """Print a model's chat template, or what another one would change. `--lint` exits with 1 if it
    finds a fault."""
    from whet.commands.model_info import show_template

    if not show_template(location, other=set, is_linted=lint, out=out):
        raise typer.Exit(1)


@model.command()
def new(
    size: Annotated[str, argument(help="tiny, mini, small, medium or large.")],
    out: Annotated[Path, required(help="A new folder for the model.")],
    texts: Annotated[Path, required(help="Problems, rollouts or lines to train its tokenizer on.")],
    family: Annotated[str, typer.Option(help="qwen2, qwen3, llama or mistral.")] = "qwen3",
    positions: Annotated[int, typer.Option(min=1, help="Longest context, in tokens.")] = 256,
    max_pieces: Annotated[
        int, typer.Option(min=0, help="Most whole words and numbers as tokens.")
    ] = 1024,
    seed: Annotated[int, typer.Option(help="Determines the weights.")] = 0,
) -> None:
    """Write a model with random weights and a newly trained tokenizer."""
    from whet.commands.model_folders import new_model

    new_model(
        size, out, texts=texts, family=family, positions=positions, max_pieces=max_pieces, seed=seed
    )


@model.command()
def pull(
    hub_id: Annotated[str, argument(help="A hub id, such as Qwen/Qwen3-0.6B.")],
    revision: Annotated[
        str | None, typer.Option(help="A branch, tag or commit; main by default.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="A folder for the files; the hub's cache by default.")
    ] = None,
) -> None:
    """Download a model from the hub: only the files that training needs. An interrupted download is
    resumed, and the files are checked."""
    from whet.commands.model_folders import pull_model

    pull_model(hub_id, revision=revision, out=out)
