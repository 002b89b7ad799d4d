"""Log-probabilities and entropies: exact, the same in chunks, and never all logits at once."""

import pytest
import torch
from torch import Tensor

from whet.models.head import token_logprobs
from whet.models.transformer import Transformer
from whet.testing.tiny import tiny_model

TARGETS = 23


class CountingTransformer(Transformer):
    """Remembers the largest piece of logits it was asked for."""

    largest = 0

    def logits(self, hidden_TH: Tensor) -> Tensor:
        out = super().logits(hidden_TH)
        self.largest = max(self.largest, out.numel())
        return out


def _inputs() -> tuple[Tensor, Tensor, Tensor]:
    source = torch.Generator().manual_seed(3)
    hidden_MH = torch.randn(TARGETS, 64, generator=source).requires_grad_()
    label_M = torch.randint(0, 50, (TARGETS,), generator=source)
    temperature_M = torch.rand(TARGETS, generator=source) + 0.5
    return hidden_MH, label_M, temperature_M


def _plain(model: Transformer, hidden_MH: Tensor, label_M: Tensor, temperature_M: Tensor) -> tuple[Tensor, Tensor]:
    probs_MV = torch.softmax(hidden_MH @ model.head_weight_VH.T / temperature_M[:, None], -1)
    return probs_MV[torch.arange(TARGETS), label_M].log(), -(probs_MV * probs_MV.log()).sum(-1)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("chunk_elements", [1, 350, 10**6])
def test_values_and_gradients_are_exact_for_any_chunk(tied: bool, chunk_elements: int) -> None:
    model, (hidden_MH, label_M, temperature_M) = tiny_model(tied=tied), _inputs()
    factors = torch.linspace(-1, 2, TARGETS)
    logprob_M, entropy_M = token_logprobs(
        model, hidden_MH, label_M, temperature_M, entropy_gradient=True, chunk_elements=chunk_elements
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
def test_entropy_has_no_gradient_unless_asked_for(chunk_elements: int) -> None:
    model, inputs = tiny_model(), _inputs()

    logprob_M, entropy_M = token_logprobs(model, *inputs, chunk_elements=chunk_elements)
    with_entropy = torch.autograd.grad((logprob_M + entropy_M).sum(), inputs[0], retain_graph=True)[0]

    torch.testing.assert_close(with_entropy, torch.autograd.grad(logprob_M.sum(), inputs[0])[0])


@pytest.mark.parametrize("has_gradient", [True, False])
def test_logits_are_made_and_kept_a_chunk_at_a_time(has_gradient: bool) -> None:
    model, inputs = tiny_model(kind=CountingTransformer), _inputs()
    assert isinstance(model, CountingTransformer)
    kept: list[int] = []

    def note(tensor: Tensor) -> Tensor:
        kept.append(tensor.numel())
        return tensor

    with torch.set_grad_enabled(has_gradient), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        logprob_M, _ = token_logprobs(model, *inputs, chunk_elements=4 * 50)
    if has_gradient:
        logprob_M.sum().backward()

    assert len(logprob_M) == TARGETS
    assert model.largest == 4 * 50
    # Inputs of a chunk are kept, 64 numbers a target; its 50 logits a target are not, though they would be three times.
    assert sum(kept) <= TARGETS * (64 + 3)


def test_hidden_states_that_fit_are_done_in_one_piece() -> None:
    model, inputs = tiny_model(kind=CountingTransformer), _inputs()
    assert isinstance(model, CountingTransformer)

    token_logprobs(model, *inputs)

    assert model.largest == TARGETS * 50
