"""How our rollout rate grows with the batch and falls with the length, beside what the limit
formula says.

    python bench/scaling.py --model 1.5b --device cuda --batches 64 256 1024 --totals 512 2048 8192 --svg scaling.svg

Each cell samples `--new-tokens` tokens for every sequence, the last ones of the given total length;
eight sequences share a prompt. The rate counts prefill and decode, and so does the limit.
"""

import argparse
import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from speed import roster
from speed.children import Side, say, take_turns
from speed.comparison import ceilings
from speed.limits import rollout_seconds
from speed.plot import Cell, chart
from speed.shapes import MODELS, config_of
from speed.table import figures
from speed.work import Spec, Work, add_options, work_of

SAMPLES = 8


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, models=MODELS)
    parser.add_argument("--batches", type=int, nargs="+", default=[64, 256, 1024])
    parser.add_argument("--totals", type=int, nargs="+", default=[512, 2048, 8192])
    parser.add_argument(
        "--engine", action="append", default=[], metavar="KEY=VALUE", help="a setting of our engine"
    )
    parser.add_argument("--svg", type=Path, help="where to draw the chart")
    parser.set_defaults(new_tokens=64, train=[])
    args = parser.parse_args()
    base = work_of(args)
    cells = []
    for work in [cell_work(base, batch, total) for batch in args.batches for total in args.totals]:
        cells.append(cell := measure(args, work))
        share = 100 * cell.measured / cell.limit
        print(
            f"{cell.batch:>6} x {cell.length:>6}: {cell.measured:>12,.0f} tokens/s, {share:5.1f} % of the limit",
            flush=True,
        )
    if args.svg:
        args.svg.write_text(
            chart(
                cells, f"Rollout of {args.model} on {args.device}, {args.new_tokens} tokens a cell"
            )
        )
    print(
        json.dumps(
            [{name: getattr(cell, name) for name in Cell.__dataclass_fields__} for cell in cells]
        )
    )
    return 0


def cell_work(base: Work, batch: int, total: int) -> Work:
    prompt = total - base.new_tokens
    if prompt < 1 or batch % SAMPLES:
        raise SystemExit(
            f"a cell of {batch} x {total} needs a multiple of {SAMPLES} and more than {base.new_tokens}"
        )
    return replace(
        base, prompts=batch // SAMPLES, samples=SAMPLES, prompt_tokens=prompt, slots=batch
    )


def measure(args: argparse.Namespace, work: Work) -> Cell:
    say(f"{work.num_requests} sequences of {work.context} tokens")
    cfg = config_of(work)
    ours = roster.ours(args)
    spec = Spec(
        work=work, task="rollout", vocab_size=cfg.vocab_size, folder=None, settings=ours.settings
    )
    with tempfile.TemporaryDirectory() as place:
        # Ceilings first: the engine takes most of what memory is free.
        sides = [Side(name="ceilings", module="ceilings"), ours]
        machine, record = take_turns(sides, [spec, spec], Path(place))
    if record.failure:
        raise SystemExit(f"{work.num_requests} x {work.context} failed: {record.failure}")
    limit = rollout_seconds(cfg, work, ceilings(machine))
    tokens = sum(work.limits())
    rate = figures(record, limit).tokens_per_s
    return Cell(batch=work.num_requests, length=work.context, measured=rate, limit=tokens / limit)


if __name__ == "__main__":
    sys.exit(main())
