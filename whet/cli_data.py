"""The commands for problems in files."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.errors import ConfigError

if TYPE_CHECKING:
    from whet.toml import Table

data = typer.Typer(
    help="Problems in files: prepare, import, make, clean, split, mix, show.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

_argument = partial(typer.Argument, show_default=False)
_required = partial(typer.Option, show_default=False)
_BINS = typer.Option(help="Words from easy to hard, edges, or a number of equal parts.")
_REVERSE = typer.Option("--reverse", help="Low numbers are hard, as pass rates are.")
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
    level: Annotated[str | None, typer.Option(help="The column that levels are made of.")] = None,
    bins: Annotated[str | None, _BINS] = None,
    reverse: Annotated[bool, _REVERSE] = False,
) -> None:
    """Turn rows of any known layout into problems."""
    from whet.commands.problem_files import import_file

    pairs = [*(map or ()), *ctx.args]
    import_file(
        file,
        out,
        format=format,
        map=pairs,
        task=task,
        split=split,
        level=level,
        bins=bins,
        is_reversed=reverse,
        is_strict=strict,
        force=force,
    )


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

    if list_:
        prepare_source.print_sources()
    elif source is None:
        raise ConfigError("name a source: `whet data prepare --list` lists them")
    else:
        prepare_source.prepare(source, out=out, files=file or (), limit=limit, force=force)


@data.command("show", context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def show_data(
    ctx: typer.Context,
    file: Annotated[Path, _argument(help="A file of problems, or of rollouts (.parquet).")],
    n: Annotated[int, typer.Option("-n", help="How many.")] = 3,
    model: Annotated[
        str | None, typer.Option(help="Show the tokens of this model: a run, a folder, a hub id.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Take model and prompt from this experiment.")
    ] = None,
) -> None:
    """Print problems, or answers to them, for a person to read, or with `--model` as that model
    sees them. `--prompt.system TEXT` and other settings of `prompt` change what it sees."""
    if model is not None or settings is not None:
        from whet.commands.show_rows import show_prompts

        tables = _read_prompt(settings) if settings is not None else {}
        tables |= {} if model is None else {"model": {"path": model}}
        show_prompts(file, n, tables, ctx.args)
        return
    from whet.commands.problem_files import show_problems
    from whet.commands.show_rows import has_rollouts, show_rollouts

    if ctx.args:
        raise ConfigError(f"{ctx.args[0]} needs --model, whose prompts it is about")
    if has_rollouts(file):
        show_rollouts(file, n)
    else:
        show_problems(file, n)


def _read_prompt(settings: Path) -> "Table":
    """Read the prompt of the first stage in which a model reads problems, and the first model that
    no stage makes."""
    from whet.config import to_table
    from whet.pipeline.pipeline import load_stages

    tables = [to_table(stage) for stage in load_stages(settings, []).values()]
    tables = [table for table in tables if "model" in table]
    given: Table = {"prompt": tables[0].get("prompt", {})} if tables else {}
    for table in tables:
        model = table["model"]
        if isinstance(model, dict) and not str(model.get("path") or "@").startswith("@"):
            template = {"chat_template": model["chat_template"]} if "chat_template" in model else {}
            return {**given, "model": {"path": model["path"], **template}}
    return given


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


@data.command()
def split(
    files: _Files,
    out: Annotated[Path, _required(help="The folder to write problems-SPLIT.jsonl into.")],
    fractions: Annotated[
        str, typer.Option(help="The fraction of each split.")
    ] = "rl=0.9,dev=0.05,test=0.05",
    seed: Annotated[int, typer.Option(help="Other seeds split otherwise.")] = 0,
    force: _Force = False,
) -> None:
    """Split problems by what they ask; added rows move no old ones."""
    from whet.commands.mix_files import split_problems

    split_problems(files, out, fractions=fractions, seed=seed, force=force)


@data.command()
def mix(
    inputs: Annotated[list[str], _argument(help="Files of problems, each FILE or FILE=WEIGHT.")],
    out: Annotated[Path, _required(help="The file of problems to write.")],
    n: Annotated[int | None, typer.Option("-n", help="How many; all by default.")] = None,
    by: Annotated[
        str | None, typer.Option(help="Deal evenly over task, level, source or split: task,level.")
    ] = None,
    quota: Annotated[
        list[str] | None, typer.Option(help="VALUE=ROWS, the most of a value of the first --by.")
    ] = None,
    order: Annotated[str, typer.Option(help="shuffle, or level for a curriculum.")] = "shuffle",
    level: Annotated[
        str | None, typer.Option(help="The column that levels are made of: payload.difficulty.")
    ] = None,
    bins: Annotated[str | None, _BINS] = None,
    reverse: Annotated[bool, _REVERSE] = False,
    seed: Annotated[int, typer.Option(help="Other seeds take other rows.")] = 0,
    force: _Force = False,
) -> None:
    """Take a volume of problems, dealt over inputs, tasks and levels."""
    from whet.commands.mix_files import MixOptions, mix_problems

    options = MixOptions(
        n=n,
        by=by,
        quotas=tuple(quota or ()),
        order=order,
        seed=seed,
        level=level,
        bins=bins,
        is_reversed=reverse,
    )
    mix_problems(inputs, out, options, force=force)


@data.command()
def stats(
    files: _Files,
    model: Annotated[
        str | None, typer.Option(help="Count the tokens of prompts to this model.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="An HTML page to write.")] = None,
    force: _Force = False,
) -> None:
    """Count problems by task, source, level, split and length."""
    from whet.commands.problem_stats import count_problems

    count_problems(files, model=model, report=report, force=force)


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

    if add:
        add_to_map(map, add, model)
    if (problems is None) != (out is None):
        raise ConfigError("--problems and --out go together: what to filter, and where it goes")
    if problems is not None and out is not None:
        filter_file(map, problems, out, keep=keep or (), level=level, force=force)
    elif not add:
        show_map(map)
