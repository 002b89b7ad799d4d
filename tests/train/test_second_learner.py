"""A second kind of learner, that of docs/add_a_learner.md: the page's own test, the contract of
learners, and RL that cannot tell it from `LocalLearner`."""

import re
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import pytest
from safetensors.torch import load_file
from small import Pipeline

from whet.algos.objectives import LossSums
from whet.batching.examples import Example
from whet.errors import ConfigError
from whet.models.source import ModelSource
from whet.recipes.rl import RLConfig, rl
from whet.store.run import RunStore
from whet.testing.contracts import check_learners
from whet.train.learner import Learner
from whet.train.learner_factory import (
    LEARNER_FACTORIES,
    LOCAL_FACTORY,
    LocalLearnerFactory,
    choose_learner_factory,
)
from whet.train.settings import TrainConfig
from whet.types import Floats, Metrics

PAGE = (Path(__file__).parents[2] / "docs" / "add_a_learner.md").read_text()
BLOCKS = dict(re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
RANKS = ModuleType("ranks")
exec(compile(BLOCKS["python"], "docs/add_a_learner.md", "exec"), RANKS.__dict__)


class Averaging(RANKS.TurnsLearner):  # type: ignore[name-defined, misc]
    """Divides what the ranks summed by their number, as data parallelism does by default."""

    def accumulate(self, examples: Sequence[Example], objective: object) -> LossSums:
        sums = super().accumulate(examples, objective)
        halved = {name: value / 2 for name, value in sums.metrics.items()}
        return LossSums(loss=sums.loss / 2, num_losses=sums.num_losses, metrics=halved)


class Disordered(RANKS.TurnsLearner):  # type: ignore[name-defined, misc]
    """Returns the arrays rank by rank."""

    def _read(self, read: object, examples: Sequence[Example]) -> list[Floats]:
        arrays = super()._read(read, examples)
        return [arrays[index] for share in self._deal(examples) for index in share]


class Partial(RANKS.TurnsLearner):  # type: ignore[name-defined, misc]
    """Trains on the share of one rank."""

    def accumulate(self, examples: Sequence[Example], objective: object) -> LossSums:
        share = [examples[index] for index in self._deal(examples)[0]]
        return super().accumulate(share, objective)  # type: ignore[no-any-return]


class Forgetful(RANKS.TurnsLearner):  # type: ignore[name-defined, misc]
    """Loads the count of steps, and not the moments."""

    def load(self, folder: Path, num_optim_steps: int) -> None:
        self.num_optim_steps = num_optim_steps


class Still(RANKS.TurnsLearner):  # type: ignore[name-defined, misc]
    """Keeps the gradient that is to be discarded."""

    def zero_grad(self) -> None:
        return


class Making(LocalLearnerFactory):
    """A factory of one kind of learner of two ranks."""

    def __init__(self, kind: type) -> None:
        self.kind = kind

    def build_learner(self, *args: object, **kwargs: object) -> Learner:
        made: Learner = self.kind(super().build_learner(*args, **kwargs), 2)  # type: ignore[arg-type]
        return made


def test_the_learner_of_the_page_passes_the_test_of_the_page(tmp_path: Path) -> None:
    names = dict(RANKS.__dict__)
    exec(compile(BLOCKS["py"], "docs/add_a_learner.md", "exec"), names)
    names["test_learners_of_ranks_keep_the_contract"](tmp_path)


def test_learners_of_one_device_keep_the_contract(tmp_path: Path) -> None:
    check_learners(LOCAL_FACTORY, tmp_path)


@pytest.mark.parametrize(
    ("kind", "promise"),
    [
        (Averaging, "not divided by the number of ranks"),
        (Disordered, "in the order of the examples"),
        (Partial, "losses of all examples"),
        (Forgetful, "has its weights"),
        (Still, "train/grad_norm"),
    ],
)
def test_a_learner_that_breaks_a_promise_breaks_the_contract(
    kind: type, promise: str, tmp_path: Path
) -> None:
    with pytest.raises(AssertionError, match=promise):
        check_learners(Making(kind), tmp_path)


def test_recipes_know_learners_by_their_protocols_alone() -> None:
    package = Path(__file__).parents[2] / "whet"
    makers = {
        package / "train" / f"{name}.py" for name in ("learner", "learner_factory", "fsdp_learner")
    }
    files = {*package.glob("train/*.py"), *package.glob("recipes/*.py")} - makers
    inside = re.compile(r"LocalLearner|FrozenModel|learner\.(model|optimizer|cfg|device)\b")
    assert len(files) > 15
    assert [file.name for file in files if inside.search(file.read_text())] == []


def test_a_file_names_a_factory_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from whet.train.learner_factory import LocalLearnerFactory\n\nclass Mine(LocalLearnerFactory): ...\nother = 3\n"
    )
    made = choose_learner_factory(TrainConfig(learner=f"{file}:Mine"))
    assert isinstance(made, LocalLearnerFactory) and type(made).__name__ == "Mine"
    with pytest.raises(ConfigError, match="should name a class that inherits from LearnerFactory"):
        choose_learner_factory(TrainConfig(learner=f"{file}:other"))
    with pytest.raises(ConfigError, match="should be one of auto, local, fsdp"):
        choose_learner_factory(TrainConfig(learner="remote"))


def test_a_method_that_a_factory_or_its_learner_lacks_is_one_sentence(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from whet.train.learner import Learner\n"
        "from whet.train.learner_factory import LearnerFactory, LocalLearnerFactory\n\n"
        "class Half(LearnerFactory):\n    pass\n"
    )
    with pytest.raises(
        ConfigError, match=r'mine\.py:Half" lacks build_frozen_model\(.*\), build_learner\(.*\); '
    ):
        choose_learner_factory(TrainConfig(learner=f"{file}:Half"))

    whole = BLOCKS["python"].replace("    def zero_grad(", "    def clear_grad(")
    (tmp_path / "turns.py").write_text(whole)
    with pytest.raises(
        ConfigError,
        match=r"TurnsLearner lacks zero_grad\(self\); whet/train/learner\.py describes each",
    ):
        choose_learner_factory(TrainConfig(learner=f"{tmp_path / 'turns.py'}:TurnsLearnerFactory"))


class Counting(RANKS.TurnsLearner):  # type: ignore[name-defined, misc]
    """Counts the updates that RL takes through it."""

    num_updates = 0

    def optim_step(self) -> Metrics:
        Counting.num_updates += 1
        metrics: Metrics = super().optim_step()
        return metrics


LEARNER_FACTORIES["counting"] = Making(Counting)


def test_rl_by_a_learner_of_two_ranks_ends_with_the_weights_of_one_device(
    tiny: Pipeline, tmp_path: Path
) -> None:
    folders = {"local": tmp_path / "local", "counting": tmp_path / "ranks"}
    for learner, folder in folders.items():
        cfg = RLConfig(
            task={"name": "game24"},
            model=ModelSource(path=str(tiny.folder / "03-sft")),
            steps=2,
            problems_per_step=4,
            group_size=4,
            sampling={"max_tokens": 24},
            reward={"weights": {"lines": -1.0}},
            algo={"name": "ppo", "kl_coef": 0.01, "num_minibatches": 2},
            validation={"samples": 1},
            train={"lr": 1e-4, "learner": learner},
        )
        with RunStore.open(folder, cfg, {}, resume=False) as run:
            rl(cfg, run)

    local, ranks = (RunStore.view(folder) for folder in folders.values())
    assert Counting.num_updates == 8, "two mini-batches a step, of the policy and of the critic"
    for step in (1, 2):
        texts = [[r.text for r in run.rollouts("train", step)] for run in (local, ranks)]
        assert texts[0] == texts[1]
    for name in ("model.safetensors", "critic/model.safetensors"):
        one, other = (
            load_file(folder / "checkpoints" / "000002" / name) for folder in folders.values()
        )
        assert one.keys() == other.keys()
        for key, weight in one.items():
            assert float((weight - other[key]).abs().max()) <= 1e-6, key
