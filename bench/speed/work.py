"""The work of a bench, the same for every side. Standard library only: a peer's environment may
lack whet."""

import argparse
import dataclasses
import json
import math
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Lengths = Literal["fixed", "natural"]
SIGMA = 0.8
"""Deviation of the logarithm of natural lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """`prompts` times `samples` completions of a model; temperature 1, nothing cut off, no
    end-of-sequence token."""

    model: str
    device: str
    dtype: str
    lengths: Lengths
    prompts: int
    samples: int
    prompt_tokens: int
    new_tokens: int
    """Length of every completion, or the mean of natural ones before the cap."""
    cap: int
    slots: int
    threads: int
    rounds: int
    seed: int

    @property
    def num_requests(self) -> int:
        return self.prompts * self.samples

    @property
    def context(self) -> int:
        return self.prompt_tokens + self.cap

    def limits(self) -> list[int]:
        """How long each completion is; the samples of one prompt stand together."""
        if self.lengths == "fixed":
            return [self.new_tokens] * self.num_requests
        source = random.Random(f"{self.seed} lengths")
        mu = math.log(self.new_tokens) - SIGMA**2 / 2
        drawn = [round(source.lognormvariate(mu, SIGMA)) for _ in range(self.num_requests)]
        return [min(self.cap, max(1, length)) for length in drawn]

    def prompt_ids(self, vocab_size: int, number: int) -> list[list[int]]:
        """The prompts of a round. Each round has its own, so that no side can keep what it computed
        before."""
        source = random.Random(f"{self.seed} prompts {number}")
        return [
            source.choices(range(vocab_size), k=self.prompt_tokens) for _ in range(self.prompts)
        ]

    def responses(self, vocab_size: int) -> list[list[int]]:
        """Tokens that stand for recorded completions where only the update is timed."""
        source = random.Random(f"{self.seed} responses")
        return [source.choices(range(vocab_size), k=length) for length in self.limits()]


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    """What a child is told: the work, where the weights are, and its own settings."""

    work: Work
    task: Literal["rollout", "update", "rl_step"]
    vocab_size: int
    folder: str | None
    """A Hugging Face folder; None lets our own side draw the weights in place."""
    settings: dict[str, str | int | float | bool]

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self))

    @staticmethod
    def read(file: Path) -> "Spec":
        row = json.loads(file.read_text())
        return Spec(**{**row, "work": Work(**row["work"])})


def add_options(parser: argparse.ArgumentParser, *, models: list[str]) -> None:
    """Add the options that describe the work."""
    parser.add_argument("--model", choices=models, default="4m")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cpu")
    parser.add_argument("--lengths", choices=["fixed", "natural"], default="fixed")
    parser.add_argument("--prompts", type=int, default=64)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--prompt-tokens", type=int, default=64)
    parser.add_argument(
        "--new-tokens", type=int, default=512, help="length of completions; natural: their mean"
    )
    parser.add_argument(
        "--cap", type=int, help="longest natural completion; four times the mean if left out"
    )
    parser.add_argument("--slots", type=int, default=512, help="requests our engine runs at once")
    parser.add_argument(
        "--threads",
        type=int,
        default=0,
        help="CPU threads a side may use; 0 leaves it to the library",
    )
    parser.add_argument(
        "--rounds", type=int, help="timed rounds a side; 3 on a CPU, 5 on a GPU if left out"
    )
    parser.add_argument("--seed", type=int, default=0)


def work_of(args: argparse.Namespace) -> Work:
    is_cuda = args.device == "cuda"
    longest = args.cap or 4 * args.new_tokens
    return Work(
        model=args.model,
        device=args.device,
        dtype="bfloat16" if is_cuda else "float32",
        lengths=args.lengths,
        prompts=args.prompts,
        samples=args.samples,
        prompt_tokens=args.prompt_tokens,
        new_tokens=args.new_tokens,
        cap=args.new_tokens if args.lengths == "fixed" else longest,
        slots=args.slots,
        threads=args.threads,
        rounds=args.rounds or (5 if is_cuda else 3),
        seed=args.seed,
    )
