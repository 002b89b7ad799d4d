"""What a pipeline lacks is said before its first stage: all of it, without a wait for the network."""

import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants
from small import whet, write

from whet.models.save import save_model
from whet.pipeline.pipeline_config import load_pipeline
from whet.plan.requirements import explain_missing, find_missing_memory, num_parameters
from whet.testing.tiny import tiny_model


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub be a port of this machine that nobody listens on."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def recipe(folder: Path, stages: str) -> Path:
    return write(
        folder / "recipe.toml", f'kind = "run"\ntask.name = "game24"\n# A recipe.\n{stages}'
    )


def test_all_that_is_missing_is_listed_with_code_2_and_nothing_is_written(
    tmp_path: Path, no_hub: None
) -> None:
    file = recipe(
        tmp_path,
        """
        [stages.sft]
        kind = "sft"
        data = "nowhere/answers.parquet"
        model = { path = "nobody/Nothing-0.5B" }
        """,
    )

    began = time.monotonic()
    said = whet("run", file, "--out", tmp_path / "run")

    assert said.code == 2 and time.monotonic() - began < 20
    first, model, data, last = said.err.splitlines()
    assert first == "whet: this cannot run here:" and last.startswith("--smoke")
    assert data.startswith("- stages.sft: data = 'nowhere/answers.parquet' is neither a file ")
    assert model.startswith(
        "- stages.sft: model.path = 'nobody/Nothing-0.5B' is not in the cache and could not be "
        "downloaded from the hub"
    )
    assert not (tmp_path / "run").exists()


def test_a_model_too_large_for_the_device_says_what_it_would_take(
    tmp_path: Path, no_hub: None
) -> None:
    """32 thousand million weights of 4 bytes, as much for gradients and twice that for moments: 512
    GB; or 18 bytes."""
    file = recipe(tmp_path, '[stages.rl]\nkind = "rl"\nmodel = { path = "nobody/Nothing-32B" }')

    name, words = find_missing_memory(load_pipeline(file, []).config.stages) or ("", "")
    assert name == "rl"
    assert re.match(
        r"it holds about 5\d\d GB of weights, gradients and optimizer \(7 × H100", words
    )


def test_ranks_share_the_optimizer_and_each_has_whole_weights(tmp_path: Path, no_hub: None) -> None:
    """On a CPU, 32 billion weights of four bytes, and twelve of gradients and moments for eight
    ranks: 128 + 48 GB."""
    file = recipe(tmp_path, '[stages.rl]\nkind = "rl"\nmodel = { path = "nobody/Nothing-32B" }')

    missing = find_missing_memory(load_pipeline(file, []).config.stages, ranks=8)
    assert missing is not None
    assert re.search(r"1\d\d GB .*\(on each rank\), and each of 8 ranks has", missing[1])


def test_a_model_is_followed_through_the_stages_it_comes_from(tmp_path: Path, no_hub: None) -> None:
    file = recipe(
        tmp_path,
        """
        [stages.traces]
        kind = "teach"
        [stages.sft]
        kind = "sft"
        data = "@traces"
        model = { path = "nobody/Nothing-32B" }
        [stages.rl]
        kind = "rl"
        model = { path = "@sft" }
        algo = { kl_coef = 0.1 }
        """,
    )

    name, words = find_missing_memory(load_pipeline(file, []).config.stages) or ("", "")
    assert name == "rl" and re.match(r"it holds about [56]\d\d GB", words)


def test_a_run_that_has_no_model_yet_is_said_before_anything_runs(tmp_path: Path) -> None:
    write(tmp_path / "ledger.jsonl", "")
    file = recipe(tmp_path, f'[stages.rl]\nkind = "rl"\nmodel = {{ path = "{tmp_path}" }}')

    said = whet("run", file, "--out", tmp_path / "run")
    assert said.code == 2 and "has no model yet" in said.err


@pytest.mark.parametrize("model", ["./nowhere", "runs/npg_sft/02-sft", "a b/c"])
def test_a_place_that_is_no_folder_and_no_hub_id_is_not_asked_for(model: str) -> None:
    assert explain_missing(model) == "is neither a folder nor a hub id"


def test_offline_is_said_and_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)

    assert explain_missing("nobody/Nothing-7B") == (
        "is not in the cache and could not be downloaded from the hub (HF_HUB_OFFLINE is set)"
    )


def test_a_model_in_the_cache_needs_no_hub_and_half_a_model_does(
    tmp_path: Path, no_hub: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    folder = tmp_path / "models--nobody--Tiny"
    save_model(tiny_model(), folder / "snapshots" / "0a")
    (folder / "refs").mkdir()
    (folder / "refs" / "main").write_text("0a")

    assert explain_missing("nobody/Tiny") is None
    assert num_parameters("nobody/Tiny") == sum(
        weight.numel() for weight in tiny_model().parameters()
    )
    (folder / "snapshots" / "0a" / "model.safetensors").unlink()
    assert "is not in the cache" in str(explain_missing("nobody/Tiny"))


class Refusing(BaseHTTPRequestHandler):
    """A hub that is there and does not have what is asked for."""

    def do_GET(self) -> None:
        self.send_error(404)

    do_HEAD = do_GET

    def log_message(self, format: str, *args: object) -> None:
        pass


def test_a_model_that_the_hub_does_not_have_is_said_in_its_words(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as hub:
        threading.Thread(target=hub.serve_forever, daemon=True).start()
        monkeypatch.setattr(constants, "ENDPOINT", f"http://127.0.0.1:{hub.server_port}")
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        reason = explain_missing("nobody/Nothing-7B")
        hub.shutdown()

    assert reason is not None and "404" in reason and "\n" not in reason


def test_weights_are_counted_where_they_are_and_read_off_the_name_elsewhere(tmp_path: Path) -> None:
    model = tiny_model()
    save_model(model, tmp_path)

    assert num_parameters(str(tmp_path)) == sum(weight.numel() for weight in model.parameters())
    names = ("nobody/Model-1.5B-Chat", "nobody/Model-7b", "nobody/Model-30B-A3B", "nobody/Model")
    assert [num_parameters(name) for name in names] == [1.5e9, 7e9, 30e9, None]
