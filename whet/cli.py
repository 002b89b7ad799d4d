"""The command line. Each verb reads settings, says what it will do, does it, and says where the result is.

Only light modules are imported here: `whet --help` loads no torch.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.markup import escape

from whet.errors import ConfigError, WhetError
from whet.track.progress import console, say

app = typer.Typer(
    name="whet",
    help="Sharpen the reasoning of language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
VERBS = ("run", "sft", "rl", "teach", "eval")
"""Kinds of files that have a verb of their own."""
SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}

File = Annotated[Path, typer.Argument(help="A TOML file; its first line says its kind.", show_default=False)]
Out = Annotated[Path | None, typer.Option(help="Run folder; runs/NAME of the file by default.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on with a run that was stopped.")]


@app.command(context_settings=SETTINGS)
def run(ctx: typer.Context, file: File, out: Out = None, resume: Resume = False) -> None:
    """Run a pipeline: the stages of one file, in order, skipping what is done. `--a.b value` changes a setting."""
    with _stoppable():
        from whet.recipes.pipeline import load_pipeline, run_pipeline

        _expect(file, "run")
        loaded = load_pipeline(file, ctx.args)
        run_pipeline(loaded, out or Path("runs") / file.stem, resume=resume)


@app.command(context_settings=SETTINGS)
def sft(ctx: typer.Context, file: File, out: Out = None, resume: Resume = False) -> None:
    """Fine-tune a model on stored answers."""
    _single("sft", file, ctx.args, out, resume)


@app.command(context_settings=SETTINGS)
def rl(ctx: typer.Context, file: File, out: Out = None, resume: Resume = False) -> None:
    """Train a model by reinforcement on verifiable problems."""
    _single("rl", file, ctx.args, out, resume)


@app.command(context_settings=SETTINGS)
def teach(ctx: typer.Context, file: File, out: Out = None, resume: Resume = False) -> None:
    """Write worked answers for a model to imitate."""
    _single("teach", file, ctx.args, out, resume)


@app.command("eval", context_settings=SETTINGS)
def evaluate(ctx: typer.Context, file: File, out: Out = None, resume: Resume = False) -> None:
    """Measure a model, with intervals."""
    _single("eval", file, ctx.args, out, resume)


@app.command(context_settings=SETTINGS)
def show(ctx: typer.Context, file: File) -> None:
    """Print every setting of a file with where it came from, and run nothing."""
    from whet.config import kind_of, load
    from whet.config import show as shown
    from whet.recipes.kinds import KINDS
    from whet.recipes.pipeline import load_pipeline

    kind = kind_of(file)
    if kind == "run":
        typer.echo(shown(load_pipeline(file, ctx.args)), nl=False)
    elif kind in KINDS:
        typer.echo(shown(load(KINDS[kind], file, ctx.args)), nl=False)
    else:
        raise ConfigError(f"{file} says kind = {kind!r}; known kinds are run, {', '.join(KINDS)}")


@app.command("try")
def try_(
    place: Annotated[str, typer.Argument(help="A run folder, a model folder, or a hub id.", show_default=False)],
    question: Annotated[str, typer.Argument(help='What to ask, such as "4 6 8 1".', show_default=False)],
    samples: Annotated[int, typer.Option(min=1, help="Answers to draw; the first is greedy.")] = 1,
    max_tokens: Annotated[int, typer.Option(min=1, help="Longest answer.")] = 512,
    seed: Annotated[int, typer.Option(help="Decides the drawn answers.")] = 0,
) -> None:
    """Ask a trained model something."""
    from whet.recipes.ask import ask

    ask(place, question, samples=samples, max_tokens=max_tokens, seed=seed)


@app.command()
def export(
    place: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    out: Annotated[Path, typer.Argument(help="A new folder for the model.", show_default=False)],
) -> None:
    """Write the model of a run as a Hugging Face folder."""
    from whet.recipes.ask import export_model

    export_model(place, out)


def _single(kind: str, file: Path, args: list[str], out: Path | None, resume: bool) -> None:
    with _stoppable():
        _run_alone(kind, file, args, out, resume)


def _run_alone(kind: str, file: Path, args: list[str], out: Path | None, resume: bool) -> None:
    from whet.config import load
    from whet.config import show as shown
    from whet.recipes.kinds import IGNORED, KINDS, run_stage
    from whet.store.run import RunStore

    _expect(file, kind)
    loaded = load(KINDS[kind], file, args)
    folder = out or Path("runs") / file.stem
    say(shown(loaded))
    with RunStore.open(folder, loaded.config, loaded.origin, resume=resume, ignore=IGNORED) as store:
        if store.is_finished:
            say(f"{folder} is finished; nothing to do")
            return
        run_stage(loaded.config, store)
    say(f"results in {folder}")


def _expect(file: Path, kind: str) -> None:
    from whet.config import kind_of

    found = kind_of(file)
    if found in VERBS and found != kind:
        raise ConfigError(f"{file} is of kind {found!r}: use `whet {found} {file}`, or give a file of kind {kind!r}")
    if found != kind:
        raise ConfigError(f"{file} is of kind {found!r}, but `whet {kind}` runs files of kind {kind!r}")


@contextmanager
def _stoppable() -> Iterator[None]:
    """Let a person stop with Ctrl-C; what was checkpointed stays."""
    try:
        yield
    except KeyboardInterrupt:
        say("stopped; the same command with --resume goes on from the last checkpoint")
        raise typer.Exit(130) from None


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line, on the process's own arguments by default; what a user can mend is one sentence, code 2."""
    try:
        app(args, prog_name="whet")
    except WhetError as error:
        console.print(f"[bold red]whet:[/] {escape(str(error))}")
        sys.exit(2)
