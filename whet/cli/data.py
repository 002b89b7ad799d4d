"""Commands on problem files, and on the tasks that grade them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import SETTINGS, Force, argument, required
from whet.cli.stages import stoppable
from whet.errors import ConfigError

if TYPE_CHECKING:
    from whet.toml import Table

data = typer.Typer(
    help="Problems in files: prepare, import, make, clean, split, mix, show.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
tasks = typer.Typer(help="Tasks: their problems and graders, by name.", rich_markup_mode=None)

Bins = Annotated[
    str | None, typer.Option(help="Words from easy to hard, edges, or a number of equal parts.")
]
Reverse = Annotated[bool, typer.Option("--reverse", help="Low numbers are hard, as in pass rates.")]
Files = Annotated[list[Path], argument(help="Files of problems.")]
ProblemFile = Annotated[Path, required(help="The file of problems to write.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.add_typer(tasks, name="tasks")
    app.add_typer(data, name="data")


@data.command("import", context_settings={"allow_extra_args": True})
def import_(
    ctx: typer.Context,
    file: Annotated[Path, argument(help="JSONL, JSON, CSV or Parquet.")],
    out: ProblemFile,
    format: Annotated[
        str | None, typer.Option(help="The layout of the rows, or my_rows.py:read.")
    ] = None,
    map: Annotated[list[str] | None, typer.Option(help="FIELD=COLUMN; repeatable.")] = None,
    task: Annotated[str | None, typer.Option(help="The task of mapped rows.")] = None,
    split: Annotated[
        str | None, typer.Option(help="The split of all rows: sft, rl, dev or test.")
    ] = None,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Stop at a row that cannot be read, or at an unknown column."
        ),
    ] = False,
    force: Force = False,
    level: Annotated[str | None, typer.Option(help="The column to compute levels from.")] = None,
    bins: Bins = None,
    reverse: Reverse = False,
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
    task: Annotated[str, argument(help="A task that makes its problems.")],
    out: ProblemFile,
    n: Annotated[int, typer.Option("-n", help="How many problems.")] = 100,
    level: Annotated[
        float | None,
        typer.Option(
            help="A fifth of the difficulty, 1 to 5, or the difficulty, from 0 to below 1."
        ),
    ] = None,
    split: Annotated[
        str | None, typer.Option(help="Only problems of this split; of all by default.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Another seed makes other problems.")] = 0,
    force: Force = False,
) -> None:
    """Make new problems."""
    from whet.commands.problem_files import make_problems

    make_problems(task, n, out=out, level=level, split=split, seed=seed, force=force)


@data.command()
def prepare(
    source: Annotated[
        str | None, argument(help="A source from --list, or a file my_source.toml.")
    ] = None,
    out: Annotated[
        Path | None, required(help="The folder to write; data/SOURCE by default.")
    ] = None,
    file: Annotated[
        list[str] | None, typer.Option(help="A raw file, PATH or SPLIT=PATH; repeatable.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(help="Stop reading a file after this many problems.")
    ] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the sources.")] = False,
    force: Force = False,
) -> None:
    """Make a folder of problems from a training or evaluation set."""
    from whet.commands.mix_files import prepare_problems, print_sources

    if list_:
        print_sources()
    elif source is None:
        raise ConfigError("name a source; `whet data prepare --list` lists them")
    else:
        prepare_problems(source, out=out, files=file or (), limit=limit, force=force)


@data.command("show", context_settings=SETTINGS)
def show_data(
    ctx: typer.Context,
    file: Annotated[Path, argument(help="A file of problems, or of rollouts (.parquet).")],
    n: Annotated[int, typer.Option("-n", help="How many problems.")] = 3,
    model: Annotated[
        str | None, typer.Option(help="Show the tokens of this model: a run, a folder, a hub id.")
    ] = None,
    settings: Annotated[
        Path | None, typer.Option(help="Take the model and prompt from this experiment.")
    ] = None,
) -> None:
    """Print problems, or responses to them, in readable form; with `--model`, as that model sees
    them. `--prompt.system TEXT` and other settings of `prompt` change what it sees."""
    if model is not None or settings is not None:
        from whet.commands.show_responses import show_prompts

        tables = _read_prompt(settings) if settings is not None else {}
        tables |= {} if model is None else {"model": {"path": model}}
        show_prompts(file, n, tables, ctx.args)
        return
    from whet.commands.problem_files import show_problems
    from whet.commands.show_responses import has_rollouts, show_rollouts

    if ctx.args:
        raise ConfigError(f"{ctx.args[0]} changes the prompt of a model: add --model")
    if has_rollouts(file):
        show_rollouts(file, n)
    else:
        show_problems(file, n)


def _read_prompt(settings: Path) -> "Table":
    """Read the prompt of the first stage whose model reads problems, and the first model that no
    stage makes."""
    from whet.config import to_table
    from whet.pipeline.pipeline_config import load_stages

    tables = [to_table(stage) for stage in load_stages(settings, []).values()]
    tables = [table for table in tables if "model" in table]
    given: Table = {"prompt": tables[0].get("prompt", {})} if tables else {}
    for table in tables:
        model = table["model"]
        if isinstance(model, dict) and not str(model.get("path") or "@").startswith("@"):
            template = {"chat_template": model["chat_template"]} if "chat_template" in model else {}
            return {**given, "model": {"path": model["path"], **template}}
    return given


@data.command()
def clean(
    files: Files,
    out: ProblemFile,
    near: Annotated[
        float, typer.Option(help="Jaccard similarity of near duplicates; 1 keeps them.")
    ] = 0.8,
    any_answer: Annotated[
        bool, typer.Option("--any-answer", help="Near duplicates may differ in their answers.")
    ] = False,
    against: Annotated[
        list[Path] | None, typer.Option(help="An evaluation file, or a folder of them.")
    ] = None,
    ngram: Annotated[int, typer.Option(help="How many words in a row count as an overlap.")] = 13,
    model: Annotated[
        str | None, typer.Option(help="The model whose tokenizer counts for --max-tokens.")
    ] = None,
    max_tokens: Annotated[int | None, typer.Option(help="Longest prompt to keep.")] = None,
    report: Annotated[Path | None, typer.Option(help="Write statistics to this HTML page.")] = None,
    workers: Annotated[
        int | None, typer.Option(help="Processes that read; one per processor by default.")
    ] = None,
    force: Force = False,
) -> None:
    """Remove long prompts, duplicates, and problems that overlap with evaluations."""
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
    files: Files,
    out: Annotated[Path, required(help="The folder to write problems-SPLIT.jsonl into.")],
    fractions: Annotated[
        str, typer.Option(help="The fraction of each split.")
    ] = "rl=0.9,dev=0.05,test=0.05",
    seed: Annotated[int, typer.Option(help="Another seed splits differently.")] = 0,
    force: Force = False,
) -> None:
    """Split problems by their content, so that rows added later do not move earlier ones."""
    from whet.commands.mix_files import split_problems

    split_problems(files, out, fractions=fractions, seed=seed, force=force)


@data.command()
def mix(
    inputs: Annotated[list[str], argument(help="Files of problems, each FILE or FILE=WEIGHT.")],
    out: ProblemFile,
    n: Annotated[int | None, typer.Option("-n", help="How many; all by default.")] = None,
    by: Annotated[
        str | None,
        typer.Option(help="Balance over task, level, source or split, such as task,level."),
    ] = None,
    quota: Annotated[
        list[str] | None,
        typer.Option(help="VALUE=ROWS, the most rows of one value of the first --by; repeatable."),
    ] = None,
    order: Annotated[str, typer.Option(help="shuffle, or level for a curriculum.")] = "shuffle",
    level: Annotated[
        str | None,
        typer.Option(help="The column to compute levels from, such as payload.difficulty."),
    ] = None,
    bins: Bins = None,
    reverse: Reverse = False,
    seed: Annotated[int, typer.Option(help="Another seed takes other rows.")] = 0,
    force: Force = False,
) -> None:
    """Mix problems from several files, balanced over inputs, tasks and levels."""
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
    files: Files,
    model: Annotated[
        str | None, typer.Option(help="Count prompt tokens with this model's tokenizer.")
    ] = None,
    report: Annotated[Path | None, typer.Option(help="Write them to this HTML page too.")] = None,
    force: Force = False,
) -> None:
    """Count problems by task, source, level, split and length."""
    from whet.commands.show_problem_stats import count_problems

    count_problems(files, model=model, report=report, force=force)


@data.command()
def difficulty(
    map: Annotated[Path, argument(help="The map: a JSON lines file, created if missing.")],
    add: Annotated[
        list[Path] | None,
        typer.Option(help="A run folder or rollout file to add to it; repeatable."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="The model that wrote them, if they do not name it.")
    ] = None,
    problems: Annotated[Path | None, typer.Option(help="A file of problems to filter.")] = None,
    keep: Annotated[
        list[str] | None, typer.Option(help="Keep by pass rate, such as 'weak<0.9'; repeatable.")
    ] = None,
    level: Annotated[
        str | None,
        typer.Option(help="Set levels to this model's rate of wrong answers; '' means all models."),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write the kept problems to this file.")] = None,
    force: Force = False,
) -> None:
    """Count how often each model solved each problem; show it, or filter problems by it."""
    from whet.commands.difficulty_maps import add_to_map, filter_file, show_map

    if add:
        add_to_map(map, add, model)
    if (problems is None) != (out is None):
        raise ConfigError(
            "--problems and --out need each other: what to filter, and where to write it"
        )
    if problems is not None and out is not None:
        filter_file(map, problems, out, keep=keep or (), level=level, force=force)
    elif not add:
        show_map(map)


@tasks.callback(invoke_without_command=True)
def list_(ctx: typer.Context) -> None:
    """List the tasks; `whet tasks check` proves their graders."""
    from whet.commands.problem_files import list_tasks

    if ctx.invoked_subcommand is None:
        list_tasks()


@tasks.command("check")
def check_graders(
    name: Annotated[str | None, argument(help="A task; all of them by default.")] = None,
    problems: Annotated[Path | None, typer.Option(help="Prove it on these problems.")] = None,
) -> None:
    """Prove graders: the gold answer is correct, and a text that only looks like an answer is
    not."""
    from whet.commands.grade_file import check_graders

    with stoppable():
        check_graders(name, problems)
