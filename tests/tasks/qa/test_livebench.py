"""LiveBench: words, groups, mappings and texts are compared whole, and nothing else is right."""

import pytest
from qa_rows import problem

from whet.errors import DataError
from whet.tasks.qa.livebench import LiveBench
from whet.types import Score

TASK = LiveBench()
GROUPS = "ant, bee, fly, wasp, oak, elm, ash, fir"
GOLDS = {
    "words": "yes, no, unknown",
    "groups": GROUPS,
    "mapping": '{"name": "title", "born": "year"}',
    "text": "We were there, and they're here now.",
    "order": "Ann wakes. Bob calls. They meet. They part.",
}


def score(kind: str, text: str) -> Score:
    return TASK.score(problem("livebench", GOLDS[kind], kind=kind), text)


@pytest.mark.parametrize(
    ("kind", "text", "share"),
    [
        ("words", "**yes, no, unknown**", 1.0),
        ("words", "So the answer is **Yes, No, Unknown**.", 1.0),
        ("words", "<solution>yes, no, unknown</solution>", 1.0),
        ("words", "\\boxed{\\text{yes, no, unknown}}", 1.0),
        ("words", "**yes, no, yes**", 2 / 3),
        ("words", "**yes, no, unknown, yes**", 3 / 4),
        ("words", "<solution>no, no</solution>", 1 / 3),
        ("groups", "**fir, ash, elm, oak, ant, fly, bee, wasp**", 1.0),
        ("groups", "**ant, bee, fly, oak, wasp, elm, ash, fir**", 0.0),
        ("groups", "**ant, bee, fly, wasp**", 0.0),
        ("mapping", "```python\n{'born': 'year', 'name': 'title', 'x': None}\n```", 1.0),
        ("mapping", '<solution>{"name": "title"}</solution>', 2 / 3),
        ("text", "We were there,\nand they're here now.", 1.0),
        ("text", "Here is the text:\n\nWe were there, and they're here now.", 1.0),
        ("text", "<solution>We were there, and they're here now.</solution>", 1.0),
        ("text", "<answer>We were there, and they’re here now.</answer>", 1.0),
        ("text", "We were there, and theyre here now.", 0.0),
        ("text", "We were there and they're here now.", 0.0),
        ("text", "we were there, and they're here now.", 0.0),
        ("order", "<PLOT_SUMMARY>Ann wakes.\nBob calls. They meet. They part</PLOT_SUMMARY>", 1.0),
        ("order", "Here it is:\n\nAnn wakes. Bob calls. They meet. They part.", 1.0),
        ("order", "Bob calls. Ann wakes. They meet. They part.", 1 / 2),
        ("order", "They meet. Ann wakes. Bob calls. They part.", 1 / 2),
        ("order", "Ann wakes. Bob calls. They meet.", 3 / 4),
        ("order", "Ann wakes. Bob calls. They meet. They part." * 9, 0.0),
    ],
)
def test_the_share_that_is_right_is_a_part_and_all_of_it_is_correct(
    kind: str, text: str, share: float
) -> None:
    found = score(kind, text)
    assert found.parts["share"] == pytest.approx(share)
    assert found.verdict == ("correct" if share == 1 else "wrong")


@pytest.mark.parametrize("kind", GOLDS)
@pytest.mark.parametrize(
    "form",
    [
        "",
        "What is asked?",
        "<think>**{}**",
        "<solution>{}",
        "It is not **{}**.",
        "Is it **{}**?",
        "If it were **{}**, it would be wrong.",
        "**{}** or **no, no, no**",
        "<solution>{}</solution> <solution>no, no, no</solution>",
        '["correct", 1.0]',
    ],
)
def test_what_is_cut_denied_doubted_or_offered_with_another_is_not_right(
    kind: str, form: str
) -> None:
    assert score(kind, form.replace("{}", GOLDS[kind])).verdict != "correct"


@pytest.mark.parametrize("sign", ["**", "yes, ", "{", '{"a":', "*a*", "<solution>", "\n", "[["])
@pytest.mark.parametrize("kind", GOLDS)
def test_a_huge_response_is_not_right(kind: str, sign: str) -> None:
    assert score(kind, sign * 50_000).verdict != "correct"


@pytest.mark.parametrize(("kind", "gold"), [("words", ""), ("mapping", "a"), ("none", "a")])
def test_a_reference_of_another_kind_is_refused(kind: str, gold: str) -> None:
    with pytest.raises(DataError, match="needs"):
        TASK.score(problem("livebench", gold, kind=kind), "**yes**")


def test_sentences_in_order_that_are_not_the_same_have_the_share_and_are_wrong() -> None:
    found = score("order", "Ann woke. Bob calls. They meet. They part. The end.")

    assert found.parts == {"correct": 0.0, "share": 1.0} and found.verdict == "wrong"
