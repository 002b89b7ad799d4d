"""A teacher: a second model that reads what the policy writes, and never moves."""

import torch

from whet.errors import ConfigError
from whet.models.source import ModelSource, open_model
from whet.train.policy import Policy
from whet.train.reference import Reference


def open_teacher(
    source: ModelSource, policy: Policy, *, dtype: torch.dtype, offload: bool = False
) -> Reference:
    """Load a teacher, and see that it can read all that the policy writes."""
    teacher, tokenizer = open_model(source, dtype=dtype, texts=[], seed=0)
    if tokenizer.vocabulary != policy.tokenizer.vocabulary:
        raise ConfigError(
            f"teacher.path = {source.path!r} has another tokenizer than the model, so that it cannot read its tokens; "
            "take a teacher of the same family"
        )
    longest = teacher.cfg.max_positions
    if longest < policy.engine.context:
        raise ConfigError(
            f"teacher.path = {source.path!r} reads {longest} tokens, fewer than the {policy.engine.context} of the "
            f"policy; set engine.context to {longest} at most"
        )
    teacher.requires_grad_(False)
    return Reference(teacher, far=[*teacher.parameters()] if offload else ())
