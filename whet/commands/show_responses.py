"""Print responses: stored rollouts, and a trained model's responses to a question."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, islice
from pathlib import Path

import numpy as np
import typer
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.text import Text

from whet import toml
from whet.commands.problem_files import list_sections, print_sections, shorten_text
from whet.config import Config, load_settings
from whet.data.import_rows import stream_problems
from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig
from whet.errors import ConfigError, DataError, visible
from whet.models.source import (
    ModelSource,
    load_model,
    read_run_prompt,
    read_tokenizer,
    torch_device,
    torch_dtype,
)
from whet.rng import derive
from whet.store.rollouts import is_rollout_file, read_rollouts
from whet.store.run import RunStore, stage_folders
from whet.tasks.base import Task, explain_user_errors, grade_safely, is_builtin, list_problems
from whet.tasks.task_config import build_task, read_task_config
from whet.text.chat import NO_PROMPT, ChatFormat, PromptConfig
from whet.text.tokenizer import Tokenizer
from whet.toml import Table
from whet.track.progress import console
from whet.train.policy import Policy, build_policy
from whet.types import SPLITS, FinishReason, Message, Problem, Rollout, Tokens, Verdict
from whet.user_code import validate_settings

_SPECIAL = "bold reverse magenta"
RESPONSE = "green"
STYLES = {
    Verdict.CORRECT: "bold green",
    Verdict.WRONG: "bold red",
    Verdict.NO_ANSWER: "bold yellow",
    Verdict.UNSCORED: "dim",
}


def has_rollouts(file: Path) -> bool:
    """Whether a file holds rollouts, not problems."""
    return file.suffix == ".parquet" and file.is_file() and is_rollout_file(file)


def show_rollouts(file: Path, n: int = 3, *, console: Console | None = None) -> None:
    """Print the first rollouts of a file."""
    if n < 1:
        raise ConfigError(f"-n {n} should be at least 1")
    console = console or Console(highlight=False)
    rollouts = read_rollouts(file, limit=n)
    for rollout in rollouts:
        print_sections(console, format_rollout_heading(rollout), list_rollout_sections(rollout))
    if not rollouts:
        raise DataError(f"{file} has no rollouts")


def format_rollout_heading(rollout: Rollout) -> str:
    """Write a rollout's id, author, verdict and reward in one line."""
    parts = [rollout.id, f"{rollout.author} {rollout.model}".strip()]
    parts.append("not graded" if rollout.score is None else rollout.score.verdict.replace("_", " "))
    if rollout.reward is not None:
        parts.append(f"reward {rollout.reward:g}")
    if num_tokens := len(rollout.completion.tokens):
        parts.append(f"{num_tokens:,} tokens")
    if rollout.completion.finish_reason is FinishReason.LENGTH:
        parts.append("cut off at the limit")
    return visible(" · ".join(parts))


def list_rollout_sections(rollout: Rollout) -> list[tuple[str, str]]:
    """List the titles and texts below the heading: the problem, the response, its score."""
    sections = [*list_sections(rollout.problem), ("response", shorten_text(rollout.text))]
    if rollout.score is not None:
        scored = [f"{name}: {value:g}" for name, value in rollout.score.parts.items()]
        if rollout.score.answer is not None:
            scored.append(f"read as: {rollout.score.answer}")
        if rollout.score.note:
            scored.append(f"note: {rollout.score.note}")
        sections.append(("score", shorten_text("\n".join(scored))))
    return sections


class ShowSettings(Config):
    """The model and prompt settings for showing tokens."""

    model: ModelSource
    """The model."""
    prompt: PromptConfig = NO_PROMPT
    """How problems are put to it."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Shown:
    """A row as the model sees it; for a bare problem no token is a response."""

    name: str
    tokens: Tokens
    is_response: NDArray[np.bool_]


def show_prompts(
    file: Path, n: int, defaults: Table, flags: Sequence[str], *, console: Console | None = None
) -> None:
    """Print the first rows of a file of problems or rollouts as the model's tokens.

    `defaults` has the tables `model` and `prompt`, which flags override. Without a prompt there,
    the model's own run supplies it.
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
    for shown in islice(_read_shown(file, n, chat), n):
        num_response = int(shown.is_response.sum())
        num_prompt = len(shown.tokens) - num_response
        response = f" and {num_response:,} of the response" if num_response else ""
        heading = f"{visible(shown.name)} · {num_prompt:,} tokens of the prompt{response}"
        console.print(heading, style="bold", markup=False, soft_wrap=True)
        console.print(render_tokens(shown, tokenizer), soft_wrap=True)
        console.print()
        lengths.append(len(shown.tokens))
    if not lengths:
        raise DataError(f"{file} has no problems")
    context = f"the model reads {shape.max_positions:,}"
    console.print(f"{min(lengths):,} to {max(lengths):,} tokens; {context}", style="dim")


def render_tokens(shown: Shown, tokenizer: Tokenizer) -> Text:
    """Write tokens as text, with special tokens and the response in colours."""
    special = {tokenizer.id(text) for text in tokenizer.special_texts}
    marks = zip(np.isin(shown.tokens, [*special]), shown.is_response, strict=True)
    runs = groupby(zip(shown.tokens.tolist(), marks, strict=True), key=lambda pair: pair[1])
    text = Text()
    for (is_special, is_response), run in runs:
        part = visible(tokenizer.decode([token for token, _ in run], keep_special=True))
        text.append(part, style=_SPECIAL if is_special else RESPONSE if is_response else "")
    return text


def _read_shown(file: Path, n: int, chat: ChatFormat) -> Iterator[Shown]:
    if file.suffix == ".parquet":
        for rollout in read_rollouts(file, limit=n):
            tokens, is_response = chat.encode_response(rollout.problem, rollout.text)
            yield Shown(name=rollout.id, tokens=tokens, is_response=is_response)
        return
    for problem in stream_problems(file):
        tokens = chat.encode_problem(problem)
        yield Shown(name=problem.id, tokens=tokens, is_response=np.zeros(len(tokens), np.bool_))


def ask_model(location: str, question: str, *, samples: int, max_tokens: int, seed: int) -> None:
    """Print the model's responses to a question, the first one greedy; each has a verdict if the
    model's run names a task."""
    if any("\ud800" <= letter <= "\udfff" for letter in question):
        raise ConfigError(f"the question {question!r} is not text in UTF-8")
    policy = load_run_policy(location, slots=samples)
    task = _load_run_task(location)
    problem = _parse_question(task, question)
    if problem is None:
        own = [Message(role="user", content=question)]
        prompt = policy.chat.encode_prompt(policy.chat.prompt.wrap(own))
    else:
        prompt = policy.chat.encode_problem(problem)
    _check_question(question, len(prompt), policy)

    def request(number: int) -> Request:
        sampling = SamplingParams(temperature=float(number > 0), max_tokens=max_tokens)
        return Request(
            id=str(number), prompt=prompt, sampling=sampling, seed=derive(seed, "try", number)
        )

    completions = dict(policy.engine.generate(request(number) for number in range(samples)))
    for number in range(samples):
        text = policy.chat.decode_message(completions[str(number)].tokens)
        if samples > 1:
            console.print(f"[dim]{'sampled' if number else 'greedy'}:[/]")
        typer.echo(visible(text))
        if task is not None and problem is not None:
            with explain_user_errors(task):
                grade = partial(grade_safely, task) if is_builtin(task) else task.score
                score = grade(problem, text)
            console.print(
                f"[{STYLES[score.verdict]}]{score.verdict.replace('_', ' ')}[/]: "
                f"{escape(visible(score.note))}\n"
            )


def _parse_question(task: Task | None, question: str) -> Problem | None:
    if task is None:
        return None
    with explain_user_errors(task):
        problem = task.parse_question(question)
    own = [] if problem else [part for part in task.subtasks if not is_builtin(part)]
    listed = (row for part in own for split in SPLITS for row in list_problems(part, split))
    return problem or next((row for row in listed if row.prompt[-1].content == question), None)


def load_run_policy(location: str, *, slots: int) -> Policy:
    """Load a model from a run folder with its prompt, from a model folder, or from the hub."""
    model, tokenizer = load_model(
        ModelSource(path=location),
        dtype=torch_dtype("auto"),
        device=torch_device(),
        texts=[],
        seed=0,
    )
    prompt = validate_settings(PromptConfig, read_run_prompt(location))
    engine = NativeConfig(max_num_seqs=slots)
    return build_policy(model, tokenizer, engine, name=location, prompt=prompt)


def _check_question(question: str, num_tokens: int, policy: Policy) -> None:
    """Refuse a question that the tokenizer cannot encode exactly: the model would answer a
    different one."""
    tokenizer = policy.tokenizer
    if "unk_token" in tokenizer.named:
        unknown = tokenizer.id(tokenizer.named["unk_token"])
        strange = "".join(
            letter for letter in dict.fromkeys(question) if unknown in tokenizer.encode(letter)
        )
        if strange:
            raise ConfigError(
                f"the question has characters that the model does not know: {strange!r}; "
                "leave them out"
            )
    if num_tokens >= policy.engine.max_model_len:
        raise ConfigError(
            f"the question is a prompt of {num_tokens} tokens, which leaves no room for a response "
            f"in the model's context of {policy.engine.max_model_len}; ask something shorter"
        )


def _load_run_task(location: str) -> Task | None:
    """Load the task that a run was trained on; None for a bare model."""
    folder = Path(location)
    for run_folder in (folder, *reversed(stage_folders(folder))):
        file = RunStore(run_folder, lock=None).config_file
        if file.is_file() and isinstance(table := toml.read(file).get("task"), dict):
            return build_task(read_task_config(_locate_user_task(table, run_folder)))
    return None


def _locate_user_task(table: Table, run_folder: Path) -> Table:
    """Look for a user's task file in the folder where the run was started, if it is not here."""
    path = table.get("path")
    if not isinstance(path, str) or Path(path.rpartition(":")[0]).is_file():
        return table
    started = RunStore(run_folder, lock=None).provenance().get("folder", "")
    return {**table, "path": str(Path(str(started)) / path)}
