"""The commands for problems in files."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from whet.errors import ConfigError

data = typer.Typer(
    help="Problems in files: prepare, import, make, show.",
    no_args_is_help=True,
    rich_markup_mode=None,
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
    force: _Force = False,
) -> None:
    """Turn rows of any known layout into problems."""
    from whet.commands.problem_files import import_file

    pairs = [*(map or ()), *ctx.args]
    how = {"format": format, "task": task, "split": split}
    import_file(file, out, map=pairs, is_strict=strict, force=force, **how)


@data.command()
def make(
    task: Annotated[str, _argument(help="A task that makes its problems.")],
    out: Annotated[Path, _required(help="The file of problems to write.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 100,
    level: Annotated[float | None, typer.Option(help="1 to 5, or a fraction.")] = None,
    seed: Annotated[int, typer.Option(help="Other seeds make other problems.")] = 0,
    force: _Force = False,
) -> None:
    """Make new problems."""
    from whet.commands.problem_files import make_problems

    make_problems(task, n, out=out, level=level, seed=seed, force=force)


@data.command()
def prepare(
    source: Annotated[
        str | None, _argument(help="A source that --list lists, or a file my_source.toml.")
    ] = None,
    out: Annotated[Path | None, _required(help="The folder to write; data/SOURCE.")] = None,
    file: Annotated[
        list[str] | None, typer.Option(help="A raw file, PATH or SPLIT=PATH; as often as needed.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Stop reading a file after this many problems.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the sources.")] = False,
    force: _Force = False,
) -> None:
    """Make a folder of problems from a training or evaluation set."""
    from whet.commands import prepare_source
    from whet.errors import ConfigError

    if list_:
        prepare_source.print_sources()
    elif source is None:
        raise ConfigError("name a source: `whet data prepare --list` lists them")
    else:
        prepare_source.prepare(source, out=out, files=file or (), limit=limit, force=force)


@data.command("show")
def show_data(
    file: Annotated[Path, _argument(help="A file of problems.")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 3,
) -> None:
    """Print problems as a person would want to read them."""
    from whet.commands.problem_files import show_problems

    show_problems(file, n)


@data.command()
def difficulty(
    map: Annotated[Path, _argument(help="The map: a JSON lines file, which may be new.")],
    add: Annotated[
        list[Path] | None, typer.Option(help="A run folder or rollout file to count in.")
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The name of the model that wrote them, if not theirs.")
    ] = None,
    problems: Annotated[Path | None, typer.Option(help="A file of problems to filter.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Which to keep by pass rate, such as 'weak<0.9'.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="Set levels to the rate of wrong answers of this model; '' for all."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Where the kept problems go.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file.")] = False,
) -> None:
    """Count how often each model solved each problem; show it, or filter problems by it."""
    from whet.commands.difficulty_map import add_to_map, filter_file, show_map
    from whet.data.difficulty import read_map

    if add:
        add_to_map(map, add, model)
    if (problems is None) != (out is None):
        raise ConfigError("--problems and --out go together: what to filter, and where it goes")
    if problems is not None and out is not None:
        filter_file(map, problems, out, keep=keep or (), level=level, force=force)
    elif not add:
        show_map(read_map(map))
