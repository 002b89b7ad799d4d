"""Compare token lengths of prompts and references with the context and the sampling limit.

Models whose tokenizer exists are checked before a run; `note_before_stage` checks the others once
an earlier stage has made them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from whet.errors import DataError
from whet.preflight.findings import Finding, Findings, Level
from whet.preflight.inputs import NUM_FIRST, InputReader, ModelText, SplitRows, follow_model
from whet.stages.stage import ModelStageConfig, OnPolicyConfig, StageConfig, Stages, TrainingConfig
from whet.store.run import RunStore
from whet.tasks.base import explain_user_errors
from whet.track.progress import say
from whet.types import Problem, Split
from whet.world import get_world

NUM_NAMED = 3
"""Problems with too long a prompt that a note names."""


def note_before_stage(stage: ModelStageConfig, run: RunStore) -> None:
    """Compare lengths with the limits of a model that an earlier stage of a pipeline made; notes
    also go to the ledger."""

    def inspect_lengths() -> list[Finding]:
        findings = Findings()
        reader = InputReader({stage.kind: stage}, is_thorough=False)
        with findings.catch("", "prompts"):
            model = reader.read_model(stage.model, stage.prompt)
            rows = {split: reader.read_split(stage, split) for split in stage.splits}
            there = {split: some for split, some in rows.items() if some is not None}
            if model is not None:
                LengthCheck(reader, findings, "", stage).run(there, model)
        return findings.of(Level.NOTE)

    for finding in get_world().run_on_rank_zero(inspect_lengths, "the notes before a stage"):
        say(f"note: {finding}")
        run.log_event("note", said=finding.message)


def continues_new_model(stages: Stages, stage: StageConfig) -> bool:
    """Whether an earlier stage starts a model of this stage from random weights."""
    sources = [source for source in stage.models.values() if source.path is not None]
    return any(follow_model(stages, source).new is not None for source in sources)


def context_of(stage: ModelStageConfig, model: ModelText) -> int:
    """Return the longest sequence that a stage allows for its model."""
    return min(stage.engine.max_model_len or model.positions, model.positions)


@dataclass(frozen=True, slots=True, eq=False)
class LengthCheck:
    """Compares the lengths of one stage, and adds findings under its name."""

    reader: InputReader
    findings: Findings
    name: str
    stage: ModelStageConfig

    def run(self, rows: Mapping[Split, SplitRows], model: ModelText) -> None:
        for split, split_rows in rows.items():
            with self.findings.catch(self.name, "prompts"):
                self._check_prompts(split, split_rows, model)
                self._check_references(split, split_rows, model)

    def _note(self, message: str) -> None:
        self.findings.add(self.name, "prompts", Level.NOTE, message)

    def _check_prompts(self, split: Split, rows: SplitRows, model: ModelText) -> None:
        """Compare prompt lengths with the context and the longest response."""
        lengths = [(_count_tokens(problem, model), problem) for problem in rows.problems]
        if not lengths:
            return
        context = context_of(self.stage, model)
        longest = max(length for length, _ in lengths)
        limit = self.stage.sampling.max_tokens
        long = [
            f"{problem.id} ({length:,} tokens)" for length, problem in lengths if length >= context
        ]
        tight = sum(context - limit < length < context for length, _ in lengths)
        of = f"of {rows} prompts of the split {split}"
        if len(long) == len(lengths):
            raise DataError(
                f"every prompt leaves no room in a context of {context:,} tokens: "
                f"{_name(long)}; raise {model.context_key} or shorten the prompts"
            )
        if long:
            self._note(
                f"{len(long):,} {of} leave no room in a context of {context:,} tokens and are left "
                f"out: {_name(long)}; raise {model.context_key} to keep them"
            )
        if tight:
            self._note(
                f"{tight:,} {of} leave less than sampling.max_tokens = {limit:,} tokens for a "
                f"response in a context of {context:,}: lower it, or raise {model.context_key}"
            )
        if isinstance(self.stage, OnPolicyConfig) and split == "rl":
            fitting = max(length for length, _ in lengths if length < context)
            _check_micro_batch_tokens(self.stage, min(fitting + limit, context))
        message = f"split {split}: at most {longest:,} tokens in {rows}"
        self.findings.add(self.name, "prompts", Level.PASSED, message)

    def _check_references(self, split: Split, rows: SplitRows, model: ModelText) -> None:
        """Compare the lengths of the task's own responses with `sampling.max_tokens`."""
        limit = self.stage.sampling.max_tokens
        task = self.reader.build_stage_task(self.stage)
        lengths: list[int] = []
        for problem in rows.problems:
            if len(lengths) >= NUM_FIRST and self.reader.is_late:
                break
            with explain_user_errors(task):
                text = task.solve(problem, 0)
            if text is not None:
                lengths.append(int(model.chat.encode_response(problem, text)[1].sum()))
        if cut := sum(length > limit for length in lengths):
            self._note(
                f"{cut:,} of {len(lengths):,} references of the split {split} are longer than "
                f"sampling.max_tokens = {limit:,}, the longest {max(lengths):,} tokens: responses "
                "of this length are cut; raise it"
            )


def _check_micro_batch_tokens(stage: TrainingConfig, longest: int) -> None:
    micro_batch_tokens = stage.train.micro_batch_tokens
    if longest > micro_batch_tokens:
        raise DataError(
            f"train.micro_batch_tokens = {micro_batch_tokens} is below {longest}, the tokens of "
            "the longest prompt with a response of sampling.max_tokens = "
            f"{stage.sampling.max_tokens}: raise the first or lower the second"
        )


def _count_tokens(problem: Problem, model: ModelText) -> int:
    tokens = model.chat.encode_problem(problem)
    if len(tokens) and tokens.max() >= model.vocab_size:
        raise DataError(
            f"the prompt of {problem.id} has the token {tokens.max()}, and the model's vocabulary "
            f"has {model.vocab_size:,}: its tokenizer is another model's"
        )
    return len(tokens)


def _name(items: Sequence[str]) -> str:
    more = f" and {len(items) - NUM_NAMED:,} more" if len(items) > NUM_NAMED else ""
    return ", ".join(items[:NUM_NAMED]) + more
