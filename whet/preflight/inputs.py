"""Read the inputs of a stage that exist before the first stage runs: problems, responses to
imitate, the model's tokenizer. Try grader and reward on the first rows: the reference is right,
nonsense is not, and every part that the reward weighs is scored.

`@stage` is resolved to its origin: a model to the one that an earlier stage starts from, problems
to the folder that a `difficulty` stage filters, or to the task of the `make` stage that lists them.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path

import numpy as np

from whet.batching.rollout_datasets import list_texts, read_data
from whet.config import to_toml
from whet.data.problems import load_split, problem_file
from whet.errors import ConfigError, DataError
from whet.grading.grader import Grader
from whet.grading.limits import LATE, GradingConfig
from whet.models.source import ModelSource, read_tokenizer
from whet.rewards.spec import RewardSpec
from whet.stages.stage import ModelStageConfig, StageConfig, Stages
from whet.store.files import stream_rows
from whet.tasks.base import (
    Task,
    describe_grader,
    explain_user_errors,
    is_builtin,
    keep_solvable,
    list_problems,
    own_code_path,
)
from whet.tasks.task_config import build_task
from whet.text.chat import ChatFormat, PromptConfig
from whet.text.tokenizer import train_tokenizer
from whet.types import Problem, Rollout, Score, Split, Verdict

NUM_SAMPLED = 32
"""Rows of a split that the fast preflight reads."""
NUM_FIRST = 4
"""Rows that are read of every split even if time is up."""
SECONDS = {False: 5.0, True: 25.0}
"""Total seconds for reading rows: before a run, and in `whet check` (thorough)."""
NUM_GRADED = 4
"""Rows per task on which its grader is tried."""
NO_RESPONSES = ("qwx vrrk tpl", "")
"""Texts that no grader should accept."""
RATIO_PARTS = {"feasible", "value", "optimum"}
"""Parts that the shaping term `quality` reads."""
Graded = list[tuple[Problem, str, Score]]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitRows:
    """The rows that were read of a split; `is_whole` if they are all."""

    problems: list[Problem]
    is_whole: bool

    def __str__(self) -> str:
        return f"{'' if self.is_whole else 'the first '}{len(self.problems):,}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelText:
    """A model's chat format, vocabulary size and longest context."""

    chat: ChatFormat
    vocab_size: int
    positions: int
    context_key: str = "engine.max_model_len"
    """The setting to raise for a longer context."""


class InputReader:
    """Reads the inputs of stages, each once."""

    def __init__(self, stages: Stages, *, is_thorough: bool) -> None:
        self.stages = stages
        self.is_thorough = is_thorough
        self._end = time.monotonic() + SECONDS[is_thorough]
        self._tasks: dict[str, Task] = {}
        self._rows: dict[tuple[str, str | None, Split], SplitRows] = {}
        self._models: dict[str, ModelText] = {}
        self._responses: dict[str, list[Rollout] | None] = {}

    @property
    def is_late(self) -> bool:
        """Whether the time for reading rows is up."""
        return time.monotonic() > self._end

    def build_stage_task(self, stage: StageConfig) -> Task:
        """Build the task of a stage, or of the stage that its problems come from."""
        source = self._find_maker(stage) or stage
        key = to_toml(source.task)
        if key not in self._tasks:
            self._tasks[key] = build_task(source.task)
        return self._tasks[key]

    def find_folder(self, stage: StageConfig) -> str | None:
        """Find the folder of a stage's problems; None if the task generates them."""
        return (self._find_maker(stage) or stage).inputs.get("problems")

    def read_split(self, stage: StageConfig, split: Split) -> SplitRows | None:
        """Read rows of a split; None if an earlier stage will write them."""
        folder = self.find_folder(stage)
        if folder is not None and folder.startswith("@"):
            return None
        task = self.build_stage_task(stage)
        key = (f"{task!r}", folder, split)
        if key not in self._rows:
            self._rows[key] = self._read_rows(_list_sources(task, folder, split))
        rows = self._rows[key]
        kept = rows.problems if stage.asks_unsolvable else keep_solvable(rows.problems)
        return SplitRows(problems=kept, is_whole=rows.is_whole)

    def read_model(self, origin: ModelSource, prompt: PromptConfig) -> ModelText | None:
        """Read how a model encodes prompts; None if that is not known before the run."""
        if origin.new is not None:
            return self._predict_model(origin, prompt)
        key = to_toml(origin) + to_toml(prompt)
        if key not in self._models:
            shape, tokenizer = read_tokenizer(origin)
            chat = ChatFormat(tokenizer, prompt)
            self._models[key] = ModelText(
                chat=chat, vocab_size=shape.vocab_size, positions=shape.max_positions
            )
        return self._models[key]

    def read_responses(self, stage: StageConfig) -> list[Rollout] | None:
        """Read the responses in a stage's `data`; `whet check` predicts those of an earlier stage
        if that is quick."""
        location = stage.inputs["data"]
        if location not in self._responses:
            is_later = location.startswith("@")
            self._responses[location] = (
                self._predict_responses(location[1:]) if is_later else read_data(location)
            )
        rollouts = self._responses[location]
        return None if rollouts is None else stage.select_responses(rollouts)

    def _predict_responses(self, name: str) -> list[Rollout] | None:
        maker = self.stages.get(name)
        if not self.is_thorough or maker is None or not maker.splits:
            return None
        rows = self.read_split(maker, maker.splits[0])
        if rows is None:
            return None
        rollouts: list[Rollout] = []
        for start in range(0, len(rows.problems), NUM_SAMPLED):
            some = maker.predict_responses(rows.problems[start : start + NUM_SAMPLED])
            if some is None or self.is_late:
                return None
            rollouts += some
        return rollouts

    def _predict_model(self, origin: ModelSource, prompt: PromptConfig) -> ModelText | None:
        """Train a new model's tokenizer on the responses that the model will train on."""
        stages = [stage for stage in self.stages.values() if isinstance(stage, ModelStageConfig)]
        first = next((stage for stage in stages if stage.model is origin), None)
        if not self.is_thorough or first is None or "data" not in first.inputs:
            return None
        rollouts = self.read_responses(first)
        if not rollouts:
            return None
        texts = list_texts(rollouts, first.prompt)
        tokenizer = train_tokenizer(texts, max_pieces=origin.max_pieces, pieces=origin.pieces)
        return ModelText(
            chat=ChatFormat(tokenizer, prompt),
            vocab_size=tokenizer.vocab_size,
            positions=origin.positions,
            context_key="model.positions",
        )

    def _find_maker(self, stage: StageConfig) -> StageConfig | None:
        """Find the earliest stage that the problems of a stage come from, if any."""
        folder = stage.inputs.get("problems", "")
        maker = self.stages.get(folder[1:]) if folder.startswith("@") else None
        if maker is None or not maker.lists_problems:
            return None
        return self._find_maker(maker) or maker

    def _read_rows(self, sources: Sequence[Iterator[Problem]]) -> SplitRows:
        """Read rows of each source until there are enough or time is up, but always a few."""
        parts: list[list[Problem]] = []
        is_whole = True
        for rows in sources:
            part = []
            for problem in rows:
                part.append(problem)
                is_late = len(part) >= NUM_FIRST and self.is_late
                if is_late or (len(part) == NUM_SAMPLED and not self.is_thorough):
                    is_whole = False
                    break
            parts.append(part)
        return SplitRows(problems=[row for part in parts for row in part], is_whole=is_whole)


def follow_model(stages: Stages, source: ModelSource) -> ModelSource:
    """Follow a model through earlier stages to its origin; the chat template of the latest stage
    that sets one applies."""
    template = source.chat_template
    while source.path is not None and source.path.startswith("@"):
        earlier = stages.get(source.path[1:])
        if earlier is None or "model" not in earlier.models:
            kind = "no stage" if earlier is None else f"of kind {earlier.kind!r}"
            raise ConfigError(
                f'model.path = "{source.path}" has no model, since {source.path[1:]} is {kind}: '
                "name a stage that trains one, such as sft or rl"
            )
        source = earlier.models["model"]
        template = template or source.chat_template
    if source.new is not None or template == source.chat_template:
        return source
    return source.model_copy(update={"chat_template": template})


def _list_sources(task: Task, folder: str | None, split: Split) -> list[Iterator[Problem]]:
    """List the sources of a split's rows: a file, the task, or each task of a mix."""
    if folder is None:
        return [list_problems(subtask, split) for subtask in task.subtasks]
    file = problem_file(Path(folder), split)
    return [_stream(file) if file.is_file() else iter(load_split(task, folder, split))]


def _stream(file: Path) -> Iterator[Problem]:
    for number, row in stream_rows(file):
        try:
            yield Problem.from_json(row)
        except DataError as error:
            raise DataError(f"{file} line {number}: {error}") from error


def choose_rows(problems: Sequence[Problem]) -> list[Problem]:
    """Take the first rows of each task."""
    chosen: list[Problem] = []
    for problem in problems:
        if sum(other.task == problem.task for other in chosen) < NUM_GRADED:
            chosen.append(problem)
    return chosen


def check_row_tasks(task: Task, problems: Sequence[Problem], where: str) -> None:
    """Refuse rows of a task that the stage does not grade."""
    known = [subtask.name for subtask in task.subtasks]
    for problem in problems:
        if problem.task not in known:
            raise DataError(
                f"problem {problem.id} of {where} is of the task {problem.task!r}; this grader has "
                f"{', '.join(sorted(known))}: set task to it, or give other problems"
            )


def grade_rows(
    task: Task, problems: Sequence[Problem], limits: GradingConfig
) -> tuple[Graded, int]:
    """Grade the reference of each row, a nonsense text and an empty one; also return the number of
    rows that have a reference. The first timeout of a user's grader raises: waiting for the others
    would take minutes."""
    texts = [(problem, text) for problem in problems for text in NO_RESPONSES]
    with explain_user_errors(task):
        golds = [(problem, task.solve(problem, 0)) for problem in problems]
    texts += [(problem, gold) for problem, gold in golds if gold is not None]
    lenient = limits.model_copy(update={"unscored_fraction": 1.0})
    scores: dict[int, Score] = {}
    with Grader(task, lenient, num_responses=len(texts)) as grader:
        responses = ((index, *pair) for index, pair in enumerate(texts))
        for index, score in grader.grade(responses):
            scores[index] = score
            problem, text = texts[index]
            subtask = _subtask_of(task, problem)
            if score.note.startswith(LATE) and not is_builtin(subtask):
                raise DataError(
                    f"{describe_grader(subtask)} hangs on {text[:80]!r} ({score.note}): let its "
                    "score end soon on any text, or raise grading.wall"
                )
    graded = [(problem, text, scores[index]) for index, (problem, text) in enumerate(texts)]
    return graded, len(texts) - len(NO_RESPONSES) * len(problems)


def find_fault(task: Task, graded: Graded) -> str | None:
    """Describe the first unexpected verdict."""
    for problem, text, score in graded:
        note = f" ({score.note})" if score.note else ""
        is_right = score.verdict is Verdict.CORRECT
        subtask = _subtask_of(task, problem)
        grader = describe_grader(subtask)
        fails = f"{grader} fails on its own data: {text[:80]!r}"
        if score.verdict is Verdict.UNSCORED:
            own = "" if is_builtin(subtask) else f" {own_code_path(subtask)}"
            return (
                f"{grader} cannot grade a response to {problem.id}{note}: "
                f"`whet tasks check{own}` tries it on its own problems"
            )
        if text not in NO_RESPONSES and not is_right:
            return (
                f"{fails}, the reference of {problem.id}, is graded {score.verdict}{note}: fix "
                "the row's answer, or choose another task"
            )
        if text in NO_RESPONSES and is_right:
            return f"{fails} is graded correct for {problem.id}{note}: fix the grader"
    return None


def _subtask_of(task: Task, problem: Problem) -> Task:
    return next(subtask for subtask in task.subtasks if subtask.name == problem.task)


def check_reward(reward: RewardSpec, graded: Graded, key: str = "reward") -> None:
    """Reward the graded texts as a step does; raise if a part is not scored, or if the user's own
    function fails."""
    for problem, text, score in graded:
        _check_parts(reward, problem, score, key)
        rollout = Rollout.from_text(problem, text, model="check", score=score)
        tokens = np.zeros(max(len(text) // 4, 1), dtype=np.int32)
        completion = replace(rollout.completion, tokens=tokens, logprobs=tokens.astype(np.float32))
        reward.apply_to(replace(rollout, completion=completion))
    parts = {name for _, _, score in graded for name in score.parts}
    reads_ratio = any(term.kind == "quality" for term in reward.terms)
    if graded and reads_ratio and not RATIO_PARTS & parts:
        raise ConfigError(
            f'{key}.terms has kind = "quality", which reads {", ".join(sorted(RATIO_PARTS))}, and '
            f"{graded[0][0].task} scores none of them: {', '.join(sorted(parts))}"
        )


def _check_parts(reward: RewardSpec, problem: Problem, score: Score, key: str) -> None:
    known = sorted(score.parts)
    for name in reward.weights:
        if name not in score.parts:
            close = get_close_matches(name, known, n=1, cutoff=0.6)
            hint = f"; did you mean {close[0]!r}?" if close else ""
            raise ConfigError(
                f"{key}.weights names {name!r}, which {problem.task} does not score: "
                f"{', '.join(known)}{hint}"
            )
