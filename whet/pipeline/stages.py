"""The stages a file can ask for, by its `kind`: the settings class and the function that runs
it."""

from collections.abc import Callable
from typing import Annotated

import torch
from pydantic import Field

from whet.errors import TrainError
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

NO_MEMORY = ("can't allocate memory", "not enough memory", "Storage size calculation overflowed")
"""How torch says that host memory does not do."""


def run_stage(cfg: Stage, run: RunStore) -> None:
    """Run the recipe that the settings belong to; a machine whose memory does not do is told of in
    one sentence."""
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
    try:
        recipes[type(cfg)](cfg, run)
    except torch.OutOfMemoryError as error:
        asked = str(error).partition(". ")[0]
        raise TrainError(
            f"the {cfg.kind} stage needs more memory than the GPU has ({asked}): lower train.micro_tokens or "
            "engine.kv_gb, or set train.offload = true; `whet plan` says what fits"
        ) from None
    except (MemoryError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(words in str(error) for words in NO_MEMORY):
            raise
        raise TrainError(
            f"the {cfg.kind} stage needs more memory than this machine has: lower engine.slots or train.micro_tokens; "
            "`whet plan` says what fits"
        ) from None
