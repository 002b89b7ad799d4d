"""A small client for OpenAI-style chat endpoints: one question, one reply, within a time budget.
Never raises."""

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import Message as Headers
from typing import IO

from pydantic import Field, field_validator

from whet.config import Config
from whet.types import Json

MAX_REPLY_BYTES = 1 << 20
_AGAIN = frozenset((408, 409, 425, 429))


class EndpointConfig(Config):
    url: str | None = None
    """Where the judge listens, up to and with the version: `http://localhost:8000/v1`. None has no
    judge."""
    model: str = "judge"
    """The model's name at that address."""
    key_env: str | None = None
    """The environment variable that holds the key; None sends none. The key itself never stands in
    settings."""
    timeout: float = Field(default=30.0, gt=0)
    """Seconds one try may take."""
    tries: int = Field(default=3, ge=1)
    """How often to ask before giving up, where the fault may pass: no connection, 5xx, too many
    requests."""
    budget: float = Field(default=60.0, gt=0)
    """Seconds all tries together may take, waiting included."""
    max_tokens: int = Field(default=1024, ge=1)
    """Longest reply."""

    @field_validator("url")
    @classmethod
    def _is_web(cls, url: str | None) -> str | None:
        if url is not None and not url.startswith(("http://", "https://")):
            raise ValueError("should start with http:// or https://")
        return url


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What came back, or why nothing did."""

    text: str | None = None
    fault: str = ""
    may_pass: bool = False
    """Whether asking again could help."""
    wait: float = 0.0
    """Seconds the server asks to wait."""


class Clock:
    """The time left of a budget."""

    def __init__(self, seconds: float) -> None:
        self._end = time.monotonic() + seconds

    @property
    def left(self) -> float:
        return self._end - time.monotonic()


def ask(config: EndpointConfig, messages: list[dict[str, Json]], clock: Clock) -> Reply:
    """Ask until there is a reply, the tries are used up, or the budget is."""
    if config.url is None:
        return Reply(fault="no judge is set: url is none")
    key = os.environ.get(config.key_env, "") if config.key_env else ""
    if config.key_env and not key:
        return Reply(fault=f"the environment variable {config.key_env} is not set")
    reply = Reply(fault="the time budget is used up")
    for number in range(config.tries):
        if clock.left <= 0:
            break
        reply = _try(config, messages, key, clock)
        if reply.text is not None or not reply.may_pass:
            break
        pause = max(min(0.25 * 2**number, 8.0), reply.wait)
        if pause >= clock.left or number == config.tries - 1:
            break
        time.sleep(pause)
    return reply


def _try(config: EndpointConfig, messages: list[dict[str, Json]], key: str, clock: Clock) -> Reply:
    body: dict[str, Json] = {
        "model": config.model,
        "messages": list(messages),
        "temperature": 0,
        "max_tokens": config.max_tokens,
    }
    headers = {"Content-Type": "application/json; charset=utf-8"} | (
        {"Authorization": f"Bearer {key}"} if key else {}
    )
    own = Clock(min(config.timeout, clock.left))
    address = f"{(config.url or '').rstrip('/')}/chat/completions"
    try:
        request = urllib.request.Request(address, json.dumps(body).encode(), headers)  # noqa: S310 - checked above
        with _OPENER.open(request, timeout=max(own.left, 0.001)) as response:
            return _read(_body(response, own))
    except urllib.error.HTTPError as error:
        with error:
            return _refused(error)
    except TimeoutError:
        return Reply(fault="the judge did not reply in time", may_pass=True)
    except (OSError, http.client.HTTPException) as error:
        reason = error.reason if isinstance(error, urllib.error.URLError) else error
        return Reply(fault=f"the judge cannot be reached: {reason}"[:200], may_pass=True)
    except ValueError as error:
        return Reply(fault=f"the judge's address cannot be used: {error}"[:200])


def _body(response: http.client.HTTPResponse, clock: Clock) -> bytes:
    """Read what arrives before the clock ends, however slowly it drips."""
    parts: list[bytes] = []
    size = 0
    while part := response.read1(1 << 16):
        parts.append(part)
        size += len(part)
        if clock.left <= 0:
            raise TimeoutError
        if size > MAX_REPLY_BYTES:
            break
    return b"".join(parts)


def _read(body: bytes) -> Reply:
    fault = Reply(fault="the judge's reply is not a chat completion", may_pass=True)
    if len(body) > MAX_REPLY_BYTES:
        return fault
    try:
        row: Json = json.loads(body)
    except (ValueError, RecursionError):
        return fault
    choices = row.get("choices") if isinstance(row, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    content = message.get("content") if isinstance(message, dict) else None
    return Reply(text=content) if isinstance(content, str) else fault


def _refused(error: urllib.error.HTTPError) -> Reply:
    fault = f"the judge answers {error.code} {error.reason}"[:200]
    return Reply(
        fault=fault, may_pass=error.code in _AGAIN or error.code >= 500, wait=_wait(error.headers)
    )


def _wait(headers: Mapping[str, str] | Headers | None) -> float:
    asked = (headers.get("Retry-After") or "").strip() if headers is not None else ""
    return float(asked) if asked.isascii() and asked.isdigit() and len(asked) < 6 else 0.0


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follow no redirect: the key is for the address in the settings alone."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> None:
        return None


_OPENER = urllib.request.build_opener(_Stay)
