"""A believable pipeline's worth of report data, and rollouts to summarise. No numbers here were
measured."""

from collections.abc import Sequence
from math import exp

import numpy as np

from whet.evals.comparison import compare_paired
from whet.evals.summary import pass_rates, summarise
from whet.reports.formatting import describe_change
from whet.reports.report_data import (
    Curve,
    NamedEval,
    ReportData,
    ResponseLine,
    StageTime,
    Unit,
    pick_samples,
)
from whet.types import (
    Author,
    Completion,
    FinishReason,
    Group,
    Message,
    Problem,
    Rollout,
    Score,
    Verdict,
)

HANDS = (
    ("1 4 6 8", "8 - 4 = 4 (left: 1 4 6)", "4 * 6 = 24 (left: 1 24)", "24 * 1 = 24", "24 + 1 = 24"),
    (
        "2 3 9 9",
        "9 + 9 = 18 (left: 2 3 18)",
        "2 * 3 = 6 (left: 6 18)",
        "18 + 6 = 24",
        "18 - 6 = 24",
    ),
    (
        "3 3 8 8",
        "8 / 3 = 8/3 (left: 3 8 8/3)",
        "3 - 8/3 = 1/3 (left: 8 1/3)",
        "8 / 1/3 = 24",
        "8 * 3 = 24",
    ),
    (
        "5 6 7 13",
        "13 - 7 = 6 (left: 5 6 6)",
        "5 * 6 = 30 (left: 6 30)",
        "30 - 6 = 24",
        "30 - 5 = 24",
    ),
    (
        "1 1 2 11",
        "11 + 1 = 12 (left: 1 2 12)",
        "2 * 12 = 24 (left: 1 24)",
        "24 * 1 = 24",
        "24 - 1 = 24",
    ),
)
"""Four numbers, two right steps, a right last step, a wrong one."""
SETTINGS = """\
[sft]
steps                = 1400        # default
learning_rate        = 0.003       # experiments/game24_cpu.toml
[rl]
steps                = 300         # experiments/game24_cpu.toml
group_size           = 16          # default
sampling.temperature = 1.0         # default
reward.outcome       = 0.55        # default
reward.process       = 0.30        # default
seed                 = 7           # command line"""


def make_problem(index: int, *, level: float | None, solvable: bool | None = None) -> Problem:
    return Problem(
        id=f"game24/{index:04d}",
        task="game24",
        prompt=(Message(role="user", content=HANDS[index % len(HANDS)][0]),),
        answer=None,
        payload={} if solvable is None else {"solvable": solvable},
        level=level,
        split="test",
        source="made",
    )


def make_rollout(
    problem: Problem,
    verdict: Verdict | None,
    *,
    tokens: int = 20,
    finish: FinishReason = FinishReason.STOP,
    text: str = "",
    note: str = "reaches 24 with all four numbers",
) -> Rollout:
    return Rollout(
        id=f"{problem.id}/0",
        group_id=problem.id,
        problem=problem,
        author=Author.SOLVER,
        model="tiny",
        prompt_tokens=np.zeros(4, dtype=np.int32),
        completion=Completion(
            tokens=np.zeros(tokens, dtype=np.int32),
            logprobs=np.zeros(tokens, dtype=np.float32),
            finish_reason=finish,
            policy_version=0,
        ),
        text=text,
        score=None if verdict is None else Score(verdict=verdict, parts={}, note=note),
    )


def make_groups(skill: float, seed: int, count: int = 420) -> list[Group]:
    """Eight answers each to solvable and a few unsolvable problems; a higher skill solves more, the
    easy ones first."""
    random = np.random.default_rng(seed)
    groups = []
    for index in range(count):
        is_solvable = index % 12 != 11
        level = (index * 37 % count) / count if is_solvable else None
        problem = make_problem(index, level=level, solvable=is_solvable)
        chance = skill * exp(-2.2 * (level or 0.4)) * random.uniform(0.4, 1.6)
        groups.append(tuple(_sampled(problem, chance, random) for _ in range(8)))
    return groups


def line_notes(rollout: Rollout) -> Sequence[ResponseLine]:
    """Grade as a game-24 grader might: every line right, or the last one wrong."""
    lines = rollout.text.splitlines()
    is_right = rollout.score is not None and rollout.score.verdict is Verdict.CORRECT
    wrong = ResponseLine(
        text=lines[-1],
        is_right=is_right,
        note="reaches 24" if is_right else "does not follow from the numbers left",
    )
    return [*(ResponseLine(text=line, is_right=True) for line in lines[:-1]), wrong]


def make_report() -> ReportData:
    before, after = make_groups(0.42, 1), make_groups(0.8, 2)
    first, last = summarise(before), summarise(after)
    gain = compare_paired(pass_rates(before), pass_rates(after)).difference
    greedy = [summarise([group[:1] for group in groups]) for groups in (before, after)]
    return ReportData(
        title="game24_cpu",
        headline=describe_change("RL", "unseen hands", first.pass_at[1], last.pass_at[1], gain),
        difference=gain,
        warnings=("RL solves more problems with one answer, but fewer with 8.",),
        about={"Task": "game24", "Model": "0.6 million parameters", "Data": "425 rl problems"},
        evals=(
            NamedEval(name="after SFT", summary=first),
            NamedEval(name="after RL", summary=last),
            NamedEval(name="after SFT", summary=greedy[0], is_greedy=True),
            NamedEval(name="after RL", summary=greedy[1], is_greedy=True),
        ),
        curves=make_curves(),
        samples=pick_samples(before, after, line_notes),
        stages=(
            StageTime(name="problems", seconds=1.3),
            StageTime(name="traces", seconds=9.8),
            StageTime(name="sft", seconds=212.0),
            StageTime(name="eval sft", seconds=21.4),
            StageTime(name="rl", seconds=298.0),
            StageTime(name="eval rl", seconds=20.9),
        ),
        settings=SETTINGS,
        facts={
            "command": "whet run experiments/game24_cpu.toml --seed 7",
            "seed": "7",
            "versions": "whet 0.1.0, Python 3.11.9, torch 2.13.0, numpy 2.3.1",
            "machine": "2 CPU cores, x86_64, Linux 6.1",
            "started": "2025-03-14 09:26 UTC",
            "model": "0.6 M parameters, 4 layers, number tokens",
        },
    )


def make_curves() -> tuple[Curve, ...]:
    random, steps = np.random.default_rng(3), np.arange(0, 300)
    rise = 1 - np.exp(-steps / 110)

    def noisy(values: np.ndarray, spread: float) -> list[float]:
        return list(values + random.normal(0, spread, len(values)))

    checks, sft = np.arange(0, 301, 25), np.arange(0, 1400)
    dev = 0.18 + 0.17 * (1 - np.exp(-checks / 110))
    return (
        Curve(name="Reward", stage="RL", steps=steps, values=noisy(0.31 + 0.28 * rise, 0.03)),
        Curve(
            name="Solved, dev hands",
            stage="RL",
            steps=checks,
            values=list(dev),
            low=list(dev - 0.025),
            high=list(dev + 0.025),
            unit=Unit.FRACTION,
        ),
        Curve(
            name="Length",
            stage="RL",
            steps=steps,
            values=noisy(34 - 6 * rise, 0.6),
            unit=Unit.TOKENS,
        ),
        Curve(
            name="Entropy",
            stage="RL",
            steps=steps,
            values=noisy(0.9 - 0.5 * rise, 0.02),
        ),
        Curve(
            name="KL to the start",
            stage="RL",
            steps=steps,
            values=noisy(0.05 * rise, 0.001),
        ),
        Curve(
            name="Cut off at the limit",
            stage="RL",
            steps=steps,
            values=list(np.clip(noisy(0.06 * (1 - rise), 0.006), 0, 1)),
            unit=Unit.FRACTION,
        ),
        Curve(
            name="Loss", stage="SFT", steps=sft, values=noisy(0.6 + 2.2 * np.exp(-sft / 160), 0.03)
        ),
    )


def _sampled(problem: Problem, chance: float, random: np.random.Generator) -> Rollout:
    _, first, second, right, wrong = next(
        hand for hand in HANDS if hand[0] == problem.prompt[0].content
    )
    tokens, text = int(random.integers(18, 34)), f"{first}\n{second}\n{wrong}"
    if random.random() < chance:
        return make_rollout(
            problem, Verdict.CORRECT, tokens=tokens, text=f"{first}\n{second}\n{right}"
        )
    if random.random() < 0.05:
        return make_rollout(
            problem,
            Verdict.NO_ANSWER,
            tokens=64,
            finish=FinishReason.LENGTH,
            text=text,
            note="no final line",
        )
    return make_rollout(
        problem, Verdict.WRONG, tokens=tokens, text=text, note="the last step is wrong"
    )
