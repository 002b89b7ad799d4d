"""The models of the benches: published shapes and small ones, all with random weights."""

from collections.abc import Mapping
from types import MappingProxyType

import torch

from speed.work import Work
from whet.models.config import ModelConfig
from whet.models.sizes import new_config
from whet.models.transformer import Transformer

VOCAB = MappingProxyType({"4m": 4096, "tiny": 256, "mini": 432})
"""Vocabularies of the small shapes; mini has the one that `make train` arrives at."""


def _qwen2(
    vocab: int, hidden: int, inner: int, layers: int, heads: int, groups: int, *, tied: bool
) -> ModelConfig:
    return ModelConfig(
        family="qwen2",
        vocab_size=vocab,
        hidden_size=hidden,
        intermediate_size=inner,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=groups,
        head_dim=hidden // heads,
        max_positions=32768,
        rope_theta=1e6,
        norm_eps=1e-6,
        tied=tied,
        qkv_bias=True,
        qk_norm=False,
    )


QWEN: Mapping[str, ModelConfig] = MappingProxyType(
    {
        "0.5b": _qwen2(151936, 896, 4864, 24, 14, 2, tied=True),
        "1.5b": _qwen2(151936, 1536, 8960, 28, 12, 2, tied=True),
        "7b": _qwen2(152064, 3584, 18944, 28, 28, 4, tied=False),
    }
)
MODELS = [*QWEN, *VOCAB]


def config_of(work: Work) -> ModelConfig:
    """The shape by name. `4m` is four layers of the product's small size with a vocabulary of
    4,096."""
    if work.model in QWEN:
        return QWEN[work.model]
    name = "small" if work.model == "4m" else work.model
    cfg = new_config(name, VOCAB[work.model], max(64, work.context))
    fewer = 4 if work.model == "4m" else cfg.num_layers
    return ModelConfig(
        **{field: getattr(cfg, field) for field in cfg.__dataclass_fields__} | {"num_layers": fewer}
    )


@torch.no_grad()
def drawn(work: Work) -> Transformer:
    """Random weights of the work's model, on its device."""
    model = Transformer(config_of(work), dtype=getattr(torch, work.dtype), device=work.device)
    torch.manual_seed(work.seed)
    for name, weight in model.named_parameters():
        if weight.dim() > 1:
            weight.normal_(std=0.02)
        else:
            weight.fill_(0.0 if name.endswith("bias") else 1.0)
    return model
