"""Plans for many GPUs: what a rank holds and takes, which layout is chosen, and published runs."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small import whet, write

from whet.engine.native import NativeConfig
from whet.errors import ConfigError
from whet.models.cost import (
    GB,
    GPUS,
    Cost,
    RankLayout,
    exchange_seconds,
    ragged_rollout_seconds,
    rollout_seconds,
    step_seconds,
)
from whet.models.source import ModelSource
from whet.plan.cluster import (
    PUBLISHED_FACTOR,
    Cluster,
    choose_layout,
    count_fewest,
    list_layouts,
)
from whet.plan.phases import ModelJob, StepPhase, phases
from whet.plan.predict import PUBLISHED, shape_of
from whet.train.settings import TrainConfig

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "bench"))

from recipe_hours import rewrite  # noqa: E402

H100 = GPUS["h100"]
H200 = GPUS["h200"]


def published(name: str) -> Cost:
    return Cost(cfg=shape_of(ModelSource(path=name), {}))


SMALL = published("deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B")
SEVEN = published("deepseek-ai/DeepSeek-R1-Distill-Qwen-7B")
LARGE = published("Qwen/Qwen2.5-32B")
JOB = ModelJob(
    cost=SEVEN, train=TrainConfig(micro_batch_tokens=8192), engine=NativeConfig(max_model_len=4096), sequences=1024, samples=8,
    prompt_tokens=512, new_tokens=2048, steps=10,
)  # fmt: skip


def by_name(job: ModelJob, layout: RankLayout, card: str = "h100") -> dict[str, StepPhase]:
    return {phase.name: phase for phase in phases(job.on(layout), GPUS[card])}


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("Qwen/Qwen2.5-0.5B", 494_032_768),
        ("Qwen/Qwen2.5-Math-1.5B", 1_543_714_304),
        ("agentica-org/DeepScaleR-1.5B-Preview", 1_777_088_000),
        ("Qwen/Qwen2.5-7B", 7_615_616_512),
        ("Qwen/Qwen3-8B-Base", 8_190_735_360),
        ("Qwen/Qwen2.5-32B", 32_763_876_352),
    ],
)
def test_models_that_are_planned_without_their_files_have_their_published_size(
    name: str, count: int
) -> None:
    assert name in PUBLISHED
    assert published(name).parameters == count


@pytest.mark.parametrize(
    ("cost", "gpus", "gigabytes"),
    # Two bytes of whole weights and 16 of masters, moments and gradients, shared by all ranks.
    [(SEVEN, 8, 15.2 + 15.2), (LARGE, 16, 65.5 + 32.8)],
)
def test_a_rank_holds_whole_weights_and_its_share_of_the_optimizer(
    cost: Cost, gpus: int, gigabytes: float
) -> None:
    held = by_name(replace(JOB, cost=cost), RankLayout(ranks=gpus, shard=gpus))["update"].held
    state = [held[name] for name in ("weights", "masters", "moments", "gradients")]
    assert state == [size * cost.parameters for size in (2, 4 / gpus, 8 / gpus, 4 / gpus)]
    assert sum(state) == pytest.approx(gigabytes * GB, rel=0.005)


def test_replicas_hold_the_same_and_wider_shards_less() -> None:
    node, copies, wide = (
        by_name(JOB, RankLayout(ranks=ranks, shard=shard))["update"].held
        for ranks, shard in ((8, 8), (64, 8), (64, 64))
    )
    assert node["masters"] == copies["masters"] == 8 * wide["masters"]


def test_a_reference_a_critic_and_the_other_model_are_parts_of_their_own() -> None:
    other = replace(JOB, cost=SMALL)
    job = replace(
        JOB,
        frozen_model=SEVEN,
        frozen_model_bytes=2.0 * SEVEN.parameters,
        has_critic=True,
        partner=("verifier", other),
    )
    held = job.on(RankLayout(ranks=8, shard=8)).state
    assert held["reference"] == 2 * SEVEN.parameters / 8
    assert held["critic"] == 12 * SEVEN.parameters / 8
    assert held["verifier"] == (2 + 12 / 8) * SMALL.parameters


def test_adapters_shard_the_frozen_weights_with_their_masters() -> None:
    """4 bytes for each of a million trained weights, 2 for each of the 7,614,616,512 others."""
    job = replace(JOB, trained=1_000_000).on(RankLayout(ranks=8, shard=8))
    assert job.state["masters"] == (4_000_000 + 15_229_233_024) / 8
    assert job.state["moments"] == 1_000_000


def test_an_offloaded_optimizer_leaves_its_masters_as_shards() -> None:
    train = TrainConfig(micro_batch_tokens=8192, offload_optimizer=True)
    job = replace(JOB, train=train).on(RankLayout(ranks=8, shard=8))
    assert job.state["moments"] == 0 and job.state["masters"] == 4 * SEVEN.parameters / 8
    assert job.host_bytes == 8 * SEVEN.parameters / 8


def test_ranks_that_share_a_sequence_divide_its_activations_and_logits() -> None:
    one, four = (
        by_name(JOB, RankLayout(ranks=8, shard=8, sequence=size), "h200")["update"]
        for size in (1, 4)
    )
    assert one.note == four.note == ""
    assert one.held["activations"] == 4 * four.held["activations"]
    assert one.held["logits"] > four.held["logits"]
    # Each rank reads the weights in four times as many passes.
    assert one.seconds < four.seconds < 1.2 * one.seconds


def test_eight_times_the_ranks_update_in_an_eighth_of_the_time() -> None:
    one, eight = (by_name(JOB, RankLayout(ranks=ranks, shard=8))["update"] for ranks in (8, 64))
    assert one.bound == eight.bound == "arithmetic"
    assert one.seconds == pytest.approx(8 * eight.seconds, rel=0.05)


def test_the_longest_response_is_a_floor_that_no_number_of_gpus_lowers() -> None:
    job = replace(JOB, new_tokens=1000, max_new_tokens=20_000)
    floor = 20_000 * step_seconds(SEVEN, H100, 1, 512 + 10_000)
    few, many = (by_name(job, RankLayout(ranks=ranks, shard=8))["sample"] for ranks in (8, 1024))
    assert few.seconds > many.seconds >= 0.99 * floor
    assert many.bound == "the longest response"
    full = replace(job, sequences=65_536, max_new_tokens=1000)
    assert by_name(full, RankLayout(ranks=8, shard=8))["sample"].bound == "decoding"


def test_answers_of_one_length_take_as_long_as_without_a_tail() -> None:
    # Attention is linear in the context, so that its mean decides.
    batch = {"requests": 512, "rows": 128, "prompt_tokens": 64}
    ragged = ragged_rollout_seconds(SEVEN, H100, mean=1024, longest=1024, **batch)
    assert ragged == pytest.approx(rollout_seconds(SEVEN, H100, new_tokens=1024, **batch), rel=1e-6)


def test_a_cache_that_holds_few_answers_makes_sampling_slow_and_one_for_none_does_not_fit() -> None:
    layout = RankLayout(ranks=16, shard=16)
    job = replace(JOB, cost=LARGE, engine=NativeConfig(max_model_len=32_768), new_tokens=30_000)
    small, large = (by_name(job, layout, card)["sample"] for card in ("h100", "h200"))
    assert small.seconds > 3 * large.seconds
    assert by_name(job, layout, "a100-40")["sample"].peak > GPUS["a100-40"].usable


def test_weights_are_gathered_at_the_rate_of_the_link_and_gradients_summed_over_the_network() -> (
    None
):
    size = 2.0 * SEVEN.parameters
    node, replicas, wide = (
        RankLayout(ranks=ranks, shard=shard) for ranks, shard in ((8, 8), (64, 8), (64, 64))
    )
    assert node.gather_seconds(size, H100) == pytest.approx(size * 7 / 8 / 350e9)
    # A node's eight adapters of 45 GB/s bring more than NVLink takes; those of a 4090 do not.
    assert wide.gather_seconds(size, H100) == pytest.approx(size * 63 / 64 / 350e9)
    slow = GPUS["rtx4090"]
    assert wide.gather_seconds(size, slow) == pytest.approx(size * 63 / 64 / 8.8e9)
    # An eighth of the float32 gradients, sent and received by 7 of 8 replicas.
    gradients = 4.0 * SEVEN.parameters
    expected = 2 * gradients / 8 * 7 / 8 / 45e9
    assert replicas.reduce_seconds(gradients, H100) == pytest.approx(expected)
    assert node.reduce_seconds(gradients, H100) == wide.reduce_seconds(gradients, H100) == 0


def test_a_slow_network_bounds_an_update() -> None:
    update = by_name(replace(JOB, cost=SMALL), RankLayout(ranks=16, shard=16), "rtx4090")["update"]
    assert update.bound == "traffic between ranks"


def test_heads_are_exchanged_only_where_a_sequence_is_shared() -> None:
    def seconds(size: int) -> float:
        layout = RankLayout(ranks=8, shard=8, sequence=size)
        return exchange_seconds(SEVEN, H100, layout, tokens=1000, passes=2)

    assert seconds(1) == 0
    # 28 layers, 4,608 + 3,584 numbers of two bytes; each of two ranks sends half of its half.
    assert seconds(2) == pytest.approx(2 * 1000 * 28 * 8192 * 2 / 4 / 350e9)


def test_the_simplest_layout_is_chosen_where_others_gain_little() -> None:
    planned = [("rl", JOB)]
    assert choose_layout(planned, H200, Cluster(gpu="h200", gpus=64)) == RankLayout(
        ranks=64, shard=8
    )


def test_sequences_are_shared_where_one_fits_no_rank() -> None:
    train = TrainConfig(micro_batch_tokens=28_672, gradient_checkpointing="off")
    long = replace(JOB, train=train, new_tokens=28_000, engine=NativeConfig(max_model_len=28_672))
    layout = choose_layout([("rl", long)], H100, Cluster(gpu="h100", gpus=64))
    assert layout.sequence > 1
    assert by_name(long, layout)["update"].peak <= H100.usable
    alone = replace(layout, sequence=1)
    assert by_name(long, alone)["update"].peak > H100.usable


def test_a_layout_that_is_asked_for_is_kept_or_refused() -> None:
    planned = [("rl", JOB)]
    asked = Cluster(gpu="h100", gpus=64, shard=16, sequence_parallel=2)
    assert list_layouts(planned, asked) == [RankLayout(ranks=64, shard=16, sequence=2)]
    with pytest.raises(ConfigError, match=r"cluster\.shard is 12, which does not divide 64"):
        list_layouts(planned, replace(asked, shard=12))
    # 28 heads are not dealt out to eight ranks.
    with pytest.raises(
        ConfigError, match=r"cluster\.sequence_parallel is 8, possible values here: 1, 2, 4"
    ):
        list_layouts(planned, replace(asked, sequence_parallel=8))


def test_the_fewest_gpus_are_counted_in_whole_nodes_above_one() -> None:
    # 65 GB of whole weights, 11 gathered and 6 of logits fill 80 GB before any shard; another 524 / n
    # are 148 on 8 GPUs and 115 on 16.
    large = [("rl", replace(JOB, cost=LARGE))]
    assert count_fewest(large, "h100") is None
    assert count_fewest(large, "h200") == 16
    # 15 GB of weights, 122 / n of shards, 6 gathered, 5 of logits: 88 on two GPUs, 67 on three.
    assert count_fewest([("rl", JOB)], "h100") == 3


@pytest.mark.parametrize(
    ("cost", "gpus", "answers", "mean", "sampling", "step"),
    [
        # RLinf's documentation, "compare with verl", RLinf and verl: 1.5B on 8 H100.
        (SMALL, 8, 512, 13_975, 266, 346),
        (SMALL, 8, 512, 13_975, 261, 364),
        # The same page, verl: 7B on 64 H100.
        (SEVEN, 64, 2048, 10_426, 317, 447),
    ],
)
def test_published_steps_take_what_is_predicted_times_one_factor_within_a_fifth(
    cost: Cost, gpus: int, answers: int, mean: int, sampling: float, step: float
) -> None:
    job = ModelJob(
        cost=cost, train=TrainConfig(micro_batch_tokens=28_672, gradient_checkpointing="on"), engine=NativeConfig(max_model_len=28_672),
        sequences=answers, samples=16, prompt_tokens=300, new_tokens=mean, max_new_tokens=27_648, steps=1, frozen_model=cost, num_minibatches=4,
    )  # fmt: skip
    planned = by_name(job, RankLayout(ranks=gpus, shard=8))
    assert [*planned] == ["sample", "gather", "read", "update"]
    seconds = {name: PUBLISHED_FACTOR * phase.seconds for name, phase in planned.items()}
    assert seconds["sample"] == pytest.approx(sampling, rel=0.2)
    assert sum(seconds.values()) == pytest.approx(step, rel=0.2)


FILE = """kind = "rl"
task.name = "game24"
model = { path = "Qwen/Qwen2.5-7B" }
problems_per_step = 64
group_size = 8
sampling = { max_tokens = 512 }
engine = { max_model_len = 1024 }
train = { micro_batch_tokens = 8192 }
"""


def test_a_plan_of_many_gpus_says_what_a_rank_holds_the_layout_the_bound_and_the_price(
    tmp_path: Path,
) -> None:
    file = write(tmp_path / "rl.toml", FILE)
    said = whet("plan", file, "--gpu", "h100", "--gpus", 16, "--price", 2.5)
    assert said.code == 0, said.err
    assert "on each of 2 × 8 h100, shard = 8, sequence_parallel = 1" in said.out
    assert {"masters", "moments", "gradients", "gathered"} <= set(said.out.split())
    assert "bound by rl, " in said.out and "GPU-hours, $" in said.out
    assert "the fewest h100 that hold it: 3" in said.out
    halves = whet("plan", file, "--gpu", "h100", "--gpus", 16, "--nodes", 4)
    assert "on each of 4 × 4 h100, shard = 4" in halves.out


def test_what_fits_no_rank_exits_with_one_and_a_way_out(tmp_path: Path) -> None:
    file = write(tmp_path / "rl.toml", FILE.replace("7B", "32B"))
    said = whet("plan", file, "--gpu", "h100", "--gpus", 128)
    assert said.code == 1
    assert "the fewest h100 that hold it: more than 512" in said.out
    assert "GB do not fit into 80.8; take a larger card" in said.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--gpus", 13), "--gpus is 13, which 2 nodes cannot share equally"),
        (("--gpus", 12, "--nodes", 5), "5 nodes cannot share equally"),
        (("--nodes", 2), "--nodes, --price and --engines need --gpus"),
        (("--price", 2), "--nodes, --price and --engines need --gpus"),
    ],
)
def test_flags_that_do_not_go_together_are_one_sentence(
    tmp_path: Path, flags: tuple[object, ...], words: str
) -> None:
    said = whet("plan", write(tmp_path / "rl.toml", FILE), *flags)
    assert said.code == 2 and words in said.err


def test_recipes_say_what_the_plan_says_of_them() -> None:
    """`python bench/recipe_hours.py` writes these lines."""
    assert [file.name for file, _ in rewrite()] == []
