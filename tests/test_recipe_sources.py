"""Recipes named after another system have the numbers of its scripts, as tests/sources.toml lists
them, and say in their first lines where they depart."""

import json
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest
from small import whet

from whet.config import to_table
from whet.pipeline.pipeline_config import load_pipeline
from whet.toml import Table, flatten
from whet.types import Json

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
OWN = {"game24_cpu", "game24_gpu", "tango_small"}
"""whet's own recipes, which follow no other system."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    repository: str
    commit: str
    file: str
    recipes: list[str]
    numbers: dict[str, Json]
    departures: dict[str, tuple[Json, str]]


def read_sources() -> list[Source]:
    table = tomllib.loads((ROOT / "tests" / "sources.toml").read_text())
    rows: list[Source] = []
    for row in table["source"]:
        names = [path.stem for name in row["recipes"] for path in EXPERIMENTS.glob(f"{name}.toml")]
        if row["recipes"] == ["npg_*"]:
            names.remove("npg_sft")
        departures = {
            key: (value, words) for key, (value, words) in row.get("departures", {}).items()
        }
        rest = {key: row[key] for key in ("repository", "commit", "file")}
        rows.append(
            Source(**rest, recipes=names, numbers=row.get("numbers", {}), departures=departures)
        )
    return rows


SOURCES = read_sources()
CASES = [(source, name) for source in SOURCES for name in sorted(source.recipes)]


def settings_of(name: str) -> dict[str, Json]:
    table: Table = to_table(load_pipeline(EXPERIMENTS / f"{name}.toml", []).config)
    return dict(flatten(table))


def header_of(name: str) -> str:
    """Read the first lines of a recipe, and of the recipe that it says its differences are in."""
    text = (EXPERIMENTS / f"{name}.toml").read_text()
    lines = [line.removeprefix("# ") for line in text.splitlines() if line.startswith("#")]
    header = " ".join(lines)
    others = [other for other in re.findall(r"(\w[\w.]*)\.toml", header) if other != name]
    return " ".join([header, *(header_of(other) for other in others)])


def case_id(case: tuple[Source, str]) -> str:
    return f"{case[1]}-{case[0].file}"


@pytest.mark.parametrize("case", CASES, ids=case_id)
def test_a_recipe_has_the_numbers_of_its_source(case: tuple[Source, str]) -> None:
    source, name = case
    settings = settings_of(name)

    assert {key: settings.get(key) for key in source.numbers} == source.numbers


@pytest.mark.parametrize("case", [case for case in CASES if case[0].departures], ids=case_id)
def test_a_recipe_says_where_it_departs_from_its_source(case: tuple[Source, str]) -> None:
    source, name = case
    settings = settings_of(name)

    for key, (number, words) in source.departures.items():
        assert settings.get(key) != number, f"{key} departs no more"
        assert words in header_of(name)


def test_every_recipe_that_follows_another_system_has_a_source() -> None:
    recipes = {path.stem for path in EXPERIMENTS.glob("[!s]*.toml")}

    assert recipes - {name for source in SOURCES for name in source.recipes} == OWN


def test_every_source_has_a_file_and_a_commit_and_gives_recipes_their_optimizer() -> None:
    assert all(re.fullmatch(r"[0-9a-f]{7,9}\^?", source.commit) for source in SOURCES)
    assert all(source.recipes for source in SOURCES)
    trained: dict[str, set[str]] = {}
    for source, name in CASES:
        trained.setdefault(name, set()).update(key.split(".")[-1] for key in source.numbers)
    assert [
        name for name, keys in trained.items() if not {"lr", "beta2", "weight_decay"} <= keys
    ] == []


QWEN_7B = {
    "architectures": ["Qwen2ForCausalLM"],
    "model_type": "qwen2",
    "hidden_size": 3584,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-6,
    "rope_theta": 1e6,
    "hidden_act": "silu",
}


@pytest.mark.parametrize("name", ["tango_grpo_7b", "tango_deepmath_7b"])
def test_two_models_of_7b_fit_on_the_card_that_the_recipe_names(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(QWEN_7B))
    models = ("--stages.sft.model.path", tmp_path, "--stages.tango.verifier.path", tmp_path)

    said = whet(*("plan", EXPERIMENTS / f"{name}.toml", "--gpu", "h200", "--prompt", 512), *models)

    assert said.code == 0, said.err
