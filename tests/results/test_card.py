"""The card of a run, and that tampering with what it says is found."""

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from small import Pipeline, whet

from whet.results.arms import view_run_folder
from whet.results.card import build_card, list_deviations, render_card
from whet.results.verify_card import check_stage
from whet.rollout.collect import group_rollouts
from whet.store.run import RunStore
from whet.types import Score, Verdict


@pytest.fixture(scope="module")
def copied(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the pipeline whose stages refer to the copy."""
    folder = tiny.copy(tmp_path_factory.mktemp("card") / "run")
    for file in folder.glob("*/config.toml"):
        file.write_text(file.read_text().replace(str(tiny.folder), str(folder)))
    return folder


@pytest.fixture
def run(copied: Path, tmp_path: Path) -> Path:
    """A copy for a test that changes it."""
    folder = Path(shutil.copytree(copied, tmp_path / "run"))
    for file in folder.glob("*/config.toml"):
        file.write_text(file.read_text().replace(str(copied), str(folder)))
    return folder


def test_a_card_has_the_facts_of_the_run(copied: Path) -> None:
    card = build_card(view_run_folder(copied), price=2.0)
    stages = {stage.name: stage for stage in card.stages}
    rl, rl_eval = stages["rl"], stages["rl_eval"]
    assert (rl.seed, rl.steps, rl.device, rl.processes) == (3, 6, "cpu", 1)
    assert rl.answers == 6 * 4 * 4
    assert rl_eval.answers == 547 * (2 + 1)
    assert rl_eval.tokens == sum(
        len(rollout.completion.tokens)
        for step in (0, 1)
        for rollout in RunStore.view(copied / "06-rl_eval").rollouts("eval", step)
    )
    assert (card.gpu_hours, card.dollars) == (0.0, 0.0)
    assert "problems problems-rl.jsonl" in rl.inputs
    assert "checkpoints/000006/manifest.json" in rl.results
    assert [figure.name for figure in rl_eval.figures] == [
        "sampled, pass@1",
        "sampled, pass@2",
        "greedy, pass@1",
    ]
    origins = {setting.key: (setting.value, setting.origin) for setting in rl.settings}
    assert origins["steps"] == ("6", "tiny.toml")
    assert origins["train.max_grad_norm"] == ("1.0", "default")


def test_gpu_hours_count_every_process_and_cost_only_where_there_is_a_price(copied: Path) -> None:
    card = build_card(view_run_folder(copied))
    stage = replace(card.stages[0], device="NVIDIA H200", processes=8, seconds=900.0)
    assert stage.gpu_hours == 2.0
    assert card.dollars is None
    assert "dollars" not in render_card(card)


def test_a_card_is_markdown_or_json(copied: Path, tmp_path: Path) -> None:
    said = whet("card", copied)
    assert said.code == 0, said.err
    for words in (
        "# Run card: run",
        "24 game",
        "million parameters",
        "| rl_eval | sampled, pass@1 |",
    ):
        assert words in said.out
    assert "| rl | `steps` | 6 | tiny.toml |" in said.out
    assert whet("card", copied, "--json", "--out", tmp_path / "card.json").code == 0
    assert json.loads((tmp_path / "card.json").read_text())["stages"][4]["name"] == "rl"


def test_deviations_are_told(run: Path) -> None:
    store = RunStore(run / "05-rl", lock=None)
    store.log_event("resume", command="")
    store.log_event("extend", before=3, steps=6)
    store.log_event("restore", step=4, best=2)
    store.log_event("too_long", context=9, problems=["a", "b"])
    store.rollout_file("train", 4).unlink()
    facts = json.loads((run / "05-rl" / "provenance.json").read_text())
    command = f"whet run {Path(__file__).parents[2] / 'experiments' / 'tango_grpo_1.5b.toml'}"
    for stage in run.glob("0*/provenance.json"):
        stage.write_text(json.dumps(facts | {"changed": True, "commit": None, "command": command}))
    told = list_deviations(view_run_folder(run))
    assert told[0].startswith(
        "tango_grpo_1.5b.toml says how it differs from its source: 800 steps of SFT"
    )
    assert told[0].endswith("only MATH-500 of its nine evaluation sets.")
    assert {
        "rl: it was resumed 1 times.",
        "rl: it was extended from 3 to 6 steps.",
        "rl: a guard went back to step 2 after step 4.",
        "rl: 2 problems with too long prompts were left out.",
        "rl: the responses of 1 of 6 steps are not stored.",
        "The commit of the code is not known.",
        "The code had changes that are in no commit.",
    } <= set(told)
    assert any(
        re.match(r"rl_eval: \d+\s% of the responses of evaluation 0 were cut off", t) for t in told
    )


def test_a_smoke_run_is_called_one(run: Path) -> None:
    file = run / "01-problems" / "provenance.json"
    file.write_text(
        json.dumps(json.loads(file.read_text()) | {"command": "whet run x.toml --smoke"})
    )
    assert list_deviations(view_run_folder(run))[0].startswith("This is a smoke run")


def test_a_run_that_nobody_touched_agrees(copied: Path) -> None:
    said = whet("card", copied, "--verify")
    assert said.code == 0, said.out
    assert "DIFFERS" not in said.out
    for words in (
        "rl checkpoints: step 6",
        "rl metrics: step 1",
        "rl grading: 6",
        "rl_eval evaluations",
    ):
        assert f"agrees    {words}" in said.out


def change_text(path: str, before: str, after: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        text = (run / path).read_text()
        assert re.search(before, text), f"{path} has no {before}"
        (run / path).write_text(re.sub(before, after, text, count=1))

    return change


def flip_byte(path: str) -> Callable[[Path], None]:
    def change(run: Path) -> None:
        content = bytearray((run / path).read_bytes())
        content[-1] ^= 1
        (run / path).write_bytes(content)

    return change


def flip_verdicts(run: Path) -> None:
    """Call every wrong greedy answer right, in the answers and in their summaries alike."""
    store = RunStore(run / "06-rl_eval", lock=None)
    right = Score(verdict=Verdict.CORRECT, parts={"correct": 1.0})
    changed = [replace(rollout, score=right) for rollout in store.rollouts("eval", 0)]
    store.write_rollouts("eval", 0, group_rollouts(changed))


@pytest.mark.parametrize(
    ("tamper", "found"),
    [
        (change_text("05-rl/metrics.jsonl", '"reward/mean":[^,]*', '"reward/mean":0.987'), "rl metrics: step 1"),
        (change_text("05-rl/metrics.jsonl", '"step":5,', '"step":7,'), "rl steps: 1 of 6"),
        (change_text("05-rl/summary.json", '"validation_pass@1": [^}]*', '"validation_pass@1": 0.9\n'), "rl validations"),
        (change_text("05-rl/evals/000003.json", '"mean": [^,]*', '"mean": 0.77'), "rl validations: step 3"),
        (change_text("06-rl_eval/evals/000000.json", '"mean": [^,]*', '"mean": 0.77'), "rl_eval evaluations: sampled"),
        (change_text("06-rl_eval/evals/000000.json", '"high": [^,]*', '"high": 0.99'), "rl_eval evaluations: sampled"),
        (change_text("06-rl_eval/summary.json", '"num_unscored": 0', '"num_unscored": 1'), "in the summary"),
        (change_text("summary.json", '"problems": 409', '"problems": 408'), "summary.json"),
        (change_text("01-problems/problems-rl.jsonl", '"level":[^,]*', '"level":0.1'), "problems made files"),
        (change_text("01-problems/problems-rl.jsonl", '"level":[^,]*', '"level":0.1'), "rl input files"),
        (flip_byte("05-rl/checkpoints/000006/model.safetensors"), "rl checkpoints: step 6"),
        (flip_verdicts, "rl_eval grading"),
        (flip_verdicts, "rl_eval evaluations: sampled"),
        (lambda run: (run / "05-rl/rollouts/train-000001.parquet").write_bytes(b"PAR1"), "rl metrics: cannot be read"),
    ],
)  # fmt: skip
def test_tampering_is_found(run: Path, tamper: Callable[[Path], None], found: str) -> None:
    tamper(run)
    checks = [
        c for name, store in view_run_folder(run).stages.items() for c in check_stage(name, store)
    ]
    wrong = [
        f"{check.stage} {check.what}: {check.sentence}" for check in checks if check.agrees is False
    ]
    if found == "summary.json":
        said = whet("card", run, "--verify")
        assert (said.code, "DIFFERS   summary.json" in said.out) == (1, True)
    else:
        assert any(found in line for line in wrong), wrong


def test_a_difference_ends_with_code_one_and_files_that_moved_do_not(run: Path) -> None:
    shutil.rmtree(run / "01-problems")
    said = whet("card", run, "--verify", "--json")
    assert said.code == 0, said.out
    assert {row["agrees"] for row in json.loads(said.out)} == {True, None}
    flip_byte("03-sft/checkpoints/000040/config.json")(run)
    assert whet("card", run, "--verify").code == 1
