"""Learning from preferences: of two answers to one prompt, the better is to become likelier. DPO
and its kin."""

from typing import Literal

from pydantic import Field

from whet.algos.preference import PreferenceConfig, preference_objective
from whet.config import Config
from whet.data.pairs import Fault, PairRule, PairView, preferences
from whet.data.problems import problems_of, some_problems_of
from whet.engine.base import Sampling
from whet.engine.native import EngineConfig
from whet.errors import DataError
from whet.evals.validation import ExamConfig, Examiner, evaluate
from whet.grading.grader import Grader
from whet.grading.limits import Limits
from whet.recipes.guard import Guard, GuardConfig
from whet.recipes.sft import LINES, finish, read_data, take
from whet.recipes.training import Keeper, SaveConfig
from whet.rng import derive
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.game24.task import Game24Config
from whet.tasks.registry import TaskConfig, build
from whet.track.metrics import TrackConfig, open_trackers
from whet.track.progress import bar, console, screen
from whet.train.determinism import settle
from whet.train.optim import TrainConfig
from whet.train.policy import ModelSource, Policy, open_model, torch_dtype
from whet.train.preference import score_pairs, weigh_pairs
from whet.types import Rollout

COLUMNS = {
    "loss": "loss",
    "preference/accuracy": "accuracy",
    "preference/margin": "margin",
    "preference/chosen": "chosen",
    "preference/rejected": "rejected",
    "train/grad_norm": "gradient",
}
WORDS: dict[Fault, str] = {
    "unscored": "without a verdict",
    "repeated": "repeated",
    "cut": "cut at the length limit",
    "too_long": "longer than the context",
}


class PairsConfig(Config):
    """Which answers are put against each other."""

    rules: tuple[PairRule, ...] = Field(default=("correct",), min_length=1)
    """correct: right against wrong; short: of two right ones the shorter; first_wrong: at the first
    wrong step."""
    per_problem: int = Field(default=8, ge=1)
    """Most pairs of a problem, by each rule."""


class OwnAnswers(Config):
    """What the model is asked where its own answers are to be compared."""

    split: Literal["sft", "rl"] = "rl"
    problems: int | None = Field(default=None, ge=1)
    """How many problems, the first ones of the split; none asks all of them."""
    samples: int = Field(default=8, ge=2)
    """Answers to each."""


class DPOConfig(Config):
    """Whose answers are compared, how, with which model, for how long."""

    kind: Literal["dpo"] = "dpo"
    seed: int = 0
    steps: int = Field(default=100, ge=1)
    batch: int = Field(default=32, ge=1)
    """Pairs an optimiser step."""
    data: str | None = None
    """A rollout file, a run folder that holds some, or `@stage` in a pipeline; none has the model
    answer first."""
    own: OwnAnswers = OwnAnswers()
    pairs: PairsConfig = PairsConfig()
    loss: PreferenceConfig = PreferenceConfig()
    task: TaskConfig = Game24Config()
    problems: str | None = None
    """Folder of problems; None takes the task's own."""
    model: ModelSource
    """Where training starts; also the reference."""
    train: TrainConfig = TrainConfig()
    sampling: Sampling = Sampling()
    """For own answers and exams."""
    engine: EngineConfig = EngineConfig()
    exam: ExamConfig = ExamConfig()
    guard: GuardConfig = GuardConfig()
    grading: Limits = Limits()
    save: SaveConfig = SaveConfig()
    track: TrackConfig = TrackConfig()


def dpo(cfg: DPOConfig, run: RunStore) -> None:
    """Prefer better answers: pair stored or own ones, score them once by the starting model, step,
    examine, save."""
    settle(cfg.train.deterministic)
    task = build(cfg.task)
    model, tokenizer = open_model(
        cfg.model, dtype=torch_dtype(cfg.train.dtype), texts=[], seed=cfg.seed
    )
    policy = Policy(model, tokenizer, engine=cfg.engine, name=run.folder.name)
    learner = policy.learner(cfg.train, steps=cfg.steps)
    objective = preference_objective(cfg.loss)
    grader = Grader(task, cfg.grading)
    exam = problems_of(task, cfg.problems, cfg.exam.split)
    examiner = Examiner(cfg.exam, grader, exam, cfg.sampling, seed=cfg.seed)
    guard = Guard(cfg.guard, run, learner, cfg.exam)
    keeper = Keeper(cfg.save, run, policy, learner, examiner, guard=guard)
    with grader:
        rollouts = answers(cfg, run, policy, task, grader)
        view = preferences(
            rollouts,
            policy.chat,
            cfg.pairs.rules,
            notes=task.notes,
            max_tokens=policy.engine.context,
            per_problem=cfg.pairs.per_problem,
            seed=derive(cfg.seed, "pairs"),
        )
        tell(view)
        pairs = score_pairs(
            view.pairs, model, cfg.train.micro_tokens
        )  # before a checkpoint replaces the start
        start, _ = keeper.resume()
        keep(cfg, run, rollouts)
        with (
            open_trackers(cfg.track, run, COLUMNS, every=LINES, console=screen()) as tracker,
            bar("dpo", cfg.steps, done=start) as advance,
        ):
            keeper.before(start, {})
            for step in range(start, cfg.steps):
                batch = weigh_pairs(take(pairs, cfg.batch, step, cfg.seed))
                tracker.log(step + 1, learner.update(batch, objective))
                advance(1)
                keeper.after(step + 1, cfg.steps, {})
    finish(run, keeper)


def answers(
    cfg: DPOConfig, run: RunStore, policy: Policy, task: Task, grader: Grader
) -> list[Rollout]:
    """Read the answers to compare; where none are given, the model writes them before its first
    step."""
    if cfg.data is not None:
        return read_data(cfg.data)
    if 0 in run.rollout_steps("train"):
        return run.rollouts("train", 0)
    asked = some_problems_of(task, cfg.problems, cfg.own.split)[: cfg.own.problems]
    seed = derive(cfg.seed, "own")
    groups = evaluate(
        policy.player, grader, asked, cfg.sampling, samples=cfg.own.samples, seed=seed
    )
    return [rollout for group in groups for rollout in group]


def keep(cfg: DPOConfig, run: RunStore, rollouts: list[Rollout]) -> None:
    """Store the model's own answers with the run; those that were read are stored already."""
    if cfg.data is None:
        run.write_rollouts("train", 0, [tuple(rollouts)])


def tell(view: PairView) -> None:
    """Say how many pairs there are, and what did not become one; stop where there is none."""
    left_out = [
        f"{view.faults[fault]:,} {words}" for fault, words in WORDS.items() if view.faults[fault]
    ]
    console.print(
        f"{view.num_answers:,} answers to {view.num_problems:,} problems; left out: {', '.join(left_out) or 'none'}"
    )
    for rule, count in view.rules.items():
        console.print(
            f"{count.num_pairs:>7,} pairs by {rule}, {count.num_capped:,} more over the cap, "
            f"{count.num_barren:,} problems without any"
        )
    if not view.pairs:
        raise DataError(
            f"no two of the {view.num_answers:,} answers make a pair by {', '.join(view.rules)}: "
            "give more answers a problem, or other pairs.rules"
        )
