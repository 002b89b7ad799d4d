"""The options of `whet eval MODEL… --suite NAME`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from whet.errors import ConfigError

if TYPE_CHECKING:
    from whet.suites.suite import Form

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


def refuse_suite_flags(ctx: typer.Context) -> None:
    """Refuse flags that need --suite, which a file of kind eval does not read."""
    for name in SUITE_FLAGS:
        source = ctx.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            flag = "--fast or --all" if name == "is_fast" else f"--{name.replace('_', '-')}"
            raise ConfigError(f"{flag} needs --suite; a file of kind eval has settings of its own")


def evaluate(
    models: Sequence[str],
    suite: str,
    *,
    form: "Form",
    only: Sequence[str],
    data: Path | None,
    limit: int | None,
    max_tokens: int | None,
    key_env: str | None,
    out: Path | None,
    resume: bool,
    gpus: int,
) -> None:
    """Evaluate models on a suite; every other word on the line is a model."""
    if flag := next((word for word in models if word.startswith("-")), None):
        raise ConfigError(f"there is no option {flag}: `whet eval --help` lists them")
    if gpus > 1:
        raise ConfigError(
            "--suite runs in one process: serve the model on its GPUs, and give URL#NAME"
        )
    from whet.suites.run_suite import DATA, SuiteRequest, run_suite

    request = SuiteRequest(
        suite=suite,
        form=form,
        models=models,
        only=only,
        data=data or DATA,
        limit=limit,
        max_tokens=max_tokens,
        key_env=key_env,
    )
    name = f"{Path(suite).stem}-{form}"
    run_suite(request, out or Path("runs") / name, resume=resume)
