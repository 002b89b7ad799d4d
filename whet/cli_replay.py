"""The commands on what a run has stored: grade its rollouts, and replay its updates."""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from whet.errors import ConfigError

_argument = partial(typer.Argument, show_default=False)
_required = partial(typer.Option, show_default=False)
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(grade)
    app.command()(replay)


def replay(
    run: Annotated[Path, _argument(help="The folder of an RL run, or of a pipeline with one.")],
    step: Annotated[int, _required(min=1, help="The step, counted from 1 as in metrics.jsonl.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: a setting of the alternative; repeatable."),
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option("--try", help='"NAME: KEY=VALUE …": an alternative; repeatable.'),
    ] = None,
    grid: Annotated[
        Path | None, typer.Option(help="A TOML file of alternatives, a table for each.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Compute an update of a run again from its stored rollouts, under its own settings and
    others, and compare loss and gradient. Nothing is sampled or written."""
    from whet.replay.alternatives import read_alternatives
    from whet.replay.compare import replay as replay_update
    from whet.replay.tables import print_replay

    alternatives = read_alternatives(settings or (), named or (), grid)
    print_replay(replay_update(run, step, alternatives), as_json=as_json)


def grade(
    source: Annotated[Path, _argument(help='JSON lines with "id" and "response", or a run.')],
    out: Annotated[
        Path | None, typer.Option(help="Where the graded rows go; a run needs none.")
    ] = None,
    problems: Annotated[Path | None, typer.Option(help="Problems the rows refer to.")] = None,
    workers: Annotated[int | None, typer.Option(help="Grading processes.")] = None,
    reward: Annotated[
        str | None, typer.Option(help="A reward spec: a shipped name or a TOML file.")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Of a run: one step alone.")] = None,
    rollout: Annotated[str | None, typer.Option(help="Of a run: one rollout, by its id.")] = None,
    as_json: Json = False,
    task: Annotated[
        list[str] | None, typer.Option(help="A task of your own, my_task.py:Name.")
    ] = None,
    judge_url: Annotated[
        str | None, typer.Option(help="Where the judge of `judge` rows listens, http://HOST/v1.")
    ] = None,
    judge_model: Annotated[str | None, typer.Option(help="The judge's name there.")] = None,
    judge_key_env: Annotated[
        str | None, typer.Option(help="The environment variable with the judge's key.")
    ] = None,
    judge_prompt: Annotated[
        str | None, typer.Option(help="What it is asked: nonce or general_verifier.")
    ] = None,
) -> None:
    """Grade a file of responses, or the stored rollouts of a run, with the reward taken apart."""
    judge = {"url": judge_url, "model": judge_model, "key_env": judge_key_env}
    judge["prompt"] = judge_prompt
    judged = {f"--judge-{name.replace('_', '-')}": flag for name, flag in judge.items()}
    if source.is_dir():
        _refuse(source, "a file of responses", {"--problems": problems, "--task": task, **judged})
        from whet.commands.grade_run import grade_run

        grade_run(
            source,
            out=out,
            step=step,
            rollout=rollout,
            reward=reward,
            workers=workers,
            as_json=as_json,
        )
        return
    _refuse(source, "a run", {"--step": step, "--rollout": rollout, "--json": as_json or None})
    if out is None:
        raise ConfigError("--out should say where the graded rows go")
    from whet.commands.grade_file import grade_file, make_judge

    grade_file(
        source,
        out,
        problems=problems,
        workers=workers,
        reward=reward,
        custom=task or (),
        judge=make_judge(**judge),
    )


def _refuse(source: Path, other: str, flags: Mapping[str, object]) -> None:
    """Refuse a flag that is for another kind of source."""
    for flag, given in flags.items():
        if given is not None:
            raise ConfigError(f"{flag} is for {other}, and {source} is none")
