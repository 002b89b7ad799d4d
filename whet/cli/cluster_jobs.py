"""Commands and options for several processes and machines."""

import os
import sys
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from whet.cli.options import SETTINGS, NodesFlag, argument
from whet.errors import ConfigError
from whet.recipes.registry import ON_RANKS
from whet.track.progress import say

if TYPE_CHECKING:
    from whet.stages.stage import StageConfig

cluster = typer.Typer(
    help="Machines that train together.", no_args_is_help=True, rich_markup_mode=None
)


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command(context_settings=SETTINGS)(slurm)
    app.command()(jobs)
    app.add_typer(cluster, name="cluster")


def launch_if_many(ctx: typer.Context, folder: Path) -> None:
    """Run the same command in several processes if flags ask for it, and exit."""
    from whet.cluster.launch import is_rank, parse_layout

    given = ctx.params
    layout = parse_layout(
        given["gpus"], given["nodes"], rendezvous=given["rendezvous"], restarts=given["restarts"]
    )
    if is_rank() or layout.is_alone:
        return
    from whet.cluster.agent import run_ranks

    words = [ctx.command.name or "", str(given["file"]), *ctx.args]
    words += ["--out", str(given["out"])] if given["out"] is not None else []
    words += [f"--{flag}" for flag in ("resume", "smoke") if given.get(flag)]
    raise typer.Exit(run_ranks(words, layout, folder))


def is_restarted() -> bool:
    """Whether torchrun restarted this process after a failure, to resume from a checkpoint."""
    from whet.world import get_world

    is_counted = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return is_counted or get_world().is_restarted


def join_ranks(stages: Iterable["StageConfig"]) -> AbstractContextManager[None]:
    """Join the ranks of this run if torchrun started several."""
    if "RANK" not in os.environ:
        return nullcontext()
    from whet.cluster.ranks import joined_ranks
    from whet.world import ClusterConfig

    shared = [stage for stage in stages if stage.ranks is not None]
    trained = [work.train for stage in shared for work in stage.list_work()[:1]]
    is_forced = any(train is not None and train.learner == "fsdp" for train in trained)
    cluster = next((stage.ranks for stage in shared), None) or ClusterConfig()
    return joined_ranks(cluster, is_forced=is_forced)


def prove_ranks(gpus: int, *, as_json: bool) -> int | None:
    """Run the proofs of ranks on several processes; this process may be one of them.

    Returns the exit status; None if one process is asked for.
    """
    from whet.cluster.launch import is_rank, parse_layout

    if is_rank():
        from whet.commands.doctor import run_rank_proofs

        return 0 if run_rank_proofs(as_json=as_json) else 1
    if gpus == 1:
        return None
    from whet.cluster.agent import run_ranks

    words = ["doctor", *(["--json"] if as_json else [])]
    with TemporaryDirectory() as folder:
        return run_ranks(words, parse_layout(gpus, "1", restarts=0), Path(folder))


def slurm(
    ctx: typer.Context,
    file: Annotated[Path, argument(help="A TOML file to run.")],
    nodes: NodesFlag = "1",
    gpus: Annotated[int, typer.Option(min=1, help="GPUs per node.")] = 8,
    cpus: Annotated[int, typer.Option(min=1, help="Processor cores per GPU.")] = 8,
    time: Annotated[
        str, typer.Option(help="Time limit of one allocation, in Slurm's format.")
    ] = "24:00:00",
    partition: Annotated[str | None, typer.Option(help="Slurm partition.")] = None,
    sbatch: Annotated[
        list[str] | None,
        typer.Option(help="Another option for sbatch, such as --sbatch=--account=NAME."),
    ] = None,
    container: Annotated[
        tuple[str, str] | None, typer.Option(help="docker or apptainer, then the image.")
    ] = None,
    venv: Annotated[Path | None, typer.Option(help="A virtual environment that has whet.")] = None,
    conda: Annotated[str | None, typer.Option(help="A conda environment that has whet.")] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where to write the script; NAME.sbatch by default.")
    ] = None,
    submit: Annotated[bool, typer.Option("--submit", help="Submit it as well.")] = False,
) -> None:
    """Write and check a Slurm script that runs a file on many nodes; `--submit` submits it too."""
    from whet.cluster.slurm import Job, save_script, submit_script, write_script
    from whet.pipeline.pipeline_config import load_settings_file

    kind = load_settings_file(file, ctx.args).config.kind
    if kind not in ON_RANKS:
        kinds = ", ".join(ON_RANKS)
        raise ConfigError(f"{file} is of kind {kind!r}; kinds that run on several GPUs: {kinds}")
    job = Job(
        command=kind,
        file=file,
        settings=ctx.args,
        folder=Path.cwd(),
        nodes=nodes,
        gpus=gpus,
        cpus=cpus,
        time=time,
        partition=partition,
        sbatch=sbatch or (),
        container=container or (),
        venv=venv,
        conda=conda,
    )
    path = out or Path(f"{job.name}.sbatch")
    save_script(write_script(job), path)
    say(f"submitted as job {submit_script(path)}" if submit else f"{path} is ready: sbatch {path}")


def jobs(
    folders: Annotated[
        list[Path] | None, typer.Argument(help="Folders of runs; runs/ by default.")
    ] = None,
) -> None:
    """Show Slurm jobs and runs: state, progress, time left, last lines."""
    from whet.cluster.jobs import print_jobs

    print_jobs(folders or [path for path in [Path("runs")] if path.is_dir()])


@cluster.command("check")
def check_nodes(
    nodes: Annotated[
        str | None,
        typer.Option(help="Machines to reach by ssh, as a,b,c; or start the command with srun."),
    ] = None,
) -> None:
    """Check every node: versions, GPUs, interfaces, clocks, shared folder. Exits with 1 if it finds
    a fault."""
    from whet.cluster.check import check_cluster

    sys.exit(0 if check_cluster(nodes) else 1)


@cluster.command(hidden=True)
def report(
    address: str,
    folder: Path,
    name: Annotated[str, typer.Option()],
    token: Annotated[str, typer.Option()],
) -> None:
    """Tell `whet cluster check` about this node."""
    from whet.cluster.check import report_to

    report_to(address, folder, name=name, token=token)
