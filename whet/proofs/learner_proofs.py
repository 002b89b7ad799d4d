"""Proofs of the learner (weights, targets, packing, splits, the first ratio, the KL) and of pass@k.

Shapes: V tokens of a toy vocabulary, M responses of one token each.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, product
from math import comb

import numpy as np
import torch
from torch import Tensor

from whet.algos import algorithm, losses
from whet.algos.losses import KlEstimator, LossInputs
from whet.algos.objectives import LogprobObjective, Objective, TokenLoss, policy_objective
from whet.algos.presets import PRESETS, KlPlace, LossWeightsName
from whet.algos.settings import AlgoConfig
from whet.batching.examples import Example, to_batch
from whet.evals import stats
from whet.models.transformer import Transformer
from whet.proofs import fixtures
from whet.proofs.base import Measurement, find_worst
from whet.rng import make_rng
from whet.train import learner as learner_module
from whet.train import rl_step
from whet.train.learner import LocalLearner, forward_logprobs
from whet.train.settings import TrainConfig
from whet.types import Author, Group, Rollout

LENGTHS = tuple(length - start for length, start in fixtures.SHAPES)
DIVISOR = 50
_MICRO_TOKENS = (40, 60, 85, 100, 10_000)
"""Micro-batch sizes: only the longest example, several examples, all at once."""


def measure_divisor() -> Measurement:
    """Compare the loss weights of each rule with their formulas."""
    total = sum(LENGTHS)
    count = len(LENGTHS)
    expected: dict[LossWeightsName, list[float]] = {
        "token_mean": [1 / total] * count,
        "sequence_mean": [1 / (count * length) for length in LENGTHS],
        "sequence_sum": [1 / count] * count,
        "constant": [1 / (count * DIVISOR)] * count,
    }
    gap_by_name: dict[str, float] = {}
    for name, wanted in expected.items():
        algo = algorithm.build_algorithm(AlgoConfig(loss_weights=name), max_tokens=DIVISOR)
        weighed = learner_module.set_loss_weights(
            fixtures.make_random_examples(), algo.loss_weights
        )
        gap_by_name[name] = max(
            abs(e.loss_weight / w - 1) for e, w in zip(weighed, wanted, strict=True)
        )
    worst, gap = find_worst(gap_by_name)
    text = f"weights of {len(gap_by_name)} rules over {total} tokens are off by {gap:.1e}"
    return Measurement(gap=gap, limit=1e-12, text=text + (f" ({worst})" if gap > 1e-12 else ""))


def measure_targets() -> Measurement:
    """Count the targets that a step misses or repeats, for several micro-batch sizes."""
    total = sum(LENGTHS)
    model = fixtures.make_model(dtype=torch.float32)
    examples = fixtures.make_random_examples()
    missed = 0
    for tokens in _MICRO_TOKENS:
        seen: list[int] = []

        def loss(inputs: LossInputs, seen: list[int] = seen) -> TokenLoss:
            seen.append(len(inputs.logprob_M))
            return TokenLoss(0.0 * inputs.logprob_M, {})

        learner = LocalLearner(model, TrainConfig(micro_batch_tokens=tokens), steps=1)
        learner.accumulate(examples, LogprobObjective(loss=loss))
        num_logprobs = sum(len(logprobs) for logprobs in learner.compute_logprobs(examples))
        missed = max(missed, abs(total - sum(seen)), abs(total - num_logprobs))
    sizes = f"micro-batches of {_MICRO_TOKENS[0]} to {_MICRO_TOKENS[-1]:,} tokens"
    text = f"{missed} of {total} targets are missed or seen twice, {sizes}"
    return Measurement(gap=missed, limit=0, text=text)


def measure_pass_at_k() -> Measurement:
    """Compare pass@k with enumeration, and its expectation with the true probability."""
    n = 6
    gaps = []
    for k in range(1, n + 1):
        for correct in range(n + 1):
            picks = [min(pick) < correct for pick in combinations(range(n), k)]
            gaps.append(abs(stats.pass_at_k(n, correct, k) - sum(picks) / len(picks)))
        for chance in (0.1, 0.5, 0.9):
            draws = [comb(n, c) * chance**c * (1 - chance) ** (n - c) for c in range(n + 1)]
            mean = sum(draw * stats.pass_at_k(n, c, k) for c, draw in enumerate(draws))
            gaps.append(abs(mean - (1 - (1 - chance) ** k)))
    text = f"off by {max(gaps):.1e} from enumeration, up to {n} responses"
    return Measurement(gap=max(gaps), limit=1e-9, text=text)


RELATIVE_LIMIT = 1e-5
"""Largest effect of the order of summation in float32, relative to the norm."""
FLOAT32_LIMIT = 1e-4
"""Largest gap between log-probabilities of two kinds of pass in float32, in nats."""
PENALISED = AlgoConfig(name="dapo", kl_coef=0.1, entropy_coef=0.01)
SEQUENCES = AlgoConfig(name="gspo")


@torch.no_grad()
def measure_packing() -> Measurement:
    """Compare log-probabilities of packed examples with those of single examples."""
    model = fixtures.make_model(dtype=torch.float32)
    examples = learner_module.set_loss_weights(
        fixtures.make_random_examples(), _algo(PENALISED).loss_weights
    )
    together, losses = _forward(model, examples)
    alone = [_forward(model, [example]) for example in examples]
    apart = float((together - torch.cat([logprob_M for logprob_M, _ in alone])).abs().max())
    total = float(sum(loss for _, loss in alone))
    gap = abs(losses / total - 1) if apart <= FLOAT32_LIMIT else apart
    text = f"loss {losses:.6f} packed and {total:.6f} one by one"
    distance = f"log-probabilities up to {apart:.1e} apart"
    return Measurement(gap=gap, limit=RELATIVE_LIMIT, text=f"{text}; {distance}")


def measure_splits() -> Measurement:
    """Compare the gradient of a step, split in many ways, with that of single examples."""
    gap_by_name = {}
    model = fixtures.make_model(dtype=torch.float32)
    for cfg in (PENALISED, SEQUENCES):
        algo = _algo(cfg)
        examples = learner_module.set_loss_weights(
            fixtures.make_random_examples(), algo.loss_weights
        )
        alone = [[example] for example in examples]
        expected = _gradient(model, alone, algo.objective, one_by_one=True)
        for name, parts, tokens in _list_splits(examples):
            gradients = _gradient(model, parts, algo.objective, tokens=tokens)
            gaps = [_distance(gradients[key], wanted) for key, wanted in expected.items()]
            gap_by_name[f"{cfg.name}, {name}"] = max(gaps, default=float("inf"))
    worst, gap = find_worst(gap_by_name)
    text = f"{len(gap_by_name)} ways to split it are up to {gap:.1e} off ({worst})"
    return Measurement(gap=gap, limit=RELATIVE_LIMIT, text=text)


def measure_ratio() -> Measurement:
    """Check that the first ratio of every algorithm is 1, where a clipped loss is -advantage."""
    policy = fixtures.make_policy()
    examples = fixtures.sample_examples(policy)
    learner = policy.build_learner(TrainConfig(micro_batch_tokens=100), steps=1)
    gap_by_name: dict[str, float] = {}
    names = [
        name
        for name, row in PRESETS.items()
        if row.step_rule is None and not algorithm.needs_critic(row)
    ]
    for name in names:
        algo = algorithm.build_algorithm(AlgoConfig(name=name), max_tokens=16)
        weighed = learner_module.set_loss_weights(examples, algo.loss_weights)
        metrics = learner.accumulate(weighed, algo.objective).means
        learner.zero_grad()
        gap_by_name[name] = abs(metrics["policy/ratio"] - 1) + metrics["policy/step_kl"]
        if PRESETS[name].surrogate == "clip":
            expected = -sum(
                e.loss_weight * e.num_targets * float(np.mean(e.advantage)) for e in weighed
            )
            gap_by_name[name] = max(gap_by_name[name], abs(metrics["loss"] - expected) - 1e-5)
    worst, gap = find_worst(gap_by_name)
    text = f"first ratio of {len(names)} algorithms is off by {max(gap, 0):.1e}"
    return Measurement(gap=gap, limit=0.0, text=text + (f" ({worst})" if gap > 0 else ""))


def _algo(cfg: AlgoConfig) -> algorithm.Algorithm:
    return algorithm.build_algorithm(cfg, max_tokens=16)


def _forward(model: Transformer, examples: list[Example]) -> tuple[Tensor, float]:
    batch = to_batch(examples, model.device)
    logprob_M, _ = forward_logprobs(model, batch)
    return logprob_M, float(-(logprob_M * batch.loss_weight_M).sum())


def _list_splits(examples: Sequence[Example]) -> Iterator[tuple[str, list[list[Example]], int]]:
    """Yield a name, the examples of each accumulation, and the tokens per micro-batch."""
    shuffled = list(examples)
    make_rng(0, "splits").shuffle(shuffled)
    for tokens in (40, 60, 100, 10_000):
        yield f"micro-batches of {tokens} tokens", [list(examples)], tokens
        yield f"shuffled, micro-batches of {tokens} tokens", [shuffled], tokens
    yield "backwards", [list(examples)[::-1]], 10_000
    yield "accumulated in two parts", [list(examples)[:3], list(examples)[3:]], 60
    pairs = [shuffled[at : at + 2] for at in range(0, len(shuffled), 2)]
    yield "accumulated in pairs", pairs, 10_000


def _distance(value: Tensor, wanted: Tensor) -> float:
    return float((value - wanted).norm() / wanted.norm())


def _gradient(
    model: Transformer,
    parts: Sequence[Sequence[Example]],
    objective: Objective,
    *,
    tokens: int = 10_000,
    one_by_one: bool = False,
) -> dict[str, Tensor]:
    learner = LocalLearner(model, TrainConfig(micro_batch_tokens=tokens), steps=1)
    model.zero_grad()
    for part in parts:
        if one_by_one:
            learner.forward_backward(to_batch(list(part), learner.device), objective)
        else:
            learner.accumulate(part, objective)
    gradients = {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }
    model.zero_grad()
    return gradients


_LOGITS = (0.3, -1.1, 0.8, 0.0, -0.4)
_REFERENCE = (-0.5, 0.4, 0.2, -0.9, 0.6)
BETA = 0.3
ESTIMATORS: tuple[KlEstimator, ...] = ("k1", "k2", "k3")
KL_PLACES: tuple[KlPlace, ...] = ("loss", "reward")


def measure_kl() -> Measurement:
    """Compare KL estimators with the exact KL; expectations are sums over a small vocabulary."""
    theta_V = torch.tensor(_LOGITS, dtype=torch.float64, requires_grad=True)
    reference_V = torch.tensor(_REFERENCE, dtype=torch.float64).log_softmax(0)
    logprob_V = theta_V.log_softmax(0)
    exact = (logprob_V.exp() * (logprob_V - reference_V)).sum()
    forward = (reference_V.exp() * (reference_V - logprob_V)).sum()
    exact_V = _kl_gradient(exact, theta_V)
    forward_V = _kl_gradient(forward, theta_V)
    gaps = {}
    for name in ESTIMATORS:
        mean = (logprob_V.exp() * losses.kl(logprob_V, reference_V, name)).sum()
        # k2 is meant for its gradient; its value is biased.
        gaps[f"value of {name}"] = 0.0 if name == "k2" else abs(float((mean / exact).detach()) - 1)
        expected_V = {"k1": torch.zeros_like(exact_V), "k2": exact_V, "k3": forward_V}[name]
        direct = AlgoConfig(
            name="rloo", kl_coef=BETA, kl_in="loss", kl_estimator=name, kl_gradient="direct"
        )
        gradient = _penalty_gradient(direct, theta_V, reference_V)
        difference = (gradient - BETA * expected_V).norm()  # for k1 the expected gradient is 0
        gaps[f"direct gradient of {name}"] = float(difference / (BETA * exact_V).norm())
        exact_cfg = direct.model_copy(update={"kl_gradient": "exact"})
        gradient = _penalty_gradient(exact_cfg, theta_V, reference_V)
        gaps[f"gradient of {name}"] = _distance(gradient, BETA * exact_V)
    factors = []
    for place in KL_PLACES:
        gradient = _rloo_gradient(place, theta_V, reference_V) / BETA
        gaps[f"whole penalty in the {place}"] = _distance(gradient, exact_V)
        factors.append(
            f"{float(gradient @ exact_V / (exact_V @ exact_V)):.4f} times in the {place}"
        )
    worst, gap = find_worst(gaps)
    text = f"the KL's gradient counts {' and '.join(factors)}; {worst} is off by {gap:.1e}"
    return Measurement(gap=gap, limit=RELATIVE_LIMIT, text=text)


def _kl_gradient(value: Tensor, theta_V: Tensor) -> Tensor:
    return torch.autograd.grad(value, theta_V, retain_graph=True)[0]


def _penalty_gradient(cfg: AlgoConfig, theta_V: Tensor, reference_V: Tensor) -> Tensor:
    """Return the expected gradient of the KL penalty, from an objective with zero advantages."""
    logprob_V = theta_V.log_softmax(0)
    inputs = _inputs(logprob_V, torch.zeros_like(logprob_V), reference_V)
    loss_V = policy_objective(cfg).loss(inputs).loss
    return _kl_gradient((logprob_V.exp().detach() * loss_V).sum(), theta_V)


def _rloo_gradient(place: KlPlace, theta_V: Tensor, reference_V: Tensor) -> Tensor:
    """Return the expected gradient of RLOO with a KL and reward 0, over all response pairs."""
    cfg = AlgoConfig(name="rloo", kl_coef=BETA, kl_in=place)
    algo = algorithm.build_algorithm(cfg, max_tokens=1)
    logprob_V = theta_V.log_softmax(0)
    groups = _make_pairs(logprob_V.detach().tolist())
    selection = rl_step.select_rollouts(groups, algo)
    examples = rl_step.to_examples(selection, temperature=1.0)
    tokens = [int(example.tokens[-1]) for example in examples]
    references = [np.array([float(reference_V[token])], dtype=np.float32) for token in tokens]
    examples = [
        replace(item, ref_logprob_M=known, old_logprob_M=item.sampling_logprob_M)
        for item, known in zip(examples, references, strict=True)
    ]
    examples, _ = rl_step.assign_advantages(selection, examples, algo, {})
    weighted = learner_module.set_loss_weights(examples[:2], algo.loss_weights)
    advantage_M = torch.tensor(np.array([np.float64(example.advantage) for example in examples]))
    inputs = _inputs(logprob_V[tokens], advantage_M, reference_V[tokens])
    loss_M = algo.objective.loss(inputs).loss
    chance_M = logprob_V.detach()[tokens].view(-1, 2).sum(1).exp().repeat_interleave(2)
    return _kl_gradient((chance_M * weighted[0].loss_weight * loss_M).sum(), theta_V)


def _make_pairs(logprobs: Sequence[float]) -> list[Group]:
    """Make a group of each pair of responses, with reward 0."""
    groups = []
    for pair in product(range(len(logprobs)), repeat=2):
        problem = fixtures.make_problem("{} {}".format(*pair))
        group = []
        for number, token in enumerate(pair):
            rollout = Rollout.from_text(
                problem, "", model="tiny", number=number, author=Author.SOLVER
            )
            completion = replace(
                rollout.completion,
                tokens=np.array([token], dtype=np.int32),
                logprobs=np.array([logprobs[token]], dtype=np.float32),
            )
            prompt = np.array([1], dtype=np.int32)
            group.append(replace(rollout, prompt_tokens=prompt, completion=completion, reward=0.0))
        groups.append(tuple(group))
    return groups


def _inputs(logprob_M: Tensor, advantage_M: Tensor, ref_logprob_M: Tensor) -> LossInputs:
    return LossInputs(
        logprob_M=logprob_M,
        entropy_M=torch.zeros_like(logprob_M),
        advantage_M=advantage_M,
        sampling_logprob_M=logprob_M.detach(),
        old_logprob_M=None,
        ref_logprob_M=ref_logprob_M,
        segment_M=torch.arange(len(logprob_M)),
    )
