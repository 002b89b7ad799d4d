"""Measure a model on a split: sampled and greedy, with intervals, every response stored."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Literal

from pydantic import Field

from whet.data.problems import load_problems
from whet.evals.summary import REPORTED_KS, EvalSummary, summarise
from whet.grading.grader import Grader
from whet.models.source import load_model, torch_device, torch_dtype
from whet.rng import derive
from whet.rollout.collect import ChatEngine, sample_and_grade
from whet.stages.stage import ModelStageConfig, ModelWork
from whet.stages.training import drop_long_prompts
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.task_config import build_task
from whet.track.progress import console, say
from whet.train.policy import build_policy
from whet.types import Dtype, Split

SAMPLED, GREEDY = 0, 1
"""The two evaluations of a run. The store files them by step number, as it does validations."""


class EvalConfig(ModelStageConfig):
    """Which model, on which problems, how often."""

    needs_verdicts = True
    measures_model = True

    kind: Literal["eval"] = "eval"
    split: Split = "test"
    """The split of the problems."""
    samples: int = Field(default=8, ge=1)
    """Responses per problem at the sampling temperature; one greedy response is measured as
    well."""
    dtype: Dtype = "auto"
    """Compute type; auto is bfloat16 on a GPU and float32 elsewhere."""

    def run_in(self, run: RunStore) -> None:
        evaluate_model(self, run)

    @property
    def splits(self) -> list[Split]:
        return [self.split]

    @property
    def asks_unsolvable(self) -> bool:
        return True

    def list_work(self) -> list[ModelWork]:
        return [replace(work, samples=self.samples) for work in super().list_work()]


def evaluate_model(cfg: EvalConfig, run: RunStore) -> None:
    """Answer every problem by sampling and greedily; write the responses and their summaries."""
    task = build_task(cfg.task)
    problems = load_problems(task, cfg.problems, cfg.split, include_unsolvable=True)
    greedy = cfg.sampling.model_copy(update={"temperature": 0.0})
    summaries = {}
    with open_chat_engine(cfg, task, cfg.dtype, name=cfg.model.path or "") as (chat_engine, grader):
        problems = drop_long_prompts(problems, chat_engine, run)
        for number, sampling, samples in (
            (SAMPLED, cfg.sampling, cfg.samples),
            (GREEDY, greedy, 1),
        ):
            seed = derive(cfg.seed, "eval", number)
            groups = sample_and_grade(
                chat_engine,
                grader,
                problems,
                sampling,
                samples=samples,
                seed=seed,
                label="evaluate",
            )
            summaries[number] = summarise(groups, ks=_choose_ks(samples))
            run.write_rollouts("eval", number, groups)
            run.write_eval(number, summaries[number].to_json())
    console.print(_describe_results(summaries[SAMPLED], summaries[GREEDY]))
    if all(summary.pass_at[1].mean == 0 for summary in summaries.values()):
        say("nothing is solved: docs/troubleshooting.md lists causes, with what to look at")
    run.finish({"sampled": summaries[SAMPLED].to_json(), "greedy": summaries[GREEDY].to_json()})


@contextmanager
def open_chat_engine(
    cfg: ModelStageConfig, task: Task, dtype: Dtype, *, name: str
) -> Iterator[tuple[ChatEngine, Grader]]:
    """Load the model of a stage that trains nothing, and start the grader of its responses; `name`
    is the model's in stored responses."""
    model, tokenizer = load_model(
        cfg.model, dtype=torch_dtype(dtype), device=torch_device(), texts=[], seed=cfg.seed
    )
    policy = build_policy(model, tokenizer, cfg.engine, name=name, prompt=cfg.prompt)
    with closing(policy.engine), Grader(task, cfg.grading) as grader:
        yield policy.chat_engine, grader


def _choose_ks(samples: int) -> list[int]:
    return sorted({k for k in REPORTED_KS if k <= samples} | {samples})


def _describe_results(sampled: EvalSummary, greedy: EvalSummary) -> str:
    best = greedy.pass_at[1]
    f1 = "".join(
        f"; F1 of {subset} {100 * sampled.f1[subset].value:.1f} % sampled, "
        f"{100 * score.value:.1f} % greedy"
        for subset, score in greedy.f1.items()
        if subset in sampled.f1
    )
    return (
        f"pass@1 {sampled.pass_at[1].in_percent()} sampled, "
        f"{100 * best.mean:.1f} % greedy, on {sampled.num_problems} problems{f1}"
    )
