"""The correction from engine to learner: factors worked by hand."""

import math
from dataclasses import replace

import pytest
import torch

from whet.algos.losses import ImportanceCorrectionConfig, LossInputs, importance_factors

# Learner over engine: 4, ½ in the first sequence; 1.5, 1 in the second.
FACTORS = [4.0, 0.5, 1.5, 1.0]


def _inputs(*, old: bool = True) -> LossInputs:
    engine = torch.tensor([-2.0, -1.0, -3.0, -0.5])
    learner = engine + torch.tensor([math.log(factor) for factor in FACTORS])
    zeros = torch.zeros(4)
    return LossInputs(
        logprob_M=(zeros - 9.0 if old else learner).requires_grad_(),
        entropy_M=zeros,
        advantage_M=zeros,
        sampling_logprob_M=engine,
        old_logprob_M=learner if old else None,
        ref_logprob_M=None,
        segment_M=torch.tensor([0, 0, 1, 1]),
    )


@pytest.mark.parametrize(
    ("cfg", "factors", "outside"),
    [
        (ImportanceCorrectionConfig(rule="truncate"), [2, 0.5, 1.5, 1], [1, 0, 0, 0]),
        (ImportanceCorrectionConfig(rule="truncate", low=0.8), [2, 0.8, 1.5, 1], [1, 1, 0, 0]),
        (ImportanceCorrectionConfig(rule="mask", low=0.6, high=3.0), [0, 0, 1.5, 1], [1, 1, 0, 0]),
        # A factor on a bound is within.
        (ImportanceCorrectionConfig(rule="mask", low=1.0, high=1.0), [0, 0, 0, 1], [1, 1, 1, 0]),
        # A sequence's factor is the product: 4 × ½ = 2 and 1.5 × 1.
        (
            ImportanceCorrectionConfig(rule="truncate", level="sequence", high=1.8),
            [1.8, 1.8, 1.5, 1.5],
            [1, 1, 0, 0],
        ),
        (
            ImportanceCorrectionConfig(rule="mask", level="sequence", high=1.8),
            [0, 0, 1.5, 1.5],
            [1, 1, 0, 0],
        ),
    ],
)
@pytest.mark.parametrize("old", [True, False])
def test_factors_are_bounded_or_dropped(
    cfg: ImportanceCorrectionConfig, factors: list[float], outside: list[float], old: bool
) -> None:
    factor_M, is_outside_M = importance_factors(_inputs(old=old), cfg)

    torch.testing.assert_close(factor_M, torch.tensor(factors, dtype=torch.float32))
    assert is_outside_M.tolist() == [bool(value) for value in outside]
    assert not factor_M.requires_grad


def test_a_factor_beyond_float32_stays_finite() -> None:
    inputs = replace(_inputs(), old_logprob_M=torch.tensor([100.0, -1.0, -3.0, -0.5]))

    factor_M, _ = importance_factors(inputs, ImportanceCorrectionConfig(rule="truncate", high=1e30))

    assert factor_M.tolist() == pytest.approx([math.exp(20), 1.0, 1.0, 1.0])
