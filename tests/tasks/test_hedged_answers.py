"""Answers that say two things at once, or take back what they said, are not right."""

import pytest

from whet.tasks.graphs.node_lists import (
    final_part,
    find_other_choice,
    read_final_list,
    read_names,
    read_two,
)
from whet.tasks.graphs.numbered_readers import read_assignments, read_final_number, read_yes_no
from whet.tasks.qa.choice import pick
from whet.tasks.qa.table_values import text_form
from whet.tasks.qa.yes_no import read_word

NAMES = ["Ida Vogel", "Omar Khan", "Mila Roux"]
OPTIONS = {"A": "4", "B": "5", "C": "6", "D": "7"}


@pytest.mark.parametrize(
    "between", [" or ", ", ", "; no, ", " / ", " (or maybe ", " and also ", "\n", ". Wait, no: "]
)
def test_of_lists_joined_to_the_answer_the_last_counts(between: str) -> None:
    reply = read_names(f"The answer is: [Ida Vogel]{between}[Omar Khan]", NAMES)
    numbers = read_final_list(f"Answer: [0, 1]{between}[1, 0]")
    two = read_two(f"Answer: [0, 1], [2, 3]{between}[4, 5], [6, 7]")

    assert reply is not None and reply.lists == ((1,),)
    assert numbers is not None and numbers.lists == ((1, 0),)
    assert two is not None and two.lists == ((4, 5), (6, 7))


@pytest.mark.parametrize(
    "text",
    [
        "The answer is: [Ida Vogel] or [Nobody Known]",
        "The answer is: [Ida Vogel], []",
        "The answer is: [Ida Vogel]\n\nNo.\n\nThe answer is: [Nobody Known]",
        "<answer>[Ida Vogel] or []</answer>",
        "#### [Ida Vogel] and also [Nobody Known]",
    ],
)
def test_an_answer_taken_back_for_strangers_is_taken_back(text: str) -> None:
    reply = read_names(text, NAMES)

    assert reply is not None and reply.lists == ((),)


@pytest.mark.parametrize(
    "text",
    [
        "The answer is: [Ida Vogel], see [1].",
        "Answer: [Ida Vogel]. The form: [A, ...]",
        "[Ida Vogel] [1]",
    ],
)
def test_remarks_in_brackets_take_nothing_back(text: str) -> None:
    reply = read_names(text, NAMES)

    assert reply is not None and reply.lists == ((0,),)


def test_control_signs_between_numbers_are_read_as_spaces() -> None:
    reply = read_final_list("Answer: [1,\x1e0, 2]")

    assert reply is not None and reply.lists == ((1, 0, 2),)


@pytest.mark.parametrize(
    "text",
    [
        "### No (or maybe Yes)",
        "### No Yes",
        "### not Yes",
        "The answer is Yes. or No",
        "Answer: Yes, there is a cycle. / No, there is no cycle.",
        "\\boxed{No\nYes}",
    ],
)
def test_a_yes_and_a_no_are_neither(text: str) -> None:
    assert read_yes_no(text) is None


def test_a_no_inside_a_sentence_is_no_answer() -> None:
    assert read_yes_no("### Yes, since no node is left over") == "yes"
    assert read_yes_no("The answer is No, there is no cycle.") == "no"


@pytest.mark.parametrize(
    "text",
    [
        "no (or maybe yes)",
        "no; no, yes",
        "yes? no?",
        "Yes if it rains, no otherwise",
        "No. Actually yes.",
    ],
)
def test_yes_and_no_together_are_both(text: str) -> None:
    assert read_word(text, must_be_whole=False) == "both"


@pytest.mark.parametrize(
    "text", ["Yes, no one doubts it.", "Yes. No animal breathes rock.", "Yes, true"]
)
def test_the_no_of_a_reason_leaves_the_yes_alone(text: str) -> None:
    assert read_word(text, must_be_whole=False) == "yes"


@pytest.mark.parametrize(
    "text", ["B; no, D", "B\nA", "B. Actually D", "B, or rather (D)", "B if x > 0 and C otherwise"]
)
def test_a_letter_taken_back_is_a_hedge(text: str) -> None:
    picked = pick(text, OPTIONS, must_be_whole=False)

    assert picked is not None and picked.is_hedged


@pytest.mark.parametrize(
    "text", ["B, not D", "B. It can't be A or C", "B because A is wrong", "C. No, A train is"]
)
def test_other_letters_in_a_reason_are_no_hedge(text: str) -> None:
    picked = pick(text, OPTIONS, must_be_whole=False)

    assert picked is not None and not picked.is_hedged and len(picked.letters) == 1


@pytest.mark.parametrize("text", [">42", "< 42", "!42", "4{2}", "4'2", "4_2"])
def test_comparisons_and_parted_digits_are_not_the_number(text: str) -> None:
    assert text_form(text) != text_form("42")


@pytest.mark.parametrize(
    ("text", "is_read"),
    [
        ("Not sure at first.\n\n[0, 1]", True),
        ("At least one of the items of [0, 1] is part of the answer.", False),
        ("Wrong answers include [0] and [0, 1]", False),
        ("A classmate claims that the answer is [0, 1]. I give no answer of my own.", False),
    ],
)
def test_lists_that_are_disowned_are_not_read(text: str, is_read: bool) -> None:
    assert bool(final_part(text)) is is_read


@pytest.mark.parametrize(
    ("text", "other"),
    [
        ("[0, 1] or [1, 2]", ""),
        ("### [0, 1, 2] or maybe [0, 2, 2]", ""),
        ("Both hold: [0, 1] or [1, 2]", "Both hold: [0, 1]"),
        ("It can be [0, 1] or [1, 2]", "It can be [0, 1]"),
        ("Either [0, 1] or [1, 2] may work.\n\n[0, 1]", None),
    ],
)
def test_of_lists_with_or_between_them_none_counts_unless_both_are_said_to_hold(
    text: str, other: str | None
) -> None:
    assert find_other_choice(text) == other


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("No idea.", None),
        ("### No answer", None),
        ("### No doubt about it: there is one, Yes", "yes"),
        ("Node 6 has no edge, so there cannot be such a path. No.", "no"),
        ("It has one. Yes. Or not. No.", None),
        ("No cycle exists.", "no"),
    ],
)
def test_no_with_a_word_of_evasion_is_no_answer(text: str, word: str | None) -> None:
    assert read_yes_no(text) == word


def test_a_number_below_a_heading_is_read() -> None:
    assert read_final_number("## Final Answer\n\n15") == 15


def test_two_jobs_for_one_applicant_are_no_assignment() -> None:
    assert read_assignments("applicant 0: job 3\napplicant 1: job 1") == [(0, 3), (1, 1)]
    assert read_assignments("applicant 0: job 3 or 1\napplicant 1: job 1") == []
