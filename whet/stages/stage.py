"""The settings of a stage, and everything that the rest of whet needs to know about a kind of
stage: how it runs, what it reads, what its models do, and how it shrinks for a smoke run.

A kind is a subclass beside its recipe and a line in `whet/recipes/registry.py`, or the user's own
file (docs/add_a_stage.md).
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Self

from pydantic import Field, model_validator

from whet.algos.settings import AlgoConfig, resolve_preset
from whet.config import Config
from whet.data.problems import problem_file
from whet.endpoints.client import EndpointConfig, check_url
from whet.engine.base import EngineConfig, SamplingParams
from whet.engine.registry import DEFAULT_ENGINE, AnyEngineConfig
from whet.grading.limits import GradingConfig
from whet.models.source import ModelSource
from whet.reports.report_data import Unit
from whet.rewards.spec import RewardSpec
from whet.stages.checkpoint_manager import SaveConfig
from whet.stages.validation import ValidationConfig
from whet.store.run import RunStore
from whet.tasks.base import Task
from whet.tasks.task_config import TaskConfig
from whet.text.chat import NO_PROMPT, PromptConfig
from whet.track.metrics import TrackConfig
from whet.train.optim import learning_rate
from whet.train.settings import TrainConfig
from whet.types import Json, Problem, Rollout, Split
from whet.world import ClusterConfig

NEEDS_TRAINED_MODEL = "the model has to be one that can answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelWork:
    """What one model of a stage does in each step, to predict its time and memory from."""

    source: ModelSource
    sampling: SamplingParams
    train: TrainConfig | None = None
    """How the model is trained; None if it is not."""
    engine: EngineConfig | None = None
    """What samples its responses; None if none are sampled."""
    algo: AlgoConfig | None = None
    """The algorithm, which may need a reference or a critic."""
    teacher: ModelSource | None = None
    """A second model that computes log-probabilities of the responses."""
    problems: int | None = None
    """Problems, or stored examples, of a step; None is a split of unknown size."""
    samples: int = 1
    """Responses per problem."""
    steps: int = 1
    name: str = "model"
    lag: int | None = None
    """Steps between sampling and training; None if the two can only take turns."""
    reads_responses: bool = False
    """Whether its prompts hold responses of the stage's first model."""


class StageConfig(Config):
    """Settings of every stage."""

    ignored: ClassVar[tuple[str, ...]] = ("track", "cluster")
    """Settings that change no result, and may differ when a run is resumed."""
    lists_problems: ClassVar[bool] = False
    """Whether the stage writes the problems of its task, or some of its `problems`, so that later
    stages can be checked on these before it has run."""
    needs_verdicts: ClassVar[bool] = False
    """Whether the stage cannot work without verdicts; the preflight then tries the grader."""
    trains_on_wrong: ClassVar[bool] = False
    """Whether wrong responses belong in its `data`; a smoke run then writes some."""
    smoke_limits: ClassVar[Mapping[str, int]] = {}
    """Upper limits of settings in a smoke run, besides those in `whet/pipeline/smoke.py`."""
    measures_model: ClassVar[bool] = False
    """Whether the run folder gets two evaluations of `model`, SAMPLED and GREEDY as in
    `whet/recipes/evaluate.py`; reports and studies then show and compare them."""
    curves: ClassVar[Mapping[str, tuple[str, Unit]]] = {}
    """Metrics of this kind alone that the report draws: their title there, and their unit."""

    kind: str
    """The recipe of the stage."""
    seed: int = 0
    """Determines every random choice."""
    task: TaskConfig
    """The task: its problems and its grader."""

    @abstractmethod
    def run_in(self, run: RunStore) -> None:
        """Run the recipe, and write its results into a run folder."""

    def run_folder(self, folder: Path) -> Path:
        """Return where this run writes, in the folder that the user named."""
        return folder

    def end_run(self, folder: Path) -> None:
        """Finish up in the folder that the user named, after the run."""
        return

    @property
    def response_prompt(self) -> PromptConfig | None:
        """The prompt of the stage's model and responses; None if no model reads problems."""
        return None

    @property
    def models(self) -> dict[str, ModelSource]:
        """The models of the stage by their settings."""
        return {key: item for key, item in self if isinstance(item, ModelSource)}

    @property
    def training_steps(self) -> int:
        """Steps in which the stage trains `model`, whose checkpoints are in its run folder; 0 if it
        trains nothing."""
        return 0

    @property
    def ranks(self) -> ClusterConfig | None:
        """How ranks share the work; None if the first rank alone runs the stage."""
        return None

    @property
    def grading_limits(self) -> GradingConfig:
        """Limits of grading a response to a problem of the task."""
        return GradingConfig()

    @property
    def splits(self) -> list[Split]:
        """The splits of problems that the stage reads, the one it works on first."""
        return []

    @property
    def asks_unsolvable(self) -> bool:
        """Whether problems that are known to have no solution are included."""
        return False

    @property
    def reward_specs(self) -> dict[str, tuple[RewardSpec, Task | None]]:
        """Reward specs by setting, each with the task that grades for it; None is the stage's."""
        return {}

    @property
    def servers(self) -> dict[str, EndpointConfig]:
        """The servers that the stage asks, by the table of their settings."""
        return {}

    def list_work(self) -> list[ModelWork]:
        """List what each model of the stage does in a step."""
        return []

    def select_responses(self, rollouts: Sequence[Rollout]) -> list[Rollout]:
        """Choose the stored responses to train on; raise a DataError if none is left."""
        return list(rollouts)

    def predict_responses(self, problems: Sequence[Problem]) -> list[Rollout] | None:
        """Write responses like those that the stage will make of these problems; None if only the
        run can tell."""
        return None

    def smoke_changes(self) -> dict[str, Json]:
        """Other changes of settings in a smoke run, by their dotted keys."""
        return {}

    @property
    def inputs(self) -> dict[str, str]:
        """Inputs of the stage, by the setting that names them: folders, files, models, `@stage`."""
        inputs: dict[str, str] = {}
        for key, item in self:
            if isinstance(item, ModelSource) and item.path is not None:
                inputs[f"{key}.path"] = item.path
            elif key in ("problems", "data") and item is not None:
                inputs[key] = item
        return inputs

    def with_inputs(self, inputs: Mapping[str, str]) -> Self:
        """Return the stage with other folders, files or models to read."""
        changes: dict[str, object] = {}
        for setting, location in inputs.items():
            key = setting.removesuffix(".path")
            item = getattr(self, key)
            is_model = isinstance(item, ModelSource)
            changes[key] = item.model_copy(update={"path": location}) if is_model else location
        return self.model_copy(update=changes)


Stages = Mapping[str, StageConfig]
"""The stages of a pipeline by name, in their order."""


class ModelStageConfig(StageConfig):
    """A stage in which a model answers problems."""

    allows_new_model: ClassVar[bool] = False
    """Whether the model may start from random weights."""

    problems: str | None = None
    """Folder of problems; none takes the task's own."""
    model: ModelSource
    """Where the weights come from."""
    prompt: PromptConfig = NO_PROMPT
    """How problems are turned into prompts."""
    sampling: SamplingParams = SamplingParams()
    """How responses are sampled."""
    engine: AnyEngineConfig = DEFAULT_ENGINE
    """The engine that samples responses: its kind, slots and memory."""
    grading: GradingConfig = GradingConfig()
    """Limits of grading a response."""
    cluster: ClusterConfig = ClusterConfig()
    """How ranks share the model, if there are several."""

    @property
    def ranks(self) -> ClusterConfig:
        return self.cluster

    @property
    def grading_limits(self) -> GradingConfig:
        return self.grading

    @property
    def response_prompt(self) -> PromptConfig | None:
        return self.prompt

    def list_work(self) -> list[ModelWork]:
        return [ModelWork(source=self.model, sampling=self.sampling, engine=self.engine)]

    @model_validator(mode="after")
    def _check_models(self) -> Self:
        for key, item in self.models.items():
            if item.new is not None and not self.allows_new_model:
                raise ValueError(
                    f'{key}.new = "{item.new}" has random weights, and {self.kind} needs a model '
                    f"that can answer: set {key}.path, or train one with sft first"
                )
        return self

    def without_effect(self) -> dict[str, str]:
        reason = "nothing is trained here"
        return (
            {}
            if self.allows_new_model
            else {"model.new": NEEDS_TRAINED_MODEL, "model.lora": reason}
        )


class TrainingConfig(ModelStageConfig):
    """A stage that trains a model."""

    steps: int = Field(default=100, ge=1)
    """Steps of the run."""
    train: TrainConfig = TrainConfig()
    """The optimizer and its memory."""
    validation: ValidationConfig = ValidationConfig()
    """Validation during training."""
    save: SaveConfig = SaveConfig()
    """When checkpoints are written."""
    track: TrackConfig = TrackConfig()
    """Where metrics go besides the run folder and the console."""

    @property
    def training_steps(self) -> int:
        return self.steps

    @property
    def is_deterministic(self) -> bool:
        return self.train.deterministic

    @property
    def schedules(self) -> list[str]:
        """Name the settings that change over the run and end with its last step."""
        names = []
        for key, item in self:
            if isinstance(item, TrainConfig) and item.lr_schedule != "constant":
                names.append(f'{key}.lr_schedule = "{item.lr_schedule}"')
            if isinstance(item, AlgoConfig) and resolve_preset(item).step_rule is not None:
                names.append(f'{key}.step_credit.decay = "{item.step_credit.decay}"')
        return names

    def describe_more_steps(self, before: int) -> str:
        """Say that a run continues to more steps, and which schedules that changes."""
        sentence = f"the run of {before:,} steps continues to {self.steps:,}"
        if not self.schedules:
            return f"{sentence}, as if it had started with that many"
        names = " and ".join(self.schedules)
        sentence += f"; from here on, {names} spans {self.steps:,} steps"
        if self.train.lr_schedule == "constant":
            return sentence
        old, new = (learning_rate(self.train, before, steps) for steps in (before, self.steps))
        return f"{sentence}, and the learning rate goes from {old:.3g} to {new:.3g}"

    @property
    def splits(self) -> list[Split]:
        split = self.validation.split
        is_own = self.problems is None or self.problems.startswith("@")
        return [split] if is_own or problem_file(Path(self.problems or ""), split).is_file() else []

    def list_work(self) -> list[ModelWork]:
        return [replace(super().list_work()[0], train=self.train, steps=self.steps)]

    @property
    def has_reference(self) -> bool:
        """Whether a frozen copy of the starting policy is compared with the one that trains."""
        return False

    def without_effect(self) -> dict[str, str]:
        unused = unused_reference_settings("train", self.train, is_needed=self.has_reference)
        return unused if self.allows_new_model else unused | {"model.new": NEEDS_TRAINED_MODEL}


class OnPolicyConfig(TrainingConfig):
    """A stage that trains on its own responses, to problems of the split `rl`."""

    problems_per_step: int = Field(default=32, ge=1)
    """Problems asked in each step."""

    @property
    @abstractmethod
    def responses_per_problem(self) -> int:
        """How many responses to each problem a step samples."""

    @property
    def splits(self) -> list[Split]:
        return ["rl", *super().splits]

    def list_work(self) -> list[ModelWork]:
        work = super().list_work()[0]
        samples = self.responses_per_problem
        return [replace(work, problems=self.problems_per_step, samples=samples)]


def unused_reference_settings(name: str, train: TrainConfig, *, is_needed: bool) -> dict[str, str]:
    """Name the settings of a reference that have no effect in the table `name`."""
    if not is_needed:
        reason = "there is no model beside the one that trains"
        return {f"{name}.offload_reference": reason, f"{name}.reference_url": reason}
    if train.reference_url is not None:
        return {f"{name}.offload_reference": f"{name}.reference_url names a server that has it"}
    return {}


def check_served_reference(name: str, train: TrainConfig, temperature: float) -> None:
    """Refuse a served reference if responses are sampled at a temperature other than 1."""
    if train.reference_url is None:
        return
    check_url(train.reference_url)
    if temperature != 1:
        raise ValueError(
            f"{name}.reference_url gives log-probabilities at temperature 1, and responses are "
            f"sampled at {temperature:g}: set the temperature to 1, or keep the reference here"
        )
