"""Prompt settings: what a model sees of a problem, and what is refused."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import ValidationError

from whet.batching.rollout_datasets import make_preference_pairs, make_sft_examples
from whet.config import Config, load_settings, to_table, to_toml
from whet.errors import ConfigError, DataError
from whet.testing.fakes import sum_problem
from whet.testing.tiny import tiny_tokenizer
from whet.text.chat import NO_PROMPT, ChatFormat, PromptConfig, PromptExample
from whet.types import Message, Problem, Rollout, Score, Verdict

CHATML = (
    "{% for message in messages %}{{ '<' + message.role + '>' + message.content + eos_token }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<assistant>' }}"
    "{% if enable_thinking is defined and enable_thinking is false %}{{ '(no thought)' }}{% endif %}"
    "{% endif %}"
)


class Holder(Config):
    """A stage with a prompt."""

    prompt: PromptConfig = NO_PROMPT
    """The prompt."""


def said(cfg: PromptConfig, problem: Problem) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in cfg.apply(problem)]


def test_without_settings_a_problem_keeps_its_messages_and_its_tokens() -> None:
    problem = sum_problem(2, 3)
    chat = ChatFormat(tiny_tokenizer())
    assert NO_PROMPT.apply(problem) == problem.prompt
    assert chat.encode_problem(problem).tolist() == chat.encode_prompt(problem.prompt).tolist()


def test_a_template_fills_in_the_question_and_the_payload_and_leaves_other_braces() -> None:
    problem = replace(sum_problem(2, 3), payload={"unit": "metres", "numbers": [2, 3]})
    cfg = PromptConfig(
        template=r"{question} in {payload.unit} of {payload.numbers}: \boxed{answer}"
    )
    assert said(cfg, problem) == [
        ("user", rf"{problem.prompt[-1].content} in metres of [2, 3]: \boxed{{answer}}")
    ]


def test_text_of_the_problem_is_no_field() -> None:
    problem = replace(
        sum_problem(2, 3), prompt=(Message(role="user", content="{payload.x}{question}"),)
    )
    assert said(PromptConfig(template="Q: {question}"), problem) == [
        ("user", "Q: {payload.x}{question}")
    ]


def test_a_system_prompt_replaces_the_own_one_and_an_empty_one_removes_it() -> None:
    own = (Message(role="system", content="own"), Message(role="user", content="1"))
    problem = replace(sum_problem(2, 3), prompt=own)
    assert said(PromptConfig(system="other"), problem) == [("system", "other"), ("user", "1")]
    assert said(PromptConfig(system=""), problem) == [("user", "1")]
    assert said(PromptConfig(system="new"), sum_problem(2, 3))[0] == ("system", "new")


def test_examples_are_turns_between_the_system_prompt_and_the_question() -> None:
    cfg = PromptConfig(
        system="s",
        template="Q: {question}",
        examples=(PromptExample(question="1 + 1", answer="2"),),
    )
    problem = replace(sum_problem(2, 3), prompt=(Message(role="user", content="2 + 3"),))
    assert said(cfg, problem) == [
        ("system", "s"),
        ("user", "Q: 1 + 1"),
        ("assistant", "2"),
        ("user", "Q: 2 + 3"),
    ]


def test_a_file_of_examples_is_stored_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "shots.jsonl"
    file.write_text('{"question": "1 + 1", "answer": "2"}\n\n')
    cfg = PromptConfig.model_validate({"examples": str(file)})
    assert cfg.examples == (PromptExample(question="1 + 1", answer="2"),)
    assert PromptConfig.model_validate(json.loads(cfg.model_dump_json())).is_same(cfg)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (None, "cannot be read"),
        (b"\xff", "cannot be read"),
        (b"", "has no examples"),
        (b'{"question": "1"}', "line 1 of"),
        (b'{"question": "1", "answer": 2}', "should be text"),
        (b"[1]", "should have a question and an answer"),
        (b"{", "line 1 of"),
    ],
)
def test_a_broken_file_of_examples_is_a_sentence(
    content: bytes | None, words: str, tmp_path: Path
) -> None:
    file = tmp_path / "shots.jsonl"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match="examples") as caught:
        load_settings(PromptConfig, None, ["--examples", str(file)])
    assert words in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ({"template": "Solve {qestion}"}, r"template should hold \{question\}"),
        (
            {
                "template": "{question} {payload.x}",
                "examples": [{"question": "1", "answer": "2"}],
            },
            r"examples have no payload, and template reads \{payload.x\}",
        ),
        ({"chat_options": {"messages": []}}, "messages is not an option"),
    ],
)
def test_settings_that_contradict_each_other_are_refused(
    table: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        PromptConfig.model_validate(table)


def test_a_problem_without_the_payload_that_a_template_reads_is_named() -> None:
    problem = sum_problem(2, 3)
    with pytest.raises(DataError, match=rf"problem {problem.id}: prompt.template reads .payload.x"):
        PromptConfig(template="{payload.x}").apply(problem)


def test_verifications_keep_the_words_of_their_task() -> None:
    problem = replace(sum_problem(2, 3), task="verify")
    assert PromptConfig(system="s", template="Q: {question}").apply(problem) == problem.prompt


def test_chat_options_reach_the_template_in_prompts_and_in_training() -> None:
    tokenizer = tiny_tokenizer().with_template(CHATML)
    chat = ChatFormat(tokenizer, PromptConfig(chat_options={"enable_thinking": False}))
    problem = sum_problem(2, 3)
    tokens, is_response = chat.encode_response(problem, "5")
    prompt = chat.encode_problem(problem)
    assert tokenizer.decode(prompt).endswith("<assistant>(no thought)")
    assert tokens[~is_response].tolist() == prompt.tolist()
    assert tokenizer.decode(tokens[is_response]) == "5"


def test_training_begins_with_the_prompt_that_is_sampled() -> None:
    chat = ChatFormat(tiny_tokenizer(), PromptConfig(template="Q: {question}"))
    problem = sum_problem(2, 3)
    answers = [
        Rollout.from_text(problem, text, model="t", score=Score(verdict=verdict, parts={}))
        for text, verdict in (("5", Verdict.CORRECT), ("6", Verdict.WRONG))
    ]
    pairs = make_preference_pairs(
        answers, chat, ["correct"], comment=lambda *_: (), max_tokens=64, per_problem=1, seed=0
    ).pairs
    example = make_sft_examples(answers[:1], chat, 64).examples[0]
    for item in (example, pairs[0].chosen, pairs[0].rejected):
        prompt = item.tokens[: item.response_start]
        assert chat.tokenizer.decode(prompt) == "Q: 2 + 3\n"
        assert prompt.tolist() == chat.encode_problem(problem).tolist()


def test_an_option_that_the_template_does_not_read_is_refused() -> None:
    tokenizer = tiny_tokenizer().with_template(CHATML)
    with pytest.raises(ConfigError, match="reads no think; the options it reads: enable_thinking"):
        ChatFormat(tokenizer, PromptConfig(chat_options={"think": True}))


def test_a_system_prompt_that_the_template_drops_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"prompt\.system has no effect"):
        ChatFormat(tiny_tokenizer(), PromptConfig(system="Think."))


def test_the_settings_of_a_run_hold_the_whole_prompt(tmp_path: Path) -> None:
    cfg = PromptConfig(
        system='Say "5".\n{x}',
        template="{question}\n\\boxed{}",
        examples=(PromptExample(question="1 + 1\n?", answer="<think>\n2</think>"),),
        chat_options={"enable_thinking": False, "tools_in": ["a", 1], "deep": {"x": 0.5}},
    )
    file = tmp_path / "config.toml"
    file.write_text(to_toml(Holder(prompt=cfg)))
    assert load_settings(Holder, file, []).config.prompt == cfg
    assert to_table(Holder()) == {} and to_toml(Holder()) == ""


def test_prompts_are_compared_by_their_words() -> None:
    assert PromptConfig(differs=True).is_same(NO_PROMPT)
    assert not PromptConfig(system="").is_same(NO_PROMPT)
    assert PromptConfig(system="s").describe() == '{"system": "s"}'
    assert NO_PROMPT.describe() == "none"
