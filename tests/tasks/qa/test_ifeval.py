"""IFEval: every kind of instruction holds where it is followed, and only there."""

import pytest
from qa_rows import problem

from whet.errors import DataError
from whet.tasks.qa.ifeval import CHECKS, IFEval, count_sentences
from whet.types import Json, Score, Verdict

TASK = IFEval()
LEAST, LESS = {"relation": "at least"}, {"relation": "less than"}
CASES: list[tuple[str, dict[str, Json], list[str], list[str]]] = [
    ("keywords:existence", {"keywords": ["Tea", "C++"]}, ["tea c++"], ["tea c", "coffee C++"]),
    ("keywords:frequency", {"keyword": "tea", "frequency": 2, **LEAST}, ["Tea, tea"], ["tea"]),
    ("keywords:frequency", {"keyword": "tea", "frequency": 2, **LESS}, ["tea"], ["tea TEA"]),
    ("keywords:forbidden_words", {"forbidden_words": ["tea"]}, ["teapot"], ["Tea.", "my tea"]),
    (
        "keywords:letter_frequency",
        {"letter": "!", "let_frequency": 2, "let_relation": "at least"},
        ["a!b!"],
        ["a!"],
    ),
    ("language:response_language", {"language": "ko"}, ["안녕하세요 여러분 (TV)"], ["annyeong", "안녕 hello"]),
    ("language:response_language", {"language": "ar"}, ["مرحبا بك"], ["سلام، چطوری؟", "hello"]),
    ("length_constraints:number_sentences", {"num_sentences": 2, **LEAST}, ["A b. C?"], ["A b."]),
    (
        "length_constraints:number_paragraphs",
        {"num_paragraphs": 2},
        ["a\n***\nb", "***a***b***"],
        ["a\n\nb", "a***b***c", "a******b"],
    ),
    ("length_constraints:number_words", {"num_words": 3, **LESS}, ["a b", "a-b"], ["a b c"]),
    (
        "length_constraints:nth_paragraph_first_word",
        {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "tea"},
        ["a\n\n'Tea', b"],
        ["tea\n\na", "a\n\ntea\n\nb", "a\n\nteapot"],
    ),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, ["[a] [b c]"], ["[a] [b"]),
    (
        "detectable_content:postscript",
        {"postscript_marker": "P.S."},
        ["a\nP.S. b", "p. s. b"],
        ["ps b"],
    ),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["P.P.S a"], ["P.S. a"]),
    (
        "detectable_format:number_bullet_lists",
        {"num_bullets": 2},
        ["* a\n* b", "x\n - a\n- b"],
        ["* a", "* a\n* b\n* c", "**a**\n* b"],
    ),
    (
        "detectable_format:constrained_response",
        {},
        ["My answer is yes."],
        ["yes", "my answer is yes"],
    ),
    (
        "detectable_format:number_highlighted_sections",
        {"num_highlights": 2},
        ["*a* and **b**"],
        ["*a*", "** ** *a*", "*a\nb* *c*"],
    ),
    (
        "detectable_format:multiple_sections",
        {"section_spliter": "Section", "num_sections": 2},
        ["Section 1\na\nSection 2\nb"],
        ["Section 1\na", "Section one, Section two"],
    ),
    (
        "detectable_format:json_format",
        {},
        ['{"a": [1]}', '```json\n{"a": 1}\n```'],
        ["{a: 1}", "[" * 100_000, 'Here: {"a": 1}'],
    ),
    ("detectable_format:title", {}, ["<<Tea>>\nb"], ["<<>>", "<Tea>", "<<Tea\n>>", ">> a <<"]),
    (
        "combination:two_responses",
        {},
        ["a******b"],
        ["a", "a******a", "a******b******c", "a************b"],
    ),
    (
        "combination:repeat_prompt",
        {"prompt_to_repeat": "Name a tea."},
        ["name a tea. Assam"],
        ["Assam", "Name a tea.", "So: Name a tea. Assam"],
    ),
    ("startend:end_checker", {"end_phrase": "Is it?"}, ['"a. is it?"'], ["Is it? a"]),
    ("startend:quotation", {}, ['"a"'], ['"', "a", '"a" b']),
    (
        "change_case:capital_word_frequency",
        {"capital_frequency": 2, "capital_relation": "at least"},
        ["TEA-POT and CUP"],
        ["TEA-POT and Cup"],
    ),
    ("change_case:english_capital", {}, ["TEA FOR 2!"], ["TEA for 2", "ЧАЙ", "42"]),
    ("change_case:english_lowercase", {}, ["tea for 2!"], ["Tea", "чай", "42"]),
    ("punctuation:no_comma", {}, ["tea; cup"], ["tea, cup"]),
]  # fmt: skip


def score(text: str, *instructions: dict[str, Json]) -> Score:
    return TASK.score(problem("ifeval", None, instructions=list(instructions)), text)


@pytest.mark.parametrize(("id", "arguments", "right", "wrong"), CASES)
def test_an_instruction_holds_where_it_is_followed(
    id: str, arguments: dict[str, Json], right: list[str], wrong: list[str]
) -> None:
    instruction = {"id": id, **arguments}
    assert [text for text in right if score(text, instruction).verdict != "correct"] == []
    assert [text for text in wrong if score(text, instruction).verdict != "wrong"] == []


def test_all_25_kinds_are_tried() -> None:
    assert {id for id, *_ in CASES} == set(CHECKS)
    assert len(CHECKS) == 25


def test_parts_are_strict_and_loose_for_the_prompt_and_for_instructions() -> None:
    instructions = [{"id": "punctuation:no_comma"}, {"id": "startend:quotation"}]
    found = score('Sure, here it is:\n"Tea is ready."', *instructions)

    assert found.verdict is Verdict.WRONG and "no_comma" in found.note
    assert found.parts == {
        "correct": 0.0,
        "prompt_strict": 0.0,
        "prompt_loose": 1.0,
        "instruction_strict": 0.0,
        "instruction_loose": 1.0,
    }


@pytest.mark.parametrize("text", ["", "  \n", "<think>Tea is ready", "a" * (1 << 22) + "b"])
def test_without_a_response_nothing_is_followed(text: str) -> None:
    found = score(text, {"id": "punctuation:no_comma"})
    assert found.verdict is Verdict.NO_ANSWER and set(found.parts.values()) == {0.0}


def test_a_thought_is_not_judged() -> None:
    assert (
        score("<think>Well, tea.</think>Tea.", {"id": "punctuation:no_comma"}).verdict == "correct"
    )


@pytest.mark.parametrize("text", ["What is asked?", " what is\nASKED?", "What is ask"])
def test_handing_back_the_prompt_follows_nothing(text: str) -> None:
    assert score(text, {"id": "punctuation:no_comma"}).verdict is Verdict.WRONG


@pytest.mark.parametrize(
    "sign", ["[", "*", "<<", ".", "a", "\n", "- ", "{", '"', "'", "A-", "a.", "P.", "***", "[]<<"]
)
def test_a_huge_response_is_judged_in_time_that_grows_with_its_length(sign: str) -> None:
    rows: list[dict[str, Json]] = [{"id": id, **given} for id, given, *_ in CASES]
    assert score(sign * 60_000, *rows).verdict is not Verdict.CORRECT


def test_initials_and_abbreviations_end_no_sentence() -> None:
    assert count_sentences('Mr. J. Li said "No!" He left, e.g. by car. (Really?) Yes') == 4


@pytest.mark.parametrize("rows", [[], [{"id": "x:y"}], [{"id": "startend:end_checker"}], ["a"]])
def test_a_row_without_readable_instructions_is_refused(rows: list[Json]) -> None:
    with pytest.raises(DataError, match="IFEval's instructions"):
        TASK.score(problem("ifeval", None, instructions=rows), "a")
