"""Commands on runs: show them in a browser, compare them, print a card, grade rollouts, and replay
updates."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from whet.cli.options import JsonFlag, Price, argument, required
from whet.errors import ConfigError


def add_to(app: typer.Typer) -> None:
    """Add these commands."""
    app.command()(view)
    app.command()(compare)
    app.command()(card)
    app.command()(grade)
    app.command()(replay)


def view(
    folder: Annotated[Path, typer.Argument(help="A run, or a folder with runs in it.")] = Path(
        "runs"
    ),
    host: Annotated[
        str,
        typer.Option(help="Address to listen on; one that other machines can reach needs a token."),
    ] = "localhost",
    port: Annotated[
        int | None,
        typer.Option(min=0, max=65535, help="Port; the first free one from 8024 by default."),
    ] = None,
    token: Annotated[
        bool, typer.Option("--token", help="Require a token even on this machine.")
    ] = False,
    browser: Annotated[bool, typer.Option("--open", help="Open a browser as well.")] = False,
) -> None:
    """Show runs in a browser: curves, rollouts, settings, data, results. Runs are only read."""
    from whet.viewer.server import serve_viewer

    serve_viewer(folder, host=host, port=port, token=token, is_opened=browser)


def compare(
    runs: Annotated[
        list[Path],
        argument(help="Folders of runs, stages or pipelines; the first is the baseline."),
    ],
    out: Annotated[
        Path | None, typer.Option(help="The page to write; compare.html by default.")
    ] = None,
    as_json: JsonFlag = False,
) -> None:
    """Compare runs: settings that differ, curves, and scores with intervals over seeds and
    problems. Runs that differ only in their seed form one arm."""
    from whet.results.compare_runs import compare_runs

    page = out or (None if as_json else Path("compare.html"))
    compare_runs(runs, page, as_json=as_json)


def card(
    run: Annotated[Path, argument(help="The folder of a run, stage or pipeline.")],
    out: Annotated[Path | None, typer.Option(help="Write the card to this Markdown file.")] = None,
    as_json: JsonFlag = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Recompute a sample of it and compare.")
    ] = False,
    price: Price = None,
) -> None:
    """Print the card of a run: data, code, settings, time, cost, evaluations, deviations. With
    `--verify`, exits with 1 if something differs from what is stored."""
    from whet.results.card import print_card
    from whet.results.verify_card import verify_card

    if verify:
        if not verify_card(run, as_json=as_json):
            raise typer.Exit(1)
        return
    print_card(run, out, as_json=as_json, price=price)


JudgeKeyEnv = Annotated[
    str | None, typer.Option(help="The environment variable that holds the judge's key.")
]
JudgePrompt = Annotated[
    str | None, typer.Option(help="How the judge is asked: nonce or general_verifier.")
]


def replay(
    run: Annotated[Path, argument(help="The folder of an RL run, or of a pipeline with one.")],
    step: Annotated[int, required(min=1, help="The step, numbered from 1 as in metrics.jsonl.")],
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="KEY=VALUE: a setting of the alternative; repeatable."),
    ] = None,
    named: Annotated[
        list[str] | None,
        typer.Option("--try", help='"NAME: KEY=VALUE …": an alternative; repeatable.'),
    ] = None,
    grid: Annotated[
        Path | None, typer.Option(help="A TOML file of alternatives, one table each.")
    ] = None,
    tokens: Annotated[
        bool, typer.Option("--tokens", help="Compute ratio, entropy, … per token, for `whet view`.")
    ] = False,
    as_json: JsonFlag = False,
) -> None:
    """Recompute one update of a run from its stored rollouts, under its own settings and under
    others, and compare loss and gradient. Nothing is sampled, and the run is not changed."""
    if tokens:
        others = {"--set": settings, "--try": named, "--grid": grid, "--json": as_json or None}
        _write_tokens(run, step, others)
        return
    from whet.replay.alternatives import read_alternatives
    from whet.replay.replay import print_replay
    from whet.replay.replay import replay as replay_update

    alternatives = read_alternatives(settings or (), named or (), grid)
    print_replay(replay_update(run, step, alternatives), as_json=as_json)


def _write_tokens(run: Path, step: int, others: Mapping[str, object]) -> None:
    for flag, given in others.items():
        if given is not None:
            raise ConfigError(f"--tokens is of the update as logged, so {flag} has no effect")
    from whet.replay.tokens import write_step_tokens
    from whet.track.progress import say

    path = write_step_tokens(run, step)
    say(f"ratio, entropy, mask and engine gap of the tokens of step {step} are in {path}")
    say(f"whet view {run} colours tokens by them")


def grade(
    source: Annotated[Path, argument(help='JSON lines with "id" and "response", or a run.')],
    out: Annotated[
        Path | None, typer.Option(help="Where to write graded rows; a run needs none.")
    ] = None,
    problems: Annotated[Path | None, typer.Option(help="The problems of the rows.")] = None,
    workers: Annotated[int | None, typer.Option(help="Grading processes.")] = None,
    reward: Annotated[
        str | None, typer.Option(help="A reward spec: a shipped name or a TOML file.")
    ] = None,
    step: Annotated[int | None, typer.Option(min=0, help="Only this step of a run.")] = None,
    rollout: Annotated[str | None, typer.Option(help="Only this rollout of a run.")] = None,
    as_json: JsonFlag = False,
    task: Annotated[
        list[str] | None, typer.Option(help="Your own task, my_task.py:Name; repeatable.")
    ] = None,
    judge_url: Annotated[str | None, typer.Option(help="Judge's address, http://HOST/v1.")] = None,
    judge_model: Annotated[str | None, typer.Option(help="Judge's model at that address.")] = None,
    judge_key_env: JudgeKeyEnv = None,
    judge_prompt: JudgePrompt = None,
) -> None:
    """Grade a file of responses, or the stored rollouts of a run, with the parts of each reward."""
    judge = {
        "url": judge_url,
        "model": judge_model,
        "key_env": judge_key_env,
        "prompt": judge_prompt,
    }
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
        raise ConfigError("--out must say where to write the graded rows")
    from whet.commands.grade_file import build_judge, grade_file

    grade_file(
        source,
        out,
        problems=problems,
        workers=workers,
        reward=reward,
        custom=task or (),
        judge=build_judge(**judge),
    )


def _refuse(source: Path, other: str, flags: Mapping[str, object]) -> None:
    """Refuse flags that belong to another kind of source."""
    for flag, given in flags.items():
        if given is not None:
            raise ConfigError(f"{flag} is for {other}, which {source} is not")
