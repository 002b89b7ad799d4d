"""Where answers stand in a response, each with its span, in linear time."""

import time

import pytest

from whet.answers.doubt import is_denied, is_doubtful
from whet.answers.final_answer import (
    MAX_CHARS,
    MAX_NESTED_BOXES,
    Span,
    decided_text,
    find_boxes,
    find_tags,
    find_thought_end,
    has_open_box,
    has_open_tag,
    last_box,
    visible_text,
)
from whet.answers.sentences import (
    find_formulas,
    find_marks,
    find_numbers,
    find_only_number,
    first_sentence,
    last_line,
    text_after_verb,
)
from whet.tasks.answers import after_heading


def texts(spans: list[Span]) -> list[str]:
    return [span.text for span in spans]


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        (r"so \boxed{4}.", ["4"]),
        (r"\boxed{\frac{1}{2}} and \fbox{3}", [r"\frac{1}{2}", "3"]),
        (r"\boxed{\{1, 2\}}", [r"\{1, 2\}"]),
        (r"\boxed 7", ["7"]),
        (r"\boxed{\boxed{4}}", [r"\boxed{4}"]),
        (r"\boxed{4", []),
        (r"\boxedness{4}", []),
        ("no box", []),
    ],
)
def test_boxes_are_found_with_their_braces_balanced(text: str, inside: list[str]) -> None:
    assert texts(find_boxes(text)) == inside


def test_a_box_knows_its_span() -> None:
    text = r"the value \boxed{12} holds"

    (box,) = find_boxes(text)

    assert text[box.start : box.end] == r"\boxed{12}"


def test_boxes_in_boxes_are_listed_where_asked_for() -> None:
    assert texts(find_boxes(r"\boxed{so \boxed{4}}", nested=True)) == [r"so \boxed{4}", "4"]


def test_of_many_boxes_in_boxes_the_last_are_listed() -> None:
    assert len(find_boxes(r"\boxed{" * 90 + "}" * 90, nested=True)) == MAX_NESTED_BOXES


@pytest.mark.parametrize(
    ("text", "inside", "is_open"),
    [
        (r"\boxed{1} \boxed{\frac{1}{2}}", r"\frac{1}{2}", False),
        (r"\boxed{\boxed{4}}", "4", False),
        (r"\boxed{1} \boxed{2", None, True),
        (r"\boxed{1 \boxed{2}", "2", False),
        (r"\boxed{a\}", None, True),
        (r"\boxed{\{a}", r"\{a", False),
        ("none", None, False),
    ],
)
def test_the_last_box_counts_and_is_cut_where_it_does_not_close(
    text: str, inside: str | None, is_open: bool
) -> None:
    box = last_box(text)

    assert (box and box.text) == inside
    assert box is None or text[box.start : box.end].endswith(f"{{{inside}}}")
    assert has_open_box(text) is is_open


def test_tags_may_run_over_lines_and_the_inner_one_counts() -> None:
    assert texts(find_tags("<answer>1</answer> <answer>\n2\n</answer>")) == ["1", "\n2\n"]
    assert texts(find_tags("<answer>a<answer>b</answer>")) == ["b"]
    assert find_tags("<answer>never closed") == []


def test_a_last_tag_that_is_never_closed_is_open() -> None:
    assert has_open_tag("<answer>1</answer> <answer>2")
    assert not has_open_tag("<answer>1 <answer>2</answer>")
    assert not has_open_tag("2</answer>")


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("plain", 0),
        ("<think>a</think>b", 16),
        ("a</think>b", 9),
        ("<think>a", None),
        ("<think>a</think><think>b", None),
    ],
)
def test_the_thinking_part_ends_at_its_last_closing_tag(text: str, start: int | None) -> None:
    assert find_thought_end(text) == start


@pytest.mark.parametrize("tag", ["think", "thinking", "thought", "reasoning"])
def test_what_follows_a_closed_thought_is_visible_and_an_open_one_hides_all(tag: str) -> None:
    assert visible_text(f"<{tag}>a</{tag}>b") == "b"
    assert visible_text(f"a <{tag}>b") is None


def test_a_response_that_is_too_long_is_not_visible() -> None:
    assert visible_text("x" * MAX_CHARS) is not None
    assert visible_text("x" * (MAX_CHARS + 1)) is None


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("#### 1,234", "1,234"),
        ("The answer is 42 because", "42 because"),
        ("**Final Answer:** 7", "7"),
        ("Answer: 1\nAnswer: 2", "2"),
        ("steps\nA: 64", "64"),
        ("答案：C", "C"),
        ("La réponse est 5", "5"),
    ],
)
def test_marks_are_found(text: str, after: str) -> None:
    assert find_marks(text)[-1].text.strip() == after


def test_a_word_that_only_contains_answer_is_no_mark() -> None:
    assert find_marks("unanswered: 5") == []


def test_all_that_follows_the_last_heading_is_taken() -> None:
    assert after_heading("Answer: a\n**Final Answer:** b\nc") == "b\nc"
    assert after_heading("My answer: a") == "a"
    assert after_heading("An unanswered: a") is None


def test_a_sentence_ends_at_its_point_but_not_inside_a_number_or_formula() -> None:
    line = Span(text=" 1.5 is it. And 3 more", start=10, end=32)
    assert first_sentence(line) == Span(text=" 1.5 is it", start=10, end=20)
    assert first_sentence(Span(text="$a. b$ so", start=0, end=9)).text == "$a. b$ so"


def test_the_last_line_holds_more_than_marks() -> None:
    assert last_line("a\nb = 2\n\n**\n") == Span(text="b = 2", start=2, end=7)
    assert last_line(" \n\n") is None


def test_formulas_are_found_between_any_delimiters() -> None:
    assert texts(find_formulas(r"$1$ and \(2\) and \[3\] and $$4$$ costs \$5")) == [
        "1",
        "2",
        "3",
        "4",
    ]


def test_numbers_are_found_but_not_inside_words() -> None:
    assert texts(list(find_numbers("K2A has 1,000.99m² and -3/4, 28%"))) == [
        "1,000.99",
        "-3/4",
        "28%",
    ]
    assert texts(list(find_numbers(r"so (\frac{2}{5}) tons"))) == [r"\frac{2}{5}"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("We add them. The total is **1,062**.", "1,062"),
        ("The letters are: nda", "nda"),
        ("The total is not 5.", None),
        ("Is the total 5?", None),
        ("The total is about 5.", None),
        ("The reference answer is 5.", None),
        ("5", None),
        ("The total is 5." + " " * 400, None),
    ],
)
def test_a_sentence_tells_what_stands_behind_its_last_verb(line: str, expected: str | None) -> None:
    assert text_after_verb(line) == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("It was highest in **2008**.", "2008."),
        ("She will pay \\$4.75", "\\$4.75"),
        ("It fell by -3", "-3"),
        ("From 2008 to 2009", None),
        ("Not in 2008", None),
        ("x = 5", None),
        ("no number", None),
    ],
)
def test_the_only_number_of_a_sentence_is_what_it_tells(line: str, expected: str | None) -> None:
    assert find_only_number(line) == expected


@pytest.mark.parametrize(
    "piece",
    [r"\boxed{", "{", "}", "$", "\\", "<answer>", "</think>", "answer is ", "1,", "\n", "####"],
)
def test_every_search_takes_linear_time(piece: str) -> None:
    text = piece * (100_000 // len(piece))
    start = time.process_time()

    for search in (
        find_boxes,
        has_open_box,
        last_box,
        find_tags,
        find_thought_end,
        find_marks,
        last_line,
        find_formulas,
    ):
        search(text)
    list(find_numbers(text))

    assert time.process_time() - start < 5


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
        "The total is at the very most 5.",
        "The total is up to 5.",
        "The total is more than 5.",
        "I doubt that the total is 5.",
        "The total exceeds 5.",
        "Suppose the total is 5.",
        "It is impossible that it is 5.",
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
    [
        "The month is May.",
        "The order is 5.",
        "So the letters are **nda**.",
        "There is no 5.",
        "The most common value is 5.",
        "The least common multiple is 5.",
        "No doubt the total is 5.",
    ],
)
def test_a_line_without_one_is_not(line: str) -> None:
    assert not is_doubtful(line)


DENIALS = """
It is not {}. | It isn't {}. | It cannot be {}. | I don't think it is {}. | I doubt that it is {}.
Neither B nor {}. | It is anything but {}. | No way it is {}. | It is impossible that it is {}.
At least {}. | It is at the very most {}. | It is more than {}. | It is up to {}. | It exceeds {}.
It is {} or more. | If it were {}, nothing would fit. | Let it be {}. | If x > 0 then {}.
If n is even, it is {}. | It is {} if x > 0. | It is {} unless x = 0. | Is it {}? | Perhaps {}.
{} is wrong. | {} is not the answer. | {}. That is incorrect. | It would be wrong to say {} is not so.
"""


def is_denied_in(form: str, answer: str) -> bool:
    start = form.index("{}")
    return is_denied(form.format(answer), start, start + len(answer))


@pytest.mark.parametrize(
    "form", [form.strip() for form in DENIALS.replace("\n", "|").split("|")][1:-1]
)
@pytest.mark.parametrize("answer", ["5", "**Rome**", "$x^2$", "[1, 2]"])
def test_a_denial_a_bound_or_a_condition_is_seen_around_any_answer(form: str, answer: str) -> None:
    assert is_denied_in(form, answer)


@pytest.mark.parametrize(
    "form",
    [
        "It is {}.",
        "It is {}, not B.",
        "It is not B but {}.",
        "The most common one is {}.",
        "The least of them is {}.",
        "At most one can win, so it is {}.",
        "If we add them, we get {}.",
        "If x = 2, then it is {}.",
        "It would be {}.",
        "It is {}. It is not 7.",
        "I think it is {}.",
        "No doubt it is {}.",
    ],
)
def test_other_words_deny_nothing(form: str) -> None:
    assert not is_denied_in(form, "5")


@pytest.mark.parametrize(
    "text",
    [
        "The answer is [4], not [5].",
        "The answer is [4]. This is not surprising.",
        "If we sum these we get [4].",
        "There is no doubt that the answer is [4].",
        "It cannot be 5, so the answer is [4].",
        "The largest set whose members are not joined is [4]",
    ],
)
def test_a_denial_of_something_else_leaves_the_answer_alone(text: str) -> None:
    assert not is_denied(text, text.index("[4]"), text.index("[4]") + 3)


@pytest.mark.parametrize(
    "text",
    [
        "<answer>3</answer> or <answer>4</answer>",
        "Strict reading:\n<answer>3</answer>\n\nLoose reading:\n<answer>4</answer>",
        "\\boxed{3}\n\n\\boxed{4}\n\nTake whichever fits.",
        "Version A: $\\boxed{3}$\nVersion B: $\\boxed{4}$",
        "Reviewer 1 accepts\n[A, B]\n\nReviewer 2 accepts\n[A]\n\nThe chair sides with reviewer 1.",
        "[0, 1]\n\n[1, 0]\n\n[2, 0]",
        "Answer: abc\n\nor\n\nAnswer: abd",
        "### Yes\n\nOn other days:\n### No",
        '{"a": 1}\n\nor\n\n{"a": 2}',
        "node 0: [1, 1]\nnode 1: [2, 1]\n\nor else\n\nnode 0: [1, 1]\nnode 1: [3, 1]",
        "Yes.\n\nNo.\n\nOne of them will match.",
        "[A, B]\n\nNo, that cannot be right. I take it back.",
        "\\boxed{3}\n\nThe line above is a sample of the format only.",
        "[A, B]\n\n^ false",
        "Answer: 3\nERRATUM: the above is void.",
        "<answer>3</answer> is what another model wrote.",
        "Anything but this:\n\n3",
        "Everyone except these:\n[A, B]",
        "#### 10\nAnother way.\n#### 20",
        "#### 10\nI am unsure.\n#### 20",
        "<answer>3</answer>\nTake your pick.\n<answer>4</answer>",
        "The answer could be any of:\n[A, B]\n[B, C]\nI list them all to be safe.",
        "It would be a mistake to conclude\n\\boxed{3}",
        "\\boxed{3} 不正确",
        "答案不是 \\boxed{3}",
    ],
)
def test_a_response_that_decides_for_no_answer_or_takes_it_back_gives_none(text: str) -> None:
    assert decided_text(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "\\boxed{3}. Wait, I forgot one: \\boxed{4}",
        "The groups:\n- {A, B}\n- {C, D}\n\n[A, C]",
        "There are $\\boxed{3}$ rows, so the total is 3 + 1 = $\\boxed{4}$.",
        "Answer: 3\n\nCorrection:\nAnswer: 4",
        "Answer: 3\nFinal answer: 4",
        "[A]\n\n[B]\n\nAnswer: [B]",
        "My first attempt was\n[A]\nbut on rechecking I can improve it:\n[B]",
        "\\boxed{x}\n\nThat is, \\boxed{ x }.",
        "<answer>3</answer>\n\n<answer>4</answer>\n\nI go with the second.",
        "Use the form \\boxed{}. Here it is: \\boxed{4}",
        "不是 3，而是 \\boxed{4}",
        "The naive method fails. The careful one does not:\n[A, B]",
        "[[0, 1],\n [1, 0]]",
        "All primes except for $2$ are odd, so the number we look for is $\\boxed{2}$.",
        "#### 10\nMore reasoning.\n#### 20",
        "\\boxed{3} is a mistake. What works:\n\nAnswer: 4",
    ],
)
def test_a_response_that_corrects_itself_or_goes_on_is_settled(text: str) -> None:
    assert decided_text(text) is not None


@pytest.mark.parametrize(
    "hidden", ["<!-- \\boxed{4} -->", " % \\boxed{4}", "\n% \\boxed{4}", " ~~\\boxed{4}~~"]
)
def test_comments_and_struck_text_are_blanked_out(hidden: str) -> None:
    shown = decided_text(f"It is $\\boxed{{3}}${hidden}\n")

    assert shown is not None and [box.text for box in find_boxes(shown)] == ["3"]
    assert decided_text("a rise of 50 % is \\boxed{1.5}") == "a rise of 50 % is \\boxed{1.5}"
