"""Learner factories build learners, critics and frozen models, on one device or on ranks."""

import sys
from abc import ABC, abstractmethod
from collections.abc import Sequence

from torch import nn

from whet.errors import ConfigError
from whet.models.lora import copy_trainable
from whet.models.transformer import Transformer
from whet.train.learner import FrozenModel, Learner, LocalLearner, LogprobModel
from whet.train.memory import DeviceMemory
from whet.train.served_model import SERVED_SECONDS, ServedModel
from whet.train.settings import TrainConfig
from whet.train.value_model import ValueModel
from whet.user_code import check_complete, load_from_file
from whet.world import get_world


class LearnerFactory(ABC):
    """Builds the learners and frozen models of a model, and so decides on their devices.

    Every learner, critic, reference and teacher of a run comes from the factory of its policy.
    """

    @abstractmethod
    def build_learner(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None,
    ) -> Learner:
        """Make a learner that trains `model`, with a schedule of `steps` updates.

        Updates may free the caches of engines that share `memory`.
        """

    def build_value_learner(
        self, policy: Transformer, cfg: TrainConfig, *, steps: int, memory: DeviceMemory | None
    ) -> Learner:
        """Make a learner of a critic that starts from a copy of the policy's weights."""
        return self.build_learner(ValueModel(policy), cfg, steps=steps, memory=memory)

    @abstractmethod
    def build_frozen_model(
        self, model: Transformer, cfg: TrainConfig, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> LogprobModel:
        """Wrap a frozen model; weights in `offloaded` are in host memory between passes."""


class LocalLearnerFactory(LearnerFactory):
    """Runs each model on the device where it is."""

    def build_learner(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None,
    ) -> Learner:
        return LocalLearner(model, cfg, steps=steps, memory=memory)

    def build_frozen_model(
        self, model: Transformer, cfg: TrainConfig, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> LogprobModel:
        return FrozenModel(model, cfg.micro_batch_tokens, offloaded=offloaded)


class FSDPLearnerFactory(LearnerFactory):
    """Runs each model over all ranks, in shards (`whet/train/fsdp_learner.py`)."""

    def build_learner(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None,
    ) -> Learner:
        # A single process does not need torch.distributed.
        from whet.train.fsdp_learner import FSDPLearner  # noqa: PLC0415

        return FSDPLearner(model, cfg, steps=steps, memory=memory)

    def build_value_learner(
        self, policy: Transformer, cfg: TrainConfig, *, steps: int, memory: DeviceMemory | None
    ) -> Learner:
        from whet.train.shards import needs_shards, rank_world  # noqa: PLC0415

        # Shards are copies already.
        critic = ValueModel(policy, is_shared=needs_shards(policy, rank_world()))
        return self.build_learner(critic, cfg, steps=steps, memory=memory)

    def build_frozen_model(
        self, model: Transformer, cfg: TrainConfig, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> LogprobModel:
        from whet.train.fsdp_learner import FrozenShardedModel  # noqa: PLC0415

        return FrozenShardedModel(model, cfg, offloaded=offloaded)


LOCAL_FACTORY = LocalLearnerFactory()


LEARNER_FACTORIES: dict[str, LearnerFactory] = {
    "local": LOCAL_FACTORY,
    "fsdp": FSDPLearnerFactory(),
}
"""Learner factories by the name in `TrainConfig.learner`: the only list of them."""


def choose_learner_factory(cfg: TrainConfig) -> LearnerFactory:
    """Return the factory of all learners and frozen models of a policy.

    Another kind is one more entry of `LEARNER_FACTORIES`, or the user's own class; see
    docs/add_a_learner.md.
    """
    name = cfg.learner
    if name == "auto":
        name = "local" if get_world().size == 1 else "fsdp"
    if name in LEARNER_FACTORIES:
        return LEARNER_FACTORIES[name]
    if ":" not in name:
        known = ", ".join(LEARNER_FACTORIES)
        raise ConfigError(
            f'train.learner = "{name}" should be one of auto, {known}, or my_learner.py:Factory'
        )
    return _load_factory(name)


def _load_factory(code_path: str) -> LearnerFactory:
    """Make the user's own factory; name methods that it or the learners in its file lack."""
    label = f'train.learner = "{code_path}"'
    factory = load_from_file(code_path, "train.learner")
    if not isinstance(factory, type) or LearnerFactory not in factory.__mro__:
        raise ConfigError(
            f"{label} should name a class that inherits from LearnerFactory (docs/add_a_learner.md)"
        )
    check_complete(factory, label, LearnerFactory)
    for value in vars(sys.modules[factory.__module__]).values():
        is_model = isinstance(value, type) and issubclass(value, LogprobModel)
        if is_model and not value.__subclasses__():
            check_complete(value, f"{label}: {value.__name__}", Learner)
    made: LearnerFactory = factory()
    return made


def build_reference(
    model: Transformer, cfg: TrainConfig, learner_factory: LearnerFactory = LOCAL_FACTORY
) -> LogprobModel:
    """Copy the starting policy: trainable weights are copied and frozen, the others shared; or use
    a served one."""
    if cfg.reference_url is not None:
        return ServedModel(cfg.reference_url, setting="train.reference_url", wait=SERVED_SECONDS)
    copied = copy_trainable(model).requires_grad_(False)
    shared = {id(weight) for weight in model.parameters()}
    copies = [weight for weight in copied.parameters() if id(weight) not in shared]
    return learner_factory.build_frozen_model(
        copied, cfg, offloaded=copies if cfg.offload_reference else ()
    )
