"""Checkpoints: the model as a Hugging Face folder, the optimiser, and the state of all the rest."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from whet.errors import DataError
from whet.train.learner import Learner
from whet.train.policy import Policy, load_trained_weights
from whet.types import Json

STATE, OTHERS = "state.json", "others"


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """A policy that trains beside the first, with the learner that moves it."""

    policy: Policy
    learner: Learner


def save_training(
    folder: Path,
    policy: Policy,
    learner: Learner,
    state: dict[str, Json],
    others: Mapping[str, Trained] | None = None,
) -> None:
    """Write all that the next step depends on.

    Random streams follow from seed and step, so they are not stored.

    Others have a folder each, by name, that is a checkpoint of its own.
    """
    policy.save(folder)
    learner.save(folder)
    (folder / STATE).write_text(json.dumps(state | {"optimizer_steps": learner.num_steps}))
    for name, other in (others or {}).items():
        own = folder / OTHERS / name
        own.mkdir(parents=True)
        save_training(own, other.policy, other.learner, {})


def load_training(
    folder: Path, policy: Policy, learner: Learner, others: Mapping[str, Trained] | None = None
) -> dict[str, Json]:
    """Take back weights, optimiser and state, in place."""
    load_trained_weights(policy.model, folder)
    try:
        state: dict[str, Json] = json.loads((folder / STATE).read_text())
        learner.load(folder, int(str(state["optimizer_steps"])))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"checkpoint {folder} cannot be read ({error}); delete it to use the one before"
        ) from error
    for name, other in (others or {}).items():
        load_training(folder / OTHERS / name, other.policy, other.learner)
    return state
