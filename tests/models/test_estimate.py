"""Predictions against what was measured on one H200."""

import pytest
from test_cost import HALF, SEVEN, qwen

from whet.models import estimate
from whet.models.estimate import CARDS

MIDDLE = qwen(28, 1536, 12, 2, 128, 8960, 151936, tied=True)
H200 = CARDS["h200"]


@pytest.mark.parametrize(("cost", "seconds"), [(HALF, 1.21), (MIDDLE, 2.50), (SEVEN, 7.82)])
def test_rollouts_take_what_was_measured(cost, seconds):
    found = estimate.rollout_seconds(cost, H200, requests=512, rows=512, prompt=64, new=512)
    assert found == pytest.approx(seconds, rel=0.15)


@pytest.mark.parametrize(("cost", "passes", "seconds"), [(HALF, 9, 2.17), (MIDDLE, 18, 5.55)])
def test_updates_take_what_was_measured(cost, passes, seconds):
    found = estimate.update_seconds(cost, H200, sequences=512, length=576, scored=512, passes=passes)
    assert found == pytest.approx(seconds, rel=0.15)


@pytest.mark.parametrize(("cost", "micro_tokens", "peak"), [(HALF, 32768, 44.24e9), (MIDDLE, 16384, 65.28e9)])
def test_updates_hold_what_was_measured(cost, micro_tokens, peak):
    state = estimate.state_bytes(cost, trains=True, offload=False, reference=False)
    found = sum(state.values()) + sum(estimate.update_bytes(cost, micro_tokens=micro_tokens).values())
    assert found == pytest.approx(peak, rel=0.05)


def test_offloading_takes_the_optimiser_off_the_card_and_nothing_else():
    state = estimate.state_bytes(SEVEN, trains=True, offload=True, reference=True)
    assert state == {"weights": 2 * SEVEN.parameters, "optimiser": 0, "reference": 2 * SEVEN.parameters}


def test_the_cache_is_counted_in_whole_pages():
    # 512 rows and the spare, ten pages of 64 tokens each for 576.
    assert estimate.pool_bytes(HALF, rows=512, context=576) == 513 * 9 * 64 * 12_288
    assert estimate.pool_bytes(HALF, rows=512, context=577) == 513 * 10 * 64 * 12_288


def test_more_waves_take_longer_and_a_part_of_one_is_cheaper():
    def seconds(requests):
        return estimate.rollout_seconds(HALF, H200, requests=requests, rows=512, prompt=64, new=512)

    assert seconds(1024) == pytest.approx(2 * seconds(512) - 0.02)
    assert seconds(512) < seconds(600) < seconds(1024)
