"""Check all stages of a file before the first one runs: settings, models, data, templates, graders,
rewards, lengths, memory, disk. Nothing is sampled, and no weights are loaded.

`whet check` reads rows up to a time limit and prints every finding. The preflight before a run
reads a sample, and prints only notes and errors.
"""

from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

from whet.batching.rollout_datasets import make_sft_examples
from whet.data.problems import load_problems
from whet.endpoints.client import Client, EndpointConfig, check_reachable
from whet.endpoints.http import HttpError
from whet.errors import ConfigError, DataError
from whet.grading.limits import GradingConfig
from whet.models.load import HUB_ID
from whet.models.source import ModelSource
from whet.plan.requirements import explain_missing
from whet.preflight.findings import Finding, Findings, Level
from whet.preflight.inputs import (
    NO_RESPONSES,
    Graded,
    InputReader,
    ModelText,
    SplitRows,
    check_reward,
    check_row_tasks,
    choose_rows,
    find_fault,
    follow_model,
    grade_rows,
)
from whet.preflight.lengths import LengthCheck, context_of
from whet.preflight.machine import check_disk, check_memory
from whet.recipes.sft import describe_unseen, refuse_mostly_long
from whet.rewards.shaping import UserTerm
from whet.rewards.spec import RewardSpec
from whet.stages.stage import ModelStageConfig, StageConfig, Stages, TrainingConfig
from whet.store.run import RunStore, model_folder
from whet.tasks.base import Task, describe_grader, is_builtin
from whet.text.chat import NO_PROMPT, PROBE, ChatFormat, PromptConfig
from whet.track.progress import say
from whet.train.learner_factory import choose_learner_factory
from whet.types import Message, Problem, Split, Verdict
from whet.world import get_world

MAX_ENCODED = 2000
"""Responses that `whet check` encodes."""
NUM_RENDERED = 8
"""Responses to imitate that the fast preflight encodes."""
MAX_READ = 50_000_000
"""Most bytes of responses that the fast preflight reads."""


SERVER_TIMEOUT = 5.0
"""Seconds to wait for a reply of a teacher's server."""


def check_before_run(
    stages: Stages, folder: Path, *, is_pipeline: bool, resume: bool = False
) -> None:
    """Run the fast preflight on the first rank; print notes, and raise if there are errors.

    A single stage that is resumed is not checked again, since it reads the same files.
    """

    def inspect_first() -> list[Finding]:
        if resume and not is_pipeline and RunStore(folder, lock=None).config_file.is_file():
            return []
        ranks = get_world().size
        return inspect(stages, folder, is_pipeline=is_pipeline, is_thorough=False, ranks=ranks)

    findings = get_world().run_on_rank_zero(inspect_first, "the preflight")
    for finding in findings:
        if finding.level is Level.NOTE:
            say(f"note: {finding}")
    wrong = [str(finding) for finding in findings if finding.level is Level.WRONG]
    if len(wrong) == 1 and not is_pipeline:
        raise DataError(wrong[0])
    if wrong:
        hint = (
            "\n--smoke runs the same stages on tiny models and generated data"
            if is_pipeline
            else ""
        )
        lines = "\n".join(f"- {line}" for line in wrong)
        raise DataError(f"this cannot run here:\n{lines}{hint}")


def inspect(
    stages: Stages, folder: Path, *, is_pipeline: bool, is_thorough: bool, ranks: int = 1
) -> list[Finding]:
    """Check all stages; `folder` is where they will write."""
    findings = Findings()
    reader = InputReader(stages, is_thorough=is_thorough)
    for name, stage in stages.items():
        StageCheck(reader, findings, name if is_pipeline else "", stage).run()
    with findings.catch("", "memory"):
        check_memory(findings, stages, is_pipeline=is_pipeline, ranks=ranks)
    with findings.catch("", "disk"):
        check_disk(findings, stages, folder)
    return findings.list


@dataclass(frozen=True, slots=True, eq=False)
class StageCheck:
    """Checks one stage, and adds findings under its name."""

    reader: InputReader
    findings: Findings
    name: str
    stage: StageConfig

    def run(self) -> None:
        stage = self.stage
        model = None
        for key, source in stage.models.items():
            text = self._check_model(key, source)
            model = text if key == "model" else model
        with self.findings.catch(self.name, "settings"):
            check_libraries(stage)
        for key, server in stage.servers.items():
            self._check_server(key, server)
        rows = self._read_rows()
        self._check_rows(rows)
        if (data := stage.inputs.get("data")) is not None:
            with self.findings.catch(self.name, "data"):
                self._check_responses(data, model, rows)
        if model is not None and isinstance(stage, ModelStageConfig):
            LengthCheck(self.reader, self.findings, self.name, stage).run(rows, model)
        with self.findings.catch(self.name, "grader"):
            self._check_grader(rows)

    def _pass(self, subject: str, message: str) -> None:
        self.findings.add(self.name, subject, Level.PASSED, message)

    def _note(self, subject: str, message: str) -> None:
        self.findings.add(self.name, subject, Level.NOTE, message)

    @property
    def _prompt(self) -> PromptConfig:
        return self.stage.prompt if isinstance(self.stage, ModelStageConfig) else NO_PROMPT

    def _check_model(self, key: str, source: ModelSource) -> ModelText | None:
        """Read a model's tokenizer and try its chat template."""
        text = None
        with self.findings.catch(self.name, "model"):
            origin = follow_model(self.reader.stages, source)
            _check_place(key, source.path)
            is_named_elsewhere = origin.path != source.path or origin.new is not None
            with suppress(DataError) if is_named_elsewhere else nullcontext():
                text = self.reader.read_model(origin, self._prompt)
        if source.new is not None:
            self._pass("model", f"{key} starts from random weights, size {source.new}")
        if text is not None:
            context = f"context of {text.positions:,} tokens"
            self._pass("model", f"{key}: {context}, chat template renders")
            if not _ends_turns(text.chat):
                self._note(
                    "model",
                    f"the chat template of {key} writes no special token after a response, so that "
                    "only the end-of-sequence token ends one",
                )
        return text

    def _check_server(self, key: str, server: EndpointConfig) -> None:
        """Note a server that cannot be reached; it may still be started later."""
        hurried = server.model_copy(update={"timeout": min(server.timeout, SERVER_TIMEOUT)})
        try:
            check_reachable(Client(hurried))
        except HttpError as error:
            message = f"{key}.url = {server.url!r} cannot be reached: {error}"
            self._note("model", f"{message}; this stage stops without it")
        else:
            self._pass("model", f"{key}: a server replies at {server.url}")

    def _read_rows(self) -> dict[Split, SplitRows]:
        """Read the existing splits of the stage, and check that they belong to its task."""
        rows: dict[Split, SplitRows] = {}
        for split in self.stage.splits:
            with self.findings.catch(self.name, "data"):
                split_rows = self.reader.read_split(self.stage, split)
                if split_rows is not None:
                    task = self.reader.build_stage_task(self.stage)
                    check_row_tasks(task, split_rows.problems, f"the split {split}")
                    rows[split] = split_rows
        return rows

    def _check_rows(self, rows: dict[Split, SplitRows]) -> None:
        stage = self.stage
        for split, split_rows in rows.items():
            is_validation = isinstance(stage, TrainingConfig) and split == stage.validation.split
            if split_rows.problems:
                self._pass("data", f"split {split}: {split_rows} rows read")
            elif is_validation:
                self._note("data", f"there are no problems of the split {split}: no validation")
            else:
                with self.findings.catch(self.name, "data"):
                    load_problems(
                        self.reader.build_stage_task(stage), self.reader.find_folder(stage), split
                    )

    def _check_responses(
        self, location: str, model: ModelText | None, rows: dict[Split, SplitRows]
    ) -> None:
        """Read the responses of a file or run folder, and encode the first ones."""
        path = Path(location)
        run = RunStore(path, lock=None)
        files = [path] if path.is_file() else run.rollout_files("train")
        if not self.reader.is_thorough and sum(file.stat().st_size for file in files) > MAX_READ:
            self._pass("data", f"data: {len(files):,} files, not read before the run")
            return
        rollouts = self.reader.read_responses(self.stage)
        if rollouts is None:
            return
        if model is not None and isinstance(self.stage, ModelStageConfig):
            context = context_of(self.stage, model)
            some = rollouts[: MAX_ENCODED if self.reader.is_thorough else NUM_RENDERED]
            view = make_sft_examples(some, model.chat, context)
            if len(some) == len(rollouts):
                refuse_mostly_long(view, context)
                problems = [row for some_rows in rows.values() for row in some_rows.problems]
                is_new = self.stage.model.new is not None
                if is_new and (unseen := describe_unseen(view.examples, problems, model.chat)):
                    self._note("prompts", unseen)
            if view.num_too_long:
                self._note(
                    "data",
                    f"{view.num_too_long:,} of {len(some):,} responses are longer than the context "
                    f"of {context:,} tokens, and are left out: raise engine.max_model_len to keep "
                    "them",
                )
        self._pass("data", f"data: {len(rollouts):,} responses")

    def _check_grader(self, rows: dict[Split, SplitRows]) -> None:
        """Try the grader on the first rows, and the reward on its scores."""
        stage = self.stage
        split = next((split for split in rows if rows[split].problems), None)
        if split is None:
            return
        task = self.reader.build_stage_task(stage)
        names = {subtask.name for subtask in task.subtasks}
        chosen = choose_rows([row for row in rows[split].problems if row.task in names])
        if not chosen:
            return
        limits = stage.grading_limits
        if all(map(is_builtin, task.subtasks)) and self.reader.find_folder(stage) is None:
            # Grading a built-in task's own problems and responses is quick.
            limits = GradingConfig(workers=0)
        for subtask in task.subtasks:
            if not is_builtin(subtask):
                num = sum(row.task == subtask.name for row in chosen)
                say(f"trying {describe_grader(subtask)} on the first {num} problems")
        graded, num_gold = grade_rows(task, chosen, limits)
        if fault := find_fault(task, graded):
            level = Level.WRONG if stage.needs_verdicts else Level.NOTE
            self.findings.add(self.name, "grader", level, fault)
        else:
            gold = f"{num_gold} references are right" if num_gold else "the task has no references"
            self._pass("grader", f"{len(graded)} texts graded; {gold}")
        # What the grader failed on has no parts, and says nothing of the reward.
        scored = [row for row in graded if row[2].verdict is not Verdict.UNSCORED]
        for key, (spec, judge) in stage.reward_specs.items():
            with self.findings.catch(self.name, "reward"):
                check_reward(spec, scored if judge is None else _judge(judge, chosen[0]), key)
                if judge is None and scored:
                    self._pass("reward", _describe_reward(scored, spec))


def check_libraries(stage: StageConfig) -> None:
    """Check the learner and the tracker packages that the settings name."""
    if isinstance(stage, TrainingConfig):
        choose_learner_factory(stage.train)
        for sink in stage.track.sinks:
            if find_spec(sink) is None:
                raise ConfigError(
                    f'track.sinks has "{sink}", which is not installed: pip install {sink}, or '
                    "leave it out"
                )


def _check_place(key: str, path: str | None) -> None:
    """Refuse a hub id that cannot be downloaded."""
    if path is None or path.startswith("@") or not HUB_ID.fullmatch(path):
        return
    if not model_folder(path).is_dir() and (reason := explain_missing(path)):
        raise DataError(f"{key}.path = {path!r} {reason}")


def _describe_reward(graded: Graded, spec: RewardSpec) -> str:
    scored = ", ".join(sorted(graded[0][2].parts))
    parts = [f"{', '.join(spec.weights)} of {scored}"] if spec.weights else []
    terms = [term.path if isinstance(term, UserTerm) else term.kind for term in spec.terms]
    return "; ".join([*parts, *([f"terms {', '.join(terms)}"] if terms else [])])


def _judge(judge: Task, problem: Problem) -> Graded:
    text = NO_RESPONSES[0]
    return [(replace(problem, task=judge.name), text, judge.score(problem, text))]


def _ends_turns(chat: ChatFormat) -> bool:
    turns = [Message(role="user", content="?"), Message(role="assistant", content=PROBE)]
    rest = chat.render(turns, False).rpartition(PROBE)[2]
    return any(special in rest for special in chat.tokenizer.special_texts)
