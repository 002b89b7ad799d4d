"""On-policy distillation: the policy answers, and a teacher says of each token how likely it would
have been."""

from typing import Literal

from pydantic import Field

from whet.algos.distill import distill_objective
from whet.algos.weights import token_mean
from whet.config import Config
from whet.data.problems import problems_of, some_problems_of
from whet.engine.base import Sampling
from whet.engine.native import EngineConfig
from whet.evals.validation import ExamConfig, Examiner
from whet.grading.grader import Grader
from whet.grading.limits import Limits
from whet.recipes.sft import finish, take
from whet.recipes.training import Keeper, SaveConfig
from whet.rng import derive
from whet.rollout.collect import collect
from whet.store.run import RunStore
from whet.tasks.game24.task import Game24Config
from whet.tasks.registry import TaskConfig, build
from whet.track.metrics import TrackConfig, open_trackers, rollup
from whet.track.progress import bar, screen
from whet.train.credit import example_of, weigh
from whet.train.determinism import settle
from whet.train.optim import TrainConfig
from whet.train.policy import ModelSource, Policy, open_model, torch_dtype
from whet.train.teacher import open_teacher
from whet.train.update import with_reference
from whet.types import Group

COLUMNS = {
    "distill/kl": "kl to teacher",
    "score/correct": "correct",
    "length/mean": "tokens",
    "length/unfinished": "unfinished",
    "policy/entropy": "entropy",
    "train/grad_norm": "gradient",
}


class DistillConfig(Config):
    """Which policy learns from which teacher, on which problems."""

    kind: Literal["distill"] = "distill"
    seed: int = 0
    steps: int = Field(default=100, ge=1)
    problems_per_step: int = Field(default=32, ge=1)
    samples: int = Field(default=4, ge=1)
    """Answers to each problem."""
    task: TaskConfig = Game24Config()
    problems: str | None = None
    """Folder of problems; None takes the task's own."""
    model: ModelSource
    teacher: ModelSource
    """A model with the same tokenizer; it only reads."""
    sampling: Sampling = Sampling()
    grading: Limits = Limits()
    """Verdicts are logged; they teach nothing here."""
    train: TrainConfig = TrainConfig()
    engine: EngineConfig = EngineConfig()
    exam: ExamConfig = ExamConfig()
    save: SaveConfig = SaveConfig()
    track: TrackConfig = TrackConfig()


def distill(cfg: DistillConfig, run: RunStore) -> None:
    """Bring a policy to its teacher on the policy's own answers: sample, let the teacher read,
    update, publish."""
    settle(cfg.train.deterministic)
    task = build(cfg.task)
    objective = distill_objective()
    temperature = cfg.sampling.temperature
    dtype = torch_dtype(cfg.train.dtype)
    model, tokenizer = open_model(cfg.model, dtype=dtype, texts=[], seed=cfg.seed)
    policy = Policy(model, tokenizer, engine=cfg.engine, name=run.folder.name)
    teacher = open_teacher(cfg.teacher, policy, dtype=dtype, offload=cfg.train.offload_reference)
    learner = policy.learner(cfg.train, steps=cfg.steps)
    problems = some_problems_of(task, cfg.problems, "rl")
    grader = Grader(task, cfg.grading)
    exam = problems_of(task, cfg.problems, cfg.exam.split)
    examiner = Examiner(cfg.exam, grader, exam, cfg.sampling, seed=cfg.seed)
    keeper = Keeper(cfg.save, run, policy, learner, examiner)
    start, _ = keeper.resume()

    def sample(step: int) -> list[Group]:
        asked = [
            task.vary(problem, derive(cfg.seed, "vary", step, index))
            for index, problem in enumerate(
                take(problems, cfg.problems_per_step, step, derive(cfg.seed, "feed"))
            )
        ]
        seed = derive(cfg.seed, "rollout", step)
        return collect(policy.player, grader, asked, cfg.sampling, samples=cfg.samples, seed=seed)

    with (
        grader,
        open_trackers(cfg.track, run, COLUMNS, console=screen()) as tracker,
        bar("distill", cfg.steps, done=start) as advance,
    ):
        for step in range(start, cfg.steps):
            policy.publish(step)
            groups = sample(step)
            examples = [example_of(rollout, temperature) for group in groups for rollout in group]
            learner.make_room(examples)
            examples = with_reference(examples, teacher, cfg.train.micro_tokens)
            metrics = learner.update(weigh(examples, token_mean), objective)
            run.write_rollouts("train", step + 1, groups)
            tracker.log(step + 1, unrewarded(groups) | metrics)
            advance(1)
            keeper.after(step + 1, cfg.steps, {})
    finish(run, keeper)


def unrewarded(groups: list[Group]) -> dict[str, float]:
    """What can be said of answers that nobody rewards."""
    return {
        name: value
        for name, value in rollup(groups).items()
        if name.startswith(("score/", "length/"))
    }
