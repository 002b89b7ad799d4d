"""What a pipeline needs that is not here, found before its first stage: weights, data files,
memory."""

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from whet.config import to_table
from whet.errors import DataError
from whet.pipeline.stages import Stage
from whet.plan.memory import CARDS, GB
from whet.plan.resources import device_bytes, hindrance, num_parameters
from whet.store.run import model_folder
from whet.tables import flat
from whet.toml import Table
from whet.train.policy import torch_device

ROLES = (
    ("model", "train", "algo"),
    ("verifier", "verifier_train", "verifier_algo"),
    ("teacher", "", ""),
)
"""The models of a stage, with the tables that say whether and how each is trained."""
CARD = "h100"
"""The card in which missing memory is told."""


def check_needs(stages: Mapping[str, Stage]) -> None:
    """Stop with one sentence that names all that is missing, and what it would take."""
    tables = {name: flat(to_table(stage)) for name, stage in stages.items()}
    missing = [*_files(tables), *_models(tables), *_memory(tables)]
    if missing:
        raise DataError(
            f"this cannot run here: {'; '.join(missing)}; --smoke runs the same stages on stand-ins"
        )


def _files(stages: Mapping[str, Table]) -> Iterator[str]:
    places = {place: f"{key} = {place!r}" for key, place in _places(stages, ("problems", "data"))}
    for place, setting in places.items():
        if not Path(place).exists():
            yield f"{setting} is not there"


def _models(stages: Mapping[str, Table]) -> Iterator[str]:
    places = {
        place: f"{key} = {place!r}"
        for key, place in _places(stages, [f"{role}.path" for role, _, _ in ROLES])
    }
    for place, setting in places.items():
        if reason := hindrance(str(model_folder(place))):
            yield f"{setting} {reason}"


def _memory(stages: Mapping[str, Table]) -> Iterator[str]:
    """Name the stage that takes most, where that is more than there is; activations and caches are
    not counted."""
    width = 4 if torch_device().type == "cpu" else 2
    have = device_bytes()
    needs = {name: _bytes(stages, name, width) for name in stages}
    name = max(needs, key=lambda name: needs[name])
    if needs[name] > have:
        cards = math.ceil(needs[name] / CARDS[CARD].memory)
        yield (
            f"stages.{name} holds about {needs[name] / GB:,.0f} GB of weights, gradients and optimiser "
            f"({cards} × {CARD.upper()} at least), and the one device that whet uses here has {have / GB:,.0f} GB"
        )


def _bytes(stages: Mapping[str, Table], name: str, width: int) -> float:
    """Count what a stage holds of its models; one of unknown size counts nothing, gradients are of
    one at a time."""
    values = stages[name]
    kept = 0.0
    gradients = 0.0
    for role, train, algo in ROLES:
        origin = _origin(stages, values.get(f"{role}.path"))
        count = num_parameters(str(model_folder(origin))) or 0.0 if origin else 0.0
        is_trained = f"{train}.offload" in values and f"{role}.lora.rank" not in values
        has_reference = is_trained and float(str(values.get(f"{algo}.kl", 0.0))) > 0
        has_critic = role == "model" and values.get(f"{algo}.name") == "ppo"
        is_far = (
            width < 4 and values.get(f"{train}.offload") is True
        )  # a CPU has no other memory to keep it in
        optimiser = (12 if width < 4 else 8) if is_trained and not is_far else 0
        kept += count * ((width + optimiser) * (1 + has_critic) + width * has_reference)
        gradients = max(gradients, 4 * count * is_trained)
    return kept + gradients


def _origin(stages: Mapping[str, Table], path: object) -> str | None:
    """Follow a model through the stages that it comes from, to its name."""
    if not isinstance(path, str):
        return None
    return (
        _origin(stages, stages[path[1:]].get("model.path"))
        if path[1:] in stages and path[0] == "@"
        else path
    )


def _places(stages: Mapping[str, Table], keys: Sequence[str]) -> Iterator[tuple[str, str]]:
    """List the settings that take something from outside."""
    for name, values in stages.items():
        for key in keys:
            place = values.get(key)
            if isinstance(place, str) and not place.startswith("@"):
                yield f"stages.{name}.{key}", place
