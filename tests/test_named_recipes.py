"""Every recipe in experiments/ runs all its stages in its smoke form, in this process, and
docs/recipes.md lists it."""

import math
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from small import gradient_norms, whet

from whet.algos.presets import AlgoName
from whet.algos.settings import resolve_preset
from whet.config import differences, to_table
from whet.pipeline.pipeline import STAND_INS
from whet.pipeline.pipeline_config import load_pipeline, load_smoke, load_stages
from whet.recipes.distill import DistillConfig
from whet.recipes.dpo import DPOConfig
from whet.recipes.rl import RLConfig
from whet.recipes.sft import SFTConfig
from whet.recipes.tango import Side, TangoConfig
from whet.recipes.tango import num_steps as num_side_steps
from whet.rewards.spec import RewardSpec
from whet.rewards.spec import load_spec as load_reward
from whet.toml import Table, flatten

ROOT = Path(__file__).parents[1]
EXPERIMENTS = ROOT / "experiments"
FILES = sorted(f for f in EXPERIMENTS.glob("*.toml") if not f.stem.startswith("study_"))
ORDERS = ("mixed", "curriculum")
REWARDS = (
    "binary",
    "binary_format",
    "binary_format_repeat",
    "ratio_quality_format_repeat",
    "complicated",
)
PROMISED = {
    "game24_grpo",
    "game24_dpo",
    *(f"game24_sft_{name}" for name in ("short", "medium", "long", "v1", "v2", "v3")),
    *(
        f"tango_{name}_{size}"
        for name in ("grpo", "rloo", "reinforce_pp")
        for size in ("1.5b", "7b")
    ),
    *("tango_lrm_sft", "tango_deepmath_1.5b", "tango_deepmath_7b"),
    *(f"reasoning360_{name}" for name in ("grpo_7b", "grpo_32b", "dapo", "ppo_3b", "ppo_32b")),
    *(f"reasoning360_template_grpo_{size}" for size in ("7b", "32b")),
    *(f"npg_mixed_binary_{volume}" for volume in ("750", "60k", "90k")),
    *(f"rlinf_math_{size}" for size in ("1.5b", "7b")),
    *(f"npg_{order}_{reward}" for order in ORDERS for reward in REWARDS),
}


def by_name(file: Path) -> str:
    return file.stem


def stages_of(file: Path) -> dict[str, Table]:
    return {name: to_table(stage) for name, stage in load_stages(file, []).items()}


def test_every_promised_recipe_is_there() -> None:
    assert {file.stem for file in FILES} >= PROMISED


@pytest.mark.parametrize("file", FILES, ids=by_name)
def test_a_recipe_runs_all_its_stages_in_its_smoke_form_and_every_training_step_has_a_gradient(
    file: Path, tmp_path: Path
) -> None:
    torch.set_num_threads(1)

    said = whet("run", file, "--smoke", "--out", tmp_path / "run")

    assert said.code == 0, said.last
    folders = [
        tmp_path / "run" / f"{number:02d}-{name}"
        for number, name in enumerate(stages_of(file), start=1)
    ]
    assert all((folder / "summary.json").is_file() for folder in folders)
    assert (tmp_path / "run" / "report.html").is_file()
    stages = load_smoke(file, [], tmp_path / "run" / STAND_INS).config.stages
    for folder, stage in zip(folders, stages.values(), strict=True):
        if isinstance(stage, SFTConfig | RLConfig | DPOConfig | DistillConfig | TangoConfig):
            norms = gradient_norms(folder)
            assert {name: len(values) for name, values in norms.items()} == num_steps(stage), (
                folder.name
            )
            assert all(0.0 < norm < math.inf for values in norms.values() for norm in values), (
                folder.name,
                norms,
            )


def num_steps(
    stage: SFTConfig | RLConfig | DPOConfig | DistillConfig | TangoConfig,
) -> dict[str, int]:
    """Count the steps that log a gradient norm when every step of every model moves its weights."""
    if isinstance(stage, TangoConfig):
        return {
            "train/grad_norm": num_side_steps(stage, Side.GENERATOR, stage.steps),
            "verifier_train/grad_norm": num_side_steps(stage, Side.VERIFIER, stage.steps),
        }
    models = ["train"]
    if isinstance(stage, RLConfig) and resolve_preset(stage.algo).advantage == "gae":
        models.append("value")
    return {f"{model}/grad_norm": stage.steps for model in models}


def test_the_documented_recipes_are_those_of_the_folder_with_their_models_and_data() -> None:
    text = (ROOT / "docs" / "recipes.md").read_text()
    rows = [
        row.split(" | ") for row in re.findall(r"^\| (`\w[\w.]*` \| .+) \|$", text, re.MULTILINE)
    ]
    documented = {
        row[0].strip("`"): set(re.findall(r"`([^`]+)`", f"{row[2]} {row[3]}")) for row in rows
    }

    assert documented == {file.stem: set(taken_from_outside(file)) for file in FILES}


def taken_from_outside(file: Path) -> Iterator[str]:
    """List the models and data files that a recipe names."""
    for values in (flatten(stage) for stage in stages_of(file).values()):
        for key in ("problems", "data", "model.path", "verifier.path"):
            place = values.get(key)
            if isinstance(place, str) and not place.startswith("@"):
                yield place


@pytest.mark.parametrize("reward", REWARDS)
def test_mixed_and_curriculum_differ_in_the_order_of_the_same_rows_alone(reward: str) -> None:
    mixed, staged = (
        load_pipeline(EXPERIMENTS / f"npg_{order}_{reward}.toml", []).config for order in ORDERS
    )

    assert differences(mixed, staged) == ["stages.rl.curriculum.shuffled: true -> false"]


@pytest.mark.parametrize("order", ORDERS)
def test_the_rewards_of_a_schedule_differ_in_the_reward_alone(order: str) -> None:
    stages = [
        load_pipeline(EXPERIMENTS / f"npg_{order}_{reward}.toml", []).config.stages["rl"]
        for reward in REWARDS
    ]
    rls = [stage for stage in stages if isinstance(stage, RLConfig)]

    assert [stage.reward for stage in rls] == [load_reward(reward) for reward in REWARDS]
    assert (
        len({stage.model_copy(update={"reward": RewardSpec()}).model_dump_json() for stage in rls})
        == 1
    )


@pytest.mark.parametrize("name", ["grpo", "rloo", "reinforce_pp"])
def test_the_sizes_of_a_tango_differ_in_the_generator_alone(name: str) -> None:
    small, large = (
        load_pipeline(EXPERIMENTS / f"tango_{name}_{size}.toml", []).config
        for size in ("1.5b", "7b")
    )

    assert differences(small, large) == [
        'stages.sft.model.path: "Qwen/Qwen2.5-Math-1.5B" -> "Qwen/Qwen2.5-Math-7B"',
    ]


@pytest.mark.parametrize(
    ("file", "stage", "name"),
    [
        ("game24_grpo", "rl", "game24"),
        ("rlinf_math_7b", "rl", "rlinf"),
        ("reasoning360_ppo_3b", "rl", "ppo"),
        ("tango_grpo_7b", "tango", "tango_grpo"),
        ("tango_rloo_7b", "tango", "tango_rloo"),
        ("tango_reinforce_pp_7b", "tango", "tango_reinforce_pp"),
    ],
)
def test_the_numbers_that_the_catalogue_gives_of_a_source_are_those_of_its_file(
    file: str, stage: str, name: AlgoName
) -> None:
    values = flatten(to_table(load_pipeline(EXPERIMENTS / f"{file}.toml", []).config.stages[stage]))
    document = (ROOT / "docs" / "algorithms.md").read_text().split("| the source sets |")[1]
    numbers = re.search(rf"^\| `{name}` \| (.*) \|$", document, re.MULTILINE)[1]
    source = dict(pair.split(" ") for pair in numbers.split(", "))

    set_here = {key: values.get(f"algo.{key}", values.get(key)) for key in source}
    assert {k: v if isinstance(v, str) else f"{v:g}" for k, v in set_here.items()} == source
