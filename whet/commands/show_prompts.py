"""Show what a model sees: problems and answers as its tokens, with special tokens in colour."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.text import Text

from whet.config import Config, load_settings
from whet.data.import_rows import stream_problems
from whet.errors import ConfigError, DataError, visible
from whet.models.source import ModelSource, read_run_prompt, read_tokenizer
from whet.store.rollouts import read_rollouts
from whet.text.chat import ChatFormat
from whet.text.prompt import NO_PROMPT, PromptConfig
from whet.text.tokenizer import Tokenizer
from whet.toml import Table
from whet.types import Problem, Tokens

SPECIAL = "bold reverse magenta"
RESPONSE = "green"


class ShowSettings(Config):
    """Whose tokens are shown, and by which prompt."""

    model: ModelSource
    """The model."""
    prompt: PromptConfig = NO_PROMPT
    """How problems are put to it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """One row as the model sees it; of a problem alone nothing is a response."""

    name: str
    tokens: Tokens
    is_response: NDArray[np.bool_]


def show_prompts(
    file: Path, n: int, defaults: Table, flags: Sequence[str], *, console: Console | None = None
) -> None:
    """Print the first rows of a file of problems or rollouts as the model's tokens.

    `defaults` are the tables `model` and `prompt`, which flags change. Without a prompt, it is that
    of the run which the model belongs to.
    """
    if n < 1:
        raise ConfigError(f"-n {n} should be at least 1")
    model = defaults.get("model")
    path = model.get("path") if isinstance(model, dict) else None
    prompt = read_run_prompt(path) if isinstance(path, str) else {}
    settings = load_settings(ShowSettings, None, flags, defaults={"prompt": prompt} | defaults)
    shape, tokenizer = read_tokenizer(settings.config.model)
    chat = ChatFormat(tokenizer, settings.config.prompt)
    console = console or Console(highlight=False)
    lengths = []
    for shown in islice(_read(file, n, chat), n):
        num_response = int(shown.is_response.sum())
        num_prompt = len(shown.tokens) - num_response
        response = f" and {num_response:,} of the response" if num_response else ""
        heading = f"{visible(shown.name)} · {num_prompt:,} tokens of the prompt{response}"
        console.print(heading, style="bold", markup=False, soft_wrap=True)
        console.print(to_text(shown, tokenizer), soft_wrap=True)
        console.print()
        lengths.append(len(shown.tokens))
    if not lengths:
        raise DataError(f"{file} has no problems")
    context = f"the model reads {shape.max_positions:,}"
    console.print(f"{min(lengths):,} to {max(lengths):,} tokens; {context}", style="dim")


def to_text(shown: Shown, tokenizer: Tokenizer) -> Text:
    """Write tokens as text, with special tokens and the response in colours."""
    special = {tokenizer.id(text) for text in tokenizer.special_texts}
    marks = zip(np.isin(shown.tokens, [*special]), shown.is_response, strict=True)
    runs = groupby(zip(shown.tokens.tolist(), marks, strict=True), key=lambda pair: pair[1])
    text = Text()
    for (is_special, is_response), run in runs:
        part = visible(tokenizer.decode([token for token, _ in run], keep_special=True))
        text.append(part, style=SPECIAL if is_special else RESPONSE if is_response else "")
    return text


def _read(file: Path, n: int, chat: ChatFormat) -> Iterator[Shown]:
    if file.suffix == ".parquet":
        for rollout in read_rollouts(file, limit=n):
            tokens, is_response = chat.encode_answer(rollout.problem, rollout.text)
            yield Shown(name=rollout.id, tokens=tokens, is_response=is_response)
        return
    for problem in stream_problems(file):
        yield _show_problem(problem, chat)


def _show_problem(problem: Problem, chat: ChatFormat) -> Shown:
    tokens = chat.encode_problem(problem)
    return Shown(name=problem.id, tokens=tokens, is_response=np.zeros(len(tokens), dtype=np.bool_))
