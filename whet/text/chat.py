"""Messages to tokens and back, in the words of a model's own chat template."""

import re
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataError
from whet.text.template import Template
from whet.text.tokenizer import Tokenizer
from whet.types import Json, Message, Tokens

PRIVATE_USE = tuple(chr(code) for code in range(0xE000, 0xF8FF))
PROBE = "whetprobe"


class ChatFormat:
    """How one model is spoken to: the prompt it continues, the tokens it stops at, the text it
    said.

    Special tokens written in a message are text to the model; only the template's own words make
    real ones.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        if tokenizer.chat_template is None:
            raise DataError(
                "the tokenizer has no chat template; give one in chat_template.jinja of the model folder"
            )
        self.tokenizer = tokenizer
        self._template = Template(tokenizer.chat_template)
        longest_first = sorted(tokenizer.special_texts, key=len, reverse=True)
        self._special = re.compile("|".join(re.escape(text) for text in longest_first) or "(?!)")
        self.stop_tokens: frozenset[int] = tokenizer.eos_tokens | self._end_of_turn()
        if not self.stop_tokens:
            raise DataError(
                "the model has no stop token: neither an eos_token nor one at the end of a chat turn"
            )

    def render(
        self, messages: Sequence[Message], add_generation_prompt: bool, **kwargs: Json
    ) -> str:
        """Write the messages out as text; `kwargs` reach the template, such as
        `enable_thinking=False`."""
        rows: Json = [{"role": message.role, "content": message.content} for message in messages]
        fixed: dict[str, Json] = {"messages": rows, "tools": None, "documents": None}
        return self._template.render(
            {
                **self.tokenizer.named,
                **fixed,
                "add_generation_prompt": add_generation_prompt,
                **kwargs,
            }
        )

    def prompt(self, messages: Sequence[Message], **kwargs: Json) -> Tokens:
        """Write the messages and the opening of the assistant's turn: what an engine continues."""
        marks = self._marks(messages)
        return self._encode(self.render(self._marked(messages, marks), True, **kwargs), marks)

    def conversation(
        self, messages: Sequence[Message], **kwargs: Json
    ) -> tuple[Tokens, NDArray[np.bool_]]:
        """Write a finished conversation for SFT, with a mask of its last message, stop token
        included.

        The tokens begin with exactly what `prompt` gives for the messages before; what the template
        adds to the response, an empty thought for instance, is part of the response.
        """
        if not messages or messages[-1].role != "assistant":
            raise DataError("a conversation to learn from must end with an assistant message")
        marks = self._marks(messages)
        marked = self._marked(messages, marks)
        before = self.render(marked[:-1], True, **kwargs)
        whole = self.render(marked, False, **kwargs)
        if not whole.startswith(before):
            raise DataError(
                f"the chat template rewrites the prompt once it is answered: {_difference(before, whole)}"
            )
        response = whole[len(before) :]
        content = _squashed(marked[-1].content)
        # The opening of the turn may already hold the start of the content, such as <think>.
        if content not in _squashed(before)[-len(content) :] + _squashed(response):
            raise DataError(
                f"the chat template drops part of the response {messages[-1].content[:80]!r}"
            )
        prompt = self._encode(before, marks)
        answer = self._until_stop(self._encode(response, marks))
        is_response = np.repeat([False, True], [len(prompt), len(answer)])
        return np.concatenate([prompt, answer]), is_response

    def message(self, tokens: Tokens) -> str:
        """Read what the model said, without the stop token it ended with."""
        return self.tokenizer.decode(self._said(tokens))

    def spans(self, tokens: Tokens) -> list[tuple[int, int]]:
        """Give each token but that stop token its characters of the message, end exclusive."""
        return self.tokenizer.spans(self._said(tokens))

    def _said(self, tokens: Tokens) -> Tokens:
        is_stopped = len(tokens) > 0 and int(tokens[-1]) in self.stop_tokens
        return tokens[:-1] if is_stopped else tokens

    def _end_of_turn(self) -> frozenset[int]:
        """Find the special token that the template writes after an assistant's content, if it
        does."""
        turns = (Message(role="user", content="?"), Message(role="assistant", content=PROBE))
        try:
            text = self.render(turns, False)
        except DataError:
            return frozenset()
        found = (
            self._special.search(text, text.rfind(PROBE) + len(PROBE)) if PROBE in text else None
        )
        return frozenset() if found is None else frozenset([self.tokenizer.id(found[0])])

    def _until_stop(self, tokens: Tokens) -> Tokens:
        stops = np.flatnonzero(np.isin(tokens, list(self.stop_tokens)))
        if len(stops):
            return tokens[: stops[0] + 1]
        # A template that leaves the turn open, as GLM's does, ends it with the next role; here the
        # model stops itself.
        last = self.tokenizer.eos if self.tokenizer.eos is not None else min(self.stop_tokens)
        return np.append(tokens, np.int32(last))

    def _marks(self, messages: Sequence[Message]) -> str:
        """Choose two private characters that no message uses, to fence special tokens in; "" if
        there are none."""
        text = "".join(message.content for message in messages)
        if not self._special.search(text):
            return ""
        free = [mark for mark in PRIVATE_USE if mark not in text][:2]
        if len(free) < 2:
            raise DataError(
                "the messages use every private-use character, so special tokens cannot be told from text"
            )
        return "".join(free)

    def _marked(self, messages: Sequence[Message], marks: str) -> list[Message]:
        if not marks:
            return list(messages)
        fence = f"{marks[0]}\\g<0>{marks[1]}"
        return [Message(role=m.role, content=self._special.sub(fence, m.content)) for m in messages]

    def _encode(self, text: str, marks: str) -> Tokens:
        """Encode the template's words with special tokens, and what is fenced in as plain text."""
        if not marks:
            return self.tokenizer.encode(text, special=True)
        parts = re.split(f"{marks[0]}([^{marks}]*){marks[1]}|[{marks}]", text)
        tokens = [
            self.tokenizer.encode(part or "", special=index % 2 == 0)
            for index, part in enumerate(parts)
        ]
        return np.concatenate(tokens)


def _squashed(text: str) -> str:
    return "".join(text.split())


def _difference(before: str, after: str) -> str:
    place = next(
        (i for i, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), len(after)
    )
    return f"{before[place : place + 40]!r} becomes {after[place : place + 40]!r}"
