"""docs/algorithms.md says what the rows say, and what the comparison with TRL prints."""

import json
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from whet import toml
from whet.algos.algorithm import build_algorithm
from whet.algos.presets import PRESETS, Preset
from whet.algos.settings import AlgoConfig
from whet.toml import Table

ROOT = Path(__file__).parents[2]
DOCUMENT = (ROOT / "docs" / "algorithms.md").read_text()
AGREED = "rounding"


def _table(heading: str) -> list[list[str]]:
    """The rows of the table whose first line begins with a heading."""
    body = DOCUMENT.split(f"| {heading} |")[1].split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in body]


def _choices(row: Preset) -> list[str]:
    advantage = row.advantage + (", whitened" if row.whiten else "")
    steps = f", steps {row.step_rule} α {row.step_credit_fraction:g}" if row.step_rule else ""
    bounds = {
        "clip": f" {row.clip_low:g} {row.clip_high:g}",
        "cispo": f" {row.clip_high:g}",
        "reinforce": "",
    }
    surrogate = row.surrogate + bounds[row.surrogate]
    return [advantage + steps, row.ratio, surrogate, row.loss_weights, row.kl_in, row.paper]


def test_the_catalogue_in_the_document_is_that_of_the_code() -> None:
    assert _table("name | advantage") == [
        [f"`{name}`", *_choices(row)] for name, row in PRESETS.items()
    ]


def test_the_document_has_numbers_of_every_source_that_can_be_set() -> None:
    known = set(toml.flatten(AlgoConfig().model_dump()))
    elsewhere = {"group_size", "problems_per_step", "max_tokens", "train.lr", "critic.lr"}
    rows = {name.strip("`"): numbers for name, numbers in _table("name | the source sets")}
    assert list(rows) == list(PRESETS)
    for name, numbers in rows.items():
        pairs = [pair.split(" ") for pair in numbers.split(", ") if pair]
        assert {key for key, _ in pairs} <= known | elsewhere, name
        tree: Table = {"name": name}
        for key, value in pairs:
            if key in known:
                tree = toml.with_value(tree, key, toml.parse_value(value))
        build_algorithm(AlgoConfig.model_validate(tree), max_tokens=10)


@pytest.mark.slow
@pytest.mark.skipif(find_spec("trl") is None, reason="TRL is the yardstick and is not installed")
def test_losses_and_gradients_agree_with_trl_where_the_document_says_so() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "losses.py")],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=110,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    row = json.loads(done.stdout.splitlines()[-1])
    found = {case["name"]: case for case in row["cases"]}
    documented = _table("case | gradient apart")

    assert [name for name, _, _ in documented] == list(found)
    names = {re.split(",", name)[0] for name, apart, _ in documented if apart == AGREED}
    assert names == {"grpo", "dr_grpo", "dapo", "gspo", "cispo", "rloo", "dpo", "ipo"}
    for name, apart, verdict in documented:
        case = found[name]
        if apart == AGREED:
            assert case["gradient_apart"] <= row["bound"] < 2e-5 and verdict.startswith("agrees"), (
                name
            )
        else:
            assert case["gradient_apart"] == pytest.approx(float(apart), rel=0.05), name
        assert verdict.endswith(case["why"])
