"""Verification of solutions: which can be judged, and the step rewards that follow."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean

from whet.errors import ConfigError
from whet.rollout.collect import ChatEngine
from whet.tasks.base import Task
from whet.tasks.verify import VERDICT_WORDS, Verify
from whet.text.chat import ChatFormat
from whet.text.steps import token_ranges
from whet.types import Author, Group, JudgedStep, Problem, Rollout

VerdictPairs = Iterator[tuple[bool, bool | None]]


def check_verifier_room(
    context: int, *, solution: int, verification: int, micro_batch_tokens: int
) -> None:
    """Refuse token limits that leave no room for a solution or exceed a micro-batch."""
    if context <= verification:
        raise ConfigError(
            f"verifier_sampling.max_tokens = {verification} leaves no room for a solution in the "
            f"verifier's context of {context} tokens"
        )
    longest = min(solution + verification, context)
    if longest > micro_batch_tokens:
        raise ConfigError(
            f"verifier_train.micro_batch_tokens = {micro_batch_tokens} is below {longest}, the "
            "tokens of a "
            "solution (sampling.max_tokens) and its verification (verifier_sampling.max_tokens): "
            "raise it or lower these"
        )


def make_verifications(
    solved: Sequence[Group], verifier_task: Verify, chat_engine: ChatEngine, room: int
) -> list[Problem]:
    """Make a problem from each solution that can be judged and fits in `room` tokens."""
    problems = [verifier_task.make_problem(rollout) for group in solved for rollout in group]
    return [
        problem
        for problem in problems
        if problem is not None and len(chat_engine.chat.encode_problem(problem)) <= room
    ]


def mark_verifier(judged: Sequence[Group]) -> list[Group]:
    """Set the author of rollouts to verifier."""
    return [
        tuple(replace(rollout, author=Author.VERIFIER) for rollout in group) for group in judged
    ]


def with_steps(
    solved: Sequence[Group], judged: Sequence[Group], verifier_task: Verify, chat: ChatFormat
) -> list[Group]:
    """Add judged steps to solutions, each worth ±1 / their number, averaged over verifications.

    `chat` is the generator's. A solution without a readable verification has no steps.
    """
    by_solution = {group[0].problem.source_id: group for group in judged}
    return [
        tuple(
            _with_steps(rollout, by_solution.get(rollout.id, ()), verifier_task, chat)
            for rollout in group
        )
        for group in solved
    ]


def outcome_pairs(judged: Sequence[Group], verifier_task: Verify) -> VerdictPairs:
    """Pair the truth about each solution with each final verdict on it."""
    for rollout in (rollout for group in judged for rollout in group):
        yield rollout.problem.answer == VERDICT_WORDS[True], verifier_task.read(rollout.text).final


def step_pairs(
    solved: Sequence[Group], judged: Sequence[Group], verifier_task: Verify, task: Task
) -> VerdictPairs:
    """Pair each step's label with each verdict on it; unlabelled steps are left out."""
    solutions = {rollout.id: rollout for group in solved for rollout in group}
    for group in judged:
        labels = verifier_task.labels(task, solutions[str(group[0].problem.source_id)])
        for rollout in group:
            marks = verifier_task.marks(rollout.problem, rollout.text) or [None] * len(labels)
            yield from (
                (label, mark)
                for label, mark in zip(labels, marks, strict=True)
                if label is not None
            )


def _with_steps(
    rollout: Rollout, verifications: Group, verifier_task: Verify, chat: ChatFormat
) -> Rollout:
    read = [verifier_task.marks(item.problem, item.text) for item in verifications]
    marks = [item for item in read if item is not None]
    if not marks:
        return replace(rollout, judged_steps=())
    places = token_ranges(verifier_task.steps(rollout), chat.spans(rollout.completion.tokens))
    worth = [
        fmean(1.0 if mark else -1.0 for mark in step) / len(places)
        for step in zip(*marks, strict=True)
    ]
    steps = tuple(
        JudgedStep(start=start, end=end, reward=value)
        for (start, end), value in zip(places, worth, strict=True)
    )
    return replace(rollout, judged_steps=steps)
