"""Only the viewer's own page may ask, and nothing outside the folder can be read."""

import secrets
from pathlib import Path

import pytest
from starlette.testclient import TestClient
from viewer_runs import write_facts, write_run

from whet.errors import DataError
from whet.store.files import write_json
from whet.viewer.run_folders import Root
from whet.viewer.server import STATIC, build_app

SECRET = "not for you"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "secret.jsonl").write_text(f'{{"prompt": [], "task": "{SECRET}"}}\n')
    return write_run(tmp_path / "runs" / "mine").parent


def open_client(folder: Path, *, token: str | None = None, is_local: bool = True) -> TestClient:
    write_facts(folder.parent / "cache")
    app = build_app(folder, folder.parent / "cache", token=token, is_local=is_local)
    return TestClient(app, base_url="http://localhost:8024", follow_redirects=False)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_only_get_is_answered(folder: Path, method: str) -> None:
    assert open_client(folder).request(method, "/api/runs").status_code == 405


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost", 200),
        ("localhost:9999", 200),
        ("127.0.0.1:1", 200),
        ("[::1]:8024", 200),
        ("evil.example", 421),
        ("localhost.evil.example:8024", 421),
        ("127.0.0.1.evil.example", 421),
        ("", 421),
    ],
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(
    folder: Path, host: str, status: int
) -> None:
    answer = open_client(folder).get("/api/runs", headers={"host": host})
    assert answer.status_code == status


@pytest.mark.parametrize(
    ("site", "status"), [("cross-site", 403), ("same-site", 403), ("none", 200)]
)
def test_another_site_may_not_ask(folder: Path, site: str, status: int) -> None:
    answer = open_client(folder).get("/api/runs", headers={"sec-fetch-site": site})
    assert answer.status_code == status
    assert "access-control-allow-origin" not in answer.headers


def test_every_answer_forbids_what_is_not_the_viewers_own(folder: Path) -> None:
    client = open_client(folder)
    for path in ("/", "/api/runs", "/static/js/main.js", "/none", "/api/run?run=none"):
        policy = client.get(path).headers["content-security-policy"]
        assert "default-src 'none'" in policy and "script-src 'self';" in policy
        assert "unsafe" not in policy and "http" not in policy
        assert client.get(path).headers["x-content-type-options"] == "nosniff"


def test_a_report_runs_no_script_and_is_found_by_its_folder_alone(folder: Path) -> None:
    (folder / "mine" / "report.html").write_text("<h1>fine</h1><script>evil()</script>")
    client = open_client(folder)
    shown = client.get("/report", params={"folder": "mine"})
    assert shown.status_code == 200 and "<h1>fine" in shown.text
    policy = shown.headers.get_list("content-security-policy")
    assert len(policy) == 1 and policy[0].startswith("sandbox; default-src 'none';")
    assert "script" not in policy[0] and "http" not in policy[0]
    for name in ("", "..", "../outside", "mine/report.html", str(folder / "mine")):
        assert client.get("/report", params={"folder": name}).status_code == 404


def test_the_pages_ask_nobody_else_and_hold_no_inline_code() -> None:
    own = [STATIC / "index.html", STATIC / "app.css", *(STATIC / "js").rglob("*.js")]
    for file in own:
        text = file.read_text().replace("http://www.w3.org/2000/svg", "")
        assert "http:" not in text and "https:" not in text and "innerHTML" not in text, file
        assert "eval(" not in text and "outerHTML" not in text and "insertAdjacent" not in text
    page = (STATIC / "index.html").read_text()
    assert "<style" not in page and "onclick" not in page and "<script>" not in page


def test_long_requests_and_bodies_are_refused(folder: Path) -> None:
    client = open_client(folder)
    assert client.get("/api/runs?q=" + "a" * 9_000).status_code == 413
    assert client.get("/api/runs", headers={"x-long": "a" * 40_000}).status_code == 413
    assert client.request("GET", "/api/runs", content=b"body").status_code == 413


def test_a_token_is_asked_for_and_moves_into_a_cookie(folder: Path) -> None:
    token = secrets.token_urlsafe(8)
    client = open_client(folder, token=token, is_local=False)
    assert client.get("/api/runs").status_code == 401
    assert client.get("/?token=wrong").status_code == 401
    assert client.get(f"/api/runs?token={token}").status_code == 401
    opened = client.get(f"/?token={token}")
    assert (opened.status_code, opened.headers["location"]) == (303, "/")
    cookie = opened.headers["set-cookie"].lower()
    assert "httponly" in cookie and "samesite=strict" in cookie
    assert client.get("/api/runs").status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py",
        "/static/%2e%2e/app.py",
        "/static/..%2fapp.py",
        "/static//etc/passwd",
        "/static/js/../../guard.py",
        "/etc/passwd",
    ],
)
def test_no_file_beside_the_static_ones_is_served(folder: Path, path: str) -> None:
    answer = open_client(folder).get(path)
    assert answer.status_code in (404, 405) or "text/html" in answer.headers["content-type"]
    assert "root:" not in answer.text and "import " not in answer.text


@pytest.mark.parametrize(
    "name", ["..", "../outside", "/etc", "mine/../..", "mine/..", "%2e%2e", "."]
)
def test_an_id_is_no_path(folder: Path, name: str) -> None:
    client = open_client(folder)
    for question in ("run", "metrics", "rollouts", "agreement", "difficulty"):
        assert client.get(f"/api/{question}", params={"run": name}).status_code == 404


@pytest.mark.parametrize(
    "name", ["../outside/secret.jsonl", "/etc/passwd", "x/../../outside/secret.jsonl"]
)
def test_a_file_name_is_no_path(folder: Path, name: str) -> None:
    client = open_client(folder)
    for question in ("dataset", "result"):
        assert client.get(f"/api/{question}", params={"file": name}).status_code == 404
    rollout = client.get("/api/rollout", params={"run": "mine", "file": name, "row": "0"})
    assert rollout.status_code == 404


def test_links_out_of_the_folder_are_not_followed(folder: Path) -> None:
    outside = folder.parent / "outside"
    (folder / "linked").symlink_to(outside)
    (folder / "secret.jsonl").symlink_to(outside / "secret.jsonl")
    write_json(outside / "leaderboard.json", {"text": SECRET})
    (folder / "leaderboard.json").symlink_to(outside / "leaderboard.json")
    mine = folder / "mine"
    (mine / "failure.txt").symlink_to(outside / "secret.jsonl")
    (mine / "summary.json").symlink_to(outside / "leaderboard.json")
    (mine / "metrics.jsonl").replace(outside / "metrics.jsonl")
    (mine / "metrics.jsonl").symlink_to(outside / "metrics.jsonl")
    (mine / "rollouts" / "train-000001.parquet").replace(outside / "a.parquet")
    (mine / "rollouts" / "train-000001.parquet").symlink_to(outside / "a.parquet")
    client = open_client(folder)
    questions = (
        "runs",
        "run?run=mine",
        "metrics?run=mine&names=reward/mean",
        "datasets",
        "dataset?file=secret.jsonl",
        "results",
        "result?file=leaderboard.json",
        "rollout?run=mine&file=train-000001.parquet&row=0",
    )
    for question in questions:
        answer = client.get(f"/api/{question}")
        assert SECRET not in answer.text and "0.1" not in answer.text, question
    listed = client.get("/api/rollouts?run=mine").json()
    assert listed["of"] == 8  # the two steps that are inside


def test_a_folder_that_is_none_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="takes a folder with runs in it"):
        Root(tmp_path / "none")
