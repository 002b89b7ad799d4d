"""The answers of the viewer's API, asked as a browser would."""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest
from starlette.testclient import TestClient
from viewer_runs import write_facts, write_run, write_step, write_verl_dump

from whet.data.problems import write_problems
from whet.store.files import append_row, write_json
from whet.store.view_cache import write_token_columns
from whet.testing.fakes import sum_problem
from whet.types import Json
from whet.viewer.server import STATIC, build_app

VENDOR = {
    "uPlot.iife.min.js": "19c8d4c6ad88929a79f4ae49d6f7161566dfd0ba3d15cc495e974f787eb78f1f",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
    "katex.min.js": "fa140498b8cfc8302cbe5e7cb1bdbc1f952bc38b3fa258ede09e73edbf9a74bc",
    "katex.min.css": "00e0b094171b07f58422075f469b4feac2b2f7bce1aeec943c08da4d697f4dcf",
}
"""SHA-256 of what npm has as uplot 1.6.32 and katex 0.19.1."""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_run(tmp_path / "runs" / "one" / "05-rl")
    write_run(tmp_path / "runs" / "two" / "05-rl", seed=2, lr=2e-3)
    write_verl_dump(tmp_path / "runs" / "verl")
    return tmp_path / "runs"


@pytest.fixture
def client(folder: Path, tmp_path: Path) -> TestClient:
    write_facts(tmp_path / "cache")
    app = build_app(folder, tmp_path / "cache", token=None, is_local=True)
    return TestClient(app, base_url="http://localhost:8024")


def ask(client: TestClient, question: str, **params: object) -> dict[str, Json]:
    answer = client.get(f"/api/{question}", params={k: str(v) for k, v in params.items()})
    assert answer.status_code == 200, answer.text
    value = answer.json()
    assert isinstance(value, dict)
    return value


def test_the_page_and_its_files_are_there(client: TestClient) -> None:
    page = client.get("/")
    assert page.status_code == 200 and "<main" in page.text
    for name in ("app.css", "js/main.js", "vendor/katex.min.js"):
        assert client.get(f"/static/{name}").status_code == 200


def test_a_run_has_its_validations_without_the_rates_of_problems(
    client: TestClient, folder: Path
) -> None:
    row = {"pass_at": {"1": {"mean": 0.5}}, "rates": {"one": 0.5}}
    write_json(folder / "one" / "05-rl" / "evals" / "000002.json", row)

    evals = ask(client, "run", run="one/05-rl")["evals"]
    assert evals == [{"step": "000002", "result": {"pass_at": {"1": {"mean": 0.5}}}}]


def test_what_is_shipped_of_others_is_what_they_released() -> None:
    found = {
        name: hashlib.sha256((STATIC / "vendor" / name).read_bytes()).hexdigest() for name in VENDOR
    }
    assert found == VENDOR
    fonts = sorted((STATIC / "vendor" / "fonts").iterdir())
    digest = hashlib.sha256(b"".join(font.read_bytes() for font in fonts)).hexdigest()
    assert (len(fonts), digest) == (
        20,
        "828407d84173ee0cab8a07f900dc1fe257f9f19fd77cfef835aa9772443677a8",
    )
    assert all((STATIC / "vendor" / f"{name}.LICENSE").is_file() for name in ("uPlot", "katex"))


def test_runs_are_listed_with_what_they_are(client: TestClient) -> None:
    runs = ask(client, "runs")["runs"]
    assert isinstance(runs, list)
    by_id = {row["id"]: row for row in runs if isinstance(row, dict)}
    assert sorted(by_id) == ["one/05-rl", "two/05-rl", "verl"]
    one = by_id["one/05-rl"]
    assert (one["kind"], one["step"], one["steps"], one["seed"]) == ("rl", 3, 4, 1)
    assert one["spark"] == [0.1, 0.2, 0.3]
    assert by_id["verl"]["state"] == "imported"


def test_a_run_that_was_told_to_stop_is_not_running(client: TestClient, folder: Path) -> None:
    """It has just written its metrics, and would count as running for some time."""
    assert ask(client, "run", run="one/05-rl")["state"] == "running"
    ledger = folder / "one" / "05-rl" / "ledger.jsonl"
    append_row(ledger, {"time": "2026-11-18T00:01:00+00:00", "event": "stop", "step": 3})
    assert ask(client, "run", run="one/05-rl")["state"] == "stopped"
    append_row(ledger, {"time": "2026-11-18T00:02:00+00:00", "event": "resume"})
    assert ask(client, "run", run="one/05-rl")["state"] == "running"


def test_runs_that_differ_in_their_seed_alone_are_one_group(folder: Path, tmp_path: Path) -> None:
    write_run(folder / "three" / "05-rl", seed=3)
    write_facts(tmp_path / "cache")
    app = build_app(folder, tmp_path / "cache", token=None, is_local=True)
    runs = ask(TestClient(app, base_url="http://localhost"), "runs")["runs"]
    assert isinstance(runs, list)
    groups = {row["id"]: row["group"] for row in runs if isinstance(row, dict)}
    assert groups["one/05-rl"] == groups["three/05-rl"] != groups["two/05-rl"]


def test_metrics_follow_a_run_that_goes_on(client: TestClient, folder: Path) -> None:
    names = {"run": "one/05-rl", "names": "reward/mean,none"}
    assert ask(client, "metrics", **names)["series"] == {
        "reward/mean": [[1, 2, 3], [0.1, 0.2, 0.3]]
    }
    write_step(folder / "one" / "05-rl", 4)
    series = ask(client, "metrics", **names)["series"]
    assert isinstance(series, dict) and series["reward/mean"] == [
        [1, 2, 3, 4],
        [0.1, 0.2, 0.3, 0.4],
    ]


def test_metrics_of_a_rewound_run_are_read_from_the_start(client: TestClient, folder: Path) -> None:
    ask(client, "metrics", run="one/05-rl", names="reward/mean")
    file = folder / "one" / "05-rl" / "metrics.jsonl"
    file.write_text('{"step":1,"reward/mean":0.7}\n{"step":2,"reward/mean":NaN}\n{"step":3,"rew')
    series = ask(client, "metrics", run="one/05-rl", names="reward/mean")["series"]
    assert series == {"reward/mean": [[1], [0.7]]}


def test_what_has_not_changed_is_answered_with_304(client: TestClient) -> None:
    first = client.get("/api/metrics", params={"run": "one/05-rl"})
    again = client.get(
        "/api/metrics",
        params={"run": "one/05-rl"},
        headers={"if-none-match": first.headers["etag"]},
    )
    assert (again.status_code, again.content) == (304, b"")


def test_settings_are_compared_in_words(client: TestClient) -> None:
    compared = ask(client, "compare", a="one/05-rl", b="two/05-rl")
    rows = compared["differences"]
    assert isinstance(rows, list)
    words = {row["key"]: row["words"] for row in rows if isinstance(row, dict)}
    assert words == {"seed": "", "train.lr": "B is 2 × A"}
    assert [row["meaning"] for row in rows if isinstance(row, dict)] == ["", "Peak learning rate."]


def test_algorithms_are_compared_by_what_their_names_stand_for(
    client: TestClient, folder: Path
) -> None:
    config = folder / "two" / "05-rl" / "config.toml"
    text = config.read_text().replace('name = "grpo"', 'name = "ppo"\nclip_high = 0.2')
    config.write_text(f'data = "runs/two/01-traces"\n{text}')
    first = folder / "one" / "05-rl" / "config.toml"
    first.write_text(f'data = "runs/one/01-traces"\n{first.read_text()}')
    rows = ask(client, "compare", a="one/05-rl", b="two/05-rl")["differences"]
    assert isinstance(rows, list)
    shown = {row["key"]: row for row in rows if isinstance(row, dict)}
    assert (shown["algo.advantage"]["a"], shown["algo.advantage"]["b"]) == ('"zscore"', '"gae"')
    assert "algo.clip_high" not in shown, "both have 0.2, one from its preset"
    assert [key for key, row in shown.items() if row["is_path"]] == ["data"]


def test_a_run_has_its_settings_with_their_origins(client: TestClient) -> None:
    settings = ask(client, "run", run="one/05-rl")["settings"]
    assert isinstance(settings, list)
    origins = {row["key"]: row["origin"] for row in settings if isinstance(row, dict)}
    assert (origins["train.lr"], origins["steps"]) == ("cli", "default")


def test_a_rollout_says_where_its_reward_comes_from(client: TestClient) -> None:
    shown = ask(client, "rollout", run="one/05-rl", file="train-000002.parquet", row=1)
    assert shown["terms"] == [
        {"name": "correct", "weight": 1.0, "value": 0.0, "product": 0.0},
        {"name": "overlong", "weight": 0.5, "value": -1.0, "product": -0.5},
    ]
    assert shown["note"] == "not 3"


def test_a_rollout_knows_its_place_in_a_filtered_list(client: TestClient) -> None:
    """Two of four are wrong in the second group of each step, and one in the first."""
    place = {"run": "one/05-rl", "verdict": "wrong", "step": "2..3", "sort": "step"}
    shown = ask(client, "rollout", file="train-000002.parquet", row=2, **place)
    assert (shown["sample"], shown["advantage"]) == (1, pytest.approx(0.70711, abs=1e-4))
    assert shown["neighbours"] == {
        "number": 2,
        "total": 6,
        "previous": {"file": "train-000002.parquet", "row": 1},
        "next": {"file": "train-000002.parquet", "row": 3},
        "before": {"file": "train-000002.parquet", "row": 1},
        "after": {"file": "train-000003.parquet", "row": 1},
    }
    other = ask(client, "rollout", file="train-000002.parquet", row=0, **place)["neighbours"]
    assert isinstance(other, dict) and other["number"] is None
    assert other["next"] == {"file": "train-000002.parquet", "row": 1}


def test_tokens_have_the_numbers_that_are_known_and_reasons_for_the_others(
    client: TestClient,
) -> None:
    shown = ask(client, "rollout", run="one/05-rl", file="train-000002.parquet", row=0)
    columns, absent = shown["columns"], shown["absent"]
    assert isinstance(columns, dict) and isinstance(absent, dict)
    assert columns["logprob"] == pytest.approx([-0.1, -0.2, -0.3])
    # Rewards 1 and -0.5: mean 0.25, deviation 1.0607, so 0.75 / 1.0607.
    assert columns["advantage"] == pytest.approx([0.70711] * 3, abs=1e-4)
    assert {"ratio", "entropy", "mask", "engine_gap", "step_credit"} == set(absent)
    pieces = shown["pieces"]
    assert isinstance(pieces, list) and len(pieces) == 3


def test_an_algorithm_with_a_critic_has_no_advantage_without_its_values(
    client: TestClient, folder: Path
) -> None:
    config = folder / "one" / "05-rl" / "config.toml"
    config.write_text(config.read_text().replace('name = "grpo"', 'name = "ppo"'))
    absent = ask(client, "rollout", run="one/05-rl", file="train-000001.parquet", row=0)["absent"]
    assert isinstance(absent, dict) and absent["advantage"] == (
        "not stored; gae needs more than the rewards of the group"
    )


def test_without_a_tokenizer_every_quantity_has_the_reason(
    client: TestClient, folder: Path
) -> None:
    for path in (folder / "one" / "05-rl" / "checkpoints").rglob("*.json"):
        path.unlink()
    shown = ask(client, "rollout", run="one/05-rl", file="train-000001.parquet", row=0)
    absent = shown["absent"]
    assert shown["pieces"] is None and shown["columns"] == {} and isinstance(absent, dict)
    assert absent["logprob"] == (
        "tokens cannot be shown: there is no tokenizer in the folder that is shown"
    )


def test_a_function_of_the_users_own_is_not_run(client: TestClient, folder: Path) -> None:
    run = folder / "one" / "05-rl"
    (run / "mine.py").write_text(
        "import pathlib\npathlib.Path('ran').touch()\ndef f(r, s): return 1"
    )
    config = run / "config.toml"
    own = f'[[reward.terms]]\nkind = "own"\npath = "{run}/mine.py:f"\nweight = 1.0\n\n[algo]'
    config.write_text(config.read_text().replace("[algo]", own))
    terms = ask(client, "rollout", run="one/05-rl", file="train-000002.parquet", row=1)["terms"]
    assert isinstance(terms, list) and isinstance(terms[-1], dict)
    assert (terms[-1]["name"], terms[-1]["product"]) == ("your own function", 0.0)
    assert not Path("ran").exists()


def test_the_rollout_of_another_system_shows_its_fields(client: TestClient) -> None:
    shown = ask(client, "rollout", run="verl", file="10.jsonl", row=1)
    fields = shown["fields"]
    assert isinstance(fields, dict) and fields["output"] == "Five" and fields["format"] == "0.5"
    siblings = shown["siblings"]
    assert isinstance(siblings, list) and len(siblings) == 1


def test_problem_files_are_found_and_searched(client: TestClient, folder: Path) -> None:
    problems = [sum_problem(left, 1) for left in range(30)]
    write_problems(folder, "rl", problems)
    (folder / "notes.jsonl").write_text('{"a": 1}\n')
    files = ask(client, "datasets")["files"]
    assert isinstance(files, list)
    assert [row["file"] for row in files if isinstance(row, dict)] == ["problems-rl.jsonl"]
    page = ask(client, "dataset", file="problems-rl.jsonl", q="29 + 1")
    rows = page["rows"]
    assert (page["total"], page["of"]) == (1, 30) and isinstance(rows, list)
    assert isinstance(rows[0], dict) and rows[0]["number"] == 29


def test_tables_of_results_are_found_by_name(client: TestClient, folder: Path) -> None:
    write_json(folder / "study" / "study.json", {"rounds": [{"title": "lr"}]})
    write_json(folder / "other.json", {"secret": 1})
    files = ask(client, "results")["files"]
    assert files == [{"file": "study/study.json", "kind": "study"}]
    assert ask(client, "result", file="study/study.json")["value"] == {"rounds": [{"title": "lr"}]}
    assert client.get("/api/result", params={"file": "other.json"}).status_code == 404


@pytest.mark.parametrize(
    ("question", "status"),
    [
        ("run", 400),
        ("run?run=none", 404),
        ("rollouts?run=one/05-rl&step=x", 404),
        ("rollouts?run=one/05-rl&offset=-1", 404),
        ("rollout?run=one/05-rl&file=train-000001.parquet&row=99", 404),
        ("problem?run=one/05-rl&problem=none", 404),
        ("none", 404),
    ],
)
def test_a_wrong_question_is_answered_with_a_sentence(
    client: TestClient, question: str, status: int
) -> None:
    answer = client.get(f"/api/{question}")
    assert answer.status_code == status
    assert question == "none" or len(json.loads(answer.text)["error"]) > 10


def test_tokens_are_coloured_by_what_a_replay_computed(
    client: TestClient, folder: Path, tmp_path: Path
) -> None:
    file = "train-000002.parquet"
    place = {"run": "one/05-rl", "file": file, "row": 0}
    before = ask(client, "rollout", **place)
    assert isinstance(before["absent"], dict) and isinstance(before["id"], str)
    command = f"whet replay {folder / 'one' / '05-rl'} --step 2 --tokens"
    assert before["absent"]["entropy"] == f"not stored; computed by: {command}"
    path = folder / "one" / "05-rl" / "rollouts" / file
    numbers = {"entropy": np.array([0.5, 0.25], np.float32), "mask": np.ones(2, np.float32)}
    write_token_columns(tmp_path / "cache", path, {before["id"]: numbers})
    after = ask(client, "rollout", **place)
    assert isinstance(after["columns"], dict) and isinstance(after["absent"], dict)
    assert after["columns"]["entropy"] == [0.5, 0.25]
    assert "entropy" not in after["absent"]
    assert (
        after["absent"]["ratio"] == "the update left this response out: no token of it had a loss"
    )
    path.touch()
    assert ask(client, "rollout", **place)["columns"] == before["columns"]
