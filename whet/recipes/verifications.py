"""Write verifications of a model's own solutions, for a verifier to learn its layout from by SFT.

The final verdict is the truth. Which step of a wrong solution is called wrong is drawn by lot, so
that a verifier has nothing but outcomes to learn from; or steps are called what the task says of
them, in the place of what a pretrained verifier would know.
"""

from typing import Literal

from pydantic import Field

from whet.data.problems import some_problems_of
from whet.errors import DataError
from whet.grading.grader import Grader
from whet.models.source import Dtype, open_model, torch_dtype
from whet.recipes.training import ModelStageConfig
from whet.rng import derive
from whet.rollout.collect import collect
from whet.store.run import RunStore
from whet.tasks.registry import build_task
from whet.tasks.verify import WORDS, Verify, VerifyConfig
from whet.track.progress import bar, console
from whet.train.policy import build_policy
from whet.types import Problem, Rollout, Split


class VerificationsConfig(ModelStageConfig):
    """Whose solutions of what are verified."""

    kind: Literal["verifications"] = "verifications"
    split: Split = "rl"
    """Whose problems are solved."""
    dtype: Dtype = "auto"
    """Compute type; auto is bfloat16 on a GPU and float32 elsewhere."""
    samples: int = Field(default=4, ge=1)
    """Solutions of each problem."""
    verify: VerifyConfig = VerifyConfig()
    """How a verification is asked for and read."""
    steps: Literal["lot", "exact"] = "lot"
    """What steps are called; with exact, what the task can tell, and right where it cannot."""


def write_verifications(cfg: VerificationsConfig, run: RunStore) -> None:
    """Sample solutions, and write one verification of each that can be judged."""
    task = build_task(cfg.task)
    judge = Verify(cfg.verify)
    problems = some_problems_of(task, cfg.problems, cfg.split)
    model, tokenizer = open_model(cfg.model, dtype=torch_dtype(cfg.dtype), texts=[], seed=cfg.seed)
    chat_engine = build_policy(model, tokenizer, cfg.engine, name=run.folder.name).chat_engine
    with Grader(task, cfg.grading) as grader, bar("solve", len(problems) * cfg.samples) as advance:
        seed = derive(cfg.seed, "verifications")
        solved = collect(
            chat_engine,
            grader,
            problems,
            cfg.sampling,
            samples=cfg.samples,
            seed=seed,
            progress=advance,
        )
    asked = [
        (problem, rollout)
        for group in solved
        for rollout in group
        if (problem := judge.mint(rollout)) is not None
    ]
    if not asked:
        raise DataError(
            "none of the sampled solutions has steps to judge; raise samples or sampling.max_tokens"
        )
    rows = {}
    for problem, rollout in asked:
        if cfg.steps == "exact":
            text = judge.write(
                problem, [label is not False for label in judge.labels(task, rollout)]
            )
        else:
            text = judge.solve(problem, derive(cfg.seed, problem.id))
        rows[problem.id] = _row(judge, problem, text)
    run.write_rollouts("train", 0, [(row,) for row in rows.values()])
    num_right = sum(row.problem.answer == WORDS[True] for row in rows.values())
    console.print(
        f"{len(rows):>7,} verifications, {num_right:,} of them of right solutions, repeats left out"
    )
    run.finish({"verifications": len(rows), "correct": num_right})


def _row(judge: Verify, problem: Problem, text: str) -> Rollout:
    score = judge.score(problem, text)
    return Rollout.from_text(problem, text, model=judge.name, score=score)
