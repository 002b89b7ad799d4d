"""A user's own rows: columns by name or path, chats, preference pairs; mistakes are said before or
at the row."""

import pytest

from whet.data.importers import FORMATS, find_format
from whet.data.importers.base import ParsedRow
from whet.data.importers.mapped import parse_mapping
from whet.errors import ConfigError, DataError
from whet.types import Json

CHAT: list[Json] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "2 + 2?"},
    {"role": "assistant", "content": "4"},
]


def draft(pairs: list[str], row: dict[str, Json], task: str | None = "math") -> ParsedRow:
    return parse_mapping(pairs, task).parse(row)


def test_columns_fill_the_fields_they_are_mapped_to() -> None:
    pairs = [
        "prompt=q",
        "answer=gold",
        "id=meta.uid",
        "level=hard",
        "split=part",
        "payload.units=u",
        "system=sys",
    ]
    row: dict[str, Json] = {
        "q": "How far?",
        "gold": 5.0,
        "meta": {"uid": 9},
        "hard": "0.5",
        "part": "validation",
        "u": "same",
        "sys": "Think.",
    }
    found = draft(pairs, row)
    assert [(m.role, m.content) for m in found.prompt] == [
        ("system", "Think."),
        ("user", "How far?"),
    ]
    assert (found.task, found.answer, found.source_id) == ("math", "5", "9")
    assert (found.level, found.split, found.payload) == (0.5, "dev", {"units": "same"})


def test_a_column_whose_name_has_a_dot_goes_before_a_path() -> None:
    assert (
        draft(["prompt=a.b", "answer=c"], {"a.b": "x", "a": {"b": "y"}, "c": "1"}).prompt[0].content
        == "x"
    )


def test_a_path_goes_through_objects_written_as_text() -> None:
    assert draft(["prompt=a.b"], {"a": '{"b": "x"}'}).prompt[0].content == "x"


def test_several_answers_are_all_references() -> None:
    found = draft(["prompt=q", "answers=all"], {"q": "x", "all": ["1", 2]})
    assert (found.answer, found.payload) == ("1", {"answers": ["1", "2"]})


def test_a_prompt_may_be_a_list_of_messages_and_a_task_may_be_in_the_row() -> None:
    found = draft(["prompt=p", "task=t"], {"p": CHAT[:2], "t": "yes_no"}, task=None)
    assert found.task == "yes_no" and [m.role for m in found.prompt] == ["system", "user"]


def test_the_last_message_of_a_chat_is_an_answer_to_imitate() -> None:
    found = draft(["messages=chat", "model=who"], {"chat": CHAT, "who": "gpt-x"}, task=None)
    assert [m.role for m in found.prompt] == ["system", "user"]
    assert [(a.text, a.model, a.is_good) for a in found.responses] == [("4", "gpt-x", None)]
    assert found.task == "judge"


def test_chats_may_be_written_with_from_and_value_or_in_parts_of_text() -> None:
    chat: Json = [
        {"from": "human", "value": "Hi"},
        {"from": "gpt", "value": [{"type": "text", "text": "Hello"}]},
    ]
    found = draft(["messages=conversations"], {"conversations": chat})
    assert (found.prompt[0].role, found.responses[0].text) == ("user", "Hello")


def test_a_pair_is_two_answers_one_good_and_one_bad() -> None:
    found = draft(
        ["prompt=p", "chosen=c", "rejected=r"], {"p": "2 + 2?", "c": "4", "r": "5"}, task=None
    )
    assert [(a.text, a.is_good, a.note) for a in found.responses] == [
        ("4", True, "chosen"),
        ("5", False, "rejected"),
    ]


def test_a_pair_of_chats_brings_its_own_prompt() -> None:
    worse = [*CHAT[:2], {"role": "assistant", "content": "5"}]
    found = FORMATS["preferences"].parse(
        {"chosen": list[Json](CHAT), "rejected": list[Json](worse)}
    )
    assert [m.content for m in found.prompt] == ["Be brief.", "2 + 2?"]
    assert [a.text for a in found.responses] == ["4", "5"]


def test_responses_are_answers_to_imitate() -> None:
    found = draft(
        ["prompt=p", "responses=all", "response=one"], {"p": "x", "all": ["a", "b"], "one": "c"}
    )
    assert [a.text for a in found.responses] == ["a", "b", "c"]


def test_messages_is_a_format_of_its_own() -> None:
    found = FORMATS["messages"].parse({"messages": CHAT, "id": 3, "source": "web"})
    assert (found.source_id, found.responses[0].text) == ("3", "4")


@pytest.mark.parametrize(
    ("pairs", "task", "sentence"),
    [
        (["question"], "math", "should have the form field=column"),
        (
            ["answr=gold", "prompt=q"],
            "math",
            "there is no field 'answr'; fields are prompt, system, answer",
        ),
        (["payload.=x", "prompt=q"], "math", "there is no field 'payload.'"),
        (["prompt=q", "prompt=r"], "math", "gives 'prompt' twice"),
        (["answer=gold"], "math", "--map needs prompt=COLUMN, messages=COLUMN"),
        (["prompt=q", "chosen=c"], "math", "needs both chosen=COLUMN and rejected=COLUMN"),
        (["prompt=q", "answer=a"], None, "need a task: --task NAME"),
    ],
)
def test_a_mapping_that_cannot_work_is_refused_before_any_row(
    pairs: list[str], task: str | None, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        parse_mapping(pairs, task)


@pytest.mark.parametrize(
    ("pairs", "row", "sentence"),
    [
        (["prompt=q"], {"a": 1, "b": 2}, "has no column 'q'; its columns are a, b"),
        (["prompt=q"], {"q": ""}, "field 'prompt' should be text, not"),
        (["prompt=q"], {"q": []}, "field 'prompt' should be a list of messages"),
        (
            ["prompt=q", "level=l"],
            {"q": "x", "l": 3},
            "level should be a number from 0 .* to 1 .*, not 3",
        ),
        (["prompt=q", "level=l"], {"q": "x", "l": "hard"}, "level should be a number"),
        (
            ["prompt=q", "split=s"],
            {"q": "x", "s": "extra"},
            "split 'extra' is unknown; known: sft, rl",
        ),
        (
            ["prompt=q", "answer=a"],
            {"q": "x", "a": [1]},
            "field 'answer' should be text or a number",
        ),
        (["messages=m"], {"m": CHAT[:2]}, "should end with a message of the assistant"),
        (["messages=m"], {"m": ["hi"]}, "should hold messages with role and content"),
        (["messages=m"], {"m": [{"role": "tool", "content": "x"}]}, "role 'tool' is unknown"),
        (
            ["messages=m"],
            {"m": [{"role": "user", "content": 5}]},
            "should have text as its content",
        ),
        (
            ["messages=m"],
            {"m": [{"role": "user", "content": [{"type": "image"}]}]},
            "should have text as its content",
        ),
        (["chosen=c", "rejected=r"], {"c": "a", "r": "b"}, "has no prompt"),
        (
            ["prompt=p", "chosen=c", "rejected=r"],
            {"p": "other", "c": CHAT, "r": CHAT},
            "does not begin with the prompt",
        ),
        (["prompt=q", "id=i"], {"q": "x", "i": {}}, "field 'id' should be an id"),
    ],
)
def test_a_row_that_does_not_fit_is_refused_in_a_sentence(
    pairs: list[str], row: dict[str, Json], sentence: str
) -> None:
    with pytest.raises(DataError, match=sentence):
        draft(pairs, row)


def test_an_unknown_format_is_refused_with_the_list() -> None:
    with pytest.raises(
        ConfigError, match=r"there is no format 'gsm9k'; known formats: aime24, .*gsm8k_test"
    ):
        find_format("gsm9k")
