"""On-policy distillation: on answers of its own, the policy moves towards a teacher, token by
token.

The loss is the reverse KL, KL(policy ‖ teacher), estimated from the sampled tokens. Each token
answers for its own distribution; that an earlier token led here is not counted against it. No
reward takes part.
"""

from torch import Tensor

from whet.algos import losses
from whet.algos.catalog import Objective
from whet.algos.terms import TokenTerms


def teacher_advantage(logprob_M: Tensor, teacher_M: Tensor) -> Tensor:
    """What a sampled token is worth: how much more likely the teacher finds it than the policy.

    >>> import torch
    >>> teacher_advantage(torch.tensor([0.5]).log(), torch.tensor([0.25]).log()).item()
    -0.6931471824645996
    """
    return (teacher_M - logprob_M).detach()


def reverse_kl(terms: TokenTerms) -> Tensor:
    """The KL to the teacher with the KL's own gradient: ratio × k3 (DeepSeek-V3.2), never negative
    as a value.

    For tokens the present weights sampled, the gradient is that of REINFORCE with the teacher's
    advantage,
    -(log teacher - log policy) × ∇log policy: exact in expectation, and not that of k3 differentiated as it stands.
    """
    assert terms.reference_M is not None, "distillation needs a teacher"
    return losses.exact_kl(terms.logprob_M, terms.reference_M, losses.token_ratio(terms), "k3")


def distill_objective() -> Objective:
    """The reverse KL, and what to log of it; the teacher's log-probabilities stand as the
    reference's."""

    def loss(terms: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        assert terms.reference_M is not None, "distillation needs a teacher"
        return reverse_kl(terms), {
            "distill/kl": losses.kl(terms.logprob_M, terms.reference_M, "k3"),
            "distill/advantage": teacher_advantage(terms.logprob_M, terms.reference_M),
            "policy/entropy": terms.entropy_M,
            "policy/engine_gap": (terms.logprob_M - terms.behaviour_M).abs(),
        }

    return Objective(loss=loss)
