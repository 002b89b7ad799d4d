"""What the recipes of `experiments/` need and how long they take on 8, 32 and 128 GPUs, by
`whet plan`, in the comments of the files and in docs/recipes.md.

    python bench/recipe_hours.py           # write these lines anew
    python bench/recipe_hours.py --check   # print those that would change; exit with 1 if any do

Hours are upper bounds: prompts of 512 tokens and every response at its length limit.
"""

import argparse
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from whet.config import kind_of
from whet.pipeline.pipeline_config import load_stages
from whet.plan.cluster import Cluster, choose_layout, count_fewest, run_seconds
from whet.plan.phases import fits
from whet.plan.predict import find_card, list_jobs
from whet.stages.stage import ModelStageConfig, StageConfig

ROOT = Path(__file__).parents[1]
TABLE = ROOT / "docs" / "recipes.md"
PROMPT = 512
COUNTS = (8, 32, 128)
STARTS = {"runs/npg_sft/02-sft": "Qwen/Qwen3-8B-Base"}
"""Models that another recipe trains, by the shape that they have."""
LINE = re.compile(r"^# whet plan: .*\n", re.MULTILINE)


def recipes() -> list[Path]:
    """List the files that start from published models; those of whet's own have measured times."""
    files = sorted((ROOT / "experiments").glob("*.toml"))
    is_own = {file: "new = " in file.read_text() or kind_of(file) == "study" for file in files}
    return [file for file in files if not is_own[file]]


def load_recipe(file: Path) -> Mapping[str, StageConfig]:
    """Load the stages of a recipe; models that another one trains by their shape."""
    flags: list[str] = []
    for name, stage in load_stages(file, []).items():
        if isinstance(stage, ModelStageConfig) and (start := STARTS.get(stage.model.path or "")):
            flags += [f"--stages.{name}.model.path", start]
    return load_stages(file, flags)


def summarize(file: Path) -> str:
    """Say the fewest GPUs and the hours on each number of them."""
    planned = list_jobs(load_recipe(file), PROMPT, None)

    def hours(gpu: str, gpus: int) -> str | None:
        card = find_card(gpu)
        layout = choose_layout(planned, card, Cluster(gpu=gpu, gpus=gpus))
        if not all(fits(job.on(layout), card) for _, job in planned):
            return None
        length = round_time(run_seconds(planned, card, layout) / 3600)
        name = gpu.upper().replace("RTX", "RTX ")
        return f"{gpus} × {name}: {length}"

    fewest = count_fewest(planned, "h200")
    assert fewest is not None, f"{file.name} fits nowhere"
    parts = [hours("rtx4090", 1) or hours("h200", fewest)]
    parts += [hours("h100", gpus) or hours("h200", gpus) for gpus in COUNTS]
    return ", ".join(dict.fromkeys(part for part in parts if part))


def round_time(hours: float) -> str:
    """Round to two digits.

    >>> round_time(10_123.0), round_time(0.31)
    ('10,000 h', '19 min')
    """
    if hours < 1:
        return f"{max(1, round(60 * hours))} min"
    return f"{float(f'{hours:.2g}'):,.{1 if hours < 9.95 else 0}f} h"


def rewrite() -> Iterator[tuple[Path, str]]:
    """Yield each file whose lines change, with its new text."""
    table = TABLE.read_text()
    for file in recipes():
        summary = summarize(file)
        text = LINE.sub("", file.read_text())
        header = re.match(r"kind = .*\n(?:#.*\n)+", text)
        assert header is not None, f"{file.name} has no comment"
        line = f"# whet plan: {summary}.\n"
        assert len(line) <= 101, line
        new = text[: header.end()] + line + text[header.end() :]
        if new != file.read_text():
            yield file, new
        row = re.compile(rf"^(\| `{re.escape(file.stem)}` \|.*\| )[^|]+ \|$", re.MULTILINE)
        table, changed = row.subn(rf"\g<1>{summary} |", table)
        assert changed == 1, f"{TABLE.name} has {changed} rows of {file.stem}"
    if table != TABLE.read_text():
        yield TABLE, table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="print what would change")
    check = parser.parse_args().check
    changes = list(rewrite())
    for file, text in changes:
        print(file.relative_to(ROOT))
        if not check:
            file.write_text(text)
    sys.exit(1 if check and changes else 0)


if __name__ == "__main__":
    main()
