"""A frozen model behind a vLLM server, which computes log-probabilities of a policy's responses."""

import asyncio
import json
from collections.abc import Sequence

import numpy as np

from whet.batching.examples import Example
from whet.endpoints.client import run_blocking
from whet.endpoints.http import HttpError, Origin
from whet.engine.server_calls import read_prompt_logprobs
from whet.engine.worker import WorkerError
from whet.errors import EngineError
from whet.train.learner import LogprobModel
from whet.types import Floats, Json
from whet.world import get_world

PATH = "/inference/v1/generate"
IN_FLIGHT = 64
TRIES = 4
MAX_REPLY_BYTES = 1 << 26
SERVED_SECONDS = 600.0
"""Seconds that a server may take to reply."""


class ServedModel(LogprobModel):
    """Asks a server for log-probabilities at temperature 1; the first rank asks for all."""

    def __init__(self, url: str, *, setting: str, wait: float) -> None:
        """Ask the server at `url`; errors name it by the setting `setting`."""
        self.url = url.rstrip("/")
        self.setting = setting
        self.wait = wait

    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        return get_world().run_on_rank_zero(
            lambda: run_blocking(self._ask_all(examples)), "log-probabilities of a server"
        )

    async def _ask_all(self, examples: Sequence[Example]) -> list[Floats]:
        origin = Origin(self.url)
        free = asyncio.Semaphore(IN_FLIGHT)
        try:
            return await asyncio.gather(*(self._ask(origin, free, each) for each in examples))
        except (HttpError, TimeoutError, WorkerError) as error:
            reason = str(error) or f"has not answered for {self.wait:g} s"
            raise EngineError(f"{self.setting} = {self.url!r}: {reason}") from error
        finally:
            await origin.close()

    async def _ask(self, origin: Origin, free: asyncio.Semaphore, example: Example) -> Floats:
        if example.temperature != 1:
            raise WorkerError(f"cannot compute at temperature {example.temperature:g}, only at 1")
        tokens = example.tokens.tolist()
        params: Json = {"max_tokens": 1, "prompt_logprobs": 0, "temperature": 0.0}
        body: Json = {"token_ids": tokens, "sampling_params": params, "stream": False}
        async with free:
            reply = await self._send(origin, json.dumps(body).encode())
        logprobs = read_prompt_logprobs(reply, tokens)
        return np.array(logprobs[example.response_start - 1 :], dtype=np.float32)

    async def _send(self, origin: Origin, content: bytes) -> Json:
        """Send a request; retry after temporary faults."""
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        target = origin.parts.path.rstrip("/") + PATH
        for number in range(TRIES):
            try:
                async with asyncio.timeout(self.wait):
                    reply = await origin.request(
                        "POST", target, headers=headers, body=content, max_bytes=MAX_REPLY_BYTES
                    )
            except HttpError as error:
                if number == TRIES - 1 or not error.may_pass:
                    raise
            else:
                if reply.status == 200:
                    value: Json = json.loads(reply.body)
                    return value
                if reply.status < 500 or number == TRIES - 1:
                    raise WorkerError(f"answers {PATH} with {reply.status}: {reply.body[:200]!r}")
            await asyncio.sleep(2**number)
        raise AssertionError("the last try returns or raises")
