"""Proof of the KL penalty: its gradient, as an algorithm applies it, against the KL itself.

Shapes: V tokens of a toy vocabulary, M answers of one token each.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from whet.algos import catalog, losses
from whet.algos.losses import KlEstimator, TokenTerms
from whet.algos.rows import KlPlace
from whet.proofs import specimen
from whet.proofs.base import Measure
from whet.train import credit
from whet.types import Group

LOGITS = (0.3, -1.1, 0.8, 0.0, -0.4)
REFERENCE = (-0.5, 0.4, 0.2, -0.9, 0.6)
BETA = 0.3
ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3")
PLACES: tuple[KlPlace, ...] = ("loss", "reward")
LIMIT = 1e-5


def kl() -> Measure:
    """Expectations are sums over the vocabulary, so nothing is left to chance."""
    theta_V = torch.tensor(LOGITS, dtype=torch.float64, requires_grad=True)
    reference_V = torch.tensor(REFERENCE, dtype=torch.float64).log_softmax(0)
    logprob_V = theta_V.log_softmax(0)
    exact = (logprob_V.exp() * (logprob_V - reference_V)).sum()
    forward = (reference_V.exp() * (reference_V - logprob_V)).sum()
    slope_V = _gradient(exact, theta_V)
    forward_V = _gradient(forward, theta_V)
    gaps = {}
    for name in ESTIMATORS:
        mean = (logprob_V.exp() * losses.kl(logprob_V, reference_V, name)).sum()
        # k2 is made for its gradient, and biased as a value.
        gaps[f"value of {name}"] = 0.0 if name == "k2" else abs(float((mean / exact).detach()) - 1)
        meant = {"k1": torch.zeros_like(slope_V), "k2": slope_V, "k3": forward_V}[name]
        direct = catalog.AlgoConfig(
            name="rloo", kl=BETA, kl_in="loss", kl_estimator=name, kl_gradient="direct"
        )
        gradient = _in_loss(direct, theta_V, reference_V)
        gaps[f"direct gradient of {name}"] = float(
            (gradient - BETA * meant).norm() / (BETA * slope_V).norm()
        )
        own = _in_loss(direct.model_copy(update={"kl_gradient": "exact"}), theta_V, reference_V)
        gaps[f"gradient of {name}"] = float((own - BETA * slope_V).norm() / (BETA * slope_V).norm())
    shares = []
    for place in PLACES:
        gradient = _of_algorithm(place, theta_V, reference_V) / BETA
        gaps[f"whole penalty in the {place}"] = float((gradient - slope_V).norm() / slope_V.norm())
        shares.append(f"{float(gradient @ slope_V / (slope_V @ slope_V)):.4f} times in the {place}")
    worst = max(gaps, key=lambda name: gaps[name])
    text = f"the KL's gradient counts {' and '.join(shares)}; {worst} is off by {gaps[worst]:.1e}"
    return Measure(gap=gaps[worst], limit=LIMIT, text=text)


def _gradient(value: Tensor, theta_V: Tensor) -> Tensor:
    return torch.autograd.grad(value, theta_V, retain_graph=True)[0]


def _in_loss(cfg: catalog.AlgoConfig, theta_V: Tensor, reference_V: Tensor) -> Tensor:
    """The expected gradient of an objective whose tokens have no advantage: that of its penalty."""
    logprob_V = theta_V.log_softmax(0)
    loss_V, _ = catalog.policy_objective(cfg).loss(
        _terms(logprob_V, torch.zeros_like(logprob_V), reference_V)
    )
    return _gradient((logprob_V.exp().detach() * loss_V).sum(), theta_V)


def _of_algorithm(place: KlPlace, theta_V: Tensor, reference_V: Tensor) -> Tensor:
    """The expected gradient of RLOO with a KL and no reward, over all pairs of answers."""
    cfg = catalog.AlgoConfig(name="rloo", kl=BETA, kl_in=place)
    algo = catalog.build(cfg, max_tokens=1)
    logprob_V = theta_V.log_softmax(0)
    groups = _pairs(logprob_V.detach().tolist())
    selection = credit.select(groups, algo)
    examples = credit.flatten(selection, temperature=1.0)
    tokens = [int(example.tokens[-1]) for example in examples]
    references = [np.array([float(reference_V[token])], dtype=np.float32) for token in tokens]
    examples = [
        replace(item, ref_logprob=known) for item, known in zip(examples, references, strict=True)
    ]
    examples, _ = credit.credit(selection, examples, algo, {})
    shares = credit.weigh(examples[:2], algo.weights)
    advantage_M = torch.tensor(np.array([np.float64(example.advantage) for example in examples]))
    loss_M, _ = algo.objective.loss(_terms(logprob_V[tokens], advantage_M, reference_V[tokens]))
    chance_M = logprob_V.detach()[tokens].view(-1, 2).sum(1).exp().repeat_interleave(2)
    return _gradient((chance_M * shares[0].weight * loss_M).sum(), theta_V)


def _pairs(logprobs: Sequence[float]) -> list[Group]:
    made = []
    for first in range(len(logprobs)):
        for second in range(len(logprobs)):
            asked = specimen.problem(f"{first} {second}")
            made.append(
                tuple(
                    specimen.rollout(asked, number, [token], [logprobs[token]], 0.0)
                    for number, token in enumerate((first, second))
                )
            )
    return made


def _terms(logprob_M: Tensor, advantage_M: Tensor, ref_logprob_M: Tensor) -> TokenTerms:
    return TokenTerms(
        logprob_M=logprob_M,
        entropy_M=torch.zeros_like(logprob_M),
        advantage_M=advantage_M,
        sampling_logprob=logprob_M.detach(),
        old_logprob=None,
        ref_logprob=ref_logprob_M,
        segment_M=torch.arange(len(logprob_M)),
    )
