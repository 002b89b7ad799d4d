"""The command line. Each verb reads settings, prints its plan, runs it, and prints where the
result is.

Only light modules are imported here: `whet --help` loads no torch.
"""

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from whet import (
    cli_check,
    cli_cluster,
    cli_data,
    cli_eval,
    cli_model,
    cli_replay,
    cli_results,
    cli_study,
    cli_view,
)
from whet.cluster.failure import record_error
from whet.errors import ConfigError, WhetError, visible
from whet.recipes.registry import COMMANDS
from whet.track.progress import console, on_stop, say

app = typer.Typer(
    name="whet",
    help="Sharpen the reasoning of language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
tasks = typer.Typer(help="Problems and graders by name.", rich_markup_mode=None)
app.add_typer(tasks, name="tasks")
app.add_typer(cli_data.data, name="data")
app.add_typer(cli_model.model, name="model")
cli_cluster.add_to(app)
cli_check.add_to(app)
cli_replay.add_to(app)
cli_results.add_to(app)
cli_study.add_to(app)
cli_view.add_to(app)
LONGEST_SENTENCE = 4_000
"""Characters of an error that are printed; it may quote a file."""
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}

_argument = partial(typer.Argument, show_default=False)
_required = partial(typer.Option, show_default=False)
File = Annotated[Path, _argument(help="A TOML file; its first line says its kind.")]
Out = Annotated[Path | None, typer.Option(help="Run folder; runs/NAME of the file by default.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]
Explain = Annotated[bool, typer.Option("--explain", help="Say what each setting means.")]
Smoke = Annotated[
    bool, typer.Option("--smoke", help="All stages in seconds, on tiny random models.")
]


@app.command(context_settings=SETTINGS)
def run(
    ctx: typer.Context,
    file: File,
    out: Out = None,
    resume: Resume = False,
    smoke: Smoke = False,
    gpus: cli_cluster.Gpus = 1,
    nodes: cli_cluster.Nodes = "1",
    rendezvous: cli_cluster.Rendezvous = None,
    restarts: cli_cluster.Restarts = 3,
) -> None:
    """Run a pipeline: the stages of one file, in order, skipping finished ones. `--a.b value`
    changes a setting."""
    with _stoppable():
        _expect(file, "run")
        cli_cluster.launch_if_many(
            ctx, out or Path("runs") / (f"{file.stem}-smoke" if smoke else file.stem)
        )
        from whet.pipeline.pipeline import load_stages, run_file

        with cli_cluster.join_ranks(load_stages(file, ctx.args).values()):
            run_file(file, ctx.args, out, resume=resume or cli_cluster.is_restarted(), smoke=smoke)


def run_alone(ctx: typer.Context, file: File, out: Out = None, resume: Resume = False) -> None:
    """Run a file of the kind that the command is named for."""
    with _stoppable():
        _run_alone(ctx.command.name or "", file, ctx.args, out, resume)


def run_on_ranks(
    ctx: typer.Context,
    file: File,
    out: Out = None,
    resume: Resume = False,
    gpus: cli_cluster.Gpus = 1,
    nodes: cli_cluster.Nodes = "1",
    rendezvous: cli_cluster.Rendezvous = None,
    restarts: cli_cluster.Restarts = 3,
) -> None:
    """Run a file of the kind that the command is named for, on one process or many."""
    with _stoppable():
        _expect(file, ctx.command.name or "")
        cli_cluster.launch_if_many(ctx, out or Path("runs") / file.stem)
        _run_alone(ctx.command.name or "", file, ctx.args, out, resume)


def teach(
    ctx: typer.Context,
    file: Annotated[Path, _argument(help="A TOML file, or `status` and a run folder.")],
    out: Out = None,
    resume: Resume = False,
) -> None:
    """Run a file of kind teach, or print how far one is."""
    if str(file) != "status":
        run_alone(ctx, file, out, resume)
        return
    from whet.commands.teach_status import print_status

    if len(ctx.args) != 1:
        raise ConfigError("`whet teach status` takes one run folder")
    print_status(Path(ctx.args[0]))


@app.command(context_settings=SETTINGS)
def show(ctx: typer.Context, file: File, explain: Explain = False) -> None:
    """Print every setting of a file with where it came from, and run nothing."""
    from whet.config import kind_of, show_settings
    from whet.pipeline.pipeline import load_file
    from whet.study.study_file import load_study

    load = load_study if kind_of(file) == "study" else load_file
    typer.echo(show_settings(load(file, ctx.args), explain=explain), nl=False)


@app.command(context_settings=SETTINGS)
def plan(
    ctx: typer.Context,
    file: File,
    gpu: Annotated[
        str, typer.Option(help="Which card: h200, h100, a100, a100-40, l40s, rtx4090.")
    ] = "h200",
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt.")] = 64,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Mean tokens of an answer; the limit by default.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="How many of them, in all nodes together.")
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes that share them equally; of 8 GPUs by default."),
    ] = None,
    price: Annotated[
        float | None, typer.Option(min=0.0, help="Dollars for a GPU and an hour.")
    ] = None,
) -> None:
    """Predict memory, step and run time on a GPU or on many, and run nothing. Exits with 1 where
    something does not fit."""
    from whet.pipeline.pipeline import load_stages
    from whet.plan.cluster import Cluster, print_cluster_plan
    from whet.plan.predict import print_plan

    stages = load_stages(file, ctx.args)
    if gpus is None:
        if nodes is not None or price is not None:
            raise ConfigError("--nodes and --price need --gpus")
        fit = print_plan(stages, gpu=gpu, prompt=prompt, tokens=tokens)
    else:
        cluster = Cluster(gpu=gpu, gpus=gpus, nodes=nodes, price=price)
        fit = print_cluster_plan(stages, cluster, prompt=prompt, tokens=tokens)
    if not fit:
        raise typer.Exit(1)


@app.command("try")
def try_(
    location: Annotated[str, _argument(help="A run folder, a model folder, or a hub id.")],
    question: Annotated[str, _argument(help='What to ask, such as "4 6 8 1".')],
    samples: Annotated[
        int, typer.Option(min=1, max=1000, help="Answers to draw; the first is greedy.")
    ] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 512,
    seed: Annotated[int, typer.Option(help="Decides the drawn answers.")] = 0,
) -> None:
    """Ask a trained model something."""
    from whet.commands.try_model import ask

    ask(location, question, samples=samples, max_tokens=max_tokens, seed=seed)


@app.command()
def export(
    location: Annotated[Path, _argument(help="A run folder.")],
    out: Annotated[Path, _argument(help="A new folder for the model.")],
    dtype: Annotated[
        str | None, typer.Option(help="bfloat16, float16 or float32; as it is by default.")
    ] = None,
) -> None:
    """Write the model of a run as a Hugging Face folder."""
    from whet.commands.export_model import export_model

    export_model(location, out, dtype)


@app.command()
def doctor(
    model: Annotated[
        str | None, typer.Argument(help="Your own model or run folder, proved too.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    gpus: cli_cluster.Gpus = 1,
) -> None:
    """Prove that training computes correctly on this machine; name every fault. With `--gpus`,
    prove it for processes that train together."""
    if (code := cli_cluster.prove_ranks(gpus, as_json=as_json)) is not None:
        sys.exit(code)
    from whet.commands.doctor import run_proofs

    sys.exit(0 if run_proofs(model, as_json=as_json) else 1)


@tasks.callback(invoke_without_command=True)
def list_(ctx: typer.Context) -> None:
    """List the tasks; `whet tasks check` proves their graders."""
    from whet.commands.problem_files import list_tasks

    if ctx.invoked_subcommand is None:
        list_tasks()


@tasks.command()
def check(
    name: Annotated[str | None, _argument(help="A task; all of them by default.")] = None,
    problems: Annotated[Path | None, typer.Option(help="Prove it on these problems.")] = None,
) -> None:
    """Prove graders: gold is right, and a text that only looks like an answer is not."""
    from whet.commands.problem_files import check_tasks

    with _stoppable():
        check_tasks(name, problems)


def _run_alone(kind: str, file: Path, args: list[str], out: Path | None, resume: bool) -> None:
    from whet.config import load_settings
    from whet.pipeline.pipeline import KINDS, run_stage
    from whet.pipeline.report import write_stage_report
    from whet.preflight.preflight import check_before_run
    from whet.store.follow import open_run
    from whet.world import get_world

    _expect(file, kind)
    loaded = load_settings(KINDS[kind], file, args)
    named = out or Path("runs") / file.stem
    folder = loaded.config.run_folder(named)
    with cli_cluster.join_ranks([loaded.config]):
        goes_on = resume or cli_cluster.is_restarted()
        check_before_run({kind: loaded.config}, folder, is_pipeline=False, resume=goes_on)
        ignore = loaded.config.ignored
        run = open_run(folder, loaded.config, loaded.origin, resume=goes_on, ignore=ignore)
        with run:
            if get_world().run_on_rank_zero(lambda: run.is_finished, "whether the run is done"):
                say(f"{folder} is finished; nothing to do")
            else:
                say(f"{kind}, with the settings in {run.config_file}")
                run_stage(loaded.config, run)
                if get_world().is_rank_zero and run.is_finished:
                    write_stage_report(loaded, run)
                say(f"results in {folder}")
        loaded.config.end_run(named)


def _expect(file: Path, kind: str) -> None:
    from whet.config import kind_of

    own = kind_of(file)
    if own != kind:
        here = f"{file} is of kind {own!r}"
        if own in ("run", "study", *COMMANDS):
            raise ConfigError(f"{here}: use `whet {own} {file}`, or give a file of kind {kind!r}")
        raise ConfigError(f"{here}, but `whet {kind}` runs files of kind {kind!r}")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let Ctrl-C or SIGTERM stop a command, with a sentence; checkpoints stay."""
    number = 0

    def stop(now: int) -> None:
        nonlocal number
        number = now
        raise KeyboardInterrupt

    try:
        with on_stop(stop):
            yield
    except KeyboardInterrupt as error:
        sentence, number = error.args or (
            "stopped; the same command with --resume goes on from the last checkpoint",
            number,
        )
        say(sentence)
        raise typer.Exit(128 + number) from None


_own: dict[str, Callable[..., None]] = {
    "teach": teach,
    "eval": cli_eval.make_command(run_on_ranks, _stoppable),
}
for _name, _kind in COMMANDS.items():
    _run = run_on_ranks if _kind.on_ranks else run_alone
    app.command(_name, help=_kind.help, context_settings=SETTINGS)(_own.get(_name, _run))


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line, on the process's own arguments by default; a user's mistake is one
    sentence, code 2."""
    try:
        app(args, prog_name="whet")
    except WhetError as error:
        record_error(error)
        _refuse(str(error))
    except OSError as error:
        record_error(error)
        reason = error.strerror or str(error)
        _refuse(f"{error.filename}: {reason}" if error.filename is not None else reason)
    except Exception as error:
        record_error(error)
        raise


def _refuse(sentence: str) -> None:
    num_left_out = len(sentence) - LONGEST_SENTENCE
    if num_left_out > 0:
        half = LONGEST_SENTENCE // 2
        sentence = f"{sentence[:half]} … {num_left_out:,} characters … {sentence[-half:]}"
    rank = f" rank {os.environ['RANK']}:" if console.quiet else ""
    console.quiet = False
    console.print(f"[bold red]whet:{rank}[/] {escape(visible(sentence))}")
    sys.exit(2)
