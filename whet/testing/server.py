"""An OpenAI-style server on the loopback, on a thread of its own, whose answers a test decides.

It can answer late, stall in the middle, drip, close connections and send anything at all. A GET,
which only looks whether a server is there, has a fixed answer and is not counted.
"""

import asyncio
import json
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TypeVar

import h11

from whet.types import Json

T = TypeVar("T")


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
        """The last message, or the text to complete."""
        messages = self.body.get("messages")
        if isinstance(messages, list) and isinstance(messages[-1], dict):
            return str(messages[-1]["content"])
        return str(self.body.get("prompt"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What the server sends back."""

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    """How long the server thinks before it answers."""
    closes: bool = False
    """Close the connection instead of answering."""
    stalls: bool = False
    """Send half of the body, and then nothing."""
    drips: bool = False
    """Send the body byte by byte, one in 50 ms."""


def chat_answer(text: str, *, tokens: int = 7, seconds: float = 0.0) -> Answer:
    """Make a chat completion of a text, with a prompt of 3 tokens."""
    choice: Json = {"message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    usage: Json = {"prompt_tokens": 3, "completion_tokens": tokens}
    body = json.dumps({"choices": [choice], "usage": usage}).encode()
    return Answer(body=body, seconds=seconds)


Decide = Callable[[Asked], Answer | Awaitable[Answer]]


class FakeServer:
    """The server: where it listens, and what it was asked."""

    def __init__(self, answer: Decide, gets: Mapping[str, bytes]) -> None:
        self._answer = answer
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
        await asyncio.sleep(0)  # connections that were just accepted have their tasks then
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
                    answer = await self._decide(asked)
                    if answer.seconds:
                        await asyncio.sleep(answer.seconds)
                    if answer.closes:
                        break
                    await self._write(protocol, writer, answer)
                finally:
                    self.num_in_flight -= 1
                if protocol.our_state is not h11.DONE or protocol.their_state is not h11.DONE:
                    break
                protocol.start_next_cycle()
        writer.transport.abort()
        self._tasks.discard(asyncio.current_task())

    async def _decide(self, asked: Asked) -> Answer:
        if asked.method == "GET":
            return Answer(body=self._gets.get(asked.target, b"{}"))
        answer = self._answer(asked)
        return answer if isinstance(answer, Answer) else await answer

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
        self, protocol: h11.Connection, writer: asyncio.StreamWriter, answer: Answer
    ) -> None:
        lines = [*answer.headers.items(), ("Content-Length", str(len(answer.body)))]
        start = h11.Response(status_code=answer.status, headers=lines)
        writer.write(protocol.send(start) or b"")
        if answer.stalls:
            writer.write(protocol.send(h11.Data(data=answer.body[: len(answer.body) // 2])) or b"")
            await asyncio.Event().wait()
        size = 1 if answer.drips else max(len(answer.body), 1)
        for begin in range(0, len(answer.body), size):
            writer.write(protocol.send(h11.Data(data=answer.body[begin : begin + size])) or b"")
            await writer.drain()
            if answer.drips:
                await asyncio.sleep(0.05)
        writer.write(protocol.send(h11.EndOfMessage()) or b"")
        await writer.drain()


@contextmanager
def serve(answer: Decide, gets: Mapping[str, bytes] | None = None) -> Iterator[FakeServer]:
    """Serve answers to requests until the block ends; `gets` has those to GETs by address."""
    server = FakeServer(answer, gets or {})
    try:
        yield server
    finally:
        server.close()
