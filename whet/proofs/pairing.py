"""Proof that rewards stay with their rollouts when an engine answers out of order."""

from collections.abc import Iterable, Iterator

import numpy as np

from whet.algos import catalog
from whet.engine.base import Request, Sampling
from whet.engine.scripted import ScriptedEngine
from whet.grading.grader import Grader
from whet.proofs import specimen
from whet.proofs.base import Measure
from whet.rewards.spec import RewardSpec
from whet.rng import stream
from whet.rollout import collect
from whet.tasks.base import Task
from whet.text.chat import ChatFormat
from whet.train import credit
from whet.types import Completion, Problem, Score, Split, Tokens, Verdict

IS_RIGHT = ("1000", "0100", "0011", "1110", "0101", "1101")
"""Which answers to which problem are right; no row is another's, and none is its own when
turned."""


class _Marks(Task):
    """The first word of an answer must be the problem's number."""

    name = "specimen"
    is_bounded = True

    def problems(self, split: Split) -> list[Problem]:
        return [specimen.problem(str(index)) for index in range(len(IS_RIGHT))]

    def score(self, problem: Problem, text: str) -> Score:
        is_right = text.split()[:1] == [problem.answer]
        verdict = Verdict.CORRECT if is_right else Verdict.WRONG
        return Score(verdict=verdict, parts={"correct": float(is_right)})

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer


class _OutOfOrder(ScriptedEngine):
    """Answers all requests in an order of its own, which it remembers."""

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        done = list(super().generate(requests))
        stream(0, "out of order").shuffle(done)
        yield from done


def rewards() -> Measure:
    """Each answer says which it is, so its advantage can be worked out from its tokens alone."""
    tokenizer = specimen.tokenizer()
    chat = ChatFormat(tokenizer)
    task = _Marks()

    def answer(request: Request) -> Tokens:
        index, number = map(int, request.id.split("/"))
        first = index if IS_RIGHT[index][number] == "1" else 90 - index
        return np.append(tokenizer.encode(f"{first} {number}"), min(chat.stop_tokens)).astype(
            np.int32
        )

    player = collect.Player(engine=_OutOfOrder(answer), chat=chat, name="specimen")
    samples = len(IS_RIGHT[0])
    with Grader(task) as grader:
        groups = collect.collect(
            player, grader, task.problems("rl"), Sampling(), samples=samples, seed=0
        )
    groups = RewardSpec().apply(groups)
    algo = catalog.build(catalog.AlgoConfig(name="dr_grpo"), max_tokens=8)
    selection = credit.select(groups, algo)
    examples, _ = credit.credit(selection, credit.flatten(selection, temperature=1.0), algo, {})
    wrong = len(IS_RIGHT) * samples - len(examples)
    for example in examples:
        first, number = map(int, chat.message(example.tokens[example.start :]).split())
        row = IS_RIGHT[first if first < len(IS_RIGHT) else 90 - first]
        expected = float(row[number]) - row.count("1") / samples
        wrong += abs(float(np.mean(example.advantage)) - expected) > 1e-6
    text = (
        f"{wrong} of {len(IS_RIGHT) * samples} answers, drawn out of order, have another's reward "
        "or advantage"
    )
    return Measure(gap=wrong, limit=0, text=text)
