"""Adapters: fresh ones change nothing, trained ones are what a merged matrix would be, and only
they learn."""

import json
from pathlib import Path

import pytest
import torch
from pydantic import ValidationError
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from whet.errors import DataError
from whet.models.lora import (
    TARGETS,
    LoraConfig,
    LoraLinear,
    LoraTransformer,
    Target,
    copy_trainable,
    load_adapters,
    read_adapter,
    save_adapters,
)
from whet.models.save import save_model
from whet.models.transformer import PackedAttention, Transformer
from whet.testing.rounding import logprob_bound
from whet.testing.tiny import tiny_model

LORA = LoraConfig(rank=3, alpha=6.0)
FAMILIES = [("qwen2", True), ("qwen3", False), ("llama", True)]
TOKENS = torch.tensor([3, 14, 15, 9, 26, 5, 35, 8])
SOME: list[tuple[Target, ...]] = [TARGETS, ("k_proj",), ("q_proj", "v_proj"), ("up_proj", "o_proj")]


def logits(model: Transformer) -> Tensor:
    attend = PackedAttention(torch.tensor([5, 3]))
    return model.logits(model(TOKENS, torch.tensor([0, 1, 2, 3, 4, 0, 1, 2]), attend))


def adapted(
    lora: LoraConfig = LORA, *, family: str = "qwen3", tied: bool = True, seed: int = 0
) -> LoraTransformer:
    """A decoder whose adapters have learned something."""
    model = LoraTransformer(tiny_model(family=family, tied=tied), lora, base="base", seed=seed)
    source = torch.Generator().manual_seed(seed + 1)
    for _, _, B in model.adapters():
        B.copy_(torch.randn(B.shape, generator=source) * 0.2)
    return model


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
@torch.no_grad()
def test_fresh_adapters_change_not_one_bit(family: str, tied: bool) -> None:
    plain = logits(tiny_model(family=family, tied=tied))
    assert torch.equal(
        logits(LoraTransformer(tiny_model(family=family, tied=tied), LORA, base="")), plain
    )


@torch.no_grad()
def test_one_adapter_by_hand() -> None:
    """W x + (6 / 3) B A x with W = 0, A x = (3, 0, 0), and B spreading it over two rows of four: 2
    · (3, 6)."""
    model = LoraTransformer(
        tiny_model(), LoraConfig(rank=3, alpha=6.0, targets=("up_proj",)), base=""
    )
    projection = model.layers[0].mlp.gate_up
    assert isinstance(projection, LoraLinear)
    projection.weight.zero_()
    projection.lora_A.zero_()[0, :3] = 1.0
    projection.lora_B.zero_()[:2, 0] = torch.tensor([1.0, 2.0])
    found = projection(torch.ones(1, 64))[0]
    assert found[128:130].tolist() == [6.0, 12.0]
    assert not found[:128].any() and not found[130:].any()


@pytest.mark.parametrize("targets", SOME)
@pytest.mark.parametrize(("family", "tied"), FAMILIES)
@torch.no_grad()
def test_logits_are_those_of_weights_merged_by_hand(
    family: str, tied: bool, targets: tuple[Target, ...]
) -> None:
    model = adapted(LoraConfig(rank=3, alpha=6.0, targets=targets), family=family, tied=tied)
    by_hand = tiny_model(family=family, tied=tied)
    views = dict(by_hand.named_views())
    for name, A, B in model.adapters():
        views[f"{name}.weight"] += 2.0 * B @ A
    found = logits(model)
    torch.testing.assert_close(found, logits(by_hand), atol=logprob_bound(by_hand), rtol=0)
    assert (found - logits(tiny_model(family=family, tied=tied))).abs().max() > 0.01
    torch.testing.assert_close(logits(model.merge()), found, atol=logprob_bound(by_hand), rtol=0)


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
def test_gradients_follow_from_those_of_the_merged_weights(family: str, tied: bool) -> None:
    """With W' = W + s B A and G the gradient of W': that of B is s G Aᵀ, that of A is s Bᵀ G."""
    model, plain = adapted(family=family, tied=tied), adapted(family=family, tied=tied).merge()
    pull = torch.randn(8, 50, generator=torch.Generator().manual_seed(3))
    (logits(model) * pull).sum().backward()
    (logits(plain) * pull).sum().backward()
    by_name = _gradients(plain)
    checked = 0
    for layer, projections in enumerate(model.layers):
        for projection in (
            module for module in projections.modules() if isinstance(module, LoraLinear)
        ):
            assert projection.lora_A.grad is not None and projection.lora_B.grad is not None
            parts = [part for part in projection.fused if part.is_adapted]
            d_A, d_B = (
                projection.lora_A.grad.split(3),
                projection.lora_B.grad.split([part.rows for part in parts]),
            )
            for part, (_, A, B), dA, dB in zip(parts, projection.slices(), d_A, d_B, strict=True):
                G = by_name[f"model.layers.{layer}.{part.name}.weight"]
                torch.testing.assert_close(dB, 2 * G @ A.T, atol=2e-4, rtol=1e-4)
                torch.testing.assert_close(dA, 2 * B.T @ G, atol=2e-4, rtol=1e-4)
                checked += 1
    assert checked == 2 * 7
    trained = {name for name, weight in model.named_parameters() if weight.grad is not None}
    assert trained == {name for name, _ in model.named_parameters() if ".lora_" in name}


def _gradients(model: Transformer) -> dict[str, Tensor]:
    """Gradients under Hugging Face names, through a model whose weights they are."""
    holder = tiny_model(family=model.cfg.family, tied=model.cfg.tied)
    with torch.no_grad():
        for place, weight in zip(holder.parameters(), model.parameters(), strict=True):
            place.copy_(weight.grad if weight.grad is not None else torch.zeros_like(weight))
    return dict(holder.named_views())


def test_a_twin_shares_what_is_frozen_and_copies_what_learns() -> None:
    model = adapted()
    other = copy_trainable(model)
    assert isinstance(other, LoraTransformer)
    mine, its = dict(model.named_parameters()), dict(other.named_parameters())
    assert mine.keys() == its.keys()
    for name, weight in mine.items():
        assert (weight.data_ptr() == its[name].data_ptr()) == (".lora_" not in name), name
        assert weight.requires_grad == its[name].requires_grad == (".lora_" in name)
    assert other.rope_CD is model.rope_CD
    assert torch.equal(logits(model), logits(other))


def test_files_have_the_names_and_shapes_of_peft(tmp_path: Path) -> None:
    model = adapted(LoraConfig(rank=3, alpha=6.0, targets=("down_proj", "k_proj")))
    save_adapters(model, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    shapes = {
        name: tuple(tensor.shape)
        for name, tensor in load_file(tmp_path / "adapter_model.safetensors").items()
    }
    assert shapes == {
        f"base_model.model.model.layers.{layer}.{name}": shape
        for layer in (0, 1)
        for name, shape in {
            "self_attn.k_proj.lora_A.weight": (3, 64),
            "self_attn.k_proj.lora_B.weight": (32, 3),
            "mlp.down_proj.lora_A.weight": (3, 128),
            "mlp.down_proj.lora_B.weight": (64, 3),
        }.items()
    }
    row = json.loads((tmp_path / "adapter_config.json").read_text())
    assert (row["peft_type"], row["task_type"], row["base_model_name_or_path"]) == (
        "LORA",
        "CAUSAL_LM",
        "base",
    )
    assert (row["r"], row["lora_alpha"], row["target_modules"]) == (3, 6.0, ["k_proj", "down_proj"])
    assert (row["bias"], row["use_rslora"], row["use_dora"], row["fan_in_fan_out"]) == (
        "none",
        False,
        False,
        False,
    )


@pytest.mark.parametrize(("family", "tied"), FAMILIES)
@torch.no_grad()
def test_the_names_lead_to_the_modules_of_transformers(
    tmp_path: Path, family: str, tied: bool
) -> None:
    """What peft does with the files: each A and B belong to the module of that name."""
    model = adapted(family=family, tied=tied)
    save_model(tiny_model(family=family, tied=tied), tmp_path)
    save_adapters(model, tmp_path)
    theirs = AutoModelForCausalLM.from_pretrained(_without_adapter(tmp_path)).eval()
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    for key in (key for key in tensors if ".lora_A." in key):
        module = theirs.get_submodule(
            key.removeprefix("base_model.model.").removesuffix(".lora_A.weight")
        )
        module.weight += (6.0 / 3) * tensors[key.replace("lora_A", "lora_B")] @ tensors[key]
    expected = theirs(TOKENS[None, :5]).logits[0]
    torch.testing.assert_close(logits(model)[:5], expected, atol=1e-4, rtol=0)


def _without_adapter(folder: Path) -> Path:
    """Transformers asks for peft where it sees an adapter's settings, so they go out of its
    sight."""
    (folder / "adapter_config.json").rename(folder.parent / "kept.json")
    return folder


def test_adapters_come_back_bit_for_bit_and_in_place(tmp_path: Path) -> None:
    model, other = adapted(seed=1), adapted(seed=2)
    addresses = [weight.data_ptr() for weight in other.parameters()]
    save_adapters(model, tmp_path)
    assert read_adapter(tmp_path)[1] == LORA
    load_adapters(other, tmp_path)
    for (name, A, B), (_, its_A, its_B) in zip(model.adapters(), other.adapters(), strict=True):
        assert torch.equal(A, its_A) and torch.equal(B, its_B), name
    assert [weight.data_ptr() for weight in other.parameters()] == addresses


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"peft_type": "IA3"}, "peft_type"),
        ({"use_dora": True}, "use_dora = True"),
        ({"bias": "all"}, "bias = 'all'"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"target_modules": "all-linear"}, "target_modules"),
        ({"target_modules": ["query"]}, "targets are q_proj"),
        ({"base_model_name_or_path": None}, "base_model_name_or_path"),
        ({"r": "many"}, "r, lora_alpha"),
        ({"r": 2**60}, "but r is 1152921504606846976"),
    ],
)
def test_settings_that_would_be_computed_wrongly_are_refused(
    tmp_path: Path, change: dict[str, object], words: str
) -> None:
    save_adapters(adapted(), tmp_path)
    file = tmp_path / "adapter_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(DataError, match=words):
        read_adapter(tmp_path)


@pytest.mark.parametrize(
    "kind", ["lacks", "no place for", "has shape", "not a readable", "cannot be read", "object"]
)
def test_a_spoiled_file_is_named(tmp_path: Path, kind: str) -> None:
    model = adapted()
    save_adapters(model, tmp_path)
    file, config = tmp_path / "adapter_model.safetensors", tmp_path / "adapter_config.json"
    tensors = load_file(file)
    first = min(tensors)
    changed = {
        "lacks": {name: tensor for name, tensor in tensors.items() if name != first},
        "no place for": {**tensors, "stray": torch.zeros(1)},
        "has shape": {**tensors, first: torch.zeros(1)},
    }
    if kind in changed:
        save_file(changed[kind], file)
    elif kind == "not a readable":
        file.write_bytes(file.read_bytes()[:40])
    else:
        config.write_text("[]" if kind == "object" else "{")
    with pytest.raises(DataError, match=kind):
        read_adapter(tmp_path)
        load_adapters(model, tmp_path)


def test_a_file_in_the_way_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(DataError, match=r"cannot write .*adapter_model\.safetensors"):
        save_adapters(adapted(), tmp_path / "file")


def test_targets_are_in_the_order_of_the_layer_and_at_least_one() -> None:
    assert LoraConfig(targets=("down_proj", "q_proj")) == LoraConfig(
        targets=("q_proj", "down_proj")
    )
    with pytest.raises(ValidationError, match="at least one"):
        LoraConfig(targets=())
