"""What every engine and every task must hold to, whatever is inside. A broken promise is an
AssertionError."""

import random
import string
from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np

from whet.engine.base import Engine, Request, Sampling
from whet.tasks.base import Task
from whet.types import SPLITS, Completion, Finish, Problem, Split, Tokens, Verdict


def check_engine(engine: Engine, prompts: Sequence[Tokens], *, max_tokens: int = 6) -> None:
    """Each request is answered once under its id, within its length, from its seed alone, and
    pulled when needed."""
    requests = _requests(prompts, max_tokens)
    first = dict(engine.generate(iter(requests)))
    assert sorted(first) == sorted(request.id for request in requests), (
        "every request is answered once"
    )
    for completion in first.values():
        _check_completion(completion, max_tokens)
    engine.sleep()
    again = dict(engine.generate(reversed(requests)))
    for id, completion in first.items():
        np.testing.assert_array_equal(
            completion.tokens, again[id].tokens, "order, or sleep, changed a result"
        )
    assert list(engine.generate([])) == [], "no request, no answer"
    _check_laziness(engine, prompts, max_tokens)


def check_task(task: Task, *, problems_per_split: int = 25, seed: int = 0) -> None:
    """Gold responses are right, garbage never is and never raises, and the same problems come every
    time."""
    seen: dict[str, Split] = {}
    garbage = list(_garbage(random.Random(seed)))
    for split in SPLITS:
        problems = list(task.problems(split))
        assert problems == list(task.problems(split)), f"{split} problems differ from call to call"
        for problem in problems:
            assert problem.split == split and problem.task == task.name
            assert seen.setdefault(problem.id, split) == split, f"{problem.id} is in two splits"
        for problem in problems[:problems_per_split]:
            _check_problem(task, problem, garbage, seed)
    for text in garbage:
        task.parse_question(text)


def _requests(prompts: Sequence[Tokens], max_tokens: int) -> list[Request]:
    sampling = Sampling(max_tokens=max_tokens)
    return [
        Request(id=f"{index}/{number}", prompt=prompt, sampling=sampling, seed=10 * index + number)
        for index, prompt in enumerate(prompts)
        for number in range(3)
    ]


def _check_completion(completion: Completion, max_tokens: int) -> None:
    assert 1 <= len(completion.tokens) <= max_tokens
    assert completion.tokens.dtype == np.int32 and completion.logprobs.dtype == np.float32
    assert len(completion.logprobs) == len(completion.tokens)
    assert np.isfinite(completion.logprobs).all() and (completion.logprobs <= 0).all()
    assert completion.finish == Finish.STOP or len(completion.tokens) == max_tokens


def _check_laziness(engine: Engine, prompts: Sequence[Tokens], max_tokens: int) -> None:
    """An endless stream of requests must not be read to its end; closing the generator drops the
    rest."""

    def endless() -> Iterator[Request]:
        for number in count():
            yield Request(
                id=str(number),
                prompt=prompts[number % len(prompts)],
                sampling=Sampling(max_tokens=max_tokens),
                seed=number,
            )

    answers = iter(engine.generate(endless()))
    next(answers)
    next(answers)
    del answers


def _check_problem(task: Task, problem: Problem, garbage: list[str], seed: int) -> None:
    assert Problem.from_json(problem.to_json()) == problem
    varied = task.vary(problem, seed)
    assert (varied.id, varied.answer) == (problem.id, problem.answer)
    gold = task.solve(problem, seed)
    if gold is not None:
        assert task.score(problem, gold).verdict == Verdict.CORRECT, (
            f"gold is not right for {problem.id}"
        )
    for text in garbage:
        assert task.score(problem, text).verdict != Verdict.CORRECT, (
            f"{text!r} is right for {problem.id}"
        )
        task.notes(problem, text)


def _garbage(source: random.Random) -> Iterator[str]:
    yield from ("", " ", "\n\n", "\x00", "(((", "1/0", "é" * 50, "9" * 400)
    for _ in range(40):
        yield "garbage " + "".join(source.choices(string.printable, k=source.randrange(80)))
