"""The claim of `make train` for several seeds, beside a control that spends RL's time on more SFT.

    python bench/more_sft.py --seeds 1 2 3 4 --controls 3

For each seed the pipeline of experiments/game24_cpu.toml runs (or is found finished in --out). The
control starts from the same traces and random weights and runs SFT alone, its schedule stretched so
that it takes the time of SFT and RL together; its checkpoint is picked by the same validations on dev
hands. Everything is measured on the same test hands.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

EXPERIMENT = Path(__file__).parents[1] / "experiments" / "game24_cpu.toml"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4])
    parser.add_argument(
        "--controls", type=int, default=3, help="how many of the seeds get a control"
    )
    parser.add_argument("--out", type=Path, default=Path("runs") / "seeds")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--ratio",
        type=float,
        help="time of SFT and RL over that of SFT; from each seed's run by default",
    )
    parser.add_argument(
        "--parallel",
        action="store_true",
        help="run all seeds at once, on a machine with enough cores",
    )
    args = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(args.threads)
    _run_all(
        [_command(args.out / f"seed-{seed}", seed) for seed in args.seeds], parallel=args.parallel
    )
    rows = {seed: _measured(args.out / f"seed-{seed}") for seed in args.seeds}
    controlled = args.seeds[: args.controls]
    stretched = {seed: _stretched(args.out / f"seed-{seed}", args.ratio) for seed in controlled}
    commands = [
        _command(args.out / f"control-{seed}", seed, *stretched[seed]) for seed in controlled
    ]
    _run_all(commands, parallel=args.parallel)
    for seed in controlled:
        rows[seed]["more_sft"] = _measured(args.out / f"control-{seed}")["sft"]
    _print_table(rows)
    print(json.dumps({str(seed): row for seed, row in rows.items()}))
    return 0


def _command(folder: Path, seed: int, *overrides: str) -> list[str]:
    return [
        sys.executable, "-m", "whet", "run", str(EXPERIMENT), "--out", str(folder), "--resume", "--seed", str(seed),
        *overrides,
    ]  # fmt: skip


def _run_all(commands: list[list[str]], *, parallel: bool) -> None:
    running = []
    for command in commands:
        running.append(
            subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=_log(command).open("w"))
        )
        if not parallel:
            running[-1].wait()
    for child, command in zip(running, commands, strict=True):
        if child.wait():
            sys.exit(f"failed: {' '.join(command)}\n{_log(command).read_text()[-2000:]}")


def _log(command: list[str]) -> Path:
    folder = Path(command[command.index("--out") + 1])
    folder.parent.mkdir(parents=True, exist_ok=True)
    return folder.with_suffix(".log")


def _measured(folder: Path) -> dict[str, dict[str, float]]:
    summary = json.loads((folder / "summary.json").read_text())
    return {
        row["name"]: {**row["pass@1"], "greedy": row["greedy"]["mean"]} for row in summary["stages"]
    }


def _stretched(folder: Path, ratio: float | None) -> list[str]:
    """SFT steps that fill the time of SFT and RL together; the RL stage is cut to one step, and not
    measured."""
    seconds = json.loads((folder / "summary.json").read_text())["seconds"]
    steps = sum('"loss"' in row for row in (next(folder.glob("*-sft")) / "metrics.jsonl").open())
    longer = round(steps * (ratio or (seconds["sft"] + seconds["rl"]) / seconds["sft"]))
    return ["--stages.sft.steps", str(longer), "--stages.rl.steps", "1"]


def _print_table(rows: dict[int, dict[str, dict[str, float]]]) -> None:
    print("| seed | after SFT | after RL | ratio | more SFT instead |\n|---|---|---|---|---|")
    for seed, row in rows.items():
        ratio = row["rl"]["mean"] / max(row["sft"]["mean"], 1e-9)
        control = _interval(row["more_sft"]) if "more_sft" in row else "not run"
        print(
            f"| {seed} | {_interval(row['sft'])} | {_interval(row['rl'])} | {ratio:.2f} | {control} |"
        )


def _interval(found: dict[str, float]) -> str:
    return f"{100 * found['mean']:.1f} % [{100 * found['low']:.1f}, {100 * found['high']:.1f}]"


if __name__ == "__main__":
    sys.exit(main())
