"""Write verifications of a model's own solutions, from which SFT teaches a verifier the format.

The final verdict is the truth. A random step of a wrong solution is called wrong, so that the
verifier later learns from outcomes alone; or the task labels the steps, in place of a pretrained
verifier's knowledge.
"""

from dataclasses import replace
from typing import Literal

from pydantic import Field

from whet.data.problems import load_problems
from whet.errors import DataError
from whet.recipes.evaluate import open_chat_engine
from whet.rng import derive
from whet.rollout.collect import sample_and_grade
from whet.stages.stage import ModelStageConfig, ModelWork
from whet.stages.training import drop_long_prompts
from whet.store.run import RunStore
from whet.tasks.task_config import build_task
from whet.tasks.verify import VERDICT_WORDS, Verify, VerifyConfig
from whet.track.progress import console
from whet.types import Dtype, Problem, Rollout, Split


class VerificationsConfig(ModelStageConfig):
    """Which model's solutions of which problems are verified."""

    kind: Literal["verifications"] = "verifications"
    split: Split = "rl"
    """The split of the problems."""
    dtype: Dtype = "auto"
    """Compute type; auto is bfloat16 on a GPU and float32 elsewhere."""
    samples: int = Field(default=4, ge=1)
    """Solutions of each problem."""
    verify: VerifyConfig = VerifyConfig()
    """How verifications are requested and parsed."""
    steps: Literal["lot", "exact"] = "lot"
    """Verdicts on the steps of wrong solutions: at random (lot), or the task's labels (exact),
    where steps without a label count as right."""

    def run_in(self, run: RunStore) -> None:
        write_verifications(self, run)

    @property
    def response_prompt(self) -> None:
        """Verifications always use their own prompt."""
        return None

    @property
    def splits(self) -> list[Split]:
        return [self.split]

    def list_work(self) -> list[ModelWork]:
        return [replace(work, samples=self.samples) for work in super().list_work()]


def write_verifications(cfg: VerificationsConfig, run: RunStore) -> None:
    """Sample solutions, and write one verification of each that can be judged."""
    task = build_task(cfg.task)
    verifier_task = Verify(cfg.verify)
    problems = load_problems(task, cfg.problems, cfg.split)
    with open_chat_engine(cfg, task, cfg.dtype, name=run.folder.name) as (chat_engine, grader):
        solved = sample_and_grade(
            chat_engine,
            grader,
            drop_long_prompts(problems, chat_engine, run),
            cfg.sampling,
            samples=cfg.samples,
            seed=derive(cfg.seed, "verifications"),
            label="solve",
        )
    verifications = [
        (problem, rollout)
        for group in solved
        for rollout in group
        if (problem := verifier_task.make_problem(rollout)) is not None
    ]
    if not verifications:
        raise DataError(
            "none of the sampled solutions has steps to judge; raise samples or sampling.max_tokens"
        )
    rows = {}
    for problem, rollout in verifications:
        if cfg.steps == "exact":
            text = verifier_task.write(
                problem, [label is not False for label in verifier_task.labels(task, rollout)]
            )
        else:
            text = verifier_task.solve(problem, derive(cfg.seed, problem.id))
        rows[problem.id] = _row(verifier_task, problem, text)
    run.write_rollouts("train", 0, [(row,) for row in rows.values()])
    num_right = sum(row.problem.answer == VERDICT_WORDS[True] for row in rows.values())
    console.print(
        f"{len(rows):>7,} verifications, {num_right:,} of them of right solutions, repeats left out"
    )
    run.finish({"verifications": len(rows), "correct": num_right})


def _row(verifier_task: Verify, problem: Problem, text: str) -> Rollout:
    score = verifier_task.score(problem, text)
    return Rollout.from_text(problem, text, model=verifier_task.name, score=score)
