"""Grading files of responses: each row comes back in its place, and a broken one is named."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from typer.testing import CliRunner

from whet.cli import app
from whet.commands.grade_file import build_judge, check_file, grade_file
from whet.data.problems import write_problems
from whet.errors import ConfigError, DataError
from whet.grading.check_task import precheck
from whet.store.files import read_rows, write_rows
from whet.tasks.base import Task
from whet.tasks.game24.task import Game24
from whet.testing.fakes import SumTask, sum_problem
from whet.types import Json, Problem, Score, Verdict

HAND = {"task": "game24", "answer": "24", "payload": {"numbers": [4, 2, 6, 3]}}
RIGHT, WRONG = "4 * 6 = 24\n3 - 2 = 1\n24 * 1 = 24", "4 + 2 = 6\n6 + 6 = 12\n12 + 3 = 15"


def named(name: str) -> Task:
    tasks: dict[str, Task] = {"game24": Game24(), "sums": SumTask()}
    if name not in tasks:
        raise ConfigError(f"there is no task {name!r}; known tasks are {', '.join(tasks)}")
    return tasks[name]


def run(place: Path, rows: list[dict[str, Json]], **options: object) -> list[dict[str, Json]]:
    write_rows(place / "in.jsonl", rows)
    grade_file(place / "in.jsonl", place / "out.jsonl", make=named, **options)  # type: ignore[arg-type]
    return read_rows(place / "out.jsonl")


@pytest.mark.parametrize("workers", [None, 0, 2])
def test_rows_come_back_in_order_with_facts_added(tmp_path: Path, workers: int | None) -> None:
    texts = [RIGHT, WRONG, "", "I do not know"] * 5
    rows: list[dict[str, Json]] = [
        {"id": place, "response": text, **HAND} for place, text in enumerate(texts)
    ]

    graded = run(tmp_path, rows, workers=workers)

    assert [
        {key: row[key] for key in ("id", "response", "task", "answer", "payload")} for row in graded
    ] == rows
    assert [row["verdict"] for row in graded] == ["correct", "wrong", "no_answer", "no_answer"] * 5
    assert graded[0]["parts"]["correct"] == 1.0  # type: ignore[index, call-overload]
    assert graded[0]["extracted"] and graded[0]["note"] == "three steps from the hand to 24"
    assert "reward" not in graded[0]


def test_problems_are_found_by_id_and_by_the_id_of_their_source(tmp_path: Path) -> None:
    problem = Problem.from_json({**sum_problem(1, 2).to_json(), "source_id": "17"})
    write_problems(tmp_path, "rl", [problem, sum_problem(2, 2)])
    rows: list[dict[str, Json]] = [
        {"id": "a", "response": "3", "problem": problem.id},
        {"id": "b", "response": "3", "problem": "17"},
        {"id": "c", "response": "3", "problem": 17},
        {"id": "d", "response": "3", "problem": sum_problem(2, 2).id},
    ]

    graded = run(tmp_path, rows, problems=tmp_path / "problems-rl.jsonl", workers=0)

    assert [row["verdict"] for row in graded] == ["correct", "correct", "correct", "wrong"]


def test_a_reward_is_added_where_a_spec_is_given(tmp_path: Path) -> None:
    spec = tmp_path / "spec.toml"
    spec.write_text("weights = { correct = 2.0, finished = 0.5 }\n")
    rows: list[dict[str, Json]] = [
        {"id": n, "response": t, **HAND} for n, t in enumerate([RIGHT, WRONG, ""])
    ]

    assert [row["reward"] for row in run(tmp_path, rows, reward=str(spec))] == [2.5, 0.5, 0.0]


def test_a_reward_that_counts_tokens_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="the reward dapo counts tokens"):
        run(tmp_path, [{"id": 1, "response": "", **HAND}], reward="dapo")


class Failing(SumTask):
    def score(self, problem: Problem, text: str) -> Score:
        if text == "fail":
            raise ZeroDivisionError("on purpose")
        return Score(verdict=Verdict.WRONG, parts={"correct": 0.0, "ratio": float("nan")})


def test_failures_and_parts_that_are_no_numbers_have_no_reward(tmp_path: Path) -> None:
    rows = [{"id": n, "response": t, "task": "sums"} for n, t in enumerate(["fail", "x"] * 100)]
    write_rows(tmp_path / "in.jsonl", rows)

    counts = grade_file(
        tmp_path / "in.jsonl",
        tmp_path / "out.jsonl",
        make=lambda name: Failing(),
        workers=0,
        reward="binary",
    )

    first, second = read_rows(tmp_path / "out.jsonl")[:2]
    assert (first["verdict"], first["note"]) == (
        "unscored",
        "the grader raised ZeroDivisionError: on purpose",
    )
    assert first["reward"] is None
    assert (second["verdict"], second["reward"]) == ("unscored", None)
    assert "the part 'ratio' of a score is nan" in str(second["note"])
    assert counts == {Verdict.UNSCORED: 200}


def test_half_a_surrogate_pair_is_kept(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        json.dumps({"id": "é", "response": "\ud800 no", **HAND}) + "\n"
    )

    grade_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl", make=named)

    assert read_rows(tmp_path / "out.jsonl")[0]["response"] == "\ud800 no"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ({"id": 1, **HAND}, '"response" should be text, not missing'),
        ({"id": 1, "response": ["x"], **HAND}, r'"response" should be text, not \["x"\]'),
        ({"response": "x", **HAND}, '"id" should be text or a whole number, not missing'),
        ({"id": 1, "response": "x"}, 'it needs "problem", or "task" with "answer" and "payload"'),
        (
            {"id": 1, "response": "x", "problem": "p"},
            "no file of problems is given; add --problems",
        ),
        ({"id": 1, "response": "x", "problem": True}, '"problem" should be an id'),
        (
            {"id": 1, "response": "x", "task": "chess"},
            "there is no task 'chess'; known tasks are game24, sums",
        ),
        (
            {"id": 1, "response": "x", "task": "game24", "payload": [1]},
            r'"payload" should be an object, not \[1\]',
        ),
        (
            {"id": 1, "response": "x", "task": "game24", "answer": [1]},
            '"answer" should be text, a number or null',
        ),
        (
            {"id": 1, "response": "x", "task": "game24", "prompt": 5},
            '"prompt" should be text, not 5',
        ),
        (
            {"id": 1, "response": "x", "task": "game24", "payload": {}},
            "needs four whole numbers in payload.numbers",
        ),
    ],
)
def test_a_broken_row_is_named_and_nothing_is_written(
    tmp_path: Path, row: dict[str, Json], sentence: str
) -> None:
    good = {"id": 0, "response": RIGHT, **HAND}
    (tmp_path / "in.jsonl").write_text(f"{json.dumps(good)}\n\n{json.dumps(row)}\n")

    with pytest.raises(DataError, match=f"in.jsonl line 3: .*{sentence}"):
        grade_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl", make=named)

    assert [path.name for path in tmp_path.iterdir()] == ["in.jsonl"]


def test_broken_json_and_missing_files_are_named(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"id": 1}\n{"id": 2\n')

    with pytest.raises(DataError, match=r"in\.jsonl line 2"):
        grade_file(tmp_path / "in.jsonl", tmp_path / "out.jsonl", make=named)
    with pytest.raises(DataError, match="cannot read"):
        grade_file(tmp_path / "none.jsonl", tmp_path / "out.jsonl", make=named)


def test_an_unknown_or_doubtful_problem_is_named(tmp_path: Path) -> None:
    twins = [Problem.from_json({**sum_problem(1, n).to_json(), "source_id": "7"}) for n in (2, 3)]
    write_problems(tmp_path, "rl", twins)
    file = tmp_path / "problems-rl.jsonl"

    with pytest.raises(
        DataError, match=r"line 1: problem '9' is neither an id nor a source_id in .*problems-rl"
    ):
        run(tmp_path, [{"id": 1, "response": "3", "problem": "9"}], problems=file)
    with pytest.raises(DataError, match="problem '7' is the source_id of 2 problems"):
        run(tmp_path, [{"id": 1, "response": "3", "problem": "7"}], problems=file)


def test_a_place_that_cannot_be_written_is_found_before_the_work(tmp_path: Path) -> None:
    write_rows(tmp_path / "in.jsonl", [{"id": 1, "response": RIGHT, **HAND}])
    (tmp_path / "folder").mkdir()

    with pytest.raises(DataError, match="it is a folder"):
        grade_file(tmp_path / "in.jsonl", tmp_path / "folder", make=named)
    with pytest.raises(DataError, match="a file is where a folder is needed"):
        grade_file(tmp_path / "in.jsonl", tmp_path / "in.jsonl" / "out.jsonl", make=named)


def test_an_empty_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"in\.jsonl has no rows"):
        run(tmp_path, [])
    assert not (tmp_path / "out.jsonl").exists()


def test_an_own_task_is_graded_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from whet.testing.fakes import SumTask\n\n\nclass Mine(SumTask):\n    name = 'mine'\n"
    )
    rows: list[dict[str, Json]] = [{"id": 1, "response": "3", "task": "mine", "answer": 3}]

    graded = run(tmp_path, rows, custom=[f"{tmp_path / 'mine.py'}:Mine"], workers=0)

    assert graded[0]["verdict"] == "correct"
    with pytest.raises(DataError, match="a row cannot load a file"):
        run(tmp_path, [{"id": 1, "response": "3", "task": f"{tmp_path / 'mine.py'}:Mine"}])


def test_a_file_of_problems_is_proved_task_by_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problems(
        tmp_path, "rl", [*list(Game24().problems("rl"))[:5], *SumTask().problems("rl")[:3]]
    )
    file = tmp_path / "problems-rl.jsonl"

    proofs = check_file(file, make=named, workers=0)

    assert [(proof.num_problems, proof.failures) for proof in proofs] == [(5, ()), (3, ())]
    assert len(check_file(file, make=named, task="sums", workers=0)) == 1
    with pytest.raises(DataError, match="has no problems of the task chess"):
        check_file(file, make=named, task="chess")


class Generous(SumTask):
    is_bounded = True

    def score(self, problem: Problem, text: str) -> Score:
        return Score(verdict=Verdict.CORRECT, parts={"correct": 1.0}, answer=text)


def test_failures_are_one_line_a_row_and_a_last_line_with_counts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_problems(tmp_path, "rl", SumTask().problems("rl")[:3])

    check_file(tmp_path / "problems-rl.jsonl", make=lambda name: Generous())

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 4
    assert all("is graded correct" in line and "more)" in line for line in lines[:3])
    assert lines[3].startswith("sums: 3 problems, ") and lines[3].endswith("in 3 of them")


def test_training_does_not_start_on_a_grader_that_fails() -> None:
    problems = SumTask().problems("rl")

    precheck(Game24(), list(Game24().problems("rl")))
    with pytest.raises(
        DataError, match=r"the grader of sums fails on its own data \(and \d+ more\)"
    ):
        precheck(Generous(), problems)


def test_a_task_that_a_file_names_must_be_known(tmp_path: Path) -> None:
    write_problems(
        tmp_path, "rl", [Problem.from_json({**sum_problem(1, 2).to_json(), "task": "chess"})]
    )

    with pytest.raises(DataError, match="there is no task 'chess'"):
        check_file(tmp_path / "problems-rl.jsonl", make=named)


def test_one_row_loads_its_own_task_and_nothing_slow(tmp_path: Path) -> None:
    """So that grading a row takes about a second, half of what loading all takes."""
    row = {"id": 1, "task": "math", "answer": "12", "response": "So \\\\boxed{12}."}
    (tmp_path / "rows.jsonl").write_text(json.dumps(row))
    program = (
        "import sys\n"
        "from pathlib import Path\n"
        "from whet.commands.grade_file import grade_file\n"
        f"grade_file(Path({str(tmp_path / 'rows.jsonl')!r}), Path({str(tmp_path / 'out')!r}))\n"
        "slow = {'torch', 'sympy', 'scipy', 'networkx', 'whet.tasks.graphs.task', 'whet.tasks.task_config'}\n"
        "print(sorted(slow & sys.modules.keys()))\n"
    )

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)

    assert done.stdout == "[]\n", done.stderr
    assert json.loads((tmp_path / "out").read_text())["verdict"] == "correct"


@pytest.fixture
def verifier(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Serve a general-verifier that accepts what begins with `the cell`."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            is_right = "### Student Answer: the cell" in body["messages"][0]["content"]
            word = "Yes" if is_right and body["model"] == "verifier" else "No"
            message = {"role": "assistant", "content": f"Final Decision: {word}"}
            content = json.dumps({"choices": [{"message": message}]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()
    thread.join()


def test_the_endpoint_and_the_prompt_of_the_judge_are_flags(tmp_path: Path, verifier: str) -> None:
    texts = ("the cell's powerhouse", "a planet")
    rows = [
        {
            "id": text,
            "task": "judge",
            "answer": "mitochondria",
            "response": f"<answer>{text}</answer>",
        }
        for text in texts
    ]
    write_rows(tmp_path / "in.jsonl", rows)
    files = [str(tmp_path / "in.jsonl"), "--out", str(tmp_path / "out.jsonl")]
    flags = ["--judge-url", verifier, "--judge-model", "verifier"]
    flags += ["--judge-prompt", "general_verifier"]

    done = CliRunner().invoke(app, ["grade", *files, *flags])

    assert done.exit_code == 0, done.output
    graded = read_rows(tmp_path / "out.jsonl")
    assert [row["verdict"] for row in graded] == ["correct", "wrong"]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ({"model": "x"}, "--judge-model needs --judge-url"),
        ({"key_env": "KEY"}, "--judge-key-env needs --judge-url"),
        ({"url": "file:///x"}, "should start with http:// or https://"),
        ({"url": "http://x/v1", "prompt": "mine"}, "general_verifier"),
    ],
)
def test_flags_of_a_judge_that_make_no_judge_are_refused(
    flags: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        build_judge(**flags)


def test_a_judge_that_no_row_needs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"no row of .* is of the task 'judge'"):
        run(tmp_path, [{"id": 1, "response": RIGHT, **HAND}], judge=build_judge(url="http://x/v1"))


def test_a_judge_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    row: dict[str, Json] = {
        "id": 1,
        "task": "judge",
        "answer": "a",
        "response": "<answer>b</answer>",
    }

    with pytest.raises(ConfigError, match=r"the judge at http://127.0.0.1:9/v1 cannot be reached"):
        run(tmp_path, [row], judge=build_judge(url="http://127.0.0.1:9/v1"))
