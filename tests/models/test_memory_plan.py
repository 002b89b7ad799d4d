"""Predictions against what was measured on one H200."""

import math

import pytest
from test_cost import HALF, SEVEN, qwen

from whet.engine.native import NativeConfig
from whet.models.cost import (
    GPUS,
    STAGING,
    layers_to_checkpoint,
    logprob_seconds,
    rollout_seconds,
    state_bytes,
    update_bytes,
    update_seconds,
)

MIDDLE = qwen(28, 1536, 12, 2, 128, 8960, 151936, tied=True)
H200 = GPUS["h200"]


@pytest.mark.parametrize(("cost", "seconds"), [(HALF, 1.21), (MIDDLE, 2.50), (SEVEN, 7.82)])
def test_rollouts_take_what_was_measured(cost, seconds):
    found = rollout_seconds(cost, H200, requests=512, rows=512, prompt_tokens=64, new_tokens=512)
    assert found == pytest.approx(seconds, rel=0.15)


@pytest.mark.parametrize(("cost", "passes", "seconds"), [(HALF, 9, 2.17), (MIDDLE, 18, 5.55)])
def test_updates_take_what_was_measured(cost, passes, seconds):
    found = update_seconds(cost, H200, sequences=512, length=576, num_targets=512, passes=passes)
    assert found == pytest.approx(seconds, rel=0.15)


@pytest.mark.parametrize(
    ("cost", "micro_batch_tokens", "peak"), [(HALF, 32768, 44.24e9), (MIDDLE, 16384, 65.28e9)]
)
def test_updates_hold_what_was_measured(cost, micro_batch_tokens, peak):
    state = state_bytes(cost.parameters, cost.width, trained=cost.parameters)
    found = sum(state.values()) + sum(
        update_bytes(cost, micro_batch_tokens=micro_batch_tokens).values()
    )
    assert found == pytest.approx(peak, rel=0.05)


def test_offloading_takes_the_optimizer_off_the_card_and_nothing_else():
    count = SEVEN.parameters
    state = state_bytes(count, 2, trained=count, offload=True, reference=True)
    assert state == {
        "weights": 2 * SEVEN.parameters,
        "optimizer": STAGING,
        "reference": 2 * SEVEN.parameters,
    }


def test_the_cache_is_counted_in_whole_pages():
    # 512 rows and the spare, nine pages of 64 tokens each for 576.
    engine = NativeConfig(max_num_seqs=512)
    for context, pages in ((576, 9), (577, 10)):
        cache = engine.cache_bytes(HALF.kv_bytes, context=context, free=math.inf)
        assert cache == 513 * pages * 64 * 12_288


def test_more_waves_take_longer_and_a_part_of_one_is_cheaper():
    def seconds(requests):
        return rollout_seconds(
            HALF, H200, requests=requests, rows=512, prompt_tokens=64, new_tokens=512
        )

    assert seconds(1024) == pytest.approx(2 * seconds(512) - 0.02)
    assert seconds(512) < seconds(600) < seconds(1024)


def test_layers_that_run_twice_keep_two_streams_each():
    plain = update_bytes(SEVEN, micro_batch_tokens=1000, checkpointed=0)
    some = update_bytes(SEVEN, micro_batch_tokens=1000, checkpointed=10)
    # A layer keeps 158,832 bytes of a token: 79,360 numbers of two bytes and 28 of four. Its inputs
    # are 2 x 3,584 x 2.
    assert plain["activations"] == 1000 * 28 * 158_832
    assert plain["activations"] - some["activations"] == 1000 * 10 * (158_832 - 14_336)
    assert {key: some[key] for key in ("gradients", "logits")} == {
        key: plain[key] for key in ("gradients", "logits")
    }


def test_a_layer_that_runs_again_may_take_more_than_the_logits_did():
    # 28 inputs, the layer itself, and the gradients of its feed-forward: 3 x 18,944 x 2 a token.
    found = update_bytes(SEVEN, micro_batch_tokens=65536, checkpointed=28)
    again = 65536 * (28 * 14_336 + 158_832 + 113_664)
    assert found["activations"] + found["logits"] == pytest.approx(again)
    assert found["activations"] > 65536 * 28 * 14_336


def test_a_single_pass_has_gradients_only_when_activations_are_gone():
    several, one = (
        update_bytes(SEVEN, micro_batch_tokens=8192, passes=passes) for passes in (2, 1)
    )
    assert several["gradients"] == 4 * SEVEN.parameters and one["gradients"] == 0
    few = update_bytes(SEVEN, micro_batch_tokens=64, passes=1)
    assert sum(few.values()) == pytest.approx(4 * SEVEN.parameters)


def test_adapters_have_small_gradients_and_none_in_the_head():
    found = update_bytes(HALF, micro_batch_tokens=64, trained=1000)
    assert found["gradients"] == 4000
    assert found["logits"] == 64 * 151_936 * 6


@pytest.mark.parametrize(("checkpointing", "layers"), [("auto", 3), ("on", 8), ("off", 0)])
def test_as_many_layers_run_twice_as_it_takes_or_as_is_said(checkpointing, layers):
    def needed(count):
        return 100.0 - 10 * count

    assert layers_to_checkpoint(needed, free=75.0, layers=8, checkpointing=checkpointing) == layers


def test_running_layers_twice_costs_a_forward_pass_and_offloading_the_way_to_the_host():
    given = {"sequences": 512, "length": 576, "num_targets": 512, "passes": 18}
    plain = update_seconds(SEVEN, H200, **given)
    twice = update_seconds(SEVEN, H200, **given, checkpointed=28)
    assert twice - plain == pytest.approx(
        512 * SEVEN.forward_flops(576, 0) / (0.75 * H200.matmul_flops_per_s)
    )
    far = update_seconds(SEVEN, H200, **given, offload=True)
    # 91.4 GB each way at 50 GB/s, in place of 28 bytes a weight at 4.3 TB/s.
    assert far - plain == pytest.approx(91.4 / 50 - 28 * 7.6156 / 4300, rel=0.01)


def test_a_reference_in_host_memory_comes_over_once():
    given = {"sequences": 512, "length": 576, "num_targets": 512}
    near, far = (
        logprob_seconds(SEVEN, H200, **given, offload=offload) for offload in (False, True)
    )
    assert far - near == pytest.approx(2 * SEVEN.parameters / 50e9)
