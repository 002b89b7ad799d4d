"""Messages on a socket: four bytes of length, then the message, with an optional deadline."""

import contextlib
import socket
import struct
import time
from collections.abc import Iterator

MAX_BYTES = 1 << 24


class ClosedError(Exception):
    """The other side is gone, or sent something that is no message."""


class LateError(Exception):
    """The deadline has passed."""


def send(sock: socket.socket, message: bytes, deadline: float | None = None) -> None:
    if len(message) > MAX_BYTES:
        raise ClosedError(f"a message of more than {MAX_BYTES} bytes")
    with _until(deadline, sock):
        sock.sendall(struct.pack("<I", len(message)) + message)


def receive(sock: socket.socket, deadline: float | None = None) -> bytes:
    (length,) = struct.unpack("<I", _read(sock, 4, deadline))
    if length > MAX_BYTES:
        raise ClosedError(f"a message of more than {MAX_BYTES} bytes")
    return _read(sock, length, deadline)


def _read(sock: socket.socket, length: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while length:
        with _until(deadline, sock):
            part = sock.recv(min(length, 1 << 18))
        if not part:
            raise ClosedError("the other side is gone")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


@contextlib.contextmanager
def _until(deadline: float | None, sock: socket.socket) -> Iterator[None]:
    """Let a call of the socket wait until the deadline, and name what ends it."""
    sock.settimeout(None if deadline is None else max(0.0, deadline - time.monotonic()))
    try:
        yield
    except (TimeoutError, BlockingIOError) as error:
        raise LateError("out of time") from error
    except OSError as error:
        raise ClosedError("the other side is gone") from error
