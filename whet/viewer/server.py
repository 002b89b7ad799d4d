"""`whet view`: serve a folder of runs as a web page until it is stopped."""

import secrets
import socket
import webbrowser
from pathlib import Path

import uvicorn

from whet.errors import ConfigError
from whet.track.progress import say
from whet.viewer.app import build_app
from whet.viewer.index import cache_folder

LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")
PORT = 8024
TRIED_PORTS = 20
"""Ports tried from the first on, where none is asked for."""


def serve(folder: Path, *, host: str, port: int | None, token: bool, is_opened: bool) -> None:
    """Serve a folder; on another address than this machine's own, only with a token."""
    is_local = host in LOCAL_HOSTS
    secret = secrets.token_urlsafe(24) if token or not is_local else None
    cache = cache_folder()
    cache.mkdir(parents=True, exist_ok=True, mode=0o700)
    app = build_app(folder, cache, token=secret, is_local=is_local)
    listener = _listen(host, port)
    actual = listener.getsockname()[1]
    shown = host if is_local and ":" not in host else socket.gethostname()
    address = f"http://{shown}:{actual}/" + (f"?token={secret}" if secret else "")
    say(f"{folder} at {address}")
    if is_local:
        say(f"from another machine: ssh -L {actual}:localhost:{actual} {socket.gethostname()}")
    say("Ctrl-C ends it; runs are only read")
    if is_opened:
        webbrowser.open(address)
    config = uvicorn.Config(
        app,
        log_level="warning",
        access_log=False,
        server_header=False,
        lifespan="off",
        ws="none",
        timeout_keep_alive=30,
        h11_max_incomplete_event_size=65_536,
    )
    uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int | None) -> socket.socket:
    """Open the port that is asked for, or the first free one of a few."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    address = "127.0.0.1" if host == "localhost" else host
    ports = range(PORT, PORT + TRIED_PORTS) if port is None else [port]
    for number in ports:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, number))
            listener.listen(128)
            return listener
        except OSError as error:
            listener.close()
            if port is not None:
                raise ConfigError(f"--host {host} --port {port}: {error.strerror}") from error
    raise ConfigError(f"no port from {PORT} to {PORT + TRIED_PORTS - 1} is free; give one: --port")
