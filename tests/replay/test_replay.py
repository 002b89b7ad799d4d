"""Updates of a run computed again: the logged numbers come out, and alternatives are compared."""

import json
import math
import re
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType

import pytest
from small import Pipeline, cut_after, files, whet, write

from whet.engine.native import NativeConfig
from whet.errors import ConfigError, DataError
from whet.replay.alternatives import read_alternatives
from whet.replay.replay import Replay, replay
from whet.store.run import RunStore
from whet.train.learner import LocalLearner
from whet.train.rl_step import RLTrainer

RL = """kind = "rl"
task.name = "game24"
seed = 5
model = {{ path = "{model}" }}
steps = 5
problems_per_step = 4
group_size = 4
sampling = {{ max_tokens = 24 }}
reward = {{ weights = {{ finished = 1.0, lines = -0.1 }} }}
train = {{ lr = 1e-3, lr_schedule = "linear" }}
validation = {{ every = 0 }}
save = {{ every = 2, keep = 3 }}
"""
KINDS = {
    "kl": ("--algo.kl_coef", 0.01, "--final_temperature", 0.7),
    "ppo": ("--algo.name", "ppo", "--algo.num_minibatches", 2, "--critic.warmup_steps", 1),
    "lag": ("--lag", 1, "--algo.importance_correction.rule", "truncate"),
    "dynamic": (
        "--dynamic_sampling",
        "{ max_extra_problems = 4, first_samples = 2, mask_unfinished = true }",
        "--algo.num_minibatches",
        2,
    ),
    "lora": ("--model.lora.rank", 2, "--algo.kl_coef", 0.01, "--algo.kl_in", "reward"),
}


def train(tiny: Pipeline, folder: Path, *flags: object) -> Path:
    file = write(folder.with_suffix(".toml"), RL.format(model=(tiny.folder / "03-sft").absolute()))
    said = whet("rl", file, "--out", folder, *flags)
    assert said.code == 0, said.err
    return folder


@pytest.fixture(scope="module")
def kl(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tiny, tmp_path_factory.mktemp("replay") / "kl", *KINDS["kl"])


def is_exact(result: Replay, folder: Path) -> bool:
    """Compare the loss and the gradient norm of the baseline with metrics.jsonl, by hand."""
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    logged = next(row for row in rows if row["step"] == result.step and "loss" in row)
    baseline = result.rows[0]
    numbers = (baseline.loss, baseline.grad_norm)
    assert result.check.differences == [] and result.check.num_compared > 5
    return numbers == (logged["loss"], logged["train/grad_norm"])


@pytest.mark.parametrize("kind", KINDS)
def test_a_replay_gives_the_logged_loss_and_gradient_norm_bit_for_bit(
    kind: str, tiny: Pipeline, kl: Path, tmp_path: Path
) -> None:
    folder = kl if kind == "kl" else train(tiny, tmp_path / kind, *KINDS[kind])
    before = files(folder)
    assert is_exact(replay(folder, 2), folder), "from the starting model"
    result = replay(folder, 4)
    assert result.start.step == 2 and is_exact(result, folder), "from a checkpoint"
    assert files(folder) == before, "a replay writes nothing"


def test_steps_before_and_after_an_extension_have_their_own_schedules(
    kl: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(kl, tmp_path / "run"))
    file = shutil.copy(kl.with_suffix(".toml"), tmp_path / "run.toml")
    cut_after(folder, 4)
    said = whet("rl", file, "--out", folder, *KINDS["kl"], "--steps", 8, "--resume")
    assert said.code == 0, said.err
    # Step 5 was taken again, now as one of eight; steps up to 4 as some of five.
    shutil.rmtree(folder / "checkpoints" / "000004", ignore_errors=True)
    for step in (4, 5, 6):
        assert is_exact(replay(folder, step), folder)
    rows = RunStore.view(folder).metrics()
    rates = {row["step"]: row["train/lr"] for row in rows if "train/lr" in row}
    assert rates[4] == 1e-3 * (1 - 3 / 5) and rates[5] == 1e-3 * (1 - 4 / 8)


@contextmanager
def counting(*functions: Callable[..., object]) -> Iterator[Counter[str]]:
    """Count the calls of functions, whoever makes them."""
    codes: dict[CodeType, str] = {item.__code__: item.__qualname__ for item in functions}
    counts: Counter[str] = Counter()

    def see(frame: FrameType, event: str, _: object) -> None:
        if event == "call" and frame.f_code in codes:
            counts[codes[frame.f_code]] += 1

    sys.setprofile(see)
    try:
        yield counts
    finally:
        sys.setprofile(None)


def test_ten_alternatives_cost_ten_updates_and_no_engine(kl: Path) -> None:
    alternatives = read_alternatives(
        [], [f"lr {number}: train.lr={number}e-4" for number in range(1, 11)], None
    )
    with counting(NativeConfig.build, RLTrainer.step, LocalLearner.optim_step) as counts:
        result = replay(kl, 5, alternatives)
    assert counts == {"RLTrainer.step": 11, "LocalLearner.optim_step": 11}, (
        "the engine is not even built"
    )
    assert len(result.rows) == 11 and result.num_updates == 11
    assert {row.grad_norm for row in result.rows} == {result.rows[0].grad_norm}
    assert len({row.change for row in result.rows}) == 10, "the last is the run's own rate"


def try_all(folder: Path, step: int, *named: str) -> dict[str, dict[str, float]]:
    result = replay(folder, step, read_alternatives([], named, None)).to_json()
    rows = result["rows"]
    assert isinstance(rows, list)
    return {row["name"]: row for row in rows if isinstance(row, dict)}  # type: ignore[misc, index]


def test_a_divisor_scales_the_gradient_and_leaves_its_direction(kl: Path) -> None:
    """sequence_sum divides by 16 answers, constant by 16 answers of 24 tokens."""
    rows = try_all(
        kl,
        3,
        "sum: algo.loss_weights=sequence_sum",
        "constant: algo.loss_weights=constant",
        "none: algo.kl_coef=0 reward.weights={lines=0.0}",
    )
    ratio = rows["sum"]["grad_norm"] / rows["constant"]["grad_norm"]
    assert math.isclose(ratio, 24, rel_tol=1e-5)
    assert math.isclose(rows["sum"]["cosine"], rows["constant"]["cosine"], rel_tol=1e-6)
    assert rows["as logged"]["cosine"] == pytest.approx(1.0)
    empty = rows["none"]
    assert (empty["loss"], empty["cosine"], empty["token_fraction"]) == (None, None, 0.0)


def test_a_negated_reward_turns_the_gradient_round(tiny: Pipeline, tmp_path: Path) -> None:
    folder = train(tiny, tmp_path / "plain", "--steps", 1)
    rows = try_all(
        folder,
        1,
        "opposite: reward.weights={finished=-1.0,lines=0.1}",
        "norm: train.max_grad_norm=1e-9",
    )
    assert rows["opposite"]["cosine"] == pytest.approx(-1.0)
    assert rows["opposite"]["mean_reward"] == pytest.approx(-rows["as logged"]["mean_reward"])
    assert rows["norm"]["grad_norm"] == rows["as logged"]["grad_norm"]
    assert rows["norm"]["change"] < 0.2 * rows["as logged"]["change"]


def test_the_command_prints_tables_and_json(kl: Path, tmp_path: Path) -> None:
    grid = write(
        tmp_path / "grid.toml", '[dr]\nalgo.name = "dr_grpo"\n[dapo]\nalgo.name = "dapo"\n'
    )
    said = whet("replay", kl, "--step", 3, "--set", "algo.kl_coef=0.1", "--grid", grid)
    assert said.code == 0, said.err
    first, second, *_ = said.out.splitlines()
    assert first.endswith(
        "from checkpoint 2; the update and 3 alternatives computed without sampling"
    )
    assert re.fullmatch(r"all \d+ numbers that the run logged come out bit for bit", second)
    assert re.search(r"^update +embed +layer 0 +layer 1 +norm$", said.out, re.MULTILINE)
    said = whet("replay", kl, "--step", 3, "--grid", grid, "--json")
    result = json.loads(said.out)
    assert [row["name"] for row in result["rows"]] == ["as logged", "dr", "dapo"]
    assert result["differences"] == [] and result["updates"] == 3


def test_another_starting_model_is_noticed(kl: Path, tiny: Pipeline, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(kl, tmp_path / "run"))
    text = (folder / "config.toml").read_text()
    other = text.replace(str(tiny.folder / "03-sft"), str(tiny.folder / "05-rl"))
    (folder / "config.toml").write_text(other)
    result = replay(folder, 1)
    differing = {difference.metric for difference in result.check.differences}
    assert differing >= {"policy/entropy", "train/grad_norm"}


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (
            ["--set", "sampling.temperature=2"],
            "sampling.temperature does not change what an update",
        ),
        (["--set", "algo.name=ppo"], "it needs the values of a critic, and the run trained none"),
        (["--set", "algo.clip_high=0.3"], "algo.clip_high = 0.3 has no effect"),
        (["--set", "algo.name"], "--set 'algo.name' should be KEY=VALUE"),
        (["--try", "algo.name=dapo"], "should be a name and settings"),
        (
            ["--try", "a: train.lr=1e-4", "--try", "a: train.lr=2e-4"],
            "two alternatives are called 'a'",
        ),
    ],
)
def test_what_cannot_be_replaced_is_refused_in_one_sentence(
    flags: list[str], sentence: str, kl: Path
) -> None:
    said = whet("replay", kl, "--step", 3, *flags)
    assert said.code == 2 and sentence in said.last


def test_missing_rollouts_and_restores_are_named_with_the_steps_that_can_be_replayed(
    kl: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(kl, tmp_path / "run"))
    with pytest.raises(DataError, match=r"no rollouts of step 9: .* replayed are 1-5$"):
        replay(folder, 9)
    (folder / "rollouts" / "train-000003.parquet").unlink()
    shutil.rmtree(folder / "checkpoints" / "000004")
    with pytest.raises(DataError, match=r"rollouts of step 3 are missing .* replayed are 1-2$"):
        replay(folder, 4)
    shutil.copytree(kl, folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "checkpoints" / "000002")
    with (folder / "ledger.jsonl").open("a") as ledger:
        ledger.write('{"time": "", "event": "restore", "step": 2, "best": 0}\n')
    with pytest.raises(DataError, match=r"after step 2 the guard restored .* are 1-2, 5$"):
        replay(folder, 4)


def test_only_runs_of_rl_are_replayed(tiny: Pipeline) -> None:
    with pytest.raises(ConfigError, match="kind 'sft', and only runs of kind 'rl' can be replayed"):
        replay(tiny.folder / "03-sft", 1)
    result = replay(tiny.folder, 5)
    assert (result.folder, result.start.step) == (tiny.folder / "05-rl", 4)
    assert result.check.differences == [], "the checkpoint has the running baseline of game24"
