"""What a stage reads, as far as it is there before the first stage runs: its problems, its
responses to imitate, and the tokenizer of its model.

`@stage` is followed to where it begins: a model to the one that an earlier stage starts from,
problems to the task of the `make` stage that will list them.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from whet.config import to_toml
from whet.data.problems import load_split, problem_file
from whet.errors import ConfigError, DataError
from whet.models.source import ModelSource, read_tokenizer
from whet.recipes.stage import ModelStageConfig, StageConfig
from whet.store.files import stream_rows
from whet.tasks.base import Task, keep_solvable, list_problems
from whet.tasks.task_config import build_task
from whet.text.chat import ChatFormat, PromptConfig
from whet.types import Problem, Split

Stages = Mapping[str, StageConfig]
NUM_SAMPLED = 32
"""Rows of a split that the fast preflight reads."""
NUM_FIRST = 4
"""Rows that are read of every split, however long that takes."""
SECONDS = {False: 5.0, True: 25.0}
"""How long rows are read in all, before a run and by `whet check`."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SplitRows:
    """The rows of a split that were looked at; `is_whole` where these are all."""

    problems: list[Problem]
    is_whole: bool

    def __str__(self) -> str:
        return f"{'' if self.is_whole else 'the first '}{len(self.problems):,}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ModelText:
    """How a model reads messages, its vocabulary and its longest context."""

    chat: ChatFormat
    vocab_size: int
    positions: int


class InputReader:
    """Reads the inputs of stages, each once."""

    def __init__(self, stages: Stages, *, is_thorough: bool) -> None:
        self.stages = stages
        self.is_thorough = is_thorough
        self._end = time.monotonic() + SECONDS[is_thorough]
        self._tasks: dict[str, Task] = {}
        self._rows: dict[tuple[str, str | None, Split], SplitRows] = {}
        self._models: dict[str, ModelText] = {}

    def open_task(self, stage: StageConfig) -> Task:
        """Build the task of a stage; that of the `make` stage which lists its problems, if any."""
        source = self._find_maker(stage) or stage
        key = to_toml(source.task)
        if key not in self._tasks:
            self._tasks[key] = build_task(source.task)
        return self._tasks[key]

    def find_folder(self, stage: StageConfig) -> str | None:
        """Find the folder of a stage's problems; None where they are the task's own."""
        return None if self._find_maker(stage) else stage.inputs.get("problems")

    def read_split(self, stage: StageConfig, split: Split) -> SplitRows | None:
        """Read rows of a split; None where an earlier stage has yet to write them."""
        folder = self.find_folder(stage)
        if folder is not None and folder.startswith("@"):
            return None
        task = self.open_task(stage)
        key = (f"{task!r}", folder, split)
        if key not in self._rows:
            self._rows[key] = self._take(_list_sources(task, folder, split))
        rows = self._rows[key]
        kept = rows.problems if stage.asks_unsolvable else keep_solvable(rows.problems)
        return SplitRows(problems=kept, is_whole=rows.is_whole)

    def read_model(self, origin: ModelSource, prompt: PromptConfig) -> ModelText | None:
        """Read how a model encodes prompts; None where it starts from random weights."""
        if origin.new is not None:
            return None
        key = to_toml(origin) + to_toml(prompt)
        if key not in self._models:
            shape, tokenizer = read_tokenizer(origin)
            chat = ChatFormat(tokenizer, prompt)
            self._models[key] = ModelText(
                chat=chat, vocab_size=shape.vocab_size, positions=shape.max_positions
            )
        return self._models[key]

    def _find_maker(self, stage: StageConfig) -> StageConfig | None:
        """Find the earlier stage that will list the problems of a stage."""
        folder = stage.inputs.get("problems", "")
        maker = self.stages.get(folder[1:]) if folder.startswith("@") else None
        return maker if maker is not None and maker.lists_problems else None

    def _take(self, sources: Sequence[Iterator[Problem]]) -> SplitRows:
        """Read rows until there are enough, or time is up; a few are read in any case."""
        parts: list[list[Problem]] = []
        is_whole = True
        for rows in sources:
            part = []
            for problem in rows:
                part.append(problem)
                is_late = len(part) >= NUM_FIRST and time.monotonic() > self._end
                if is_late or (len(part) == NUM_SAMPLED and not self.is_thorough):
                    is_whole = False
                    break
            parts.append(part)
        return SplitRows(problems=[row for part in parts for row in part], is_whole=is_whole)


def follow_model(stages: Stages, source: ModelSource) -> ModelSource:
    """Follow a model through earlier stages to where it comes from; the last chat template that a
    stage sets is the one that counts."""
    template = source.chat_template
    while source.path is not None and source.path.startswith("@"):
        earlier = stages.get(source.path[1:])
        if not isinstance(earlier, ModelStageConfig):
            kind = "no stage" if earlier is None else f"of kind {earlier.kind!r}"
            raise ConfigError(
                f'model.path = "{source.path}" has no model, since {source.path[1:]} is {kind}: '
                "name a stage that trains one, such as sft or rl"
            )
        source = earlier.model
        template = template or source.chat_template
    if source.new is not None or template == source.chat_template:
        return source
    return source.model_copy(update={"chat_template": template})


def _list_sources(task: Task, folder: str | None, split: Split) -> list[Iterator[Problem]]:
    """List where the rows of a split come from: a file, or the task, or those of a mix."""
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
