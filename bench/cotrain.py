"""Does a verifier trained beside the generator help it? Co-training against outcome-only GRPO at
equal updates.

    python bench/cotrain.py --jobs 6 --threads 2 --out runs/cotrain --resume --svg docs/cotrain.svg

The stages are those of experiments/tango_small.toml, on the 24 game. A seed has one SFT start and
one SFT verifier; the two arms start from them and take as many updates of the generator, on as many
answers. Every few updates the weights are measured on all 409 test hands; nothing is chosen by
that. The verifier's verdicts on steps are compared with the exact labels of the task as it trains.
Printed too is how many updates co-training needs for what the other arm has at its end.

Recipes use a GPU where they see one. `--device cpu`, the default, hides it; with `--device cuda`
all runs share it.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean

sys.path.insert(0, str(Path(__file__).parents[1]))  # whet need not be installed

from study.arms import ARMS, EXPERIMENT, Plan, check, settings
from study.curves import COLOURS, Line, Panel, draw
from study.figures import (
    Shares,
    gain,
    mean_shares,
    measured,
    pass_at_1,
    percent,
    points,
    stage_folder,
    table,
)
from study.jobs import add_options, opened, publish, run_all, tell

from whet.evals.stats import Estimate
from whet.store.run import RunStore

NAMES = {"tango": "co-training", "outcome": "outcome only"}
Curves = Mapping[str, Mapping[int, Mapping[int, Shares]]]
"""By arm, seed and updates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One run: pass@1 on the test hands by updates of the generator, and what its verifier was
    worth by the same."""

    pass_at_1: dict[int, Estimate]
    step_f1: dict[int, float]
    step_balanced_accuracy: dict[int, float]
    balanced_accuracy: dict[int, float]
    seconds: float


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, out="cotrain", jobs=1, threads=2)
    parser.add_argument(
        "--every", type=int, default=6, help="generator updates between two measurements"
    )
    parser.add_argument("--samples", type=int, default=4, help="answers to each test hand")
    parser.add_argument("--svg", type=Path, help="where to draw the curves")
    parser.add_argument(
        "--set",
        nargs="*",
        default=[],
        metavar="STAGE.KEY=VALUE",
        help="a setting of the experiment",
    )
    args = parser.parse_args()
    out, machine = opened(args)
    plan = Plan(out=out, stages=settings(EXPERIMENT, args.set, args.samples), every=args.every)
    check(plan)
    failed = run_all([job for seed in args.seeds for job in plan.jobs(seed)], machine)
    tell(failed)
    ended = [seed for seed in args.seeds if all(job.is_done for job in plan.jobs(seed))]
    if not ended:
        return 1
    shares = {arm: {seed: curve(plan, seed, arm) for seed in ended} for arm in ARMS}
    runs = {
        arm: {seed: measure(plan, seed, arm, shares[arm][seed]) for seed in ended} for arm in ARMS
    }
    means = {
        arm: {
            at: mean_shares([shares[arm][seed][at] for seed in ended]) for at in (0, *plan.updates)
        }
        for arm in ARMS
    }
    last = plan.updates[-1]
    needed = reached(
        {at: fmean(row.values()) for at, row in means["tango"].items()},
        fmean(means["outcome"][last].values()),
    )
    result = {
        "seeds": ended,
        "failed": sorted(failed),
        "runs": {
            arm: {seed: asdict(run) for seed, run in row.items()} for arm, row in runs.items()
        },
        "mean": {
            arm: {at: asdict(pass_at_1(row)) for at, row in each.items()}
            for arm, each in means.items()
        },
        "tango_minus_outcome": asdict(gain(means["outcome"][last], means["tango"][last])),
        "updates": last,
        "updates_to_outcome": needed,
    }
    publish(out / "cotrain", to_text(plan, shares, runs, means, needed), result)
    if args.svg:
        args.svg.write_text(chart(runs, means))
    return 1 if failed else 0


def curve(plan: Plan, seed: int, arm: str) -> dict[int, dict[str, float]]:
    """Each hand's share of right answers, by updates of the generator; at 0 that of the start."""
    begun = {0: measured(plan.folder(seed, "sft"), "sft_eval")}
    return begun | {
        update: measured(plan.folder(seed, f"{arm}_curve"), f"after_{update}")
        for update in plan.updates
    }


def measure(plan: Plan, seed: int, arm: str, shares: Mapping[int, Shares]) -> Measured:
    folder = plan.folder(seed, arm)
    rows = RunStore.view(stage_folder(folder, arm)).metrics()
    ends = (
        {update: plan.step(arm, update) for update in (0, *plan.updates)} if arm == "tango" else {}
    )
    return Measured(
        pass_at_1={at: pass_at_1(row) for at, row in shares.items()},
        step_f1=_between(rows, "verifier/step_f1", ends),
        step_balanced_accuracy=_between(rows, "verifier/step_balanced_accuracy", ends),
        balanced_accuracy=_between(rows, "verifier/balanced_accuracy", ends),
        seconds=sum(json.loads((folder / "summary.json").read_text())["seconds"].values()),
    )


def reached(tango: Mapping[int, float], goal: float) -> float | None:
    """How many updates a curve needs for a value, in a straight line between two points; None if it
    never has it.

    >>> reached({0: 0.1, 6: 0.2, 12: 0.4}, 0.3)
    9.0
    """
    before = 0
    for at, value in tango.items():
        if value >= goal:
            share = (goal - tango[before]) / (value - tango[before]) if at > before else 1.0
            return before + share * (at - before)
        before = at
    return None


def to_text(
    plan: Plan,
    shares: Curves,
    runs: Mapping[str, Mapping[int, Measured]],
    means: Mapping[str, Mapping[int, Shares]],
    needed: float | None,
) -> str:
    """A row a seed and one for their mean: both arms before and after, their difference, and the
    verifier's worth."""
    last = plan.updates[-1]
    head = [
        "seed",
        "start",
        f"{NAMES['outcome']}, {last} updates",
        f"{NAMES['tango']}, {last} updates",
        "difference",
    ]
    head += ["F1 of steps: first, last", "balanced accuracy of steps: first, last"]
    rows = []
    for seed, run in runs["tango"].items():
        found = run.pass_at_1[0], runs["outcome"][seed].pass_at_1[last], run.pass_at_1[last]
        apart = gain(shares["outcome"][seed][last], shares["tango"][seed][last])
        rows += [
            [
                str(seed),
                *map(percent, found),
                points(apart),
                _ends(run.step_f1),
                _ends(run.step_balanced_accuracy),
            ]
        ]
    first, outcome, tango = means["tango"][0], means["outcome"][last], means["tango"][last]
    rows += [
        [
            "mean",
            *(percent(pass_at_1(row)) for row in (first, outcome, tango)),
            points(gain(outcome, tango)),
            "",
            "",
        ]
    ]
    if needed is None:
        words = f"Co-training does not come to what the other arm has after {last} updates."
    elif needed == 0:
        words = f"After {last} updates the other arm has no more than the start."
    else:
        fewer = last / needed
        words = f"Co-training has after {needed:.1f} updates what the other arm has after {last}: {fewer:.2f} times fewer."
    return f"{table(head, rows)}\n\n{words}"


def chart(
    runs: Mapping[str, Mapping[int, Measured]], means: Mapping[str, Mapping[int, Shares]]
) -> str:
    """Draw pass@1 of both arms, and what the verifier's verdicts on steps are worth."""
    arms: list[Line] = []
    for colour, arm in zip(COLOURS, ARMS, strict=False):
        for run in runs[arm].values():
            values = [estimate.mean for estimate in run.pass_at_1.values()]
            arms += [
                Line(name=arm, colour=colour, at=list(run.pass_at_1), values=values, is_thin=True)
            ]
        found = [pass_at_1(row) for row in means[arm].values()]
        arms += [
            Line(
                name=NAMES[arm], colour=colour, at=list(means[arm]), values=[e.mean for e in found],
                low=[e.low for e in found], high=[e.high for e in found],
            )
        ]  # fmt: skip
    verifier = [
        *_lines(
            "F1 of finding wrong steps", COLOURS[2], [run.step_f1 for run in runs["tango"].values()]
        ),
        *_lines(
            "balanced accuracy of them",
            COLOURS[3],
            [run.step_balanced_accuracy for run in runs["tango"].values()],
        ),
        *_lines(
            "of final verdicts",
            COLOURS[0],
            [run.balanced_accuracy for run in runs["tango"].values()],
        ),
    ]
    axis = "updates of the generator"
    seeds = len(runs["tango"])
    return draw(
        [
            Panel(
                title=f"pass@1 on the test hands: mean of {seeds} seeds, 95 % interval over hands",
                axis=axis,
                lines=arms,
            ),
            Panel(
                title="the verifier against exact labels, by seed and mean",
                axis=axis,
                lines=verifier,
                is_share=False,
            ),
        ]
    )


def _lines(name: str, colour: str, runs: Sequence[Mapping[int, float]]) -> list[Line]:
    """A thin line a run, and their mean over the places that all of them have."""
    shared = [at for at in runs[0] if all(at in run for run in runs)]
    thin = [
        Line(name=name, colour=colour, at=list(run), values=list(run.values()), is_thin=True)
        for run in runs
        if run
    ]
    if not shared:
        return thin
    return [
        *thin,
        Line(
            name=name,
            colour=colour,
            at=shared,
            values=[fmean(run[at] for run in runs) for at in shared],
        ),
    ]


def _between(
    rows: Sequence[Mapping[str, float]], name: str, ends: Mapping[int, int]
) -> dict[int, float]:
    """Mean of a metric over the steps up to each end and after the one before it; at 0 over the
    warm-up."""
    found, before = {}, 0
    for update, end in ends.items():
        values = [row[name] for row in rows if before < row["step"] <= end and name in row]
        if values:
            found[update] = fmean(values)
        before = end
    return found


def _ends(found: Mapping[int, float]) -> str:
    values = list(found.values())
    return f"{values[0]:.2f}, {values[-1]:.2f}" if values else "-"


if __name__ == "__main__":
    sys.exit(main())
