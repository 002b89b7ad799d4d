"""Messages over two pipes: four bytes of length, then the message, with an optional deadline.

It uses pipes rather than a socket, because a socket belongs to the network namespace it was made
in, and a program that held one could query the host's interfaces.
"""

import os
import select
import struct
import time

MAX_BYTES = 1 << 24


class ClosedError(Exception):
    """The other side is gone, or sent something that is not a message."""


class LateError(Exception):
    """The deadline has passed."""


class Channel:
    """Reads messages from one file and writes them to another."""

    def __init__(self, reader: int, writer: int) -> None:
        self._reader = reader
        self._writer = writer

    def send(self, message: bytes, deadline: float | None = None) -> None:
        if len(message) > MAX_BYTES:
            raise ClosedError(f"a message of more than {MAX_BYTES} bytes")
        rest = memoryview(struct.pack("<I", len(message)) + message)
        while rest:
            _wait(self._writer, select.POLLOUT, deadline)
            try:
                rest = rest[os.write(self._writer, rest[: 1 << 16]) :]
            except BlockingIOError:
                continue
            except OSError as error:
                raise ClosedError("the other side is gone") from error

    def receive(self, deadline: float | None = None) -> bytes:
        (length,) = struct.unpack("<I", self._read(4, deadline))
        if length > MAX_BYTES:
            raise ClosedError(f"a message of more than {MAX_BYTES} bytes")
        return self._read(length, deadline)

    def close(self) -> None:
        os.close(self._reader)
        os.close(self._writer)

    def _read(self, length: int, deadline: float | None) -> bytes:
        parts: list[bytes] = []
        while length:
            _wait(self._reader, select.POLLIN, deadline)
            part = os.read(self._reader, min(length, 1 << 18))
            if not part:
                raise ClosedError("the other side is gone")
            parts.append(part)
            length -= len(part)
        return b"".join(parts)


def open_channel() -> tuple[Channel, tuple[int, int]]:
    """Make a channel that never blocks, and the two files for the other side to read and write."""
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    os.set_blocking(ours_out, False)
    return Channel(ours_in, ours_out), (theirs_in, theirs_out)


def _wait(fd: int, event: int, deadline: float | None) -> None:
    poll = select.poll()
    poll.register(fd, event)
    seconds = None if deadline is None else max(0.0, deadline - time.monotonic())
    if not poll.poll(None if seconds is None else seconds * 1000):
        raise LateError("out of time")
