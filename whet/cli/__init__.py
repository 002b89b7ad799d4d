"""The command line: each command reads settings, shows its plan, runs it, and names the result.

A command imports what it needs when it is called: `whet --help` loads no torch.
"""

import os
import sys
from collections.abc import Callable, Sequence

import typer
from rich.markup import escape

from whet.cli import cluster_jobs, data, model, past_runs, setup, stages
from whet.cli.options import SETTINGS
from whet.cluster.failure import record_error
from whet.errors import WhetError, visible
from whet.recipes.registry import COMMANDS
from whet.track.progress import console

LONGEST_SENTENCE = 4_000
"""Characters of an error that are printed; it may quote a file."""

app = typer.Typer(
    name="whet",
    help="Sharpen the reasoning of language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)
setup.add_to(app)
stages.add_to(app)
_special: dict[str, Callable[..., None]] = {"teach": stages.teach, "eval": stages.evaluate}
for _name, _kind in COMMANDS.items():
    _run = stages.run_on_ranks if _kind.on_ranks else stages.run_alone
    app.command(_name, help=_kind.help, context_settings=SETTINGS)(_special.get(_name, _run))
app.command(context_settings=SETTINGS)(stages.study)
past_runs.add_to(app)
model.add_to(app)
data.add_to(app)
cluster_jobs.add_to(app)


def main(args: Sequence[str] | None = None) -> None:
    """Run the command line, on the process's own arguments by default. A user's mistake prints one
    sentence and exits with code 2."""
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
