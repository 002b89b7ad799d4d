"""Co-training of a generator and a verifier (RL-Tango): the RL step, twice, in turns.

A generator's turn samples groups of solutions, lets the verifier judge their steps, and learns from
outcome and steps. A verifier's turn samples one solution a problem and several verifications of it,
and learns to agree with the truth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from statistics import fmean

from whet.algos.advantages import State
from whet.algos.balance import balanced
from whet.algos.verdicts import Agreement, agreement, verifier_metrics
from whet.data.feed import Feed
from whet.data.problems import problems_of, some_problems_of
from whet.errors import ConfigError
from whet.evals.validation import Examiner
from whet.grading.check_task import check_first
from whet.grading.grader import Grader
from whet.recipes.exactness import proved
from whet.recipes.guard import Patience
from whet.recipes.training import Keeper, Part, numbers
from whet.recipes.turns import TangoConfig, Turn, num_turns, turn_at
from whet.rng import derive
from whet.rollout.collect import collect
from whet.rollout.judging import minted, outcome_pairs, signed, step_pairs, with_steps
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.registry import build
from whet.tasks.verify import WORDS, Verify
from whet.track.metrics import open_trackers, rollup
from whet.track.progress import bar, say, screen
from whet.train.determinism import settle
from whet.train.learner import Metrics
from whet.train.trainee import Side, open_side
from whet.types import Group, Json

COLUMNS = {
    "reward/mean": "reward",
    "score/correct": "correct",
    "verifier_reward/mean": "verifier's reward",
    "verifier/balanced_accuracy": "its balanced accuracy",
    "verifier/says_correct": "says correct",
    "verifier/step_f1": "F1 of steps",
    "steps/alpha": "alpha",
}


def tango(cfg: TangoConfig, run: RunStore) -> None:
    """Improve both: each step is one side's, on solutions of fresh problems and verifications of
    them."""
    settle(cfg.train.deterministic or cfg.verifier_train.deterministic)
    pair = open_pair(cfg, run)
    exam = problems_of(pair.task, cfg.problems, cfg.exam.split)
    examiner = Examiner(cfg.exam, pair.grader, exam, cfg.sampling, seed=cfg.seed)
    generator, verifier = pair.generator, pair.verifier
    others = {"verifier": verifier.trained}
    patience = {turn: Patience() for turn in Turn}
    parts: dict[str, Part] = {
        "feed": pair.feed,
        **{f"{turn}_patience": each for turn, each in patience.items()},
    }
    keeper = Keeper(
        cfg.save, run, generator.policy, generator.learner, examiner, others, parts=parts
    )
    start, state = keeper.resume()
    memory = Memory.from_json(state)
    with (
        pair.grader,
        open_trackers(cfg.track, run, COLUMNS, console=screen()) as tracker,
        bar("tango", cfg.steps, done=start) as advance,
    ):
        for step in range(start, cfg.steps):
            generator.policy.publish(step)
            verifier.policy.publish(step)
            turn = turn_at(cfg, step)
            turned = TURNS[turn](pair, step, memory)
            run.write_rollouts("train", step + 1, turned.groups)
            tracker.log(step + 1, turned.metrics)
            advance(1)
            patience[turn].after({"step/empty": float(turned.is_stuck)})
            memory = turned.memory
            keeper.after(step + 1, cfg.steps, memory.to_json())
    best, folder = keeper.result()
    model = str(folder.relative_to(run.folder))
    run.finish(
        {
            "model": model,
            "verifier": f"{model}/others/verifier",
            "step": best,
            "exam_pass@1": keeper.best.shown,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory:
    """What a step leaves for the next, in the checkpoint."""

    baseline: State = field(default_factory=dict)
    verifier_baseline: State = field(default_factory=dict)
    counts: State = field(default_factory=dict)
    """Running counts of right and wrong solutions that the verifier trained on."""
    is_guarded: bool = False
    """Whether steps counted for nothing when the generator last had its turn."""

    def to_json(self) -> dict[str, Json]:
        return asdict(self)

    @staticmethod
    def from_json(row: Mapping[str, Json]) -> "Memory":
        names = ("baseline", "verifier_baseline", "counts")
        states = {name: numbers(row.get(name)) for name in names}
        return Memory(**states, is_guarded=row.get("is_guarded") is True)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Turned:
    """A step that was taken: its rollouts, its metrics, and what it leaves."""

    groups: list[Group]
    metrics: Metrics
    memory: Memory

    @property
    def is_stuck(self) -> bool:
        """Whether nothing was learned, for other reasons than that the verifier is right
        already."""
        return self.metrics["step/empty"] > 0 and not (
            "verifier_reward/mean" in self.metrics and self.metrics["verifier/accuracy"] > 0.5
        )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pair:
    """Both sides, and what they work on."""

    cfg: TangoConfig
    task: Task
    judge: Verify
    feed: Feed
    generator: Side
    verifier: Side
    grader: Grader

    def solutions(self, step: int, samples: int) -> list[Group]:
        """Solve the next problems."""
        cfg = self.cfg
        problems = [
            self.task.vary(problem, derive(cfg.seed, "vary", step, index))
            for index, problem in enumerate(self.feed.take(cfg.problems_per_step, step))
        ]
        seed = derive(cfg.seed, "rollout", step)
        player = self.generator.policy.player
        return collect(player, self.grader, problems, cfg.sampling, samples=samples, seed=seed)

    def verifications(self, step: int, solved: Sequence[Group], samples: int) -> list[Group]:
        """Verify every solution that can be judged."""
        cfg, policy = self.cfg, self.verifier.policy
        room = policy.engine.context - cfg.verifier_sampling.max_tokens
        problems = minted(solved, self.judge, policy.player, room)
        seed = derive(cfg.seed, "verify", step)
        sampling = cfg.verifier_sampling
        return signed(
            collect(policy.player, self.grader, problems, sampling, samples=samples, seed=seed)
        )


def open_pair(cfg: TangoConfig, run: RunStore) -> Pair:
    task = build(cfg.task)
    judge = Verify(cfg.verify)
    if task.name == judge.name:
        raise ConfigError(
            f"the task is named {task.name!r}, as the verifier's own is: give it another name"
        )
    feed = Feed(some_problems_of(task, cfg.problems, "rl"), seed=derive(cfg.seed, "feed"))
    check_first(task, feed.problems, cfg.grading)
    updates = {turn: num_turns(cfg, turn, cfg.steps) for turn in Turn}
    name = run.folder.name
    prove = partial(proved, run=run)
    generator = open_side(
        cfg.model, cfg.algo, cfg.sampling, cfg.train, cfg.engine,
        updates=updates[Turn.GENERATOR], name=name, seed=cfg.seed, prove=prove,
    )  # fmt: skip
    verifier = open_side(
        cfg.verifier, cfg.verifier_algo, cfg.verifier_sampling, cfg.verifier_train, cfg.verifier_engine,
        updates=updates[Turn.VERIFIER], name=f"{name}-verifier", seed=cfg.seed, prove=prove,
    )  # fmt: skip
    if verifier.policy.engine.context <= cfg.verifier_sampling.max_tokens:
        raise ConfigError(
            f"verifier_sampling.max_tokens = {cfg.verifier_sampling.max_tokens} leaves no room for a solution in the "
            f"verifier's context of {verifier.policy.engine.context} tokens"
        )
    for side, other in ((generator, verifier), (verifier, generator)):
        side.learner.room.engines.append(other.policy.engine)
    grader = Grader([task, judge], cfg.grading)
    return Pair(
        cfg=cfg,
        task=task,
        judge=judge,
        feed=feed,
        generator=generator,
        verifier=verifier,
        grader=grader,
    )


def train_generator(pair: Pair, step: int, memory: Memory) -> Turned:
    """Credit outcome and judged steps; the steps count for nothing while the verifier says one
    thing always."""
    cfg = pair.cfg
    solved = pair.solutions(step, cfg.group_size)
    judged = pair.verifications(step, solved, cfg.judgements)
    solved = cfg.reward.apply(with_steps(solved, judged, pair.judge, pair.generator.policy.chat))
    outcome, steps = _agreements(pair, solved, judged)
    if outcome.is_one_sided and not memory.is_guarded:
        say(
            f"step {step + 1}: the verifier says one thing always, so its word on steps does not count until it differs"
        )
    progress = num_turns(cfg, Turn.GENERATOR, step) / num_turns(cfg, Turn.GENERATOR, cfg.steps)
    has_steps = not outcome.is_one_sided
    metrics, baseline = pair.generator.improve(
        solved,
        memory.baseline,
        seed=derive(cfg.seed, "update", step),
        progress=progress,
        has_steps=has_steps,
    )
    counts = [len(rollout.steps) for group in solved for rollout in group]
    metrics |= {
        "steps/alpha": pair.generator.algo.alpha(progress) if has_steps else 0.0,
        "steps/guarded": float(outcome.is_one_sided),
        "steps/judged": fmean(count > 0 for count in counts),
        "steps/count": fmean(counts),
    }
    metrics = rollup(solved) | metrics | verifier_metrics(outcome, steps)
    memory = replace(memory, baseline=baseline, is_guarded=outcome.is_one_sided)
    return Turned(groups=[*solved, *judged], metrics=metrics, memory=memory)


def train_verifier(pair: Pair, step: int, memory: Memory) -> Turned:
    """Reward agreement with the truth and form; solutions of the rarer kind weigh more."""
    cfg = pair.cfg
    solved = pair.solutions(step, 1)
    judged = cfg.verifier_reward.apply(pair.verifications(step, solved, cfg.verifier_group_size))
    if not judged:
        return Turned(groups=solved, metrics={"step/empty": 1.0}, memory=memory)
    is_right = [group[0].problem.answer == WORDS[True] for group in judged]
    weights, counts = balanced(is_right, memory.counts, rule=cfg.balance)
    found, baseline = pair.verifier.improve(
        judged,
        memory.verifier_baseline,
        seed=derive(cfg.seed, "update", step),
        weights={group[0].group: weight for group, weight in zip(judged, weights, strict=True)},
    )
    metrics = {f"verifier_{name}": value for name, value in (rollup(judged) | found).items()}
    metrics |= verifier_metrics(*_agreements(pair, solved, judged)) | {
        "verifier/count_correct": counts["correct"],
        "verifier/count_wrong": counts["wrong"],
        "step/empty": found["step/empty"],
    }
    memory = replace(memory, verifier_baseline=baseline, counts=counts)
    return Turned(groups=[*solved, *judged], metrics=metrics, memory=memory)


TURNS = {Turn.GENERATOR: train_generator, Turn.VERIFIER: train_verifier}


def _agreements(
    pair: Pair, solved: Sequence[Group], judged: Sequence[Group]
) -> tuple[Agreement, Agreement]:
    """How final verdicts agree with the truth, and verdicts on steps with what the task knows of
    them."""
    steps = step_pairs(solved, judged, pair.judge, pair.task)
    return agreement(outcome_pairs(judged, pair.judge)), agreement(steps)
