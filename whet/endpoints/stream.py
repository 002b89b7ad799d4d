"""Send many concurrent requests from synchronous code: bodies in, replies out as they arrive.

The event loop runs on its own thread, so replies are received and stored while the caller works.
"""

import asyncio
import resource
import threading
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import Generic, TypeVar

from whet.endpoints.client import Client, Reply
from whet.errors import ConfigError
from whet.types import Json

K = TypeVar("K")
MAX_UNREAD = 20_000
"""Unread replies above which no more requests are sent."""
POLL_SECONDS = 0.05
OTHER_FILES = 256
"""Files that a process may have open besides its connections."""


def stream_replies(
    client: Client, requests: Iterator[tuple[K, dict[str, Json]]], store: Callable[[K, Reply], None]
) -> Generator[tuple[K, Reply], None, None]:
    """Send every body, `in_flight` at a time, and yield each key with its reply.

    `store` is called on the loop's thread as soon as a reply arrives; an exception in it ends the
    stream. `requests` is read on the same thread. Closing the generator drops requests in flight.
    """
    stream = _Stream(client, requests, store)
    thread = threading.Thread(target=stream.run, daemon=True)
    thread.start()
    try:
        while (item := stream.queue.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            stream.num_read += 1
            yield item
    finally:
        stream.stop()
        thread.join()


def allow_open_files(count: int) -> None:
    """Raise this process's file limit for `count` connections; refuse if the system forbids it."""
    needed = count + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and needed > hard:
        raise ConfigError(
            f"in_flight = {count:,} needs as many open files, and this process may have {hard:,}: "
            f"set it to {hard - OTHER_FILES:,} at most, or raise `ulimit -n`"
        )
    if soft != resource.RLIM_INFINITY and needed > soft:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


class _Stream(Generic[K]):
    def __init__(
        self,
        client: Client,
        requests: Iterator[tuple[K, dict[str, Json]]],
        store: Callable[[K, Reply], None],
    ) -> None:
        self.client = client
        self.requests = requests
        self.store = store
        self.queue: SimpleQueue[tuple[K, Reply] | BaseException | None] = SimpleQueue()
        self.num_received = 0
        self.num_read = 0
        self._loop = asyncio.new_event_loop()
        self._main = self._loop.create_task(self._ask_all())

    def run(self) -> None:
        try:
            with suppress(asyncio.CancelledError):
                self._loop.run_until_complete(self._main)
            self.queue.put(None)
        except BaseExceptionGroup as group:
            self.queue.put(group.exceptions[0])
        finally:
            self._loop.close()

    def stop(self) -> None:
        """Cancel requests in flight; do nothing if the loop has already ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._main.cancel)

    async def _ask_all(self) -> None:
        async with self.client, asyncio.TaskGroup() as group:
            for _ in range(self.client.cfg.in_flight):
                group.create_task(self._ask_some())

    async def _ask_some(self) -> None:
        """Send one body after another; `in_flight` of these tasks run concurrently."""
        for key, body in self.requests:
            reply = await self.client.ask(body)
            self.store(key, reply)
            self.num_received += 1
            self.queue.put((key, reply))
            while self.num_received - self.num_read > MAX_UNREAD:
                await asyncio.sleep(POLL_SECONDS)
