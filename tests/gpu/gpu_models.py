"""Small models, requests and examples on a GPU, long enough for several blocks and chunks."""

import numpy as np
import torch
from torch import Tensor

from whet.batching.examples import Example
from whet.engine.base import Engine, Request, SamplingParams
from whet.engine.native import NativeConfig, NativeEngine
from whet.models.transformer import Transformer, rope_table
from whet.proofs.fixtures import make_credited_examples
from whet.rng import derive, make_numpy_rng
from whet.testing.tiny import tiny_model
from whet.types import Completion

DEVICE = torch.device("cuda")
POSITIONS = 1280
FAMILIES = ["qwen2", "qwen3", "llama", "mistral"]


def move(model: Transformer, dtype: torch.dtype = torch.bfloat16) -> Transformer:
    """Bring a model to the device as `load_model` does, its rope table in float32."""
    model.to(device=DEVICE, dtype=dtype)
    model.rope_CD = rope_table(model.cfg).to(DEVICE)
    return model


def small_model(
    family: str = "qwen3", *, dtype: torch.dtype = torch.bfloat16, seed: int = 0
) -> Transformer:
    tied = family == "qwen2"
    return move(tiny_model(family=family, tied=tied, positions=POSITIONS, seed=seed), dtype)


def native(
    model: Transformer, *, slots: int = 24, kv_cache_gb: float | None = None
) -> NativeEngine:
    cfg = NativeConfig(max_num_seqs=slots, kv_cache_gb=kv_cache_gb)
    return NativeEngine(model, cfg, stop_tokens=frozenset({3}))


def requests(
    lengths: tuple[int, ...] = (1, 2, 63, 64, 65, 200, 511, 512, 513, 700),
    *,
    samples: int = 3,
    new: int = 40,
) -> list[Request]:
    """Several samples of each prompt, so that prompts are shared, at two temperatures."""
    made = []
    for index, length in enumerate(lengths):
        prompt = make_numpy_rng(0, "gpu", index).integers(0, 50, length).astype(np.int32)
        sampling = SamplingParams(temperature=(1.0, 0.7)[index % 2], max_tokens=new)
        made += [
            Request(
                id=f"{index}/{n}", prompt=prompt, sampling=sampling, seed=derive(0, "gpu", index, n)
            )
            for n in range(samples)
        ]
    return made


def sampled(engine: Engine, asked: list[Request]) -> tuple[dict[str, Completion], list[Example]]:
    """Sample requests; what came, and the same as examples for a learner."""
    done = dict(engine.generate(asked))
    return done, make_credited_examples(asked, done)


def draw(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    source = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=source).to(DEVICE, dtype)


def grads_of(outputs: tuple[Tensor, ...], inputs: list[Tensor]) -> list[Tensor]:
    """Pull one fixed random gradient through all outputs at once."""
    slopes = [draw(*out.shape, seed=100 + i, dtype=out.dtype) for i, out in enumerate(outputs)]
    return list(
        torch.autograd.grad(
            outputs, inputs, [s.to(o.device) for s, o in zip(slopes, outputs, strict=True)]
        )
    )


def leaves(*tensors: Tensor) -> list[Tensor]:
    return [x.detach().clone().requires_grad_() for x in tensors]


def doubled(*tensors: Tensor) -> list[Tensor]:
    """The same numbers in float64, for a plain twin."""
    return [x.detach().double().requires_grad_() for x in tensors]
