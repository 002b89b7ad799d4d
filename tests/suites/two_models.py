"""Two tiny models with random weights, and a suite of four tasks that they are asked."""

from dataclasses import dataclass
from pathlib import Path

import torch
from small import write

from whet.models.save import save_model
from whet.models.sizes import new_config
from whet.models.transformer import Transformer, init_weights
from whet.tasks.base import list_problems
from whet.tasks.registry import build_default_task
from whet.text.tokenizer import train_tokenizer

TASKS = ("countdown", "arithmetic", "mis", "knights")
SUITE = """about = "Four tasks of different kinds"

[benchmarks.countdown]
task = { name = "countdown", count = 12 }
samples = 4
sampling = { max_tokens = 6 }
fast = { limit = 6 }

[benchmarks.arithmetic]
task = { name = "arithmetic", count = 10 }
samples = 4
metric = "maj@3"
sampling = { max_tokens = 6 }
fast = {}

[benchmarks.mis]
task = { name = "mis", count = 5, level = [0.0, 0.0] }
samples = 4
metric = "pass@2"
sampling = { max_tokens = 6 }
fast = {}

[benchmarks.knights]
task = { name = "knights", count = 6 }
sampling = { temperature = 0.0, max_tokens = 6 }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoModels:
    """A folder with the suite and the models `one` and `two`."""

    folder: Path
    suite: Path
    one: Path
    two: Path


def make_two_models(folder: Path) -> TwoModels:
    texts = []
    for name in TASKS:
        task = build_default_task(name)
        for problem, _ in zip(list_problems(task, "test"), range(4), strict=False):
            texts += [problem.prompt[-1].content, task.solve(problem, 0) or ""]
    tokenizer = train_tokenizer(texts, max_pieces=64)
    for seed, name in enumerate(("one", "two")):
        model = Transformer(new_config("tiny", tokenizer.vocab_size, 2048), dtype=torch.float32)
        init_weights(model, seed)
        save_model(model, folder / name, eos_tokens=[tokenizer.id(tokenizer.named["eos_token"])])
        tokenizer.save(folder / name)
    return TwoModels(
        folder=folder,
        suite=write(folder / "four.toml", SUITE),
        one=folder / "one",
        two=folder / "two",
    )
