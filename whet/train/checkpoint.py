"""Checkpoints: the model as a Hugging Face folder, its optimiser, and the rest as JSON."""

import json
from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError

from whet.errors import DataError
from whet.train.learner import Learner
from whet.train.policy import Policy
from whet.types import Json, read_integer, read_number
from whet.world import get_world

STATE, OTHERS = "state.json", "others"
Others = Mapping[str, tuple[Policy, Learner]]
"""Policies that train beside the first, by name, with their learners."""


def read_numbers(state: Json) -> dict[str, float]:
    """Read numbers by name from a checkpoint's state; empty where there are none."""
    rows = state.items() if isinstance(state, dict) else ()
    return {name: read_number(value) for name, value in rows}


def save_training(
    folder: Path,
    policy: Policy,
    learner: Learner,
    state: dict[str, Json],
    others: Others | None = None,
) -> None:
    """Write the whole training state; random state follows from seed and step.

    Each of the others has a folder that is itself a checkpoint. Ranks call this together, for the
    same folder.
    """
    policy.save(folder)
    learner.save(folder)
    if get_world().is_rank_zero:
        (folder / STATE).write_text(json.dumps(state | {"optimizer_steps": learner.num_steps}))
    for name, (other_policy, other_learner) in (others or {}).items():
        other_folder = folder / OTHERS / name
        other_folder.mkdir(parents=True, exist_ok=True)
        save_training(other_folder, other_policy, other_learner, {})


def load_training(
    folder: Path, policy: Policy, learner: Learner, others: Others | None = None
) -> dict[str, Json]:
    """Load weights and optimiser in place; return the state."""
    policy.load(folder)
    try:
        state: dict[str, Json] = json.loads((folder / STATE).read_text())
        learner.load(folder, read_integer(state["optimizer_steps"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"checkpoint {folder} cannot be read ({error}); delete it to use the one before"
        ) from error
    for name, (other_policy, other_learner) in (others or {}).items():
        load_training(folder / OTHERS / name, other_policy, other_learner)
    return state
