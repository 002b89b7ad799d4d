"""The command `whet eval`: of a file, or of models on a suite with `--suite NAME`."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated

import typer

from whet import cli_cluster
from whet.errors import ConfigError

SuiteName = Annotated[
    str | None,
    typer.Option("--suite", help="A suite of benchmarks by name, or a file my_suite.toml."),
]
IsFast = Annotated[
    bool,
    typer.Option(
        "--fast/--all", help="A part of the suite, for choosing; or all of it, for reporting."
    ),
]
Only = Annotated[
    list[str] | None, typer.Option(help="A benchmark of the suite; as often as needed.")
]
Data = Annotated[
    Path | None,
    typer.Option(help="Where `whet data prepare` has put its folders.", show_default="data"),
]
Limit = Annotated[int | None, typer.Option(min=1, help="Most problems of each benchmark.")]
MaxTokens = Annotated[
    int | None, typer.Option(min=1, help="Longest answer, in place of the suite's.")
]
KeyEnv = Annotated[
    str | None, typer.Option(help="The environment variable with the key of an address.")
]
SUITE_FLAGS = ("is_fast", "only", "data", "limit", "max_tokens", "key_env")


def make_command(
    run_file: Callable[..., None], stoppable: Callable[[], AbstractContextManager[None]]
) -> Callable[..., None]:
    """Make the command: `run_file` runs a file of kind eval, on one process or many."""

    def evaluate(
        ctx: typer.Context,
        file: Annotated[
            str,
            typer.Argument(
                help="A TOML file of kind eval; with --suite, the models, one or several.",
                show_default=False,
            ),
        ],
        out: Annotated[Path | None, typer.Option(help="Run folder; in runs/ by default.")] = None,
        resume: Annotated[
            bool, typer.Option("--resume", help="Go on with a run that was stopped.")
        ] = False,
        suite: SuiteName = None,
        is_fast: IsFast = True,
        only: Only = None,
        data: Data = None,
        limit: Limit = None,
        max_tokens: MaxTokens = None,
        key_env: KeyEnv = None,
        gpus: cli_cluster.Gpus = 1,
        nodes: cli_cluster.Nodes = "1",
        rendezvous: cli_cluster.Rendezvous = None,
        restarts: cli_cluster.Restarts = 3,
    ) -> None:
        if suite is None:
            _refuse_suite_flags(ctx)
            run_file(ctx, Path(file), out, resume, gpus, nodes, rendezvous, restarts)
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

    return evaluate


def _refuse_suite_flags(ctx: typer.Context) -> None:
    """Refuse flags that need --suite, which a file of kind eval does not read."""
    for name in SUITE_FLAGS:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            flag = "--fast or --all" if name == "is_fast" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} needs --suite; a file of kind eval has settings of its own")


def _check_models(models: Sequence[str], gpus: int) -> None:
    """Refuse an option that there is not: every other word on the line is a model."""
    if flag := next((word for word in models if word.startswith("-")), None):
        raise ConfigError(f"there is no option {flag}: `whet eval --help` lists them")
    if gpus > 1:
        raise ConfigError(
            "--suite runs in one process: serve the model on its GPUs, and give URL#NAME"
        )
