"""The optimizer: AdamW as published, masters that lose nothing, rates by hand, clipping, and no
silent infinity."""

import math
from typing import Literal
from weakref import ref

import pytest
import torch
from torch import Tensor, nn

from whet.errors import TrainError
from whet.train.optim import Optimizer, learning_rate
from whet.train.settings import TrainConfig


class Pair(nn.Module):
    """One matrix and one vector, with nothing to compute."""

    def __init__(self, matrix: Tensor, vector: Tensor) -> None:
        super().__init__()
        self.matrix, self.vector = nn.Parameter(matrix.clone()), nn.Parameter(vector.clone())

    def pull(self, matrix: Tensor, vector: Tensor) -> None:
        """Give both the gradients named."""
        ((self.matrix * matrix).sum() + (self.vector * vector).sum()).backward()


def _drawn(seed: int) -> tuple[Tensor, Tensor]:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(3, 4, generator=source), torch.randn(4, generator=source)


def test_twenty_steps_equal_the_reference_adamw() -> None:
    cfg = TrainConfig(weight_decay=0.1, max_grad_norm=1e9, beta1=0.8, beta2=0.9)
    mine, theirs = Pair(*_drawn(0)), Pair(*_drawn(0))
    optimizer = Optimizer(mine, cfg)
    groups = [
        {"params": [theirs.matrix], "weight_decay": 0.1},
        {"params": [theirs.vector], "weight_decay": 0.0},
    ]
    reference = torch.optim.AdamW(groups, betas=(0.8, 0.9), eps=1e-8, foreach=False, fused=False)
    for step in range(20):
        lr = 0.01 * (step + 1)
        mine.pull(*_drawn(step + 1))
        theirs.pull(*_drawn(step + 1))
        optimizer.step(lr)
        for group in reference.param_groups:
            group["lr"] = lr
        reference.step()
        reference.zero_grad()

    torch.testing.assert_close(mine.matrix, theirs.matrix, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(mine.vector, theirs.vector, atol=1e-6, rtol=1e-6)
    assert (mine.vector - _drawn(0)[1]).abs().max() > 0.1


def test_epsilon_is_added_to_the_root_of_the_second_moment() -> None:
    # The first step is lr * g / (|g| + eps): a gradient as large as eps halves it.
    model = Pair(torch.zeros(1, 2), torch.zeros(2))
    optimizer = Optimizer(model, TrainConfig(eps=0.5, max_grad_norm=1e9))
    model.pull(torch.full((1, 2), 0.5), torch.full((2,), 0.5))
    optimizer.step(0.1)

    torch.testing.assert_close(model.matrix.detach(), torch.full((1, 2), -0.05))


def test_the_first_step_is_worked_by_hand() -> None:
    # Both corrected moments are the gradient and its square, so the step is the rate times the
    # gradient's sign.
    model = Pair(torch.full((1, 2), 2.0), torch.full((2,), 2.0))
    optimizer = Optimizer(model, TrainConfig(weight_decay=0.5, max_grad_norm=1e9))

    model.pull(torch.tensor([[3.0, -4.0]]), torch.tensor([0.1, -0.2]))
    optimizer.step(0.1)

    # Decay on the matrix alone: 2 × (1 - .1 × .5) = 1.9, then ∓ .1.
    torch.testing.assert_close(model.matrix.detach(), torch.tensor([[1.8, 2.0]]))
    torch.testing.assert_close(model.vector.detach(), torch.tensor([1.9, 2.1]))


@pytest.mark.parametrize(("clip", "share"), [(1.0, 0.2), (2.5, 0.5), (50.0, 1.0)])
def test_the_gradient_is_scaled_as_a_whole_to_the_clip_and_its_own_norm_returned(
    clip: float, share: float
) -> None:
    model = Pair(torch.zeros(1, 1), torch.zeros(1))
    optimizer = Optimizer(model, TrainConfig(max_grad_norm=clip))

    model.pull(torch.tensor([[3.0]]), torch.tensor([4.0]))
    norm = optimizer.step(0.1)

    assert norm == pytest.approx(5.0)
    # After one step the first moment is a tenth of the gradient that was used.
    found = optimizer.tensors()
    torch.testing.assert_close(
        found["exp_avg/matrix"], torch.tensor([[0.3 * share]]), rtol=1e-5, atol=0
    )
    torch.testing.assert_close(
        found["exp_avg/vector"], torch.tensor([0.4 * share]), rtol=1e-5, atol=0
    )


def test_a_step_clears_the_gradient() -> None:
    model = Pair(*_drawn(0))
    optimizer = Optimizer(model, TrainConfig())
    model.pull(*_drawn(1))
    optimizer.step(0.1)

    assert model.matrix.grad is None and model.vector.grad is None


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_a_gradient_that_is_not_finite_stops_training_before_the_weights_move(bad: float) -> None:
    model = Pair(*_drawn(0))
    optimizer = Optimizer(model, TrainConfig(lr=0.5))
    model.pull(_drawn(1)[0], torch.tensor([1.0, bad, 1.0, 1.0]))

    with pytest.raises(TrainError, match=r"not finite .* train.lr \(now 0.5\)"):
        optimizer.step(0.5)

    assert torch.equal(model.matrix, _drawn(0)[0])


def test_masters_keep_updates_that_bfloat16_alone_would_lose() -> None:
    ones = torch.ones(2, 2, dtype=torch.bfloat16), torch.ones(2, dtype=torch.bfloat16)
    model, plain = Pair(*ones), Pair(*ones)
    optimizer, alone = (
        Optimizer(model, TrainConfig(max_grad_norm=1e9)),
        torch.optim.AdamW(plain.parameters(), weight_decay=0.0),
    )
    for group in alone.param_groups:
        group["lr"] = 1e-4
    for _ in range(200):
        model.pull(*ones)
        optimizer.step(1e-4)
        plain.pull(*ones)
        alone.step()
        alone.zero_grad()

    # 200 steps of 1e-4 each; near 1 the numbers of bfloat16 lie 0.004 apart, so alone nothing ever
    # moves.
    assert torch.equal(plain.matrix, ones[0])
    torch.testing.assert_close(
        optimizer.masters["matrix"].detach(), torch.full((2, 2), 0.98), atol=1e-5, rtol=0
    )
    assert torch.equal(model.matrix, optimizer.masters["matrix"].bfloat16())
    assert model.matrix[0, 0].item() == pytest.approx(0.98, abs=0.002)


def test_low_precision_gradients_add_up_in_float32() -> None:
    ones = torch.ones(1, 1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.bfloat16)
    model = Pair(*ones)
    optimizer = Optimizer(model, TrainConfig())
    for _ in range(300):
        model.pull(ones[0], 0 * ones[1])

    # bfloat16 cannot count beyond 256 by ones.
    assert optimizer.step(1e-3) == 300.0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_closed_optimizer_leaves_its_weights_to_another(dtype: torch.dtype) -> None:
    model = Pair(torch.ones(1, 1, dtype=dtype), torch.ones(1, dtype=dtype))
    first = Optimizer(model, TrainConfig())
    model.pull(torch.full((1, 1), 4.0, dtype=dtype), torch.zeros(1, dtype=dtype))
    first.close()
    second = Optimizer(model, TrainConfig())
    model.pull(torch.full((1, 1), 2.0, dtype=dtype), torch.zeros(1, dtype=dtype))

    assert second.step(1e-3) == 2.0


def test_the_hooks_of_an_optimizer_that_is_freed_go_with_it() -> None:
    ones = torch.ones(1, 1, dtype=torch.bfloat16), torch.ones(1, dtype=torch.bfloat16)
    model = Pair(*ones)
    Optimizer(model, TrainConfig())
    optimizer = Optimizer(model, TrainConfig())
    model.pull(ones[0], 0 * ones[1])

    assert optimizer.step(1e-3) == 1.0


def test_float32_weights_are_their_own_masters_and_keep_their_address() -> None:
    model = Pair(*_drawn(0))
    address = model.matrix.data_ptr()
    optimizer = Optimizer(model, TrainConfig())
    model.pull(*_drawn(1))
    optimizer.step(0.1)

    assert optimizer.masters["matrix"] is model.matrix
    assert model.matrix.data_ptr() == address
    assert set(optimizer.tensors()) == {
        f"{kind}/{name}"
        for kind in ("exp_avg", "exp_avg_sq", "step")
        for name in ("matrix", "vector")
    }


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_loaded_optimizer_goes_on_bit_for_bit(dtype: torch.dtype) -> None:
    def pair(seed: int) -> tuple[Tensor, Tensor]:
        matrix, vector = _drawn(seed)
        return matrix.to(dtype), vector.to(dtype)

    model = Pair(*pair(0))
    optimizer = Optimizer(model, TrainConfig(weight_decay=0.1))
    for step in range(3):
        model.pull(*pair(step + 1))
        optimizer.step(0.01)
    copy = Pair(model.matrix.detach(), model.vector.detach())
    loaded = Optimizer(copy, TrainConfig(weight_decay=0.1))
    loaded.load({key: value.clone() for key, value in optimizer.tensors().items()}.items())

    for one, its in ((model, optimizer), (copy, loaded)):
        one.pull(*pair(9))
        its.step(0.01)

    assert torch.equal(model.matrix, copy.matrix) and torch.equal(model.vector, copy.vector)
    for key, value in optimizer.tensors().items():
        assert torch.equal(value, loaded.tensors()[key]), key


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_offloaded_optimizer_moves_weights_to_the_same_place(dtype: torch.dtype) -> None:
    models = [Pair(*(value.to(dtype) for value in _drawn(0))) for _ in range(2)]
    settings = [TrainConfig(weight_decay=0.1, offload_optimizer=far) for far in (False, True)]
    both = [Optimizer(model, cfg) for model, cfg in zip(models, settings, strict=True)]
    for step in range(5):
        for model, optimizer in zip(models, both, strict=True):
            model.pull(*(value.to(dtype) for value in _drawn(step + 1)))
            optimizer.step(0.01)

    assert torch.equal(models[0].matrix, models[1].matrix) and torch.equal(
        models[0].vector, models[1].vector
    )
    assert both[0].tensors().keys() == both[1].tensors().keys()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_weights_live_in_host_memory_and_move_to_the_same_place(dtype: torch.dtype) -> None:
    source = torch.Generator().manual_seed(0)
    start = (
        torch.randn(300, 300, generator=source).to(dtype),
        torch.randn(4, generator=source).to(dtype),
    )
    pulls = [(torch.randn(300, 300, generator=source).to(dtype), start[1]) for _ in range(4)]
    models = [Pair(*start) for _ in range(2)]
    settings = [
        TrainConfig(weight_decay=0.1, max_grad_norm=0.5, offload_optimizer=far)
        for far in (False, True)
    ]
    near, far = (Optimizer(model, cfg) for model, cfg in zip(models, settings, strict=True))
    # 90,000 numbers are worth the way, four are not.
    assert (near.unallocated_bytes, far.unallocated_bytes) == (8 * 90_004, 8 * 4)
    places = set[int]()
    for pull in pulls:
        for model, optimizer in zip(models, (near, far), strict=True):
            model.pull(*pull)
            optimizer.step(0.01)
        places.add(far.moments["matrix"][0].data_ptr())

    assert torch.equal(models[0].matrix, models[1].matrix) and torch.equal(
        models[0].vector, models[1].vector
    )
    for key, value in near.tensors().items():
        assert torch.equal(value, far.tensors()[key]), key
    assert len(places) == 1, "moments are made once"
    assert far.unallocated_bytes == 0


def test_an_optimizer_goes_when_its_owner_lets_it_go() -> None:
    model = Pair(*(value.bfloat16() for value in _drawn(0)))
    optimizer = Optimizer(model, TrainConfig())
    model.pull(*(value.bfloat16() for value in _drawn(1)))
    optimizer.step(0.1)
    seen = ref(optimizer)

    del optimizer

    assert seen() is None


def test_loading_forgets_what_the_optimizer_had_learned_before() -> None:
    fresh, used = Pair(*_drawn(0)), Pair(*_drawn(0))
    target, source = Optimizer(used, TrainConfig()), Optimizer(fresh, TrainConfig())
    used.pull(*_drawn(1))
    target.step(0.1)

    target.load(source.tensors().items())

    assert target.tensors() == {}


Schedule = Literal["constant", "linear", "cosine"]


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        # Two steps of warm-up, then eight: shares 0, .25, .5, .75 at steps 2, 4, 6, 8, and 1 at the
        # end and beyond.
        ("constant", {0: 0.5, 1: 1.0, 2: 1.0, 4: 1.0, 6: 1.0, 8: 1.0, 10: 1.0, 50: 1.0}),
        ("linear", {0: 0.5, 1: 1.0, 2: 1.0, 4: 0.8, 6: 0.6, 8: 0.4, 10: 0.2, 50: 0.2}),
        (
            "cosine",
            {
                0: 0.5,
                1: 1.0,
                2: 1.0,
                4: 0.2 + 0.8 * 0.853553,
                6: 0.6,
                8: 0.2 + 0.8 * 0.146447,
                10: 0.2,
                50: 0.2,
            },
        ),
    ],
)
def test_schedules_are_worked_by_hand(schedule: Schedule, expected: dict[int, float]) -> None:
    cfg = TrainConfig(lr=1.0, warmup_steps=2, lr_schedule=schedule, final_lr=0.2)

    assert {step: learning_rate(cfg, step, 10) for step in expected} == pytest.approx(
        expected, abs=1e-6
    )


def test_without_warm_up_the_first_rate_is_the_peak() -> None:
    assert learning_rate(TrainConfig(lr=3e-4, lr_schedule="cosine"), 0, 10) == 3e-4


def test_a_warm_up_longer_than_the_run_just_rises() -> None:
    assert learning_rate(TrainConfig(lr=1.0, warmup_steps=20, lr_schedule="linear"), 9, 10) == 0.5


HALF = TrainConfig(dtype="float16", max_grad_norm=1e9)


def _half_model() -> tuple[Pair, Optimizer]:
    model = Pair(*(value.half() for value in _drawn(0)))
    return model, Optimizer(model, HALF)


def _pull_scaled(model: Pair, optimizer: Optimizer, gradient: float) -> None:
    """Give both a gradient, times the scale of the loss."""
    (optimizer.loss_scale * gradient * (model.matrix.sum() + model.vector.sum()).float()).backward()


def test_the_scale_of_a_float16_loss_keeps_a_gradient_that_would_be_zero() -> None:
    # The smallest number of float16 is 6e-8. The first step is the rate, whatever the gradient is.
    model, optimizer = _half_model()
    before = optimizer.masters["matrix"].clone()

    _pull_scaled(model, optimizer, 1e-5)
    norm = optimizer.step(0.25)

    assert torch.tensor(1e-8).half() == 0
    assert norm == pytest.approx(1e-5 * 4.0, rel=1e-3)  # sixteen numbers
    torch.testing.assert_close(optimizer.masters["matrix"], before - 0.25, atol=1e-3, rtol=0)


def test_a_float16_gradient_that_overflows_is_left_out_and_halves_the_scale() -> None:
    model, optimizer = _half_model()
    before = model.matrix.detach().clone()

    _pull_scaled(model, optimizer, 1.5)  # 1.5 × 65,536 is beyond 65,504

    assert optimizer.step(0.1) == 0.0 and optimizer.loss_scale == 2.0**15
    assert torch.equal(model.matrix, before) and not optimizer.moments
    _pull_scaled(model, optimizer, 1.5)
    assert optimizer.step(0.1) == pytest.approx(6.0) and not torch.equal(model.matrix, before)


def test_a_float16_gradient_that_overflows_without_a_scale_ends_the_run() -> None:
    model, optimizer = _half_model()
    for _ in range(16):
        _pull_scaled(model, optimizer, math.inf)
        optimizer.step(0.1)
    assert optimizer.loss_scale == 1.0

    _pull_scaled(model, optimizer, math.inf)
    with pytest.raises(TrainError, match="not finite"):
        optimizer.step(0.1)


def test_the_scale_of_a_float16_loss_doubles_after_many_steps_also_when_resumed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("whet.train.optim.SCALE_STEPS", 3)
    model, optimizer = _half_model()
    for _ in range(2):
        _pull_scaled(model, optimizer, 1e-3)
        optimizer.step(0.1)
    copy, resumed = _half_model()

    resumed.load({key: value.clone() for key, value in optimizer.tensors().items()}.items())
    _pull_scaled(copy, resumed, 1e-3)
    resumed.step(0.1)

    assert (optimizer.loss_scale, resumed.loss_scale) == (2.0**16, 2.0**17)
    assert "scale/loss" not in Optimizer(model, TrainConfig()).tensors()


def test_after_an_overflow_the_steps_to_a_larger_scale_are_counted_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two finite steps, an overflow that halves the scale, then three finite steps double it."""
    monkeypatch.setattr("whet.train.optim.SCALE_STEPS", 3)
    model, optimizer = _half_model()
    scales: list[float] = []
    for gradient in (1e-3, 1e-3, math.inf, 1e-3, 1e-3, 1e-3):
        _pull_scaled(model, optimizer, gradient)
        optimizer.step(0.1)
        scales.append(optimizer.loss_scale / 2.0**16)

    assert scales == [1.0, 1.0, 0.5, 0.5, 0.5, 1.0]
