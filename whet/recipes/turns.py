"""Settings of a co-training, and whose turn each step is."""

from enum import StrEnum
from typing import Literal

from pydantic import Field, model_validator

from whet.algos.balance import BalanceRule
from whet.algos.catalog import AlgoConfig, resolved
from whet.config import Config
from whet.engine.base import Sampling
from whet.engine.native import EngineConfig
from whet.evals.validation import ExamConfig
from whet.grading.limits import Limits
from whet.recipes.training import SaveConfig
from whet.rewards.spec import RewardSpec
from whet.tasks.game24.task import Game24Config
from whet.tasks.registry import TaskConfig
from whet.tasks.verify import VerifyConfig
from whet.track.metrics import TrackConfig
from whet.train.optim import TrainConfig
from whet.train.policy import ModelSource


class Turn(StrEnum):
    """Whose step it is."""

    GENERATOR = "generator"
    VERIFIER = "verifier"


class TangoConfig(Config):
    """Who solves, who verifies, and how they take turns. Settings without a name before them are
    the generator's."""

    kind: Literal["tango"] = "tango"
    seed: int = 0
    steps: int = Field(default=440, ge=1)
    """Steps of both together."""
    warmup: int = Field(default=40, ge=0)
    """First steps, all the verifier's."""
    generator_turns: int = Field(default=3, ge=1)
    """Steps of the generator in a row, after the warm-up."""
    verifier_turns: int = Field(default=1, ge=0)
    """Steps of the verifier after those."""
    problems_per_step: int = Field(default=32, ge=1)
    group_size: int = Field(default=5, ge=2)
    """Solutions of each problem in a generator's step; in a verifier's there is one."""
    judgements: int = Field(default=1, ge=1)
    """Verifications of each solution in a generator's step, averaged."""
    verifier_group_size: int = Field(default=5, ge=2)
    """Verifications of each solution in a verifier's step."""
    task: TaskConfig = Game24Config()
    problems: str | None = None
    """Folder of problems; None takes the task's own."""
    verify: VerifyConfig = VerifyConfig()
    model: ModelSource
    verifier: ModelSource
    """The verifier's model; its vocabulary may be another."""
    sampling: Sampling = Sampling()
    verifier_sampling: Sampling = Sampling()
    reward: RewardSpec = RewardSpec()
    verifier_reward: RewardSpec = RewardSpec(weights={"correct": 1.0, "format": 0.8})
    algo: AlgoConfig = AlgoConfig(name="tango_grpo")
    verifier_algo: AlgoConfig = AlgoConfig(name="grpo", weights="token_mean")
    balance: BalanceRule = "inverse"
    """How a verifier's step weighs right and wrong solutions by how rare they are: inverse gives
    both kinds the same total, sqrt_inverse (RL-Tango's) leaves the frequent one ahead."""
    train: TrainConfig = TrainConfig()
    verifier_train: TrainConfig = TrainConfig()
    engine: EngineConfig = EngineConfig()
    verifier_engine: EngineConfig = EngineConfig()
    grading: Limits = Limits()
    exam: ExamConfig = ExamConfig()
    save: SaveConfig = SaveConfig()
    track: TrackConfig = TrackConfig()

    @model_validator(mode="after")
    def _fits(self) -> "TangoConfig":
        if self.warmup >= self.steps:
            raise ValueError(
                f"warmup = {self.warmup} leaves the generator no step: steps = {self.steps} should be more"
            )
        for key, algo in (("algo", self.algo), ("verifier_algo", self.verifier_algo)):
            if resolved(algo).advantage == "gae":
                raise ValueError(
                    f'{key}.name = "{algo.name}" needs a critic, which this recipe does not train'
                )
        if resolved(self.verifier_algo).steps is not None:
            raise ValueError(
                f'verifier_algo.name = "{self.verifier_algo.name}" is for the generator: use grpo or rloo'
            )
        return self


def turn_at(cfg: TangoConfig, step: int) -> Turn:
    """Whose step it is: the verifier's while it warms up, then some of the generator's, some of the
    verifier's, again.

    >>> cfg = TangoConfig(model=ModelSource(path="m"), verifier=ModelSource(path="v"), warmup=1, generator_turns=2)
    >>> "".join(turn_at(cfg, step)[0] for step in range(8))
    'vggvggvg'
    """
    place = (step - cfg.warmup) % (cfg.generator_turns + cfg.verifier_turns)
    return Turn.GENERATOR if step >= cfg.warmup and place < cfg.generator_turns else Turn.VERIFIER


def num_turns(cfg: TangoConfig, turn: Turn, before: int) -> int:
    """How many steps before a step are one side's."""
    return sum(turn_at(cfg, step) is turn for step in range(before))
