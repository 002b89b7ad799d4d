import json
import random
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.tasks.game24.task import Grade, grade_hand
from whet.types import Verdict

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"
HAND = (13, 8, 6, 1)


def graded(text: str, hand=HAND, is_solvable=True) -> Grade:
    return grade_hand(hand, text, is_solvable=is_solvable)


def faults(text: str, hand=HAND) -> list[str]:
    return [step.note for step in graded(text, hand).steps if not step.is_right]


@pytest.mark.parametrize(
    "text",
    [
        "13 - 1 = 12\n12 - 8 = 4\n6 * 4 = 24",
        "13 - 1 = 12\n12 - 8 = 4\n6 * 4 = 24\n\n",
        "13 - 1 = 12, left: 12 8 6\n12 - 8 = 4, left: 6 4\n6 * 4 = 24, left: 24",
        "reach 24! expression: (6 * ((13 - 1) - 8))",
        "6*(13-1-8)",
        "6 * (13 - 1 - 8) = 24",
        "Answer: 6 \N{MULTIPLICATION SIGN} (13 \N{MINUS SIGN} 1 \N{MINUS SIGN} 8) = 24",
        "(8 - 6) * (13 - 1)",
        "-(6 - 8) * (13 - 1)",
        "8 - 6 = 2\n13 - 1 = 12\n12 * 2 = 24",
        "(8 - 6) * (13 - 1) = 24, since two twelves make twenty-four.",
        "(8 - 6) * (13 - 1) = 24 because 2 * 12 = 24.",
        "(8 - 6) * (13 - 1)\n\nHere 8 - 6 = 2, 13 - 1 = 12 and 2 * 12 = 24.",
        "One way is $(8 - 6)\\cdot(13 - 1)=24$, written out: (8 - 6) * (13 - 1) = 24.",
    ],
)
def test_right_answers_are_right_in_any_format(text):
    found = graded(text)
    assert (found.verdict, found.process, found.brevity) == (Verdict.CORRECT, 1.0, 1.0)


@pytest.mark.parametrize(
    "text",
    [
        "(8 - 6) * (13 - 1) = 24, which breaks the rules.",
        "(8 - 6) * (13 - 1)\n\nHere is another: (8 - 6) * 13 - 1 = 24",
        "(8 - 6) * (13 - 1)\n\nThis uses 24 twice and is off.",
        "8 * 3 = 24, written out: 8 * 3 = 24.",
        "(8 - 6) * (13 - 1) = 24, or so: 8 * 6 - 13 - 1 = 24",
    ],
)
def test_an_answer_that_is_taken_back_or_followed_by_another_is_not_right(text):
    assert graded(text).verdict != Verdict.CORRECT


def test_fractions_on_the_way_are_exact():
    assert (
        graded("8 / 3 = 8/3\n3 - 8/3 = 1/3\n8 / 1/3 = 24", (3, 3, 8, 8)).verdict is Verdict.CORRECT
    )
    assert (
        graded("8 / 3 = 2.666667\n3 - 2.666667 = 0.333333\n8 / 0.333333 = 24", (3, 3, 8, 8)).verdict
        is Verdict.WRONG
    )


def test_a_last_line_that_reads_as_a_step_may_be_the_whole_expression():
    assert graded("12/1 + 12/1 = 24", (1, 1, 12, 12)).verdict is Verdict.CORRECT


@pytest.mark.parametrize(
    "text",
    [
        "13 - 1 = 12\n12 - 8 = 4\n6 + 4 = 10",
        "13 - 1 = 12\n12 - 8 = 4\n6 * 4 = 25",
        "13 - 1 = 12\n12 + 12 = 24\n8 - 6 = 2",
        "8 * 3 = 24",
        "6 * 4 = 24",
        "reach 24! expression: 6 * 4",
        "reach 24! expression: 24",
        "reach 24! expression: (6 * (13 - 8)) - 1",
        "Answer: 6 * (13 - 1 - 8) = 25",
        "Answer: None",
        "no solution",
        "6 * (13 - 1 - 8) / (13 - 13)",
    ],
)
def test_wrong_answers_are_wrong(text):
    assert graded(text).verdict is Verdict.WRONG


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n \n",
        "13 - 1 = 12",
        "13 - 1 = 12\n12 - 8 = 4",
        "I give up",
        "roll back, left: 13 8 6 1",
        "6 * (13 - 1 - 8) = 24\nthat was easy",
        "13 - 1 = 12, left: 12 8 6\nback, left: 13 8 6 1",
        "13 - 1 = 12\n12 - 8 = 4\n4 * 6 = 24\nBut that is wrong.",
        "13 - 1 = 12\n12 - 8 = 4\n4 * 6 = 24\nback, left: 24",
        "<think>\n13 - 1 = 12\n12 - 8 = 4\n4 * 6 = 24\n</think>",
        "<think>\n13 - 1 = 12\n12 - 8 = 4\n4 * 6 = 24\n</think>\nI am sure.",
        "<think>\n6 * (13 - 1 - 8) = 24\n",
    ],
)
def test_a_response_without_an_answer_on_its_last_line_has_none(text):
    found = graded(text)
    assert (found.verdict, found.brevity) == (Verdict.NO_ANSWER, 0.0)


def test_no_solution_is_right_where_there_is_none():
    assert graded("No solution.", (1, 1, 1, 1), is_solvable=False).verdict is Verdict.CORRECT
    assert (
        graded("1 + 1 = 2\n1 + 1 = 2\n2 * 2 = 4", (1, 1, 1, 1), is_solvable=False).verdict
        is Verdict.WRONG
    )


@pytest.mark.parametrize(
    "text", ["<think>\nno solution\n", "<think>\nno solution\n</think>\nIt is so."]
)
def test_no_solution_in_the_thinking_part_is_no_answer(text):
    assert graded(text, (1, 1, 1, 1), is_solvable=False).verdict is Verdict.NO_ANSWER


def test_an_answer_behind_the_thinking_part_counts_by_itself():
    found = graded("<think>\n13 + 1 = 15\nhm\n</think>\n6 * (13 - 1 - 8) = 24")

    assert (found.verdict, len(found.steps), found.process) == (Verdict.CORRECT, 1, 1.0)


def test_the_length_part_halves_at_24_lines():
    step = "13 - 1 = 12, left: 12 8 6\nback, left: 13 8 6 1\n"
    answer = "6 * (13 - 1 - 8)"
    assert graded(step + answer).brevity == 1.0
    assert graded(step * 2 + answer).brevity == pytest.approx(
        0.9781, abs=1e-4
    )  # 5 lines: 1 / (1 + e^-3.8)
    assert graded(step * 11 + "back, left: 13 8 6 1\n" + answer).brevity == 0.5
    assert graded(step * 2000 + answer).brevity == pytest.approx(0.0)


def test_each_kind_of_fault_is_named():
    assert faults("13 - 1 = 11") == ["false arithmetic: 13 - 1 is 12, not 11"]
    assert faults("1 / 0 = 5") == ["false arithmetic: 1 / 0 is undefined, not 5"]
    assert faults("13 - 2 = 11") == ["13 and 2 are not both among 1 6 8 13"]
    assert faults("13 - 13 = 0") == ["13 and 13 are not both among 1 6 8 13"]
    assert faults("13 - 1 = 12, left: 12 8 7") == ["left should be 6 8 12"]
    assert faults("13 - 1 = 12, left: (13 - 1) = 12, 6, 6") == ["left should be 6 8 12"]
    assert faults("13 - 1 = 12, left: (6 * 2) = 12, 8, 6") == [
        "the expressions left do not use the four numbers once each"
    ]
    assert faults("6 * (13 - 1 - 8)\n6 * (13 - 1 - 8)") == ["an answer before the last line"]
    assert faults("hello") == ["neither a step nor a roll back nor an answer"]


def test_roll_backs_must_return_to_an_earlier_state_of_the_path():
    first = "13 - 1 = 12, left: 12 8 6\n12 - 8 = 4, left: 4 6\n"
    assert faults(first + "back, left: 12 8 6\nback, left: 13 8 6 1") == []
    assert faults(first + "back, left: 13 8 6 1") == []
    assert faults(first + "back, left: 4 6") == ["rolls back to where it already is"]
    assert faults(first + "back, left: 7 8 6") == [
        "rolls back to numbers that were not on this path"
    ]
    assert faults(first + "back") == ["the numbers left cannot be read"]
    assert faults("back, left: 13 8 6 1\nback, left: 13 8 6 2") == [
        "rolls back to where it already is",
        "rolls back to numbers that were not on this path",
    ]


def test_what_rests_on_a_wrong_line_is_wrong_until_a_roll_back_to_known_numbers():
    text = "13 - 1 = 24, left: 24 8 6\n24 - 8 = 16, left: 16 6\nback, left: 13 8 6 1\n13 - 1 = 12, left: 12 8 6"
    assert [step.is_right for step in graded(text).steps] == [False, False, True, True]


def test_repeating_a_step_from_the_same_numbers_is_a_fault():
    step = "13 - 1 = 12, left: 12 8 6\nback, left: 13 8 6 1\n"
    assert faults(step * 2) == ["repeats an earlier step from the same numbers"]


def test_steps_may_jump_back_only_in_a_text_without_roll_backs():
    jump = "13 - 1 = 12, left: 12, 8, 6\n13 - 8 = 5, left: 5, 6, 1"
    assert faults(jump) == []
    assert len(faults(jump + "\nback, left: 13 8 6 1")) == 1


@pytest.mark.parametrize(
    ("text", "reward"),
    [
        ("reach 24! expression: max(24, 0) # 13 8 6 1", 0.15),
        ("roll back, left: 13 8 6 1\n" * 3, 0.0),
        ("roll back, left: 13 8 6 1\n" * 20, 0.0),
        ("(1) + (1) = 24, left: (13 - 1) = 12, 8, 6", 0.0),
        ("expression: 6 * (13 - 1 - 8)\nroll back, left: 13 8 6 1", 0.0),
        ("reach 24! expression: 6 * 4", 0.15),
        ("reach 24! expression: 1e400 - 13 * 8 * 6", 0.15),
        ("reach 24! expression: 9**9**9**9 + 13 + 8 + 6 + 1", 0.15),
        ("reach 24! expression: " + "(" * 10_000 + "24" + ")" * 10_000, 0.0),
        ("reach 24! expression: \u0666 * (\u0661\u0663 - \u0661 - \u0668)", 0.15),
        ("reach 24! expression: 6 * (13 - 1 - 8)" + " " * 70_000, 0.0),
        ("6 * (13 - 1 - 8)\n" * 100_000, 0.0),
        ("9" * 60_000, 0.0),
        ("13 - 1 = 12, left: " + "1 " * 30_000, 0.0),
        ("24 = 24", 0.15),
        ("13 - 1 = 12\n12 - 8 = 4\n24 / 1 = 24", 0.15 + 0.30 * 2 / 3),
        ("13 * 0 = 24\n24 * 1 = 24", 0.15),
    ],
)
def test_tricks_earn_nothing_beyond_what_is_due(text, reward):
    found = graded(text)
    assert found.verdict is not Verdict.CORRECT
    assert 0.30 * found.process + 0.15 * found.brevity == pytest.approx(reward)


def test_grading_is_bounded_in_time():
    noise = random.Random(0)
    texts = [
        "1\n" * 32_000,
        "(" * 65_000,
        "=" * 65_000,
        "left:" * 13_000,
        "1 + 1 = 2, left: " * 3_500,
    ]
    texts += [
        "".join(noise.choice("0123456789+-*/()= \nleft:,") for _ in range(65_000)) for _ in range(3)
    ]
    start = time.process_time()
    for text in texts:
        graded(text)
    assert time.process_time() - start < 4.0


def test_ten_thousand_random_strings_never_raise_and_are_never_right():
    noise = random.Random(24)
    words = [
        "13",
        "8",
        "6",
        "1",
        "24",
        "+",
        "-",
        "*",
        "/",
        "(",
        ")",
        "=",
        ",",
        "left:",
        "roll",
        "back",
        "reach",
        "24!",
        "expression:",
        "answer:",
        "\n",
        "٤",
        "x",
        "1/2",
        "-5",
        ".",
    ]
    for _ in range(10_000):
        text = " ".join(noise.choices(words, k=noise.randrange(12)))
        assert graded(text, (1, 1, 1, 1)).verdict is not Verdict.CORRECT


@settings(max_examples=300, deadline=None)
@given(st.text())
def test_any_text_gets_a_grade(text):
    found = graded(text)
    assert 0.0 <= found.process <= 1.0
    assert 0.0 <= found.brevity <= 1.0


def rows(name: str) -> list[dict]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not beside the repository")
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_verdict_agrees_with_checked_answers_of_a_large_model():
    for row in rows("game24_outputs.jsonl"):
        hand = tuple(int(card) for card in row["puzzle"].split())
        assert (graded(row["output"], hand).verdict is Verdict.CORRECT) == bool(
            row["checked_reward"]
        ), row


def test_answers_claims_and_first_false_lines_agree_with_checked_searches():
    for row in rows("game24_search_outputs.jsonl"):
        found = graded(row["output"], tuple(row["hand"]))
        assert (found.verdict is Verdict.CORRECT) == row["final_correct"], row
        assert (found.verdict is not Verdict.NO_ANSWER) == row["claims_success"], row
        notes = iter(found.steps)
        told = [next(notes).note if line.strip() else "" for line in row["output"].split("\n")]
        false = [place for place, note in enumerate(told) if note.startswith("false arithmetic")]
        assert (false[0] if false else None) == row["first_wrong_arithmetic_line"], row
