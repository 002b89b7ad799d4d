"""A large model is written as several files, by one rank or many, and read by rows."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from whet.errors import DataError, TrainError
from whet.models.load import load_decoder, load_shards, load_weights, locate_tensors, resolve
from whet.models.save import (
    WeightFile,
    gather_own_tensors,
    plan_files,
    save_model,
    write_config,
    write_files,
    write_index,
)
from whet.models.sizes import new_config
from whet.models.transformer import Transformer
from whet.testing.tiny import tiny_model

KINDS = [("qwen3", True), ("qwen2", False), ("llama", False), ("mistral", True)]
LIMIT = 60_000


def weights_of(model: Transformer) -> dict[str, Tensor]:
    return dict(model.named_views())


def save_on(ranks: int, model: Transformer, folder: Path, *, limit: int = LIMIT) -> list[Path]:
    """Let ranks write their files one after the other, and then the index."""
    weights = weights_of(model)
    sizes = {name: weight.nbytes for name, weight in weights.items()}
    files = plan_files(sizes, size=ranks, limit=limit)
    written = []
    for rank in range(ranks):
        share = gather_own_tensors(files, weights.__getitem__, rank=rank)
        written += write_files(folder, files, share, rank=rank)
    write_index(folder, files)
    write_config(folder, model.cfg, model.dtype)
    return written


def shards_of(model: Transformer, rank: int, size: int) -> dict[str, tuple[Tensor, int]]:
    """Zeros for the rows that FSDP2 gives a rank: those of `torch.chunk`."""
    shards = {}
    for name, weight in model.named_parameters():
        step = -(-len(weight) // size)
        start = min(rank * step, len(weight))
        rows = min(start + step, len(weight)) - start
        shards[name] = torch.zeros(rows, *weight.shape[1:]), start
    return shards


def test_what_fits_is_one_file_of_the_first_rank() -> None:
    assert plan_files({"a": 3, "b": 4}, size=2, limit=7) == [
        WeightFile(name="model.safetensors", rank=0, tensors=("a", "b"), num_bytes=7)
    ]


def test_layers_are_dealt_out_to_ranks_and_the_rest_goes_where_least_is() -> None:
    sizes = {"embed": 4} | {f"model.layers.{layer}.q": 3 for layer in range(5)} | {"norm": 1}

    files = plan_files(sizes, size=2, limit=7)

    # Rank 0 has layers 0, 2 and 4, rank 1 layers 1 and 3 and the embedding; then 9 against 10.
    assert [(file.name, file.rank, file.tensors, file.num_bytes) for file in files] == [
        ("model-00001-of-00004.safetensors", 0, ("model.layers.0.q", "model.layers.2.q"), 6),
        ("model-00002-of-00004.safetensors", 0, ("model.layers.4.q", "norm"), 4),
        ("model-00003-of-00004.safetensors", 1, ("model.layers.1.q", "model.layers.3.q"), 6),
        ("model-00004-of-00004.safetensors", 1, ("embed",), 4),
    ]


def test_a_tensor_above_the_limit_has_a_file_of_its_own() -> None:
    files = plan_files({"layers.0.a": 9, "layers.0.b": 1, "layers.0.c": 1}, limit=2)
    assert [file.tensors for file in files] == [("layers.0.a",), ("layers.0.b", "layers.0.c")]


@pytest.mark.parametrize(("family", "tied"), KINDS)
@pytest.mark.parametrize("ranks", [1, 3])
def test_transformers_opens_the_files_of_several_ranks(
    family: str, tied: bool, ranks: int, tmp_path: Path
) -> None:
    model = tiny_model(family=family, tied=tied)

    written = save_on(ranks, model, tmp_path)

    assert len(written) > ranks
    assert sorted(tmp_path.glob("*.safetensors")) == sorted(written)
    assert max(sum(x.nbytes for x in load_file(file).values()) for file in written) <= LIMIT
    _, report = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(report[kind] for kind in ("missing_keys", "unexpected_keys", "mismatched_keys"))
    foreign = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    assert all(torch.equal(foreign[name], weight) for name, weight in weights_of(model).items())


def test_the_index_counts_the_bytes_of_all_files(tmp_path: Path) -> None:
    model = tiny_model()
    save_model(model, tmp_path, limit=LIMIT)

    index = json.loads((tmp_path / "model.safetensors.index.json").read_text())

    total = sum(weight.nbytes for weight in model.parameters())
    assert index["metadata"] == {"total_size": total}
    assert index["weight_map"].keys() == weights_of(model).keys()


@pytest.mark.parametrize("limits", [(LIMIT, 10**9), (10**9, LIMIT), (LIMIT, 2 * LIMIT)])
def test_a_folder_keeps_no_weights_of_a_model_before(
    limits: tuple[int, int], tmp_path: Path
) -> None:
    (tmp_path / "model-card.safetensors").write_text("not ours")
    save_model(tiny_model(seed=1), tmp_path, limit=limits[0])
    model = tiny_model(seed=2)

    save_model(model, tmp_path, limit=limits[1])

    again = load_decoder(resolve(str(tmp_path)), dtype=torch.float32, device="cpu")
    assert all(
        torch.equal(weight, weights_of(again)[name]) for name, weight in weights_of(model).items()
    )
    stored = [name for file in tmp_path.glob("model-0*") for name in load_file(file)]
    assert len(stored) == len(set(stored))
    assert (tmp_path / "model-card.safetensors").exists()


def test_weights_that_are_not_finite_are_not_written(tmp_path: Path) -> None:
    model = tiny_model()
    weights_of(model)["model.norm.weight"].fill_(float("nan"))

    with pytest.raises(TrainError, match=r"model\.norm\.weight is no longer finite"):
        save_model(model, tmp_path, limit=LIMIT)

    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("family", "tied"), KINDS)
def test_tensors_are_located_in_the_parameters_they_are_fused_in(family: str, tied: bool) -> None:
    model = tiny_model(family=family, tied=tied)
    parameters = dict(model.named_parameters())

    locations = locate_tensors(model.cfg)

    assert locations.keys() == weights_of(model).keys()
    for name, (parameter, start, shape) in locations.items():
        rows = parameters[parameter][start : start + shape[0]]
        assert rows.data_ptr() == weights_of(model)[name].data_ptr() and rows.shape == shape


@pytest.mark.parametrize(("family", "tied"), KINDS)
@pytest.mark.parametrize("size", [1, 3, 5])
def test_each_rank_loads_its_rows(family: str, tied: bool, size: int, tmp_path: Path) -> None:
    """Of five ranks, some have no row of the smallest tensors, and some rows of two matrices."""
    model = tiny_model(family=family, tied=tied, vocab_size=7)
    save_on(2, model, tmp_path)

    loaded = [shards_of(model, rank, size) for rank in range(size)]
    for shards in loaded:
        load_shards(model.cfg, shards, tmp_path)

    for name, weight in model.named_parameters():
        assert torch.equal(torch.cat([shards[name][0] for shards in loaded]), weight), name


def test_a_shard_of_another_shape_is_refused(tmp_path: Path) -> None:
    save_model(tiny_model(vocab_size=50), tmp_path)
    other = tiny_model(vocab_size=52)

    with pytest.raises(DataError, match=r"lm_head\.weight .* \[50, 64\], expected \[52, 64\]"):
        load_shards(other.cfg, shards_of(other, 3, 4), tmp_path)
    with pytest.raises(DataError, match=r"\[50, 64\], expected \[52, 64\]"):
        load_weights(other, tmp_path)


LOAD = """
import sys
from pathlib import Path
import torch
from whet.models.config import from_hf_config
from whet.models.load import load_shards
from whet.models.sizes import new_config
from whet.models.transformer import Transformer
from whet.text.tokenizer import read_model_json

def memory(field):
    lines = dict(line.split(":") for line in Path("/proc/self/status").read_text().splitlines())
    return 1024 * int(lines[field].split()[0])

folder, rank, size = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
cfg = from_hf_config(read_model_json(folder / "config.json"))
model = Transformer(cfg, device="meta")  # torch imports much for its first meta tensor
Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
before = memory("VmRSS")
shards = {}
for name, weight in model.named_parameters():
    step = -(-len(weight) // size)
    start = min(rank * step, len(weight))
    shards[name] = torch.empty(min(step, len(weight) - start), *weight.shape[1:]), start
load_shards(cfg, shards, folder)
print(memory("VmHWM") - before, sum(rows.nbytes for rows, _ in shards.values()))
"""


def test_loading_a_shard_takes_its_own_memory_and_at_most_a_layer(tmp_path: Path) -> None:
    """The peak of resident memory, mapped pages of the files included, in a process of its own."""
    model = Transformer(replace(new_config("medium", 4000, 64), num_layers=12))
    save_on(2, model, tmp_path, limit=10**8)
    layer = sum(weight.nbytes for weight in model.layers[0].parameters())
    whole = sum(weight.nbytes for weight in model.parameters())

    done = subprocess.run(
        [sys.executable, "-c", LOAD, str(tmp_path), "1", "4"],
        capture_output=True,
        text=True,
        check=True,
    )

    peak, shard = map(int, done.stdout.split())
    assert whole / 4 <= shard <= whole / 3.9
    assert peak <= shard + layer < whole / 2
