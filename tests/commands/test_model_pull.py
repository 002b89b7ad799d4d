"""`whet model pull` against a hub on the loopback: what is fetched, resumed and checked."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from huggingface_hub import constants
from small import whet

from whet.commands.model_folders import pull_model
from whet.errors import DataError
from whet.models.load import load_decoder
from whet.testing.tiny import tiny_policy

COMMIT = "c" * 40
OTHERS = ("pytorch_model.bin", "consolidated.safetensors", "README.md", "onnx/model.safetensors")


class Hub(ThreadingHTTPServer):
    """A hub of one repository. `cut` ends the first answer with weights after so many bytes,
    `damage` changes a byte of so many answers with weights."""

    def __init__(self, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.folder = folder
        self.fetched: list[tuple[str, str | None]] = []
        self.cut: int | None = None
        self.damage = 0

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def list_files(self) -> list[dict[str, object]]:
        rows: list[dict[str, object]] = [{"rfilename": name, "size": 7} for name in OTHERS]
        for path in sorted(self.folder.iterdir()):
            content = path.read_bytes()
            row: dict[str, object] = {"rfilename": path.name, "size": len(content)}
            if path.suffix == ".safetensors":
                digest = hashlib.sha256(content).hexdigest()
                row["lfs"] = {"sha256": digest, "size": len(content), "pointerSize": 130}
            rows.append(row)
        return rows


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        path = self.path.partition("?")[0]
        if path.startswith("/api/models/me/tiny"):
            if "gone" in path:
                self._send(404, b"{}", {"X-Error-Code": "RevisionNotFound"})
                return
            if "/tree/" in path:
                rows = [
                    {"type": "file", "oid": "0", "path": row["rfilename"], "size": row["size"]}
                    for row in self.server.list_files()
                ]
                self._send(200, json.dumps(rows).encode(), {})
                return
            row = {"id": "me/tiny", "sha": COMMIT, "siblings": self.server.list_files()}
            self._send(200, json.dumps(row).encode(), {})
            return
        file = self.server.folder / path.rpartition("/")[2]
        if not path.startswith("/me/tiny/resolve/") or not file.is_file():
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"})
            return
        self._send_file(file, with_body=with_body)

    def _send_file(self, file: Path, *, with_body: bool) -> None:
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        headers = {"ETag": f'"{digest}"', "X-Repo-Commit": COMMIT}
        if not with_body:
            self._send(200, content, headers, with_body=False)
            return
        asked = self.headers.get("Range")
        self.server.fetched.append((file.name, asked))
        start = int(asked.removeprefix("bytes=").partition("-")[0]) if asked else 0
        if file.suffix == ".safetensors" and self.server.damage:
            self.server.damage -= 1
            content = content[:-1] + bytes([content[-1] ^ 1])
        total = len(content)
        body = content[start:]
        if asked:
            headers["Content-Range"] = f"bytes {start}-{total - 1}/{total}"
        cut = self.server.cut if file.suffix == ".safetensors" else None
        self.server.cut = None if cut is not None else self.server.cut
        self._send(206 if asked else 200, body, headers, cut=cut)

    def _send(
        self,
        code: int,
        body: bytes,
        headers: dict[str, str],
        *,
        with_body: bool = True,
        cut: int | None = None,
    ) -> None:
        self.send_response(code)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name, value)
        self.end_headers()
        if with_body:
            self.wfile.write(body if cut is None else body[:cut])
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    tiny_policy().save(tmp_path / "repository")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    server = Hub(tmp_path / "repository")
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_model_is_fetched_without_the_files_that_whet_does_not_read(
    hub: Hub, tmp_path: Path
) -> None:
    folder = pull_model("me/tiny", out=tmp_path / "out", endpoint=hub.endpoint)
    names = {path.name for path in folder.iterdir() if path.is_file()}
    assert names == {path.name for path in hub.folder.iterdir()}
    assert {name for name, _ in hub.fetched} == names
    for path in hub.folder.iterdir():
        assert (folder / path.name).read_bytes() == path.read_bytes()
    assert load_decoder(folder, dtype=tiny_policy().model.dtype, device="cpu").cfg.num_layers == 2


def test_a_second_pull_fetches_nothing(hub: Hub, tmp_path: Path) -> None:
    pull_model("me/tiny", out=tmp_path / "out", endpoint=hub.endpoint)
    hub.fetched.clear()
    pull_model("me/tiny", out=tmp_path / "out", endpoint=hub.endpoint)
    assert hub.fetched == []


def test_a_file_that_arrives_damaged_is_fetched_once_more(hub: Hub, tmp_path: Path) -> None:
    hub.damage = 1
    folder = pull_model("me/tiny", out=tmp_path / "out", endpoint=hub.endpoint)
    file = "model.safetensors"
    assert (folder / file).read_bytes() == (hub.folder / file).read_bytes()
    assert [name for name, _ in hub.fetched].count(file) == 2


def test_a_file_that_stays_damaged_is_refused(hub: Hub, tmp_path: Path) -> None:
    hub.damage = 9
    with pytest.raises(DataError, match=r"model\.safetensors of me/tiny does not match the hub"):
        pull_model("me/tiny", out=tmp_path / "out", endpoint=hub.endpoint)


def test_a_download_that_broke_off_goes_on_where_it_stopped(
    hub: Hub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "DOWNLOAD_CHUNK_SIZE", 1000)
    hub.cut = 10_000
    pull_model("me/tiny", out=tmp_path / "out", endpoint=hub.endpoint)
    ranges = [asked for name, asked in hub.fetched if name == "model.safetensors"]
    assert ranges == [None, "bytes=10000-"]
    file = "model.safetensors"
    assert (tmp_path / "out" / file).read_bytes() == (hub.folder / file).read_bytes()


@pytest.mark.parametrize(
    ("hub_id", "revision"), [("me/other", None), ("me/tiny", "gone"), ("not an id!", None)]
)
def test_what_the_hub_does_not_have_is_a_sentence(
    hub_id: str, revision: str | None, hub: Hub, tmp_path: Path
) -> None:
    with pytest.raises(
        DataError, match=f"^{hub_id} could not be downloaded from the hub"
    ) as caught:
        pull_model(hub_id, revision=revision, out=tmp_path / "out", endpoint=hub.endpoint)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_without_a_network_a_pull_is_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    said = whet("model", "pull", "me/tiny", "--out", tmp_path / "out")
    assert said.code == 2
    assert said.last.startswith("whet: me/tiny could not be downloaded from the hub (")
