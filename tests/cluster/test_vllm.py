"""Real vLLM servers: GRPO with weights pushed in place, and faults named and survived.

vLLM has an environment of its own, `.venv-vllm`, which `make test-cluster` sets up.
"""

import asyncio
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import safetensors.torch
from small import TINY, whet, write

from whet.engine.fleet import Fleet
from whet.store.run import RunStore
from whet.testing.server import Asked, CannedReply, serve_replies

ROOT = Path(__file__).parents[2]
PYTHON = Path(os.environ.get("WHET_TEST_VLLM", ROOT / ".venv-vllm/bin/python"))
pytestmark = [
    pytest.mark.cluster,
    pytest.mark.skipif(
        not PYTHON.is_file(), reason="vLLM is not installed (make test-cluster installs it)"
    ),
]
START_SECONDS = 300.0
RL = """kind = "rl"
task.name = "game24"
problems = "{folder}/01-problems"
model = {{ path = "{folder}/03-sft" }}
seed = 3
steps = {steps}
lag = 1
problems_per_step = 6
group_size = 4
sampling = {{ max_tokens = 24 }}
reward = {{ weights = {{ finished = 1.0, lines = -0.1 }} }}
train = {{ lr = 1e-3 }}
validation = {{ every = 0 }}
save = {{ every = 100 }}
engine = {{ kind = "vllm", urls = ["{url}"], max_num_seqs = 32, wait = {wait} }}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Problems and a fine-tuned model; vLLM on a CPU wants heads of 32 or more."""
    place = tmp_path_factory.mktemp("vllm")
    text = TINY.partition("[stages.sft_eval]")[0].replace('"tiny"', '"mini"')
    said = whet("run", write(place / "sft.toml", text), "--out", place / "run")
    assert said.code == 0, said.err
    said = whet("export", place / "run", place / "model")
    assert said.code == 0, said.err
    return place


class Server:
    """A vLLM server of the model, on a free port."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.start()

    def start(self) -> None:
        options = {
            "--model": self.folder / "model",
            "--port": self.port,
            "--host": "127.0.0.1",
            "--dtype": "float32",
            "--max-model-len": 48,
            "--max-num-seqs": 64,
        }
        flags = [str(word) for pair in options.items() for word in pair]
        environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"} | {
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }
        module = "vllm.entrypoints.openai.api_server"
        with (self.folder / "vllm.log").open("a") as log:
            self.process = subprocess.Popen(
                [PYTHON, "-m", module, *flags, "--enforce-eager", "--enable-scale-out"],
                env=environment,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def await_health(self) -> None:
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            assert self.process.poll() is None, (self.folder / "vllm.log").read_text()[-2000:]
            try:
                urllib.request.urlopen(f"{self.url}/health", timeout=5)
                return
            except (urllib.error.URLError, OSError):
                time.sleep(0.5)
        raise AssertionError("vLLM has not started")

    def kill(self) -> None:
        """End the server and the processes that it started, and nobody else's."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    server = Server(folder)
    try:
        server.await_health()
        yield server
    finally:
        server.kill()


@pytest.fixture
def gaps(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[float]]:
    """The canary's gap of every push."""
    found: list[float] = []
    seconds: list[float] = []
    load = Fleet.load_weights

    def record(self: Fleet, *args: object) -> None:
        load(self, *args)  # type: ignore[arg-type]
        found.append(self.canary_gap)
        seconds.append(self.push_seconds)

    monkeypatch.setattr(Fleet, "load_weights", record)
    yield found
    print(
        f"{len(found)} pushes of {min(seconds):.2f} to {max(seconds):.2f} s, canary {max(found):.1e}"
    )


def train(folder: Path, out: Path, url: str, *, steps: int, wait: float) -> str:
    file = write(
        out.with_suffix(".toml"), RL.format(folder=folder / "run", url=url, steps=steps, wait=wait)
    )
    said = whet("rl", file, "--out", out)
    assert said.code == 0, said.err
    rows = [row for row in RunStore.view(out).metrics() if "reward/mean" in row]
    assert len(rows) == steps
    gaps = [row["policy/engine_gap"] for row in rows if "policy/engine_gap" in row]
    print(f"engine_gap {max(gaps):.1e} at most, in {len(gaps)} steps with a gradient")
    for step in range(1, steps + 1):
        rollouts = RunStore.view(out).rollouts("train", step)
        assert len(rollouts) == 24
        assert {r.completion.policy_version for r in rollouts} == {max(step - 2, 0)}
    return said.err


def test_twenty_steps_of_grpo_with_pushes_in_place_keep_the_canary_within_1e_5(
    folder: Path, server: Server, gaps: list[float], tmp_path: Path
) -> None:
    train(folder, tmp_path / "run", server.url, steps=20, wait=120)
    assert len(gaps) >= 21 and max(gaps) <= 1e-5


@contextmanager
def faulty_proxy(server: Server, faults: dict[tuple[str, int], str]) -> Iterator[str]:
    """Pass calls on to a server; the n-th call of an endpoint may go wrong."""
    counts: Counter[str] = Counter()

    def send(target: str, body: dict[str, object] | None) -> CannedReply:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(server.url + target, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as reply:
                return CannedReply(body=reply.read())
        except urllib.error.HTTPError as error:
            return CannedReply(status=error.code, body=error.read())

    async def decide(asked: Asked) -> CannedReply:
        path = asked.target.partition("?")[0]
        counts[path] += 1
        fault = faults.get((path, counts[path]))
        body: dict[str, object] = dict(asked.body)
        if fault == "hang":
            await asyncio.Event().wait()
        if fault == "old version":
            return CannedReply(body=b'{"success": true}')
        if fault == "stale tensor":
            body = {"method": "reload_weights", "kwargs": {"weights_path": without_head(body)}}
        if fault == "push in mid-batch":
            await asyncio.to_thread(send, "/update_weight_version", {"new_version": "99"})
        return await asyncio.to_thread(send, asked.target, body)

    gets = {path: send(path, None).body for path in ("/openapi.json", "/v1/models")}
    with serve_replies(decide, gets) as listening:
        yield listening.url.removesuffix("/v1")


def without_head(body: dict[str, object]) -> str:
    """Copy pushed weights without their head: vLLM then keeps the old one of a tied model."""
    arguments = body["kwargs"]
    assert isinstance(arguments, dict)
    pushed = Path(str(arguments["weights_path"]))
    copy = pushed.with_name(f"{pushed.name}-headless")
    copy.mkdir()
    tensors = safetensors.torch.load_file(pushed / "model.safetensors")
    del tensors["lm_head.weight"]
    safetensors.torch.save_file(tensors, copy / "model.safetensors", metadata={"format": "pt"})
    return str(copy)


def test_a_stale_tensor_an_old_version_a_push_in_mid_batch_and_a_hang_are_named_and_survived(
    folder: Path, server: Server, gaps: list[float], tmp_path: Path
) -> None:
    generate = "/inference/v1/generate"
    faults = {
        ("/collective_rpc", 4): "stale tensor",
        ("/update_weight_version", 7): "old version",
        (generate, 180): "push in mid-batch",
        (generate, 260): "hang",
    }
    with faulty_proxy(server, faults) as url:
        said = train(folder, tmp_path / "run", url, steps=12, wait=5)
    print(said)
    assert "has other weights than version 2: on a fixed prompt" in said
    assert "answered with weights of version" in said and "of version 99, not" in said
    assert "has not answered for 5 s; its" in said
    assert max(gaps) <= 1e-5


def test_a_server_that_dies_is_named_and_gets_the_newest_weights_when_it_is_back(
    folder: Path, server: Server, gaps: list[float], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from whet.engine.server_worker import ServerWorker

    submit = ServerWorker.submit
    is_killed = False

    def submit_and_kill(self: ServerWorker, call: int, requests: list) -> None:  # type: ignore[type-arg]
        nonlocal is_killed
        submit(self, call, requests)
        if call == 3 and not is_killed:
            is_killed = True
            server.kill()
            server.start()

    monkeypatch.setattr(ServerWorker, "submit", submit_and_kill)
    said = train(folder, tmp_path / "run", server.url, steps=4, wait=START_SECONDS)
    print(said)
    assert is_killed and "cannot be reached" in said and "serves again, with version" in said
    assert max(gaps) <= 1e-5
    shutil.rmtree(tmp_path / "run")
