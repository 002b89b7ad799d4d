"""An OpenAI-style server on the loopback, on its own thread, with responses chosen by a test.

It can reply late, stall in the middle, send byte by byte, close connections and send anything. A
GET, which only probes the server, gets a fixed reply and is not counted.

`InferenceServer` implements vLLM's or SGLang's calls with a real engine. It keeps the old head of a
tied model if a push does not contain the head, as vLLM does. A test can make it hang, die, ignore
weights or keep its version.
"""

import asyncio
import copy
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

import h11
import numpy as np
import safetensors.torch
from torch import nn

from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig
from whet.engine.server_calls import DIALECTS, Dialect
from whet.models.transformer import Transformer
from whet.types import Completion, Json

T = TypeVar("T")
VLLM, VLLM_WITHOUT_VERSIONS, SGLANG = DIALECTS


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A request: its number from 1, address, JSON body and Authorization header."""

    number: int
    method: str
    target: str
    body: dict[str, Json]
    key: str | None

    @property
    def prompt(self) -> str:
        """The last message, or the prompt of a completion."""
        messages = self.body.get("messages")
        if isinstance(messages, list) and isinstance(messages[-1], dict):
            return str(messages[-1]["content"])
        return str(self.body.get("prompt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CannedReply:
    """A reply of the server."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    """Delay before the reply."""
    closes: bool = False
    """Close the connection instead of answering."""
    stalls: bool = False
    """Send half of the body, and then nothing."""
    drips: bool = False
    """Send the body byte by byte, one every 50 ms."""


def chat_reply(text: str, *, tokens: int = 7, seconds: float = 0.0) -> CannedReply:
    """Make a chat completion with a text, for a prompt of 3 tokens."""
    choice: Json = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage: Json = {"prompt_tokens": 3, "completion_tokens": tokens}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    return CannedReply(body=body, seconds=seconds)


Decide = Callable[[Asked], CannedReply | Awaitable[CannedReply]]


class FakeServer:
    """The server: its address, and the requests that it received."""

    def __init__(self, reply: Decide, gets: Mapping[str, bytes]) -> None:
        self._choose_reply = reply
        self._gets = gets
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0, backlog=4096))
        port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}/v1"
        self.asked: list[Asked] = []
        self.num_connections = 0
        self._tasks: set[asyncio.Task[None] | None] = set()
        self.num_in_flight = 0
        self.most_in_flight = 0

    def _call(self, work: Coroutine[object, object, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Stop listening and drop every connection."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._server.close()
        await asyncio.sleep(0)  # lets connections that were just accepted start their tasks
        others = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        protocol = h11.Connection(h11.SERVER)
        self.num_connections += 1
        self._tasks.add(asyncio.current_task())  # asyncio itself holds tasks weakly
        with suppress(OSError, h11.ProtocolError, asyncio.CancelledError):
            while (asked := await self._read(protocol, reader)) is not None:
                self.num_in_flight += 1
                self.most_in_flight = max(self.most_in_flight, self.num_in_flight)
                try:
                    reply = await self._decide(asked)
                    if reply.seconds:
                        await asyncio.sleep(reply.seconds)
                    if reply.closes:
                        break
                    await self._write(protocol, writer, reply)
                finally:
                    self.num_in_flight -= 1
                if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
                    break
                protocol.start_next_cycle()
        writer.transport.abort()
        self._tasks.discard(asyncio.current_task())

    async def _decide(self, asked: Asked) -> CannedReply:
        if asked.method == "GET":
            return CannedReply(body=self._gets.get(asked.target, b"{}"))
        reply = self._choose_reply(asked)
        return reply if isinstance(reply, CannedReply) else await reply

    async def _read(self, protocol: h11.Connection, reader: asyncio.StreamReader) -> Asked | None:
        request: h11.Request | None = None
        content = b""
        while True:
            event = protocol.next_event()
            if event is h11.NEED_DATA:
                protocol.receive_data(await reader.read(1 << 16))
            elif isinstance(event, h11.Request):
                request = event
            elif isinstance(event, h11.Data):
                content += bytes(event.data)
            elif isinstance(event, h11.EndOfMessage) and request is not None:
                return self._note(request, content)
            else:
                return None

    def _note(self, request: h11.Request, content: bytes) -> Asked:
        headers = {bytes(name): bytes(value).decode() for name, value in request.headers}
        asked = Asked(
            number=len(self.asked) + 1,
            method=bytes(request.method).decode(),
            target=bytes(request.target).decode(),
            body=json.loads(content) if content else {},
            key=headers.get(b"authorization"),
        )
        if asked.method != "GET":
            self.asked.append(asked)
        return asked

    async def _write(
        self, protocol: h11.Connection, writer: asyncio.StreamWriter, reply: CannedReply
    ) -> None:
        lines = [*reply.headers.items(), ("Content-Length", str(len(reply.body)))]
        start = h11.Response(status_code=reply.status, headers=lines)
        writer.write(protocol.send(start) or b"")
        if reply.stalls:
            writer.write(protocol.send(h11.Data(data=reply.body[: len(reply.body) // 2])) or b"")
            await asyncio.Event().wait()
        size = 1 if reply.drips else max(len(reply.body), 1)
        for begin in range(0, len(reply.body), size):
            writer.write(protocol.send(h11.Data(data=reply.body[begin : begin + size])) or b"")
            await writer.drain()
            if reply.drips:
                await asyncio.sleep(0.05)
        writer.write(protocol.send(h11.EndOfMessage()) or b"")
        await writer.drain()


@contextmanager
def serve_replies(reply: Decide, gets: Mapping[str, bytes] | None = None) -> Iterator[FakeServer]:
    """Serve replies until the block ends; `gets` has the replies to GETs by path."""
    server = FakeServer(reply, gets or {})
    try:
        yield server
    finally:
        server.close()


ServerFault = Callable[["InferenceServer", Asked], str | None]
"""The fault of a call: `hang`, `die`, `stale` weights, an old `version`, a push in the `middle` of
a response, `error`, or None. `hold` replies after the next push, as if its weights had sampled the
last tokens."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RunningServer:
    """A server and its address."""

    url: str
    server: "InferenceServer"


class InferenceServer:
    """Computes a server's replies with its own model; records its version and calls."""

    def __init__(
        self, model: Transformer, dialect: Dialect, *, stops: frozenset[int], fault: ServerFault
    ) -> None:
        own = copy.deepcopy(model).requires_grad_(False)
        if model.cfg.tied:
            head = nn.Linear(model.cfg.hidden_size, model.cfg.vocab_size, bias=False)
            head.weight.data = model.embed.weight.detach().clone()
            own.head = head.requires_grad_(False)
            own.cfg = replace(model.cfg, tied=False)
        self.model = own
        self.engine = NativeConfig(max_num_seqs=4).build(own, stop_tokens=stops)
        self.dialect = dialect
        self.fault = fault
        self.version = "default"
        self.calls: list[str] = []
        self._held: list[tuple[asyncio.Future[CannedReply], Asked, str]] = []

    def answer(self, asked: Asked) -> CannedReply | Awaitable[CannedReply]:
        path = asked.target.partition("?")[0]
        self.calls.append(path)
        fault = self.fault(self, asked)
        if fault == "hang":
            return asyncio.Future()
        if fault == "hold":
            future: asyncio.Future[CannedReply] = asyncio.Future()
            self._held.append((future, asked, self.version))
            return future
        if fault in ("die", "error"):
            return CannedReply(
                closes=fault == "die", status=500, body=b'{"error": "out of memory"}'
            )
        reply: Json = {"success": True}
        if path in ("/collective_rpc", "/update_weights_from_disk") and fault != "stale":
            self._load(asked.body)
        if path in ("/update_weight_version", "/update_weights_from_disk") and fault != "version":
            stated = asked.body.get("new_version") or asked.body.get("weight_version")
            self.version = str(stated)
        if path in ("/inference/v1/generate", "/v1/completions", "/generate"):
            versions = [self.version, "99"] if fault == "middle" else [self.version]
            reply = self._generate(asked.body, versions)
        if path in ("/resume", "/continue_generation"):
            self._answer_held()
        return CannedReply(body=json.dumps(reply).encode())

    def _answer_held(self) -> None:
        held, self._held = self._held, []
        for future, asked, version in held:
            versions = [self.version] if self.dialect is SGLANG else [version, self.version]
            reply = self._generate(asked.body, versions)
            future.set_result(CannedReply(body=json.dumps(reply).encode()))

    def _load(self, body: dict[str, Json]) -> None:
        arguments = body.get("kwargs", body)
        assert isinstance(arguments, dict), "a push names a folder"
        folder = Path(str(arguments.get("weights_path") or arguments.get("model_path")))
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        self.model.copy_weights(tensors.items())

    def _generate(self, body: dict[str, Json], versions: list[str]) -> Json:
        prompt = body.get("token_ids") or body.get("input_ids") or body.get("prompt")
        params = body.get("sampling_params", body)
        assert isinstance(prompt, list) and isinstance(params, dict), "tokens go in"
        names = {"max_new_tokens": "max_tokens"}
        sampling = {names.get(name, name): value for name, value in params.items()}
        sampling["top_k"] = max(0, int(str(sampling.get("top_k") or 0)))
        request = Request(
            id="0",
            prompt=np.array(prompt, dtype=np.int32),
            sampling=SamplingParams.model_validate(
                {name: sampling[name] for name in SamplingParams.model_fields if name in sampling}
            ),
            seed=int(str(params.get("seed") or params.get("sampling_seed") or 0)),
        )
        ((_, completion),) = self.engine.generate([request])
        return self._format(completion, versions)

    def _format(self, completion: Completion, versions: list[str]) -> Json:
        tokens: list[Json] = [*completion.tokens.tolist()]
        logprobs: list[Json] = [*completion.logprobs.tolist()]
        pairs = list(zip(logprobs, tokens, strict=True))
        finish = str(completion.finish_reason)
        if self.dialect is SGLANG:
            rows: list[Json] = [[logprob, token, None] for logprob, token in pairs]
            info: dict[str, Json] = {"output_token_logprobs": rows, "weight_version": versions[0]}
            return {"meta_info": info | {"finish_reason": {"type": finish}}}
        choice: dict[str, Json] = {"token_ids": tokens, "finish_reason": finish}
        if self.dialect is VLLM_WITHOUT_VERSIONS:
            return {"choices": [choice | {"logprobs": {"token_logprobs": logprobs}}]}
        content: list[Json] = [{"logprob": logprob, "token_id": token} for logprob, token in pairs]
        spans: list[Json] = [{"version": version} for version in versions]
        return {"choices": [choice | {"logprobs": {"content": content}, "weight_versions": spans}]}


def no_fault(server: InferenceServer, asked: Asked) -> None:
    return None


@contextmanager
def serve_inference(
    model: Transformer,
    dialect: Dialect = VLLM,
    *,
    stops: frozenset[int] = frozenset(),
    fault: ServerFault = no_fault,
) -> Iterator[RunningServer]:
    """Serve a copy of a model until the block ends."""
    server = InferenceServer(model, dialect, stops=stops, fault=fault)
    paths: dict[str, Json] = {path: {} for path in dialect.endpoints}
    models: Json = {"data": [{"id": "m", "max_model_len": model.cfg.max_positions}]}
    gets = {"/openapi.json": {"paths": paths}, "/v1/models": models}
    bodies = {path: json.dumps(body).encode() for path, body in gets.items()}
    with serve_replies(server.answer, bodies) as listening:
        yield RunningServer(url=listening.url.removesuffix("/v1"), server=server)
