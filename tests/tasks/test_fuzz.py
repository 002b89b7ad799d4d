"""A sample of `bench/fuzz.py`: graders on generated texts, and the bench itself on graders that are
broken."""

import sys
import time
from functools import cache
from pathlib import Path

import pytest

from whet.tasks.registry import TASKS
from whet.testing.fakes import SumTask
from whet.types import Problem, Score, Verdict

sys.path.append(str(Path(__file__).parents[2] / "bench"))

import fuzz
from fuzzing.attacks import OPERATORS
from fuzzing.rows import KINDS, RUNS_CODE, Kind, Row
from fuzzing.rows import kind_of as made_kind
from fuzzing.texts import Text

TEXTS, CODE_TEXTS = 150, 4
ATTACKS = {True: 1500, False: 300}
"""Mathematics has many more operators than other tasks."""

kind_of = cache(made_kind)


@pytest.mark.parametrize("name", KINDS)
def test_no_generated_text_raises_or_is_taken_for_correct_when_it_is_wrong(name: str) -> None:
    kind, counts = kind_of(name), fuzz.Tally()

    for number in range(CODE_TEXTS if name in RUNS_CODE else TEXTS):
        fuzz.tried(kind, 7, 2 * number, counts)

    assert counts.findings == []
    assert counts.held >= counts.texts / 2


@pytest.mark.parametrize("name", KINDS)
def test_no_attack_has_another_verdict_than_it_must(name: str) -> None:
    kind, counts = kind_of(name), fuzz.Tally()

    for number in range(CODE_TEXTS if name in RUNS_CODE else ATTACKS[name == "math"]):
        fuzz.tried(kind, 7, 2 * number + 1, counts)

    operators = {operator.name for operator in OPERATORS if operator.applies(kind)}
    assert counts.findings == []
    assert name in RUNS_CODE or {way for way, _ in counts.ways} == operators


@pytest.mark.parametrize("name", KINDS)
def test_gold_is_right_and_what_is_spoiled_by_construction_is_not_gold(name: str) -> None:
    kind = kind_of(name)
    for row in kind.rows[:6]:
        rng = fuzz.make_rng(1, name, row.problem.id)
        assert kind.task.score(row.problem, row.gold).verdict is Verdict.CORRECT
        assert row.holds(row.answer + row.after)
        assert all(row.spoil(row.answer, rng) != row.answer for _ in range(20))


def test_every_task_is_tried() -> None:
    assert {name.removesuffix("_run") for name in KINDS} == set(TASKS)


class Kindly(SumTask):
    """Takes a verdict in the text for its own."""

    def score(self, problem: Problem, text: str) -> Score:
        score = super().score(problem, text)
        return (
            Score(verdict=Verdict.CORRECT, parts={"correct": 1.0}) if "correct" in text else score
        )


class Raising(SumTask):
    def score(self, problem: Problem, text: str) -> Score:
        return Score(verdict=Verdict.WRONG, parts={"correct": 1 / len(text) * 0})


class Contrary(SumTask):
    def score(self, problem: Problem, text: str) -> Score:
        return Score(verdict=Verdict.WRONG, parts={"correct": 1.0})


class Severe(SumTask):
    """Leaves some answers unscored and takes none."""

    def score(self, problem: Problem, text: str) -> Score:
        verdict = Verdict.UNSCORED if "not" in text else Verdict.WRONG
        return Score(verdict=verdict, parts={"correct": 0.0})


class Hanging(SumTask):
    def score(self, problem: Problem, text: str) -> Score:
        while "</think>" in text:
            time.sleep(0.01)
        return Score(verdict=Verdict.NO_ANSWER, parts={"correct": 0.0})


def kind_with(task: SumTask) -> Kind:
    problem = task.problems("rl")[0]
    answer = problem.answer or ""
    row = Row(
        problem=problem,
        before="",
        answer=answer,
        after="",
        spoil=lambda answer, rng: str(int(answer) + rng.randrange(1, 9)),
        holds=lambda text: answer in text,
    )
    return Kind(name=task.name, task=task, rows=(row,))


def found(task: SumTask, *, texts: int = 400, limit: float = 5.0) -> fuzz.Tally:
    (counts,) = fuzz.fuzz(
        [kind_with(task)], texts=texts, code_texts=0, workers=2, seed=0, limit=limit
    )
    return counts


def test_a_broken_grader_is_found() -> None:
    kindly, raising, contrary = found(Kindly()), found(Raising()), found(Contrary())

    assert kindly.texts == 400 and kindly.false_correct > 0 and not kindly.exceptions
    assert raising.exceptions > 0 and "ZeroDivisionError" in "".join(raising.findings)
    assert contrary.exceptions == 400


def test_a_right_answer_refused_and_one_unscored_are_faults() -> None:
    severe = found(Severe())

    assert severe.refused > 0 and severe.unscored > 0 and not severe.false_correct
    assert severe.ways["gold", "refused"] > 0 and severe.ways["denial", "unscored"] > 0
    assert severe.faults == severe.refused + severe.unscored


def test_the_last_line_says_whether_all_passed(capsys: pytest.CaptureFixture[str]) -> None:
    code = fuzz.main(["--texts", "60", "--workers", "1", "--only", "arithmetic"])

    captured = capsys.readouterr()
    line = captured.out.splitlines()[-1]
    assert code == 0 and line.startswith("passed: 60 texts in ")
    assert line.endswith(
        ": 0 raised, 0 false correct, 0 refused, 0 unscored outside the judge, 0 late"
    )
    assert "60 of 60 texts" in captured.err
    severe = found(Severe())
    failed = fuzz.conclude(severe, 1.0)
    assert failed.startswith("FAILED: 400 texts in 1 s") and f"{severe.refused} refused" in failed


def test_a_grader_that_hangs_is_killed_and_every_other_text_is_graded() -> None:
    counts = found(Hanging(), texts=40, limit=0.3)

    assert counts.texts == 40 and counts.over_limit > 0
    assert counts.verdicts["no_answer"] == 40 - counts.over_limit
    assert "".join(counts.findings).count("more than 0.3 s") == counts.over_limit
    assert sum(count for (_, name), count in counts.ways.items() if name == "late") > 0


def test_a_text_comes_of_its_number_alone() -> None:
    kind = kind_of("arithmetic")

    first, again = ([fuzz.written(kind, 3, number) for number in range(50)] for _ in range(2))

    assert first == again
    assert len({text.text for _, text in first}) > 40
    assert all(isinstance(text, Text) for _, text in first)


def test_texts_are_shared_out_evenly_and_code_gets_its_own_number() -> None:
    kinds = [kind_of(name) for name in ("arithmetic", "reverse", "code_stdin")]
    counts = [0, 0, 0]
    for chunk in fuzz.chunks_of(kinds, 1_001, 20):
        counts[chunk.kind] += chunk.end - chunk.start

    assert counts == [491, 490, 20]
