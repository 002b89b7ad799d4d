"""The named algorithms: the advantage, ratio, surrogate and loss weights that each combines.

Settings replace single choices (`whet/algos/settings.py`). docs/algorithms.md has the values that
the papers or their code train with, for files in `experiments/` to set.
"""

from collections.abc import Mapping
from dataclasses import dataclass
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
    """Whether advantages are normalised over a step's tokens to mean 0 and standard deviation 1."""
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


PRESETS: Mapping[AlgoName, Preset] = {
    "grpo": Preset(
        paper="Shao et al. 2024, DeepSeekMath, eq. 3 and 4",
        advantage="zscore",
        loss_weights="sequence_mean",
    ),
    "dr_grpo": Preset(
        paper="Liu et al. 2025, Understanding R1-Zero-like training",
        advantage="center",
        loss_weights="constant",
    ),
    "dapo": Preset(paper="Yu et al. 2025, DAPO, eq. 8", advantage="zscore", clip_high=0.28),
    "rloo": Preset(
        paper="Ahmadian et al. 2024, Back to basics, section 2.2",
        advantage="leave_one_out",
        ratio="off",
        surrogate="reinforce",
        loss_weights="sequence_sum",
        kl_in="reward",
    ),
    "reinforce_pp": Preset(
        paper="Hu et al. 2025, REINFORCE++; weight of the KL from RLinf",
        advantage="to_go",
        whiten=True,
        kl_in="reward",
    ),
    "reinforce_pp_baseline": Preset(
        paper=(
            "Hu et al. 2025, REINFORCE++ with the group's mean as baseline; weight of the KL from "
            "RLinf"
        ),
        advantage="center",
        whiten=True,
    ),
    "gspo": Preset(
        paper="Zheng et al. 2025, GSPO, eq. 5 to 7",
        advantage="zscore",
        ratio="sequence",
        loss_weights="sequence_mean",
        clip_low=3e-4,
        clip_high=4e-4,
    ),
    "cispo": Preset(
        paper="MiniMax-M1 2025, eq. 4 and 5; the cap is ScaleRL's, Khatri et al. 2025",
        advantage="zscore",
        surrogate="cispo",
        clip_high=4.0,
    ),
    "ppo": Preset(
        paper="Schulman et al. 2017; numbers of Reasoning360",
        advantage="gae",
        whiten=True,
        kl_in="reward",
    ),
    "game24": Preset(paper="LLM4Game24 report", advantage="momentum", loss_weights="sequence_mean"),
    "rlinf": Preset(paper="RLinf math recipes, 7B", advantage="zscore", whiten=True),
    "tango_grpo": Preset(
        paper="Zha et al. 2025, RL Tango, with GRPO",
        advantage="zscore",
        step_rule="zscore",
        step_credit_fraction=0.1,
    ),
    "tango_rloo": Preset(
        paper="Zha et al. 2025, RL Tango, with RLOO",
        advantage="leave_one_out",
        step_rule="leave_one_out",
        step_credit_fraction=0.1,
    ),
    "tango_reinforce_pp": Preset(
        paper="Zha et al. 2025, RL Tango, with REINFORCE++",
        advantage="to_go",
        whiten=True,
        step_rule="whiten",
        step_credit_fraction=0.5,
    ),
}
