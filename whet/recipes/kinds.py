"""The stages a file can ask for, by its `kind`: the settings class and the function that runs it."""

from collections.abc import Callable
from typing import Annotated

from pydantic import Field

from whet.recipes.distill import DistillConfig, distill
from whet.recipes.dpo import DPOConfig, dpo
from whet.recipes.evaluate import EvalConfig, evaluate_model
from whet.recipes.make import MakeConfig, make
from whet.recipes.rl import RLConfig, rl
from whet.recipes.sft import SFTConfig, sft
from whet.recipes.tango import tango
from whet.recipes.teach import TeachConfig, teach
from whet.recipes.turns import TangoConfig
from whet.recipes.verifications import VerificationsConfig, write_verifications
from whet.store.run import RunStore

Stage = (
    MakeConfig
    | TeachConfig
    | SFTConfig
    | RLConfig
    | DPOConfig
    | DistillConfig
    | TangoConfig
    | VerificationsConfig
    | EvalConfig
)
AnyStage = Annotated[Stage, Field(discriminator="kind")]
KINDS: dict[str, type[Stage]] = {
    "make": MakeConfig,
    "teach": TeachConfig,
    "sft": SFTConfig,
    "rl": RLConfig,
    "dpo": DPOConfig,
    "distill": DistillConfig,
    "tango": TangoConfig,
    "verifications": VerificationsConfig,
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
        DPOConfig: dpo,
        DistillConfig: distill,
        TangoConfig: tango,
        VerificationsConfig: write_verifications,
        EvalConfig: evaluate_model,
    }
    recipes[type(cfg)](cfg, run)
