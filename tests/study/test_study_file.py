"""A study's file: what it may say, and which pipelines it makes."""

from pathlib import Path

import pytest
from small import whet, write

from whet.config import to_table
from whet.errors import ConfigError
from whet.pipeline.pipeline_config import load_stages
from whet.study.study_file import load_study

EXPERIMENTS = Path(__file__).parents[2] / "experiments"
BASE = """
[base]
task.name = "game24"
[base.stages.problems]
kind = "make"
[base.stages.rl]
kind = "rl"
model.path = "m"
steps = 2
[base.stages.rl_eval]
kind = "eval"
model.path = "@rl"
samples = 4
"""
STUDY = f"""kind = "study"
seeds = [1, 2]
rounds = ["lr", "steps"]
{BASE}
[factors.lr.low]
[factors.lr.high]
stages.rl.train.lr = 1e-3
[factors.steps.few]
[factors.steps.many]
stages.rl.steps = 9
"""


def test_levels_are_laid_over_the_base_in_the_order_of_the_factors(tmp_path: Path) -> None:
    study = load_study(write(tmp_path / "s.toml", STUDY), ["--stages.rl.group_size=3"])
    config = study.load_pipeline({"lr": "high", "steps": "many"}, 7).config
    rl = to_table(config.stages["rl"])
    assert (rl["steps"], rl["seed"], rl["group_size"]) == (9, 7, 3)
    assert config.stages["rl"].model_dump()["train"]["lr"] == 1e-3


def test_a_round_starts_from_the_levels_that_won_and_a_grid_has_all_combinations(
    tmp_path: Path,
) -> None:
    text = STUDY.replace('["lr", "steps"]', '["lr", { factors = ["lr", "steps"] }]')
    study = load_study(write(tmp_path / "s.toml", text), [])
    first, grid = study.config.rounds
    assert study.list_cells(first, {"lr": "low", "steps": "many"}) == [
        {"lr": "low", "steps": "many"},
        {"lr": "high", "steps": "many"},
    ]
    assert len(study.list_cells(grid, study.first_levels)) == 4


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        ('["lr", "steps"]', '["lr", "stepz"]', "a round names 'stepz'"),
        ('["lr", "steps"]', '["lr"]', "no round compares the factor 'steps'"),
        ("seeds = [1, 2]", "seeds = [1, 1]", "each seed should be listed once"),
        ("[factors.steps.few]\n", "", "should have at least two levels"),
        ("stages.rl.steps = 9", "stages.rl.stepz = 9", 'did you mean "stages.rl.steps"'),
        ("seeds = [1, 2]", 'seeds = [1]\nmetric = "pass@8"', "has samples = 4"),
        ("seeds = [1, 2]", 'seeds = [1]\nmeasure = "rl"', "there are rl_eval"),
        ('kind = "study"', 'kind = "run"', "is of kind 'run', but `whet study` runs files of kind"),
        ("[factors.lr.high]", '[factors.lr."a/b"]', "letters, digits"),
    ],
)
def test_a_mistake_is_one_sentence(before: str, after: str, words: str, tmp_path: Path) -> None:
    said = whet("study", write(tmp_path / "s.toml", STUDY.replace(before, after)), "--plan")
    assert said.code == 2
    assert words in said.last


def test_a_file_of_another_kind_is_no_base(tmp_path: Path) -> None:
    write(tmp_path / "rl.toml", 'kind = "rl"\ntask = "game24"\nmodel.path = "m"\n')
    text = STUDY.replace(BASE, "").replace("seeds", 'base = "rl.toml"\nseeds', 1)
    with pytest.raises(ConfigError, match=r'rl\.toml should be a file of kind "run"'):
        load_study(write(tmp_path / "s.toml", text), [])


def test_the_npg_study_trains_as_the_files_of_its_levels() -> None:
    study = load_study(EXPERIMENTS / "study_npg.toml", [])
    files = {
        ("45k", "mixed", "binary"): "npg_mixed_binary",
        ("60k", "mixed", "binary"): "npg_mixed_binary_60k",
        ("90k", "mixed", "binary"): "npg_mixed_binary_90k",
        ("45k", "curriculum", "complicated"): "npg_curriculum_complicated",
    }
    for (volume, order, reward), name in files.items():
        levels = {**study.first_levels, "volume": volume, "order": order, "reward": reward}
        ours = study.load_pipeline(levels, 1).config.stages
        theirs = load_stages(EXPERIMENTS / f"{name}.toml", [])
        own, other = to_table(ours["rl"]), to_table(theirs["rl"])
        assert {key for key in own if own[key] != other[key]} == {"model", "problems"}
        made = to_table(ours["rl_problems"]), to_table(theirs["problems"])
        assert made[0] == made[1]


def test_the_six_models_of_game24_are_those_of_their_files() -> None:
    study = load_study(EXPERIMENTS / "study_game24_models.toml", [])
    for level in study.config.factors["trace"]:
        ours = study.load_pipeline({"trace": level}, 42).config.stages
        theirs = load_stages(EXPERIMENTS / f"game24_sft_{level}.toml", [])
        assert {name: to_table(stage) for name, stage in ours.items()} == {
            name: to_table(stage) for name, stage in theirs.items()
        }
