"""`whet eval MODEL… --suite`: several models on several benchmarks, killed and resumed."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from small import whet, write
from two_models import TwoModels

from whet.errors import DataError
from whet.store.run import RunStore
from whet.suites.benchmark_run import read_run_result
from whet.suites.benchmarks import load_benchmarks
from whet.suites.leaderboard import Leaderboard
from whet.suites.run_suite import SuiteRequest, run_suite
from whet.suites.suite import Benchmark, list_suites, load_suite
from whet.testing.server import Asked, CannedReply, chat_reply, serve_replies

PAIRS = [
    (model, b) for model in ("one", "two") for b in ("countdown", "arithmetic", "mis", "knights")
]
EXPECTED = {"countdown": 48, "arithmetic": 40, "mis": 20, "knights": 6}


def stored_keys(out: Path) -> dict[str, Counter[tuple[str, int]]]:
    """Count the answers of every pair by problem and number."""
    found = {}
    for file in out.glob("*/*/answers/answers.jsonl"):
        rows = [json.loads(line) for line in file.read_text().splitlines() if line.endswith("}")]
        keys = Counter((row["problem"], row["sample"]) for row in rows)
        found[f"{file.parts[-4][-3:]} {file.parts[-3]}"] = keys
    return found


KILLED = """import os, sys
from whet.cli import main
from whet.store.response_ledger import ResponseLedger

add, left = ResponseLedger.add, [int(sys.argv[1])]

def count(self, answer):
    add(self, answer)
    left[0] -= 1
    if not left[0]:
        os.kill(os.getpid(), 9)

ResponseLedger.add = count
main(sys.argv[2:])
"""
"""The command line in a process that is killed after so many stored responses."""


def run_until_killed(answers: int, *args: object) -> None:
    words = [sys.executable, "-c", KILLED, str(answers), *map(str, args)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == -signal.SIGKILL, done.stderr


def request(two_models: TwoModels) -> SuiteRequest:
    models = [str(two_models.one), str(two_models.two)]
    return SuiteRequest(suite=str(two_models.suite), form="all", models=models)


@pytest.fixture(scope="module")
def finished(
    two_models: TwoModels, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Leaderboard]:
    out = tmp_path_factory.mktemp("finished")
    return out, run_suite(request(two_models), out, resume=False)


def test_two_models_on_four_benchmarks_killed_twice_end_in_one_leaderboard(
    two_models: TwoModels, tmp_path: Path, finished: tuple[Path, Leaderboard]
) -> None:
    out = tmp_path / "out"
    args = (
        "eval",
        two_models.one,
        two_models.two,
        "--suite",
        two_models.suite,
        "--all",
        "--out",
        out,
    )
    run_until_killed(48 + 40 + 7, *args)  # the first model, in its third benchmark
    refused = whet(*args)
    assert refused.code == 2
    assert "--resume" in refused.last
    run_until_killed(13 + 6 + 48 + 5, *args, "--resume")  # the second, in its second
    assert not (out / "leaderboard.json").exists()
    before = stored_keys(out)
    assert before["one mis"].total() == 20
    assert before["two arithmetic"].total() == 5
    first = next(out.glob("*one/countdown")) / "answers" / "answers.jsonl"
    untouched = first.stat().st_mtime_ns

    said = whet(*args, "--resume")

    assert said.code == 0, said.err
    assert "one on countdown: finished before" in said.err
    assert first.stat().st_mtime_ns == untouched
    after = stored_keys(out)
    assert {name: keys.total() for name, keys in after.items()} == {
        f"{model} {benchmark}": EXPECTED[benchmark] for model, benchmark in PAIRS
    }
    assert all(set(keys.values()) == {1} for keys in after.values())
    board = json.loads((out / "leaderboard.json").read_text())
    assert [(r["model"], r["benchmark"]) for r in board["results"]] == PAIRS
    assert len(board["differences"]) == 4
    assert board == json.loads(json.dumps(finished[1].to_json()))


def test_every_pair_leaves_a_run_with_graded_rollouts_and_an_evaluation(
    finished: tuple[Path, Leaderboard],
) -> None:
    out, board = finished
    for folder in sorted(out.glob("*/*/")):
        run = RunStore.view(folder)
        rollouts = run.rollouts("eval", 0)
        assert len(rollouts) == EXPECTED[folder.name]
        assert all(rollout.score is not None for rollout in rollouts)
        assert run.evals()[0]["num_rollouts"] == len(rollouts)
        assert replace(read_run_result(run), model=folder.parent.name[-3:]) in board.results


def test_metrics_are_named_and_graphs_say_what_keeps_the_rules(
    finished: tuple[Path, Leaderboard],
) -> None:
    _, board = finished
    first = board.models[0]
    metrics = [board.result(first, benchmark).metric for benchmark in board.benchmarks]
    assert metrics == ["avg@4", "maj@3", "pass@2", "avg@1"]
    graph = board.result(first, "mis")
    assert graph.feasible is not None
    assert graph.hallucinated is not None
    assert board.result(first, "countdown").feasible is None


def test_cut_off_answers_are_said_aloud_everywhere(
    finished: tuple[Path, Leaderboard], two_models: TwoModels
) -> None:
    out, board = finished
    assert board.result(board.models[0], "countdown").unfinished.mean > 0.5
    assert any("cut off at 6 tokens" in warning for warning in board.warnings)
    said = whet(
        "eval", two_models.one, two_models.two, "--suite", two_models.suite, "--all", "--out", out
    )
    assert "cut off" in said.out
    assert "read with care: countdown" in said.err
    assert "were cut off at" in (out / "leaderboard.html").read_text()


def test_the_page_needs_no_script_and_nothing_from_elsewhere(
    finished: tuple[Path, Leaderboard],
) -> None:
    page = (finished[0] / "leaderboard.html").read_text()
    assert "<script" not in page
    assert not re.search(r"(src|href)=", page)
    assert "default-src &#39;none&#39;" in page
    assert page.count("<svg") > 8


def test_csv_and_latex_have_every_score(finished: tuple[Path, Leaderboard]) -> None:
    out, board = finished
    rows = list(csv.DictReader((out / "leaderboard.csv").read_text().splitlines()))
    scores = [float(row["mean"]) for row in rows if row["figure"] == "score"]
    assert scores == pytest.approx([result.score.mean for result in board.results], abs=1e-6)
    latex = (out / "leaderboard.tex").read_text()
    assert latex.count(r"\\") == 6
    assert r"maj@3" in latex


def test_the_fast_form_has_fewer_problems_and_leaves_out_benchmarks(two_models: TwoModels) -> None:
    _, fast = load_suite(str(two_models.suite), "fast")
    assert list(fast) == ["countdown", "arithmetic", "mis"]
    loaded_benchmarks = load_benchmarks(fast, Path("data"))
    assert [len(loaded.problems) for loaded in loaded_benchmarks] == [6, 10, 5]


def test_a_model_behind_an_address_is_asked_with_the_settings_of_the_benchmark(
    two_models: TwoModels, tmp_path: Path
) -> None:
    def answer(asked: Asked) -> CannedReply:
        return chat_reply(r"It is \boxed{7}.", tokens=5)

    with pytest.MonkeyPatch.context() as patch, serve_replies(answer) as server:
        patch.setenv("no_proxy", "127.0.0.1")
        said = whet(
            *("eval", f"{server.url}#tutor", "--suite", two_models.suite, "--only", "arithmetic"),
            *("--out", tmp_path / "out"),
        )
    assert said.code == 0, said.err
    assert len(server.asked) == 40
    assert {asked.body["model"] for asked in server.asked} == {"tutor"}
    assert {asked.body["max_tokens"] for asked in server.asked} == {6}
    (folder,) = (tmp_path / "out").glob("*/arithmetic")
    result = read_run_result(RunStore.view(folder))
    assert result.tokens.mean == 5
    assert result.num_answers == 40
    assert {row.text for row in RunStore.view(folder).rollouts("eval", 0)} == {r"It is \boxed{7}."}


def test_what_is_missing_is_named_with_the_command_before_anything_runs(
    two_models: TwoModels, tmp_path: Path
) -> None:
    said = whet(
        *("eval", two_models.one, "--suite", "rlinf", "--data", tmp_path, "--out", tmp_path / "out")
    )
    assert said.code == 2
    for name in ("aime24", "aime25", "gpqa_diamond"):
        assert f"whet data prepare {name} --out" in said.last
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("nowhere/at/all", "--suite", "generated"), "nowhere/at/all"),
        (("MODEL", "--suite", "tangoo"), 'did you mean "tango"?'),
        (("MODEL", "--suite", "generated", "--only", "chess"), "has countdown, arithmetic"),
        (("MODEL", "--suite", "generated", "--sample", "3"), "there is no option --sample"),
        (("http://127.0.0.1:9/v1", "--suite", "generated"), "write http://127.0.0.1:9/v1#NAME"),
        (("x.toml", "--only", "a"), "--only needs --suite"),
    ],
)
def test_a_mistake_is_one_sentence(
    args: tuple[str, ...], words: str, tmp_path: Path, two_models: TwoModels
) -> None:
    said = whet("eval", *args, "--out", tmp_path / "out")
    assert said.code == 2
    assert words in said.last.replace("\n", " ")


def test_a_model_that_was_trained_on_is_not_taken_for_the_one_evaluated(
    two_models: TwoModels, tmp_path: Path
) -> None:
    model = Path(shutil.copytree(two_models.one, tmp_path / "model"))
    args = ("eval", model, "--suite", two_models.suite, "--only", "mis", "--out", tmp_path / "out")
    assert whet(*args).code == 0
    shutil.copyfile(two_models.two / "model.safetensors", model / "model.safetensors")
    said = whet(*args)
    assert said.code == 2
    assert "weights" in said.last


def test_problems_of_a_file_are_graded_by_the_tasks_that_they_name(tmp_path: Path) -> None:
    said = whet("data", "make", "countdown", "--out", tmp_path / "own.jsonl", "-n", 5)
    assert said.code == 0, said.err
    both = write(tmp_path / "both.jsonl", (tmp_path / "own.jsonl").read_text() * 2)
    (loaded,) = load_benchmarks({"own": Benchmark(problems=str(both))}, tmp_path)
    assert loaded.task.name == "countdown"
    assert len(loaded.problems) == loaded.num_repeats == 5
    with pytest.raises(DataError, match="no problem that it takes"):
        load_benchmarks({"own": Benchmark(problems=str(both), tasks=("mis",))}, tmp_path)


def test_every_named_suite_has_a_fast_form_and_sources_that_are_known() -> None:
    from whet.data.sources import load_source

    for name in list_suites():
        whole = load_suite(name, "all")[1]
        fast = load_suite(name, "fast")[1]
        assert 0 < len(fast) <= len(whole)
        for benchmark in whole.values():
            if benchmark.source is not None:
                assert benchmark.split in load_source(benchmark.source)[0].splits


def test_a_context_too_small_for_one_benchmark_leaves_it_out_and_says_so(
    two_models: TwoModels, tmp_path: Path
) -> None:
    small = Path(shutil.copytree(two_models.one, tmp_path / "small"))
    shape = json.loads((small / "config.json").read_text())
    write(small / "config.json", json.dumps(shape | {"max_position_embeddings": 200}))
    out = tmp_path / "out"
    options = ("--suite", two_models.suite, "--only", "arithmetic", "--only", "knights")
    said = whet("eval", two_models.two, small, *options, "--out", out, "--all")
    assert said.code == 0, said.err
    reason = (
        "knights is left out for small: every prompt fills the model's context of 200 tokens. So "
        "it is in no score here"
    )
    board = json.loads((out / "leaderboard.json").read_text())
    assert board["benchmarks"] == ["arithmetic"]
    assert board["warnings"][0].startswith(reason)
    assert "max_model_len" not in said.err
    (folder,) = out.glob("*small/knights")
    assert [row["event"] for row in RunStore.view(folder).events()][-1] == "left_out"
    said = whet("eval", small, *options[:2], "--only", "knights", "--out", tmp_path / "k", "--all")
    assert said.code == 2
    assert "no benchmark is left that all models can answer. knights is left out" in said.last


def test_one_of_a_thing_is_not_a_plural(two_models: TwoModels, tmp_path: Path) -> None:
    said = whet(
        *("eval", two_models.one, "--suite", two_models.suite, "--only", "knights", "--all"),
        *("--limit", 1, "--out", tmp_path / "out"),
    )
    assert "1 model on 1 benchmark, 1 response;" in said.err


def test_a_command_to_copy_ends_before_the_remark_on_it(tmp_path: Path) -> None:
    benchmarks = {"multihiertt": Benchmark(source="multihiertt")}
    with pytest.raises(DataError) as refused:
        load_benchmarks(benchmarks, tmp_path)
    command = f"`whet data prepare multihiertt --out {tmp_path / 'multihiertt'}` (its files"
    assert command in str(refused.value)


def test_the_two_suites_of_rlinf_differ_in_the_temperature_alone() -> None:
    small, large = (load_suite(name, "all")[1] for name in ("rlinf", "rlinf_7b"))
    assert {b.sampling.temperature for b in small.values()} == {0.6}
    assert {b.sampling.temperature for b in large.values()} == {1.0}
    for name, benchmark in large.items():
        sampling = benchmark.sampling.model_copy(update={"temperature": 0.6})
        assert benchmark.model_copy(update={"sampling": sampling}) == small[name]
