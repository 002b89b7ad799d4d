"""A client of OpenAI-style servers: completions and chat completions, for teachers and judges.

`Client.ask` retries temporary faults with growing random delays, or those that the server asks for,
respects limits per minute, and counts tokens. Replies are untrusted: their size is bounded, and
their JSON is validated.
"""

import asyncio
import json
import random
import re
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from os import environ
from typing import Literal, TypeVar

from pydantic import Field, JsonValue, field_validator

from whet.config import Config
from whet.endpoints.http import HttpError, HttpReply, Origin
from whet.errors import ConfigError
from whet.types import FinishReason, Json, Message

T = TypeVar("T")
MAX_REPLY_BYTES = 1 << 23
"""Largest reply in bytes: twice that of 131,072 tokens with every letter escaped."""
AGAIN = frozenset((408, 409, 425, 429))
"""HTTP statuses below 500 that are temporary."""
FIRST_WAIT, LONGEST_WAIT = 0.5, 60.0
"""Seconds of the first and the longest random wait before a retry."""
LONGEST_ASKED_WAIT = 600.0
"""Longest wait in seconds that a server may ask for."""
CHARS_PER_TOKEN = 3
"""Characters of a request that count as one token until the server reports the number."""


class EndpointConfig(Config):
    """A model on an OpenAI-style server."""

    url: str
    """Address of the server with the API version, such as `http://localhost:8000/v1`."""
    model: str
    """Name of the model on the server."""
    key_env: str | None = None
    """Environment variable with the API key, which is never a setting itself; none sends no key."""
    api: Literal["chat", "completions"] = "chat"
    """API to use: chat for a response to messages, completions for a continuation of their text."""
    in_flight: int = Field(default=256, ge=1, le=20_000)
    """Largest number of concurrent requests."""
    timeout: float = Field(default=600.0, gt=0)
    """Time limit of one attempt, in seconds."""
    tries: int = Field(default=8, ge=1)
    """Number of attempts for temporary faults: no connection, 5xx, too many requests."""
    requests_per_minute: int | None = Field(default=None, ge=1)
    """Limit on requests started per minute; none has no limit."""
    tokens_per_minute: int | None = Field(default=None, ge=1)
    """Limit on prompt and response tokens per minute; none has no limit."""
    price_in: float = Field(default=0.0, ge=0)
    """Price of a million prompt tokens, in any currency."""
    price_out: float = Field(default=0.0, ge=0)
    """Price of a million response tokens."""
    extra: dict[str, JsonValue] = Field(default={})
    """Further fields of every request, such as `reasoning_effort`."""

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        return check_url(url)


def check_url(url: str) -> str:
    """Refuse an address that is not http or https."""
    if not url.startswith(("http://", "https://")):
        raise ValueError("should start with http:// or https://")
    return url


def read_key(key_env: str | None) -> str:
    """Read the API key from the environment; "" if no key is needed."""
    key = environ.get(key_env, "") if key_env else ""
    if key_env and not key:
        raise ConfigError(f"the environment variable {key_env} is not set")
    if not re.fullmatch(r"[!-~]*", key):
        raise ConfigError(
            f"the environment variable {key_env} does not hold a key: it has characters that "
            "no key has"
        )
    return key


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A server's response, or the reason for its absence."""

    text: str | None = None
    finish: FinishReason = FinishReason.STOP
    prompt_tokens: int = 0
    tokens: int = 0
    fault: str = ""
    status: int | None = None
    """HTTP status of a fault; None without a complete reply."""
    may_pass: bool = False
    """Whether a retry could help."""
    wait: float | None = None
    """Seconds that the server asks the client to wait."""


@dataclass(slots=True)
class Usage:
    """Counts of a client's requests and tokens."""

    requests: int = 0
    retries: int = 0
    prompt_tokens: int = 0
    tokens: int = 0


class Client:
    """Asks one server, from one event loop. Tests pass a clock of their own."""

    def __init__(
        self,
        cfg: EndpointConfig,
        *,
        name: str = "the server",
        max_bytes: int = MAX_REPLY_BYTES,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Coroutine[object, object, None]] = asyncio.sleep,
    ) -> None:
        self.cfg = cfg
        self.name = name
        self.usage = Usage()
        self._max_bytes = max_bytes
        self._clock = clock
        self._sleep = sleep
        self._key = read_key(cfg.key_env)
        self._origin: Origin | None = None
        self._requests = PerMinute(cfg.requests_per_minute)
        self._tokens = PerMinute(cfg.tokens_per_minute)
        self._paused_until = 0.0
        self._jitter = random.Random()

    async def ask(self, body: Mapping[str, Json], deadline: float = float("inf")) -> Reply:
        """Ask until there is a reply, all tries are used, or the deadline has passed."""
        reply = Reply(fault="the time budget is used up")
        content = json.dumps(body).encode()
        for number in range(self.cfg.tries):
            await self._wait_for_turn(body, content)
            if self._clock() >= deadline:
                break
            self.usage.requests += 1
            self.usage.retries += number > 0
            reply = await self._try(content, deadline)
            if reply.text is not None or not reply.may_pass:
                break
            pause = self._choose_pause(number, reply)
            if self._clock() + pause >= deadline or number == self.cfg.tries - 1:
                break
            await self._sleep(pause)
        self._count(reply, body, content)
        return reply

    async def check_reachable(self) -> None:
        """Raise an HttpError if no server replies; any reply will do."""
        try:
            async with asyncio.timeout(self.cfg.timeout):
                await self._request("GET", "models", b"")
        except TimeoutError:
            raise HttpError("it did not reply in time") from None

    async def __aenter__(self) -> "Client":
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._origin is not None:
            await self._origin.close()

    async def _request(self, method: str, path: str, content: bytes) -> HttpReply:
        if self._origin is None:
            self._origin = Origin(self.cfg.url)
        headers = {"Content-Type": "application/json; charset=utf-8", "Accept": "application/json"}
        if self._key:
            headers["Authorization"] = f"Bearer {self._key}"
        base = self._origin.parts.path.rstrip("/")
        return await self._origin.request(
            method, f"{base}/{path}", headers=headers, body=content, max_bytes=self._max_bytes
        )

    async def _try(self, content: bytes, deadline: float) -> Reply:
        seconds = max(min(self.cfg.timeout, deadline - self._clock()), 0.001)
        prefix = "chat/" if self.cfg.api == "chat" else ""
        try:
            async with asyncio.timeout(seconds):
                reply = await self._request("POST", f"{prefix}completions", content)
        except TimeoutError:
            return Reply(fault=f"{self.name} did not reply in time", may_pass=True)
        except HttpError as error:
            fault = f"{self.name} cannot be reached: {error}"[:200]
            return Reply(fault=fault, may_pass=error.may_pass)
        if reply.status != 200:
            return read_refusal(reply, self.name)
        return read_reply(reply.body, self.name)

    async def _wait_for_turn(self, body: Mapping[str, Json], content: bytes) -> None:
        """Wait for the limits per minute, and for a delay that the server asked for."""
        now = self._clock()
        pause = self._paused_until - now
        pause = max(pause, self._requests.reserve(1, now))
        pause = max(pause, self._tokens.reserve(_estimate(body, content), now))
        if pause > 0:
            await self._sleep(pause)

    def _choose_pause(self, number: int, reply: Reply) -> float:
        """Choose a random delay whose bound doubles with each try. A delay that the server asks for
        applies to all requests."""
        longest = min(FIRST_WAIT * 2**number, LONGEST_WAIT)
        pause = self._jitter.uniform(longest / 2, longest)
        if reply.wait is not None:
            wait = min(reply.wait, LONGEST_ASKED_WAIT)
            pause += wait - longest / 2
            self._paused_until = max(self._paused_until, self._clock() + wait)
        return pause

    def _count(self, reply: Reply, body: Mapping[str, Json], content: bytes) -> None:
        self.usage.prompt_tokens += reply.prompt_tokens
        self.usage.tokens += reply.tokens
        used = reply.prompt_tokens + reply.tokens
        self._tokens.correct(used - _estimate(body, content) if reply.text is not None else 0)


def make_body(
    cfg: EndpointConfig,
    messages: Sequence[Message],
    *,
    max_tokens: int,
    temperature: float,
    top_p: float = 1.0,
    top_k: int = 0,
    stop: Sequence[str] = (),
    seed: int | None = None,
) -> dict[str, Json]:
    """Write the body of a request. Optional fields at their defaults are left out, since not all
    servers know them."""
    body: dict[str, Json] = {"model": cfg.model, "max_tokens": max_tokens}
    body["temperature"] = temperature
    if cfg.api == "chat":
        body["messages"] = [{"role": row.role, "content": row.content} for row in messages]
    else:
        body["prompt"] = "\n\n".join(row.content for row in messages)
    if top_p < 1:
        body["top_p"] = top_p
    if top_k:
        body["top_k"] = top_k
    if stop:
        body["stop"] = list(stop)
    if seed is not None:
        body["seed"] = seed % (1 << 31)
    return body | cfg.extra


def read_reply(body: bytes, name: str = "the server") -> Reply:
    """Read a completion; a thought that the server returns separately is put back into the text.

    >>> read_reply(b'{"choices": [{"text": "4"}], "usage": {"completion_tokens": 2}}').tokens
    2
    """
    try:
        value: Json = json.loads(body)
    except (ValueError, RecursionError):
        value = None
    choices = _field(value, "choices")
    choice = choices[0] if isinstance(choices, list) and choices else None
    message = _field(choice, "message")
    text = _field(choice, "text") if message is None else _field(message, "content")
    thought = _field(message, "reasoning_content") or _field(message, "reasoning")
    if isinstance(thought, str) and thought.strip():
        reply_text = text if isinstance(text, str) else ""
        text = f"<think>\n{thought.strip()}\n</think>\n\n{reply_text.strip()}"
    if not isinstance(text, str):
        return Reply(fault=f"{name}'s reply is not a completion", may_pass=True)
    usage = _field(value, "usage")
    is_cut = _field(choice, "finish_reason") == "length"
    return Reply(
        text=text.encode("utf-8", "replace").decode(),  # an unpaired surrogate is not text
        finish=FinishReason.LENGTH if is_cut else FinishReason.STOP,
        prompt_tokens=_count_of(usage, "prompt_tokens"),
        tokens=_count_of(usage, "completion_tokens"),
    )


def read_refusal(reply: HttpReply, name: str = "the server") -> Reply:
    """Read a reply with a status other than 200, and the delay that the server asks for."""
    fault = f"{name} answers {reply.status} {reply.reason}".strip()
    try:
        error = _field(json.loads(reply.body), "error")
        message = error if isinstance(error, str) else _field(error, "message")
    except (ValueError, RecursionError):
        message = None
    if isinstance(message, str):
        fault += f": {message}"
    return Reply(
        fault=fault[:300],
        status=reply.status,
        may_pass=reply.status in AGAIN or reply.status >= 500,
        wait=read_wait(reply.headers.get("retry-after", "")),
    )


def read_wait(text: str) -> float | None:
    """Read Retry-After: seconds, or the seconds until a date; None if it is neither.

    >>> read_wait("7"), read_wait("soon"), read_wait("Wed, 21 Oct 2015 07:28:00 GMT")
    (7.0, None, 0.0)
    """
    if re.fullmatch(r"\s*[0-9]{1,9}(\.[0-9]{1,9})?\s*", text):
        return float(text)
    try:
        return max(parsedate_to_datetime(text).timestamp() - time.time(), 0.0)
    except (ValueError, TypeError, OverflowError):
        return None


def check_reachable(client: Client) -> None:
    """Raise an HttpError if no server replies, from synchronous code."""

    async def work() -> None:
        async with client:
            await client.check_reachable()

    run_blocking(work())


def run_blocking(work: Coroutine[object, object, T]) -> T:
    """Run a coroutine from synchronous code, also in a notebook, whose thread has an event loop."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()


def _field(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, dict) else None


def _count_of(usage: Json, name: str) -> int:
    count = _field(usage, name)
    return count if isinstance(count, int) and 0 <= count < 1 << 40 else 0


def _estimate(body: Mapping[str, Json], content: bytes) -> int:
    """Estimate the tokens of a request and of its longest response."""
    longest = body.get("max_tokens")
    return len(content) // CHARS_PER_TOKEN + (longest if isinstance(longest, int) else 0)


class PerMinute:
    """Spread amounts evenly over time, at most `limit` per minute; None has no limit.

    >>> limit = PerMinute(60)
    >>> [limit.reserve(1, now=0.0) for _ in range(3)]
    [0.0, 1.0, 2.0]
    """

    def __init__(self, limit: int | None) -> None:
        self._seconds_each = 60.0 / limit if limit else 0.0
        self._free_at = 0.0

    def reserve(self, amount: int, now: float) -> float:
        """Reserve an amount, and return the seconds to wait before using it."""
        begin = max(self._free_at, now)
        self._free_at = begin + amount * self._seconds_each
        return begin - now

    def correct(self, amount: int) -> None:
        """Adjust a reservation by the amount used beyond it; a negative amount was not used."""
        self._free_at += amount * self._seconds_each
