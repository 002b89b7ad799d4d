"""What a plan says of a step: what gives way, in which order, and the least change that makes
things fit."""

from dataclasses import replace

import pytest

from whet.engine.native import NativeConfig
from whet.models.config import ModelConfig
from whet.models.cost import GB, GPU, GPUS, Cost
from whet.plan.phases import ModelJob, StepPhase, find_fit, fits, phases, suggest_change
from whet.train.settings import TrainConfig

COST = Cost(
    cfg=ModelConfig(
        family="qwen2", vocab_size=151936, hidden_size=896, intermediate_size=4864, num_layers=24, num_heads=14,
        num_kv_heads=2, head_dim=64, max_positions=32768, rope_theta=1e6, norm_eps=1e-6, tied=True, qkv_bias=True,
        qk_norm=False,
    )
)  # fmt: skip
JOB = ModelJob(
    cost=COST, train=TrainConfig(micro_batch_tokens=16384), engine=NativeConfig(max_num_seqs=512, max_model_len=576), sequences=512,
    samples=8, prompt_tokens=64, new_tokens=512, steps=10,
)  # fmt: skip
READER = replace(JOB, frozen_model=COST, frozen_model_bytes=2.0 * COST.parameters)


def card(gigabytes: float) -> GPU:
    return replace(GPUS["h200"], memory=gigabytes * GB / 0.95)


def trained(job: ModelJob, **changes: object) -> ModelJob:
    assert job.train is not None
    return replace(job, train=job.train.model_copy(update=changes))


def by_name(job: ModelJob, on: GPU) -> dict[str, StepPhase]:
    return {phase.name: phase for phase in phases(job, on)}


def test_with_room_for_all_nothing_gives_way() -> None:
    # State 6.9, update 2.0 + 15.9 + 3.8, cache 3.6 and the logits of recorded steps 0.3: 32.5 GB.
    assert find_fit(JOB, card(33.0)).keeps_cache
    found = by_name(JOB, card(33.0))
    assert [*found] == ["sample", "update"]
    assert found["update"].peak == pytest.approx(32.5e9, rel=0.01)
    assert (found["sample"].note, found["update"].note) == ("", "")


def test_the_cache_goes_before_activations_do() -> None:
    found = find_fit(JOB, card(30.0))
    assert (found.keeps_cache, found.checkpointed) == (False, 0)
    assert by_name(JOB, card(30.0))["sample"].note == "the cache is given back for the update"
    assert "cache" not in {
        name for name, size in by_name(JOB, card(30.0))["update"].held.items() if size
    }


def test_then_layers_run_twice_and_no_more_than_it_takes() -> None:
    found = find_fit(JOB, card(20.0))
    assert not found.keeps_cache and 0 < found.checkpointed < 24
    assert JOB.train is not None
    held = [
        sum((JOB.state | JOB.update_bytes(JOB.train, found.checkpointed - less)).values())
        for less in (0, 1)
    ]
    assert held[0] <= 20.0 * GB < held[1]
    assert f"{found.checkpointed} of 24 layers run twice" in by_name(JOB, card(20.0))["update"].note


def test_a_woken_cache_and_layers_that_run_twice_take_longer() -> None:
    ample, tight = by_name(JOB, card(100.0)), by_name(JOB, card(20.0))
    assert tight["sample"].seconds == pytest.approx(ample["sample"].seconds + 0.15)
    assert tight["update"].seconds > ample["update"].seconds


def test_host_memory_holds_what_the_card_does_not() -> None:
    assert JOB.host_bytes == 0
    far = trained(READER, offload_optimizer=True, offload_reference=True)
    assert far.host_bytes == 14 * COST.parameters
    assert far.state["reference"] == 0 and far.state["optimizer"] < GB
    assert replace(JOB, train=None).host_bytes == 0


def test_a_reference_in_host_memory_is_on_the_card_while_it_reads() -> None:
    read = by_name(trained(READER, offload_reference=True), GPUS["h200"])["read"]
    assert read.held["reference"] == 2 * COST.parameters and read.note == "from host memory"


@pytest.mark.parametrize(
    ("job", "gigabytes", "words"),
    [
        (READER, 14.6, "set train.offload_reference = true"),
        (trained(JOB, gradient_checkpointing="off"), 20.0, "set train.micro_batch_tokens = 4096"),
        (
            trained(JOB, gradient_checkpointing="off", micro_batch_tokens=4096),
            15.0,
            'set train.gradient_checkpointing = "auto"',
        ),
        (JOB, 9.0, "set train.offload_optimizer = true"),
        (JOB, 2.0, "take a larger card, a smaller model, or adapters (model.lora)"),
        (
            replace(JOB, train=None, engine=NativeConfig(max_num_seqs=512, max_model_len=576)),
            1.5,
            "set engine.max_num_seqs = 256",
        ),
    ],
)
def test_the_least_change_that_helps_is_named(job: ModelJob, gigabytes: float, words: str) -> None:
    assert not fits(job, card(gigabytes))
    assert suggest_change(job, card(gigabytes)) == words
