"""Our losses and gradients against TRL's: the same tiny model, tokens, rewards and settings,
through both libraries.

    python bench/losses.py [--only NAME ...]

Both start from tokens and rewards, so advantages are compared too. Old log-probabilities are those
of one set of weights, the loss is taken at another, so that ratios are not 1 and clips are hit; the
reference is a third. A case agrees when loss and gradient are as near as float32 sums in two orders
are (`whet.testing.rounding`): the gradient relative to its norm, the loss to the size of its terms,
which cancel. Cases that are not meant to agree say why; docs/algorithms.md says who is right. The
last line is JSON.
"""

import argparse
import contextlib
import copy
import json
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from whet.algos import advantages
from whet.algos.algorithm import build_algorithm
from whet.algos.losses import LossInputs
from whet.algos.objectives import LogprobObjective, TokenLoss
from whet.algos.preferences import PreferenceConfig, preference_objective
from whet.algos.settings import AlgoConfig
from whet.batching.examples import Example, PreferencePair
from whet.models.transformer import Transformer
from whet.testing.fakes import rollout, sum_problem
from whet.testing.rounding import rounding_bound, terms_of_gradient
from whet.testing.tiny import tiny_policy
from whet.train.frozen_models import add_pair_ref_logprobs, set_pair_loss_weights
from whet.train.learner import FrozenModel, LocalLearner, compute_logprobs_locally, set_loss_weights
from whet.train.rl_step import assign_advantages, select_rollouts, to_example, to_examples
from whet.train.settings import TrainConfig
from whet.types import Group, Json, Rollout

MAX_TOKENS = 24
GROUP_SIZE = 4
TRL_EPSILON = 1e-4
"""What TRL adds to a group's deviation; whet adds 1e-6."""
REWARDS = ((1.0, 0.0, 0.0, 1.0), (0.2, 0.9, 0.4, -0.3), (0.5, 0.5, 0.5, 0.5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One setting in both libraries. With `why`, the two are not meant to agree in what it says."""

    name: str
    whet: Mapping[str, Json]
    trl: Mapping[str, object]
    trainer: str = "grpo"
    is_on_policy: bool = False
    has_own_epsilon: bool = False
    """Whether whet keeps its own term beside the deviation, instead of TRL's."""
    vllm: Mapping[str, object] = field(default_factory=dict)
    part: int | None = None
    """How many answers, the first ones, make the mini-batch whose loss is taken; None takes all."""
    compares: tuple[str, ...] = ("loss", "gradient")
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Found:
    loss: float
    gradient: Tensor
    loss_size: float = 0.0
    """The same sum with the terms' absolute values; only whet's is taken."""
    clip_fraction: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Compared:
    """Both losses, how far loss and gradient are apart, and whether what is compared agrees."""

    name: str
    loss: float
    loss_trl: float
    loss_apart: float
    gradient_apart: float
    gradient_norm: float
    clip_fraction: float
    is_agreed: bool
    why: str

    @property
    def verdict(self) -> str:
        said = "agrees" if self.is_agreed else "DIFFERS"
        return (
            self.why
            if self.why.startswith("not compared")
            else f"{said}; {self.why}"
            if self.why
            else said
        )


CLIP: Mapping[str, object] = {"epsilon": 0.2, "epsilon_high": 0.2}
CASES = (
    Case(name="grpo", whet={"name": "grpo"}, trl={"loss_type": "grpo", **CLIP}),
    Case(
        name="grpo, k3 in the loss",
        whet={"name": "grpo", "kl_coef": 0.04, "kl_estimator": "k3", "kl_gradient": "direct"},
        trl={"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": False, **CLIP},
    ),
    Case(
        name="grpo, k3 with the exact gradient",
        whet={"name": "grpo", "kl_coef": 0.04, "kl_estimator": "k3"},
        trl={"loss_type": "grpo", "beta": 0.04, "use_bias_correction_kl": True, **CLIP},
    ),
    Case(
        name="grpo, dual clip",
        whet={"name": "grpo", "dual_clip": 1.25},
        trl={"loss_type": "grpo", "delta": 1.25, **CLIP},
    ),
    Case(
        name="dr_grpo",
        whet={"name": "dr_grpo"},
        trl={"loss_type": "dr_grpo", "scale_rewards": "none", **CLIP},
    ),
    Case(
        name="dapo",
        whet={"name": "dapo"},
        trl={"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
    ),
    Case(
        name="dapo, entropy bonus",
        whet={"name": "dapo", "entropy_coef": 0.01},
        trl={"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28, "entropy_coef": 0.01},
    ),
    Case(
        name="gspo",
        whet={"name": "gspo"},
        trl={
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 3e-4,
            "epsilon_high": 4e-4,
        },
    ),
    Case(
        name="gspo, wide clip",
        whet={"name": "gspo", "clip_low": 0.1, "clip_high": 0.1},
        trl={
            "loss_type": "grpo",
            "importance_sampling_level": "sequence",
            "epsilon": 0.1,
            "epsilon_high": 0.1,
        },
    ),
    Case(
        name="cispo",
        whet={"name": "cispo", "clip_high": 0.25},
        trl={"loss_type": "cispo", "epsilon_high": 1.25},
    ),
    Case(
        name="grpo, truncated correction",
        whet={"name": "grpo", "importance_correction": {"rule": "truncate", "high": 1.1}},
        trl={"loss_type": "grpo", **CLIP},
        vllm={
            "vllm_importance_sampling_mode": "token_truncate",
            "vllm_importance_sampling_clip_max": 1.1,
        },
    ),
    Case(
        name="grpo, masked correction of sequences",
        whet={
            "name": "grpo",
            "importance_correction": {"rule": "mask", "level": "sequence", "high": 1.1},
        },
        trl={"loss_type": "grpo", **CLIP},
        vllm={
            "vllm_importance_sampling_mode": "sequence_mask",
            "vllm_importance_sampling_clip_max": 1.1,
        },
    ),
    Case(
        name="rloo, first use",
        trainer="rloo",
        is_on_policy=True,
        whet={"name": "rloo"},
        trl=CLIP,
        compares=("gradient",),
        why="the value is not compared: TRL's is minus the mean advantage, ours minus advantage × log-probability",
    ),
    Case(
        name="rloo, first use, k1 in the reward",
        trainer="rloo",
        is_on_policy=True,
        whet={"name": "rloo", "kl_coef": 0.05},
        trl={"beta": 0.05, **CLIP},
        compares=("gradient",),
        why="the value is not compared, as above",
    ),
    Case(
        name="rloo, moved weights",
        trainer="rloo",
        whet={"name": "rloo"},
        trl=CLIP,
        compares=(),
        why="not compared: TRL clips the ratio of whole responses, the paper and whet have none",
    ),
    Case(
        name="grpo, first of two mini-batches",
        whet={"name": "grpo", "num_minibatches": 2},
        trl={"loss_type": "grpo", **CLIP},
        part=6,
    ),
    Case(
        name="dapo, first of two mini-batches",
        whet={"name": "dapo", "num_minibatches": 2},
        trl={"loss_type": "dapo", "epsilon": 0.2, "epsilon_high": 0.28},
        part=6,
        compares=(),
        why="not compared: TRL divides by half of the tokens of both, whet by those of the one",
    ),
    Case(
        name="grpo, own epsilon",
        whet={"name": "grpo"},
        trl={"loss_type": "grpo", **CLIP},
        has_own_epsilon=True,
        compares=(),
        why="not compared: 1e-6 beside the deviation, not 1e-4",
    ),
    Case(
        name="grpo, entropy bonus",
        whet={"name": "grpo", "entropy_coef": 0.01},
        trl={"loss_type": "grpo", "entropy_coef": 0.01, **CLIP},
        compares=(),
        why="not compared: TRL averages entropy over tokens, whet as the loss is averaged",
    ),
    Case(
        name="dpo",
        trainer="dpo",
        whet={"name": "dpo", "beta": 0.3},
        trl={"loss_type": ["sigmoid"], "beta": 0.3},
    ),
    Case(
        name="dpo, per token",
        trainer="dpo",
        whet={"name": "dpo", "beta": 2.0, "per_token": True},
        trl={"loss_type": ["sigmoid_norm"], "beta": 2.0},
    ),
    Case(
        name="ipo, per token",
        trainer="dpo",
        whet={"name": "ipo", "per_token": True},
        trl={"loss_type": ["ipo"], "beta": 0.1},
    ),
    Case(
        name="ipo",
        trainer="dpo",
        whet={"name": "ipo"},
        trl={"loss_type": ["ipo"], "beta": 0.1},
        compares=(),
        why="not compared: TRL divides log-ratios by the length, the paper's equation and whet do not",
    ),
)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--only", nargs="*", default=None, help="names of cases")
    given = options.parse_args()
    start = time.perf_counter()
    bound, rows = compared(
        [case for case in CASES if given.only is None or case.name in given.only]
    )
    print(
        f"{'case':<38} {'loss, whet':>11} {'loss, TRL':>11} {'apart':>8} {'gradient':>8} {'clipped':>8}  verdict"
    )
    for row in rows:
        numbers = f"{row.loss:>11.7f} {row.loss_trl:>11.7f} {row.loss_apart:>8.1e} {row.gradient_apart:>8.1e}"
        print(f"{row.name:<38} {numbers} {row.clip_fraction:>8.0%}  {row.verdict}")
    seconds = round(time.perf_counter() - start, 1)
    print(json.dumps({"seconds": seconds, "bound": bound, "cases": [asdict(row) for row in rows]}))
    if not all(row.is_agreed for row in rows):
        raise SystemExit(1)


def compared(cases: Sequence[Case]) -> tuple[float, list[Compared]]:
    """Run each case through both libraries; how far apart those that agree may be comes first."""
    with tempfile.TemporaryDirectory() as folder, quiet():
        world = World(Path(folder))
        bound = world.rounding_bound()
        return bound, [
            difference(case, world.by_whet(case), world.by_trl(case), bound) for case in cases
        ]


def difference(case: Case, ours: Found, theirs: Found, bound: float) -> Compared:
    loss_apart = abs(ours.loss - theirs.loss) / ours.loss_size
    gradient_apart = float((ours.gradient - theirs.gradient).norm() / theirs.gradient.norm())
    apart = {"loss": loss_apart, "gradient": gradient_apart}
    return Compared(
        name=case.name,
        loss=ours.loss,
        loss_trl=theirs.loss,
        loss_apart=loss_apart,
        gradient_apart=gradient_apart,
        gradient_norm=float(theirs.gradient.norm()),
        clip_fraction=ours.clip_fraction,
        is_agreed=all(apart[key] <= bound for key in case.compares),
        why=case.why,
    )


class World:
    """The same models and answers for both libraries."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        policy = tiny_policy()
        policy.save(folder / "model")
        self.old = policy.model
        self.present, self.reference = moved(self.old, 0.004, seed=1), moved(self.old, 0.01, seed=2)
        self.groups = answers(policy.tokenizer.vocab_size)
        self.engine = engine_logprobs(self.old, self.groups)

    def by_whet(self, case: Case) -> Found:
        if case.trainer == "dpo":
            return self.pairs_by_whet(case)
        algo = build_algorithm(AlgoConfig.model_validate(case.whet), max_tokens=MAX_TOKENS)
        if not case.has_own_epsilon and case.whet["name"] in ("grpo", "dapo", "gspo", "cispo"):
            zscore = partial(advantages.zscore, epsilon=TRL_EPSILON)
            algo = replace(algo, advantage=advantages.per_group(zscore))
        selection = select_rollouts(self.groups, algo)
        examples = to_examples(selection, temperature=1.0)
        own = compute_logprobs_locally(self.old, examples, 4096)
        engine = own if not case.vllm else self.engine
        examples = [
            replace(
                item,
                sampling_logprob_M=sampled,
                ref_logprob_M=reference,
                old_logprob_M=old,
            )
            for item, sampled, reference, old in zip(
                examples,
                engine,
                compute_logprobs_locally(self.reference, examples, 4096),
                own,
                strict=True,
            )
        ]
        examples, _ = assign_advantages(selection, examples, algo, {})
        if not algo.needs_reference:
            examples = [replace(item, ref_logprob_M=None) for item in examples]
        if case.is_on_policy:
            examples = [replace(item, old_logprob_M=None) for item in examples]
        model = self.old if case.is_on_policy else self.present
        return self.differentiate(
            model, set_loss_weights(examples[: case.part], algo.loss_weights), algo.objective, 200
        )

    def rounding_bound(self) -> float:
        lengths = [
            len(item.prompt_tokens) + len(item.completion.tokens)
            for group in self.groups
            for item in group
        ]
        return rounding_bound(terms_of_gradient(self.old.cfg, max(lengths), sum(lengths)))

    def differentiate(
        self,
        model: Transformer,
        examples: Sequence[Example],
        objective: LogprobObjective,
        micro_batch_tokens: int,
    ) -> Found:
        """Accumulate a gradient in micro-batches; the size of the loss is taken in its own pass."""

        def size(inputs: LossInputs) -> TokenLoss:
            return TokenLoss(objective.loss(inputs).loss.abs(), {})

        cfg = TrainConfig(micro_batch_tokens=micro_batch_tokens)
        own = copy.deepcopy(model)
        metrics = LocalLearner(own, cfg, steps=1).accumulate(examples, objective).means
        sized = LocalLearner(copy.deepcopy(model), cfg, steps=1).accumulate(
            examples, replace(objective, loss=size)
        )
        return Found(
            loss=metrics["loss"],
            gradient=joined(gradients(own)),
            loss_size=sized.loss,
            clip_fraction=metrics.get("policy/clip_fraction", 0.0),
        )

    def by_trl(self, case: Case) -> Found:
        if case.trainer == "dpo":
            return self.pairs_by_trl(case)
        trainer = self.trainer(case)
        fill(trainer.model, self.old)
        if trainer.ref_model is not None:
            fill(trainer.ref_model, self.reference)
        trainer.model.train()
        trainer.current_gradient_accumulation_steps = (
            1  # set by the training loop, which is not run here
        )
        # As its own training loop does where a batch is used again: old log-probabilities first,
        # the loss later.
        inputs = trainer._generate_and_score_completions(
            [{"prompt": "1 1"} for group in self.groups for _ in group]
        )
        if not case.is_on_policy:
            fill(trainer.model, self.present)
        if case.part is not None:
            trainer.args.steps_per_generation = len(inputs["advantages"]) // case.part
            inputs = {
                key: value if value.dim() == 0 else value[: case.part]
                for key, value in inputs.items()
            }
        trainer.model.zero_grad()
        return self.gradient_of(trainer.model, trainer._compute_loss(trainer.model, inputs))

    def gradient_of(self, model: torch.nn.Module, loss: Tensor) -> Found:
        """Differentiate a loss of a model of transformers."""
        loss.backward()  # type: ignore[no-untyped-call]
        names = [name for name, _ in self.old.named_views()]
        found = {
            name: weight.grad
            for name, weight in model.named_parameters()
            if weight.grad is not None
        }
        return Found(
            loss=float(loss.detach()), gradient=joined((name, found[name]) for name in names)
        )

    def pairs(self) -> list[tuple[Rollout, Rollout]]:
        """Two pairs of each group, the first of each chosen; lengths are all sorts."""
        return [
            pair for group in self.groups for pair in ((group[0], group[1]), (group[3], group[2]))
        ]

    def pairs_by_whet(self, case: Case) -> Found:
        pairs = [
            PreferencePair(chosen=to_example(a, 1.0), rejected=to_example(b, 1.0))
            for a, b in self.pairs()
        ]
        objective = preference_objective(PreferenceConfig.model_validate(case.whet))
        examples = set_pair_loss_weights(
            add_pair_ref_logprobs(pairs, FrozenModel(self.reference, 4096))
        )
        return self.differentiate(self.present, examples, objective, 100)

    def pairs_by_trl(self, case: Case) -> Found:
        trainer = self.pair_trainer(case)
        fill(trainer.model, self.present)
        fill(trainer.ref_model, self.reference)
        rows = [
            {
                "prompt_ids": chosen.prompt_tokens.tolist(),
                "chosen_ids": chosen.completion.tokens.tolist(),
                "rejected_ids": rejected.completion.tokens.tolist(),
            }
            for chosen, rejected in self.pairs()
        ]
        trainer.model.train()
        loss = trainer._compute_loss(
            trainer.model, trainer.data_collator(rows), return_outputs=False
        )
        return self.gradient_of(trainer.model, loss)

    def pair_trainer(self, case: Case):  # type: ignore[no-untyped-def]
        """Build TRL's trainer for preferences; its own data is a stand-in."""
        from datasets import Dataset  # type: ignore[import-untyped]
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import DPOConfig, DPOTrainer  # type: ignore[attr-defined]

        settings = {
            "output_dir": str(self.folder / "trl"),
            "max_length": None,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "report_to": [],
        } | dict(case.trl)
        place = self.folder / "model"
        model, reference = (
            AutoModelForCausalLM.from_pretrained(place, dtype=torch.float32) for _ in range(2)
        )
        return DPOTrainer(
            model=model,
            ref_model=reference,
            args=DPOConfig(**settings),  # type: ignore[arg-type]
            train_dataset=Dataset.from_list([{"prompt": "1", "chosen": "2", "rejected": "3"}]),
            processing_class=AutoTokenizer.from_pretrained(place),
        )

    def trainer(self, case: Case):  # type: ignore[no-untyped-def]
        """Build TRL's trainer on the given answers instead of sampled ones."""
        from datasets import Dataset
        from transformers import AutoModelForCausalLM, AutoTokenizer
        from trl import GRPOConfig, GRPOTrainer, RLOOConfig, RLOOTrainer  # type: ignore[attr-defined]

        size = len(self.groups) * GROUP_SIZE
        settings = {
            "output_dir": str(self.folder / "trl"),
            "per_device_train_batch_size": size,
            "num_generations": GROUP_SIZE,
            "num_iterations": 2,
            "max_completion_length": MAX_TOKENS,
            "use_cpu": True,
            "bf16": False,
            "gradient_checkpointing": False,
            "report_to": [],
            "beta": 0.0,
            "temperature": 1.0,
        } | dict(case.trl)
        model = AutoModelForCausalLM.from_pretrained(self.folder / "model", dtype=torch.float32)
        tokenizer = AutoTokenizer.from_pretrained(self.folder / "model")
        rows = Dataset.from_list([{"prompt": "1 1"}] * size)
        shared = {"model": model, "processing_class": tokenizer, "train_dataset": rows}
        rewards: list[float | None] = [reward for group in REWARDS for reward in group]
        prompts = [item.prompt_tokens.tolist() for group in self.groups for item in group]
        completions = [item.completion.tokens.tolist() for group in self.groups for item in group]

        def reward(completions: list[str], **_: object) -> list[float | None]:
            return rewards

        if case.trainer == "rloo":

            class Given(RLOOTrainer):
                def _tokenize_prompts(self, _: list[str]):  # type: ignore[no-untyped-def]
                    return prompts, None, {}

                def _generate_single_turn(self, *_: object) -> list[list[int]]:
                    return completions

            return Given(reward_funcs=reward, args=RLOOConfig(**settings), **shared)  # type: ignore[arg-type]

        def given(_: list[str], __: object) -> dict[str, object]:
            logprobs = [array.tolist() for array in self.engine]
            return {"prompt_ids": prompts, "completion_ids": completions, "logprobs": logprobs}

        args = GRPOConfig(**settings)  # type: ignore[arg-type]
        trainer = GRPOTrainer(reward_funcs=reward, args=args, rollout_func=given, **shared)
        if case.vllm:
            # The correction is TRL's code for vLLM; here it gets the engine's numbers without one.
            (
                trainer.use_vllm,
                trainer.vllm_importance_sampling_correction,
                trainer._last_loaded_step,
            ) = True, True, 0
            trainer.vllm_importance_sampling_clip_min = None
            for name, value in case.vllm.items():
                setattr(trainer, name, value)
        return trainer


def answers(vocab_size: int) -> list[Group]:
    """Groups of random tokens of all lengths, one of them of equal rewards."""
    noise = np.random.default_rng(0)
    groups = []
    for index, rewards in enumerate(REWARDS):
        problem = sum_problem(index, 1)
        prompt = noise.integers(8, vocab_size, size=3 + index).tolist()
        groups.append(
            tuple(
                rollout(
                    reward=reward,
                    number=number,
                    problem=problem,
                    prompt=prompt,
                    tokens=noise.integers(
                        8, vocab_size, size=int(noise.integers(2, MAX_TOKENS))
                    ).tolist(),
                )
                for number, reward in enumerate(rewards)
            )
        )
    return groups


def engine_logprobs(model: Transformer, groups: Sequence[Group]) -> list[np.ndarray]:
    """What an engine of other rounding would have sampled at: near the learner's, not equal."""
    algo = build_algorithm(AlgoConfig(), max_tokens=MAX_TOKENS)
    noise = np.random.default_rng(3)
    own = compute_logprobs_locally(
        model, to_examples(select_rollouts(groups, algo), temperature=1.0), 4096
    )
    return [(logprobs + noise.normal(0, 0.1, len(logprobs))).astype(np.float32) for logprobs in own]


def moved(model: Transformer, scale: float, *, seed: int) -> Transformer:
    """A copy whose weights are a random step away."""
    other, source = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn(weight.shape, generator=source) * scale)
    return other


def gradients(model: Transformer) -> Iterator[tuple[str, Tensor]]:
    """The gradient under Hugging Face's names."""
    holder = copy.deepcopy(model)
    with torch.no_grad():
        for place, weight in zip(holder.parameters(), model.parameters(), strict=True):
            assert weight.grad is not None
            place.copy_(weight.grad)
    return holder.named_views()


def fill(theirs: torch.nn.Module, ours: Transformer) -> None:
    """Copy weights into a model of transformers."""
    theirs.load_state_dict(dict(ours.named_views()), strict=False)


def joined(named: Iterator[tuple[str, Tensor]]) -> Tensor:
    return torch.cat([tensor.detach().flatten() for _, tensor in named])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the other library's notices off the screen, and it off the network."""
    os.environ |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    from datasets import disable_progress_bars
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bars()
    disable_progress_bar()  # type: ignore[no-untyped-call]
    for name in ("transformers", "trl", "accelerate", "datasets"):
        logging.getLogger(name).setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


if __name__ == "__main__":
    main()
