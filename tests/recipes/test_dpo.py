"""DPO from a file to a model that prefers better answers: its own or stored ones; nothing is left
out unsaid."""

import re
import shutil
from pathlib import Path
from statistics import fmean

import pytest
from small import Pipeline, Said, check_clock, check_metrics, whet, write

from bench.kill_resume import facts
from whet.store.run import RunStore

TASK = """from whet.tasks.game24 import Game24
from whet.types import Score, Verdict


class Additions(Game24):
    def score(self, problem, text):
        is_right = "*" not in text
        return Score(verdict=Verdict.CORRECT if is_right else Verdict.WRONG, parts={"correct": float(is_right)})


class Lines(Additions):
    def score(self, problem, text):
        return super().score(problem, text if "=" in text else "*")
"""
OWN = """kind = "dpo"
seed = 2
steps = 12
batch_size = 16
model = {{ path = "{folder}/03-sft" }}
problems = "{folder}/01-problems"
task = "{task}:Additions"
own = {{ problems = 24, samples = 8 }}
sampling = {{ max_tokens = 24 }}
train = {{ lr = 1e-3 }}
validation = {{ every = 6, samples = 1 }}
save = {{ every = 4 }}
"""


def dpo(tiny: Pipeline, place: Path, *flags: object) -> Said:
    task = write(place / "additions.py", TASK)
    file = write(place / "dpo.toml", OWN.format(folder=tiny.folder, task=task))
    return whet("dpo", file, "--out", place / "run", *flags)


@pytest.fixture(scope="module")
def place(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run on the model's own answers."""
    place = tmp_path_factory.mktemp("dpo")
    said = dpo(tiny, place)
    assert said.code == 0, said.err
    (place / "said.txt").write_text(said.err)
    return place


def rows(folder: Path) -> list[dict[str, float]]:
    return [row for row in RunStore.view(folder).metrics() if "validation/pass@1" not in row]


def validations(folder: Path) -> list[float]:
    return [
        row["validation/pass@1"]
        for row in RunStore.view(folder).metrics()
        if "validation/pass@1" in row
    ]


def test_every_step_logs_where_its_time_went(place: Path) -> None:
    check_clock(place / "run", samples=False)


def test_the_margin_of_own_answers_rises_and_so_does_what_is_preferred(place: Path) -> None:
    found = rows(place / "run")
    assert len(found) == 12
    assert found[0]["loss"] == pytest.approx(0.6931, abs=1e-4)
    assert found[0]["preference/margin"] == pytest.approx(0.0, abs=1e-4)
    assert fmean(row["preference/accuracy"] for row in found[-3:]) > 0.7
    assert found[-1]["preference/margin"] > 0.1
    assert found[-1]["preference/chosen"] > found[-1]["preference/rejected"]
    # Every other answer of the starting model has a product in it.
    assert validations(place / "run")[-1] > 0.7


def test_what_became_of_the_answers_is_said_in_numbers(place: Path) -> None:
    said = (place / "said.txt").read_text()
    answers = re.search(
        r"^192 responses to 24 problems; left out: (\d+) repeated$", said, re.MULTILINE
    )
    pairs = re.search(
        r"^ +(\d+) pairs by correct, 0 more over the cap, 0 problems without any$",
        said,
        re.MULTILINE,
    )
    assert answers is not None and pairs is not None
    assert 0 < int(pairs[1]) < 192 - int(answers[1])


def test_own_answers_are_those_of_the_start_and_are_kept(place: Path) -> None:
    run = RunStore.view(place / "run")
    assert run.rollout_steps("train") == [0]
    rollouts = run.rollouts("train", 0)
    assert len(rollouts) == 192
    assert {rollout.problem.split for rollout in rollouts} == {"rl"}


@pytest.mark.parametrize("lost", [("000012",), ("000008", "000012")])
def test_a_run_that_was_stopped_ends_as_one_that_was_not(
    tiny: Pipeline, place: Path, tmp_path: Path, lost: tuple[str, ...]
) -> None:
    again = Path(shutil.copytree(place, tmp_path / "again"))
    (again / "run" / "summary.json").unlink()
    for step in lost:
        shutil.rmtree(again / "run" / "checkpoints" / step, ignore_errors=True)
    said = whet("dpo", place / "dpo.toml", "--out", again / "run", "--resume")
    assert said.code == 0, said.err
    assert "resuming from step" in said.err
    assert facts(again, ["run"]) == facts(place, ["run"])


def test_a_guarded_run_is_examined_before_its_first_step_and_goes_back_there_from_a_collapse(
    tiny: Pipeline, tmp_path: Path
) -> None:
    """The rate of 3 destroys the policy at once; a billionth of it leaves what was restored as it
    was."""
    flags = (
        "--steps",
        4,
        "--validation.every",
        2,
        "--train.lr",
        3.0,
        "--guard.restores",
        1,
        "--guard.lr_factor",
        1e-9,
    )
    flags = (*flags, "--task", f"{tmp_path}/additions.py:Lines")
    said = dpo(tiny, tmp_path, *flags)
    assert said.code == 0, said.err
    run = RunStore.view(tmp_path / "run")
    assert list(run.evals()) == [0, 2, 4]
    first, fallen, last = validations(tmp_path / "run")
    assert fallen < first - 0.3
    assert last == first == run.summary()["validation_pass@1"]
    assert [(row["step"], row["best"]) for row in run.events() if row["event"] == "restore"] == [
        (2, 0)
    ]
    expected = facts(tmp_path, ["run"])
    (tmp_path / "run" / "summary.json").unlink()
    for step in ("000002", "000004"):
        shutil.rmtree(tmp_path / "run" / "checkpoints" / step)
    said = dpo(tiny, tmp_path, *flags, "--resume")
    assert said.code == 0 and "resuming from step 0" in said.err
    assert facts(tmp_path, ["run"]) == expected


def test_stored_responses_of_an_earlier_stage_are_compared(place: Path, tmp_path: Path) -> None:
    lines = (place / "dpo.toml").read_text().splitlines(keepends=True)
    file = write(tmp_path / "dpo.toml", "".join(line for line in lines if "own =" not in line))
    said = whet(
        "dpo", file, "--out", tmp_path / "run", "--data", place / "run", "--steps", 2,
        "--loss", '{ name = "ipo", beta = 0.5, per_token = true }', "--pairs.rules", '["correct", "short"]',
    )  # fmt: skip
    assert said.code == 0, said.err
    assert "pairs by short" in said.err
    # Half of 1 / β, squared: all log-ratios are 0 at the start.
    assert rows(tmp_path / "run")[0]["loss"] == pytest.approx(1.0, abs=1e-3)
    assert RunStore.view(tmp_path / "run").rollout_steps("train") == []


def test_answers_without_a_pair_are_one_sentence(tiny: Pipeline, tmp_path: Path) -> None:
    text = f'kind = "dpo"\ntask.name = "game24"\ndata = "{tiny.folder}/02-traces"\nmodel = {{ path = "{tiny.folder}/03-sft" }}\n'
    said = whet("dpo", write(tmp_path / "x.toml", text), "--out", tmp_path / "run")
    assert said.code == 2
    assert re.fullmatch(
        r"whet: no two of the [\d,]+ responses make a pair by correct: give more responses per problem, or other pairs.rules",
        said.last,
    )


@pytest.mark.parametrize(
    ("setting", "reason"),
    [
        ('loss = { name = "ipo", smoothing = 0.1 }', 'smoothing = 0.1 is for name = "dpo"'),
        ('pairs = { rules = ["longest"] }', "longest"),
        ("pairs = { rules = [] }", "rules"),
        ("loss = { beta = 0.0 }", "beta"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(
    tmp_path: Path, setting: str, reason: str
) -> None:
    file = write(
        tmp_path / "x.toml",
        f'kind = "dpo"\ntask.name = "game24"\nmodel = {{ path = "m" }}\n{setting}\n',
    )
    said = whet("dpo", file, "--out", tmp_path / "run")
    assert said.code == 2
    assert reason in said.last


def test_the_metrics_of_a_run_are_those_documented(place: Path) -> None:
    check_metrics(place / "run", "dpo")
