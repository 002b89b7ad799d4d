"""A worker that is a server with the calls of `whet/engine/server_calls.py`, over HTTP alone.

Times and sizes are bounded. At start, whet waits for a server that cannot be reached.
"""

import asyncio
import json
import threading
import time
from collections.abc import Coroutine, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from typing import TypeVar

import numpy as np

from whet.endpoints.http import HttpError, HttpReply, Origin
from whet.engine.base import Detokenize, EngineStats, Request, SamplingParams
from whet.engine.server_calls import GREEDY_SAMPLING, Call, Dialect, choose_dialect
from whet.engine.stop_strings import StopStringSearch
from whet.engine.weight_files import Weights
from whet.engine.worker import FinishedRequest, Refusal, Report, WorkerError
from whet.track.progress import say
from whet.types import Completion, FinishReason, Json

T = TypeVar("T")
MAX_REPLY_BYTES = 1 << 26
"""Largest reply in bytes: three times what 131,072 tokens with log-probabilities take."""
RETRY_SECONDS = 1.0
"""Seconds between two checks of whether a server can be reached."""
START_SECONDS = 5.0
"""Seconds of waiting after which a message names the server."""
PROBE_PROMPT = np.ones(2, dtype=np.int32)
_PROBE = SamplingParams(temperature=0.5, top_k=1, max_tokens=1)


class ServerWorker:
    """One server; an event loop in its own thread calls it."""

    def __init__(
        self,
        url: str,
        *,
        num_slots: int,
        context: int,
        wait: float,
        stop_tokens: frozenset[int],
        detokenize: Detokenize | None,
        sleeps: bool,
    ) -> None:
        self.name = f"server {url}"
        self.num_slots = num_slots
        self._url = url.rstrip("/")
        self._context = context
        self._wait = wait
        self._stop_tokens = stop_tokens
        self._detokenize = detokenize
        self._sleeps = sleeps
        self._is_asleep = False
        self._version = -1
        self._newest = -1
        """The version that is being pushed, or was pushed last."""
        self._running: set[Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    def start(self, report: Report) -> None:
        """Wait until the server can be reached, and ask what it supports."""
        self.close()
        self._report = report
        self._loop = asyncio.new_event_loop()
        self._origin = Origin(self._url)
        args = self._loop, self._origin
        self._thread = threading.Thread(target=_run_loop, args=args, daemon=True)
        self._thread.start()
        self._model = self._await_model()
        paths = _names(self._ask("GET", "/openapi.json"), "paths")
        self._dialect: Dialect = choose_dialect(paths, self.name)
        if self._sleeps and self._dialect.sleep.endpoint not in paths:
            raise WorkerError(
                f'lacks {self._dialect.sleep.endpoint}, which engine.placement = "collocated" needs'
            )
        self._is_asleep = False
        self._learn_logprobs()

    def load(self, weights: Weights) -> None:
        self._wake()
        self._newest = weights.version
        for call in self._dialect.push(weights.file.parent, weights.version):
            reply = self._post(call)
            if isinstance(reply, dict) and reply.get("success") is False:
                raise WorkerError(f"could not load weights: {str(reply)[:200]}")
        self._version = weights.version

    def submit(self, call: int, requests: Sequence[Request]) -> None:
        if self._loop is None:
            raise WorkerError("is not connected")
        self._wake()
        for request in requests:
            work = self._serve_request(call, request)
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
            self._running.add(future)
            future.add_done_callback(self._running.discard)

    def cancel(self) -> None:
        """Close connections; a server drops requests that nobody waits for."""
        for future in list(self._running):
            future.cancel()

    def sleep(self) -> None:
        if not self._is_asleep:
            self._post(self._dialect.sleep)
            self._is_asleep = True

    def close(self) -> None:
        self.cancel()
        loop, self._loop = self._loop, None
        if loop is not None and self._thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()

    def _wake(self) -> None:
        if self._is_asleep:
            self._post(self._dialect.wake)
            self._is_asleep = False

    def _await_model(self) -> str:
        """Wait for the server; return its model's name, and refuse a context that is too short."""
        began = time.monotonic()
        is_named = False
        while True:
            try:
                models = self._ask("GET", "/v1/models")
                break
            except WorkerError as error:
                if self._loop is None:
                    raise
                seconds = time.monotonic() - began
                if seconds > self._wait:
                    raise WorkerError(
                        f"cannot be reached after {self._wait:g} s: {error}"
                    ) from error
                if seconds > START_SECONDS and not is_named:
                    is_named = True
                    say(f"waiting up to {self._wait:g} s for {self.name}, which {error}")
                time.sleep(min(RETRY_SECONDS, self._wait / 10))
        listed = models.get("data") if isinstance(models, dict) else None
        model = listed[0] if isinstance(listed, list) and listed else None
        longest = model.get("max_model_len") if isinstance(model, dict) else None
        if isinstance(longest, int) and longest < self._context:
            raise WorkerError(
                f"has a context of {longest} tokens: set engine.max_model_len to {longest} at "
                f"most, or start it with --max-model-len {self._context}"
            )
        return str(model.get("id")) if isinstance(model, dict) else ""

    def _learn_logprobs(self) -> None:
        """Detect whether log-probabilities are before temperature, or after truncation."""
        request = Request(id="probe", prompt=PROBE_PROMPT, sampling=GREEDY_SAMPLING, seed=0)
        plain, probed = (
            float(self._sample(replace(request, sampling=sampling)).logprobs[0])
            for sampling in (GREEDY_SAMPLING, _PROBE)
        )
        self._is_before_temperature = abs(plain - probed) < 1e-3
        self._is_after_truncation = not self._is_before_temperature and probed > -1e-6

    def _check(self, sampling: SamplingParams) -> None:
        """Refuse settings for which the server gives other log-probabilities than the learner."""
        mode = "start vLLM with --logprobs-mode"
        if self._is_before_temperature and sampling.temperature not in (0.0, 1.0):
            raise WorkerError(
                "gives log-probabilities as at temperature 1, and sampling.temperature is "
                f"{sampling.temperature:g}: {mode} processed_logprobs"
            )
        if self._is_after_truncation and sampling.is_truncated:
            raise WorkerError(
                "gives log-probabilities after top_k, top_p and min_p, and the learner's are "
                f"before: leave these out, or {mode} raw_logprobs"
            )

    async def _serve_request(self, call: int, request: Request) -> None:
        """Sample a request and report the completion or the error."""
        try:
            self._check(request.sampling)
        except WorkerError as error:
            self._report(Refusal(call=call, reason=f"{self.name} {error}"))
            return
        try:
            completion = await self._sample_now(request)
        except WorkerError as error:
            self._report(error)
        except _RefusedError as error:
            self._report(Refusal(call=call, reason=f"{self.name} {error}"))
        else:
            completion = self._cut_at_stop(request, completion)
            self._report(
                FinishedRequest(
                    call=call, id=request.id, completion=completion, stats=EngineStats()
                )
            )

    def _sample(self, request: Request) -> Completion:
        try:
            return self._run(self._sample_now(request))
        except _RefusedError as error:
            raise WorkerError(str(error)) from error

    async def _sample_now(self, request: Request) -> Completion:
        limit = min(request.sampling.max_tokens, self._context - len(request.prompt))
        sampling = request.sampling.model_copy(update={"max_tokens": limit})
        asked = replace(request, sampling=sampling)
        call = self._dialect.generate(asked, self._stop_tokens, self._model)
        first = self._version
        sampled = self._dialect.read(await self._request("POST", call.path, call.body))
        version = self._find_oldest(sampled.versions, first)
        return replace(sampled.completion, policy_version=version)

    def _find_oldest(self, stated: Sequence[str], first: int) -> int:
        """Find the version of a response's oldest token; the request was sent at version `first`.

        If the server does not state every version, it may have started with `first`.
        """
        versions = {int(name) if name.isdecimal() else -1 for name in stated}
        if len(versions) > 1 and not versions <= set(range(first, self._newest + 1)):
            names = ", ".join(sorted(set(stated)))
            raise WorkerError(f"changed its weights in the middle of a response: versions {names}")
        if not versions:
            return first
        is_whole = self._dialect.states_all_versions or first == self._newest
        return min(versions) if is_whole else min(first, *versions)

    def _cut_at_stop(self, request: Request, completion: Completion) -> Completion:
        """Cut a response after the token that completes a stop string; a server may lack the
        tokenizer."""
        if not request.sampling.stop:
            return completion
        assert self._detokenize is not None, "stop strings need a tokenizer"
        search = StopStringSearch(request.sampling.stop, self._detokenize)
        end = search.find_end(completion.tokens)
        if end is None:
            return completion
        return replace(
            completion,
            tokens=completion.tokens[:end],
            logprobs=completion.logprobs[:end],
            finish_reason=FinishReason.STOP,
        )

    def _post(self, call: Call) -> Json:
        return self._ask("POST", call.path, call.body)

    def _ask(self, method: str, path: str, body: dict[str, Json] | None = None) -> Json:
        try:
            return self._run(self._request(method, path, body))
        except _RefusedError as error:
            raise WorkerError(str(error)) from error

    def _run(self, work: Coroutine[object, object, T]) -> T:
        """Run a coroutine on the loop's thread, and wait for its result up to the deadline."""
        if self._loop is None:
            work.close()
            raise WorkerError("is not connected")
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(self._wait)
        except TimeoutError:
            future.cancel()
            raise WorkerError(f"has not answered for {self._wait:g} s") from None
        except CancelledError:  # another thread closed the worker
            raise WorkerError("was closed") from None

    async def _request(self, method: str, path: str, body: dict[str, Json] | None) -> Json:
        content = b"" if body is None else json.dumps(body).encode()
        try:
            reply = await self._send(method, path, content)
        except HttpError:  # the server may just have closed a kept connection
            try:
                reply = await self._send(method, path, content)
            except HttpError as error:
                raise WorkerError(f"cannot be reached: {error}") from error
        if reply.status >= 400:
            reason = f"answers {path} with {reply.status}: {_message(reply.body)}"
            raise _RefusedError(reason) if reply.status < 500 else WorkerError(reason)
        return _parse(reply.body)

    async def _send(self, method: str, path: str, content: bytes) -> HttpReply:
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        target = f"{self._origin.parts.path.rstrip('/')}{path}"
        return await self._origin.request(
            method, target, headers=headers, body=content, max_bytes=MAX_REPLY_BYTES
        )


class _RefusedError(Exception):
    """The server refused a request, and others like it would too."""


def _run_loop(loop: asyncio.AbstractEventLoop, origin: Origin) -> None:
    """Run until the loop is stopped; then cancel its tasks and close connections."""

    async def end() -> None:
        tasks = asyncio.all_tasks(loop) - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await origin.close()

    loop.run_forever()
    loop.run_until_complete(end())
    loop.close()


def _parse(body: bytes) -> Json:
    if not body.strip():
        return None
    try:
        value: Json = json.loads(body)
    except (ValueError, RecursionError):
        raise WorkerError("sent a reply that is not JSON") from None
    return value


def _names(value: Json, name: str) -> list[str]:
    table = value.get(name) if isinstance(value, dict) else None
    return list(table) if isinstance(table, dict) else []


def _message(body: bytes) -> str:
    with suppress(WorkerError):
        value = _parse(body)
        error = value.get("error") if isinstance(value, dict) else None
        message = error.get("message") if isinstance(error, dict) else error
        if isinstance(message, str):
            return message[:300]
    return body[:200].decode(errors="replace")
