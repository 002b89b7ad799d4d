"""Objectives beside those of RL: distillation from a teacher, and preferences between two answers.

On-policy distillation moves the policy towards a teacher on its own answers, per token. Its loss is
the reverse KL, KL(policy ‖ teacher), estimated from the sampled tokens. Each token answers for its
own distribution; that an earlier token led here is not counted against it. No reward takes part.

Preference losses make the better of two answers more likely, relative to a reference.

Shapes: M response tokens of S sequences, which make P pairs. Every loss of pairs is to be minimised
and has shape [P].
"""

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor
from torch.nn.functional import logsigmoid

from whet.algos import losses
from whet.algos.catalog import Objective
from whet.algos.losses import TokenTerms, sampling_logprobs
from whet.config import Config


def teacher_advantage(logprob_M: Tensor, teacher_M: Tensor) -> Tensor:
    """What a sampled token is worth: how much more likely the teacher finds it than the policy.

    >>> import torch
    >>> teacher_advantage(torch.tensor([0.5]).log(), torch.tensor([0.25]).log()).item()
    -0.6931471824645996
    """
    return (teacher_M - logprob_M).detach()


def reverse_kl(terms: TokenTerms) -> Tensor:
    """The KL to the teacher with its own gradient, ratio × k3 (DeepSeek-V3.2); never negative.

    For tokens the present weights sampled, the gradient is that of REINFORCE with the teacher's
    advantage, -(log teacher - log policy) × ∇log policy: exact in expectation, and not that of k3
    differentiated as it stands.
    """
    assert terms.ref_logprob is not None, "distillation needs a teacher"
    return losses.exact_kl(terms.logprob_M, terms.ref_logprob, losses.token_ratio(terms), "k3")


def distill_objective() -> Objective:
    """Build the reverse KL; the teacher's log-probabilities take the reference's place."""

    def loss(terms: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        assert terms.ref_logprob is not None, "distillation needs a teacher"
        return reverse_kl(terms), {
            "distill/kl": losses.kl(terms.logprob_M, terms.ref_logprob, "k3"),
            "distill/advantage": teacher_advantage(terms.logprob_M, terms.ref_logprob),
            "policy/entropy": terms.entropy_M,
            "policy/engine_gap": (terms.logprob_M - sampling_logprobs(terms)).abs(),
        }

    return Objective(loss=loss)


class PreferenceConfig(Config):
    """How a pair of answers becomes a gradient."""

    name: Literal["dpo", "ipo"] = "dpo"
    beta: float = Field(default=0.1, gt=0.0)
    """How strongly the policy is held to the reference: β of DPO, τ of IPO. Smaller lets it go
    further."""
    smoothing: float = Field(default=0.0, ge=0.0, lt=0.5)
    """For dpo: the share of pairs taken to be the wrong way round (conservative DPO)."""
    per_token: bool = False
    """Divide the log-ratio of an answer by its length, so that long answers do not weigh more."""

    @model_validator(mode="after")
    def _fits(self) -> "PreferenceConfig":
        if self.name == "ipo" and self.smoothing:
            raise ValueError(
                f'smoothing = {self.smoothing} is for name = "dpo"; ipo has no such term'
            )
        return self


def log_ratio(policy_P: Tensor, reference_P: Tensor) -> Tensor:
    """The log-probability of an answer less that under the reference."""
    return policy_P - reference_P


def dpo(chosen_P: Tensor, rejected_P: Tensor, *, beta: float, smoothing: float = 0.0) -> Tensor:
    """Raise the chosen log-ratio above the rejected one (Rafailov et al. 2023, eq. 7).

    With smoothing ε a pair counts as the wrong way round with probability ε (Mitchell 2023,
    conservative DPO).

    >>> round(dpo(torch.tensor([2.0]), torch.tensor([-1.0]), beta=0.1).item(), 4)
    0.5544
    """
    logit_P = beta * (chosen_P - rejected_P)
    return -(1 - smoothing) * logsigmoid(logit_P) - smoothing * logsigmoid(-logit_P)


def ipo(chosen_P: Tensor, rejected_P: Tensor, *, beta: float) -> Tensor:
    """Bring the difference of the log-ratios to 1 / (2 β) (Azar et al. 2023, eq. 17).

    >>> ipo(torch.tensor([2.0]), torch.tensor([-1.0]), beta=0.1).item()
    4.0
    """
    return (chosen_P - rejected_P - 1 / (2 * beta)).square()


def preference_objective(cfg: PreferenceConfig) -> Objective:
    """Build the named loss over pairs; its metrics are β times the log-ratio, as in DPO."""

    def loss(terms: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        chosen_P, rejected_P = pair_log_ratios(terms, per_token=cfg.per_token)
        if cfg.name == "ipo":
            loss_P = ipo(chosen_P, rejected_P, beta=cfg.beta)
        else:
            loss_P = dpo(chosen_P, rejected_P, beta=cfg.beta, smoothing=cfg.smoothing)
        return loss_P, {
            "preference/accuracy": (chosen_P > rejected_P).float(),
            "preference/margin": cfg.beta * (chosen_P - rejected_P),
            "preference/chosen": cfg.beta * chosen_P,
            "preference/rejected": cfg.beta * rejected_P,
        }

    return Objective(loss=loss)


def pair_log_ratios(terms: TokenTerms, *, per_token: bool = False) -> tuple[Tensor, Tensor]:
    """Log-ratios of chosen and rejected answers, summed over tokens or averaged."""
    assert terms.chosen_P is not None and terms.rejected_P is not None, "preferences need pairs"
    assert terms.ref_logprob is not None, "preferences need a reference"
    ratio_S = log_ratio(
        _by_sequence(terms.logprob_M, terms), _by_sequence(terms.ref_logprob, terms)
    )
    if per_token:
        ratio_S = ratio_S / _by_sequence(torch.ones_like(terms.logprob_M), terms)
    return ratio_S[terms.chosen_P], ratio_S[terms.rejected_P]


def _by_sequence(value_M: Tensor, terms: TokenTerms) -> Tensor:
    """Add up each sequence's tokens; where answers are compared, all sequences are of pairs."""
    assert terms.chosen_P is not None
    return value_M.new_zeros(2 * len(terms.chosen_P)).index_add(0, terms.segment_M, value_M)
