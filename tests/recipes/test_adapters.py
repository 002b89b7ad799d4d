"""LoRA as a user meets it: one setting of any training stage, a folder of adapters, and a plain
model on export."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from small import Pipeline, Said, whet, write

from whet.models.lora import LoraConfig
from whet.models.source import ModelSource, load_model, torch_device
from whet.store.run import RunStore
from whet.testing.fakes import example
from whet.train.learner import compute_logprobs_locally

FILE = """kind = "run"
task.name = "game24"
seed = 4
[stages.sft]
kind = "sft"
data = "{folder}/02-traces"
steps = 6
batch_size = 16
model = {{ path = "{folder}/03-sft", lora = {{ rank = 4, alpha = 8.0 }} }}
train = {{ lr = 1e-2 }}
sampling = {{ max_tokens = 24 }}
validation = {{ samples = 1 }}
[stages.rl]
kind = "rl"
model = {{ path = "@sft", lora = {{ rank = 4, alpha = 8.0 }} }}
problems = "{folder}/01-problems"
steps = 4
problems_per_step = 4
group_size = 4
sampling = {{ max_tokens = 24 }}
reward = {{ weights = {{ lines = -1.0 }} }}
algo = {{ kl_coef = 0.01 }}
train = {{ lr = 1e-2 }}
validation = {{ samples = 1 }}
save = {{ every = 1 }}
[stages.eval]
kind = "eval"
model = {{ path = "@rl" }}
problems = "{folder}/01-problems"
samples = 1
sampling = {{ max_tokens = 24 }}
"""

TASK = """from whet.tasks.game24 import Game24
from whet.types import Score, Verdict


class Additions(Game24):
    def score(self, problem, text):
        is_right = "*" not in text
        return Score(verdict=Verdict.CORRECT if is_right else Verdict.WRONG, parts={"correct": float(is_right)})
"""
DPO = """kind = "dpo"
seed = 2
steps = 8
batch_size = 16
model = {{ path = "{folder}/03-sft", lora = {{ rank = 4, alpha = 8.0 }} }}
problems = "{folder}/01-problems"
task = "{task}:Additions"
own = {{ problems = 16, samples = 8 }}
sampling = {{ max_tokens = 24 }}
train = {{ lr = 1e-2 }}
validation = {{ samples = 1 }}
"""


@pytest.fixture(scope="module")
def adapted(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("adapted")
    said = whet(
        "run", write(place / "lora.toml", FILE.format(folder=tiny.folder)), "--out", place / "run"
    )
    assert said.code == 0, said.err
    return place / "run"


def model_of(run: Path) -> Path:
    return run / str(RunStore.view(run).summary()["model"])


def logprobs(place: Path, lora: LoraConfig | None) -> np.ndarray:
    model, _ = load_model(
        ModelSource(path=str(place), lora=lora),
        dtype=torch.float32,
        device=torch_device(),
        texts=[],
        seed=0,
    )
    return np.concatenate(
        compute_logprobs_locally(model, [example(length=30, seed=seed) for seed in (1, 2)], 256)
    )


def test_sft_and_rl_hand_on_adapters_of_the_model_below(tiny: Pipeline, adapted: Path) -> None:
    for stage in ("01-sft", "02-rl"):
        folder = model_of(adapted / stage)
        assert not (folder / "model.safetensors").exists()
        row = json.loads((folder / "adapter_config.json").read_text())
        assert row["base_model_name_or_path"] == str(model_of(tiny.folder / "03-sft"))
        assert (row["r"], row["lora_alpha"]) == (4, 8.0)


def test_the_kl_of_a_first_step_is_zero_since_the_reference_is_where_it_started(
    adapted: Path,
) -> None:
    rows = [row for row in RunStore.view(adapted / "02-rl").metrics() if "policy/kl" in row]
    assert rows[0]["policy/kl"] == 0.0
    assert rows[-1]["policy/kl"] > 0.0


def test_an_export_is_a_plain_model_with_the_same_probabilities(
    adapted: Path, tmp_path: Path
) -> None:
    said = whet("export", adapted / "02-rl", tmp_path / "model")
    assert said.code == 0, said.err
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        "config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json",
    ]  # fmt: skip
    own = logprobs(model_of(adapted / "02-rl"), LoraConfig(rank=4, alpha=8.0))
    np.testing.assert_allclose(logprobs(tmp_path / "model", None), own, atol=1e-5)
    assert whet("try", tmp_path / "model", "4 6 8 1").code == 0


def test_dpo_moves_adapters_towards_what_is_preferred(tiny: Pipeline, tmp_path: Path) -> None:
    task = write(tmp_path / "additions.py", TASK)
    file = write(tmp_path / "dpo.toml", DPO.format(folder=tiny.folder, task=task))
    said = whet("dpo", file, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    rows = [row for row in RunStore.view(tmp_path / "run").metrics() if "preference/margin" in row]
    assert rows[0]["preference/margin"] == pytest.approx(0.0, abs=1e-4)
    assert rows[-1]["preference/margin"] > 0.05
    assert (model_of(tmp_path / "run") / "adapter_model.safetensors").is_file()


def test_try_answers_from_adapters(adapted: Path) -> None:
    said = whet("try", adapted / "02-rl", "4 6 8 1")
    assert said.code == 0, said.err


def test_a_run_of_adapters_that_was_stopped_ends_with_the_same_bits(
    adapted: Path, tmp_path: Path
) -> None:
    def weights(folder: Path) -> bytes:
        return (folder / "checkpoints" / "000004" / "adapter_model.safetensors").read_bytes()

    text = (adapted / "02-rl" / "config.toml").read_text()
    file = write(tmp_path / "rl.toml", text)
    assert whet("rl", file, "--out", tmp_path / "run").code == 0
    whole = weights(tmp_path / "run")
    for name in ("000004", "best.json"):
        _remove(tmp_path / "run" / "checkpoints" / name)
    _remove(tmp_path / "run" / "summary.json")
    said = whet("rl", file, "--out", tmp_path / "run", "--resume")
    assert said.code == 0, said.err
    assert "resuming from step 3" in said.err
    assert weights(tmp_path / "run") == whole


def test_adapters_of_another_shape_are_refused(adapted: Path, tmp_path: Path) -> None:
    said = refused(adapted, tmp_path, "--model.lora.rank", 8)
    assert said.last.startswith("whet: model.lora is rank 8, alpha 8 and targets q_proj, k_proj")
    said = refused(adapted, tmp_path, "--model.lora.targets", '["query"]')
    assert "model.lora.targets" in said.last and "q_proj" in said.last


def refused(adapted: Path, tmp_path: Path, *flags: object) -> Said:
    file = write(tmp_path / "rl.toml", (adapted / "02-rl" / "config.toml").read_text())
    said = whet("rl", file, "--out", tmp_path / "run", *flags)
    assert said.code == 2
    return said


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
