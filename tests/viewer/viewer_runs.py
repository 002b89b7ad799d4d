"""Run folders for the viewer's tests, written by hand so that every number in them is known."""

import json
from pathlib import Path

from whet.store.files import append_row, write_json
from whet.store.rollouts import write_rollouts
from whet.testing.fakes import rollout, sum_problem
from whet.text.tokenizer import train_tokenizer
from whet.types import FinishReason, Rollout, Score, Verdict
from whet.viewer.facts import facts_file

CONFIG = """kind = "rl"
seed = {seed}
steps = 4

[task]
name = "sums"

[train]
lr = {lr}

[reward.weights]
correct = 1.0

[[reward.terms]]
weight = 0.5
when = "always"
kind = "overlong"
max_tokens = 4
buffer = 2

[algo]
name = "grpo"

# Where each value came from:
# seed     = {seed}  # mine.toml
# train.lr = {lr}  # cli
"""
NUM_STEPS = 3


def write_run(folder: Path, *, seed: int = 1, lr: float = 1e-3, steps: int = NUM_STEPS) -> Path:
    """Write a run of three steps, two groups of two each: per step one right answer of four."""
    folder.mkdir(parents=True)
    (folder / "config.toml").write_text(CONFIG.format(seed=seed, lr=lr))
    write_json(folder / "provenance.json", {"started": "2026-11-18T00:00:00+00:00", "seed": seed})
    append_row(folder / "ledger.jsonl", {"time": "2026-11-18T00:00:00+00:00", "event": "start"})
    train_tokenizer(["3", " is", " seven"]).save(folder / "checkpoints" / "000003")
    for step in range(1, steps + 1):
        write_step(folder, step)
    return folder


def write_step(folder: Path, step: int) -> None:
    name = f"train-{step:06d}.parquet"
    write_rollouts(folder / "rollouts" / name, [make_group(1, 2, step), make_group(4, 5, step)])
    row = {"step": step, "reward/mean": 0.1 * step, "time/step": 2.0, "time/sample": 1.5}
    append_row(folder / "metrics.jsonl", row)


def make_group(left: int, right: int, step: int) -> tuple[Rollout, Rollout]:
    """Make a right and a wrong answer, or two wrong ones for the second problem."""
    problem = sum_problem(left, right)
    right_score = Score(
        verdict=Verdict.CORRECT, parts={"correct": 1.0, "asked": 0.0}, answer="3", note="equal"
    )
    wrong_score = Score(
        verdict=Verdict.WRONG, parts={"correct": 0.0, "asked": 1.0}, answer="7", note="not 3"
    )
    first = right_score if left == 1 else wrong_score
    return (
        rollout(problem=problem, score=first, reward=1.0 if left == 1 else 0.0, text="3 is right"),
        rollout(
            problem=problem,
            score=wrong_score,
            reward=-0.5,
            number=1,
            tokens=(5, 6, 7, 8),
            text=f"Seven, after step {step}",
            finish=FinishReason.LENGTH,
        ),
    )


def write_facts(cache: Path) -> None:
    """Cache facts about the package, so that no test waits for the program that has torch."""
    meanings = {"rl": {"train.lr": "Peak learning rate."}}
    presets = {
        "grpo": {"advantage": "zscore", "clip_high": 0.2},
        "ppo": {"advantage": "gae", "clip_high": 0.2},
    }
    write_json(facts_file(cache), {"meanings": dict(meanings), "presets": dict(presets)})


def write_verl_dump(folder: Path) -> Path:
    folder.mkdir(parents=True)
    rows = [
        {"input": "2+2?", "output": "It is 4", "gts": "4", "score": 1.0, "step": 10},
        {"input": "2+2?", "output": "Five", "gts": "4", "score": 0.0, "step": 10, "format": 0.5},
    ]
    (folder / "10.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def write_wandb_table(folder: Path) -> Path:
    folder.mkdir(parents=True)
    table = {
        "columns": ["step", "input_1", "output_1", "score_1", "input_2", "output_2", "score_2"],
        "data": [[20, "3+3?", "6", 1.0, "1+1?", "3", 0.0]],
    }
    (folder / "val_generations.table.json").write_text(json.dumps(table))
    return folder
