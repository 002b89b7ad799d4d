"""Rollouts as pairs: who is put against whom, how many, and the number of whatever is left out."""

from dataclasses import replace

import numpy as np
import pytest

from whet.batching.examples import Example, PreferencePair
from whet.batching.rollout_datasets import (
    LeftOutReason,
    PairRule,
    PreferencePairs,
    make_preference_pairs,
)
from whet.tasks.base import LineNote
from whet.testing.fakes import rollout, sum_problem
from whet.testing.tiny import tiny_tokenizer
from whet.text.chat import ChatFormat
from whet.types import FinishReason, Message, Problem, Rollout, Score, Verdict

CHAT = ChatFormat(tiny_tokenizer())


def comment(problem: Problem, text: str) -> list[LineNote]:
    """A line is right unless it holds a minus; an empty line has no word on it."""
    return [
        LineNote(line=line, is_right="-" not in line, note="") for line in text.splitlines() if line
    ]


def answer(
    text: str,
    verdict: Verdict = Verdict.CORRECT,
    *,
    problem: Problem | None = None,
    finish: FinishReason = FinishReason.STOP,
    number: int = 0,
    is_own: bool = False,
) -> Rollout:
    problem = problem or sum_problem(1, 2)
    stop = [min(CHAT.stop_tokens)] if finish is FinishReason.STOP else []
    return rollout(
        problem=problem,
        text=text,
        number=number,
        score=Score(verdict=verdict, parts={}),
        finish=finish,
        prompt=CHAT.encode_prompt(problem.prompt).tolist() if is_own else (),
        tokens=[*CHAT.tokenizer.encode(text).tolist(), *stop] if is_own else (),
    )


def view(
    rollouts: list[Rollout],
    *rules: PairRule,
    per_problem: int = 99,
    max_tokens: int = 64,
    seed: int = 0,
) -> PreferencePairs:
    return make_preference_pairs(
        rollouts,
        CHAT,
        rules,
        comment=comment,
        max_tokens=max_tokens,
        per_problem=per_problem,
        seed=seed,
    )


def texts(pairs: list[PreferencePair]) -> set[tuple[str, str]]:
    """What each pair compares, behind the context the two share."""
    return {(said(pair.chosen), said(pair.rejected)) for pair in pairs}


def said(example: Example) -> str:
    return CHAT.tokenizer.decode(example.tokens[example.response_start :])


def test_right_answers_are_put_against_wrong_ones_of_the_same_prompt_only() -> None:
    other = sum_problem(4, 5)
    found = view(
        [
            answer("3"),
            answer("4", Verdict.WRONG),
            answer("?", Verdict.NO_ANSWER),
            answer("9", problem=other),
        ],
        "correct",
    )

    assert texts(found.pairs) == {("3", "4"), ("3", "?")}
    assert found.rules["correct"].num_empty == 1
    assert (found.num_responses, found.num_problems) == (4, 2)


def test_another_wording_of_a_problem_is_another_prompt() -> None:
    loud = replace(sum_problem(1, 2), prompt=(Message(role="user", content="1 + 2 !"),))
    found = view([answer("3"), answer("4", Verdict.WRONG, problem=loud)], "correct")
    assert found.pairs == []
    assert found.rules["correct"].num_empty == 1


def test_every_answer_of_the_larger_side_is_used_once_and_the_smaller_side_evenly() -> None:
    right = [answer(str(number)) for number in (3, 33)]
    wrong = [answer(str(number), Verdict.WRONG) for number in range(4, 10)]
    found = texts(view([*right, *wrong], "correct").pairs)
    assert sorted(rejected for _, rejected in found) == list("456789")
    assert sorted(chosen for chosen, _ in found) == ["3"] * 3 + ["33"] * 3


def test_the_cap_is_kept_by_problem_counted_and_drawn_by_the_seed() -> None:
    rollouts = [answer("3"), *(answer(str(number), Verdict.WRONG) for number in range(4, 14))]
    found = view(rollouts, "correct", per_problem=4, seed=1)
    assert (found.rules["correct"].num_pairs, found.rules["correct"].num_capped) == (4, 6)
    assert texts(found.pairs) == texts(view(rollouts, "correct", per_problem=4, seed=1).pairs)
    assert texts(found.pairs) != texts(view(rollouts, "correct", per_problem=4, seed=2).pairs)


def test_of_two_right_answers_the_shorter_is_preferred_where_it_is_shorter_by_a_fifth() -> None:
    # Shortest and longest make a pair, and the one between them has no partner.
    found = view(
        [answer("1"), answer("1 1"), answer("1 1 1"), answer("9 9", Verdict.WRONG)], "short"
    )
    assert [(chosen, rejected) for chosen, rejected in texts(found.pairs)] == [("1", "1 1 1")]
    assert view([answer("1 1 1"), answer("2 2 2")], "short").pairs == []


def test_at_the_first_wrong_step_the_step_of_a_right_answer_is_preferred() -> None:
    found = view(
        [
            answer("1 + 1\n2 + 2\n3"),
            answer("1 + 1\n2 - 2\n5", Verdict.WRONG),
            answer("7 - 7\n3", Verdict.WRONG),
            answer("5 + 5\n6 - 6", Verdict.WRONG),
        ],
        "first_wrong",
    )
    # The third parts from the right answer in its first token; nobody right begins like the fourth.
    # Of the second the shared beginning reaches into the line: 1 + 1, newline, 2, blank.
    assert texts(found.pairs) == {("+ 2\n", "- 2\n"), ("1 + 1\n", "7 - 7\n")}
    for pair in found.pairs:
        np.testing.assert_array_equal(
            pair.chosen.tokens[: pair.chosen.response_start],
            pair.rejected.tokens[: pair.rejected.response_start],
        )


def test_a_last_step_keeps_its_stop_token_and_one_cut_at_the_limit_is_no_step() -> None:
    right = answer("1 + 1\n3", is_own=True)
    [pair] = view([right, answer("1 + 1\n-3", Verdict.WRONG, is_own=True)], "first_wrong").pairs
    assert int(pair.chosen.tokens[-1]) in CHAT.stop_tokens
    assert int(pair.rejected.tokens[-1]) in CHAT.stop_tokens
    cut = answer("1 + 1\n-3", Verdict.NO_ANSWER, finish=FinishReason.LENGTH, is_own=True)
    assert view([right, cut], "first_wrong").pairs == []


def test_a_right_answer_whose_step_there_is_wrong_too_is_no_example() -> None:
    rollouts = [answer("1 - 1\n3"), answer("2 - 2\n3", Verdict.WRONG)]
    assert view(rollouts, "first_wrong").rules["first_wrong"].num_empty == 1


def test_an_answer_on_which_the_grader_notes_no_line_gives_no_pair_and_its_problem_is_counted() -> (
    None
):
    other = sum_problem(4, 5)
    unmarked = [answer("\n", Verdict.WRONG, problem=other), answer("9", problem=other)]
    rollouts = [answer("1 + 1\n3"), answer("7 - 7\n3", Verdict.WRONG), *unmarked]

    counted = view(rollouts, "first_wrong").rules["first_wrong"]

    assert (counted.num_pairs, counted.num_empty) == (1, 1)


def test_tokens_the_model_sampled_itself_are_taken_as_they_are() -> None:
    right, wrong = (
        answer("3", is_own=True),
        answer("12 1", Verdict.WRONG, finish=FinishReason.LENGTH, is_own=True),
    )
    [pair] = view([right, wrong], "correct").pairs
    np.testing.assert_array_equal(
        pair.chosen.tokens[pair.chosen.response_start :], right.completion.tokens
    )
    # Nothing is added to an answer that was cut: the model never said that it ends there.
    np.testing.assert_array_equal(
        pair.rejected.tokens[pair.rejected.response_start :], wrong.completion.tokens
    )


def test_tokens_sampled_for_another_prompt_are_not_taken_as_own() -> None:
    other = CHAT.encode_prompt(sum_problem(5, 6).prompt)
    right, wrong = answer("3"), answer("4", Verdict.WRONG, is_own=True)

    [pair] = view([right, replace(wrong, prompt_tokens=other)], "correct").pairs

    prompt = pair.rejected.tokens[: pair.rejected.response_start]
    np.testing.assert_array_equal(prompt, CHAT.encode_prompt(right.problem.prompt))
    assert view([right, replace(wrong, prompt_tokens=other)], "correct").faults == {}


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (answer("4", Verdict.UNSCORED), "unscored"),
        (answer("3", Verdict.WRONG), "repeated"),
        (answer("4", Verdict.WRONG, finish=FinishReason.LENGTH), "cut"),
        (answer(" 4" * 70, Verdict.WRONG), "too_long"),
    ],
)
def test_what_cannot_be_part_of_a_pair_is_counted(bad: Rollout, fault: LeftOutReason) -> None:
    found = view([answer("3"), bad], "correct")
    assert found.pairs == []
    assert dict(found.faults) == {fault: 1}


def test_each_rule_adds_its_own_pairs() -> None:
    rollouts = [answer("1"), answer("1 1 1"), answer("9 9", Verdict.WRONG)]
    found = view(rollouts, "correct", "short")
    assert {rule: count.num_pairs for rule, count in found.rules.items()} == {
        "correct": 2,
        "short": 1,
    }
    assert len(found.pairs) == 3
