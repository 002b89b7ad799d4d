"""Answers that are denied, attributed, offered for choice or taken back, in any form."""

import time

import pytest

from whet.answers.final_answer import decided_text
from whet.answers.withdrawal import find_replacement, is_disowned

FORMS = ["<answer>3</answer>", "\\boxed{3}", "Answer: 3", "```json\n3\n```", "[A, B]", "3"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "lead",
    [
        "Anyone who answers the following is wrong:",
        "My answer is anything other than this:",
        "A student once answered:",
        "Do not answer this:",
        "I do not believe the following is right:",
        "Pick whichever of these you like:",
        "One of these two is right:",
        "My neighbour thinks that it is",
        "It is false that:",
        "Nobody should answer",
        "The book claims:",
        "This is not my answer:",
        "What follows is incorrect:",
        "The opposite of",
        "Answer ≠",
    ],
)
def test_an_answer_that_its_introduction_disowns_is_none(lead: str, form: str) -> None:
    assert decided_text(f"{lead}\n{form}") is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "sentence",
    [
        "Actually, that is wrong: it is not so.",
        "I was wrong about this, though.",
        "On checking, this does not work after all.",
        "I no longer believe this, and I have nothing better.",
        "On reflection this violates a condition, so discard it. I have no answer.",
        "I retract this answer; I no longer think it is correct.",
        "I take it all back.",
        "But I doubt it.",
        "The above answer cannot be trusted.",
        "I am not confident in this at all.",
        "I changed my mind; there is no answer.",
        "I leave it to the reader which of the two holds.",
        "That student was mistaken.",
    ],
)
def test_an_answer_that_is_taken_back_is_none(sentence: str, form: str) -> None:
    assert decided_text(f"{form}\n\n{sentence}") is None


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "text",
    [
        "{}\n\nI checked it twice.",
        "A student may think otherwise, but it is this:\n{}",
        "That is wrong. Let me redo it.\n{}",
        "{}\n\nThis is the only one that works.",
        "I was wrong at first. The correct one:\n\n{}",
        "The number of days that do not count is\n{}",
        "We cannot take more than two, so it is\n{}",
        "{}\n\nIt cannot be any larger.",
        "{}\n\nThis does not depend on the order.",
        "The clue says:\n{}",
    ],
)
def test_an_answer_stands_beside_other_sentences(text: str, form: str) -> None:
    shown = text.replace("{}", form)

    assert decided_text(shown) == shown


def test_what_replaces_an_answer_is_all_that_is_left() -> None:
    decided = decided_text("<answer>abc</answer>\nOops, wrong. It should be abd.")

    assert decided is not None and decided.strip() == ". It should be abd."


def test_an_edit_takes_a_list_back() -> None:
    shown = decided_text("[A, B]\n\nEDIT: B must be removed. The group is the other one.")
    assert shown is None or "[A, B]" not in shown


def test_an_answer_struck_out_over_lines_is_blank() -> None:
    assert (decided_text("~~```json\n3\n```~~") or "").strip() == ""
    assert decided_text("~~~python\nx\n~~~") == "~~~python\nx\n~~~"


def test_long_texts_are_read_in_bounded_time() -> None:
    for text in ("it is not " * 50_000, "I do not " * 50_000, "a student said " * 50_000):
        start = time.process_time()
        find_replacement(text)
        is_disowned(text[:240])
        assert time.process_time() - start < 0.2
