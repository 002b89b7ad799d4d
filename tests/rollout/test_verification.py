"""Verdicts on steps reach the tokens of the generator, and what cannot be judged is left out."""

from dataclasses import replace

import numpy as np
import pytest

from whet.algos.step_credit import build_step_credit
from whet.proofs.fixtures import ScriptedEngine
from whet.rollout.collect import ChatEngine
from whet.rollout.verification import (
    make_verifications,
    mark_verifier,
    outcome_pairs,
    step_pairs,
    with_steps,
)
from whet.tasks.game24.task import Game24
from whet.tasks.verify import Verify
from whet.testing.fakes import rollout
from whet.testing.tiny import tiny_tokenizer
from whet.text.chat import ChatFormat
from whet.text.tokenizer import train_tokenizer
from whet.types import Author, Group, JudgedStep, Rollout, Verdict

TASK, JUDGE = Game24(), Verify()
PROBLEM = TASK.problem((1, 6, 8, 13))
GENERATOR = ChatFormat(tiny_tokenizer())
VERIFIER = ChatFormat(train_tokenizer(["<step>\\boxed{CORRECT}</step>\n"], max_pieces=7))
LINES = "13 - 1 = 12\n12 - 8 = 4\n6 * 4 = 24"


def solved(text: str, number: int = 0) -> Rollout:
    """A solution as the generator's tokens, ended by a stop token."""
    tokens = [*GENERATOR.tokenizer.encode(text).tolist(), min(GENERATOR.stop_tokens)]
    return rollout(
        text=text, tokens=tokens, problem=PROBLEM, number=number, score=TASK.score(PROBLEM, text)
    )


def judged(solution: Rollout, *verifications: str, final: bool = True) -> Group:
    """Verifications of a solution, each written as the letters of its verdicts, y or n."""
    problem = JUDGE.make_problem(solution)
    assert problem is not None
    word = {"y": "CORRECT", "n": "INCORRECT"}
    end = f"</step_verification><final_verification>\\boxed{{{word['y' if final else 'n']}}}</final_verification>"
    texts = [
        "<step_verification>" + "".join(f"<step>\\boxed{{{word[m]}}}</step>" for m in marks) + end
        for marks in verifications
    ]
    return tuple(
        rollout(text=text, problem=problem, number=number) for number, text in enumerate(texts)
    )


def steps(solution: Rollout, *verifications: str) -> tuple[JudgedStep, ...]:
    [[found]] = with_steps([(solution,)], [judged(solution, *verifications)], JUDGE, GENERATOR)
    return found.judged_steps


def test_each_of_k_steps_is_worth_one_kth_at_its_own_tokens() -> None:
    solution = solved(LINES)
    pieces = GENERATOR.tokenizer.pieces(solution.completion.tokens)

    found = steps(solution, "yny")

    assert [step.reward for step in found] == pytest.approx([1 / 3, -1 / 3, 1 / 3])
    assert ["".join(pieces[step.start : step.end]).strip() for step in found] == LINES.split("\n")
    assert found[-1].end == len(pieces) - 1, "the stop token is no part of a step"


def test_several_verifications_are_averaged() -> None:
    """Of three, y y n is a third of ⅓; and one with another number of verdicts does not count."""
    found = steps(solved(LINES), "yyy", "yny", "ynn", "yy")

    assert [step.reward for step in found] == pytest.approx([1 / 3, -1 / 9, 1 / 9])


def test_without_a_verdict_on_every_step_there_is_no_credit() -> None:
    solution = solved(LINES)

    assert steps(solution, "yy", "yyyy") == ()
    [[found]] = with_steps(
        [(replace(solution, judged_steps=(JudgedStep(start=0, end=1, reward=1.0),)),)],
        [],
        JUDGE,
        GENERATOR,
    )
    assert found.judged_steps == ()


def test_the_credit_of_a_judged_group_is_that_of_the_formula() -> None:
    """Steps of ½, -½ and of 1: pooled to .2182, -1.0911 and .8729, as in
    tests/algos/test_steps.py."""
    two, one = solved("13 - 1 = 12\n12 - 8 = 4"), solved("6 * 4 = 24", number=1)
    groups = with_steps([(two, one)], [judged(two, "yn"), judged(one, "y")], JUDGE, GENERATOR)

    answers = [
        [(each.judged_steps, len(each.completion.tokens)) for each in group] for group in groups
    ]
    [[first, second]] = build_step_credit("zscore")(answers)

    end = groups[0][0].judged_steps[0].end
    assert first[0] == pytest.approx(-0.8729, abs=1e-4) and first[end] == pytest.approx(
        -1.0911, abs=1e-4
    )
    assert first[-1] == second[-1] == 0.0, "nothing comes after the last step"
    assert second[0] == pytest.approx(0.8729, abs=1e-4)


def test_solutions_that_do_not_fit_are_left_out_and_never_cut() -> None:
    engine = ScriptedEngine(lambda request: np.zeros(0, dtype=np.int32))
    chat_engine = ChatEngine(engine=engine, chat=VERIFIER, name="verifier")
    group = (
        solved("1\n2"),
        solved("1\n2 and a long step that fills the context", number=1),
        solved("", number=2),
    )
    lengths = [
        len(VERIFIER.encode_prompt(problem.prompt))
        for each in group[:2]
        if (problem := JUDGE.make_problem(each))
    ]

    assert len(make_verifications([group], JUDGE, chat_engine, max(lengths))) == 2
    assert [
        problem.source_id
        for problem in make_verifications([group], JUDGE, chat_engine, max(lengths) - 1)
    ] == [group[0].id]


def test_pairs_hold_truth_and_verdict_of_outcomes_and_steps() -> None:
    right, wrong = solved(LINES), solved("13 - 1 = 12\n12 - 8 = 5\n6 * 5 = 24", number=1)
    assert right.score is not None and right.score.verdict is Verdict.CORRECT
    groups = [judged(right, "yyy"), judged(wrong, "yny", "yn", final=False)]

    outcomes = list(outcome_pairs(groups, JUDGE))
    found = list(step_pairs([(right, wrong)], groups, JUDGE, TASK))

    assert outcomes == [(True, True), (False, False), (False, False)]
    # The game's own labels of the wrong one are right, wrong, wrong; the last verification misses a
    # verdict.
    assert found == [(True, True)] * 3 + [(True, True), (False, False), (False, True)] + [
        (True, None), (False, None), (False, None)]  # fmt: skip


def test_verifications_are_signed_as_such() -> None:
    assert {
        each.author for group in mark_verifier([judged(solved(LINES), "yyy")]) for each in group
    } == {Author.VERIFIER}
