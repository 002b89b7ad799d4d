"""Teachers that are asked: what is stored, kept and repeated, with a server and with a model."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from small import whet, write

from whet.batching.rollout_datasets import read_data
from whet.data.problems import problem_file, write_problems
from whet.errors import ConfigError, DataError
from whet.pipeline.pipeline_config import load_pipeline
from whet.recipes.keep import KeepConfig
from whet.recipes.teach import TeachConfig, teach
from whet.store.response_ledger import ResponseLedger, StoredResponse
from whet.store.rollouts import write_rollouts
from whet.store.run import RunStore
from whet.store.teach_progress import read_teach_progress
from whet.testing import fakes
from whet.testing.fakes import rollout, sum_problem
from whet.testing.server import Asked, CannedReply, chat_reply, serve_replies
from whet.testing.tiny import tiny_policy
from whet.types import Json, Problem, Rollout, Score, Verdict

SUMS = f"{fakes.__file__}:SumTask"


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def problems(tmp_path: Path) -> str:
    folder = tmp_path / "problems"
    rows = [sum_problem(left, 1, "sft") for left in range(6)]
    write_problems(folder, "sft", rows)
    return str(folder)


def add(asked: Asked) -> CannedReply:
    """Add as asked; the second of every two samples is off by one, or the like."""
    left, right = asked.prompt.split(" + ")
    seed = asked.body["seed"]
    assert isinstance(seed, int)
    return chat_reply(str(int(left) + int(right) + seed % 2))


def config(url: str, problems: str, **settings: Json) -> TeachConfig:
    teacher: Json = {"kind": "server", "url": url, "model": "big", "timeout": 5.0, "tries": 2}
    table = {"task": SUMS, "problems": problems, "teacher": teacher, "per_problem": 8, **settings}
    return TeachConfig.model_validate(table)


def run_teacher(cfg: TeachConfig, folder: Path) -> RunStore:
    with RunStore.open(folder, cfg, {}, resume=True) as run:
        teach(cfg, run)
    return RunStore.view(folder)


def texts(run: RunStore, name: str = "train") -> set[tuple[str, str]]:
    assert name in ("train", "rejected")
    steps = run.rollout_steps(name)
    return {(r.problem.id, r.text) for step in steps for r in run.rollouts(name, step)}


def test_right_answers_are_kept_once_and_the_others_are_stored_as_rejected(
    tmp_path: Path, problems: str
) -> None:
    with serve_replies(add) as server:
        run = run_teacher(config(server.url, problems), tmp_path / "run")

    assert texts(run) == {(sum_problem(n, 1).id, str(n + 1)) for n in range(6)}
    rejected = run.rollouts("rejected", 0)
    assert len(run.rollouts("train", 0)) == 6 and len(rejected) == 6 * 8 - 6
    assert run.summary() == {
        "problems": 6,
        "answers": 48,
        "traces": 6,
        "failed": 0,
        "prompt_tokens": 48 * 3,
        "tokens": 48 * 7,
        "cost": 0.0,
    }
    assert {row.text for row in read_data(str(run.folder))} == {str(n + 1) for n in range(6)}
    assert {r.model for r in rejected} == {"big"}


def test_the_prompt_of_the_stage_is_put_to_the_server(tmp_path: Path, problems: str) -> None:
    prompt: Json = {"system": "Add.", "chat_options": {"enable_thinking": False}}
    with serve_replies(add) as server:
        cfg = config(server.url, problems, per_problem=1, prompt=prompt)
        run = run_teacher(cfg, tmp_path / "run")

    body = server.asked[0].body
    assert body["messages"] == [
        {"role": "system", "content": "Add."},
        {"role": "user", "content": server.asked[0].prompt},
    ]
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert run.rollouts("rejected", 0)[0].problem.prompt[0].role == "user"


def test_many_problems_are_written_in_parts(
    tmp_path: Path, problems: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("whet.recipes.teach_job.PART_PROBLEMS", 4)
    with serve_replies(add) as server:
        run = run_teacher(config(server.url, problems), tmp_path / "run")

    assert run.rollout_steps("train") == run.rollout_steps("rejected") == [0, 1]
    assert texts(run) == {(sum_problem(n, 1).id, str(n + 1)) for n in range(6)}


def test_tokens_have_their_price(tmp_path: Path, problems: str) -> None:
    with serve_replies(add) as server:
        cfg = config(server.url, problems)
        prices = {"price_in": 2.0, "price_out": 10.0}
        cfg = cfg.model_copy(update={"teacher": cfg.teacher.model_copy(update=prices)})
        run = run_teacher(cfg, tmp_path / "run")

    assert run.summary()["cost"] == pytest.approx((48 * 3 * 2.0 + 48 * 7 * 10.0) / 1e6)


def test_after_a_stop_only_what_is_not_stored_is_asked(tmp_path: Path, problems: str) -> None:
    def stop_at_20(asked: Asked) -> CannedReply:
        return CannedReply(status=401) if asked.number > 20 else add(asked)

    with serve_replies(stop_at_20) as server:
        cfg = config(server.url, problems)
        one_by_one = {"in_flight": 1}
        cfg = cfg.model_copy(update={"teacher": cfg.teacher.model_copy(update=one_by_one)})
        with pytest.raises(ConfigError, match="the server answers 401"):
            run_teacher(cfg, tmp_path / "run")
    with serve_replies(add) as second:
        changed = cfg.teacher.model_copy(update={"url": second.url})
        cfg = cfg.model_copy(update={"teacher": changed})
        with RunStore.open(tmp_path / "run", cfg, {}, resume=True, ignore=cfg.ignored) as run:
            teach(cfg, run)
        num_asked_again = len(second.asked)

    assert num_asked_again == 48 - 20
    with serve_replies(add) as third:
        whole = run_teacher(config(third.url, problems), tmp_path / "whole")
    assert texts(run) == texts(whole) and texts(run, "rejected") == texts(whole, "rejected")


def test_a_line_that_a_kill_cut_short_is_asked_for_again(tmp_path: Path) -> None:
    with ResponseLedger(tmp_path) as ledger:
        ledger.add(StoredResponse(problem="a", sample=0, text="1", model="m"))
        ledger.add(StoredResponse(problem="a", sample=1, text="2\n", model="m", tokens=5))
    path = tmp_path / "answers.jsonl"
    path.write_bytes(path.read_bytes() + b'{"problem": "a", "sample": 2, "te')

    with ResponseLedger(tmp_path) as ledger:
        assert ("a", 1) in ledger and ("a", 2) not in ledger
        ledger.add(StoredResponse(problem="a", sample=2, text="3", model="m"))
        ledger.add_score(("a", 1), Score(verdict=Verdict.WRONG, parts={"correct": 0.0}))
    with ResponseLedger(tmp_path) as ledger:
        assert [answer.text for answer in ledger.responses("a")] == ["1", "2\n", "3"]
        assert [answer.sample for answer in ledger.ungraded()] == [0, 2]
        assert ledger.num_tokens == 5 and ledger.num_responses == 3


def test_an_answer_that_was_stored_and_not_graded_is_graded_on_resume(
    tmp_path: Path, problems: str
) -> None:
    with serve_replies(add) as server:
        cfg = config(server.url, problems, per_problem=1)
        folder = tmp_path / "run"
        with RunStore.open(folder, cfg, {}, resume=True) as run:
            with ResponseLedger(run.response_folder) as ledger:
                id = sum_problem(0, 1).id
                ledger.add(StoredResponse(problem=id, sample=0, text="1", model="big"))
            teach(cfg, run)
        num_asked = len(server.asked)

    assert num_asked == 5
    assert (id, "1") in texts(run)


def test_a_broken_ledger_is_named(tmp_path: Path) -> None:
    write(tmp_path / "answers.jsonl", "[]\n")
    with pytest.raises(DataError, match=r"answers.jsonl is damaged \(a line is not an object\)"):
        ResponseLedger(tmp_path)


FAULTS: list[CannedReply] = [
    CannedReply(status=500),
    CannedReply(status=429, headers={"Retry-After": "0"}),
    CannedReply(closes=True),
    CannedReply(body=b"garbage"),
]


def test_a_server_full_of_faults_is_survived(tmp_path: Path, problems: str) -> None:
    def answer(asked: Asked) -> CannedReply:
        return FAULTS[asked.number // 3 % 4] if asked.number % 3 == 0 else add(asked)

    with serve_replies(answer) as server:
        cfg = config(server.url, problems)
        patient = {"tries": 20, "in_flight": 16}
        cfg = cfg.model_copy(update={"teacher": cfg.teacher.model_copy(update=patient)})
        run = run_teacher(cfg, tmp_path / "run")

    assert run.summary()["answers"] == 48 and len(texts(run)) == 6


def test_a_request_that_is_refused_is_counted_and_not_repeated(
    tmp_path: Path, problems: str
) -> None:
    def refuse_threes(asked: Asked) -> CannedReply:
        return CannedReply(status=400) if asked.prompt.startswith("3") else add(asked)

    with serve_replies(refuse_threes) as server:
        run = run_teacher(config(server.url, problems, per_problem=2), tmp_path / "run")

    assert (run.summary()["failed"], run.summary()["answers"]) == (2, 10)


def test_what_failed_is_asked_for_once_more_and_then_given_up(
    tmp_path: Path, problems: str
) -> None:
    def fail_threes(asked: Asked) -> CannedReply:
        return CannedReply(status=500) if asked.prompt.startswith("3") else add(asked)

    with serve_replies(fail_threes) as server:
        cfg = config(server.url, problems, per_problem=1)
        with pytest.raises(DataError, match=r"1 of 6 responses are missing.* 500; .*--resume"):
            run_teacher(cfg, tmp_path / "run")
        run = run_teacher(cfg, tmp_path / "run")

    assert (run.summary()["failed"], run.summary()["answers"]) == (1, 5)


def test_a_server_that_only_fails_stops_the_run(tmp_path: Path, problems: str) -> None:
    with serve_replies(
        lambda asked: CannedReply(status=500, headers={"Retry-After": "0"})
    ) as server:
        cfg = config(server.url, problems)
        hasty = {"tries": 1}
        cfg = cfg.model_copy(update={"teacher": cfg.teacher.model_copy(update=hasty)})
        with pytest.raises(DataError, match=r"16 requests in a row have failed.*500"):
            run_teacher(cfg, tmp_path / "run")


def test_a_server_that_is_not_there_is_noticed_at_the_start(tmp_path: Path, problems: str) -> None:
    with serve_replies(add) as server:
        url = server.url
    with pytest.raises(
        ConfigError, match=r"teacher.url = .* cannot be reached: Connection refused"
    ):
        run_teacher(config(url, problems), tmp_path / "run")


def file_of(tmp_path: Path, url: str, problems: str) -> Path:
    return write(
        tmp_path / "teach.toml",
        f'kind = "teach"\ntask = "{SUMS}"\nproblems = "{problems}"\nper_problem = 4\n'
        f'teacher = {{ kind = "server", url = "{url}", model = "big" }}\n',
    )


def test_shards_merge_into_what_one_run_would_have(tmp_path: Path, problems: str) -> None:
    with serve_replies(add) as server:
        file = file_of(tmp_path, server.url, problems)
        out = tmp_path / "job"
        first = whet("teach", file, "--out", out, "--shard", "2/2")
        status = whet("teach", "status", out)
        again = whet("teach", file, "--out", out, "--shard", "2/2", "--resume")
        other = whet("teach", file, "--out", out, "--shard", "1/3")
        unsharded = whet("teach", file, "--out", out)
        last = whet("teach", file, "--out", out, "--shard", "1/2")
        whole = whet("teach", file, "--out", tmp_path / "whole")
        done = whet("teach", "status", out)

    assert (first.code, again.code, last.code, whole.code) == (0, 0, 0, 0), first.err
    assert other.code == 2 and "has shards of 2, not of 3" in other.last
    assert unsharded.code == 2 and "has shards of 2: give --shard" in unsharded.last
    assert "002-of-002 finished 12/12" in " ".join(status.out.split())
    assert "not begun: 001-of-002" in status.out
    assert "all 2 shards are finished" in last.err
    job, alone = RunStore.view(out), RunStore.view(tmp_path / "whole")
    assert texts(job) == texts(alone) and texts(job, "rejected") == texts(alone, "rejected")
    assert {k: v for k, v in job.summary().items() if k != "shards"} == alone.summary()
    assert "all 24/24" in " ".join(done.out.split())


def test_shards_of_different_problems_are_not_merged(tmp_path: Path, problems: str) -> None:
    with serve_replies(add) as server:
        file = file_of(tmp_path, server.url, problems)
        out = tmp_path / "job"
        first = whet("teach", file, "--out", out, "--shard", "1/2")
        write_problems(Path(problems), "sft", [sum_problem(left, 2, "sft") for left in range(6)])
        second = whet("teach", file, "--out", out, "--shard", "2/2")

    assert (first.code, second.code) == (0, 2)
    assert "have read different problems" in second.last


def test_a_shard_in_a_pipeline_is_refused(tmp_path: Path, problems: str) -> None:
    cfg = config("http://127.0.0.1:9/v1", problems, shard="1/2")
    with pytest.raises(ConfigError, match="shard is for `whet teach` by itself"):
        run_teacher(cfg, tmp_path / "run")


def test_a_dead_shard_is_told_from_one_that_runs(tmp_path: Path, problems: str) -> None:
    with serve_replies(add) as server:
        run = run_teacher(config(server.url, problems), tmp_path / "run")
    progress = read_teach_progress(run.folder)
    assert progress is not None and progress.state == "finished" and progress.kept == 6

    halted = progress.model_copy(update={"state": "running", "time": progress.time - 100})
    write(run.folder / "progress.json", halted.model_dump_json())
    said = whet("teach", "status", run.folder)
    assert "dead for 1 min" in said.out and "start each again" in said.out


def test_status_of_something_else_is_one_sentence(tmp_path: Path) -> None:
    assert "has no teach run" in whet("teach", "status", tmp_path).last
    assert "takes one run folder" in whet("teach", "status").last


def answers(*rows: tuple[str, dict[str, float]]) -> list[Rollout]:
    made = []
    for number, (text, parts) in enumerate(rows):
        verdict = Verdict.CORRECT if parts.get("correct") else Verdict.WRONG
        score = Score(verdict=verdict, parts=parts)
        made.append(rollout(text=text, number=number, score=score))
    return made


RIGHT = {"correct": 1.0, "format": 1.0}
SLOPPY = {"correct": 1.0, "format": 0.5}


@pytest.mark.parametrize(
    ("keep", "kept"),
    [
        (KeepConfig(), ["long answer", "answer", "a", "other"]),
        (KeepConfig(parts=("correct", "format")), ["long answer", "a"]),
        (KeepConfig(parts=("format",)), ["long answer", "a", "wrong"]),
        (KeepConfig(parts=()), ["long answer", "answer", "a", "other", "wrong"]),
        (KeepConfig(most=2), ["long answer", "answer"]),
        (KeepConfig(most=2, first="shortest"), ["a", "other"]),
    ],
)
def test_answers_are_kept_by_rule(keep: KeepConfig, kept: list[str]) -> None:
    rows = answers(
        ("long answer", RIGHT),
        ("answer", SLOPPY),
        ("a", RIGHT),
        ("a", RIGHT),
        ("other", SLOPPY),
        ("wrong", {"correct": 0.0, "format": 1.0}),
    )
    unscored = rollout(text="?", number=9, score=Score(verdict=Verdict.UNSCORED, parts={}))
    assert [row.text for row in keep.choose([*rows, unscored])] == kept


def test_a_part_that_the_task_does_not_have_is_refused(tmp_path: Path, problems: str) -> None:
    cfg = config("http://127.0.0.1:9/v1", problems, keep={"parts": ["optimal"]})
    with pytest.raises(
        ConfigError, match=r"'optimal', which is not a part of sums's scores.*correct"
    ):
        run_teacher(cfg, tmp_path / "run")


def math_problems(folder: Path, *, solutions: bool) -> list[Problem]:
    source = folder / "rows.jsonl"
    rows = [{"q": f"What is {n} + 1?", "a": str(n + 1)} for n in range(3)]
    write(source, "".join(json.dumps(row) + "\n" for row in rows))
    out = problem_file(folder, "sft")
    said = whet(
        *("data", "import", source, "--map", "prompt=q", "--map", "answer=a"),
        *("--task", "math", "--split", "sft", "--out", out),
    )
    assert said.code == 0, said.err
    from whet.data.problems import read_problems

    problems = read_problems(out)
    if solutions:
        worked = [
            (Rollout.from_text(p, rf"It is \boxed{{{p.answer}}}.", model="book"),)
            for p in problems[:2]
        ]
        wrong = (Rollout.from_text(problems[2], r"It is \boxed{99}.", model="book"),)
        write_rollouts(out.with_suffix(".rollouts.parquet"), [*worked, wrong])
    return problems


def test_bare_answers_to_imported_problems_are_not_taught_unasked(tmp_path: Path) -> None:
    math_problems(tmp_path, solutions=False)
    file = write(
        tmp_path / "t.toml",
        f'kind = "teach"\ntask = "math"\nproblems = "{tmp_path}"\nworkers = 1\n',
    )
    said = whet("teach", file, "--out", tmp_path / "run")
    assert said.code == 2
    assert "math has the answers to these problems but not the reasoning" in said.last
    assert r"'\\boxed{1}'" in said.last and "docs/teach.md" in said.last

    bare = whet("teach", file, "--out", tmp_path / "run", "--teacher.bare", "true")
    assert bare.code == 0, bare.err


def test_worked_solutions_that_came_with_the_data_are_kept_where_they_are_right(
    tmp_path: Path,
) -> None:
    math_problems(tmp_path, solutions=True)
    cfg = TeachConfig.model_validate(
        {"task": "math", "problems": str(tmp_path), "teacher": {"kind": "data"}}
    )
    run = run_teacher(cfg, tmp_path / "run")
    assert {text for _, text in texts(run)} == {r"It is \boxed{1}.", r"It is \boxed{2}."}
    assert {text for _, text in texts(run, "rejected")} == {r"It is \boxed{99}."}


def test_solutions_join_the_answers_of_a_server(tmp_path: Path) -> None:
    math_problems(tmp_path, solutions=True)
    with serve_replies(lambda asked: chat_reply(r"So \boxed{3}.")) as server:
        cfg = config(server.url, str(tmp_path), task="math", per_problem=1)
        run = run_teacher(cfg, tmp_path / "run")
    kept = {text for _, text in texts(run)}
    assert kept == {r"It is \boxed{1}.", r"It is \boxed{2}.", r"So \boxed{3}."}


def test_data_without_solutions_is_refused(tmp_path: Path) -> None:
    math_problems(tmp_path, solutions=False)
    table: dict[str, Json] = {"task": "math", "problems": str(tmp_path)}
    cfg = TeachConfig.model_validate(table | {"teacher": {"kind": "data"}})
    with pytest.raises(DataError, match="has no worked solutions to its sft problems"):
        run_teacher(cfg, tmp_path / "run")


def stopping(after: int) -> Callable[[ResponseLedger, StoredResponse], None]:
    store = ResponseLedger.add
    count = 0

    def add_some(ledger: ResponseLedger, answer: StoredResponse) -> None:
        nonlocal count
        count += 1
        if count > after:
            raise DataError("stopped here")
        store(ledger, answer)

    return add_some


def test_a_model_gives_the_same_answers_whatever_stops_it(
    tmp_path: Path, problems: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_policy().save(tmp_path / "model")
    model: Json = {"path": str(tmp_path / "model")}
    sampling: Json = {"max_tokens": 3}
    table: dict[str, Json] = {"task": SUMS, "problems": problems, "per_problem": 6}
    table |= {"teacher": {"kind": "model", "model": model, "sampling": sampling}}
    table["keep"] = {"parts": []}
    cfg = TeachConfig.model_validate(table)
    whole = run_teacher(cfg, tmp_path / "whole")
    for _ in range(2):
        with monkeypatch.context() as patch:
            patch.setattr(ResponseLedger, "add", stopping(7))
            with pytest.raises(DataError, match="stopped here"):
                run_teacher(cfg, tmp_path / "run")
    run = run_teacher(cfg, tmp_path / "run")

    assert texts(run) == texts(whole)
    assert len({text for _, text in texts(run)}) > 6
    assert run.summary() == whole.summary() and run.summary()["answers"] == 36


def test_settings_that_a_pipeline_shares_reach_a_teacher_too(tmp_path: Path) -> None:
    text = """kind = "run"
task = "countdown"
keep = "all"
grading = { workers = 1 }
prompt = { system = "Think." }
[stages.own]
kind = "teach"
[stages.asked]
kind = "teach"
teacher = { kind = "server", url = "http://127.0.0.1:9/v1", model = "big" }
[stages.sft]
kind = "sft"
data = "@asked"
model = { new = "tiny" }
"""
    stages = load_pipeline(write(tmp_path / "p.toml", text), []).config.stages
    own, asked = stages["own"], stages["asked"]
    assert isinstance(own, TeachConfig) and isinstance(asked, TeachConfig)
    assert own.keep.parts == asked.keep.parts == ()
    assert (own.per_problem, asked.per_problem) == (33, 4)
