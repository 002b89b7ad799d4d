"""The named algorithms: the advantage, ratio, surrogate and loss weights that each combines.

Settings replace single choices (`whet/algos/settings.py`). `source` records the values that the
paper or its code trains with, for files in `experiments/` to set; they have no effect here.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from whet.algos.advantages import AdvantageName
from whet.algos.losses import RatioName, SurrogateName
from whet.algos.step_credit import StepRule

AlgoName = Literal[
    "grpo",
    "dr_grpo",
    "dapo",
    "rloo",
    "reinforce_pp",
    "reinforce_pp_baseline",
    "gspo",
    "cispo",
    "ppo",
    "game24",
    "rlinf",
    "tango_grpo",
    "tango_rloo",
    "tango_reinforce_pp",
]
LossWeightsName = Literal["token_mean", "sequence_mean", "sequence_sum", "constant"]
KlPlace = Literal["loss", "reward"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preset:
    """The parts of one published algorithm."""

    paper: str
    advantage: AdvantageName | str
    """A name in `ADVANTAGES`, or a user's function as `file.py:name`."""
    whiten: bool = False
    """Whether advantages are normalised to mean 0 and deviation 1 over all tokens of the step."""
    ratio: RatioName = "token"
    surrogate: SurrogateName | str = "clip"
    loss_weights: LossWeightsName = "token_mean"
    clip_low: float = 0.2
    clip_high: float = 0.2
    kl_in: KlPlace = "loss"
    step_rule: StepRule | None = None
    """The rule that credits judged steps, for algorithms that use them."""
    step_credit_fraction: float = 0.0
    """Initial fraction of step credit in the advantage."""
    source: Mapping[str, float | str] = field(default_factory=dict)


TANGO_SOURCE: Mapping[str, float | str] = {
    "kl_coef": 0.001,
    "kl_estimator": "k3",
    "kl_gradient": "direct",
    "entropy_coef": 0.001,
    "group_size": 5,
}

PRESETS: Mapping[AlgoName, Preset] = {
    "grpo": Preset(
        paper="Shao et al. 2024, DeepSeekMath, eq. 3 and 4",
        advantage="zscore",
        loss_weights="sequence_mean",
        source={
            "kl_coef": 0.04,
            "kl_estimator": "k3",
            "group_size": 64,
            "problems_per_step": 16,
            "train.lr": 1e-6,
        },
    ),
    "dr_grpo": Preset(
        paper="Liu et al. 2025, Understanding R1-Zero-like training",
        advantage="center",
        loss_weights="constant",
        source={
            "kl_coef": 0.0,
            "group_size": 8,
            "problems_per_step": 128,
            "train.lr": 1e-6,
            "max_tokens": 3000,
        },
    ),
    "dapo": Preset(
        paper="Yu et al. 2025, DAPO, eq. 8",
        advantage="zscore",
        clip_high=0.28,
        source={
            "kl_coef": 0.0,
            "group_size": 16,
            "problems_per_step": 512,
            "num_minibatches": 16,
            "train.lr": 1e-6,
        },
    ),
    "rloo": Preset(
        paper="Ahmadian et al. 2024, Back to basics, section 2.2",
        advantage="leave_one_out",
        ratio="off",
        surrogate="reinforce",
        loss_weights="sequence_sum",
        kl_in="reward",
        source={"kl_coef": 0.03, "group_size": 4},
    ),
    "reinforce_pp": Preset(
        paper="Hu et al. 2025, REINFORCE++; weight of the KL from RLinf",
        advantage="to_go",
        whiten=True,
        kl_in="reward",
        source={"kl_coef": 0.001, "kl_estimator": "k1", "group_size": 1},
    ),
    "reinforce_pp_baseline": Preset(
        paper=(
            "Hu et al. 2025, REINFORCE++ with the group's mean as baseline; weight of the KL from "
            "RLinf"
        ),
        advantage="center",
        whiten=True,
        source={"kl_coef": 0.0001, "kl_estimator": "k2", "group_size": 16},
    ),
    "gspo": Preset(
        paper="Zheng et al. 2025, GSPO, eq. 5 to 7",
        advantage="zscore",
        ratio="sequence",
        loss_weights="sequence_mean",
        clip_low=3e-4,
        clip_high=4e-4,
        source={"kl_coef": 0.0, "num_minibatches": 4},
    ),
    "cispo": Preset(
        paper="MiniMax-M1 2025, eq. 4 and 5; the cap is ScaleRL's, Khatri et al. 2025",
        advantage="zscore",
        surrogate="cispo",
        clip_high=4.0,
        source={"kl_coef": 0.0},
    ),
    "ppo": Preset(
        paper="Schulman et al. 2017; numbers of Reasoning360",
        advantage="gae",
        whiten=True,
        kl_in="reward",
        source={
            "kl_coef": 0.0,
            "gamma": 1.0,
            "gae_lambda": 1.0,
            "entropy_coef": 0.001,
            "dual_clip": 3.0,
            "group_size": 1,
            "problems_per_step": 1024,
            "critic.lr": 1e-5,
        },
    ),
    "game24": Preset(
        paper="LLM4Game24 report",
        advantage="momentum",
        loss_weights="sequence_mean",
        source={
            "kl_coef": 0.01,
            "kl_estimator": "k1",
            "kl_gradient": "direct",
            "max_momentum": 0.2,
            "group_size": 8,
            "problems_per_step": 12,
            "train.lr": 2e-6,
        },
    ),
    "rlinf": Preset(
        paper="RLinf math recipes, 7B",
        advantage="zscore",
        whiten=True,
        source={
            "kl_coef": 0.0,
            "num_minibatches": 4,
            "old_logprobs": "engine",
            "early_stop.limit": 5.0,
            "early_stop.statistic": "mean",
            "early_stop.scope": "micro_batch",
            "early_stop.action": "zero",
            "group_size": 32,
            "problems_per_step": 512,
            "train.lr": 2e-5,
        },
    ),
    "tango_grpo": Preset(
        paper="Zha et al. 2025, RL Tango, with GRPO",
        advantage="zscore",
        step_rule="zscore",
        step_credit_fraction=0.1,
        source=TANGO_SOURCE,
    ),
    "tango_rloo": Preset(
        paper="Zha et al. 2025, RL Tango, with RLOO",
        advantage="leave_one_out",
        step_rule="leave_one_out",
        step_credit_fraction=0.1,
        source=TANGO_SOURCE,
    ),
    "tango_reinforce_pp": Preset(
        paper="Zha et al. 2025, RL Tango, with REINFORCE++",
        advantage="to_go",
        whiten=True,
        step_rule="whiten",
        step_credit_fraction=0.5,
        source={**TANGO_SOURCE, "kl_estimator": "k2", "entropy_coef": 0.0},
    ),
}
