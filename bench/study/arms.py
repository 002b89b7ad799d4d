"""The two arms of the co-training study as pipelines, made of the stages of
experiments/tango_small.toml."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import gcd
from pathlib import Path

from study.jobs import Job
from whet import toml
from whet.config import to_table
from whet.pipeline.pipeline_config import load_stages
from whet.types import Json

EXPERIMENT = Path(__file__).parents[2] / "experiments" / "tango_small.toml"
STARTS = {"sft": ("problems", "traces", "sft", "sft_eval"), "verifier": ("forms", "verifier")}
"""The stages of the experiment that both arms share, in two pipelines."""
ARMS = ("tango", "outcome")
Stages = dict[str, dict[str, Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The stages of the experiment, how many updates each arm takes, and after how many it is
    measured."""

    out: Path
    stages: Stages
    every: int

    @property
    def updates(self) -> list[int]:
        last = _whole(self.stages["outcome"], "steps")
        return [*range(self.every, last, self.every), last]

    def step(self, arm: str, update: int) -> int:
        """The step of an arm after which its generator has had so many updates."""
        tango = self.stages["tango"]
        turns, between = _whole(tango, "generator_turns"), _whole(tango, "verifier_turns")
        return (
            _whole(tango, "warmup") + update + (update // turns) * between
            if arm == "tango"
            else update
        )

    def jobs(self, seed: int) -> list[Job]:
        """The pipelines of a seed: the start, the verifier, and for each arm its training and its
        measurements."""
        return [
            self._job(seed, "sft", self._shared("sft"), weight=1.2, slots=2),
            self._job(seed, "verifier", self._shared("verifier"), needs="sft", slots=2),
            *(
                job
                for arm, needs, weight in (("tango", "verifier", 1.6), ("outcome", "sft", 0.9))
                for job in (
                    self._job(
                        seed,
                        arm,
                        self._arm(arm),
                        needs=needs,
                        weight=weight,
                        slots=2 if arm == "tango" else 1,
                    ),
                    self._job(seed, f"{arm}_curve", self._curve(seed, arm), needs=arm, weight=0.3),
                )
            ),
        ]

    def folder(self, seed: int, name: str) -> Path:
        return self.out / f"{name}-{seed}"

    def _shared(self, name: str) -> Stages:
        return {stage: self.stages[stage] for stage in STARTS[name]}

    def _arm(self, arm: str) -> Stages:
        """Train, and keep the checkpoints that are to be measured."""
        steps = [self.step(arm, update) for update in self.updates]
        every = gcd(*steps[:-1]) or steps[-1]  # the last step has a checkpoint anyway
        saved: Json = {"every": every, "keep": steps[-1] // every + 2}
        return {arm: {**self.stages[arm], "save": saved, "validation": {"samples": 1}}}

    def _curve(self, seed: int, arm: str) -> Stages:
        """Measure those checkpoints."""
        checkpoints = self.folder(seed, arm) / f"01-{arm}" / "checkpoints"
        paths = {
            update: str(checkpoints / f"{self.step(arm, update):06d}") for update in self.updates
        }
        return {
            f"after_{at}": {**self.stages["sft_eval"], "model": {"path": path}}
            for at, path in paths.items()
        }

    def _job(
        self,
        seed: int,
        name: str,
        stages: Stages,
        *,
        needs: str = "",
        weight: float = 1.0,
        slots: int = 1,
    ) -> Job:
        """A pipeline; its names for stages of others become their folders."""
        placed: Json = {
            stage: self._placed(seed, settings, stages) for stage, settings in stages.items()
        }
        return Job(
            name=f"{name}, seed {seed}",
            text=toml.write({"kind": "run", "seed": seed, "stages": placed}),
            folder=self.folder(seed, name),
            needs=(f"{needs}, seed {seed}",) if needs else (),
            weight=weight,
            slots=slots,
        )

    def _placed(self, seed: int, setting: Json, own: Mapping[str, object]) -> Json:
        """Put folders in the place of names of stages that are in another pipeline."""
        if isinstance(setting, dict):
            return {key: self._placed(seed, each, own) for key, each in setting.items()}
        if not isinstance(setting, str) or not setting.startswith("@") or setting[1:] in own:
            return setting
        start = next(name for name, stages in STARTS.items() if setting[1:] in stages)
        return str(
            self.folder(seed, start) / f"{STARTS[start].index(setting[1:]) + 1:02d}-{setting[1:]}"
        )


def settings(file: Path, changes: Sequence[str], samples: int) -> Stages:
    """The stages of an experiment, with some settings changed."""
    stages: Stages = {}
    for name, config in load_stages(file, []).items():
        table = to_table(config, keep_none=False)
        del table["seed"]  # a stage takes that of its pipeline
        stages[name] = table
    stages["sft_eval"]["samples"] = samples
    for change in changes:
        setting, _, text = change.partition("=")
        stage, _, key = setting.partition(".")
        if stage not in stages or not key or not text:
            raise SystemExit(
                f"--set {change}: a setting is STAGE.KEY=VALUE, and stages are {', '.join(stages)}"
            )
        stages[stage][key] = toml.parse_value(text)
    return stages


def check(plan: Plan) -> None:
    """Stop if the two arms would not have as many updates of the generator."""
    last, steps = plan.updates[-1], _whole(plan.stages["tango"], "steps")
    if plan.step("tango", last) != steps:
        raise SystemExit(
            f"outcome.steps = {last} are {plan.step('tango', last)} steps of co-training, not {steps}"
        )


def _whole(stage: Mapping[str, Json], key: str) -> int:
    number = stage[key]
    assert isinstance(number, int), f"{key} is a whole number"
    return number
