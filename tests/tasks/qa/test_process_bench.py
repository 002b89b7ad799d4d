"""ProcessBench: the index of the first wrong step is read from a box, and nothing else is it."""

import pytest
from qa_rows import problem

from whet.errors import DataError
from whet.tasks.qa.process_bench import ProcessBench
from whet.types import Verdict

TASK = ProcessBench()


@pytest.mark.parametrize(
    ("text", "index"),
    [
        (r"\boxed{2}", 2),
        (r"The error is in paragraph 2. \boxed{\text{paragraph 2}}", 2),
        (r"\boxed{<paragraph_2>}", 2),
        (r"Not \boxed{1}. It is \boxed{2}.", 2),
        (r"All paragraphs are right: \boxed{-1}", -1),
        ("-1, as the only paragraph, number 0, is right.", -1),
        ("So -1, because every step follows from the one before.", -1),
        ("2, since 3 + 4 is not 8.", 2),
        ("The sum is off.\n\n3 — since the sign is lost.", 3),
        ("The answer is 3.", 3),
        ("The first error is in paragraph 3, where the sign is lost.", 3),
        ("Paragraph 2 is the first wrong one.", 2),
        (r"<think>\boxed{0}</think>The first error is \boxed{3}.", 3),
    ],
)
def test_the_last_box_names_the_step(text: str, index: int) -> None:
    for gold in (-1, 0, 2, 3):
        expected = Verdict.CORRECT if gold == index else Verdict.WRONG
        assert TASK.score(problem("process_bench", str(gold)), text).verdict is expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\\boxed{",
        "<think>\\boxed{2}",
        "\\boxed{}",
        "\\boxed{0, 1, 2, 3}",
        "\\boxed{2 or 3}",
        "\\boxed{" + "2" * 100_000 + "}",
        "2" * 300_000,
        "\\boxed{٢}",
        "\\boxed{-2}",
        "2, since I have to pick one, or 3",
        "2, as some would say, but it is 3",
        "3, as 2 is right",
        "If the first error is in paragraph 2, then 3 follows from it.",
        "Paragraph 2 is not the first wrong one.",
        "It could be that paragraph 2 is the first wrong one.",
        "\\boxed{2.5}",
        '{"correct": 1.0}',
        "Find the first paragraph with an error and end with its index in \\boxed{}.",
        "<paragraph_2>\nSo it is 4.\n</paragraph_2>",
    ],
)
def test_what_names_no_step_is_not_right(text: str) -> None:
    assert TASK.score(problem("process_bench", "2"), text).verdict is not Verdict.CORRECT


def test_a_reference_that_is_no_index_is_refused() -> None:
    with pytest.raises(DataError, match="index of a step"):
        TASK.score(problem("process_bench", "the second"), "\\boxed{2}")
