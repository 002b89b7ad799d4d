"""Checks that several ranks run together, each by torchrun: `python -m torch.distributed.run
--nproc-per-node 2 tests/cluster/on_ranks.py gradients OUT`. The first rank writes what it saw."""

import copy
import gc
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from whet.algos.losses import token_mean
from whet.algos.objectives import Objective, policy_objective, sft_objective
from whet.algos.preferences import PreferenceConfig, preference_objective
from whet.algos.settings import AlgoConfig
from whet.algos.values import ValueObjective
from whet.batching.examples import Example, to_batch
from whet.cluster.ranks import joined_ranks
from whet.engine.base import SamplingParams
from whet.errors import WhetError
from whet.grading.grader import Grader
from whet.models.lora import LoraConfig, LoraTransformer
from whet.models.sizes import new_config
from whet.models.transformer import Transformer, init_weights
from whet.rollout.collect import sample_and_grade
from whet.testing.contracts import check_learners
from whet.testing.fakes import SumTask, example, sum_problem
from whet.testing.tiny import tiny_model, tiny_policy
from whet.track.metrics import Clock
from whet.train.fsdp_learner import FSDPLearner
from whet.train.learner import (
    Learner,
    LocalLearner,
    forward_logprobs,
    set_loss_weights,
)
from whet.train.learner_factory import FSDPLearnerFactory
from whet.train.settings import TrainConfig
from whet.train.shards import local_rows, rank_world, shard_model
from whet.train.value_model import ValueModel
from whet.types import Json
from whet.world import ClusterConfig, World, get_world, set_world

CFG = TrainConfig(lr=1e-3, micro_batch_tokens=120)


def uneven_examples(count: int = 11) -> list[Example]:
    """Answers of many lengths, so that no number of ranks divides them evenly."""
    lengths = np.random.default_rng(0).integers(5, 40, count)
    examples = [
        example(length=int(length), start=2, advantage=float(seed % 5) - 2.0, seed=seed)
        for seed, length in enumerate(lengths)
    ]
    return set_loss_weights(examples, token_mean)


def pairs(examples: Sequence[Example]) -> list[Example]:
    return [
        replace(
            item, pair=index // 2, is_chosen=index % 2 == 0, ref_logprob_M=item.sampling_logprob_M
        )
        for index, item in enumerate(examples[: len(examples) // 2 * 2])
    ]


def valued(examples: Sequence[Example]) -> list[Example]:
    ones = np.ones(64, dtype=np.float32)
    return [
        replace(item, value_M=ones[: item.num_targets], value_target_M=ones[: item.num_targets])
        for item in examples
    ]


def make_critic(model: Transformer) -> ValueModel:
    """A critic whose head is not zero, so that its body has a gradient."""
    critic = ValueModel(model)
    torch.nn.init.normal_(critic.head.weight, generator=torch.Generator().manual_seed(0))
    return critic


def gradients(folder: Path) -> Json:
    """The largest gap between the gradient of all ranks and that of one device, in float64; the
    head of a critic is float32."""
    examples = uneven_examples()
    cases: dict[str, tuple[list[Example], Objective]] = {
        "sft": (examples, sft_objective()),
        "grpo": (examples, policy_objective(AlgoConfig())),
        "dpo": (pairs(examples), preference_objective(PreferenceConfig())),
        "critic": (valued(examples), ValueObjective(clip=None)),
    }
    gaps: dict[str, Json] = {}
    for family in ("qwen3", "qwen2"):
        for name, (given, objective) in cases.items():
            for is_tied in (False, True):
                model = tiny_model(family=family, tied=is_tied).double()
                plain = make_critic(model) if name == "critic" else copy.deepcopy(model)
                one = LocalLearner(plain, CFG, steps=1)
                all_ranks = FSDPLearner(copy.deepcopy(plain), CFG, steps=1)
                sums = [learner.accumulate(given, objective) for learner in (one, all_ranks)]
                assert sums[0].num_losses == sums[1].num_losses
                gap = abs(sums[0].loss - sums[1].loss) / max(1.0, abs(sums[0].loss))
                largest = 0.0
                weights = zip(one.model.parameters(), all_ranks.model.parameters(), strict=True)
                for own, theirs in weights:
                    gap = max(gap, float((own.grad - theirs.grad.full_tensor()).abs().max()))
                    largest = max(largest, float(own.grad.abs().max()))
                assert largest > 1e-6, "a gradient of zero would say nothing"
                gaps[f"{family} {name} {'tied' if is_tied else 'untied'}"] = gap
    return gaps


def sequences(folder: Path) -> Json:
    """As `gradients`, with two ranks to each sequence."""
    size = rank_world().size
    rank_world().configure(ClusterConfig(sequence_parallel=2 if size % 2 == 0 else 1))
    return gradients(folder)


def bits(folder: Path) -> Json:
    """Whether a sharded model computes the bits of the plain one, on the same batches."""
    batch = to_batch(uneven_examples(), torch.device("cpu"))
    equal: dict[str, Json] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for family in ("qwen3", "qwen2", "llama", "mistral"):
            plain = tiny_model(family=family).to(dtype)
            plain.rope_CD = tiny_model(family=family).rope_CD
            sharded = shard_model(plain, rank_world())
            with torch.no_grad():
                both = [forward_logprobs(model, batch)[0] for model in (plain, sharded)]
            equal[f"{family} {dtype}"] = bool(torch.equal(*both))
    return equal


def contract(folder: Path) -> Json:
    """The contract of learners, on ranks."""
    check_learners(FSDPLearnerFactory(), folder)
    return "kept"


def adapters(folder: Path) -> Json:
    """The largest gap of adapters after five steps on all ranks and on one device."""
    examples = uneven_examples()

    def train(make: Callable[..., Learner]) -> Transformer:
        model = LoraTransformer(tiny_model(), LoraConfig(rank=2), base="x", seed=3)
        learner = make(model, CFG, steps=5)
        for _ in range(5):
            learner.update(examples, sft_objective())
        learner.sync_model()
        return model

    one = train(LocalLearner)
    ranks = train(FSDPLearner)
    zipped = zip(one.parameters(), ranks.parameters(), strict=True)
    return max(float((a - b).abs().max().detach()) for a, b in zipped)


def copies(folder: Path) -> Json:
    """The largest gap of weights after five steps on two copies of shards and on one device."""
    size = rank_world().size
    return train_on_copies(size // 2 if size % 2 == 0 else 1)[1]


def whole(folder: Path) -> Json:
    """As `copies`, where each rank has all rows; first whether it trains the model itself."""
    results = train_on_copies(1)
    check_learners(FSDPLearnerFactory(), folder)
    return list(results)


def train_on_copies(shard: int) -> tuple[bool, float]:
    rank_world().configure(ClusterConfig(shard=shard))
    models = []
    makers: tuple[Callable[..., Learner], ...] = (LocalLearner, FSDPLearner)
    for make in makers:
        model = tiny_model()
        learner = make(model, CFG, steps=5)
        for count in (11, 11, 11, 1, 11):  # a single example leaves the other ranks none
            learner.update(uneven_examples(count), sft_objective())
        learner.sync_model()
        models.append(model)
    zipped = zip(models[0].parameters(), models[1].parameters(), strict=True)
    gap = max(float((a - b).abs().max().detach()) for a, b in zipped)
    return learner.model is models[1], gap


def updates(folder: Path) -> Json:
    """Names of the weights whose bits differ between ranks and one device after five updates of
    deterministic training, in which the gradient is clipped."""
    cfg = CFG.model_copy(update={"deterministic": True, "max_grad_norm": 0.1, "weight_decay": 0.1})
    differing: dict[str, Json] = {}
    for dtype in (torch.float32, torch.bfloat16):
        for family, is_tied in (("qwen3", True), ("qwen2", False)):
            states = []
            for make in (LocalLearner, FSDPLearner):
                model = tiny_model(family=family, tied=is_tied).to(dtype)
                model.rope_CD = tiny_model(family=family).rope_CD
                learner = make(model, cfg, steps=5)
                for count in (11, 11, 11, 1, 7):
                    learner.update(uneven_examples(count), sft_objective())
                learner.sync_model()
                states.append(dict(model.named_parameters()))
            one, ranks = states
            names = [name for name in one if not torch.equal(one[name], ranks[name])]
            differing[f"{family} {dtype}"] = names
    return differing


def save_critic(folder: Path) -> Json:
    """The checksum of a critic that is saved after an update."""
    learner = make_large_critic()
    learner.update(valued(uneven_examples()), ValueObjective(clip=None))
    learner.save(folder.parent)
    return sum_shards(learner)


def load_critic(folder: Path) -> Json:
    """The checksum of that critic in new processes, which hold nothing that could be used again; by
    how much making and loading it raises the peak of memory; the bytes of a shard and a layer."""
    model = tiny_model()
    FSDPLearnerFactory().build_value_learner(model, CFG, steps=2, memory=None)  # imports much
    policy = make_large_policy()
    learners: list[FSDPLearner] = []
    peaks = [
        measure_peak(lambda: learners.append(make_large_critic(policy))),
        measure_peak(lambda: learners[0].load(folder.parent, 1)),
    ]
    shard = sum(local_rows(weight).nbytes for weight in learners[0].model.parameters())
    layer = sum(weight.nbytes for weight in policy.layers[0].parameters())
    return [sum_shards(learners[0]), *peaks, shard, layer]


def make_large_policy() -> Transformer:
    policy = Transformer(replace(new_config("medium", 4000, 64), num_layers=8))
    init_weights(policy, 0)
    return policy


def make_large_critic(policy: Transformer | None = None) -> FSDPLearner:
    learner = FSDPLearnerFactory().build_value_learner(
        policy or make_large_policy(), TrainConfig(lr=1e-3), steps=2, memory=None
    )
    assert isinstance(learner, FSDPLearner)
    return learner


def sum_shards(learner: FSDPLearner) -> float:
    state = [*map(local_rows, learner.model.parameters()), *learner.optimizer.tensors().values()]
    parts = get_world().all_gather([float(rows.double().abs().sum()) for rows in state], "sums")
    return sum(value for part in parts for value in part)


def measure_peak(act: Callable[[], object]) -> int:
    """By how much the peak of this process' memory exceeds what it held before."""
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = read_memory("VmRSS")
    act()
    return read_memory("VmHWM") - before


def read_memory(field: str) -> int:
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[field].split()[0])


def skipping(folder: Path) -> Json:
    """The sentence that ends a run in which a rank skips an update."""
    learner = FSDPLearner(tiny_model(), CFG, steps=5)
    if get_world().rank == 1:
        learner.num_optim_steps += 1
    try:
        learner.update(uneven_examples(), sft_objective())
    except WhetError as error:
        return str(error)
    return "trained on"


def differing(folder: Path) -> Json:
    """The sentence that ends a run in which ranks have other examples."""
    examples = uneven_examples()
    if get_world().rank == 1:
        examples = examples[1:]
    try:
        FSDPLearner(tiny_model(), CFG, steps=5).update(examples, sft_objective())
    except WhetError as error:
        return str(error)
    return "trained on"


def counts(folder: Path) -> Json:
    """The tokens of all answers, those that the clock counted, and the peak of memory."""
    clock = Clock(peak_bytes=lambda: 10**9 * (get_world().rank + 1))
    problems = [sum_problem(1, other) for other in range(5)]
    groups = sample_and_grade(
        tiny_policy(slots=2).chat_engine,
        Grader(SumTask()),
        problems,
        SamplingParams(max_tokens=4),
        samples=2,
        seed=1,
        clock=clock,
    )
    metrics = clock.lap()
    tokens = sum(len(rollout.completion.tokens) for group in groups for rollout in group)
    counted = metrics["engine/tokens_per_s"] * metrics["time/sample"]
    return [tokens, counted, metrics["memory/peak_gb"]]


def groups(folder: Path) -> Json:
    """Whether two groups have the answers of one process, and how many tokens each rank sampled."""
    world = get_world()
    policy = tiny_policy(slots=2)

    def sample() -> list[list[int]]:
        problems = [sum_problem(1, other) for other in range(2)]
        made = sample_and_grade(
            policy.chat_engine,
            Grader(SumTask()),
            problems,
            SamplingParams(max_tokens=4),
            samples=5,
            seed=1,
        )
        return [rollout.completion.tokens.tolist() for group in made for rollout in group]

    together = sample()
    num_tokens = world.all_gather(policy.chat_engine.engine.stats.tokens, "tokens of the ranks")
    set_world(World())
    alone = sample()
    set_world(world)
    return [together == alone, *num_tokens]


def nesting(folder: Path) -> Json:
    """The sentence about ranks that are asked for while the first acts alone."""
    world = get_world()

    def act() -> str:
        try:
            world.all_gather(None, "an exchange")
        except AssertionError as error:
            return str(error)
        return "went on"

    return world.run_on_rank_zero(act, "a write")


def failing(folder: Path) -> Json:
    """What the ranks see of an error of the first."""

    def fail() -> None:
        raise WhetError("there is no room")

    try:
        get_world().run_on_rank_zero(fail, "a failure")
    except WhetError as error:
        return [str(error)] * len(get_world().all_gather(str(error), "errors"))
    return "nothing"


CHECKS = {
    check.__name__: check
    for check in (
        gradients,
        sequences,
        bits,
        contract,
        adapters,
        copies,
        whole,
        save_critic,
        load_critic,
        updates,
        skipping,
        differing,
        counts,
        groups,
        failing,
        nesting,
    )
}


def main(names: str, folder: str) -> None:
    torch.set_num_threads(1)
    results: dict[str, Json] = {}
    with joined_ranks(ClusterConfig(timeout=60.0)):
        for name in names.split(","):
            results[name] = CHECKS[name](Path(folder) / name)
            get_world().configure(ClusterConfig())
            if get_world().is_rank_zero:
                (Path(folder) / "results.json").write_text(json.dumps(results))


if __name__ == "__main__":
    main(*sys.argv[1:])
