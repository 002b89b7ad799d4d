"""Model folders that cannot be used are refused in one sentence; those that can are read and
written exactly."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from whet.errors import ConfigError, DataError
from whet.models.config import (
    FAMILIES,
    DynamicRope,
    LinearRope,
    Llama3Rope,
    ModelConfig,
    RopeScaling,
    SlidingWindow,
    YarnRope,
    from_hf_config,
    to_hf_config,
)
from whet.models.cost import Cost
from whet.models.load import load_decoder, resolve
from whet.models.save import save_model
from whet.models.sizes import SIZES, new_config
from whet.models.transformer import Transformer, init_weights
from whet.types import Json


def _model() -> Transformer:
    model = Transformer(new_config("tiny", 11, 32))
    init_weights(model, 4)
    return model


def _saved(folder: Path) -> Path:
    save_model(_model(), folder)
    return folder


def _row(**changes: Json) -> dict[str, Json]:
    row: dict[str, Json] = {
        "model_type": "llama",
        "vocab_size": 128256,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 16,
        "num_attention_heads": 32,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-05,
    }
    return {**row, **changes}


LLAMA3: dict[str, Json] = {
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
    "rope_type": "llama3",
}


def test_views_write_through_to_the_fused_matrices() -> None:
    model = _model()

    views = dict(model.named_views())
    views["model.layers.1.self_attn.k_proj.weight"].fill_(3.0)
    views["model.layers.1.mlp.up_proj.weight"].fill_(5.0)

    # Tiny has four query and two key heads of 16: keys are rows 64 to 95 of 128, and up the second
    # 128 rows of 256.
    fused = model.layers[1].qkv.weight
    assert [bool((fused[row] == 3.0).all()) for row in (63, 64, 95, 96)] == [
        False,
        True,
        True,
        False,
    ]
    gate_up = model.layers[1].mlp.gate_up.weight
    assert [bool((gate_up[row] == 5.0).all()) for row in (127, 128, 255)] == [False, True, True]


def test_views_cover_every_parameter_once() -> None:
    model = _model()

    assert sum(view.numel() for _, view in model.named_views()) == sum(
        p.numel() for p in model.parameters()
    )


def test_saved_weights_come_back_bit_for_bit(tmp_path: Path) -> None:
    model = _model()
    save_model(model, tmp_path / "deep" / "folder")

    again = load_decoder(tmp_path / "deep" / "folder", dtype=torch.float32, device="cpu")

    assert again.cfg == model.cfg
    assert all(
        torch.equal(a, b) for a, b in zip(model.parameters(), again.parameters(), strict=True)
    )
    assert torch.equal(model.rope_CD, again.rope_CD)


def test_a_model_can_be_saved_in_bfloat16(tmp_path: Path) -> None:
    save_model(_model().to(torch.bfloat16), tmp_path)

    assert {tensor.dtype for tensor in load_file(tmp_path / "model.safetensors").values()} == {
        torch.bfloat16
    }
    assert json.loads((tmp_path / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_the_file_says_that_it_is_from_torch(tmp_path: Path) -> None:
    with safe_open(_saved(tmp_path) / "model.safetensors", framework="pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_a_spare_head_beside_a_tied_embedding_is_ignored(tmp_path: Path) -> None:
    weights = load_file(_saved(tmp_path) / "model.safetensors")
    spare = {
        "lm_head.weight": torch.zeros(11, 64),
        "model.layers.0.self_attn.rotary_emb.inv_freq": torch.zeros(8),
    }
    save_file({**weights, **spare}, tmp_path / "model.safetensors")

    assert load_decoder(tmp_path, dtype=torch.float32, device="cpu").head is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"model.norm.weight": None}, "lacks the tensor model.norm.weight"),
        (
            {"score.weight": torch.zeros(2)},
            "holds a tensor score.weight that the model has no place for",
        ),
        (
            {"model.norm.weight": torch.zeros(63)},
            r"model.norm.weight in .* has shape \[63\], expected \[64\]",
        ),
    ],
)
def test_a_wrong_tensor_is_named(
    change: dict[str, torch.Tensor | None], sentence: str, tmp_path: Path
) -> None:
    weights = {**load_file(_saved(tmp_path) / "model.safetensors"), **change}
    save_file(
        {name: tensor for name, tensor in weights.items() if tensor is not None},
        tmp_path / "model.safetensors",
    )

    with pytest.raises(DataError, match=sentence):
        load_decoder(tmp_path, dtype=torch.float32, device="cpu")


def test_a_cut_file_is_refused(tmp_path: Path) -> None:
    file = _saved(tmp_path) / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-100])

    with pytest.raises(DataError, match="not a readable safetensors file"):
        load_decoder(tmp_path, dtype=torch.float32, device="cpu")


@pytest.mark.parametrize(
    ("index", "sentence"),
    [
        ({"weight_map": {"a": "../model.safetensors"}}, "which is not a file in that folder"),
        ({"weight_map": {"a": "gone.safetensors"}}, "names 'gone.safetensors'"),
        ({"weight_map": {}}, "has no weight_map"),
        ([], "must hold a JSON object"),
    ],
)
def test_a_bad_index_is_refused(index: Json, sentence: str, tmp_path: Path) -> None:
    (_saved(tmp_path) / "model.safetensors").unlink()
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))

    with pytest.raises(DataError, match=sentence):
        load_decoder(tmp_path, dtype=torch.float32, device="cpu")


def test_a_folder_without_weights_is_refused(tmp_path: Path) -> None:
    (_saved(tmp_path) / "model.safetensors").rename(tmp_path / "pytorch_model.bin")

    for reader in (
        resolve,
        lambda name: load_decoder(Path(name), dtype=torch.float32, device="cpu"),
    ):
        with pytest.raises(DataError, match="safetensors weights"):
            reader(str(tmp_path))


def test_a_broken_config_file_is_refused(tmp_path: Path) -> None:
    (_saved(tmp_path) / "config.json").write_text("{")

    with pytest.raises(DataError, match=r"config\.json' cannot be read as JSON"):
        load_decoder(tmp_path, dtype=torch.float32, device="cpu")


def test_a_place_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(
        DataError,
        match=r"cannot write .*model\.safetensors: a file is where a folder is needed",
    ):
        save_model(_model(), tmp_path / "file")


def test_a_folder_resolves_to_itself(tmp_path: Path) -> None:
    assert resolve(str(_saved(tmp_path))) == tmp_path


@pytest.mark.parametrize("name", ["./nowhere", "/nowhere/at/all", "one-word", "a/b/c", "../up/x"])
def test_what_is_neither_folder_nor_hub_id_is_refused(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    with pytest.raises(DataError, match="neither a folder nor a hub id"):
        resolve(name)


def test_an_unreachable_hub_is_one_sentence(tmp_path: Path) -> None:
    lines = (
        "from whet.models.load import resolve",
        "try: resolve('some/model')",
        "except Exception as e: print(repr(e))",
    )
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(tmp_path),
        "PYTHONPATH": str(Path(__file__).parents[2]),
    }

    said = subprocess.run(
        [sys.executable, "-c", "\n".join(lines)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )

    assert said.stdout.startswith(
        "DataError(\"model 'some/model' is not a folder here and could not be downloaded from the "
        "hub: "
    )
    assert said.stdout.count("\n") == 1


@pytest.mark.parametrize(
    "scaling",
    [
        None,
        LinearRope(factor=4.0),
        DynamicRope(factor=2.0),
        Llama3Rope(
            factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_positions=64
        ),
        YarnRope(factor=4.0, original_max_positions=32, attention_factor=1.2, truncate=False),
    ],
)
def test_a_config_survives_its_json(scaling: RopeScaling | None) -> None:
    cfg = ModelConfig(
        family="llama",
        vocab_size=5,
        hidden_size=24,
        intermediate_size=40,
        num_layers=1,
        num_heads=3,
        num_kv_heads=1,
        head_dim=8,
        max_positions=128,
        rope_theta=500000.0,
        norm_eps=1e-5,
        tied=False,
        qkv_bias=False,
        qk_norm=False,
        rope_scaling=scaling,
    )
    row = to_hf_config(cfg)

    assert from_hf_config(row) == cfg
    assert (
        from_hf_config({key: value for key, value in row.items() if key != "rope_parameters"})
        == cfg
    )
    assert (
        from_hf_config(
            {key: value for key, value in row.items() if key not in ("rope_theta", "rope_scaling")}
        )
        == cfg
    )


def test_left_out_keys_take_the_family_defaults() -> None:
    cfg = from_hf_config(_row(rope_theta=500000.0, rope_scaling=LLAMA3))

    assert (cfg.num_kv_heads, cfg.head_dim, cfg.tied, cfg.rope_theta) == (32, 64, False, 500000.0)
    assert isinstance(cfg.rope_scaling, Llama3Rope)
    assert cfg.rope_scaling.original_max_positions == 8192
    assert from_hf_config(_row(model_type="qwen3")).head_dim == 128
    assert from_hf_config(_row(model_type="qwen2", head_dim=None)).head_dim == 64


def test_a_sliding_window_that_is_switched_off_is_fine() -> None:
    row = _row(
        model_type="qwen2", sliding_window=131072, use_sliding_window=False, max_window_layers=12
    )

    assert from_hf_config(row).sliding_window is None
    off = from_hf_config({**row, "use_sliding_window": True, "max_window_layers": 16})
    assert off.sliding_window is None


def test_the_layers_that_slide_are_read_and_written() -> None:
    qwen = _row(model_type="qwen2", sliding_window=9, use_sliding_window=True, max_window_layers=14)
    mistral = _row(model_type="mistral", sliding_window=9)

    assert from_hf_config(qwen).sliding_window == SlidingWindow(tokens=9, layers=(14, 15))
    assert from_hf_config(mistral).sliding_window == SlidingWindow(
        tokens=9, layers=tuple(range(16))
    )
    assert [from_hf_config(qwen).window(layer) for layer in (13, 14)] == [None, 9]
    assert from_hf_config(_row(model_type="mistral", sliding_window=None)).sliding_window is None
    for row in (qwen, mistral):
        assert from_hf_config(to_hf_config(from_hf_config(row))) == from_hf_config(row)


def test_yarn_takes_what_is_left_out_from_the_paper() -> None:
    scaling = from_hf_config(_row(rope_scaling={"type": "yarn", "factor": 4.0})).rope_scaling

    assert isinstance(scaling, YarnRope)
    assert (scaling.beta_fast, scaling.beta_slow, scaling.truncate) == (32.0, 1.0, True)
    assert scaling.attention_factor == pytest.approx(1.1386294)  # 0.1 ln 4 + 1
    assert scaling.original_max_positions == _row()["max_position_embeddings"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        (
            {"model_type": "toy"},
            f"model_type is 'toy', expected one of {', '.join(FAMILIES)}",
        ),
        ({"model_type": None}, "model_type is None"),
        ({"vocab_size": None}, "vocab_size is None, expected a whole number"),
        ({"hidden_size": "64"}, "hidden_size is '64'"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"rms_norm_eps": 0}, "rms_norm_eps is 0, expected a number above 0"),
        ({"num_key_value_heads": 5}, "32 heads must be a multiple of 5"),
        ({"head_dim": 63}, "head_dim, here 63, even"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"attention_bias": True}, "attention_bias is True"),
        ({"quantization_config": {"bits": 4}}, "quantization_config is"),
        ({"toy_key": 30.0}, "toy_key is 30.0, which whet does not know for a llama model"),
        ({"sliding_window": 9}, "sliding_window is 9, which whet does not know for a llama model"),
        (
            {"model_type": "qwen2", "layer_types": ["full_attention", "sliding_attention"]},
            "sliding_window is not set",
        ),
        (
            {"model_type": "mistral", "sliding_window": 9, "layer_types": ["chunked_attention"]},
            "layer_types are",
        ),
        ({"rope_scaling": {"type": "longrope", "factor": 4.0}}, "rope_type is 'longrope'"),
        ({"rope_scaling": "llama3"}, "rope_parameters is 'llama3', expected an object"),
        ({"rope_scaling": {"rope_type": "llama3"}}, "factor is None"),
        (
            {"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}},
            "partial_rotary_factor",
        ),
    ],
)
def test_a_config_the_decoder_would_compute_wrongly_is_refused(
    changes: dict[str, Json], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        from_hf_config(_row(**changes))


# Tiny: attention 2·(4+2)·16·64 = 12288, feed-forward 3·64·128 = 24576, norms 2·64 + 2·16 = 160;
# twice, and 64. Small: 2·(8+4)·32·256 = 196608, 3·256·768 = 589824, 2·256 + 2·32 = 576; six times,
# and 256.
@pytest.mark.parametrize(("size", "expected"), [("tiny", 74_112), ("small", 4_722_304)])
def test_a_size_counts_the_weights_it_makes(size: str, expected: int) -> None:
    assert Cost(cfg=new_config(size, 7, 16)).parameters == expected + 7 * SIZES[size].hidden_size
    model = Transformer(new_config(size, 7, 16), device="meta")
    assert (
        sum(weight.numel() for weight in model.parameters())
        == expected + 7 * SIZES[size].hidden_size
    )


def test_sizes_grow_in_the_order_of_their_names() -> None:
    names = ("tiny", "mini", "small", "medium", "large")
    counts = [Cost(cfg=new_config(name, 7, 16)).parameters for name in names]

    assert counts == sorted(counts)
    assert 70_000_000 < counts[-1] < 100_000_000


def test_an_unknown_size_is_refused_with_the_known_ones() -> None:
    with pytest.raises(
        ConfigError, match="model size is 'huge', expected one of tiny, mini, small, medium, large"
    ):
        new_config("huge", 10, 10)
