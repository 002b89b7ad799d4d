"""The commands for problems in files."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

data = typer.Typer(
    help="Problems in files: import, make, show.", no_args_is_help=True, rich_markup_mode=None
)

_argument = partial(typer.Argument, show_default=False)
_required = partial(typer.Option, show_default=False)
_Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


@data.command("import", context_settings={"allow_extra_args": True})
def import_(
    ctx: typer.Context,
    file: Annotated[Path, _argument(help="JSONL, JSON, CSV or Parquet.")],
    out: Annotated[Path, _required(help="The file of problems to write.")],
    format: Annotated[
        str | None, typer.Option(help="The layout of the rows, or my_rows.py:read.")
    ] = None,
    map: Annotated[list[str] | None, typer.Option(help="field=column, as often as needed.")] = None,
    task: Annotated[str | None, typer.Option(help="The task of mapped rows.")] = None,
    split: Annotated[
        str | None, typer.Option(help="The split of all rows: sft, rl, dev or test.")
    ] = None,
    strict: Annotated[
        bool, typer.Option("--strict", help="Stop at a row that cannot be read.")
    ] = False,
) -> None:
    """Turn rows of any known layout into problems."""
    from whet.commands.problem_files import import_file

    pairs = [*(map or ()), *ctx.args]
    import_file(file, out, format=format, map=pairs, task=task, split=split, is_strict=strict)


@data.command()
def make(
    task: Annotated[str, _argument(help="A task that makes its problems.")],
    out: Annotated[Path, _required(help="The file of problems to write.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 100,
    level: Annotated[float | None, typer.Option(help="1 to 5, or a fraction.")] = None,
    seed: Annotated[int, typer.Option(help="Other seeds make other problems.")] = 0,
) -> None:
    """Make new problems."""
    from whet.commands.problem_files import make_problems

    make_problems(task, n, out=out, level=level, seed=seed)


@data.command("show")
def show_data(
    file: Annotated[Path, _argument(help="A file of problems.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 3,
) -> None:
    """Print problems as a person would want to read them."""
    from whet.commands.problem_files import show_problems

    show_problems(file, n)


_Files = Annotated[list[Path], _argument(help="Files of problems.")]


@data.command()
def clean(
    files: _Files,
    out: Annotated[Path, _required(help="The file of problems to write.")],
    near: Annotated[
        float, typer.Option(help="Jaccard similarity of near duplicates; 1 leaves them in.")
    ] = 0.8,
    any_answer: Annotated[
        bool, typer.Option("--any-answer", help="Near duplicates may have other answers.")
    ] = False,
    against: Annotated[
        list[Path] | None, typer.Option(help="An evaluation file, or a folder of them.")
    ] = None,
    ngram: Annotated[int, typer.Option(help="Words in a row that make an overlap.")] = 13,
    model: Annotated[
        str | None, typer.Option(help="A model, whose tokens are counted for --max-tokens.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest prompt to keep.")] = None,
    report: Annotated[
        Path | None, typer.Option(help="An HTML page of statistics to write.")
    ] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that read; as many as processors by default.")
    ] = None,
    force: _Force = False,
) -> None:
    """Leave out long prompts, duplicates, and overlap with evaluations."""
    from whet.commands.clean_files import CleanOptions, clean_problems

    options = CleanOptions(
        near=near,
        is_any_answer=any_answer,
        against=tuple(against or ()),
        ngram=ngram,
        model=model,
        max_tokens=max_tokens,
        workers=workers,
    )
    clean_problems(files, out, options, report=report, force=force)
