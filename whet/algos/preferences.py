"""Preferences: the losses of pairs of responses (DPO, IPO) and their objective.

S sequences make P pairs, and a loss has shape [P].
"""

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import logsigmoid

from whet.algos.losses import LossInputs
from whet.algos.objectives import LogprobObjective, TokenLoss
from whet.config import Config


class PreferenceConfig(Config):
    """The loss of a pair of responses."""

    name: Literal["dpo", "ipo"] = "dpo"
    beta: float = Field(default=0.1, gt=0.0)
    """How strongly the policy is held to the reference: β of DPO, τ of IPO. A smaller value lets
    the policy move further."""
    smoothing: float = Field(default=0.0, ge=0.0, lt=0.5)
    """For dpo: the assumed fraction of pairs with swapped labels (conservative DPO)."""
    per_token: bool = False
    """Divide a response's log-ratio by its length, so that long responses do not count more."""

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> "PreferenceConfig":
        if self.name == "ipo" and self.smoothing:
            raise ValueError(
                f'smoothing = {self.smoothing} is for name = "dpo"; ipo has no such term'
            )
        return self


def preference_objective(cfg: PreferenceConfig) -> LogprobObjective:
    """Build the named loss over pairs; its metrics are β times log-ratios, as in DPO."""

    def loss(inputs: LossInputs) -> TokenLoss:
        chosen_P, rejected_P = pair_log_ratios(inputs, per_token=cfg.per_token)
        if cfg.name == "ipo":
            loss_P = ipo(chosen_P, rejected_P, beta=cfg.beta)
        else:
            loss_P = dpo(chosen_P, rejected_P, beta=cfg.beta, smoothing=cfg.smoothing)
        metrics = {
            "preference/accuracy": (chosen_P > rejected_P).float(),
            "preference/margin": cfg.beta * (chosen_P - rejected_P),
            "preference/chosen": cfg.beta * chosen_P,
            "preference/rejected": cfg.beta * rejected_P,
        }
        return TokenLoss(loss_P, metrics)

    return LogprobObjective(loss=loss)


def dpo(chosen_P: Tensor, rejected_P: Tensor, *, beta: float, smoothing: float = 0.0) -> Tensor:
    """Raise the chosen log-ratio above the rejected one (Rafailov et al. 2023, eq. 7).

    Smoothing is the probability that a pair's labels are swapped (Mitchell 2023, conservative DPO).

    >>> round(dpo(torch.tensor([2.0]), torch.tensor([-1.0]), beta=0.1).item(), 4)
    0.5544
    """
    logit_P = beta * (chosen_P - rejected_P)
    return -(1 - smoothing) * logsigmoid(logit_P) - smoothing * logsigmoid(-logit_P)


def ipo(chosen_P: Tensor, rejected_P: Tensor, *, beta: float) -> Tensor:
    """Pull the difference of the log-ratios to 1 / (2 β) (Azar et al. 2023, eq. 17).

    >>> ipo(torch.tensor([2.0]), torch.tensor([-1.0]), beta=0.1).item()
    4.0
    """
    return (chosen_P - rejected_P - 1 / (2 * beta)).square()


def pair_log_ratios(inputs: LossInputs, *, per_token: bool = False) -> tuple[Tensor, Tensor]:
    """Compute log-ratios to the reference, of both responses: sums over tokens, or means."""
    assert inputs.chosen_P is not None and inputs.rejected_P is not None, "preferences need pairs"
    assert inputs.ref_logprob_M is not None, "preferences need a reference"
    num_sequences = 2 * len(inputs.chosen_P)

    def by_sequence(value_M: Tensor) -> Tensor:
        return value_M.new_zeros(num_sequences).index_add(0, inputs.segment_M, value_M)

    ratio_S = by_sequence(inputs.logprob_M) - by_sequence(inputs.ref_logprob_M)
    if per_token:
        ratio_S = ratio_S / by_sequence(torch.ones_like(inputs.logprob_M))
    return ratio_S[inputs.chosen_P], ratio_S[inputs.rejected_P]
