"""On-policy distillation: on its own answers the policy moves towards a teacher, per token.

The loss is the reverse KL, KL(policy ‖ teacher), estimated from the sampled tokens. Each token
answers for its own distribution; that an earlier token led here is not counted against it. No
reward takes part.
"""

from torch import Tensor

from whet.algos import losses
from whet.algos.catalog import Objective
from whet.algos.losses import TokenTerms, sampling_logprobs


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
