"""Train on several ranks as on one process, and show that they sample and learn the same.

    python bench/ranks.py --out runs/ranks [--only rl ppo] [--ranks 2 3 4 2x2]

Each pipeline of bench/same runs once on one process. Its run folder is then copied, the stages to
compare are deleted, and so many ranks run them again, from the same models and data; `2x2` is four
ranks with two copies of the weights. A row per stage says how many sampled answers have the same
tokens, and the largest gap of a weight after twenty steps. A first token that differs is traced:
the draw must lie within rounding of the border between the two tokens.

Ranks add gradients in another order than one process, which rounds differently. Adam divides a
gradient by its own size, so that where a gradient is nothing but rounding the step is as large as
elsewhere, up to the learning rate. The rates here are so small that twenty such steps stay below
the bound, and large enough that a wrong gradient does not.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor
from transformers import AutoModelForCausalLM

from whet.engine.input_batch import SamplingTensors, truncate_probs, uniforms
from whet.rng import derive
from whet.store.run import RunStore
from whet.types import Author, Rollout

ROOT = Path(__file__).resolve().parents[1]
RATE = "1e-4"
STAGES = {
    "sft": {"sft": ("train",), "lora": ("train",)},
    "rl": {"grpo": ("train",), "dapo": ("train",), "rloo": ("train",)},
    "dpo": {"dpo": ("train",), "distill": ("train",)},
    "ppo": {"ppo": ("train", "critic")},
    "tango": {"tango": ("train", "verifier_train")},
}
"""The stages of each pipeline that ranks run again, and their settings with a learning rate."""
MAX_GAP = 1e-5
"""Between two weights, and between a draw and the border of a token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A stage on some ranks against the same on one process."""

    name: str
    num_same: int
    num_answers: int
    num_same_validations: int
    num_validations: int
    gap: float
    draws: tuple["Draw", ...]

    @property
    def is_good(self) -> bool:
        if self.draws:  # from then on the runs train on other answers, and weights differ
            return all(draw.is_rounding for draw in self.draws)
        return self.gap <= MAX_GAP

    def __str__(self) -> str:
        answers = f"{self.num_same} of {self.num_answers}"
        validations = f"{self.num_same_validations} of {self.num_validations}"
        line = f"{self.name:<18}{answers:>14}{validations:>14}{self.gap:>12.1e}"
        return "\n".join((line, *(f"    {draw}" for draw in self.draws)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Draw:
    """A draw that gave one token on one process and another on ranks.

    A draw is a number in [0, 1) that follows from seed, problem and position; tokens are intervals in
    the order of their ids. `distance` is how far the draw is from the interval of the token that the
    other run took, at most, by the weights of both runs.
    """

    rollout: str
    position: int
    tokens: tuple[int, int]
    number: float
    distance: float

    @property
    def is_rounding(self) -> bool:
        return self.distance <= MAX_GAP

    def __str__(self) -> str:
        first, second = self.tokens
        return (
            f"{self.rollout}: token {self.position} is {first}, and {second} on ranks; the draw "
            f"{self.number:.9f} is within {self.distance:.1e} of both"
        )

    @staticmethod
    def trace(step: int, before: Rollout, after: Rollout, one: RunStore, many: RunStore) -> "Draw":
        """Find the first token that differs, and draw its number again."""
        pairs = zip(before.completion.tokens, after.completion.tokens, strict=False)
        position = next(index for index, (first, second) in enumerate(pairs) if first != second)
        seed = tomllib.loads(one.config_file.read_text())["seed"]
        problem, _, place = before.id.rpartition(":")
        index, number = map(int, place.split("/"))
        label = "verify" if before.author is Author.VERIFIER else "rollout"
        own = derive(derive(seed, label, step - 1), problem, index, number)
        drawn = float(uniforms(torch.tensor([own]), torch.tensor([position]))[0])
        tokens = [int(rollout.completion.tokens[position]) for rollout in (before, after)]
        gaps = []
        for run, rollout in ((one, before), (many, after)):
            ends_V = cumulate(run, step, rollout, position)
            for token in tokens:
                start = float(ends_V[token - 1]) if token else 0.0
                gaps.append(max(start - drawn, drawn - float(ends_V[token]), 0.0))
        return Draw(
            rollout=f"step {step}, {before.id}",
            position=position,
            tokens=(tokens[0], tokens[1]),
            number=drawn,
            distance=max(gaps),
        )


def cumulate(run: RunStore, step: int, rollout: Rollout, position: int) -> Tensor:
    """The ends of the tokens' intervals where a token was drawn, by the weights of that moment."""
    checkpoint = run.checkpoint_folder / f"{rollout.completion.policy_version:06d}"
    model = AutoModelForCausalLM.from_pretrained(checkpoint, local_files_only=True)
    config = tomllib.loads(run.config_file.read_text())
    temperature = config["sampling"]["temperature"]
    for row in run.metrics():
        if row["step"] == step:
            temperature = row.get("sampling/temperature", temperature)
    prefix = [*rollout.prompt_tokens, *rollout.completion.tokens[:position]]
    with torch.no_grad():
        logits_BV = model(torch.tensor([prefix])).logits[:, -1]
    probs_BV = torch.softmax(logits_BV / temperature, dim=-1)
    settings = SamplingTensors(
        temperature_B=torch.tensor([temperature]),
        top_k_B=torch.tensor([config["sampling"]["top_k"]]),
        top_p_B=torch.tensor([config["sampling"]["top_p"]]),
        min_p_B=torch.zeros(1),
    )
    probs_BV = truncate_probs(probs_BV, settings)
    return probs_BV[0].double().cumsum(-1) / probs_BV.double().sum()


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True, help="a folder for the runs")
    parser.add_argument("--only", nargs="*", choices=STAGES, default=list(STAGES))
    parser.add_argument("--ranks", nargs="*", default=["2", "3", "4", "2x2"])
    args = parser.parse_args()
    print(f"{'stage':<18}{'same answers':>14}{'validations':>14}{'weight gap':>12}", flush=True)
    rows: list[Row] = []
    for name in args.only:
        run_alone(name, args.out)
        for ranks in args.ranks:
            began = time.monotonic()
            new = compare_ranks(name, ranks, args.out)
            rows += new
            print(*new, sep="\n")
            print(f"    {time.monotonic() - began:.0f} s", flush=True)
    return 0 if all(row.is_good for row in rows) else 1


def run_alone(name: str, out: Path) -> Path:
    """Run a pipeline on one process, or go on with it."""
    folder = out / f"{name}-1"
    run([], name, folder, "--resume")
    return folder


def compare_ranks(name: str, ranks: str, out: Path) -> list[Row]:
    """Run the stages to compare again on ranks, and compare them with those of one process."""
    alone = out / f"{name}-1"
    folder = out / f"{name}-{ranks}"
    shutil.rmtree(folder, ignore_errors=True)
    stages = [path for path in alone.iterdir() if path.name[3:] in STAGES[name]]
    shutil.copytree(
        alone, folder, ignore=lambda _, names: {path.name for path in stages} & {*names}
    )
    size = 4 if ranks == "2x2" else int(ranks)
    shards = [part for stage in STAGES[name] for part in (f"--stages.{stage}.cluster.shard", "2")]
    run(torchrun(size), name, folder, *(shards if ranks == "2x2" else ()))
    return [
        compare_stage(path, folder / path.name, f"{path.name[3:]} on {ranks}") for path in stages
    ]


def torchrun(size: int, *flags: str) -> list[str]:
    """The start of a command that so many ranks run."""
    return ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(size), *flags]


def run(launcher: list[str], name: str, folder: Path, *flags: str) -> None:
    rates = [
        part
        for stage, keys in STAGES[name].items()
        for key in keys
        for part in (f"--stages.{stage}.{key}.lr", RATE)
    ]
    # The weights that answers were sampled from, to trace a token that differs.
    saves = [
        part
        for stage in STAGES[name]
        for key, value in (("every", "1"), ("keep", "99"))
        for part in (f"--stages.{stage}.save.{key}", value)
    ]
    file = ROOT / "bench" / "same" / f"{name}.toml"
    command = [sys.executable, *launcher, "-m", "whet", "run", str(file), "--out", str(folder)]
    # The order of a sum depends on the number of threads.
    environ = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [*command, *rates, *saves, *flags], capture_output=True, text=True, env=environ
    )
    if done.returncode:
        raise RuntimeError(f"{name} failed:\n{done.stderr[-4000:]}")


def compare_stage(alone: Path, ranks: Path, name: str) -> Row:
    one, many = RunStore.view(alone), RunStore.view(ranks)
    num_same = 0
    num_answers = 0
    draws: list[Draw] = []
    for step in one.rollout_steps("train"):
        before = {rollout.id: rollout for rollout in one.rollouts("train", step)}
        after = {rollout.id: rollout for rollout in many.rollouts("train", step)}
        assert before.keys() == after.keys(), f"{name} asked other problems in step {step}"
        pairs = [(before[id], after[id]) for id in before]
        num_answers += len(pairs)
        num_same += sum(are_same(*pair) for pair in pairs)
        if not draws:  # after the first answer that differs the runs train on others
            draws = [Draw.trace(step, *p, one, many) for p in pairs if not are_same(*p)]
    evals = one.evals()
    return Row(
        name=name,
        num_same=num_same,
        num_answers=num_answers,
        num_same_validations=sum(many.evals().get(step) == row for step, row in evals.items()),
        num_validations=len(evals),
        gap=weight_gap(one.checkpoint_folder, many.checkpoint_folder),
        draws=tuple(draws),
    )


def are_same(before: Rollout, after: Rollout) -> bool:
    return before.completion.tokens.tolist() == after.completion.tokens.tolist()


def weight_gap(alone: Path, ranks: Path) -> float:
    """The largest gap of a weight in the last checkpoint; policies, critics and verifiers."""
    last = max(path for path in alone.iterdir() if path.name.isdigit())
    gaps = []
    for file in last.rglob("*.safetensors"):
        if file.parent.name != "optimizer":
            one, many = load_file(file), load_file(ranks / file.relative_to(alone))
            assert one.keys() == many.keys(), f"{file} has other weights on ranks"
            gaps += [float((one[key] - many[key]).abs().max()) for key in one]
    return max(gaps)


if __name__ == "__main__":
    sys.exit(main())
