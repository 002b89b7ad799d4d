"""Convert problems and messages to tokens and back, by the prompt settings and the model's chat
template. Graders see the original problem."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, JsonValue, field_validator, model_validator

from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.text.steps import VERIFICATION
from whet.text.template import Template
from whet.text.tokenizer import Tokenizer
from whet.types import Json, Message, Problem, Tokens

FIELD = re.compile(r"\{(question|payload\.[\w-]+)\}")
"""The fields of a prompt template. Other braces, as in \\boxed{}, are plain text."""
RESERVED = ("messages", "add_generation_prompt")
"""Variables of a chat template that cannot be options."""
MAX_BYTES = 10_000_000
"""Largest file of examples."""
PRIVATE_USE = tuple(chr(code) for code in range(0xE000, 0xF8FF))
PROBE = "whetprobe"
STANDARD = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token")
)
"""Variables that every chat template is given; others are options."""
_OPEN_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>(\s*)\Z")


class PromptExample(Config):
    """A worked example: a question and a model response."""

    question: str
    """The question, to which the template is applied."""
    answer: str
    """The whole response, reasoning included, under the key that files of examples use."""


class PromptConfig(Config):
    """How problems become prompts; by default from their own messages.

    >>> cfg = PromptConfig(template="{question} Put the answer into \\\\boxed{}.")
    >>> cfg.wrap([Message(role="user", content="1 + 1?")])[0].content
    '1 + 1? Put the answer into \\\\boxed{}.'
    """

    left_out_by_default: ClassVar[bool] = True

    system: str | None = None
    """System prompt in place of the problem's own; empty removes the problem's."""
    template: str | None = None
    """Text of the user's message, with {question} for the problem's own text and {payload.NAME} for
    values of its payload. All other braces are plain text."""
    examples: tuple[PromptExample, ...] = ()
    """Worked examples before the question, as turns of user and assistant: a list of tables with
    question and answer, or a file of such JSON lines."""
    chat_options: dict[str, JsonValue] = Field(default={})
    """Options of the chat template by name, such as enable_thinking = false."""
    differs: bool = False
    """Allow a prompt that differs from that of the runs whose model or responses the stage uses."""

    @field_validator("examples", mode="before")
    @classmethod
    def _read_examples(cls, given: object) -> object:
        return _read_pairs(Path(given)) if isinstance(given, str) else given

    @field_validator("chat_options")
    @classmethod
    def _check_options(cls, options: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in RESERVED:
            if name in options:
                raise ValueError(f"{name} is not an option: every prompt sets it")
        return options

    @model_validator(mode="after")
    def _check_template(self) -> "PromptConfig":
        if self.template is None:
            return self
        fields = set(FIELD.findall(self.template))
        if not fields:
            raise ValueError("template should hold {question}, where the text of a problem goes")
        if self.examples and fields != {"question"}:
            raise ValueError(
                f"examples have no payload, and template reads {{{max(fields - {'question'})}}}: "
                "leave out one of the two"
            )
        return self

    def is_same(self, other: "PromptConfig") -> bool:
        """Whether both make the same prompt of every problem."""
        return self._changes() == other._changes()

    def describe(self) -> str:
        """Describe the settings that differ from the defaults, in one line."""
        return json.dumps(self._changes(), ensure_ascii=False) if self._changes() else "none"

    def _changes(self) -> dict[str, Json]:
        return self.model_dump(mode="json", exclude={"differs"}, exclude_defaults=True)

    def apply(self, problem: Problem) -> tuple[Message, ...]:
        """Write a problem's messages for the model. Verifications keep their own prompt."""
        if problem.task == VERIFICATION:
            return problem.prompt
        try:
            return self.wrap(problem.prompt, problem.payload)
        except DataError as error:
            raise DataError(f"problem {problem.id}: {error}") from error

    def wrap(
        self, messages: Sequence[Message], payload: Mapping[str, Json] | None = None
    ) -> tuple[Message, ...]:
        """Apply the settings to plain messages, as `apply` does to a problem's."""
        turns = list(messages)
        system = [turns.pop(0)] if turns and turns[0].role == "system" else []
        if self.system is not None:
            system = [Message(role="system", content=self.system)] if self.system else []
        shots = []
        for example in self.examples:
            shots.append(Message(role="user", content=self._fill(example.question, {})))
            shots.append(Message(role="assistant", content=example.answer))
        if self.template is not None:
            if not turns or turns[-1].role != "user":
                raise DataError("prompt.template needs a last message of the user")
            turns[-1] = Message(role="user", content=self._fill(turns[-1].content, payload or {}))
        return (*system, *shots, *turns)

    def _fill(self, question: str, payload: Mapping[str, Json]) -> str:
        def look_up(match: re.Match[str]) -> str:
            name = match[1].removeprefix("payload.")
            if match[1] == "question":
                return question
            value = payload.get(name)
            if value is None:
                known = ", ".join(payload) or "nothing"
                raise DataError(
                    f"prompt.template reads {match[0]}, and the payload has no {name}: {known}"
                )
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

        return question if self.template is None else FIELD.sub(look_up, self.template)


NO_PROMPT = PromptConfig()
"""The problem's own messages."""


def _read_pairs(file: Path) -> list[Json]:
    """Read a file of examples, with a JSON object on each line."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError(f"{file} has more than {MAX_BYTES:,} bytes")
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    rows: list[Json] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                row: Json = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} of {file} is not JSON: {error}") from error
            if not isinstance(row, dict) or not {"question", "answer"} <= row.keys():
                raise ValueError(f"line {number} of {file} should have a question and an answer")
            rows.append({"question": row["question"], "answer": row["answer"]})
    if not rows:
        raise ValueError(f"{file} has no examples")
    return rows


class ChatFormat:
    """The chat format of one model: its prompts, its stop tokens, and the text of its responses.

    Special tokens written in a message are encoded as plain text; only those of the template become
    real special tokens.
    """

    def __init__(self, tokenizer: Tokenizer, prompt: PromptConfig = NO_PROMPT) -> None:
        if tokenizer.chat_template is None:
            raise DataError(
                "the tokenizer has no chat template; set model.chat_template to a jinja file, "
                'or to "raw" for prompts without turns, as base models read them, or to "plain" '
                'for turns of "User:" and "Assistant:"'
            )
        self.tokenizer = tokenizer
        self.prompt = prompt
        self._template = Template(tokenizer.chat_template)
        self._check_prompt()
        longest_first = sorted(tokenizer.special_texts, key=len, reverse=True)
        self._special = re.compile("|".join(re.escape(text) for text in longest_first) or "(?!)")
        self._turn_ends = self._find_turn_end()
        self.stop_tokens: frozenset[int] = tokenizer.eos_tokens | self._turn_ends
        if not self.stop_tokens:
            raise DataError(
                "the model has no stop token: neither an eos_token nor one at the end of a chat "
                "turn"
            )

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool, **kwargs: Json
    ) -> str:
        """Render messages as text; `kwargs` are passed on, such as `enable_thinking=False`."""
        rows: Json = [{"role": message.role, "content": message.content} for message in messages]
        fixed: dict[str, Json] = {"messages": rows, "tools": None, "documents": None}
        fixed["add_generation_prompt"] = add_generation_prompt
        options = {**self.prompt.chat_options, **kwargs}
        return self._template.render({**self.tokenizer.named, **fixed, **options})

    def encode_problem(self, problem: Problem) -> Tokens:
        """Encode a problem as a prompt for an engine, with the prompt settings."""
        return self.encode_prompt(self.prompt.apply(problem))

    def encode_response(self, problem: Problem, text: str) -> tuple[Tokens, NDArray[np.bool_]]:
        """Encode a problem as `encode_problem` does, and a response; return tokens and a mask of
        the response."""
        response = Message(role="assistant", content=text)
        return self.conversation([*self.prompt.apply(problem), response])

    def encode_prompt(self, messages: Sequence[Message], **kwargs: Json) -> Tokens:
        """Encode messages and the opening of the assistant's turn as a prompt for an engine."""
        fence = self._choose_fence(messages)
        text = self.render(self._fence_specials(messages, fence), True, **kwargs)
        return self._encode(text, fence)

    def conversation(
        self, messages: Sequence[Message], **kwargs: Json
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Encode a conversation for SFT, with a mask of the last message and its stop token.

        The tokens begin exactly with `encode_prompt` of the earlier messages. Text that the
        template adds to the response, such as an empty thought, is part of the response. If the
        template drops part of the response, as R1's drops thoughts, or rewrites an answered prompt,
        the literal response follows the prompt, as a model would sample it.
        """
        if not messages or messages[-1].role != "assistant":
            raise DataError("a conversation to learn from must end with an assistant message")
        fence = self._choose_fence(messages)
        fenced = self._fence_specials(messages, fence)
        before = self.render(fenced[:-1], True, **kwargs)
        whole = self.render(fenced, False, **kwargs)
        response = whole.removeprefix(before)
        # The opening of the turn may already contain the start of the content, such as <think>.
        content = _remove_space(fenced[-1].content)
        start = _remove_space(before)[-len(content) :]
        if not whole.startswith(before) or content not in start + _remove_space(response):
            opening, rest = _continue_turn(before, messages[-1])
            response = opening + self._fence_specials([rest], fence)[0].content
        prompt = self._encode(before, fence)
        completion = self._cut_at_stop(self._encode(response, fence))
        is_response = np.repeat([False, True], [len(prompt), len(completion)])
        return np.concatenate([prompt, completion]), is_response

    def decode_message(self, tokens: Tokens) -> str:
        """Decode a response without its stop token."""
        return self.tokenizer.decode(self._drop_stop(tokens))

    def spans(self, tokens: Tokens) -> list[tuple[int, int]]:
        """Return each token's character span in the message, without the stop token."""
        return self.tokenizer.spans(self._drop_stop(tokens))

    def _check_prompt(self) -> None:
        """Refuse prompt settings that the chat template ignores."""
        for name in self.prompt.chat_options:
            if name not in self._template.variables:
                known = ", ".join(sorted(self._template.variables - STANDARD)) or "none"
                raise ConfigError(
                    f"prompt.chat_options.{name} has no effect: the model's chat template reads no "
                    f"{name}; the options it reads: {known}"
                )
        system = self.prompt.system
        if system:
            turns = (Message(role="system", content=system), Message(role="user", content="?"))
            if _remove_space(system) not in _remove_space(self.render(turns, True)):
                raise ConfigError(
                    "prompt.system has no effect: the model's chat template drops system messages; "
                    "put the text into prompt.template"
                )

    def _drop_stop(self, tokens: Tokens) -> Tokens:
        is_stopped = len(tokens) > 0 and int(tokens[-1]) in self.stop_tokens
        return tokens[:-1] if is_stopped else tokens

    def _find_turn_end(self) -> frozenset[int]:
        """Find the special token that the template writes after an assistant message, if any."""
        turns = (Message(role="user", content="?"), Message(role="assistant", content=PROBE))
        try:
            text = self.render(turns, False)
        except DataError:
            return frozenset()
        _, has_probe, rest = text.rpartition(PROBE)
        match = self._special.search(rest) if has_probe else None
        return frozenset([self.tokenizer.id(match[0])] if match else [])

    def _cut_at_stop(self, tokens: Tokens) -> Tokens:
        stops = np.flatnonzero(np.isin(tokens, list(self.stop_tokens)))
        if len(stops):
            return tokens[: stops[0] + 1]
        # Some templates, such as GLM's, end a turn with the next role; a response must end itself.
        eos = self.stop_tokens if self.tokenizer.eos is None else [self.tokenizer.eos]
        return np.append(tokens, np.int32(min(self._turn_ends or eos)))

    def _choose_fence(self, messages: Sequence[Message]) -> str:
        """Choose two unused characters to enclose special tokens; "" if no message has any."""
        text = "".join(message.content for message in messages)
        if not self._special.search(text):
            return ""
        free = [character for character in PRIVATE_USE if character not in text][:2]
        if len(free) < 2:
            raise DataError(
                "the messages use every private-use character, so special tokens cannot be told "
                "from text"
            )
        return "".join(free)

    def _fence_specials(self, messages: Sequence[Message], fence: str) -> list[Message]:
        if not fence:
            return list(messages)
        fenced = f"{fence[0]}\\g<0>{fence[1]}"
        return [replace(m, content=self._special.sub(fenced, m.content)) for m in messages]

    def _encode(self, text: str, fence: str) -> Tokens:
        """Encode the template's text with special tokens, and fenced text as plain text."""
        if not fence:
            return self.tokenizer.encode(text, special=True)
        encode = self.tokenizer.encode
        parts = enumerate(re.split(f"{fence[0]}([^{fence}]*){fence[1]}|[{fence}]", text))
        return np.concatenate([encode(part or "", special=i % 2 == 0) for i, part in parts])


def _remove_space(text: str) -> str:
    return "".join(text.split())


def _continue_turn(before: str, message: Message) -> tuple[str, Message]:
    """Return the text after the opening of a turn: a closing tag, if a thought is open and the
    message does not close it, and the rest of the message."""
    opened = _OPEN_THOUGHT.search(before)
    if opened is None:
        return "", message
    if f"</{opened[1]}>" not in message.content:
        return f"\n</{opened[1]}>\n\n", message
    start = re.match(rf"\s*<{opened[1]}>{opened[2]}|\s*<{opened[1]}>", message.content)
    return "", replace(message, content=message.content[start.end() if start else 0 :])
