"""What a checkpoint holds: the model as a Hugging Face folder, the optimiser, and the position of everything else."""

import json
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from whet.errors import DataError
from whet.models.load import load_weights
from whet.train.learner import Learner
from whet.train.policy import Policy
from whet.types import Json

OPTIMIZER, STATE = "optimizer.safetensors", "state.json"


def save_training(folder: Path, policy: Policy, learner: Learner, state: dict[str, Json]) -> None:
    """Write all that the next step depends on. Random streams follow from seed and step, so they need no place here."""
    policy.save(folder)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in learner.optimizer.tensors().items()}
    save_file(tensors, folder / OPTIMIZER)
    (folder / STATE).write_text(json.dumps(state | {"optimizer_steps": learner.num_steps}))


def load_training(folder: Path, policy: Policy, learner: Learner) -> dict[str, Json]:
    """Take back weights, optimiser and state, in place."""
    load_weights(policy.model, folder)
    try:
        learner.optimizer.load(load_file(folder / OPTIMIZER).items())
        state: dict[str, Json] = json.loads((folder / STATE).read_text())
        learner.num_steps = int(str(state["optimizer_steps"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"checkpoint {folder} cannot be read ({error}); delete it to use the one before") from error
    return state
