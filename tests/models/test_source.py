"""Where weights come from."""

from pathlib import Path

import pytest
import torch
from pydantic import ValidationError

from whet.errors import ConfigError
from whet.models.load import save_model
from whet.models.source import ModelSource, open_model, torch_device, torch_dtype
from whet.models.transformer import PackedAttention, init_weights
from whet.testing.tiny import tiny_model, tiny_policy

TEXTS = ["1 + 2", "3", "20 + 22", "42"]


def test_a_new_model_is_drawn_from_the_seed_with_a_tokenizer_of_the_texts() -> None:
    source = ModelSource(new="tiny", positions=32)

    model, tokenizer = open_model(
        source, dtype=torch.float32, device=torch_device(), texts=TEXTS, seed=4
    )
    again, _ = open_model(source, dtype=torch.float32, device=torch_device(), texts=TEXTS, seed=4)
    other, _ = open_model(source, dtype=torch.float32, device=torch_device(), texts=TEXTS, seed=5)

    assert (model.cfg.vocab_size, model.cfg.max_positions) == (tokenizer.vocab_size, 32)
    assert len(tokenizer.encode("42")) == 1
    assert torch.equal(model.embed.weight, again.embed.weight)
    assert not torch.equal(model.embed.weight, other.embed.weight)


def test_a_new_model_computes_what_it_computes_once_it_is_loaded(tmp_path: Path) -> None:
    source = ModelSource(new="tiny", positions=32)
    model, tokenizer = open_model(
        source, dtype=torch.bfloat16, device=torch_device(), texts=TEXTS, seed=4
    )
    save_model(model, tmp_path)
    tokenizer.save(tmp_path)

    stored = ModelSource(path=str(tmp_path))
    loaded, _ = open_model(stored, dtype=torch.bfloat16, device=torch_device(), texts=[], seed=0)

    assert model.rope_CD.dtype == loaded.rope_CD.dtype == torch.float32
    assert torch.equal(model.rope_CD, loaded.rope_CD)
    tokens_T = torch.arange(8, device=model.device) % model.cfg.vocab_size
    positions_T = torch.arange(20, 28, device=model.device)
    hidden = [
        network(tokens_T, positions_T, PackedAttention(torch.tensor([8], device=model.device)))
        for network in (model, loaded)
    ]
    assert torch.equal(*hidden)


def test_a_saved_policy_is_opened_with_its_tokenizer(tmp_path: Path) -> None:
    policy = tiny_policy()
    policy.save(tmp_path)

    model, tokenizer = open_model(
        ModelSource(path=str(tmp_path)),
        dtype=torch.float32,
        device=torch_device(),
        texts=[],
        seed=0,
    )

    assert torch.equal(model.embed.weight.cpu(), policy.model.embed.weight)
    assert tokenizer.vocab_size == policy.tokenizer.vocab_size


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "give path"),
        ({"path": "x", "new": "tiny"}, "not both"),
        ({"new": "gigantic"}, "should be one of tiny"),
        ({"new": "tiny", "lora": {"rank": 2}}, "give path, not new"),
    ],
)
def test_a_source_that_says_nothing_or_too_much_is_refused(
    given: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        ModelSource.model_validate(given)


def test_a_new_model_needs_texts_for_its_tokenizer() -> None:
    with pytest.raises(ConfigError, match="training texts"):
        open_model(
            ModelSource(new="tiny"), dtype=torch.float32, device=torch_device(), texts=[], seed=0
        )


def test_the_compute_type_follows_the_device_unless_it_is_named() -> None:
    assert torch_dtype("bfloat16") == torch.bfloat16
    assert torch_dtype("float32") == torch.float32
    assert torch_dtype("auto") == (
        torch.bfloat16 if torch_device().type == "cuda" else torch.float32
    )


def test_new_residual_outputs_are_scaled_down_by_depth() -> None:
    model = tiny_model()
    init_weights(model, 0)
    shrink = (2 * model.cfg.num_layers) ** -0.5
    for weight, scale in (
        (model.layers[0].qkv.weight, 1.0),
        (model.layers[0].mlp.gate_up.weight, 1.0),
        (model.layers[0].out.weight, shrink),
        (model.layers[0].mlp.down.weight, shrink),
    ):
        assert float(weight.detach().std()) == pytest.approx(
            scale * weight.shape[1] ** -0.5, rel=0.1
        )
