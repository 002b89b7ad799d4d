"""What a pipeline needs that is not here, looked for before its first stage: weights, data files,
memory."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

from whet.algos.catalog import AlgoConfig, resolve
from whet.errors import DataError
from whet.models.source import ModelSource, torch_device
from whet.plan.memory import CARDS, GB, state_bytes
from whet.plan.resources import device_bytes, hindrance, num_parameters
from whet.recipes.distill import DistillConfig
from whet.recipes.rl import RLConfig
from whet.recipes.tango import TangoConfig
from whet.recipes.training import ModelStageConfig, StageConfig, TrainingConfig
from whet.store.run import model_folder
from whet.train.optim import TrainConfig

CARD = "h100"
"""The card in which missing memory is counted."""
Stages = Mapping[str, StageConfig]


def check_needs(stages: Stages) -> None:
    """Stop with one sentence that names all that is missing, and what it would take."""
    missing = [*_missing_inputs(stages), *_missing_memory(stages)]
    if missing:
        raise DataError(
            f"this cannot run here: {'; '.join(missing)}; --smoke runs the same stages on stand-ins"
        )


def _missing_inputs(stages: Stages) -> Iterator[str]:
    """Name each file and model that is not there once, files first."""
    files: dict[str, str] = {}
    models: dict[str, str] = {}
    for name, stage in stages.items():
        for key, location in stage.inputs.items():
            if not location.startswith("@"):
                kind = models if key.endswith(".path") else files
                kind[location] = f"stages.{name}.{key} = {location!r}"
    for location, setting in files.items():
        if not Path(location).exists():
            yield f"{setting} is not there"
    for location, setting in models.items():
        if reason := hindrance(str(model_folder(location))):
            yield f"{setting} {reason}"


def _missing_memory(stages: Stages) -> Iterator[str]:
    """Name the stage that takes most, where that is more than there is; activations and caches are
    not counted."""
    width = 4 if torch_device().type == "cpu" else 2
    have = device_bytes()
    needs = {name: _bytes(stages, stage, width) for name, stage in stages.items()}
    name = max(needs, key=lambda name: needs[name])
    if needs[name] > have:
        cards = math.ceil(needs[name] / CARDS[CARD].memory)
        yield (
            f"stages.{name} holds about {needs[name] / GB:,.0f} GB of weights, gradients and "
            f"optimiser ({cards} × {CARD.upper()} at least), and the one device that whet uses "
            f"here has {have / GB:,.0f} GB"
        )


def _bytes(stages: Stages, stage: StageConfig, width: int) -> float:
    """Count what a stage holds of its models; one of unknown size counts nothing, gradients are of
    one at a time."""
    total = 0.0
    gradients = 0.0
    for source, train, algo in _models(stage):
        origin = _origin(stages, source.path)
        count = num_parameters(str(model_folder(origin))) or 0.0 if origin else 0.0
        is_trained = train is not None and source.lora is None
        has_reference = is_trained and algo is not None and algo.kl > 0
        has_critic = algo is not None and resolve(algo).advantage == "gae"
        # A CPU has no other memory to offload to.
        is_offloaded = width < 4 and train is not None and train.offload
        trained = count if is_trained and not is_offloaded else 0.0
        held = state_bytes(count, width, trained=trained, reference=has_reference)
        critic = held["weights"] + held["optimiser"] if has_critic else 0.0
        total += sum(held.values()) + critic
        gradients = max(gradients, 4 * count * is_trained)
    return total + gradients


def _models(
    stage: StageConfig,
) -> Iterator[tuple[ModelSource, TrainConfig | None, AlgoConfig | None]]:
    """List the models of a stage, with how each is trained and by which algorithm, if it is."""
    if isinstance(stage, TrainingConfig):
        algo = stage.algo if isinstance(stage, RLConfig | TangoConfig) else None
        yield stage.model, stage.train, algo
    elif isinstance(stage, ModelStageConfig):
        yield stage.model, None, None
    if isinstance(stage, TangoConfig):
        yield stage.verifier, stage.verifier_train, stage.verifier_algo
    if isinstance(stage, DistillConfig):
        yield stage.teacher, None, None


def _origin(stages: Stages, path: str | None) -> str | None:
    """Follow a model through the stages that it comes from, to its name."""
    while path is not None and path.startswith("@"):
        earlier = stages.get(path[1:])
        path = earlier.model.path if isinstance(earlier, ModelStageConfig) else None
    return path
