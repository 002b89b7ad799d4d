"""One bench from its command line to its last line: the same for rollouts, updates and whole
steps."""

import argparse
import platform
import sys
import tempfile
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path

import torch

from speed import recorded, roster
from speed.children import Record, Side, say, take_turns
from speed.limits import Ceilings
from speed.roster import Task
from speed.shapes import MODELS, config_of
from speed.table import Figures, figures, show, to_json
from speed.work import Spec, Work, add_options, work_of
from whet.models.config import ModelConfig

Limit = Callable[[ModelConfig, Work, Ceilings], float]


def main(task: Task, about: str, limit: Limit) -> int:
    """Run the sides in turn and print what they took, the limit of the hardware, and a JSON
    line."""
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, models=MODELS)
    roster.add_options(parser, task)
    parser.add_argument(
        "--weights", type=Path, default=Path("runs") / "bench", help="where random weights are kept"
    )
    args = parser.parse_args()
    work = work_of(args)
    systems = [roster.ours(args), *roster.peers(args, task, work)]
    with tempfile.TemporaryDirectory() as place:
        base = Spec(
            work=work, task=task, vocab_size=config_of(work).vocab_size, folder=None, settings={}
        )
        if len(systems) > 1:
            base = replace(base, folder=str(checkpoint(base, args.weights, Path(place))))
        sides = [*systems, Side(name="ceilings", module="ceilings")]
        specs = [replace(base, settings=side.settings) for side in sides]
        *records, machine = take_turns(sides, specs, Path(place))
    top = ceilings(machine)
    return report(args, work, records, top, limit(config_of(work), work, top), task)


def checkpoint(spec: Spec, weights: Path, place: Path) -> Path:
    """Draw the weights once and keep them; a later bench of the same shape finds them."""
    work = spec.work
    cfg = config_of(work)
    folder = (weights / f"{work.model}-{work.dtype}-{cfg.max_positions}-{work.seed}").resolve()
    if not (folder / "config.json").exists():
        say(f"drawing the weights of {work.model} into {folder.name}")
        once = replace(spec, folder=str(folder), work=replace(work, rounds=0))
        (record,) = take_turns([Side(name="weights", module="checkpoint")], [once], place)
        if record.failure:
            raise SystemExit(f"the weights could not be written: {record.failure}")
    return folder


def ceilings(machine: Record) -> Ceilings:
    if machine.failure:
        raise SystemExit(f"the ceilings of the machine could not be measured: {machine.failure}")
    return Ceilings(
        copy_bytes_per_s=max(row["copy_bytes_per_s"] for row in machine.rounds),
        matmul_flops_per_s=max(row["matmul_flops_per_s"] for row in machine.rounds),
    )


def report(
    args: argparse.Namespace,
    work: Work,
    records: list[Record],
    top: Ceilings,
    limit_seconds: float,
    task: Task,
) -> int:
    failures = [record for record in records if record.failure]
    if records[0].failure:
        raise SystemExit(f"our own side failed: {records[0].failure}")
    found = [figures(record, limit_seconds) for record in records if not record.failure]
    quoted = recorded.figures(work) if args.peer == "vllm" and work.device == "cuda" else []
    size = f"{work.prompts} × {work.samples} × {work.new_tokens} tokens"
    title = f"{task}: {work.model}, {size}, {work.lengths} lengths, {work.device}"
    show(title, found, failures, limit_seconds, [row.line() for row in quoted])
    print(to_json(result_of(work, task, found, failures, top, limit_seconds, quoted)))
    return 1 if args.peer != "none" and len(found) == 1 and not quoted else 0


def result_of(
    work: Work,
    task: Task,
    found: list[Figures],
    failures: list[Record],
    top: Ceilings,
    limit_seconds: float,
    quoted: list[recorded.Recorded],
) -> dict[str, object]:
    """Our figures, those of the peer's fastest setting, and how many times as fast we are."""
    us, rivals = found[0], found[1:]
    best = max(rivals, key=lambda side: side.tokens_per_s, default=None)
    peer = None if best is None else best.to_row()
    rate = None if best is None else best.tokens_per_s
    if quoted:
        fastest = max(quoted, key=lambda row: row.tokens_per_s)
        peer, rate = fastest.to_row(), fastest.tokens_per_s
    defaults = [side for side in rivals if side.is_default]
    return {
        "task": task,
        "ours": us.to_row(),
        "peer": peer,
        "ratio": None if rate is None else us.tokens_per_s / rate,
        "ratio_to_default": us.tokens_per_s / defaults[0].tokens_per_s if defaults else None,
        "peers": [side.to_row() for side in rivals] + [row.to_row() for row in quoted],
        "failed": {record.side.name: record.failure for record in failures},
        "limit_seconds": limit_seconds,
        "ceilings": {
            "copy_bytes_per_s": top.copy_bytes_per_s,
            "matmul_flops_per_s": top.matmul_flops_per_s,
        },
        "work": {name: getattr(work, name) for name in work.__dataclass_fields__},
        "machine": machine_of(work),
    }


def machine_of(work: Work) -> dict[str, str]:
    versions = {name: version(name) for name in ("torch",)}
    device = (
        torch.cuda.get_device_name()
        if work.device == "cuda"
        else platform.processor() or platform.machine()
    )
    return {"python": sys.version.split()[0], "device": device, **versions}
