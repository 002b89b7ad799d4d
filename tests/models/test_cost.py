"""Counts against the figures of public models and against a model built here."""

import pytest

from whet.models.config import ModelConfig
from whet.models.cost import Cost
from whet.models.lora import TARGETS, LoraConfig, LoraTransformer
from whet.models.sizes import new_config
from whet.models.transformer import Transformer


def qwen(
    layers: int, hidden: int, heads: int, groups: int, size: int, inner: int, vocab: int, tied: bool
) -> Cost:
    return Cost(
        cfg=ModelConfig(
            family="qwen2",
            vocab_size=vocab,
            hidden_size=hidden,
            intermediate_size=inner,
            num_layers=layers,
            num_heads=heads,
            num_kv_heads=groups,
            head_dim=size,
            max_positions=4096,
            rope_theta=1e6,
            norm_eps=1e-6,
            tied=tied,
            qkv_bias=True,
            qk_norm=False,
        )
    )


HALF = qwen(24, 896, 14, 2, 64, 4864, 151936, tied=True)
SEVEN = qwen(28, 3584, 28, 4, 128, 18944, 152064, tied=False)


def test_public_models_have_their_published_size():
    # Qwen2.5-0.5B has 494,032,768 parameters, Qwen2.5-7B 7,615,616,512.
    assert HALF.parameters == 494_032_768
    assert SEVEN.parameters == 7_615_616_512


def test_a_token_in_the_cache_takes_the_bytes_of_its_heads():
    # 2 x 24 layers x 2 heads x 64 x 2 bytes
    assert HALF.kv_bytes == 12_288
    assert SEVEN.kv_bytes == 57_344


def test_operations_follow_the_published_rule_of_two_and_six_per_parameter():
    body, head, length = HALF.num_layer_weights, HALF.num_head_weights, 1000
    attention = 2 * 24 * 14 * 64 * length**2
    assert HALF.forward_flops(length, 400) == 2 * body * length + 2 * head * 400 + attention
    assert HALF.update_flops(length, 400) == 3 * HALF.forward_flops(length, 400)


@pytest.mark.parametrize("size", ["tiny", "mini"])
def test_counted_parameters_are_those_of_the_model(size):
    cfg = new_config(size, 300, 64)
    assert Cost(cfg=cfg).parameters == sum(
        weight.numel() for weight in Transformer(cfg).parameters()
    )


def test_adapters_are_counted_as_a_model_has_them():
    cfg = new_config("tiny", 300, 64)
    for targets in (TARGETS, ("q_proj", "v_proj"), ("down_proj",)):
        model = LoraTransformer(Transformer(cfg), LoraConfig(rank=4, targets=targets), base="")
        trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
        assert Cost(cfg=cfg).adapters(4, targets) == trained
