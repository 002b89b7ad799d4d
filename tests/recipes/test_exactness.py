"""What a run does about engine and learner agreeing or not: one sentence, a line in the ledger, the
algorithm."""

from pathlib import Path

import pytest

from whet.algos.settings import AlgoConfig
from whet.models.source import ModelSource
from whet.pipeline.report import write_pipeline_results
from whet.recipes.rl import RLConfig
from whet.stages.training import EXACTNESS_EVENT, check_exactness, record_exactness
from whet.store.files import write_json
from whet.store.run import RunStore
from whet.testing.tiny import tiny_policy
from whet.train.selftest import Exactness

EXACT = Exactness(num_tokens=128, equal_fraction=1.0, largest_gap=0.0)
CLOSE = Exactness(num_tokens=128, equal_fraction=0.5, largest_gap=2e-6)
ALGO = AlgoConfig(num_minibatches=4)


def opened(folder: Path) -> RunStore:
    return RunStore.open(
        folder, RLConfig(task="game24", model=ModelSource(path="m")), {}, resume=False
    )


@pytest.mark.parametrize(
    ("found", "lag", "old"), [(EXACT, 0, "engine"), (EXACT, 2, "learner"), (CLOSE, 0, "learner")]
)
def test_what_was_found_decides_whose_log_probabilities_are_the_old_ones(
    found: Exactness, lag: int, old: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with opened(tmp_path / "run") as run:
        assert record_exactness([found], ALGO, "05-rl", run, lag=lag).old_logprobs == old
        (event,) = [row for row in run.events() if row["event"] == EXACTNESS_EVENT]
    sentence = found.describe(ALGO, lag=lag)
    assert event["exact"] is found.is_exact and event["said"] == sentence
    assert (event["model"], event["tokens"], event["largest_gap"]) == (
        "05-rl",
        128,
        found.largest_gap,
    )
    assert capsys.readouterr().err == f"05-rl: {sentence}\n"


@pytest.mark.parametrize("ranks", [[EXACT, CLOSE], [CLOSE, EXACT]])
def test_one_rank_that_is_not_exact_decides_for_all(ranks: list[Exactness], tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        assert record_exactness(ranks, ALGO, "05-rl", run).old_logprobs == "learner"


def test_the_report_says_it_too(tmp_path: Path) -> None:
    with opened(tmp_path / "rl") as run:
        record_exactness([CLOSE], ALGO, "05-rl", run)
        record_exactness([CLOSE], ALGO, "05-rl", run)
        write_json(run.folder / "stage.json", {"seconds": 1.0})
    stage = RLConfig(task="game24", model=ModelSource(path="nowhere"))
    write_pipeline_results(2, {"rl": stage}, {"rl": tmp_path / "rl"}, tmp_path)
    page = (tmp_path / "report.html").read_text()
    assert page.count("so old log-probabilities are computed again") == 1


def test_on_a_cpu_nothing_is_tried(tmp_path: Path) -> None:
    with opened(tmp_path / "run") as run:
        assert check_exactness(ALGO, tiny_policy(), run) is ALGO
        assert [row["event"] for row in run.events()] == ["start"]
