"""Lengths of answers, costs of a simulation on GPUs, and the splits that `whet plan` finds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from statistics import fmean

import pytest
from small import Pipeline, whet, write

from whet.engine.native import NativeConfig
from whet.models.cost import GPUS, Cost, RankLayout, step_seconds
from whet.models.source import ModelSource
from whet.plan.cluster import Cluster
from whet.plan.lengths import LogNormal, StoredLengths, read_lengths
from whet.plan.phases import ModelJob, phases
from whet.plan.predict import shape_of
from whet.plan.simulate import Bound
from whet.plan.splits import PAUSED, PUSH_RATE, SplitWork, build_engines, build_learner, find_splits
from whet.store.run import RunStore
from whet.train.settings import TrainConfig

H100 = GPUS["h100"]
SEVEN = Cost(cfg=shape_of(ModelSource(path="Qwen/Qwen2.5-7B"), {}))
LARGE = Cost(cfg=shape_of(ModelSource(path="Qwen/Qwen2.5-32B"), {}))
JOB = ModelJob(
    cost=SEVEN, train=TrainConfig(micro_batch_tokens=8192), engine=NativeConfig(max_num_seqs=64), sequences=256, samples=8,
    prompt_tokens=512, new_tokens=1000, max_new_tokens=4000, steps=10,
)  # fmt: skip


def work(job: ModelJob = JOB, lag: int | None = 0) -> SplitWork:
    lengths = LogNormal(mean=job.new_tokens, limit=job.max_new_tokens or job.new_tokens)
    return SplitWork(job=job, lengths=lengths, lag=lag)


@pytest.mark.parametrize(("mean", "limit"), [(8000, 28_672), (700, 2048), (3600, 4000)])
def test_log_normal_lengths_have_their_mean_after_the_cut(mean: int, limit: int) -> None:
    lengths = LogNormal(mean=mean, limit=limit).draw(20_000, Random(1))
    assert fmean(lengths) == pytest.approx(mean, rel=0.02)
    assert 1 <= min(lengths) < max(lengths) == limit


def test_lengths_whose_mean_is_the_limit_are_all_equal() -> None:
    assert LogNormal(mean=50, limit=50).draw(3, Random(1)) == [50, 50, 50]


def test_stored_lengths_keep_the_responses_to_a_problem_together_and_are_cut() -> None:
    stored = StoredLengths(groups=((1, 2), (30, 40)), prompt_tokens=5, limit=35)
    drawn = {tuple(stored.draw(2, Random(seed))) for seed in range(20)}
    assert drawn == {(1, 2), (30, 35)}
    assert {*stored.draw(8, Random(0))} in ({1, 2}, {30, 35})
    assert stored.mean == 18


def test_an_engine_of_two_gpus_reads_half_the_weights_each_and_adds_sums_to_every_layer() -> None:
    one, two = (step_seconds(SEVEN, H100, 4, 100.0, tensor_parallel=size) for size in (1, 2))
    kernels = 28 * 32e-6
    assert two == pytest.approx((one - kernels) / 2 + kernels + 28 * 24e-6)


def test_engines_have_slots_for_what_their_memory_holds() -> None:
    engines = build_engines(JOB, H100, gpus=8)
    assert engines is not None
    assert (engines.count, engines.slots, engines.prompt_tokens) == (8, 64, 512)
    context = 700.0
    seconds = engines.by_rows[3] + engines.per_token * 3 * context
    assert seconds == pytest.approx(step_seconds(SEVEN, H100, 3, context))
    # 80.8 GB less 65.5 of weights hold few answers; two GPUs have 15 times the room.
    large = replace(JOB, cost=LARGE)
    one, two = (build_engines(large, H100, gpus=8, tensor_parallel=size) for size in (1, 2))
    assert one is not None and two is not None
    assert one.slots < 40 and (two.count, two.slots) == (4, 64)
    assert build_engines(replace(large, max_new_tokens=120_000), H100, gpus=8) is None


def test_an_update_of_equal_answers_takes_what_the_plan_says_and_of_unequal_ones_more() -> None:
    job = replace(JOB, engine=None).on(RankLayout(ranks=8, shard=8))
    (update,) = (phase.seconds for phase in phases(job, H100))
    equal = build_learner(job, H100, [[1000] * 8] * 32, is_collocated=False)
    assert equal.update == pytest.approx(update)
    # One of 32 answers on each rank is 9 times as long, and none other; its attention costs more.
    uneven = build_learner(job, H100, [[9000] + [1000] * 31] * 8, is_collocated=False)
    flops = SEVEN.update_flops(1512, 1000)
    ratio = (31 * flops + SEVEN.update_flops(9512, 9000)) / (32 * flops)
    assert uneven.update == pytest.approx(update * ratio)


def test_weights_are_gathered_collocated_and_sent_through_host_memory_otherwise() -> None:
    job = JOB.on(RankLayout(ranks=8, shard=8))
    near, far = (
        build_learner(job, H100, [[1000] * 8] * 32, is_collocated=collocated)
        for collocated in (True, False)
    )
    size = 2.0 * SEVEN.parameters
    assert near.push == pytest.approx(size * 7 / 8 / 350e9) and near.pause == 0
    assert far.push == pytest.approx(near.push + size / PUSH_RATE)
    assert far.pause == pytest.approx(PAUSED * far.push)


def test_splits_use_all_gpus_and_their_ages_are_those_of_their_mode() -> None:
    collocated, ahead, streamed = find_splits([work(lag=2)], Cluster(gpu="h100", gpus=16))
    assert (collocated.mode, collocated.engine_gpus, collocated.learner_gpus) == (
        "collocated", 16, 16,
    )  # fmt: skip
    assert ahead.engine_gpus + ahead.learner_gpus == 16
    assert streamed.engine_gpus + streamed.learner_gpus == 16
    assert (collocated.step.oldest, ahead.step.oldest) == (0, 1)
    assert 1 <= streamed.step.oldest <= 2
    assert streamed.step.seconds < collocated.step.seconds
    again = find_splits([work(lag=2)], Cluster(gpu="h100", gpus=16))
    assert again == [collocated, ahead, streamed]


def test_the_split_that_is_chosen_is_no_slower_than_others() -> None:
    cluster = Cluster(gpu="h100", gpus=8)
    best = {split.mode: split.step.seconds for split in find_splits([work()], cluster)}
    for engine_gpus in (2, 4, 6):
        for split in find_splits([work()], cluster, engine_gpus=engine_gpus):
            assert split.mode == "collocated" or split.engine_gpus == engine_gpus
            assert split.step.seconds >= best[split.mode] * 0.999


def test_a_learner_that_fits_no_gpu_leaves_no_split(tmp_path: Path) -> None:
    # Each of its ranks has whole weights too: 65.5 GB and what an update needs beside them.
    large = [work(replace(JOB, cost=LARGE))]
    assert find_splits(large, Cluster(gpu="h100", gpus=64)) == []
    modes = [split.mode for split in find_splits(large, Cluster(gpu="h200", gpus=64))]
    assert modes == ["collocated", "one step ahead", "streamed"]
    file = write(tmp_path / "rl.toml", FILE.replace("7B", "32B"))
    said = whet("plan", file, "--gpu", "h100", "--gpus", 64)
    assert "rl: no split of 64 h100 holds it" in said.out


def test_stages_that_only_take_turns_are_not_split_and_two_models_add_up() -> None:
    cluster = Cluster(gpu="h100", gpus=8)
    (one,) = find_splits([work(lag=None)], cluster)
    half = replace(JOB, steps=5)
    (both,) = find_splits([work(lag=None), work(half, lag=None)], cluster)
    assert both.step.seconds == pytest.approx(1.5 * one.step.seconds)


FILE = """kind = "rl"
task.name = "game24"
model = { path = "Qwen/Qwen2.5-7B" }
problems_per_step = 16
group_size = 8
sampling = { max_tokens = 512 }
engine = { max_model_len = 1024 }
train = { micro_batch_tokens = 8192 }
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    yield write(tmp_path / "rl.toml", FILE)


def test_a_plan_of_many_gpus_shows_all_modes_and_what_was_assumed(file: Path) -> None:
    said = whet("plan", file, "--gpu", "h100", "--gpus", 8, "--tokens", 100, "--lag", 2)
    assert said.code == 0, said.err
    rows = [line.split() for line in said.out.splitlines() if line.startswith(" rl ")]
    modes = {tuple(row[1:3]): row for row in rows}
    assert ("one", "step") in modes and "streamed" in {row[1] for row in rows}
    assert (
        "rl: log-normal responses of 100 tokens on average, at most 512, prompts of 64" in said.out
    )
    limit = whet("plan", file, "--gpu", "h100", "--gpus", 8, "--engines", 3)
    assert "every response of 512 tokens, the limit" in limit.out
    splits = [line.split() for line in limit.out.splitlines() if " streamed " in line]
    assert splits[0][2:4] == ["3", "5"]


def test_the_lengths_of_a_run_replace_those_that_are_assumed(file: Path, tiny: Pipeline) -> None:
    run = tiny.folder / "05-rl"
    stored = RunStore.view(run)
    rollouts = [r for step in stored.rollout_steps("train") for r in stored.rollouts("train", step)]
    lengths = read_lengths(run)
    assert sorted(n for group in lengths.groups for n in group) == sorted(
        len(rollout.completion.tokens) for rollout in rollouts
    )
    assert {len(group) for group in lengths.groups} == {4}
    said = whet("plan", file, "--gpu", "h100", "--gpus", 8, "--like", run)
    mean = round(fmean(len(rollout.completion.tokens) for rollout in rollouts))
    prompt = round(fmean(len(rollout.prompt_tokens) for rollout in rollouts))
    assert (
        f"stored responses of {mean} tokens on average, at most 24, prompts of {prompt}" in said.out
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--engines", 4), "--nodes, --price and --engines need --gpus"),
        (("--gpus", 8, "--engines", 8), "--engines is 8 of 8 GPUs, which leaves 0 to train"),
        (("--gpus", 32, "--engines", 20), "leave 1 to 8, or whole nodes of 8"),
        (("--like", "runs", "--tokens", 9), "leave --tokens and --prompt out"),
        (("--like", "nowhere"), "nowhere holds no run"),
    ],
)
def test_flags_of_a_split_that_cannot_be_are_one_sentence(
    file: Path, flags: tuple[object, ...], words: str
) -> None:
    said = whet("plan", file, "--gpu", "h100", *flags)
    assert said.code == 2 and words in said.err


def test_a_run_without_answers_is_named(file: Path, tiny: Pipeline) -> None:
    said = whet("plan", file, "--gpus", 8, "--like", tiny.folder / "03-sft")
    assert said.code == 2 and "stores no responses" in said.err


def test_more_gpus_leave_the_longest_response_as_the_bound() -> None:
    few, many = (
        find_splits([work(lag=None)], Cluster(gpu="h100", gpus=gpus))[0].step for gpus in (8, 128)
    )
    assert many.bound == Bound.LONGEST
    assert many.seconds >= 0.99 * 4000 * step_seconds(SEVEN, H100, 1, 512 + 2000)
    assert few.seconds > many.seconds
