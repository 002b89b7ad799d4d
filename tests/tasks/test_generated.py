"""What every task that makes its problems holds to: seeds, splits, levels, the contract, fuzz."""

import random
import string
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

import pytest

from whet.level_bands import level_band
from whet.tasks import registry
from whet.tasks.algorithms.clrs import Clrs, ClrsConfig
from whet.tasks.base import Task
from whet.tasks.generated import Generator, level_of, split_of, split_of_id
from whet.tasks.logic.arc import Arc, ArcConfig
from whet.tasks.logic.graph_logic import GraphLogic, GraphLogicConfig
from whet.tasks.logic.knights import Knights, KnightsConfig
from whet.tasks.logic.ordering import Ordering, OrderingConfig
from whet.tasks.logic.zebra import Zebra, ZebraConfig, ZebraLogic, ZebraLogicConfig
from whet.tasks.warmup.arithmetic import Arithmetic, ArithmeticConfig
from whet.tasks.warmup.countdown import Countdown, CountdownConfig
from whet.tasks.warmup.letters import LastLetter, LastLetterConfig, Reverse, ReverseConfig
from whet.testing.contracts import check_task
from whet.types import SPLITS, Problem, Verdict

EASY = (0.0, 0.6)
TASKS: tuple[Task, ...] = (
    Zebra(ZebraConfig(count=8, level=EASY)),
    Ordering(OrderingConfig(count=8, level=EASY)),
    Knights(KnightsConfig(count=8)),
    GraphLogic(GraphLogicConfig(count=8)),
    ZebraLogic(ZebraLogicConfig(count=8, level=EASY)),
    Arc(ArcConfig(count=8, level=EASY)),
    Clrs(ClrsConfig(count=8)),
    Countdown(CountdownConfig(count=8)),
    Arithmetic(ArithmeticConfig(count=8)),
    LastLetter(LastLetterConfig(count=8)),
    Reverse(ReverseConfig(count=8)),
)
every_task = pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)


def made_by(task: Task, seed: int, level: float) -> Problem:
    made_here = (
        Zebra | Ordering | Knights | GraphLogic | ZebraLogic | Arc | Clrs | Countdown | Arithmetic
    )
    assert isinstance(task, made_here | LastLetter | Reverse)
    generator: Generator = task
    return generator.generate(seed, level)


@every_task
def test_every_task_keeps_the_contract(task: Task) -> None:
    check_task(task, problems_per_split=4)


@every_task
def test_a_seed_and_a_level_make_the_same_problem_again_and_other_seeds_others(task: Task) -> None:
    made = [made_by(task, seed, 0.3) for seed in range(12)]
    assert made == [made_by(task, seed, 0.3) for seed in range(12)]
    assert len({problem.id for problem in made}) > 8
    assert all(problem.level == 0.3 and problem.split in SPLITS for problem in made)


@every_task
def test_a_split_has_as_many_different_problems_as_asked_for_over_its_levels(task: Task) -> None:
    problems = list(task.problems("test"))
    assert len({problem.id for problem in problems}) == len(problems) == 8
    assert len({problem.level for problem in problems}) == 8


@every_task
def test_prompts_do_not_hold_their_answer_as_one(task: Task) -> None:
    for problem in task.problems("dev"):
        prompt = problem.prompt[0].content
        assert task.score(problem, prompt).verdict is not Verdict.CORRECT
        assert task.score(problem, f"<answer>{prompt}</answer>").verdict is not Verdict.CORRECT


@every_task
def test_another_problems_gold_is_not_right(task: Task) -> None:
    problems = list(task.problems("rl"))
    for problem, other in pairwise(problems):
        gold = task.solve(other, 0)
        assert gold is not None
        if other.answer != problem.answer:
            assert task.score(problem, gold).verdict is not Verdict.CORRECT


@every_task
def test_ten_thousand_made_up_texts_over_all_tasks_never_raise_and_are_never_right(
    task: Task,
) -> None:
    problem = next(iter(task.problems("rl")))
    for text in texts(task.solve(problem, 0) or "", problem.answer or "", random.Random(task.name)):
        score = task.score(problem, text)
        assert score.verdict is not Verdict.UNSCORED and set(score.parts) >= {"correct"}
        assert score.verdict is not Verdict.CORRECT, text


def texts(gold: str, answer: str, rng: random.Random) -> Iterator[str]:
    """Make up texts: noise, noise in tags, and gold with something put into the middle of its
    answer."""
    for number in range(910):
        noise = "".join(rng.choices(string.printable, k=rng.randrange(60)))
        if number % 3 == 0:
            yield f"garbage {noise}"
        elif number % 3 == 1:
            yield f"<answer>garbage {noise.replace('<', '')}</answer>"
        else:
            at = gold.rindex(answer) + rng.randrange(len(answer))
            yield f"{gold[:at]}\x01{gold[at:]}"


@every_task
def test_huge_texts_are_graded_quickly(task: Task) -> None:
    problem = next(iter(task.problems("rl")))
    for text in (
        "9" * 1_000_000,
        "(" * 1_000_000,
        "[" * 60_000,
        "{" * 60_000,
        '{"' * 30_000,
        "<answer>" * 100_000,
    ):
        start = time.process_time()
        assert task.score(problem, text).verdict is not Verdict.CORRECT
        assert task.score(problem, f"<answer>{text}</answer>").verdict is not Verdict.CORRECT
        task.comment(problem, text)
        assert time.process_time() - start < 1.5


def test_splits_have_their_shares() -> None:
    found = Counter(split_of("x", number) for number in range(20_000))
    assert {split: round(count / 20_000, 2) for split, count in found.items()} == {
        "sft": pytest.approx(0.35, abs=0.02),
        "rl": pytest.approx(0.35, abs=0.02),
        "dev": pytest.approx(0.10, abs=0.02),
        "test": pytest.approx(0.20, abs=0.02),
    }


def test_levels_are_held_to_their_span() -> None:
    assert level_of(1, 7.0) == 1.0 and level_of(1, -1.0) == 0.0
    assert 0.0 <= level_of(1, None) < 1.0
    assert [level_band(level) for level in (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)] == [0, 1, 2, 3, 4, 4]


def test_a_level_with_few_problems_ends_early() -> None:
    task = Arithmetic(ArithmeticConfig(count=300, level=(0.0, 0.1)))
    problems = list(task.problems("dev"))
    assert 5 < len(problems) < 60, "of the 162 sums and differences of two digits, a tenth"
    assert len({problem.id for problem in problems}) == len(problems)


def test_the_remainder_of_an_id_by_a_hundred_chooses_its_split() -> None:
    edges = (0, 34, 35, 69, 70, 79, 80, 99)

    assert [split_of_id(f"x/{300 + edge:x}") for edge in edges] == [
        *("sft", "sft", "rl", "rl"),
        *("dev", "dev", "test", "test"),
    ]


@pytest.mark.parametrize("name", sorted(registry.TASKS))
def test_every_generator_draws_a_problem_of_a_split(name: str) -> None:
    task = registry.build_default_task(name)
    if not isinstance(task, Generator):
        pytest.skip("has lists of problems and no generator")
    problem = task.generate(3, 0.2, "rl")
    assert problem.split == "rl"
    assert problem == task.generate(3, 0.2, "rl")
