"""The two layouts of RL-Tango, by their published deductions."""

import pytest

from whet.text.steps import rate_solution, rate_verification, split_blocks

STEPS = "<step>a</step>\n<step>b</step>\n<step>c</step>"
BOX = r"<answer>\boxed{4}</answer>"


@pytest.mark.parametrize(
    ("text", "score"),
    [
        (f"<think>{STEPS}</think>{BOX}", 1.0),
        (f"<think>{STEPS}</think>", 0.0),
        (f"{STEPS}<answer>4</answer>", 0.2),
        (rf"{STEPS}<answer>\boxed{{4}} \boxed{{5}}</answer>", 0.2),
        (f"<step>a</step>{BOX}", 0.6),
        (BOX, 0.2),
        ("<answer>4</answer>", 0.0),
        ("<answer>4", 0.0),
        ("", 0.0),
    ],
)
def test_a_solution_loses_eight_tenths_for_a_large_fault_and_four_for_few_steps(
    text: str, score: float
) -> None:
    assert rate_solution(text) == pytest.approx(score)


def _verification(steps: str, final: str = r"\boxed{CORRECT}") -> str:
    return f"<step_verification>{steps}</step_verification>\n<final_verification>{final}</final_verification>"


JUDGED = r"<step>fine \boxed{CORRECT}</step> <step>no \box{incorrect}.</step>"


@pytest.mark.parametrize(
    ("text", "num_steps", "score"),
    [
        (_verification(JUDGED), 2, 1.0),
        (_verification(JUDGED), None, 1.0),
        (_verification(JUDGED), 3, 0.2),
        (_verification(JUDGED, "CORRECT"), 2, 0.2),
        (_verification("so " + JUDGED), 2, 0.6),
        (_verification(""), None, 0.2),
        (_verification("<step>hm</step>"), None, 1.0),
        (_verification("<step>hm</step>"), 1, 0.2),
        (JUDGED, 2, 0.0),
        ("x" + _verification(JUDGED), 2, 0.0),
        (_verification(JUDGED).replace("\n", "and"), 2, 0.0),
        ("", 0, 0.0),
    ],
)
def test_a_verification_loses_by_the_same_measure(
    text: str, num_steps: int | None, score: float
) -> None:
    assert rate_verification(text, num_steps) == pytest.approx(score)


def test_an_unclosed_block_stays_outside() -> None:
    assert split_blocks("<b>1</b>x<b>2", "<b>", "</b>") == (["1"], "x<b>2")
