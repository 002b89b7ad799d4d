"""Stored rollouts seen as training data: an answer a teacher wrote becomes an SFT example."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from whet.data.examples import Example
from whet.text.chat import ChatFormat
from whet.types import Message, Rollout


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class View:
    """Examples, and how many rollouts were left out because they do not fit the context."""

    examples: list[Example]
    num_too_long: int


def imitation(rollouts: Iterable[Rollout], chat: ChatFormat, max_tokens: int) -> View:
    """Tokenise prompts and answers as the model will see them; the over-long are left out."""
    kept: list[Example] = []
    num_too_long = 0
    for rollout in rollouts:
        tokens, is_response = chat.conversation([*rollout.problem.prompt, _answer(rollout)])
        if len(tokens) > max_tokens:
            num_too_long += 1
            continue
        start = int(np.argmax(is_response))
        kept.append(Example(tokens=tokens, start=start, group=rollout.group, rollout=rollout.id))
    return View(examples=kept, num_too_long=num_too_long)


def texts(rollouts: Sequence[Rollout]) -> list[str]:
    """Every text a model of these rollouts reads or writes, for training a tokenizer."""
    prompts = {message.content for rollout in rollouts for message in rollout.problem.prompt}
    return [*sorted(prompts), *(rollout.text for rollout in rollouts)]


def _answer(rollout: Rollout) -> Message:
    return Message(role="assistant", content=rollout.text)
