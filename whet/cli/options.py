"""Arguments and options that several commands share."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

SETTINGS = {"allow_extra_args": True, "ignore_unknown_options": True}
"""For commands that take settings of a file as `--a.b value`."""

argument = partial(typer.Argument, show_default=False)
required = partial(typer.Option, show_default=False)

File = Annotated[Path, argument(help="A TOML file whose first line states its kind.")]
Out = Annotated[Path | None, typer.Option(help="Run folder; runs/FILE by default.")]
Resume = Annotated[bool, typer.Option("--resume", help="Resume a run that was stopped.")]
JsonFlag = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Price = Annotated[float | None, typer.Option(min=0.0, help="Dollars per GPU hour.")]
Location = Annotated[str, argument(help="A run folder, a model folder, or a hub id.")]

Gpus = Annotated[
    int,
    typer.Option(min=1, help="GPUs of this machine, one process each; on the CPU if it has none."),
]
NodesFlag = Annotated[
    str, typer.Option(help="Machines, or MIN:MAX; run the command on each of them.")
]
Rendezvous = Annotated[
    str | None, typer.Option(help="HOST:PORT where the machines meet; Slurm provides it.")
]
Restarts = Annotated[int, typer.Option(min=0, help="How often failed processes are started again.")]
