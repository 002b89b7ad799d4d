"""Log-probabilities and entropies in C: those of the formula in float64, for any vocabulary,
threads and neighbours."""

import ctypes
import math
from collections.abc import Iterator

import pytest
import torch
from interpreted import draw, leaves
from torch import Tensor

from whet.kernels.c import library as c_library
from whet.kernels.lm_head import c_token_logprobs, token_logprobs

SIZES = [(1, 1), (1, 7), (3, 16), (5, 50), (7, 432), (33, 1039), (2, 5000), (37, 4096)]
EXACT = {"rtol": 1e-5, "atol": 1e-7}


@pytest.fixture(scope="module")
def kernels() -> ctypes.CDLL:
    found = c_library.library()
    if found is None:
        pytest.skip("there is no C compiler")
    return found


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def _inputs(rows: int, vocab: int) -> tuple[Tensor, Tensor, Tensor]:
    label_M = torch.randint(0, vocab, (rows,), generator=torch.Generator().manual_seed(2))
    scale_M = torch.tensor([1.0, 0.7, 1.3]).repeat(rows)[:rows]
    return 3 * draw(rows, vocab, seed=1), label_M, scale_M


def _by_formula(logits_MV: Tensor, label_M: Tensor, scale_M: Tensor) -> tuple[Tensor, Tensor]:
    logprobs_MV = torch.log_softmax(logits_MV.double() / scale_M.double()[:, None], -1)
    return logprobs_MV.gather(1, label_M[:, None])[:, 0], -(logprobs_MV.exp() * logprobs_MV).sum(-1)


def _grads(outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> tuple[Tensor, ...]:
    """Pull one fixed random gradient through all outputs at once."""
    total = sum((out * draw(len(out), seed=3 + i)).sum() for i, out in enumerate(outputs))
    assert isinstance(total, Tensor)
    return torch.autograd.grad(total, inputs, retain_graph=True)


def _close(found: tuple[Tensor, ...], exact: tuple[Tensor, ...]) -> None:
    for mine, theirs in zip(found, exact, strict=True):
        torch.testing.assert_close(mine.double(), theirs.double(), **EXACT)


@pytest.mark.parametrize(("rows", "vocab"), SIZES)
def test_values_and_gradients_are_those_of_the_formula(
    kernels: ctypes.CDLL, rows: int, vocab: int
) -> None:
    logits_MV, label_M, scale_M = _inputs(rows, vocab)
    (logits_MV,) = leaves(logits_MV)

    found = c_token_logprobs(kernels, logits_MV, label_M, scale_M, entropy=True)

    exact = _by_formula(logits_MV, label_M, scale_M)
    _close(found, exact)
    for used in (slice(1), slice(1, 2), slice(2)):
        _close(_grads(found[used], [logits_MV]), _grads(exact[used], [logits_MV]))


def test_three_logits_by_hand(kernels: ctypes.CDLL) -> None:
    (logits,) = leaves(torch.tensor([[2.0, 0.0, 0.0]]))

    logprob, entropy = c_token_logprobs(
        kernels, logits, torch.tensor([1]), torch.tensor([1.0]), entropy=True
    )

    # e^2 = 7.389056: shares 0.786986, 0.106507, 0.106507.
    torch.testing.assert_close(
        (logprob, entropy), (torch.tensor([-2.239545]), torch.tensor([0.665573]))
    )
    (slope,) = torch.autograd.grad(logprob, logits)
    torch.testing.assert_close(slope, torch.tensor([[-0.786986, 0.893493, -0.106507]]))


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize(("rows", "vocab"), [(19, 432), (37, 4096), (41, 1039)])
def test_a_row_has_the_same_bits_for_any_threads_and_neighbours(
    kernels: ctypes.CDLL, rows: int, vocab: int
) -> None:
    inputs = _inputs(rows, vocab)

    def run(at: slice, count: int) -> tuple[Tensor, ...]:
        torch.set_num_threads(count)
        logits_MV, label_M, scale_M = (x[at].clone() for x in inputs)
        (logits_MV,) = leaves(logits_MV)
        found = c_token_logprobs(kernels, logits_MV, label_M, scale_M, entropy=True)
        return *found, torch.autograd.grad(found[0].sum() + found[1].sum() / 3, logits_MV)[0]

    together = run(slice(None), 2)

    for one, other in zip(together, run(slice(None), 1), strict=True):
        assert torch.equal(one, other)
    for row in range(rows):
        for one, other in zip(together, run(slice(row, row + 1), 2), strict=True):
            assert torch.equal(one[row : row + 1], other)


def test_bits_do_not_depend_on_the_entropy_being_wanted_nor_on_gradients(
    kernels: ctypes.CDLL,
) -> None:
    given = _inputs(9, 100)

    logprob_M, none_M = c_token_logprobs(kernels, *given, entropy=False)
    same_M, _ = c_token_logprobs(kernels, *leaves(given[0]), *given[1:], entropy=True)

    assert torch.equal(none_M, torch.zeros(9))
    assert torch.equal(logprob_M, same_M)


@pytest.mark.parametrize("shift", [-3000.0, 3000.0, 3e37])
def test_large_logits_lose_nothing(kernels: ctypes.CDLL, shift: float) -> None:
    logits_MV, label_M, scale_M = _inputs(8, 4099)
    (logits_MV,) = leaves(logits_MV + shift)

    found = c_token_logprobs(kernels, logits_MV, label_M, scale_M / 100, entropy=True)

    exact = _by_formula(logits_MV, label_M, scale_M / 100)
    _close(found, exact)
    _close(_grads(found, [logits_MV]), _grads(exact, [logits_MV]))


def test_a_distribution_of_one_point_has_no_entropy_and_no_slope(kernels: ctypes.CDLL) -> None:
    (logits_MV,) = leaves(torch.full((2, 40), -1e30).index_fill(1, torch.tensor([7]), 5.0))

    found = c_token_logprobs(
        kernels, logits_MV, torch.tensor([7, 7]), torch.tensor([1.0, 0.5]), entropy=True
    )

    assert torch.equal(torch.stack(found), torch.zeros(2, 2))
    assert not torch.autograd.grad(found[0].sum() + found[1].sum(), logits_MV)[0].any()


def test_a_distribution_that_is_almost_one_point_keeps_its_digits(kernels: ctypes.CDLL) -> None:
    (logits,) = leaves(torch.tensor([[0.0, -20.0]]))

    logprob, entropy = c_token_logprobs(
        kernels, logits, torch.tensor([0]), torch.tensor([1.0]), entropy=True
    )

    # With q = e^-20: log p = -q, entropy = 20 q + q, and the slope of log p is 1 - p = q.
    q = math.exp(-20)
    torch.testing.assert_close(torch.stack([logprob, entropy]) / q, torch.tensor([[-1.0], [21.0]]))
    torch.testing.assert_close(
        torch.autograd.grad(logprob, logits)[0] / q, torch.tensor([[1.0, -1.0]])
    )


def test_equal_logits_have_the_largest_entropy_and_no_slope_of_it(kernels: ctypes.CDLL) -> None:
    (logits_MV,) = leaves(torch.full((1, 152_001), 4.25))

    logprob_M, entropy_M = c_token_logprobs(
        kernels, logits_MV, torch.tensor([5]), torch.tensor([0.9]), entropy=True
    )

    torch.testing.assert_close(entropy_M, torch.tensor([math.log(152_001)]))
    torch.testing.assert_close(logprob_M, torch.tensor([-math.log(152_001)]))
    assert not torch.autograd.grad(entropy_M.sum(), logits_MV)[0].any()


def test_a_long_sum_of_small_numbers_is_exact(kernels: ctypes.CDLL) -> None:
    (logits_MV,) = leaves(torch.full((1, 152_001), -1.0).index_fill(1, torch.tensor([3]), 0.0))

    logprob_M, _ = c_token_logprobs(
        kernels, logits_MV, torch.tensor([3]), torch.ones(1), entropy=False
    )

    total = 1 + 152_000 / math.e
    torch.testing.assert_close(logprob_M, torch.tensor([-math.log(total)]))
    slope_MV = torch.autograd.grad(logprob_M.sum(), logits_MV)[0]
    torch.testing.assert_close(slope_MV[0, 4] * total * math.e, torch.tensor(-1.0))


def test_a_token_that_cannot_be_is_no_trouble(kernels: ctypes.CDLL) -> None:
    (logits_MV,) = leaves(torch.tensor([[1.0, -math.inf, 1.0], [-math.inf, -math.inf, 0.0]]))

    found = c_token_logprobs(kernels, logits_MV, torch.tensor([0, 0]), torch.ones(2), entropy=True)

    torch.testing.assert_close(found[0], torch.tensor([-math.log(2), -math.inf]))
    torch.testing.assert_close(found[1], torch.tensor([math.log(2), 0.0]))
    slope_MV = torch.autograd.grad(found[0].sum() + found[1].sum(), logits_MV)[0]
    torch.testing.assert_close(slope_MV, torch.tensor([[0.5, 0.0, -0.5], [1.0, 0.0, -1.0]]))


@pytest.mark.parametrize("bad", [math.nan, math.inf])
@pytest.mark.parametrize("vocab", [16, 20])
def test_what_is_no_number_stays_none_in_its_row_alone(
    kernels: ctypes.CDLL, bad: float, vocab: int
) -> None:
    logits_MV, label_M, scale_M = _inputs(3, vocab)
    logits_MV[1, vocab - 1] = bad
    (logits_MV,) = leaves(logits_MV)

    found = c_token_logprobs(kernels, logits_MV, label_M, scale_M, entropy=True)

    (slope_MV,) = torch.autograd.grad(found[0].sum() + found[1].sum(), logits_MV)
    for each in (*found, slope_MV):
        assert torch.isnan(each[1]).all() and torch.isfinite(each[[0, 2]]).all()


def test_a_second_way_back_gives_the_same_and_changes_no_logits(kernels: ctypes.CDLL) -> None:
    given_MV, label_M, scale_M = _inputs(5, 100)
    (logits_MV,) = leaves(given_MV.clone())
    logprob_M, entropy_M = c_token_logprobs(kernels, logits_MV, label_M, scale_M, entropy=True)
    total = (logprob_M + entropy_M).sum()

    first, second = (torch.autograd.grad(total, logits_MV, retain_graph=True)[0] for _ in range(2))

    assert torch.equal(first, second) and first.any()
    assert torch.equal(logits_MV, given_MV)


@pytest.mark.parametrize("label", [-1, 20])
def test_a_label_outside_of_the_vocabulary_is_an_error(kernels: ctypes.CDLL, label: int) -> None:
    with pytest.raises(IndexError, match="vocabulary of 20"):
        c_token_logprobs(
            kernels, draw(1, 20, seed=1), torch.tensor([label]), torch.ones(1), entropy=False
        )


@pytest.mark.usefixtures("kernels")
def test_hidden_states_get_gradients_and_temperature_zero_scores_like_one() -> None:
    inputs = leaves(draw(11, 32, seed=1), draw(50, 32, seed=2))
    label_M, temperature_M = torch.arange(11), torch.tensor([0.0, 0.7, 1.0] * 4)[:11]

    found = token_logprobs(*inputs, label_M, temperature_M, entropy=True)

    scale_M = torch.where(temperature_M == 0, 1.0, temperature_M)
    exact = _by_formula(inputs[0].double() @ inputs[1].double().T, label_M, scale_M)
    torch.testing.assert_close(tuple(x.double() for x in found), exact, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(_grads(found, inputs), _grads(exact, inputs), rtol=1e-4, atol=1e-5)


@pytest.mark.usefixtures("kernels")
def test_no_targets_give_no_numbers_and_zero_gradients() -> None:
    inputs = leaves(draw(0, 32, seed=1), draw(50, 32, seed=2))

    logprob_M, entropy_M = token_logprobs(
        *inputs, torch.empty(0).long(), torch.empty(0), entropy=True
    )

    assert len(logprob_M) == len(entropy_M) == 0
    assert (torch.autograd.grad(logprob_M.sum(), inputs)[1] == 0).all()


@pytest.mark.parametrize(("labels", "scales"), [(2, 3), (3, 1)])
def test_rows_without_a_label_or_scale_are_refused(
    kernels: ctypes.CDLL, labels: int, scales: int
) -> None:
    with pytest.raises(AssertionError, match="per row"):
        c_token_logprobs(
            kernels,
            torch.zeros(3, 16),
            torch.zeros(labels, dtype=torch.int64),
            torch.ones(scales),
            entropy=True,
        )
