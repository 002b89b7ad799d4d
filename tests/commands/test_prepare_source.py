"""`whet data prepare`: a folder of problems from a source's raw files, whole or not at all, and one
sentence for every mistake."""

import hashlib
import json
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from huggingface_hub import constants
from small import whet

from whet.commands.mix_files import prepare_problems
from whet.data.problems import read_problems
from whet.data.sources import list_sources, load_source
from whet.data.sources.prepare import prepare_source
from whet.data.sources.raw_files import find_raw_files
from whet.errors import ConfigError, DataError
from whet.store.files import read_json
from whet.store.rollouts import read_rollouts
from whet.types import Json

MINE = """about = "sums"
tasks = ["math"]
where = "my own disk"
map = { prompt = "q", answer = "gold", response = "worked" }
keep = [{ column = "rate", max = 0.9 }, { column = "gold", empty = "no" }]
sample = { test = 2 }
files = [{ names = ["sums.jsonl"], split = { rl = 0.5, test = 0.5 } }]

[prompt]
system = "You add."
remove = ["Please. "]
template = "{prompt} Box it."
"""


def sums(count: int, **columns: Json) -> list[dict[str, Json]]:
    return [
        {
            "q": f"Please. {n} + 1?",
            "gold": n + 1,
            "worked": f"It is {n + 1}.",
            "rate": 0.5,
            **columns,
        }
        for n in range(count)
    ]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Work in an empty folder with a source of one's own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.toml").write_text(MINE)
    return tmp_path


@pytest.fixture
def no_hub(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the hub be a port of this machine that nobody listens on."""
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)


def write_raw(rows: list[dict[str, Json]], file: str = "data/raw/mine/sums.jsonl") -> Path:
    path = Path(file)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_folder(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_source_of_ones_own_is_filtered_prompted_split_and_sampled(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*sums(20), *sums(1), {**sums(22)[20], "rate": 1.0}, {**sums(23)[21], "gold": ""}]
    raw = write_raw(rows)

    counts = prepare_problems("mine.toml")

    rl, test = (
        read_problems(Path(f"data/mine/problems-{split}.jsonl")) for split in ("rl", "test")
    )
    num_problems = 20 - counts.left_out["is beyond the sample of 2 of the split test"]
    assert (counts.rows, len(rl) + len(test), len(test)) == (23, num_problems, 2)
    assert (counts.num_added, counts.left_out["rate is above 0.9"]) == (1, 1)
    assert rl[0].prompt[0].content == "You add."
    assert all(problem.prompt[1].content.endswith("+ 1? Box it.") for problem in rl + test)
    assert not {problem.id for problem in rl} & {problem.id for problem in test}
    answers = read_rollouts(Path("data/mine/problems-rl.rollouts.parquet"))
    assert {answer.problem.id: answer.problem for answer in answers} == {p.id: p for p in rl}
    assert answers[0].text == f"It is {rl[0].answer}."
    facts = read_json(Path("data/mine/source.json"))
    assert isinstance(facts, dict)
    assert facts["definition"] == MINE
    assert facts["definition_sha256"] == hashlib.sha256(MINE.encode()).hexdigest()
    assert facts["raw_files"] == [
        {
            **{"name": "sums.jsonl", "origin": "data/raw/mine", "bytes": raw.stat().st_size},
            "sha256": hashlib.sha256(raw.read_bytes()).hexdigest(),
        }
    ]
    assert facts["left_out"] == dict(counts.left_out.most_common())
    said = capsys.readouterr().err
    assert "1 rate is above 0.9 (first: sums.jsonl:22)" in said
    assert "1 gold is empty (first: sums.jsonl:23)" in said
    assert "1 rows add answers to the problems of earlier rows" in said
    assert "is beyond the sample of 2 of the split test" in said


@pytest.mark.parametrize("name", ["rows/sums.jsonl", "rows/*.jsonl", "{home}/rows/sums.jsonl"])
def test_names_in_a_source_of_ones_own_may_be_paths_from_its_folder(home: Path, name: str) -> None:
    text = MINE.replace("sums.jsonl", name.format(home=home)).replace('where = "my own disk"', "")
    (home / "deep").mkdir()
    (home / "deep" / "mine.toml").write_text(text)
    with pytest.raises(DataError, match=r"put .* into data/raw/mine, or name files with --file$"):
        prepare_problems("deep/mine.toml")
    write_raw(sums(4), "rows/sums.jsonl" if "{" in name else "deep/rows/sums.jsonl")
    assert prepare_problems("deep/mine.toml").rows == 4


def test_new_rows_change_neither_the_split_of_old_ones_nor_the_order_of_a_sample(
    home: Path,
) -> None:
    write_raw(sums(20))
    prepare_problems("mine.toml")
    before = {p.id for p in read_problems(Path("data/mine/problems-rl.jsonl"))}
    write_raw(list(reversed(sums(40))))
    prepare_problems("mine.toml", force=True)
    after = {p.id for p in read_problems(Path("data/mine/problems-rl.jsonl"))}
    assert before < after
    first = read_problems(Path("data/mine/problems-test.jsonl"))
    write_raw(sums(40))
    prepare_problems("mine.toml", force=True)
    again = read_problems(Path("data/mine/problems-test.jsonl"))
    assert {p.id for p in first} == {p.id for p in again} and len(first) == 2


def test_a_folder_is_replaced_only_by_force_and_never_one_that_was_not_prepared(home: Path) -> None:
    write_raw(sums(9))
    prepare_problems("mine.toml", limit=3)
    with pytest.raises(ConfigError, match="data/mine already exists: add --force to replace it"):
        prepare_problems("mine.toml")
    assert prepare_problems("mine.toml", force=True).rows == 9
    Path("notes").mkdir()
    Path("notes/mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"notes has no source\.json.*choose another --out"):
        prepare_problems("mine.toml", out=Path("notes"), force=True)
    assert read_folder(Path("notes")) == {"mine.txt": b"mine"}


def test_a_run_that_is_interrupted_leaves_the_old_folder_and_nothing_half(home: Path) -> None:
    write_raw(sums(9))
    prepare_problems("mine.toml")
    before = read_folder(Path("data/mine"))
    source, definition = load_source("mine.toml")
    raw_files = find_raw_files(source, Path("data/raw/mine"), ())

    def stop(count: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        prepare_source(
            *(source, raw_files, Path("data/mine")),
            name="mine",
            definition=definition,
            advance=stop,
        )
    assert read_folder(Path("data/mine")) == before
    assert sorted(path.name for path in Path("data").iterdir()) == ["mine", "raw"]


def test_an_old_folder_that_a_kill_has_set_aside_comes_back(home: Path) -> None:
    write_raw(sums(9))
    prepare_problems("mine.toml")
    Path("data/mine").rename("data/.mine.old")
    write_raw([{"q": "1?"}])
    with pytest.raises(DataError, match="has no column 'rate'"):
        prepare_problems("mine.toml")
    assert Path("data/mine/source.json").is_file()


def test_rows_that_cannot_be_read_are_listed_and_counted(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_raw([*sums(3), {**sums(1)[0], "q": 5}, {"q": "no more", "rate": 0.1}])
    counts = prepare_problems("mine.toml")
    assert (counts.num_listed, counts.left_out.total()) == (2, 2)
    listed = Path("data/mine/left_out.jsonl").read_text().splitlines()
    assert [json.loads(line)["place"] for line in listed] == ["sums.jsonl:4", "sums.jsonl:5"]
    assert "2 rows left out; 2 are listed in data/mine/left_out.jsonl" in capsys.readouterr().err


def test_one_of_several_files_of_another_schema_is_refused(home: Path) -> None:
    write_raw([{"question": "1 + 1?", "answer": "It is 2.\n#### 2"}], "gsm8k_test.jsonl")
    write_raw([{"problem": "1 + 1?", "answer": "It is 2.\n#### 2"}], "gsm8k_train.jsonl")
    with pytest.raises(DataError, match=r"gsm8k_train\.jsonl line 1: has no field 'question'"):
        prepare_problems("gsm8k", files=["gsm8k_test.jsonl", "gsm8k_train.jsonl"])
    assert not Path("data").exists() or list(Path("data").iterdir()) == []


def test_a_long_file_of_another_schema_is_refused_after_its_first_rows(home: Path) -> None:
    write_raw(sums(100, rate="often", extra=1), "data/raw/mine/sums.jsonl")
    Path("mine.toml").write_text(MINE.replace('"worked"', '"solved"'))
    Path("mine.toml").write_text(Path("mine.toml").read_text().replace("max = 0.9", 'empty = "no"'))
    with pytest.raises(
        DataError, match=r"none of the first 100 rows.*line 1: has no column 'solved'"
    ):
        prepare_problems("mine.toml")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("gsm8", "there is no source 'gsm8'; did you mean \"gsm8k\"? `whet data prepare --list`"),
        ("zzz", "there is no source 'zzz'; `whet data prepare --list` lists them; your own file"),
        ("no.toml", "there is no file no.toml"),
    ],
)
def test_an_unknown_source_is_answered_with_the_closest(
    home: Path, name: str, sentence: str
) -> None:
    said = whet("data", "prepare", name)
    assert said.code == 2
    assert sentence in said.last


def test_without_a_network_a_sentence_says_which_file_to_put_where(
    home: Path, no_hub: None
) -> None:
    with pytest.raises(DataError) as refusal:
        prepare_problems("deepmath")
    assert "the dataset zwhe99/DeepMath-103K could not be downloaded from the hub" in str(
        refusal.value
    )
    assert str(refusal.value).endswith(
        "put data/train-*.parquet into data/raw/deepmath, or name files with --file"
    )
    assert not Path("data").exists()


def test_a_source_that_is_on_no_hub_says_where_its_files_are(home: Path) -> None:
    with pytest.raises(
        DataError,
        match=r"put \*evaluation/\*\.json and \*training/\*\.json into data/raw/arcagi2, or name "
        r"files with --file; arcprize/ARC-AGI-2 on GitHub has",
    ):
        prepare_problems("arcagi2")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ("none.jsonl", "--file none.jsonl: there is no file none.jsonl"),
        ("mine.toml", "--file mine.toml should end in .jsonl, "),
        ("rows.jsonl", "say which of the source's files it is: test=PATH, rl=PATH, dev=PATH"),
        ("sft=rows.jsonl", "say which of the source's files it is: test=PATH, rl=PATH, dev=PATH"),
    ],
)
def test_a_file_that_is_none_of_the_sources_is_refused(
    home: Path, given: str, sentence: str
) -> None:
    write_raw(sums(1), "rows.jsonl")
    with pytest.raises(ConfigError) as refusal:
        prepare_problems("gsm8k", files=[given])
    assert sentence in str(refusal.value)


def test_files_are_told_by_their_split_or_their_name(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row: Json = {"question": "1 + 1?", "answer": "It is 2.\n#### 2"}
    other: Json = {"question": "1 + 2?", "answer": "It is 3.\n#### 3"}
    write_raw([row], "gsm8k_test.jsonl")  # type: ignore[list-item]
    write_raw([row, other], "rows.jsonl")  # type: ignore[list-item]
    counts = prepare_problems("gsm8k", files=["gsm8k_test.jsonl", "rl=rows.jsonl"])
    assert counts.problems["test"] == 1
    assert counts.problems["rl"] + counts.problems["dev"] == 1, "a test problem is not trained on"
    assert counts.left_out["repeats the problem of an earlier row"] == 1
    assert counts.answers.total() == 2
    prepare_problems("gsm8k", files=["gsm8k_test.jsonl"], force=True)
    assert "there is no raw file for main/train-*.parquet or" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "sentence"),
    [
        ("about =", 'abuot = "x"\nabout =', 'did you mean "about"?'),
        ('["math"]', '["maths"]', "there is no task 'maths'"),
        ('prompt = "q"', 'question = "q"', "there is no field 'question'"),
        ("{prompt} Box", "Box", "prompt.template should have {prompt}"),
        ("rl = 0.5", "rl = 0.6", "should add up to 1, not to 1.1"),
        ("max = 0.9", "none_of = []", "the rule for the column 'rate' has no condition"),
        ("map =", 'format = "gsm8k_test"\nmap =', "give either a format or a map for every file"),
    ],
)
def test_a_mistake_in_a_source_is_one_sentence(
    home: Path, old: str, new: str, sentence: str
) -> None:
    Path("mine.toml").write_text(MINE.replace(old, new, 1))
    with pytest.raises(ConfigError) as refusal:
        prepare_problems("mine.toml")
    assert sentence in str(refusal.value)
    assert "mine.toml" in str(refusal.value)


@pytest.mark.parametrize("name", ["../secret", "a/b", ".hidden"])
def test_a_row_cannot_attach_a_file_outside_the_sources_folder(home: Path, name: str) -> None:
    write_raw(
        [{"table_id": name, "question": "?", "answer": [1]}], "data/raw/hitab/test_samples.jsonl"
    )
    with pytest.raises(DataError, match="field 'table_id' should be part of a file name"):
        prepare_problems("hitab")


def test_the_list_has_every_source(home: Path) -> None:
    said = whet("data", "prepare", "--list")
    names = [line.split()[0] for line in said.out.splitlines()[1:]]
    assert (said.code, names) == (0, list_sources())


GSM8K = json.dumps({"question": "1 + 1?", "answer": "It is 2.\n#### 2"}).encode() + b"\n"


class Hub(BaseHTTPRequestHandler):
    """As much of the hub as a download of one file needs."""

    commit = "0123456789012345678901234567890123456789"
    files: ClassVar = {"test.jsonl": GSM8K, "train.jsonl": GSM8K * 2, "setup.py": b"no"}

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        name = self.path.partition("?")[0].rpartition("/")[2]
        if "/resolve/" in self.path and name in self.files:
            self._send(
                self.files[name], with_body, f'"{hashlib.sha256(name.encode()).hexdigest()}"'
            )
        elif re.match(r"/api/datasets/openai/[\w-]+/tree/", self.path):
            entries = [
                {"type": "file", "path": path, "size": len(body), "oid": "0" * 40}
                for path, body in self.files.items()
            ]
            self._send(json.dumps(entries).encode(), with_body)
        elif match := re.match(r"/api/datasets/(openai/[\w-]+)/revision/main", self.path):
            siblings = [{"rfilename": path} for path in self.files]
            about = {"id": match[1], "sha": self.commit, "siblings": siblings}
            self._send(json.dumps(about).encode(), with_body)
        else:
            self.send_error(404)

    def _send(self, body: bytes, with_body: bool, etag: str = "") -> None:
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", self.commit)
        if etag:
            self.send_header("ETag", etag)
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the hub be a server of this machine, with a cache of its own, for new processes."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
    monkeypatch.setenv("HF_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    yield
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_source_is_downloaded_from_the_hub_with_its_commit(home: Path, hub: None) -> None:
    command = [sys.executable, "-m", "whet", "data", "prepare"]
    subprocess.run([*command, "gsm8k"], check=True)
    facts = read_json(Path("data/gsm8k/source.json"))
    assert isinstance(facts, dict)
    assert (facts["rows"], facts["problems"]) == (3, {"test": 1})
    raw_files = facts["raw_files"]
    assert isinstance(raw_files, list)
    origins = [file["origin"] for file in raw_files if isinstance(file, dict)]
    assert origins == [f"openai/gsm8k@{Hub.commit}"] * 2

    files = [f'{{ names = ["test.jsonl"], split = "test", hub = "openai/{n}" }}' for n in "ab"]
    two = f'about = "two"\ntasks = ["math"]\nformat = "gsm8k_test"\nfiles = [{", ".join(files)}]\n'
    Path("two.toml").write_text(two)
    subprocess.run([*command, "two.toml"], check=True)
    facts = read_json(Path("data/two/source.json"))
    assert isinstance(facts, dict)
    assert facts["rows"] == 2, "a file of one repository is not taken for that of another"

    missing = subprocess.run([*command, "deepmath"], capture_output=True, text=True, check=False)

    assert missing.returncode == 2
    assert "the dataset zwhe99/DeepMath-103K could not be downloaded from the hub" in missing.stderr
    assert "into data/raw/deepmath, or name files with --file" in missing.stderr
