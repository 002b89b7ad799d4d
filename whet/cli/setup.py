"""Commands before a run: write a first experiment, check it, print its settings, predict its cost,
and prove that the machine computes correctly; and the version."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from whet.cli import cluster_jobs
from whet.cli.options import SETTINGS, File, Gpus, JsonFlag, Out, Price
from whet.errors import ConfigError
from whet.track.progress import say


def add_to(app: typer.Typer) -> None:
    """Add these commands, and the options of `whet` itself."""
    app.callback()(whet)
    app.command()(init)
    app.command("check", context_settings=SETTINGS)(check_file)
    app.command(context_settings=SETTINGS)(show)
    app.command(context_settings=SETTINGS)(plan)
    app.command()(doctor)


def print_version(is_asked: bool) -> None:
    """Print the version and exit."""
    if is_asked:
        from importlib.metadata import version

        typer.echo(f"whet {version('whet')}")
        raise typer.Exit


def whet(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Hold the options of `whet` itself."""


def init(
    model: Annotated[str | None, typer.Option(help="A model folder or hub id.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="A folder of problems, or a file of responses.")
    ] = None,
    kind: Annotated[str | None, typer.Option(help="rl, sft or run.")] = None,
    out: Annotated[Path, typer.Option(help="The file to write.")] = Path("experiment.toml"),
) -> None:
    """Write a first experiment for your model and data, and explain each setting in it."""
    from whet.pipeline.experiment_file import write_experiment

    written = write_experiment(out, kind=kind, model=model, data=data)
    say(f"wrote {out}: `whet check {out}` checks it, `whet {written} {out}` runs it")


def check_file(ctx: typer.Context, file: File, out: Out = None) -> None:
    """Check a file before it runs: settings, data, template, grader, lengths, memory, disk. Exits
    with 2 if something is wrong."""
    from whet.pipeline.experiment_file import check

    if not check(file, ctx.args, out):
        raise typer.Exit(2)


def show(
    ctx: typer.Context,
    file: File,
    explain: Annotated[bool, typer.Option("--explain", help="Explain each setting.")] = False,
) -> None:
    """Print every setting of a file and where it came from, and run nothing."""
    from whet.config import kind_of, show_settings
    from whet.pipeline.pipeline_config import load_settings_file
    from whet.study.study_file import load_study_settings

    load = load_study_settings if kind_of(file) == "study" else load_settings_file
    typer.echo(show_settings(load(file, ctx.args), explain=explain), nl=False)


def plan(
    ctx: typer.Context,
    file: File,
    gpu: Annotated[
        str, typer.Option(help="The GPU: h200, h100, a100, a100-40, l40s or rtx4090.")
    ] = "h200",
    prompt: Annotated[
        int | None, typer.Option(min=1, help="Tokens per prompt; 64 by default.")
    ] = None,
    tokens: Annotated[
        int | None, typer.Option(min=1, help="Mean tokens per response; the limit by default.")
    ] = None,
    gpus: Annotated[
        int | None, typer.Option(min=1, help="How many of them, over all nodes.")
    ] = None,
    nodes: Annotated[
        int | None,
        typer.Option(min=1, help="Nodes that share them equally; 8 GPUs per node by default."),
    ] = None,
    price: Price = None,
    engines: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of --gpus that only sample; the best number by default."),
    ] = None,
    like: Annotated[
        Path | None, typer.Option(help="A run whose stored responses give the lengths.")
    ] = None,
) -> None:
    """Predict memory, step time and run time on one or many GPUs, and run nothing. Exits with 1 if
    something does not fit."""
    from whet.pipeline.pipeline_config import load_stages
    from whet.plan.cluster import Cluster, print_cluster_plan
    from whet.plan.lengths import read_lengths
    from whet.plan.predict import DEFAULT_PROMPT_TOKENS, print_plan
    from whet.plan.splits import print_splits

    stages = load_stages(file, ctx.args)
    if like is not None and (tokens is not None or prompt is not None):
        raise ConfigError("--like has the lengths of a run: leave --tokens and --prompt out")
    stored = None if like is None else read_lengths(like)
    if stored is not None:
        tokens, prompt = stored.mean, stored.prompt_tokens
    prompt = prompt or DEFAULT_PROMPT_TOKENS
    if gpus is None and (nodes, price, engines) != (None, None, None):
        raise ConfigError("--nodes, --price and --engines need --gpus")
    if gpus is None:
        fit = print_plan(stages, gpu=gpu, prompt_tokens=prompt, new_tokens=tokens)
    else:
        cluster = Cluster(gpu=gpu, gpus=gpus, nodes=nodes, price=price)
        fit = print_cluster_plan(stages, cluster, prompt_tokens=prompt, new_tokens=tokens)
        print_splits(
            stages,
            cluster,
            prompt_tokens=prompt,
            new_tokens=tokens,
            stored=stored,
            engine_gpus=engines,
        )
    if not fit:
        raise typer.Exit(1)


def doctor(
    model: Annotated[
        str | None, typer.Argument(help="Your own model or run folder, to be proved too.")
    ] = None,
    as_json: JsonFlag = False,
    gpus: Gpus = 1,
) -> None:
    """Prove that training computes correctly on this machine, and name every fault. With `--gpus`,
    prove it for processes that train together."""
    if (code := cluster_jobs.prove_ranks(gpus, as_json=as_json)) is not None:
        sys.exit(code)
    from whet.commands.doctor import run_proofs

    sys.exit(0 if run_proofs(model, as_json=as_json) else 1)
