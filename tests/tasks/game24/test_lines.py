import pytest

from whet.tasks.game24.rules import (
    AnswerLine,
    Left,
    RollBackLine,
    StepLine,
    lines_of,
    read_line,
)


@pytest.mark.parametrize(
    "line",
    [
        "13 - 1 = 12, left: 12 8 6",
        "(13) - (1) = 12, left: 12, 8, 6",
        "13-1=12, left: 8 6 12",
        "13 - 1 = 12 (left: 6 8 12)",
    ],
)
def test_a_step_may_be_written_in_every_format(line):
    assert read_line(line) == StepLine(
        (13, 1), "-", (1, 1), (12, 1), Left(((6, 1), (8, 1), (12, 1)), None), True
    )


def test_a_step_without_a_list_has_none():
    assert read_line("6 / 8/3 = 9/4") == StepLine((6, 1), "/", (8, 3), (9, 4), None, False)
    assert read_line("-5 - -2 = -3") == StepLine((-5, 1), "-", (-2, 1), (-3, 1), None, False)


def test_left_items_with_expressions_name_their_cards():
    step = read_line("(13) - (1) = 12, left: (13 - 1) = 12, 8, 6")
    assert isinstance(step, StepLine)
    assert step.left == Left(((6, 1), (8, 1), (12, 1)), (1, 6, 8, 13))


@pytest.mark.parametrize(
    "items",
    ["", " ", "12 8 six", "1 2 3 4 5", "(13 - 1) = 11, 8", "(13 - = 12, 8", "(2 * 6) = 12 8"],
)
def test_a_list_that_cannot_be_read_is_none(items):
    step = read_line(f"13 - 1 = 12, left:{items}")
    assert isinstance(step, StepLine)
    assert step.left is None and step.has_left


def test_roll_backs_come_in_two_words_or_one():
    root = Left(((1, 1), (6, 1), (8, 1), (13, 1)), None)
    assert (
        read_line("roll back, left: 13 8 6 1")
        == read_line("back, left: 13, 8, 6, 1")
        == RollBackLine(root)
    )
    assert read_line("roll back") == RollBackLine(None)


@pytest.mark.parametrize(
    "line",
    [
        "reach 24! expression: (1 + 2 + 3) * 4",
        "expression: (1 + 2 + 3) * 4",
        "ANSWER: (1 + 2 + 3) * 4 = 24",
        "(1 + 2 + 3) * 4",
        "(1 + 2 + 3) * 4 = 24",
    ],
)
def test_an_answer_may_be_written_in_many_ways(line):
    answer = read_line(line)
    assert isinstance(answer, AnswerLine)
    assert answer.expression.value == (24, 1)


@pytest.mark.parametrize(
    "line", ["", "Steps:", "so it is 24", "(6) + (1)", "24", "1 + 2 = x", "1 / 0 = 1/0", "9" * 600]
)
def test_other_lines_are_nothing(line):
    assert read_line(line) is None


def test_printed_signs_are_read_as_plain_ones():
    assert lines_of(
        "  13 \N{MINUS SIGN} 1 = 12 \n\n 6 \N{MULTIPLICATION SIGN} 4 \N{DIVISION SIGN} 1 "
    ) == [
        "13 - 1 = 12",
        "6 * 4 / 1",
    ]
