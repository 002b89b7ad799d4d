"""Problems and messages to tokens and back, by a model's own chat template."""

import re
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from whet.errors import ConfigError, DataError
from whet.text.prompt import NO_PROMPT, PromptConfig
from whet.text.template import Template
from whet.text.tokenizer import Tokenizer
from whet.types import Json, Message, Problem, Tokens

PRIVATE_USE = tuple(chr(code) for code in range(0xE000, 0xF8FF))
PROBE = "whetprobe"
STANDARD = frozenset(
    ("messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token")
)
"""Variables of every template; others are options."""
_OPEN_THOUGHT = re.compile(r"<(think|thinking|thought|reasoning)>(\s*)\Z")


class ChatFormat:
    """The chat format of one model: its prompts, its stop tokens, and the text of its answers.

    Special tokens written in a message are plain text to the model; only the template's own words
    become real ones.
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
                "the model has no stop token: "
                "neither an eos_token nor one at the end of a chat turn"
            )

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool, **kwargs: Json
    ) -> str:
        """Render messages as text; `kwargs` go to the template, such as `enable_thinking=False`."""
        rows: Json = [{"role": message.role, "content": message.content} for message in messages]
        fixed: dict[str, Json] = {"messages": rows, "tools": None, "documents": None}
        fixed["add_generation_prompt"] = add_generation_prompt
        options = {**self.prompt.chat_options, **kwargs}
        return self._template.render({**self.tokenizer.named, **fixed, **options})

    def encode_problem(self, problem: Problem) -> Tokens:
        """Encode a problem as the prompt settings put it, for an engine to answer."""
        return self.encode_prompt(self.prompt.apply(problem))

    def encode_answer(self, problem: Problem, text: str) -> tuple[Tokens, NDArray[np.bool_]]:
        """Encode a problem as `encode_problem` does and an answer to it, with a mask of that."""
        answer = Message(role="assistant", content=text)
        return self.conversation([*self.prompt.apply(problem), answer])

    def encode_prompt(self, messages: Sequence[Message], **kwargs: Json) -> Tokens:
        """Encode messages and the opening of the assistant's turn, for an engine to continue."""
        fence = self._choose_fence(messages)
        text = self.render(self._fence_specials(messages, fence), True, **kwargs)
        return self._encode(text, fence)

    def conversation(
        self, messages: Sequence[Message], **kwargs: Json
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Encode a whole conversation for SFT, with a mask of its last message and stop token.

        The tokens begin exactly with `encode_prompt` of the messages before it. Text that the
        template adds to the response, such as an empty thought, is part of the response. Where the
        template would drop part of it, as R1's drops thoughts, or rewrites the prompt once it is
        answered, the response follows the prompt word by word, as a model would sample it.
        """
        if not messages or messages[-1].role != "assistant":
            raise DataError("a conversation to learn from must end with an assistant message")
        fence = self._choose_fence(messages)
        fenced = self._fence_specials(messages, fence)
        before = self.render(fenced[:-1], True, **kwargs)
        whole = self.render(fenced, False, **kwargs)
        response = whole.removeprefix(before)
        # The opening of the turn may already hold the start of the content, such as <think>.
        content = _remove_space(fenced[-1].content)
        start = _remove_space(before)[-len(content) :]
        if not whole.startswith(before) or content not in start + _remove_space(response):
            opening, rest = _continue_turn(before, messages[-1])
            response = opening + self._fence_specials([rest], fence)[0].content
        prompt = self._encode(before, fence)
        answer = self._cut_at_stop(self._encode(response, fence))
        is_response = np.repeat([False, True], [len(prompt), len(answer)])
        return np.concatenate([prompt, answer]), is_response

    def decode_message(self, tokens: Tokens) -> str:
        """Decode an answer, without the stop token it ended with."""
        return self.tokenizer.decode(self._drop_stop(tokens))

    def spans(self, tokens: Tokens) -> list[tuple[int, int]]:
        """Return each token's span of characters in the message, without the stop token."""
        return self.tokenizer.spans(self._drop_stop(tokens))

    def _check_prompt(self) -> None:
        """Refuse prompt settings that this template ignores."""
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
        """Find the special token that the template writes after an assistant's content, if any."""
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
        # A template that leaves the turn open, as GLM's does, ends it with the next role; an answer
        # has to end itself.
        eos = self.stop_tokens if self.tokenizer.eos is None else [self.tokenizer.eos]
        return np.append(tokens, np.int32(min(self._turn_ends or eos)))

    def _choose_fence(self, messages: Sequence[Message]) -> str:
        """Choose two unused characters to fence special tokens in; "" if no message has any."""
        text = "".join(message.content for message in messages)
        if not self._special.search(text):
            return ""
        free = [character for character in PRIVATE_USE if character not in text][:2]
        if len(free) < 2:
            raise DataError(
                "the messages use every private-use character, "
                "so special tokens cannot be told from text"
            )
        return "".join(free)

    def _fence_specials(self, messages: Sequence[Message], fence: str) -> list[Message]:
        if not fence:
            return list(messages)
        fenced = f"{fence[0]}\\g<0>{fence[1]}"
        return [replace(m, content=self._special.sub(fenced, m.content)) for m in messages]

    def _encode(self, text: str, fence: str) -> Tokens:
        """Encode the template's words with special tokens, and fenced text as plain text."""
        if not fence:
            return self.tokenizer.encode(text, special=True)
        encode = self.tokenizer.encode
        parts = enumerate(re.split(f"{fence[0]}([^{fence}]*){fence[1]}|[{fence}]", text))
        return np.concatenate([encode(part or "", special=i % 2 == 0) for i, part in parts])


def _remove_space(text: str) -> str:
    return "".join(text.split())


def _continue_turn(before: str, message: Message) -> tuple[str, Message]:
    """Return what follows the opening of a turn: the closing tag of an open thought if the message
    lacks it, and the rest of the message."""
    opened = _OPEN_THOUGHT.search(before)
    if opened is None:
        return "", message
    if f"</{opened[1]}>" not in message.content:
        return f"\n</{opened[1]}>\n\n", message
    start = re.match(rf"\s*<{opened[1]}>{opened[2]}|\s*<{opened[1]}>", message.content)
    return "", replace(message, content=message.content[start.end() if start else 0 :])
