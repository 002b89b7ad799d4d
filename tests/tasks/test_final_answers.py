"""Where the final answer stands: the last statement in its strongest form, never a cut one."""

import time

import pytest

from whet.answers.final_answer import MAX_CHARS
from whet.tasks.answers import (
    MAX_ANSWER_CHARS,
    candidates,
    no_answer,
    read_final,
    to_score,
)
from whet.tasks.literals import parse_literal, plain
from whet.types import Verdict


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("<answer>a</answer>", ("a",)),
        ("<answer>\n a\n b\n</answer> done", ("a\n b",)),
        ("<answer>a</answer> or <answer>b</answer>", ()),
        ("<answer>x <answer>b</answer>", ("b",)),
        ("\\boxed{a} then <answer>b</answer>", ("b",)),
        ("<answer>so \\boxed{b}</answer>", ("b",)),
        ("\\boxed{a} so \\boxed{\\frac{1}{2}}", ("\\frac{1}{2}",)),
        ("\\boxed{a} and \\boxed{b}", ()),
        ("Answer: a\nFinal answer: b", ("b",)),
        ("**Final Answer:** a\nb", ("a\nb",)),
        ("**Final Answer:** a\n\nb c", ("a\n\nb c", "a")),
        ("Answer: a\nThis is why.", ("a\nThis is why.", "a\nThis is why", "a")),
        ("Answer: a\n\nSo it is b!", ("a\n\nSo it is b!", "b!", "a")),
        ("the answer is: a", ("a",)),
        ("hm\n```json\n[1]\n```\nok", ("[1]",)),
        ("```\nx\n```\n```python\ny\n```", ("y",)),
        ("```word```", ("word",)),
        ("one\n\ntwo \n", ("one\n\ntwo", "two")),
        ("<think>a <answer>a</answer></think>b", ("b",)),
        ("a <answer>a</answer></think>b", ("b",)),
        ("<answer>a</answer> <answer>bcd", ()),
        ("<answer>abc", ()),
        ("a</answer>", ()),
        ("<answer></answer>", ()),
        ("<think> <answer>a</answer>", ()),
        ("\\boxed{a} \\boxed{b", ()),
        ("", ()),
        (" \n ", ()),
        ("x" * (MAX_CHARS + 1), ()),
        ("<answer>" + "x" * (MAX_ANSWER_CHARS + 1) + "</answer>", ()),
    ],
)
def test_the_last_statement_in_its_strongest_form_is_found(
    text: str, found: tuple[str, ...]
) -> None:
    assert candidates(text) == found


def test_the_first_candidate_that_can_be_read_counts() -> None:
    assert read_final("so it is\n12", lambda span: int(span) if span.isdigit() else None) == (
        "12",
        12,
    )
    assert read_final("twelve", lambda span: int(span) if span.isdigit() else None) is None


def test_scores_state_correct_among_their_parts() -> None:
    assert no_answer("cells").parts == {"correct": 0.0, "cells": 0.0}
    right = to_score(True, {"cells": 1.0}, "x" * 5000, "right")
    assert right.verdict is Verdict.CORRECT and right.parts == {"correct": 1.0, "cells": 1.0}
    assert to_score(False, {}, "x", "").parts == {"correct": 0.0}


@pytest.mark.parametrize(
    "text",
    [
        "<answer>" * 200_000,
        "</answer>" * 200_000,
        "<think></think>" * 100_000,
        "\\boxed{" * 200_000,
        "\\boxed{}" * 200_000,
        "Answer:\n" * 200_000,
        "* " * 800_000,
        "```" * 500_000,
        "\n" * 2_000_000,
        "{" * 2_000_000,
    ],
)
def test_hostile_texts_take_linear_time(text: str) -> None:
    start = time.process_time()
    candidates(text)
    assert time.process_time() - start < 1.5


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ('["a", 1, 1.0, true]', ["a", "1", "1.0", "true"]),
        ("('a', [b c, 'it''s'],)", None),
        ("{'k': (1, 2), \"l\": {}}", {"k": ["1", "2"], "l": {}}),
        ('"\\u0041\\n"', "A\n"),
        ('"\\x"', "x"),
        ("'it\\'s'", "it's"),
        ("[]", []),
        ("word", "word"),
        ("[1, 2", None),
        ("[1 2]]", None),
        ("[1,,2]", None),
        ("{1: 2, 1: 3}", None),
        ("{[1]: 2}", None),
        ("{1 2}", None),
        ("{1: 2 : 3}", None),
        ("[:]", None),
        ("'open", None),
        ("", None),
        ("[" * 9 + "]" * 9, None),
        ("[" + "1," * 40_000 + "]", None),
    ],
)
def test_literals_are_read_without_running_them(text: str, tree: object) -> None:
    assert parse_literal(text) == tree


def test_words_are_compared_without_case_and_spaces() -> None:
    assert plain("  Blue \n JAY ") == "blue jay"


@pytest.mark.parametrize(
    "text",
    ["'" * 60_000, '"\\' * 30_000, "[" * 60_000, "a:" * 30_000, "{a:" * 20_000, "x " * 30_000],
)
def test_hostile_literals_take_linear_time(text: str) -> None:
    start = time.process_time()
    parse_literal(text)
    assert time.process_time() - start < 1.0
