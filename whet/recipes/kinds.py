"""The stages a file can ask for, by its `kind`: the settings class and the function that runs it."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from whet.recipes.evaluate import EvalConfig, evaluate_model
from whet.recipes.make import MakeConfig, make
from whet.recipes.rl import RLConfig, rl
from whet.recipes.sft import SFTConfig, sft
from whet.recipes.teach import TeachConfig, teach
from whet.store.run import RunStore

Stage = MakeConfig | TeachConfig | SFTConfig | RLConfig | EvalConfig
AnyStage = Annotated[Stage, Field(discriminator="kind")]
KINDS: dict[str, type[Stage]] = {
    "make": MakeConfig,
    "teach": TeachConfig,
    "sft": SFTConfig,
    "rl": RLConfig,
    "eval": EvalConfig,
}
IGNORED = ("track",)
"""Settings that may differ when a run goes on."""


def run_stage(cfg: Stage, run: RunStore) -> None:
    """Run the recipe that the settings belong to."""
    recipes: dict[type[Stage], Callable[..., None]] = {
        MakeConfig: make,
        TeachConfig: teach,
        SFTConfig: sft,
        RLConfig: rl,
        EvalConfig: evaluate_model,
    }
    recipes[type(cfg)](cfg, run)
