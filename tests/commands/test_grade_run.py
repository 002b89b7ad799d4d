"""Stored rollouts graded again, under the reward of their run and under another."""

import json
import re
from pathlib import Path

import pytest
from small import Pipeline, files, whet, write

from whet.commands.grade_run import grade_run
from whet.rewards.spec import RewardSpec, summarise_parts, take_apart
from whet.store.run import RunStore
from whet.testing.fakes import rollout
from whet.types import Rollout, Score, Verdict

SPEC = """kind = "reward"
weights = { finished = 1.0, lines = -0.2 }
[[terms]]
kind = "linear"
weight = 0.5
max_tokens = 24
"""


def scored(number: int, *, right: bool, lines: float, tokens: int) -> Rollout:
    verdict = Verdict.CORRECT if right else Verdict.WRONG
    score = Score(verdict=verdict, parts={"correct": float(right), "lines": lines})
    return rollout(score=score, number=number, tokens=range(tokens))


def test_verdicts_scores_and_rewards_are_those_stored_and_nothing_is_written(
    tiny: Pipeline,
) -> None:
    folder = tiny.folder / "05-rl"
    before = files(folder)
    results = grade_run(folder, workers=0)
    stored = [
        item for step in range(1, 7) for item in RunStore.view(folder).rollouts("train", step)
    ]
    assert [result.stored.id for result in results] == [item.id for item in stored]
    assert len(results) == 96
    for result in results:
        assert not result.has_other_verdict and not result.has_other_score
        assert result.now.reward == result.stored.reward
    assert files(folder) == before


def test_another_spec_changes_rewards_as_computed_by_hand(tiny: Pipeline, tmp_path: Path) -> None:
    spec = write(tmp_path / "spec.toml", SPEC)
    out = tmp_path / "graded.jsonl"
    said = whet("grade", tiny.folder / "05-rl", "--step", 2, "--reward", spec, "--out", out)
    assert said.code == 0, said.err
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    stored = RunStore.view(tiny.folder / "05-rl").rollouts("train", 2)
    assert len(rows) == len(stored) == 16
    for row, item in zip(rows, stored, strict=True):
        parts = row["parts"]
        brevity = max((24 - len(item.completion.tokens)) / 24, 0.0)
        by_hand = parts["finished"] - 0.2 * parts["lines"] + 0.5 * brevity
        assert row["reward"] == pytest.approx(by_hand, abs=1e-12)
        assert row["stored_reward"] == item.reward
        assert item.score is not None and row["stored_verdict"] == item.score.verdict
    assert re.search(r"^linear \(term\) +0\.5 ", said.out, re.MULTILINE)


def test_one_rollout_is_taken_apart_by_its_id(tiny: Pipeline) -> None:
    folder = tiny.folder / "05-rl"
    item = RunStore.view(folder).rollouts("train", 3)[5]
    said = whet("grade", folder, "--step", 3, "--rollout", item.id, "--json")
    assert said.code == 0, said.err
    shown = json.loads(said.out)
    adds = {row["part"]: row["contribution"] for row in shown["contributions"]}
    assert shown["reward"] == item.reward == pytest.approx(sum(adds.values()))
    assert adds["finished"] == shown["parts"]["finished"]
    assert adds["lines"] == -0.1 * shown["parts"]["lines"] and adds["correct"] == 0.0
    plain = whet("grade", folder, "--step", 3, "--rollout", item.id).out
    assert plain.startswith(f"{item.id} of step 3: ") and "\nreward " in plain


def test_shares_of_the_variance_are_those_worked_by_hand() -> None:
    """Rewards 1 - 0.1 × 2, 0 - 0.1 × 4; 1 - 0.1 × 6, 1 - 0.1 × 6: 0.8, -0.4, 0.4, 0.4."""
    spec = RewardSpec(weights={"correct": 1.0, "lines": -0.1})
    groups = [
        (scored(0, right=True, lines=2, tokens=3), scored(1, right=False, lines=4, tokens=3)),
        (scored(2, right=True, lines=6, tokens=3), scored(3, right=True, lines=6, tokens=3)),
    ]
    correct, lines, reward = summarise_parts(spec, groups)
    # Mean 0.3; deviations 0.5, -0.7, 0.1, 0.1: 0.76. Those of correct: 0.25, -0.75, 0.25, 0.25.
    assert correct.variance_fraction == pytest.approx((0.125 + 0.525 + 0.025 + 0.025) / 0.76)
    # Within the first group: rewards ±0.6, correct ±0.5, lines ±0.1; the second is all equal.
    assert correct.variance_fraction_within == pytest.approx(0.5 / 0.6)
    assert lines.variance_fraction_within == pytest.approx(0.1 / 0.6)
    assert (correct.mean, correct.contribution) == (0.75, 0.75)
    assert (lines.mean, lines.contribution) == (4.5, pytest.approx(-0.45))
    assert (lines.right, lines.wrong) == (pytest.approx(-1.4 / 3), pytest.approx(-0.4))
    assert (reward.variance_fraction, reward.contribution) == (
        pytest.approx(1.0),
        pytest.approx(0.3),
    )


def test_rewards_that_are_equal_but_for_rounding_have_no_variance_to_share() -> None:
    spec = RewardSpec(weights={"a": 0.1, "b": 0.2, "c": 0.3})
    both, one = (
        rollout(score=Score(verdict=Verdict.WRONG, parts=parts), reward=None)
        for parts in ({"a": 1.0, "b": 1.0, "c": 0.0}, {"a": 0.0, "b": 0.0, "c": 1.0})
    )
    assert 0.1 + 0.2 != 0.3
    summaries = summarise_parts(spec, [(both, one)])
    assert {part.variance_fraction for part in summaries} == {None}
    assert {part.variance_fraction_within for part in summaries} == {None}


def test_a_term_that_does_not_count_for_a_verdict_adds_nothing() -> None:
    terms = [{"kind": "linear", "max_tokens": 4, "when": when} for when in ("correct", "wrong")]
    spec = RewardSpec.model_validate({"weights": {"correct": 2.0}, "terms": terms})
    parts = take_apart(spec, scored(0, right=True, lines=1, tokens=3))
    assert [(part.name, part.amount) for part in parts] == [
        ("correct", 2.0),
        ("linear (term)", 0.25),
        ("linear (term 2)", 0.0),
        ("lines", 0.0),
    ]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (["--step", "9"], "has no rollouts of step 9"),
        (["--rollout", "none"], "has no rollout 'none' in these 6 files of rollouts"),
        (["--problems", "p.jsonl"], "--problems is for a file of responses"),
        (["--out", "05-rl/x.jsonl"], "is in the run's folder, which is only read"),
    ],
)
def test_a_mistake_is_one_sentence(
    flags: list[str], sentence: str, tiny: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.folder)
    said = whet("grade", "05-rl", *flags)
    assert said.code == 2 and sentence in said.last


def test_flags_of_a_run_are_refused_for_a_file(tmp_path: Path) -> None:
    rows = write(tmp_path / "rows.jsonl", "{}\n")
    said = whet("grade", rows, "--step", 1)
    assert said.last == f"whet: --step is for a run, which {rows} is not"
    assert whet("grade", rows).last == "whet: --out must say where to write the graded rows"
