"""Log-probabilities and entropies: exact, the same in chunks, and never all logits at once."""

import pytest
import torch
from torch import Tensor

from whet.kernels import lm_head
from whet.kernels.lm_head import token_logprobs
from whet.models.transformer import Transformer
from whet.testing.tiny import tiny_model

TARGETS = 23


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of all logits that were made."""
    made: list[int] = []
    head_logits = lm_head.head_logits

    def counted(hidden_MH: Tensor, weight_VH: Tensor) -> Tensor:
        out = head_logits(hidden_MH, weight_VH)
        made.append(out.numel())
        return out

    monkeypatch.setattr(lm_head, "head_logits", counted)
    return made


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    hidden_MH = torch.randn(TARGETS, 64, generator=source).requires_grad_()
    label_M = torch.randint(0, 50, (TARGETS,), generator=source)
    temperature_M = torch.rand(TARGETS, generator=source) + 0.5
    return hidden_MH, label_M, temperature_M


def _plain(
    model: Transformer, hidden_MH: Tensor, label_M: Tensor, temperature_M: Tensor
) -> tuple[Tensor, Tensor]:
    probs_MV = torch.softmax(hidden_MH @ model.head_weight_VH.T / temperature_M[:, None], -1)
    return probs_MV[torch.arange(TARGETS), label_M].log(), -(probs_MV * probs_MV.log()).sum(-1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("chunk_elements", [1, 350, 10**6])
def test_values_and_gradients_are_exact_for_any_chunk(tied: bool, chunk_elements: int) -> None:
    model, (hidden_MH, label_M, temperature_M) = tiny_model(tied=tied), _inputs()
    factors = torch.linspace(-1, 2, TARGETS)
    logprob_M, entropy_M = token_logprobs(
        hidden_MH,
        model.head_weight_VH,
        label_M,
        temperature_M,
        entropy=True,
        chunk_elements=chunk_elements,
    )
    wrt = [hidden_MH, model.head_weight_VH]
    found = torch.autograd.grad((factors * logprob_M + entropy_M / 3).sum(), wrt)

    exact_logprob_M, exact_entropy_M = _plain(model, hidden_MH, label_M, temperature_M)
    exact = torch.autograd.grad((factors * exact_logprob_M + exact_entropy_M / 3).sum(), wrt)

    torch.testing.assert_close(logprob_M, exact_logprob_M, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(entropy_M, exact_entropy_M, atol=1e-5, rtol=1e-5)
    for mine, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(mine, theirs, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("chunk_elements", [350, 10**6])
def test_an_entropy_that_is_not_wanted_is_zero_and_changes_no_gradient(chunk_elements: int) -> None:
    model, (hidden_MH, label_M, temperature_M) = tiny_model(), _inputs()
    given = (hidden_MH, model.head_weight_VH, label_M, temperature_M)

    logprob_M, none_M = token_logprobs(*given, entropy=False, chunk_elements=chunk_elements)
    same_M, entropy_M = token_logprobs(*given, entropy=True, chunk_elements=chunk_elements)

    assert torch.equal(none_M, torch.zeros(TARGETS)) and entropy_M.min() > 0
    assert torch.equal(logprob_M, same_M)
    one, other = (torch.autograd.grad(x.sum(), hidden_MH)[0] for x in (logprob_M, same_M))
    assert torch.equal(one, other)


@pytest.mark.parametrize("has_gradient", [True, False])
def test_logits_are_made_and_kept_a_chunk_at_a_time(has_gradient: bool, sizes: list[int]) -> None:
    model, (hidden_MH, label_M, temperature_M) = tiny_model(), _inputs()
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with (
        torch.set_grad_enabled(has_gradient),
        torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor),
    ):
        logprob_M, _ = token_logprobs(
            hidden_MH,
            model.head_weight_VH,
            label_M,
            temperature_M,
            entropy=True,
            chunk_elements=4 * 50,
        )
    if has_gradient:
        logprob_M.sum().backward()

    assert len(logprob_M) == TARGETS
    # Six chunks, made again in the backward pass; of a target 64 hidden numbers, label, temperature and
    # two sums are kept.
    assert len(sizes) == (12 if has_gradient else 6) and max(sizes) == 4 * 50
    assert sum(kept) == (TARGETS * (64 + 4) + 50 * 64 if has_gradient else 0)


def test_hidden_states_that_fit_are_done_in_one_piece(sizes: list[int]) -> None:
    model, (hidden_MH, label_M, temperature_M) = tiny_model(), _inputs()

    token_logprobs(hidden_MH, model.head_weight_VH, label_M, temperature_M, entropy=False)

    assert sizes == [TARGETS * 50]


@pytest.mark.parametrize(("size", "filled"), [(293, 296), (296, 296), (1, 8)])
def test_an_odd_vocabulary_is_filled_up_with_zeros(size: int, filled: int) -> None:
    weight_VH = torch.randn(size, 4)
    found_VH = lm_head.pad_vocab(weight_VH)
    assert found_VH.shape == (filled, 4)
    assert torch.equal(found_VH[:size], weight_VH)
    assert not found_VH[size:].any()


def test_an_entropy_is_not_lost_between_large_logits() -> None:
    source = torch.Generator().manual_seed(3)
    logits_RV = 3000 + torch.randn(8, 4096, generator=source) * 3
    label_R, temperature_R = torch.zeros(8, dtype=torch.int64), torch.ones(8)

    found_R = lm_head.torch_logit_stats(logits_RV, label_R, temperature_R, has_entropy=True)[1]

    logprobs_RV = torch.log_softmax((logits_RV / temperature_R[:, None]).double(), -1)
    exact_R = -(logprobs_RV.exp() * logprobs_RV).sum(-1)
    torch.testing.assert_close(found_R.double(), exact_R, rtol=1e-5, atol=1e-5)
