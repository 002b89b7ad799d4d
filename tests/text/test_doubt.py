"""Words that keep a line from stating an answer."""

import pytest

from whet.text.final_answer import is_doubtful


@pytest.mark.parametrize(
    "line",
    [
        "The total is not 5.",
        "The total is 4 or 5.",
        "The total is 4. Wait, 5.",
        "The total is 4, or rather 5.",
        "It may be 5.",
        "The total is about 5.",
        "The total is at least 5.",
        "The reference answer is 5.",
        "It isn't 5.",
        "It isn’t 5.",
        "Is it 5?",
        "x ≈ 5",
    ],
)
def test_a_line_with_a_word_of_doubt_is_doubtful(line: str) -> None:
    assert is_doubtful(line)


@pytest.mark.parametrize(
    "line",
    ["The month is May.", "The order is 5.", "So the letters are **nda**.", "There is no 5."],
)
def test_other_lines_are_not(line: str) -> None:
    assert not is_doubtful(line)
