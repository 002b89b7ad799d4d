"""The page on many GPUs is what its bench writes, and its check against published runs holds."""

import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

import recipe_scaling  # noqa: E402
import simulate  # noqa: E402


@pytest.mark.parametrize(
    ("recipe", "gpus"), [("npg_mixed_binary", 8), ("npg_mixed_binary", 64), ("tango_grpo_7b", 64)]
)
def test_rows_of_the_page_are_those_that_are_simulated(recipe: str, gpus: int) -> None:
    """`python bench/recipe_scaling.py` writes these rows."""
    assert recipe_scaling.write_row(recipe, gpus) in recipe_scaling.PAGE.read_text()


def test_the_page_has_a_row_of_every_recipe_and_number_of_gpus() -> None:
    lines = recipe_scaling.PAGE.read_text().splitlines()
    for recipe in recipe_scaling.MEANS:
        for gpus in recipe_scaling.COUNTS:
            rows = [line for line in lines if line.startswith(f"| `{recipe}` | {gpus:,} |")]
            assert len(rows) == 1
            assert all(cell.strip() for cell in rows[0].strip("|").split("|"))


def test_published_runs_are_simulated_within_a_fifth_with_one_factor() -> None:
    rows = simulate.compare_published()
    assert len(rows) == 4
    assert [row.name for row in rows if abs(row.error) > 0.2] == []
