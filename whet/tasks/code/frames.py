"""Messages on a socket: four bytes of length, then the message, with an optional deadline."""

import select
import socket
import struct
import time

MAX_BYTES = 1 << 24


class ClosedError(Exception):
    """The other side is gone, or sent something that is no message."""


class LateError(Exception):
    """The deadline has passed."""


def send(sock: socket.socket, message: bytes, deadline: float | None = None) -> None:
    if len(message) > MAX_BYTES:
        raise ClosedError(f"a message of more than {MAX_BYTES} bytes")
    rest = memoryview(struct.pack("<I", len(message)) + message)
    while rest:
        _wait(sock, select.POLLOUT, deadline)
        try:
            rest = rest[sock.send(rest) :]
        except BlockingIOError:
            continue
        except OSError as error:
            raise ClosedError("the other side is gone") from error


def receive(sock: socket.socket, deadline: float | None = None) -> bytes:
    (length,) = struct.unpack("<I", _read(sock, 4, deadline))
    if length > MAX_BYTES:
        raise ClosedError(f"a message of more than {MAX_BYTES} bytes")
    return _read(sock, length, deadline)


def _read(sock: socket.socket, length: int, deadline: float | None) -> bytes:
    parts: list[bytes] = []
    while length:
        _wait(sock, select.POLLIN, deadline)
        try:
            part = sock.recv(min(length, 1 << 18))
        except BlockingIOError:
            continue
        except OSError as error:
            raise ClosedError("the other side is gone") from error
        if not part:
            raise ClosedError("the other side is gone")
        parts.append(part)
        length -= len(part)
    return b"".join(parts)


def _wait(sock: socket.socket, event: int, deadline: float | None) -> None:
    if deadline is None:
        return
    poll = select.poll()
    poll.register(sock, event)
    if not poll.poll(max(0.0, deadline - time.monotonic()) * 1000):
        raise LateError("out of time")
