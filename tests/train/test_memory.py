"""What gives way to an update: nothing while there is room, then the cache, then activations; never
the gradient."""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from whet.algos.losses import token_mean
from whet.algos.objectives import sft_objective
from whet.batching.examples import Example
from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig, NativeEngine
from whet.models.cost import MEMORY_FRACTION, Cost, update_bytes
from whet.models.lora import LoraConfig, LoraTransformer
from whet.models.transformer import Transformer
from whet.testing.fakes import example
from whet.testing.tiny import tiny_model, tiny_policy
from whet.train.learner import LocalLearner, set_loss_weights
from whet.train.memory import DeviceMemory
from whet.train.optim import Optimizer
from whet.train.policy import Policy
from whet.train.settings import TrainConfig

CFG = TrainConfig(micro_batch_tokens=40)


def examples() -> list[Example]:
    return set_loss_weights(
        [example(length=length, seed=length) for length in (12, 20, 9, 16)], token_mean
    )


def awake(model: Transformer) -> NativeEngine:
    """An engine with a cache, since it has sampled."""
    engine = NativeEngine(model, NativeConfig(max_num_seqs=2), stop_tokens=frozenset())
    request = Request(
        id="a",
        prompt=np.array([1, 2], dtype=np.int32),
        sampling=SamplingParams(max_tokens=2),
        seed=0,
    )
    assert dict(engine.generate([request]))
    return engine


def is_awake(engine: NativeEngine) -> bool:
    return engine._core is not None


def needed(model: Transformer, checkpointed: int) -> float:
    """What 57 tokens in passes of 40 take, and the moments that are still to come."""
    cost = Cost(cfg=model.cfg, width=4)
    held = update_bytes(cost, micro_batch_tokens=40, passes=2, checkpointed=checkpointed)
    return (sum(held.values()) + 8 * cost.parameters) / MEMORY_FRACTION


def told(*numbers: float) -> Callable[[], float]:
    """Free memory, one number each time it is asked for; the last for ever after."""
    rest: Iterator[float] = iter(numbers)
    return lambda: next(rest, numbers[-1])


def reserve_memory(
    model: Transformer,
    cfg: TrainConfig,
    *engines: NativeEngine,
    free: Callable[[], float] | None = None,
) -> int:
    memory = DeviceMemory(model.device, free=free)
    for engine in engines:
        memory.add(engine)
    return memory.reserve(model, Optimizer(model, cfg), examples())


def test_where_an_update_fits_everything_stays() -> None:
    model = tiny_model()
    engine = awake(model)

    layers = reserve_memory(model, CFG, engine, free=told(needed(model, 0)))

    assert is_awake(engine)
    assert layers == 0


def test_where_it_does_not_the_cache_goes_first() -> None:
    model = tiny_model()
    engine, other = awake(model), awake(model)
    free = told(needed(model, 0) - 1, needed(model, 0))

    layers = reserve_memory(model, CFG, engine, other, free=free)

    assert not is_awake(engine) and not is_awake(other)
    assert layers == 0


def test_where_that_is_not_enough_as_many_layers_run_twice_as_it_takes() -> None:
    model = tiny_model()
    assert needed(model, 1) < needed(model, 0)

    assert reserve_memory(model, CFG, free=told(needed(model, 1))) == 1


def test_where_nothing_is_enough_all_layers_run_twice() -> None:
    model = tiny_model()
    assert reserve_memory(model, CFG, free=told(0.0)) == 2


@pytest.mark.parametrize(("checkpointing", "layers"), [("on", 2), ("off", 0)])
def test_a_setting_decides_whatever_the_memory(checkpointing: str, layers: int) -> None:
    cfg = CFG.model_copy(update={"gradient_checkpointing": checkpointing})
    for free in (0.0, 1e12):
        model = tiny_model()
        assert reserve_memory(model, cfg, free=told(free)) == layers


def test_moments_count_until_they_are_there() -> None:
    model = tiny_model()
    optimizer, cost = Optimizer(model, CFG), Cost(cfg=model.cfg)
    assert optimizer.unallocated_bytes == 8 * cost.parameters

    LocalLearner(model, CFG, steps=1)
    for weight in model.parameters():
        weight.grad = torch.ones_like(weight)
    optimizer.step(1e-3)

    assert optimizer.unallocated_bytes == 0


def test_on_a_cpu_there_is_always_room() -> None:
    model = tiny_model()
    engine = awake(model)

    assert reserve_memory(model, CFG, engine) == 0
    assert is_awake(engine)


def test_policies_on_one_device_share_its_memory() -> None:
    memory = DeviceMemory(torch.device("cpu"), free=told(0.0))
    first, second = tiny_policy(), tiny_policy()
    engines = [awake(policy.model) for policy in (first, second)]
    learners = [
        Policy(policy.model, policy.tokenizer, engine=engine, name="", memory=memory).build_learner(
            CFG, steps=1
        )
        for policy, engine in zip((first, second), engines, strict=True)
    ]

    learners[0].reserve_memory(examples())

    assert [is_awake(engine) for engine in engines] == [False, False]
    assert [learner.model.num_checkpointed for learner in learners] == [2, 0]


def gradients(model: Transformer, layers: int) -> dict[str, torch.Tensor]:
    model.num_checkpointed = layers
    learner = LocalLearner(
        model, TrainConfig(micro_batch_tokens=40, gradient_checkpointing="off"), steps=1
    )
    learner.accumulate(examples(), sft_objective())
    return {
        name: weight.grad.clone()
        for name, weight in model.named_parameters()
        if weight.grad is not None
    }


@pytest.mark.parametrize(("family", "tied"), [("qwen2", True), ("qwen3", False), ("llama", False)])
@pytest.mark.parametrize("layers", [1, 2])
def test_layers_that_run_twice_give_the_same_gradient_bit_for_bit(
    family: str, tied: bool, layers: int
) -> None:
    plain = gradients(tiny_model(family=family, tied=tied), 0)
    again = gradients(tiny_model(family=family, tied=tied), layers)

    assert plain.keys() == again.keys() and len(plain) > 8
    for name, expected in plain.items():
        assert torch.equal(again[name], expected), name


def test_adapters_get_the_same_gradient_too() -> None:
    def adapted() -> Transformer:
        return LoraTransformer(tiny_model(), LoraConfig(rank=4), base="", seed=1)

    plain, again = gradients(adapted(), 0), gradients(adapted(), 2)

    assert all(torch.equal(again[name], expected) for name, expected in plain.items())
    assert plain and all("lora" in name for name in plain)


def test_layers_that_run_twice_do_so_only_where_there_is_a_way_back() -> None:
    model, calls = tiny_model(), list[int]()
    model.layers[0].register_forward_pre_hook(lambda *_: calls.append(1))
    learner = LocalLearner(model, TrainConfig(gradient_checkpointing="on"), steps=1)

    learner.compute_logprobs(examples())
    assert len(calls) == 1

    learner.update(examples(), sft_objective())
    assert len(calls) == 3
