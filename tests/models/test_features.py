"""A family of tomorrow: a feature that no kernel knows is computed alike by engine and learner."""

from dataclasses import asdict, dataclass

import numpy as np
import pytest
import torch
from torch import Tensor

from whet.batching.examples import Example, to_batch
from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig, NativeEngine
from whet.kernels.lm_head import token_logprobs, torch_token_logprobs
from whet.models.config import ModelConfig
from whet.models.transformer import PackedAttention, Transformer
from whet.testing.rounding import logprob_bound
from whet.testing.tiny import tiny_model
from whet.train.learner import compute_logprobs_locally, forward_logprobs
from whet.types import Tokens

CAP = 2.0
PROMPT = np.array([4, 8, 15, 16], dtype=np.int32)


@dataclass(frozen=True, slots=True, kw_only=True)
class CappedConfig(ModelConfig):
    """Final logits are bent so that none is above the cap. No real model names the field so."""

    toy_cap: float | None = None


class CappedTransformer(Transformer):
    def logits(self, hidden_TH: Tensor) -> Tensor:
        return CAP * torch.tanh(super().logits(hidden_TH) / CAP)


def capped_model() -> CappedTransformer:
    plain = tiny_model()
    model = CappedTransformer(CappedConfig(**asdict(plain.cfg) | {"toy_cap": CAP}))
    model.load_state_dict(plain.state_dict())
    return model


def example(tokens: Tokens) -> Example:
    joined = np.concatenate([PROMPT, tokens])
    return Example(
        tokens=joined, response_start=len(PROMPT), group_id="g", rollout_id="r", temperature=0.7
    )


def test_a_feature_of_the_logits_reaches_engine_and_learner() -> None:
    model = capped_model()
    engine = NativeEngine(model, NativeConfig(max_num_seqs=8), stop_tokens=frozenset({3}))
    sampling = SamplingParams(max_tokens=20, temperature=0.7)
    requests = [Request(id=str(n), prompt=PROMPT, sampling=sampling, seed=n) for n in range(8)]

    completions = [completion for _, completion in engine.generate(requests)]

    logprobs = compute_logprobs_locally(model, [example(item.tokens) for item in completions], 4096)
    plain = compute_logprobs_locally(
        tiny_model(), [example(item.tokens) for item in completions], 4096
    )
    bound = logprob_bound(model)
    for item, capped, uncapped in zip(completions, logprobs, plain, strict=True):
        np.testing.assert_allclose(item.logprobs, capped, rtol=0, atol=bound)
        assert np.abs(item.logprobs - uncapped).max() > 0.1


def test_the_learner_scores_by_the_logits_of_the_model() -> None:
    model = capped_model()
    batch = to_batch([example(np.array([23, 42, 7], dtype=np.int32))], torch.device("cpu"))

    logprob_M, entropy_M = forward_logprobs(model, batch, entropy_gradient=True)
    (logprob_M.sum() + entropy_M.sum()).backward()
    found = [weight.grad.clone() for weight in model.parameters() if weight.grad is not None]
    model.zero_grad()

    attend = PackedAttention(batch.lengths_S)
    hidden_TH = model(batch.tokens_T, batch.positions_T, attend)[batch.predictor_M]
    logits_MV = CAP * torch.tanh(hidden_TH @ model.head_weight_VH.T / CAP) / 0.7
    logprobs_MV = torch.log_softmax(logits_MV, -1)
    expected_M = logprobs_MV.gather(1, batch.label_M[:, None])[:, 0]
    torch.testing.assert_close(logprob_M, expected_M)
    torch.testing.assert_close(entropy_M, -(logprobs_MV.exp() * logprobs_MV).sum(-1))
    (expected_M.sum() - (logprobs_MV.exp() * logprobs_MV).sum()).backward()
    expected = [weight.grad for weight in model.parameters() if weight.grad is not None]
    torch.testing.assert_close(found, expected, rtol=1e-3, atol=1e-4)


def test_the_kernels_are_passed_over_for_an_unknown_feature_and_no_other() -> None:
    capped, plain = capped_model(), tiny_model()

    assert capped.cfg.features - plain.cfg.features == {"toy_cap"}
    assert plain.has_kernels and plain.layers[0].options.has_kernels
    assert not capped.has_kernels and not capped.layers[0].options.has_kernels


@pytest.mark.parametrize("rows", [0, 1, 5])
def test_scores_by_logits_are_those_of_the_kernels(rows: int) -> None:
    model = tiny_model()
    hidden_MH = torch.randn(rows, 64, generator=torch.Generator().manual_seed(0))
    label_M = torch.arange(rows) * 7
    given = label_M, torch.full((rows,), 0.7)

    found = torch_token_logprobs(model.logits, hidden_MH, *given, vocab=50)

    expected = token_logprobs(hidden_MH, model.head_weight_VH, *given, entropy=True)
    torch.testing.assert_close(found, expected)
