"""Ask a teacher for every response not stored yet, grade the responses, and keep some.

Every response is in the ledger before anything else happens to it: after a kill only the requests
that were in flight are repeated. Seeds come from the problem and the number of the response. A
shard of a teach run answers every n-th problem in its own run folder, on any machine; the last to
finish gathers all responses in the parent folder.
"""

import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypeVar

from whet.config import Config
from whet.data.problems import problem_file
from whet.errors import ConfigError, DataError
from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.recipes.keep import KeepConfig
from whet.recipes.teachers import TRANSPORT, Ask, WantedResponse
from whet.rng import derive
from whet.store.files import atomic_path
from whet.store.response_ledger import ResponseKey, ResponseLedger, StoredResponse
from whet.store.rollouts import read_rollouts
from whet.store.run import RolloutSet, RunStore
from whet.store.teach_progress import TeachProgress, beat, write_progress
from whet.tasks.base import Task, explain_user_errors
from whet.track.progress import progress_bar, say
from whet.types import Group, Json, Problem, Rollout, Score, Split

PART_PROBLEMS = 1000
"""Problems whose responses are written to one file."""
T = TypeVar("T")
MAY_DIFFER = tuple(f"teacher.{key}" for key in TRANSPORT)
TOTALS = ("problems", "answers", "traces", "failed", "prompt_tokens", "tokens", "cost")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TeachJob:
    """The problems, the teacher that answers them, and which responses are kept."""

    task: Task
    problems: Sequence[Problem]
    per_problem: int
    seed: int
    keep: KeepConfig
    grading: GradingConfig
    ask: Ask | None
    """Who answers; None takes only solutions that came with the data."""
    price_in: float = 0.0
    price_out: float = 0.0

    def question(self, problem: Problem, sample: int) -> WantedResponse:
        """Make the question of a problem, as the task varies it for this response."""
        seed = derive(self.seed, "teach", problem.id, sample)
        with explain_user_errors(self.task):
            varied = self.task.vary(problem, seed) if sample >= 0 else problem
        return WantedResponse(problem=varied, sample=sample, seed=seed)


def find_solutions(folder: str | None, split: Split, problems: Sequence[Problem]) -> list[Rollout]:
    """Read the worked solutions beside a file of problems, as far as they answer these problems."""
    path = None if folder is None else problem_file(Path(folder), split)
    file = None if path is None else path.with_suffix(".rollouts.parquet")
    if file is None or not file.is_file():
        return []
    by_id = {problem.id: problem for problem in problems}
    rollouts = read_rollouts(file)
    known = [
        replace(row, problem=by_id[row.problem.id]) for row in rollouts if row.problem.id in by_id
    ]
    if len(known) < len(rollouts):
        others = f"{len(rollouts) - len(known):,} of {len(rollouts):,} solutions in {file}"
        say(f"{others} answer other problems than those asked here, and are left out")
    return known


def collect_responses(job: TeachJob, solutions: Sequence[Rollout], run: RunStore) -> None:
    """Ask, grade and store until every response is there, and write those that are kept."""
    with ResponseLedger(run.response_folder) as ledger:
        _add_solutions(ledger, solutions)
        counter = _ProgressCounter(job=job, ledger=ledger)
        with (
            Grader(job.task, job.grading) as grader,
            beat(run.folder, counter.progress),
            progress_bar(
                "teach", counter.wanted, done=counter.done, note=counter.describe
            ) as advance,
        ):
            by_id = {problem.id: problem for problem in job.problems}
            for key, score in grader.grade(_collect_responses(job, ledger, by_id)):
                ledger.add_score(key, score)
                counter.count(key, score)
                advance(key[1] >= 0)
        _refuse_missing(counter)
        _finish(job, ledger, counter, run)


def _add_solutions(ledger: ResponseLedger, solutions: Sequence[Rollout]) -> None:
    """Store the solutions that came with the data as responses with numbers below 0."""
    numbers: Counter[str] = Counter()
    for row in solutions:
        numbers[row.problem.id] += 1
        key = (row.problem.id, -numbers[row.problem.id])
        if key not in ledger:
            ledger.add(
                StoredResponse(
                    problem=key[0],
                    sample=key[1],
                    text=row.text,
                    model=row.model,
                    finish=row.completion.finish_reason,
                )
            )


def _collect_responses(
    job: TeachJob, ledger: ResponseLedger, by_id: dict[str, Problem]
) -> Iterator[tuple[ResponseKey, Problem, str]]:
    """Yield what is to be graded: responses of an earlier attempt, then new ones as they come."""
    for response in ledger.ungraded():
        if response.problem in by_id and response.text is not None:
            question = job.question(by_id[response.problem], response.sample)
            yield response.key, question.problem, response.text
    if job.ask is None:
        return
    wanted = (
        job.question(problem, sample)
        for problem in job.problems
        for sample in range(job.per_problem)
        if (problem.id, sample) not in ledger
    )
    for question, response in job.ask(wanted, ledger.add):
        if response.text is not None:
            yield response.key, question.problem, response.text


@dataclass(slots=True, eq=False)
class _ProgressCounter:
    """What is done so far, for the progress line and the progress file."""

    job: TeachJob
    ledger: ResponseLedger
    graded: int = 0
    kept: int = 0
    started: float = field(default_factory=time.monotonic)
    _kept_by_problem: Counter[str] = field(default_factory=Counter)
    _responses_before: int = 0
    _tokens_before: int = 0

    def __post_init__(self) -> None:
        for key, score in self.ledger.scores():
            self.count(key, score)
        self._responses_before = self.ledger.num_responses
        self._tokens_before = self.ledger.num_tokens

    @property
    def wanted(self) -> int:
        is_asked = self.job.ask is not None
        return len(self.job.problems) * self.job.per_problem if is_asked else 0

    @property
    def done(self) -> int:
        return self.ledger.num_responses + self.ledger.num_failed

    def count(self, key: ResponseKey, score: Score) -> None:
        self.graded += 1
        most = self.job.keep.most
        if self.job.keep.accepts(score):
            self._kept_by_problem[key[0]] += 1
            self.kept += most is None or self._kept_by_problem[key[0]] <= most

    def progress(self) -> TeachProgress:
        ledger = self.ledger
        seconds = max(time.monotonic() - self.started, 1e-9)
        price_in, price_out = self.job.price_in, self.job.price_out
        cost = (price_in * ledger.num_prompt_tokens + price_out * ledger.num_tokens) / 1e6
        return TeachProgress(
            wanted=self.wanted,
            done=ledger.num_responses,
            failed=ledger.num_failed,
            graded=self.graded,
            kept=self.kept,
            prompt_tokens=ledger.num_prompt_tokens,
            tokens=ledger.num_tokens,
            cost=cost,
            rate=(ledger.num_responses - self._responses_before) / seconds,
            token_rate=(ledger.num_tokens - self._tokens_before) / seconds,
        )

    def describe(self) -> str:
        now = self.progress()
        cost = f", cost {now.cost:,.2f}" if now.cost else ""
        return f"{now.kept:,} kept, {now.token_rate:,.0f} tokens/s{cost}"


def _refuse_missing(counter: _ProgressCounter) -> None:
    """Stop if requests have failed that may succeed later; the second time they are given up."""
    if missing := counter.wanted - counter.done:
        raise DataError(
            f"{missing:,} of {counter.wanted:,} responses are missing, the last because "
            f"{counter.ledger.last_fault}; the same command with --resume asks for them again"
        )


def _finish(
    job: TeachJob, ledger: ResponseLedger, counter: _ProgressCounter, run: RunStore
) -> None:
    """Write the kept responses and the others as rollouts, and the summary."""
    kept = 0
    for number, start in enumerate(range(0, len(job.problems), PART_PROBLEMS)):
        problems = job.problems[start : start + PART_PROBLEMS]
        groups = [_read_group(job, ledger, problem) for problem in problems]
        chosen = [tuple(job.keep.choose(group)) for group in groups]
        ids = {row.id for group in chosen for row in group}
        others = [tuple(row for row in group if row.id not in ids) for group in groups]
        if any(chosen):
            run.write_rollouts("train", number, chosen)
        if any(others):
            run.write_rollouts("rejected", number, others)
        kept += len(ids)
    counter.kept = kept
    progress = counter.progress().model_copy(update={"state": "finished"})
    _report(job, progress)
    write_progress(run.folder, progress)
    run.finish(
        {
            "problems": len(job.problems),
            "answers": progress.done,
            "traces": kept,
            "failed": progress.failed,
            "prompt_tokens": progress.prompt_tokens,
            "tokens": progress.tokens,
            "cost": progress.cost,
        }
    )


def _read_group(job: TeachJob, ledger: ResponseLedger, problem: Problem) -> Group:
    rows = []
    for response in ledger.responses(problem.id):
        if response.text is None:
            continue
        question = job.question(problem, response.sample)
        made = Rollout.from_text(
            question.problem,
            response.text,
            model=response.model,
            number=response.sample,
            score=ledger.score(response.key),
        )
        rows.append(
            replace(made, completion=replace(made.completion, finish_reason=response.finish))
        )
    return tuple(rows)


def _report(job: TeachJob, progress: TeachProgress) -> None:
    rule = " and ".join(job.keep.parts) or "graded"
    asked = f"{progress.graded:,} responses to {len(job.problems):,} problems"
    cost = f", cost {progress.cost:,.2f}" if progress.cost else ""
    say(f"{progress.kept:>7,} of {asked} kept ({rule}); {progress.tokens:,} tokens{cost}")
    if progress.failed:
        say(f"{progress.failed:,} requests failed permanently; answers.jsonl says why")
    if not progress.kept:
        say("no response was kept: look at the rejected ones, or change keep.parts or the teacher")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of `count` equal parts, numbered from 1."""

    number: int
    count: int

    @staticmethod
    def parse(text: str) -> "Shard":
        """Read a shard.

        >>> Shard.parse("3/64")
        Shard(number=3, count=64)
        """
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError("should be like 3/64, the third of 64 shards")
        return Shard(number=int(match[1]), count=int(match[2]))

    @property
    def name(self) -> str:
        return f"{self.number:03d}-of-{self.count:03d}"

    def take(self, items: Sequence[T]) -> list[T]:
        """Take every `count`-th item, from this shard's first.

        >>> Shard(number=2, count=3).take([1, 2, 3, 4, 5])
        [2, 5]
        """
        return list(items[self.number - 1 :: self.count])


def shard_folders(folder: Path) -> list[tuple[Shard, Path]]:
    """List the shards that have begun in a run folder, in order."""
    paths = RunStore(folder, lock=None).shard_folder.glob("*-of-*")
    matches = [(re.fullmatch(r"(\d+)-of-(\d+)", path.name), path) for path in paths]
    shards = [(Shard(number=int(m[1]), count=int(m[2])), path) for m, path in matches if m]
    return sorted(shards, key=lambda row: (row[0].count, row[0].number))


def check_count(folder: Path, shard: Shard) -> None:
    """Refuse a shard whose count differs from that of the existing shards."""
    others = [other.count for other, _ in shard_folders(folder) if other.count != shard.count]
    if others:
        raise ConfigError(
            f"{folder} has shards of {others[0]}, not of {shard.count}: give the same count, or "
            "choose another folder"
        )


def check_no_shards(folder: Path) -> None:
    """Refuse to run without shards in a folder that has some."""
    shards = shard_folders(folder)
    if shards and not RunStore(folder, lock=None).is_finished:
        raise ConfigError(
            f"{folder} has shards of {shards[0][0].count}: give --shard to continue one, "
            "or choose another folder"
        )


def gather_shards(folder: Path, config: Config, shard: Shard) -> None:
    """Merge all shards into one run once each is finished; only one process does it."""
    shards = [RunStore(path, lock=None) for _, path in shard_folders(folder)]
    if len(shards) < shard.count or not all(run.is_finished for run in shards):
        return
    inputs = {
        str([row["files"] for row in run.events() if row["event"] == "inputs"]) for run in shards
    }
    if len(inputs) > 1:
        raise DataError(f"the shards in {folder} have read different problems: start again")
    try:
        run = RunStore.open(folder, config, {}, resume=True, ignore=MAY_DIFFER)
    except ConfigError as error:
        say(f"the shards are not gathered here: {error}")
        return
    with run:
        if run.is_finished:
            return
        names: tuple[RolloutSet, ...] = ("train", "rejected")
        for name in names:
            files = [
                shard.rollout_file(name, step)
                for shard in shards
                for step in shard.rollout_steps(name)
            ]
            for number, file in enumerate(files):
                with atomic_path(run.rollout_file(name, number)) as new:
                    shutil.copyfile(file, new)
        summaries = [shard.summary() for shard in shards]
        totals: dict[str, Json] = {
            key: sum(n for row in summaries if isinstance(n := row.get(key), int | float))
            for key in TOTALS
        }
        run.finish(totals | {"shards": len(shards)})
        say(f"all {shard.count} shards are finished; their responses are in {folder}")
