"""The kinds of stages: for each, the settings class and the recipe that runs it."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Union

import torch
from pydantic import Field

from whet.errors import TrainError
from whet.recipes.distill import DistillConfig, distill
from whet.recipes.dpo import DPOConfig, dpo
from whet.recipes.evaluate import EvalConfig, evaluate_model
from whet.recipes.make import MakeConfig, make
from whet.recipes.rl import RLConfig, rl
from whet.recipes.sft import SFTConfig, sft
from whet.recipes.tango import TangoConfig, tango
from whet.recipes.teach import TeachConfig, teach
from whet.recipes.training import StageConfig
from whet.recipes.verifications import VerificationsConfig, write_verifications
from whet.store.run import RunStore

RECIPES: dict[type[StageConfig], Callable[..., None]] = {
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
KINDS = {str(config.model_fields["kind"].default): config for config in RECIPES}
if TYPE_CHECKING:
    AnyStage = StageConfig
else:
    AnyStage = Annotated[Union[tuple(RECIPES)], Field(discriminator="kind")]  # noqa: UP007
IGNORED = ("track",)
"""Settings that may differ when a run goes on."""
OUT_OF_HOST_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    "Storage size calculation overflowed",
)
"""What torch's errors say when host memory runs out."""


def run_stage(cfg: StageConfig, run: RunStore) -> None:
    """Run the recipe that the settings belong to; running out of memory is one sentence."""
    try:
        RECIPES[type(cfg)](cfg, run)
    except torch.OutOfMemoryError as error:
        asked = str(error).partition(". ")[0]
        raise TrainError(
            f"the {cfg.kind} stage needs more memory than the GPU has ({asked}): "
            "lower train.micro_tokens or engine.kv_gb, or set train.offload = true; "
            "`whet plan` says what fits"
        ) from None
    except (MemoryError, RuntimeError) as error:
        is_memory = isinstance(error, MemoryError)
        if not is_memory and not any(words in str(error) for words in OUT_OF_HOST_MEMORY):
            raise
        raise TrainError(
            f"the {cfg.kind} stage needs more memory than this machine has: "
            "lower engine.slots or train.micro_tokens; `whet plan` says what fits"
        ) from None
