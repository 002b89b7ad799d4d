"""Try the grader and the reward of a stage on its first rows: the reference is right, a text
without sense is not, and every part that the reward weighs is there."""

from collections.abc import Sequence
from dataclasses import replace
from difflib import get_close_matches

import numpy as np

from whet.errors import ConfigError, DataError
from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.rewards.spec import RewardSpec
from whet.tasks.base import Task, explain_user_errors
from whet.types import Problem, Rollout, Score, Verdict

NUM_GRADED = 4
"""Rows of a task that its grader is tried on."""
NO_ANSWERS = ("qwx vrrk tpl", "")
"""What no grader should take for an answer."""
RATIO_PARTS = {"feasible", "value", "optimum"}
"""Parts that the shaping term `quality` reads."""

Graded = list[tuple[Problem, str, Score]]


def choose_rows(problems: Sequence[Problem]) -> list[Problem]:
    """Take the first rows of each task."""
    chosen: list[Problem] = []
    for problem in problems:
        if sum(other.task == problem.task for other in chosen) < NUM_GRADED:
            chosen.append(problem)
    return chosen


def check_tasks(task: Task, problems: Sequence[Problem], where: str) -> None:
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
    """Grade the reference of each row, a text without sense and none at all. Returns also how many
    rows have a reference."""
    texts = [(problem, text) for problem in problems for text in NO_ANSWERS]
    with explain_user_errors(task):
        golds = [(problem, task.solve(problem, 0)) for problem in problems]
    texts += [(problem, gold) for problem, gold in golds if gold is not None]
    lenient = limits.model_copy(update={"unscored_fraction": 1.0})
    with Grader(task, lenient, num_answers=len(texts)) as grader:
        answers = ((index, *pair) for index, pair in enumerate(texts))
        scores = dict(grader.grade(answers))
    graded = [(problem, text, scores[index]) for index, (problem, text) in enumerate(texts)]
    return graded, len(texts) - len(NO_ANSWERS) * len(problems)


def find_fault(task: Task, graded: Graded) -> str | None:
    """Describe the first verdict that is not as it should be."""
    name = task.name
    for problem, text, score in graded:
        note = f" ({score.note})" if score.note else ""
        is_right = score.verdict is Verdict.CORRECT
        fails = f"the grader of {name} fails on its own data: {text[:80]!r}"
        if score.verdict is Verdict.UNSCORED:
            return (
                f"the grader of {name} cannot grade an answer to {problem.id}{note}: "
                "`whet tasks check` tries it on its own problems"
            )
        if text not in NO_ANSWERS and not is_right:
            return (
                f"{fails}, the reference of {problem.id}, is graded {score.verdict}{note}: mend "
                "the row's answer, or take another task"
            )
        if text in NO_ANSWERS and is_right:
            return f"{fails} is graded correct for {problem.id}{note}: mend the grader"
    return None


def check_reward(reward: RewardSpec, graded: Graded, key: str = "reward") -> None:
    """Reward the graded texts, as a step would; raise where a part is not scored, or a function of
    the user's own fails."""
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
