"""Credit for judged steps: pooled over a group, spread to the tokens before, blended with that for
the outcome."""

import numpy as np
import pytest
from pydantic import ValidationError

from whet.algos.step_credit import (
    JudgedResponse,
    StepCreditConfig,
    blend_advantages,
    build_step_credit,
    spread_over_tokens,
    step_credit_fraction_at,
)
from whet.types import JudgedStep


def _answer(length: int, *steps: tuple[int, int, float]) -> JudgedResponse:
    return [JudgedStep(start=start, end=end, reward=reward) for start, end, reward in steps], length


# Two answers, of two steps (+½, -½) and of one (+1). Six tokens and three.
GROUP = [_answer(6, (0, 2, 0.5), (2, 5, -0.5)), _answer(3, (0, 3, 1.0))]


def test_tokens_are_worth_the_steps_that_end_with_them_or_later() -> None:
    assert spread_over_tokens(GROUP[0], [1.0, 10.0]).tolist() == [11.0, 11.0, 10.0, 10.0, 10.0, 0.0]


def test_a_step_beyond_its_answer_is_refused() -> None:
    with pytest.raises(AssertionError, match="step 1:4 is not within 3 tokens"):
        spread_over_tokens(_answer(3, (1, 4, 1.0)), [1.0])


def test_steps_are_normalised_over_all_answers_of_the_group() -> None:
    # The pool is .5, -.5, 1: mean ⅓; squares 1/36, 25/36, 16/36 add up to 42/36; over 2, the
    # deviation is √(7/12). So the steps are ⅙, -⅚ and ⅔ over .7638: .2182, -1.0911, .8729. Before
    # the first step ends: .2182 - 1.0911.
    [[first, second]] = build_step_credit("zscore")([GROUP])

    assert first.tolist() == pytest.approx(
        [-0.8729, -0.8729, -1.0911, -1.0911, -1.0911, 0.0], abs=1e-4
    )
    assert second.tolist() == pytest.approx([0.8729] * 3, abs=1e-4)


def test_leave_one_out_compares_a_step_with_all_others_and_multiplies_by_ten() -> None:
    # Others' means: .25, .75, 0. So .25, -1.25, 1, times 10.
    [[first, second]] = build_step_credit("leave_one_out")([GROUP])

    assert first.tolist() == pytest.approx([-10.0, -10.0, -12.5, -12.5, -12.5, 0.0])
    assert second.tolist() == pytest.approx([10.0] * 3)


def test_whitened_steps_are_rewards_to_go_over_all_tokens_of_all_groups() -> None:
    # To go: 0, 0, -.5, -.5, -.5, 0 and, in another group, 1, 1, 1: mean 1.5 / 9 = ⅙, mean square
    # 3.75 / 9 = 5/12. The variance is 5/12 - 1/36 = 7/18, the deviation .6236. An answer without
    # steps takes no part.
    [[first, none], [second]] = build_step_credit("whiten")([[GROUP[0], _answer(4)], [GROUP[1]]])

    assert first.tolist() == pytest.approx(
        [-0.2673, -0.2673, -1.0690, -1.0690, -1.0690, -0.2673], abs=1e-4
    )
    assert second.tolist() == pytest.approx([1.3363] * 3, abs=1e-4)
    assert none.tolist() == [0.0] * 4


@pytest.mark.parametrize("rule", ["zscore", "leave_one_out", "whiten"])
def test_no_steps_or_one_give_no_credit(rule: str) -> None:
    for group in ([_answer(2), _answer(3)], [_answer(2, (0, 2, 1.0)), _answer(3)]):
        found = build_step_credit(rule)([group])[0]  # type: ignore[arg-type]
        assert [array.tolist() for array in found] == [[0.0] * 2, [0.0] * 3]


def test_the_blend_is_a_weighted_mean() -> None:
    assert blend_advantages(np.array([1.0, 1.0]), np.array([-1.0, 3.0]), 0.25).tolist() == [
        0.5,
        1.5,
    ]


@pytest.mark.parametrize(
    ("decay", "shares"),
    [
        # .5 × (.005/.5)^done; straight from .5 to .005; half a cosine, whose middle is the mean
        # of both ends.
        ("exponential", [0.5, 0.1581, 0.05, 0.0158, 0.005]),
        ("linear", [0.5, 0.3763, 0.2525, 0.1288, 0.005]),
        ("cosine", [0.5, 0.4275, 0.2525, 0.0775, 0.005]),
        ("none", [0.5] * 5),
    ],
)
def test_the_share_of_steps_falls_as_its_decay_says(decay: str, shares: list[float]) -> None:
    cfg = StepCreditConfig.model_validate({"final_alpha": 0.005, "decay": decay})

    found = [step_credit_fraction_at(0.5, cfg, done) for done in (0.0, 0.25, 0.5, 0.75, 1.0)]

    assert found == pytest.approx(shares, abs=1e-4)
    assert step_credit_fraction_at(0.5, cfg, 1.5) == found[-1]


def test_an_exponential_decay_to_zero_is_refused() -> None:
    with pytest.raises(ValidationError, match="above 0 for an exponential decay"):
        StepCreditConfig(final_alpha=0.0)
    assert (
        step_credit_fraction_at(0.2, StepCreditConfig(final_alpha=0.0, decay="linear"), 1.0) == 0.0
    )
