import time

import pytest

from whet.tasks.graphs.node_lists import (
    MAX_CHARS,
    final_part,
    read_final_list,
    read_names,
    read_two,
)

NAMES = [
    "Ida Vogel",
    "Omar Khan",
    "Manfred Schauß",
    "Manfred Schauss",
    "Paris, Texas",
    "Foo [bar]",
    "O'Higgins Region",
]


def nodes(text, names=NAMES):
    reply = read_names(text, names)
    return reply and reply.lists[0]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[Ida Vogel, Omar Khan]", (0, 1)),
        ("[ Ida  Vogel ,Omar Khan ]", (0, 1)),
        ("['Ida Vogel', \"Omar Khan\"]", (0, 1)),
        ("**[ida vogel, OMAR KHAN]**.", (0, 1)),
        ("[Manfred Schauß, Manfred Schauss]", (2, 3)),
        ("[Manfred schauß, manfred schauss]", (2, 3)),
        ("[Paris, Texas, Ida Vogel]", (4, 0)),
        ("[Ida Vogel, Paris, Texas]", (0, 4)),
        ("[Foo [bar], Ida Vogel]", (5, 0)),
        ("[O'Higgins Region, Omar Khan]", (6, 1)),
        ("[[Ida Vogel, Omar Khan]]", (0, 1)),
        ("[Ida Vogel -> Omar Khan → Ida Vogel]", (0, 1, 0)),
        (r"\boxed{[Ida Vogel, Omar Khan]}", (0, 1)),
        (r"\boxed{\text{Ida Vogel}, \text{Omar Khan}}", (0, 1)),
        (r"\[ \left[ Ida Vogel, Omar Khan \right] \]", (0, 1)),
        (r"\[Ida Vogel, Omar Khan\]", (0, 1)),
        ("<answer>[Ida Vogel]</answer> [Omar Khan]", (0,)),
        ("<answer>Ida Vogel, Omar Khan</answer>", (0, 1)),
        ("[Ida Vogel, Omar Khan]\n\nBy the way, a longer path is [Omar Khan]", (0, 1)),
    ],
)
def test_a_list_is_read_however_it_is_dressed(text, expected):
    assert nodes(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "First I try [Omar Khan], then [Manfred Schauß]. So it is [Ida Vogel].",
        "The format is to be [UserA, UserB, ...].\n\nThe answer is: [Ida Vogel]\nIts friends are [Omar Khan].",
        "The answer is [Omar Khan] or [Ida Vogel].",
        "Answer: [Omar Khan]\nNo, that is wrong.\nFinal answer: [Ida Vogel]",
        r"\boxed{Omar Khan} was wrong. \boxed{Ida Vogel} and so not [Omar Khan]",
        "So [Ida Vogel] is the largest [see above], as required [1].",
        "It has the value \\boxed{1}: [Ida Vogel]",
        "an open [ bracket before [Ida Vogel]",
    ],
)
def test_the_final_list_counts_and_lists_in_the_reasoning_do_not(text):
    assert nodes(text) == (0,)


def test_a_command_inside_a_name_spoils_it_and_braces_around_the_list_do_not():
    assert read_names(r"[I\text{d}a Vogel]", NAMES).unknown == (r"I\text{d}a Vogel",)
    assert nodes(r"\boxed{\{\text{Ida Vogel}, \text{Omar Khan}\}}") == (0, 1)


def test_names_that_are_no_node_are_kept_apart():
    reply = read_names("[Ida Vogel, Nobody Else, ...]", NAMES)

    assert reply.lists == ((0,),)
    assert reply.unknown == ("Nobody Else", "...")


def test_a_final_list_of_strangers_is_the_answer_all_the_same():
    reply = read_names(
        "Perhaps [Ida Vogel]. The group is [Max Mustermann, Erika Mustermann].", NAMES
    )

    assert reply.lists == ((),)
    assert read_names("[Max Mustermann]", NAMES).unknown == ("Max Mustermann",)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Ida Vogel met Omar Khan",
        "[Ida Vogel, Omar",
        "Ida]",
        r"\[ x \]",
        r"\boxed{7",
        r"\boxed{7}",
    ],
)
def test_without_a_list_nothing_is_read(text):
    assert read_names(text, NAMES) is None
    assert read_final_list(text) is None
    assert read_two(text) is None


def test_an_empty_list_is_read_as_empty():
    assert nodes("[]") == ()


def test_reasoning_in_a_think_block_is_left_out_closed_or_not():
    assert final_part("<think>[A]</think> [B]") == " [B]"
    assert final_part("[A]</think>") == ""
    assert final_part("<think>\n[A, B]") == ""
    assert final_part("[A] <think> [B]") == ""


def test_the_question_said_again_is_left_out():
    assert final_part("Say [A]. [B]", "Say [A].").strip() == "[B]"


def test_only_the_end_of_a_long_text_is_read():
    assert len(final_part("x" * 10**6)) == MAX_CHARS


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[2, 1, 0, 3]", (2, 1, 0, 3)),
        ("[0, 1, 3, 2]\n\nAtom 0 (N) maps to atom 0 (O), see [note]", (0, 1, 3, 2)),
        ("The distance is \\boxed{2}, by [1, 0]", (1, 0)),
        (r"\boxed{1, 0, 2}", (1, 0, 2)),
        ("Answer: [1, 0]. Its cost is [2].\n [0, 1] costs more.", (1, 0)),
        ("The answer is [2, 1, 0] or [1, 0, 2], of cost [3]", (1, 0, 2)),
        ("Answer: [1, 0].\nThe pairing [0, 1] costs more.", (1, 0)),
        ("[Molecule A: N (atom 0)]\nmapping: [1, 1]", (1, 1)),
        ("[0]", (0,)),
        (r"so \[1, 0\]", (1, 0)),
        (r"$$[1,\; 0,\, 2]$$", (1, 0, 2)),
    ],
)
def test_the_final_list_of_numbers_is_read(text, expected):
    assert read_final_list(text).lists == (expected,)


@pytest.mark.parametrize("text", ["[1, x]", "[" + "9" * 5000 + "]", "[1 2]", "[1, 0, 2, ...]"])
def test_other_lists_are_no_lists_of_numbers(text):
    assert read_final_list(text) is None


@pytest.mark.parametrize("number", ["-1", "1.5", "−2", "+3"])
def test_a_last_list_with_numbers_of_no_node_is_the_answer_all_the_same(number):
    assert read_final_list(f"Not all rules kept: [1, 0]. As it stands: [2, {number}]").unknown == (
        number,
    )


@pytest.mark.parametrize(
    "text",
    [
        "[0, 1], [2, 3]",
        "[9], [8]. Therefore atoms [0, 1] of A and atoms [2, 3] of B.",
        "[[0, 1], [2, 3]]",
        r"\boxed{[0, 1], [2, 3]} and then [5], [6]",
        "Answer: [0, 1], [2, 3]\n\nBoth are bonded: [7], [8]",
        "The answer is:\n[0, 1],\n[2, 3]",
    ],
)
def test_the_final_two_lists_of_numbers_are_read(text):
    assert read_two(text).lists == ((0, 1), (2, 3))


def test_one_list_is_not_two():
    assert read_two("[0, 1, 2]") is None


@pytest.mark.parametrize(
    "text",
    [
        "[" * 200_000,
        "[" * 30_000 + "]" * 30_000,
        "answer[" * 20_000 + "]" * 20_000,
        "answer: [Ida Vogel, Omar Khan]\n" * 5_000,
        "[" + "Ida Vogel, " * 20_000 + "]",
        "[" + "1, " * 50_000 + "1]",
        "\\boxed{" * 30_000,
        "\\boxed{" + "{" * 100_000,
        "[" + " " * 60_000 + "1]",
        "answer " + " " * 60_000 + "[",
        "<answer>" * 20_000,
    ],
)
def test_hostile_texts_take_no_time(text):
    begun = time.process_time()
    part = final_part(text)
    read_names(part, NAMES), read_final_list(part), read_two(part)

    assert time.process_time() - begun < 2.0
