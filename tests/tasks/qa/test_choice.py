"""Multiple choice: letters in every form, hedges, echoes, and all the golds of the benchmark
files."""

import random
import re
import string

import pytest
from qa_rows import DATA, choices, fuzz, needs_data, problem, read

from whet.errors import DataError
from whet.tasks.qa.choice import Choice, options_of
from whet.types import Verdict

OPTIONS = {"A": "12 km", "B": "15 km", "C": "A train", "D": "None of these"}
TASK = Choice()
FILES = {
    "aqua": 254,
    "mmlu_stem": 499,
    "sat_math": 32,
    "gaokao_math_qa": 351,
    "bbh_logic": 386,
    "gaokao2024_mix": 55,
    "cn_middle_school": 41,
}


def _verdict(answer: str, text: str) -> str:
    return TASK.score(problem("choice", answer, options=OPTIONS), text).verdict.value


@pytest.mark.parametrize(
    "text",
    [
        "B",
        "(B)",
        "b",
        "Ｂ",
        "**B**",
        "B.",
        "B) 15 km",
        "B (15 km)",
        "15 km",
        "B。不是 A",
        "B不是 A",
        "B. it can't be A or C",
        "\nAnswer: B",
        "答案: B",
        "故选：B",
        "The answer is (B), not (A).",
        "The correct answer is option B because A is too short.",
        "The answer to the question is **B**",
        "The answer is 15 km.",
        "Final answer:\n\nB) 15 km",
        "so option B is correct.",
        "The path is 15 km long. B.",
        "So 9 + 6 it is, option B.",
        "9 + 6 = 15 → **(B) 15 km**",
        "Nine and six is fifteen: B",
        "\\boxed{B}\n\nOptions A, C and D are all ruled out by their length.",
        "\\boxed{B}\n\n(A) fails as it is too short.",
        "\\boxed{B}\n\nA and C confuse lengths and trains.",
        "(B) is the right choice since A is wrong",
        "I will go with B",
        "Let us see. The answer is found by adding. Therefore B.",
        "The answer is A. No wait, B is the answer.",
        "The answer is B. While A is correct in stating that, it fails.",
        "**Answer:** B\n\nExplanation: B is a good one, A is short",
        "Ans: B",
        "#### B",
        "[[B]]",
        "选B",
        "选项B正确",
        '{"answer": "B"}',
        "The answer is 'B'.",
        r"The final answer is $\boxed{B}$. I hope it is correct.",
        r"\boxed{B}",
        r"$\boxed{\text{(B)}}$",
        r"\boxed{\textbf{(B)}\ 15\text{ km}}",
        r"\boxed{A}, no: \boxed{B}",
        r"\boxed{A}. Wait, the answer is B.",
        "The answer is A. No, the answer is B.",
        "<answer>b</answer>",
        "<think>the answer is A</think>B",
    ],
)
def test_a_letter_counts_in_every_usual_form(text: str) -> None:
    assert _verdict("B", text) == "correct"
    assert _verdict("A", text) == "wrong"


@pytest.mark.parametrize(
    "text",
    [
        "A or B",
        "A/B",
        "A, B",
        "The answer is A and B.",
        "The answer is either A or B.",
        "A (or B)",
        r"\boxed{A, B}",
        r"\boxed{AB}",
        "Answer: A, B, C or D",
        "The answer is (A) 15 km",
        "\\boxed{B}\n\nA and C are correct.",
        r"\boxed{E}",
        r"\boxed{42}",
        "<answer></answer>",
    ],
)
def test_hedges_contradictions_and_other_things_are_wrong(text: str) -> None:
    for letter in OPTIONS:
        assert _verdict(letter, text) == "wrong"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "It depends.",
        "The answer is not A.",
        "My answer: A is not it",
        "The answer is a bit unclear",
        "If A is correct then we would have a train.",
        "A is wrong",
        "The options are A. B. C.",
        "It is rich in vitamin A.",
        "The first is A; the second is B.",
        "Is it 12 or 15? Perhaps: A?",
        "<think>the answer is A",
        r"\boxed{A} or rather \boxed{",
        "<answer>A",
        "<answer>A</answer> or rather <answer>",
        "A" * 5_000_000,
    ],
)
def test_what_commits_to_nothing_is_no_answer(text: str) -> None:
    for letter in OPTIONS:
        assert _verdict(letter, text) == "no_answer"


@pytest.mark.parametrize("mark", ["{}) {}", "({}) {}", "{}. {}", "{}: {}"])
@pytest.mark.parametrize("joint", ["\n", " ", "\n\n"])
def test_a_list_of_the_options_answers_nothing(mark: str, joint: str) -> None:
    echo = joint.join(mark.format(letter, text) for letter, text in OPTIONS.items())
    for letter in OPTIONS:
        assert _verdict(letter, echo) != "correct"
        assert _verdict(letter, f"Which one?\n{echo}") != "correct"


def test_several_letters_are_right_together_only() -> None:
    assert _verdict("A C", "A and C") == "correct"
    assert _verdict("AC", r"\boxed{A, C}") == "correct"
    assert _verdict("AC", r"\boxed{AC}") == "correct"
    assert _verdict("AC", "A or C") == "wrong"
    assert _verdict("AC", "A") == "wrong"
    assert _verdict("AC", "A, B, C") == "wrong"


def test_options_written_alike_are_told_apart_by_letter_alone() -> None:
    twins = problem("choice", "C", options={"A": "8.75", "B": "8.79", "C": "8.75"})

    assert TASK.score(twins, "The answer is 8.75").verdict == Verdict.CORRECT
    assert TASK.score(twins, "The answer is A. 8.75").verdict == Verdict.WRONG


def test_options_differ_by_case_and_sign() -> None:
    genes = problem("choice", "C", options=["BB BB", "BB Bb", "Bb Bb", "Bb bb"])
    signs = problem("choice", "B", options=["2", "-2"])

    assert TASK.score(genes, r"\boxed{Bb Bb}").verdict == Verdict.CORRECT
    assert TASK.score(genes, r"\boxed{BB Bb}").verdict == Verdict.WRONG
    assert TASK.score(signs, "B) -2").verdict == Verdict.CORRECT
    assert TASK.score(signs, "B - 2").verdict == Verdict.CORRECT


def _first_letter_of_the_alphabet(box: str) -> str | None:
    """The original rule of Reasoning360: the first of A to J that is anywhere in the box, else a
    random one."""
    return next((letter for letter in "ABCDEFGHIJ" if letter in box), None)


def test_the_letter_is_read_where_the_original_rule_takes_one_from_a_word() -> None:
    box = "(C) Because"

    assert _first_letter_of_the_alphabet(box) == "B"
    assert _verdict("C", f"\\boxed{{{box}}}") == "correct"
    assert _verdict("B", f"\\boxed{{{box}}}") == "wrong"


def test_an_unreadable_answer_gets_the_same_verdict_every_time_where_the_original_draws_a_letter() -> (
    None
):
    drawn = {random.Random(seed).choice(string.ascii_uppercase[:4]) for seed in range(20)}

    assert len(drawn) > 1
    assert {_verdict("A", "hard to say") for _ in range(20)} == {"no_answer"}


def test_random_text_never_raises_and_is_never_right() -> None:
    right = problem("choice", "D", options=OPTIONS)
    for text in fuzz(1, 3000, ["A", "B", "C", "E", "12", "km", "zebra"]):
        assert TASK.score(right, text).verdict != Verdict.CORRECT, text


def test_a_problem_needs_a_letter_of_its_options() -> None:
    with pytest.raises(DataError, match="needs a letter of its options as the answer, not 'E'"):
        TASK.score(problem("choice", "E", options=OPTIONS), "A")
    with pytest.raises(DataError, match="needs options by letter"):
        options_of(problem("choice", "A", options={"first": "1"}))


def test_gold_is_right_and_there_are_no_problems_of_its_own() -> None:
    gold = problem("choice", "B", options=OPTIONS)

    assert TASK.score(gold, TASK.solve(gold, 0) or "").verdict == Verdict.CORRECT
    assert TASK.solve(problem("choice", None), 0) is None
    assert list(TASK.problems("test")) == []


@needs_data
@pytest.mark.parametrize("name", FILES)
def test_every_gold_of_a_file_is_right_and_the_next_rows_is_not(name: str) -> None:
    rows = choices(name)
    assert len(rows) == FILES[name]
    for this, following in zip(rows, [*rows[1:], rows[0]], strict=True):
        answer = this.answer or ""
        letter, options = answer.strip("()"), options_of(this)
        texts = [
            answer,
            TASK.solve(this, 0) or "",
            f"Answer: {answer}",
            f"The answer is ({letter}).",
        ]
        if options.get(letter):
            texts += [f"The answer is {letter}. {options[letter]}", f"{letter}) {options[letter]}"]
        for text in texts:
            assert TASK.score(this, text).verdict == Verdict.CORRECT, (this, text)
        if following.answer != answer:
            assert TASK.score(this, f"Answer: {following.answer}").verdict == Verdict.WRONG
        echo = "\n".join(f"{key}) {text}" for key, text in options.items())
        assert TASK.score(this, echo).verdict != Verdict.CORRECT


@needs_data
def test_the_choice_cases_of_other_graders_agree() -> None:
    assert DATA.exists()
    for row in read("equivalence"):
        if row["category"] == "choice":
            golds = re.findall(r"\(([A-Z])\)|^([A-Z])\b|\n([A-Z])\b", str(row["gold"]))
            gold = problem("choice", "".join(golds[-1]))
            is_right = TASK.score(gold, str(row["prediction"])).verdict == Verdict.CORRECT
            assert is_right == row["expected_equal"], row
