"""Simulated steps of the recipes of `experiments/` on 8 to 1,024 GPUs, in docs/scaling.md.

python bench/recipe_scaling.py                                # write the table again python
bench/recipe_scaling.py --check                        # exit with 1 if rows would change python
bench/recipe_scaling.py --check --only npg_mixed_binary --gpus 8 64
"""

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from recipe_hours import load_recipe

from whet.plan.cluster import Cluster
from whet.plan.splits import COLLOCATED, GPUSplit, find_splits, list_works

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "scaling.md"
PROMPT = 512
COUNTS = (8, 64, 256, 1024)
MEANS: Mapping[str, int] = MappingProxyType(
    {
        "rlinf_math_1.5b": 13_975,
        "rlinf_math_7b": 10_426,
        "reasoning360_grpo_7b": 2_731,
        "reasoning360_grpo_32b": 2_731,
        "reasoning360_template_grpo_7b": 1_024,
        "reasoning360_dapo": 683,
        "reasoning360_ppo_32b": 2_731,
        "npg_mixed_binary": 2_731,
        "tango_grpo_1.5b": 683,
        "tango_grpo_7b": 683,
    }
)
"""Mean tokens of an answer: RLinf's are published, the others are assumed to be a third of the
limit."""


def write_row(recipe: str, gpus: int) -> str:
    """Simulate a recipe's stage that samples and trains, and write its row."""
    stages = load_recipe(ROOT / "experiments" / f"{recipe}.toml")
    found: dict[str, GPUSplit] = {}
    for name in stages:
        works = list_works(stages, name, prompt_tokens=PROMPT, new_tokens=MEANS[recipe])
        gpu = "h200" if "32b" in recipe else "h100"
        splits = find_splits(works, Cluster(gpu=gpu, gpus=gpus))
        found |= {split.mode: split for split in splits}
    cells = [write_cell(found.get(mode)) for mode in (COLLOCATED, "one step ahead", "streamed")]
    streamed = found.get("streamed")
    dropped = "–" if streamed is None else f"{streamed.step.dropped:.0%}"
    best = min(found.values(), key=lambda split: split.step.seconds, default=None)
    bound = "it does not fit" if best is None else f"{best.mode}, {best.step.bound}"
    return f"| `{recipe}` | {gpus:,} | {' | '.join(cells)} | {dropped} | {bound} |"


def write_cell(split: GPUSplit | None) -> str:
    if split is None:
        return "–"
    seconds = f"{split.step.seconds:,.0f}"
    if split.mode == COLLOCATED:
        return seconds
    size = f", TP {split.tensor_parallel}" if split.tensor_parallel > 1 else ""
    return f"{seconds} ({split.engine_gpus:,} + {split.learner_gpus:,}{size})"


def replace_rows(text: str, rows: Mapping[tuple[str, int], str]) -> str:
    """Put rows into the table of the page: in place of those of the same recipe and GPUs."""
    for (recipe, gpus), row in rows.items():
        old = re.compile(rf"^\| `{re.escape(recipe)}` \| {gpus:,} \|.*$", re.MULTILINE)
        text, count = old.subn(row, text)
        assert count == 1, f"{PAGE.name} has {count} rows of {recipe} on {gpus} GPUs"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing")
    parser.add_argument("--only", nargs="+", choices=[*MEANS], default=[*MEANS])
    parser.add_argument("--gpus", nargs="+", type=int, choices=COUNTS, default=[*COUNTS])
    args = parser.parse_args()
    is_changed = update_page(args.only, args.gpus, check=args.check)
    sys.exit(int(args.check and is_changed))


def update_page(recipes: Sequence[str], counts: Sequence[int], *, check: bool) -> bool:
    """Simulate rows, print those that differ from the page, and write them; return whether any
    did."""
    text = PAGE.read_text()
    changed = False
    for recipe in recipes:
        for gpus in counts:
            row = write_row(recipe, gpus)
            if row not in text:
                changed = True
                print(row, flush=True)
                text = replace_rows(text, {(recipe, gpus): row})
                if not check:
                    PAGE.write_text(text)
    return changed


if __name__ == "__main__":
    main()
