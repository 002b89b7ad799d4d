"""What a round says: a planted effect is found, chance is called chance, and who goes on."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest
from small import write

from whet.store.files import write_json
from whet.store.run import RunStore
from whet.study.results import RoundResult, judge_round
from whet.study.runs import RunPlanner, StudyRun
from whet.study.study_file import load_study
from whet.testing.fakes import rollout, sum_problem
from whet.types import Score, Verdict

STUDY = """kind = "study"
seeds = [1, 2, 3]
rounds = ["method"]
[base]
task.name = "game24"
[base.stages.after]
kind = "eval"
model.path = "m"
samples = 4
[factors.method.plain]
[factors.method.new]
stages.after.sampling.temperature = 0.9
[factors.method.newer]
stages.after.sampling.temperature = 0.8
"""
NUM_PROBLEMS = 60


def finish(run: StudyRun, chance: float) -> None:
    """Write the evaluation of a run in which each answer is right by this chance, more or less by
    problem."""
    run.prepare()
    stage = run.stages[0]
    store = RunStore.open(stage.folder, run.pipeline.stages["after"], {}, resume=True)
    random = Random(f"{run.name}")
    groups = []
    for number in range(NUM_PROBLEMS):
        own = chance + 0.2 * Random(number).uniform(-1, 1)
        verdicts = [Verdict.CORRECT if random.random() < own else Verdict.WRONG for _ in range(4)]
        groups.append(
            tuple(
                rollout(
                    problem=sum_problem(number, 1),
                    score=Score(verdict=verdict, parts={}),
                    number=index,
                )
                for index, verdict in enumerate(verdicts)
            )
        )
    store.write_rollouts("eval", 0, groups)
    store.finish({"done": True})
    store.close()
    write_json(store.stage_file, {"key": stage.key, "spent": 1.0, "seconds": 1.0})
    write_json(RunStore(run.folder, lock=None).summary_file, {"seed": run.seed})


def judge(
    tmp_path: Path,
    chances: Mapping[str, float],
    *flags: str,
    failed: Mapping[str, str] | None = None,
) -> RoundResult:
    study = load_study(write(tmp_path / "s.toml", STUDY), flags)
    row = study.config.rounds[0]
    runs = RunPlanner(study=study, folder=tmp_path / "run").list_runs(row, study.first_levels)
    for run in runs:
        if run.levels["method"] in chances:
            finish(run, chances[run.levels["method"]])
    return judge_round(study.config, row, 1, runs, failed or {})


def test_a_planted_effect_is_found_and_its_level_goes_on(tmp_path: Path) -> None:
    result = judge(tmp_path, {"plain": 0.4, "new": 0.4, "newer": 0.6})
    assert result.is_clear
    assert result.winner == {"method": "newer"}
    assert result.sentence.startswith("method: newer won with ")
    difference = result.contrasts[1].difference
    assert difference.low < 0.2 < difference.high


@pytest.mark.parametrize(("rule", "goes_on"), [("first", "plain"), ("best", "newer")])
def test_no_effect_is_called_cannot_tell_and_the_rule_says_who_goes_on(
    rule: str, goes_on: str, tmp_path: Path
) -> None:
    result = judge(tmp_path, {"plain": 0.4, "new": 0.4, "newer": 0.4}, f"--if_unclear={rule}")
    assert not result.is_clear
    assert result.sentence.startswith("method: cannot tell. ")
    assert result.winner == {"method": goes_on}


def test_the_first_level_wins_where_all_others_are_worse(tmp_path: Path) -> None:
    result = judge(tmp_path, {"plain": 0.7, "new": 0.4, "newer": 0.3})
    assert result.is_clear
    assert result.winner == {"method": "plain"}
    assert "plain won with " in result.sentence and "new comes closest" in result.sentence


def test_a_winner_that_cannot_be_told_from_another_says_so(tmp_path: Path) -> None:
    result = judge(tmp_path, {"plain": 0.3, "new": 0.6, "newer": 0.6})
    assert result.is_clear
    assert "The data cannot tell it from " in result.sentence


def test_failed_runs_are_left_out_and_counted(tmp_path: Path) -> None:
    failed = {f"newer+seed{seed}": "out of memory" for seed in (1, 2, 3)}
    result = judge(tmp_path, {"plain": 0.4, "new": 0.6}, failed=failed)
    assert result.winner == {"method": "new"}
    assert result.failed == failed
    assert result.sentence.endswith("3 of its runs failed and are left out.")
    assert result.arms[2].estimate is None


def test_means_of_seeds_are_those_of_their_answers(tmp_path: Path) -> None:
    result = judge(tmp_path, {"plain": 1.5, "new": -1.0, "newer": 1.5})
    assert result.arms[0].seed_means == {1: 1.0, 2: 1.0, 3: 1.0}
    assert result.arms[1].seed_means == {1: 0.0, 2: 0.0, 3: 0.0}
    assert "cannot tell. newer against plain: 0.0 points" in result.sentence
    assert result.sentence.endswith("is kept. The data can tell that new did worse.")
