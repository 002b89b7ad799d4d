"""Yes or no: the last commitment, the first word without one, and all of StrategyQA."""

import pytest
from qa_rows import fuzz, needs_data, problem, read

from whet.errors import DataError
from whet.tasks.qa.yes_no import YesNo
from whet.types import Verdict

TASK = YesNo()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yes", "yes"),
        ("Yes, because whales breathe air.", "yes"),
        ("No, it would not.\nThey eat grass.", "no"),
        ("Yes it looks so.\nBut in fact:\nNo", "no"),
        ("So the answer is no.", "no"),
        ("Therefore, the answer is: **Yes**", "yes"),
        ("No way at first. Answer: Yes", "yes"),
        (r"\boxed{\text{True}}", "yes"),
        ("<answer>False</answer>", "no"),
        ("<think>yes</think>No.", "no"),
        ("Thus, no.", "no"),
        ("The two are a mile apart. Yes, they are near each other.", "yes"),
        ("91 = 7 × 13. So no, it is not prime.", "no"),
        ("91 = 7 × 13, therefore not prime.\n\nSo **no**, it is not prime.", "no"),
        ("0-1-2-0 closes up. Is there a cycle? Yes. Vertex 3 has no part in it.", "yes"),
        ("Can it be done? No — there are three odd vertices.", "no"),
        ("Yes. Hmm, a knight in a corner has only two moves, so it gets stuck. No.", "no"),
        ("Answer: No. Hmm, the corner is fine, it has two moves. Yes.", "yes"),
        ("Yes. Does it need a bridge? No. It stays whole.", "yes"),
        ("yes/no", "neither"),
        ("Yes and no.", "neither"),
        ("Answer: yes or no", "neither"),
        (r"\boxed{maybe}", "neither"),
    ],
)
def test_the_last_commitment_counts_and_both_are_wrong(text: str, said: str) -> None:
    for gold in ("yes", "no"):
        expected = Verdict.CORRECT if gold == said else Verdict.WRONG
        assert TASK.score(problem("yes_no", gold), text).verdict == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It depends.",
        "No one knows.",
        "It is true that birds fly",
        "<think>yes",
        "The answer is not yes",
        "Is 97 a multiple of 7? Yes, 97 = 7 × 13 + 6. So 97 is not prime.",
        "Is it divisible by 7? No. But by 13 it is.",
        "Some people say yes, it floats.",
        "They may say so. No animal can.",
    ],
)
def test_what_says_neither_is_no_answer(text: str) -> None:
    for gold in ("yes", "no"):
        assert TASK.score(problem("yes_no", gold), text).verdict == Verdict.NO_ANSWER


def test_random_text_never_raises_and_is_never_right() -> None:
    for text in fuzz(2, 3000, ["nope", "yesterday", "noes", "truely", "7", "falsehood"]):
        assert TASK.score(problem("yes_no", "yes"), text).verdict != Verdict.CORRECT, text
        assert TASK.score(problem("yes_no", "no"), text).verdict != Verdict.CORRECT, text


def test_a_problem_needs_yes_or_no() -> None:
    with pytest.raises(DataError, match="needs yes or no as the answer, not 'maybe'"):
        TASK.score(problem("yes_no", "maybe"), "yes")


@needs_data
@pytest.mark.parametrize(
    ("name", "count"), [("strategyqa_train", 500), ("strategyqa_dev", 229), ("bbh_logic", 114)]
)
def test_every_gold_of_a_file_is_right_and_the_other_word_is_not(name: str, count: int) -> None:
    rows = read(name)
    golds = [
        row["target"] if name == "bbh_logic" else "yes" if row["answer"] else "no" for row in rows
    ]
    words = [str(gold) for gold in golds if not str(gold).startswith("(")]
    assert len(words) == count
    for word in words:
        gold = problem("yes_no", word)
        other = "no" if word.lower() == "yes" else "yes"
        for text in (word, TASK.solve(gold, 0) or "", f"{word}.", f"So the answer is {word}."):
            assert TASK.score(gold, text).verdict == Verdict.CORRECT
            assert TASK.score(problem("yes_no", other), text).verdict == Verdict.WRONG


def test_there_are_no_problems_of_its_own() -> None:
    assert list(TASK.problems("rl")) == []
    assert TASK.solve(problem("yes_no", None), 0) is None
