"""The decoder against transformers: same weights, same logits, read from its folders and written to
ours."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedConfig,
    PreTrainedModel,
    Qwen2Config,
    Qwen3Config,
)

from whet.models.config import (
    DynamicRope,
    LinearRope,
    Llama3Rope,
    ModelConfig,
    SlidingWindow,
    YarnRope,
    from_hf_config,
    to_hf_config,
)
from whet.models.load import load_decoder
from whet.models.save import save_model
from whet.models.transformer import PackedAttention, Transformer, init_weights

LENGTHS = (7, 1, 40, 12)
SHAPE = {
    "vocab_size": 131,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "rms_norm_eps": 1e-5,
    "initializer_range": 0.2,
}
# With an original length of 16, the eight wavelengths of a head fall on all three branches of the
# scaling.
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 10000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 16,
}


SCALINGS: dict[str, dict[str, object]] = {
    "linear": {"rope_type": "linear", "factor": 4.0},
    "dynamic": {"rope_type": "dynamic", "factor": 2.0},
    "yarn": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16},
    "yarn with scales": {
        "rope_type": "yarn",
        "factor": 8.0,
        "original_max_position_embeddings": 8,
        "mscale": 0.7,
        "mscale_all_dim": 1.3,
        "beta_fast": 4.0,
        "truncate": False,
    },
}
FAMILIES = ["qwen2", "qwen3", "llama", "mistral", "sliding qwen2", *SCALINGS]


def _foreign_config(family: str, tied: bool) -> PreTrainedConfig:
    if family == "mistral":
        return MistralConfig(**SHAPE, sliding_window=5, tie_word_embeddings=tied)
    if family == "sliding qwen2":
        window = {"use_sliding_window": True, "sliding_window": 3, "max_window_layers": 1}
        return Qwen2Config(**SHAPE, **window, tie_word_embeddings=tied)
    if family in SCALINGS:
        rope = SCALINGS[family] | {"rope_theta": 10000.0}
        return LlamaConfig(**SHAPE, rope_parameters=rope, tie_word_embeddings=tied)
    if family == "qwen2":
        return Qwen2Config(**SHAPE, tie_word_embeddings=tied)
    if family == "qwen3":
        # Twelve a head: unlike the others, Qwen3's heads need not add up to the hidden size.
        return Qwen3Config(**SHAPE, head_dim=12, tie_word_embeddings=tied)
    return LlamaConfig(
        **{**SHAPE, "num_attention_heads": 3, "num_key_value_heads": 1},
        rope_parameters=LLAMA3,
        tie_word_embeddings=tied,
    )


ROPES = {
    "linear": LinearRope(factor=4.0),
    "dynamic": DynamicRope(factor=2.0),
    "yarn": YarnRope(factor=4.0, original_max_positions=16, attention_factor=1.3),
    "llama": Llama3Rope(
        factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=16
    ),
}
OWN = ["qwen2", "qwen3", "mistral", "sliding qwen2", *ROPES]


def _own_config(family: str, tied: bool) -> ModelConfig:
    slides = family in ("mistral", "sliding qwen2")
    layers = (0, 1) if family == "mistral" else (1,)
    scaling = ROPES.get(family)
    family = "llama" if scaling is not None else family.removeprefix("sliding ")
    return ModelConfig(
        family=family,
        vocab_size=131,
        hidden_size=48,
        intermediate_size=80,
        num_layers=2,
        num_heads=6,
        num_kv_heads=2,
        head_dim=16 if family == "qwen3" else 8,
        max_positions=64,
        rope_theta=5000.0,
        norm_eps=1e-5,
        tied=tied,
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        rope_scaling=scaling,
        sliding_window=SlidingWindow(tokens=5, layers=layers) if slides else None,
    )


def _sequences() -> list[Tensor]:
    source = torch.Generator().manual_seed(3)
    return [torch.randint(0, 131, (length,), generator=source) for length in LENGTHS]


@torch.no_grad()
def _packed_logits(model: Transformer, sequences: list[Tensor]) -> Tensor:
    lengths_S = torch.tensor([len(sequence) for sequence in sequences])
    positions_T = torch.cat([torch.arange(len(sequence)) for sequence in sequences])
    return model.logits(model(torch.cat(sequences), positions_T, PackedAttention(lengths_S)))


@torch.no_grad()
def _foreign_logits(model: PreTrainedModel, sequences: list[Tensor]) -> Tensor:
    return torch.cat([model(sequence[None]).logits[0] for sequence in sequences])


def _shake(parameters: list[Tensor]) -> None:
    """Move biases and norms off their zeros and ones, so that one left out is noticed."""
    source = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for weight in parameters:
            if weight.dim() == 1:
                weight.add_(torch.randn(weight.shape, generator=source) * 0.3)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_written_by_transformers_gives_the_same_logits(
    family: str, tied: bool, tmp_path: Path
) -> None:
    torch.manual_seed(1)
    foreign = AutoModelForCausalLM.from_config(
        _foreign_config(family, tied), dtype=torch.float32
    ).eval()
    _shake(list(foreign.parameters()))
    foreign.save_pretrained(tmp_path)

    own = load_decoder(tmp_path, dtype=torch.float32, device="cpu")

    expected = _foreign_logits(foreign, _sequences())
    assert expected.std() > 0.5
    torch.testing.assert_close(_packed_logits(own, _sequences()), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("family", OWN)
def test_a_folder_written_here_gives_transformers_the_same_logits(
    family: str, tied: bool, tmp_path: Path
) -> None:
    own = Transformer(_own_config(family, tied))
    init_weights(own, 2)
    _shake(list(own.parameters()))
    save_model(own, tmp_path, eos_tokens=[7, 9])

    foreign = AutoModelForCausalLM.from_pretrained(tmp_path, dtype="auto").eval()

    assert foreign.config.model_type == own.cfg.family
    assert foreign.dtype == torch.float32
    assert foreign.generation_config.eos_token_id == [7, 9]
    expected = _foreign_logits(foreign, _sequences())
    torch.testing.assert_close(_packed_logits(own, _sequences()), expected, atol=1e-5, rtol=1e-5)


def test_shards_are_read_like_one_file(tmp_path: Path) -> None:
    torch.manual_seed(1)
    foreign = AutoModelForCausalLM.from_config(
        _foreign_config("qwen3", False), dtype=torch.float32
    ).eval()
    foreign.save_pretrained(tmp_path, max_shard_size="60KB")
    assert len(list(tmp_path.glob("model-*.safetensors"))) > 2

    own = load_decoder(tmp_path, dtype=torch.float32, device="cpu")

    expected = _foreign_logits(foreign, _sequences())
    torch.testing.assert_close(_packed_logits(own, _sequences()), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", OWN)
def test_packed_sequences_do_not_see_each_other(family: str) -> None:
    own = Transformer(_own_config(family, True))
    init_weights(own, 2)

    alone = torch.cat([_packed_logits(own, [sequence]) for sequence in _sequences()])

    torch.testing.assert_close(_packed_logits(own, _sequences()), alone, atol=1e-5, rtol=0)


CONFIGS = [Qwen2Config, Qwen3Config, LlamaConfig, MistralConfig]


@pytest.mark.parametrize("family", CONFIGS)
def test_every_key_that_transformers_writes_is_known(family: type[PreTrainedConfig]) -> None:
    row = family().to_dict()

    assert from_hf_config(row).num_layers == row["num_hidden_layers"]
    assert from_hf_config({**row, "some_new_key": False}) == from_hf_config(row)


REQUIRED = {
    "vocab_size": 131,
    "hidden_size": 256,
    "intermediate_size": 80,
    "num_hidden_layers": 30,
    "num_attention_heads": 64,
    "max_position_embeddings": 9000,
}


@pytest.mark.parametrize("given", [{}, {"use_sliding_window": True}], ids=["bare", "sliding"])
@pytest.mark.parametrize("family", CONFIGS)
def test_absent_keys_mean_what_they_mean_to_transformers(
    family: type[PreTrainedConfig], given: dict[str, bool]
) -> None:
    if given and "use_sliding_window" not in family().to_dict():
        pytest.skip("the family has no such key")
    row = {"model_type": family.model_type, **REQUIRED, **given}

    assert from_hf_config(row) == from_hf_config(family(**REQUIRED, **given).to_dict())


def test_a_mistral_without_a_window_is_one_to_transformers() -> None:
    row = {"model_type": "mistral", **REQUIRED, "sliding_window": None}

    assert MistralConfig(**to_hf_config(from_hf_config(row))).sliding_window is None
