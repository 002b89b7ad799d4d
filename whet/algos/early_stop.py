"""Early stop: what is left out once the policy has moved too far within a step.

Every statistic is the mean of something a token has, so that it adds up over micro-batches: the
largest ratio is above a limit when any token's is, and a quantile is when more than its share of
the tokens are.
"""

from typing import Literal

from pydantic import Field, model_validator
from torch import Tensor

from whet.algos.losses import step_kl
from whet.config import Config

ALLOWED = {
    ("micro_batch", "zero"),
    ("mini_batch", "zero"),
    ("mini_batch", "skip"),
    ("step", "stop"),
}


class EarlyStop(Config):
    """When to leave out an update, measured before its optimiser step."""

    limit: float | None = Field(default=None, gt=0.0)
    """Largest value of the statistic that is trained on; none is no early stop."""
    statistic: Literal["mean", "max", "quantile", "kl"] = "mean"
    """Of the ratio over the tokens in scope; kl is the KL from the start of the step, in nats a
    token."""
    quantile: float = Field(default=0.99, gt=0.0, lt=1.0)
    """For the statistic of that name: which one."""
    scope: Literal["micro_batch", "mini_batch", "step"] = "mini_batch"
    """What is left out: a micro-batch (which makes the result depend on the packing), the
    mini-batch, or it and the rest of the step. The statistic is over the micro-batch or else the
    mini-batch."""
    action: Literal["zero", "skip", "stop"] = "skip"
    """zero counts its loss as 0 and takes the optimiser step all the same, skip takes none, stop
    ends the step."""

    @model_validator(mode="after")
    def _fits(self) -> "EarlyStop":
        if (self.scope, self.action) not in ALLOWED:
            known = ", ".join(f"{scope} with {action}" for scope, action in sorted(ALLOWED))
            raise ValueError(
                f"scope = {self.scope} does not go with action = {self.action}; what does: {known}"
            )
        return self

    def without_effect(self) -> dict[str, str]:
        if self.limit is None:
            reason = "early_stop.limit is none"
            return dict.fromkeys(("statistic", "quantile", "scope", "action"), reason)
        return {} if self.statistic == "quantile" else {"quantile": 'it is for "quantile"'}


def watched(ratio_M: Tensor, cfg: EarlyStop) -> Tensor:
    """What the statistic is the mean of."""
    if cfg.statistic == "mean":
        return ratio_M.detach()
    if cfg.statistic == "kl":
        return step_kl(ratio_M.detach())
    assert cfg.limit is not None
    return (ratio_M.detach() > cfg.limit).float()


def is_too_far(mean: Tensor | float, cfg: EarlyStop) -> bool:
    """Whether the mean of what is watched is beyond the limit; one that is not a number is."""
    assert cfg.limit is not None
    bounds = {"mean": cfg.limit, "kl": cfg.limit, "max": 0.0, "quantile": 1 - cfg.quantile}
    return not bool(mean <= bounds[cfg.statistic])
