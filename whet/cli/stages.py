"""Commands that run stages: a pipeline, a stage, an evaluation of a file or suite, a study."""

import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from whet.cli import cluster_jobs
from whet.cli.options import (
    SETTINGS,
    File,
    Gpus,
    NodesFlag,
    Out,
    Rendezvous,
    Restarts,
    Resume,
    argument,
)
from whet.errors import ConfigError
from whet.recipes.registry import COMMANDS
from whet.track.progress import on_stop, say


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command(context_settings=SETTINGS)(run)


Smoke = Annotated[
    bool, typer.Option("--smoke", help="Run all stages in seconds, on tiny random models.")
]


def run(
    ctx: typer.Context,
    file: File,
    out: Out = None,
    resume: Resume = False,
    smoke: Smoke = False,
    gpus: Gpus = 1,
    nodes: NodesFlag = "1",
    rendezvous: Rendezvous = None,
    restarts: Restarts = 3,
) -> None:
    """Run a pipeline: the stages of one file, in order, skipping finished ones. `--a.b value`
    changes a setting."""
    with stoppable():
        _expect(file, "run")
        cluster_jobs.launch_if_many(
            ctx, out or Path("runs") / (f"{file.stem}-smoke" if smoke else file.stem)
        )
        from whet.pipeline.pipeline import run_file
        from whet.pipeline.pipeline_config import load_stages

        with cluster_jobs.join_ranks(load_stages(file, ctx.args).values()):
            run_file(file, ctx.args, out, resume=resume or cluster_jobs.is_restarted(), smoke=smoke)


def run_alone(ctx: typer.Context, file: File, out: Out = None, resume: Resume = False) -> None:
    """Run a file of the kind that the command is named for."""
    with stoppable():
        _run_alone(ctx.command.name or "", file, ctx.args, out, resume)


def run_on_ranks(
    ctx: typer.Context,
    file: File,
    out: Out = None,
    resume: Resume = False,
    gpus: Gpus = 1,
    nodes: NodesFlag = "1",
    rendezvous: Rendezvous = None,
    restarts: Restarts = 3,
) -> None:
    """Run a file of the kind that the command is named for, on one process or many."""
    with stoppable():
        _expect(file, ctx.command.name or "")
        cluster_jobs.launch_if_many(ctx, out or Path("runs") / file.stem)
        _run_alone(ctx.command.name or "", file, ctx.args, out, resume)


def teach(
    ctx: typer.Context,
    file: Annotated[Path, argument(help="A TOML file, or `status` and a run folder.")],
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


def _run_alone(kind: str, file: Path, args: list[str], out: Path | None, resume: bool) -> None:
    from whet.config import load_settings
    from whet.pipeline.pipeline import run_stage
    from whet.pipeline.pipeline_config import STAGE_KINDS
    from whet.pipeline.report import write_stage_report
    from whet.preflight.preflight import check_before_run
    from whet.store.follow import open_run
    from whet.world import get_world

    _expect(file, kind)
    loaded = load_settings(STAGE_KINDS[kind], file, args)
    chosen = out or Path("runs") / file.stem
    folder = loaded.config.run_folder(chosen)
    with cluster_jobs.join_ranks([loaded.config]):
        is_resumed = resume or cluster_jobs.is_restarted()
        check_before_run({kind: loaded.config}, folder, is_pipeline=False, resume=is_resumed)
        ignore = loaded.config.ignored
        run = open_run(folder, loaded.config, loaded.origin, resume=is_resumed, ignore=ignore)
        with run:
            if get_world().run_on_rank_zero(lambda: run.is_finished, "whether the run is done"):
                say(f"{folder} is finished; nothing to do")
            else:
                say(f"{kind}, with the settings in {run.config_file}")
                run_stage(loaded.config, run)
                if get_world().is_rank_zero and run.is_finished:
                    write_stage_report(loaded, run)
                say(f"results in {folder}")
                say(f"See it   whet view {shlex.quote(str(folder))}")
        loaded.config.end_run(chosen)


def _expect(file: Path, kind: str) -> None:
    from whet.config import kind_of

    actual = kind_of(file)
    if actual != kind:
        fact = f"{file} is of kind {actual!r}"
        if actual in ("run", "study", *COMMANDS):
            raise ConfigError(
                f"{fact}: use `whet {actual} {file}`, or give a file of kind {kind!r}"
            )
        raise ConfigError(f"{fact}, but `whet {kind}` runs files of kind {kind!r}")


@contextmanager
def stoppable(
    sentence: str = "stopped; the same command with --resume continues from the last checkpoint",
) -> Iterator[None]:
    """Stop a command on Ctrl-C or SIGTERM, with a sentence; checkpoints stay."""
    number = 0

    def stop(now: int) -> None:
        nonlocal number
        number = now
        raise KeyboardInterrupt

    try:
        with on_stop(stop):
            yield
    except KeyboardInterrupt as error:
        sentence, number = error.args or (sentence, number)
        say(sentence)
        raise typer.Exit(128 + number) from None


SuiteName = Annotated[
    str | None,
    typer.Option("--suite", help="A suite of benchmarks by name, or a file my_suite.toml."),
]
IsFast = Annotated[
    bool,
    typer.Option(
        "--fast/--all", help="Part of the suite, to choose between models; or all of it, to report."
    ),
]
Only = Annotated[list[str] | None, typer.Option(help="A benchmark of the suite; repeatable.")]
Data = Annotated[
    Path | None,
    typer.Option(help="Where `whet data prepare` wrote its folders.", show_default="data"),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Most problems per benchmark.")]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Longest response in tokens, in place of the suite's.")
]
KeyEnv = Annotated[
    str | None, typer.Option(help="The environment variable that holds the key of a server.")
]
SUITE_FLAGS = ("is_fast", "only", "data", "limit", "max_tokens", "key_env")


def evaluate(
    ctx: typer.Context,
    file: Annotated[
        str, argument(help="A TOML file of kind eval; with --suite, one or several models.")
    ],
    out: Out = None,
    resume: Resume = False,
    suite: SuiteName = None,
    is_fast: IsFast = True,
    only: Only = None,
    data: Data = None,
    limit: Limit = None,
    max_tokens: MaxTokens = None,
    key_env: KeyEnv = None,
    gpus: Gpus = 1,
    nodes: NodesFlag = "1",
    rendezvous: Rendezvous = None,
    restarts: Restarts = 3,
) -> None:
    """Run a file of kind eval, or evaluate models on a suite."""
    if suite is None:
        _refuse_suite_flags(ctx)
        run_on_ranks(ctx, Path(file), out, resume, gpus, nodes, rendezvous, restarts)
        return
    _check_models([file, *ctx.args], gpus)
    from whet.suites.run_suite import DATA, SuiteRequest, run_suite

    request = SuiteRequest(
        suite=suite,
        form="fast" if is_fast else "all",
        models=[file, *ctx.args],
        only=only or (),
        data=data or DATA,
        limit=limit,
        max_tokens=max_tokens,
        key_env=key_env,
    )
    with stoppable():
        name = f"{Path(suite).stem}-{request.form}"
        run_suite(request, out or Path("runs") / name, resume=resume)


def _refuse_suite_flags(ctx: typer.Context) -> None:
    """Refuse flags that need --suite, which a file of kind eval does not read."""
    for name in SUITE_FLAGS:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            flag = "--fast or --all" if name == "is_fast" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} needs --suite; a file of kind eval has its own settings")


def _check_models(models: Sequence[str], gpus: int) -> None:
    """Refuse unknown options; all other words on the line are models."""
    if flag := next((word for word in models if word.startswith("-")), None):
        raise ConfigError(f"there is no option {flag}: `whet eval --help` lists them")
    if gpus > 1:
        raise ConfigError(
            "--suite runs in one process: serve the model on several GPUs, and give its URL#NAME"
        )


def study(
    ctx: typer.Context,
    file: Annotated[Path, argument(help="A TOML file of kind study.")],
    out: Annotated[
        Path | None, typer.Option(help="Folder of the study; runs/FILE by default.")
    ] = None,
    plan: Annotated[
        bool, typer.Option("--plan", help="Print what would run and for how long, and run nothing.")
    ] = False,
    smoke: Annotated[
        bool, typer.Option("--smoke", help="Run all rounds in minutes, on tiny random models.")
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="How many runs at once; one per GPU, or per core, by default."),
    ] = None,
    gpus: Annotated[int, typer.Option(min=1, help="GPUs per run.")] = 1,
) -> None:
    """Run a pipeline with different settings and seeds, round after round, and report the winner.
    The same command continues where it stopped."""
    from whet.study.study import run_study

    with stoppable("stopped; the same command continues where it stopped"):
        run_study(file, ctx.args, out, is_plan=plan, is_smoke=smoke, jobs=jobs, gpus_per_run=gpus)
