"""Ask one model every problem of a benchmark as often as it says; each answer is stored once.

An answer is in the ledger of its run folder before anything else happens to it, so that a kill
costs only the requests that were in flight.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from whet.config import Config
from whet.errors import DataError
from whet.evals.summary import summarise
from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.recipes.teachers import Ask, Question
from whet.rng import derive
from whet.store.answers import AnswerLedger, Key
from whet.store.run import RunStore
from whet.suites.problems import Exam
from whet.suites.result import Result, make_result, with_token_counts
from whet.suites.suite import Benchmark
from whet.text.chat import NO_PROMPT, PromptConfig
from whet.track.progress import progress_bar
from whet.types import Author, Group, Json, Problem, Rollout

KS = (1, 4, 8, 16, 32, 64)
EVAL = 0
"""The number of the one evaluation in a run folder."""


class BenchmarkRun(Config):
    """One model on one benchmark: the settings of its run folder."""

    kind: Literal["benchmark"] = "benchmark"
    seed: int = 0
    """Decides every random choice."""
    model: str
    """A folder, a hub id, or an address."""
    weights: str = ""
    """A hash of the model's files; empty of a model behind a server."""
    name: str
    """The benchmark's name."""
    benchmark: Benchmark
    """The problems, and how they are asked."""
    prompt: PromptConfig = NO_PROMPT
    """How problems are put to the model: as in its training, else as the benchmark says."""


def answer_exam(
    cfg: BenchmarkRun, exam: Exam, ask: Ask, run: RunStore, on_answer: Callable[[int], None]
) -> Result:
    """Collect and grade the answers that are not stored yet; write rollouts and the result."""
    with AnswerLedger(run.answer_folder) as ledger:
        total = exam.num_answers
        done = ledger.num_answers + ledger.num_failed
        with (
            Grader(exam.task, GradingConfig()) as grader,
            progress_bar(exam.name, total, done=done, note=_token_counter(ledger)) as advance,
        ):
            for key, score in grader.grade(_answers(cfg, exam, ask, ledger)):
                ledger.add_score(key, score)
                advance(1)
                on_answer(1)
        if missing := total - ledger.num_answers - ledger.num_failed:
            raise DataError(
                f"{missing:,} of {total:,} answers are missing, the last because "
                f"{ledger.last_fault}; the same command with --resume asks for them once more"
            )
        groups = [_read_group(ledger, problem) for problem in exam.problems]
        stored = [ledger.answers(problem.id) for problem in exam.problems]
        num_failed = ledger.num_failed
    samples = exam.benchmark.samples
    summary = summarise(groups, ks=sorted({k for k in KS if k <= samples} | {exam.benchmark.k}))
    summary = with_token_counts(summary, stored)
    result = make_result(
        summary,
        groups,
        model=cfg.model,
        name=cfg.name,
        benchmark=exam.benchmark,
        num_failed=num_failed,
        num_too_long=_count_too_long(run),
    )
    run.write_rollouts("eval", EVAL, groups)
    run.write_eval(EVAL, summary.to_json())
    run.finish({"result": result.to_json()})
    return result


def read_result(run: RunStore) -> Result:
    """Read the result of a finished run."""
    return Result.from_json(run.summary().get("result"))


def _answers(
    cfg: BenchmarkRun, exam: Exam, ask: Ask, ledger: AnswerLedger
) -> Iterator[tuple[Key, Problem, str]]:
    """Yield what is to be graded: answers of an earlier attempt, then new ones as they come."""
    by_id = {problem.id: problem for problem in exam.problems}
    for answer in ledger.ungraded():
        if answer.text is not None and answer.problem in by_id:
            yield answer.key, by_id[answer.problem], answer.text
    wanted = (
        Question(
            problem=problem, sample=sample, seed=derive(cfg.seed, "benchmark", problem.id, sample)
        )
        for problem in exam.problems
        for sample in range(exam.benchmark.samples)
        if (problem.id, sample) not in ledger
    )
    for question, answer in ask(wanted, ledger.add):
        if answer.text is not None:
            yield answer.key, question.problem, answer.text


def _read_group(ledger: AnswerLedger, problem: Problem) -> Group:
    rows = []
    for answer in ledger.answers(problem.id):
        if answer.text is None:
            continue
        row = Rollout.from_text(
            problem,
            answer.text,
            model=answer.model,
            number=answer.sample,
            author=Author.SOLVER,
            score=ledger.score(answer.key),
        )
        rows.append(replace(row, completion=replace(row.completion, finish_reason=answer.finish)))
    return tuple(rows)


def _token_counter(ledger: AnswerLedger) -> Callable[[], str]:
    return lambda: f"{ledger.num_tokens / max(ledger.num_answers, 1):,.0f} tokens each"


def _count_too_long(run: RunStore) -> int:
    """Count the problems whose prompts did not fit, as the latest attempt found them."""
    lists: list[Json] = [row.get("problems") for row in run.events() if row["event"] == "too_long"]
    return len(lists[-1]) if lists and isinstance(lists[-1], list) else 0
