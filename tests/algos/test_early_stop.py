"""The early stop: what trips it, and that any statistic adds up over micro-batches."""

import math

import pytest
import torch
from pydantic import ValidationError

from whet.algos.losses import EarlyStopConfig, exceeds_limit, stop_statistic

RATIOS = torch.tensor([1.0, 0.5, 3.0, 1.5])


@pytest.mark.parametrize(
    ("statistic", "value"),
    [
        ("mean", 1.5),
        ("max", 3.0),
        # Half of the tokens are above any number from 1 up to 1.5.
        ("quantile", 1.5),
        # r - 1 - log r: 0, .1931, .9014, .0945; their mean is .29727.
        ("kl", 0.29727),
    ],
)
def test_each_statistic_trips_just_above_its_value(statistic: str, value: float) -> None:
    for limit, expected in ((value + 1e-3, False), (value - 1e-3, True)):
        cfg = EarlyStopConfig.model_validate(
            {"statistic": statistic, "limit": limit, "quantile": 0.7}
        )
        assert exceeds_limit(stop_statistic(RATIOS, cfg).mean(), cfg) == expected


def test_a_value_at_the_limit_is_trained_on() -> None:
    for cfg in (EarlyStopConfig(limit=1.5), EarlyStopConfig(limit=3.0, statistic="max")):
        assert not exceeds_limit(stop_statistic(RATIOS, cfg).mean(), cfg)


def test_what_is_no_number_trips() -> None:
    assert exceeds_limit(math.nan, EarlyStopConfig(limit=5.0))


@pytest.mark.parametrize("statistic", ["mean", "max", "quantile", "kl"])
def test_a_statistic_of_parts_adds_up_to_that_of_the_whole(statistic: str) -> None:
    cfg = EarlyStopConfig.model_validate({"statistic": statistic, "limit": 1.2})
    parts = [stop_statistic(part, cfg).sum() for part in (RATIOS[:1], RATIOS[1:])]

    torch.testing.assert_close(torch.stack(parts).sum() / 4, stop_statistic(RATIOS, cfg).mean())


@pytest.mark.parametrize(
    ("scope", "action"), [("micro_batch", "skip"), ("mini_batch", "stop"), ("step", "zero")]
)
def test_a_scope_that_does_not_go_with_its_action_is_refused(scope: str, action: str) -> None:
    with pytest.raises(
        ValidationError,
        match=f"scope = {scope} cannot be combined with action = {action}; possible: ",
    ):
        EarlyStopConfig.model_validate({"scope": scope, "action": action, "limit": 2.0})
