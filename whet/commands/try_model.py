"""Ask a trained model something."""

from functools import partial
from pathlib import Path

import typer
from rich.markup import escape

from whet import toml
from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig
from whet.errors import ConfigError, visible
from whet.models.source import ModelSource, open_model, read_run_prompt, torch_device, torch_dtype
from whet.rng import derive
from whet.store.run import RunStore, stage_folders
from whet.tasks.base import Task, explain_user_errors, grade_safely, is_builtin
from whet.tasks.task_config import build_task, read_task_config
from whet.text.chat import PromptConfig
from whet.track.progress import console
from whet.train.policy import Policy, build_policy
from whet.types import Message, Problem, Verdict
from whet.user_code import read_settings

STYLES = {
    Verdict.CORRECT: "bold green",
    Verdict.WRONG: "bold red",
    Verdict.NO_ANSWER: "bold yellow",
    Verdict.UNSCORED: "dim",
}


def ask(location: str, question: str, *, samples: int, max_tokens: int, seed: int) -> None:
    """Print the model's answers to a question, the first one greedy, each with its verdict where
    the model's run names a task."""
    if any("\ud800" <= letter <= "\udfff" for letter in question):
        raise ConfigError(f"the question {question!r} is not text in UTF-8")
    policy = open_policy(location, slots=samples)
    task = _task(location)
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

    answers = dict(policy.engine.generate(request(number) for number in range(samples)))
    for number in range(samples):
        text = policy.chat.decode_message(answers[str(number)].tokens)
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
        return task.parse_question(question)


def open_policy(location: str, *, slots: int) -> Policy:
    """Load a model from a run folder, with its prompt, a model folder or the hub."""
    model, tokenizer = open_model(
        ModelSource(path=location),
        dtype=torch_dtype("auto"),
        device=torch_device(),
        texts=[],
        seed=0,
    )
    prompt = read_settings(PromptConfig, read_run_prompt(location))
    engine = NativeConfig(max_num_seqs=slots)
    return build_policy(model, tokenizer, engine, name=location, prompt=prompt)


def _check_question(question: str, num_tokens: int, policy: Policy) -> None:
    """Refuse a question the model cannot encode: it would answer another one."""
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
            f"the question is a prompt of {num_tokens} tokens, "
            "which leaves no room for an answer in the model's "
            f"context of {policy.engine.max_model_len}; ask something shorter"
        )


def _task(location: str) -> Task | None:
    """The task a run was trained on; None for a bare model."""
    folder = Path(location)
    for run_folder in (folder, *reversed(stage_folders(folder))):
        file = RunStore(run_folder, lock=None).config_file
        if file.is_file() and isinstance(table := toml.read(file).get("task"), dict):
            return build_task(read_task_config(table))
    return None
