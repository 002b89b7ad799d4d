"""PPO as a user meets it: a name in the settings, a critic beside the policy, and both in every
checkpoint."""

import shutil
from pathlib import Path
from statistics import fmean

import pytest
from small import Pipeline, check_metrics, whet, write

from whet.store.run import RunStore

FILE = """kind = "rl"
task.name = "game24"
seed = 2
steps = 14
problems_per_step = 8
group_size = 4
model = {{ path = "{model}" }}
sampling = {{ max_tokens = 24 }}
reward = {{ weights = {{ lines = -1.0 }} }}
algo = {{ name = "ppo", kl_coef = 0.001, num_minibatches = 2 }}
train = {{ lr = 3e-3 }}
critic = {{ lr = 3e-3, warmup_steps = 2 }}
validation = {{ samples = 1 }}
save = {{ every = 5 }}
"""


def rows(folder: Path) -> list[dict[str, float]]:
    return [row for row in RunStore.view(folder).metrics() if "validation/pass@1" not in row]


@pytest.fixture(scope="module")
def ppo(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("ppo")
    said = whet(
        "rl",
        write(place / "ppo.toml", FILE.format(model=tiny.folder / "03-sft")),
        "--out",
        place / "run",
    )
    assert said.code == 0, said.err
    return place


def test_the_policy_learns_what_is_rewarded_and_the_critic_what_to_expect(ppo: Path) -> None:
    found = rows(ppo / "run")
    rewards = [row["reward/mean"] for row in found]
    assert fmean(rewards[-3:]) > fmean(rewards[:3]) + 0.5
    assert found[0]["value/explained_variance"] == 0.0
    assert found[5]["value/loss"] < rewards[5] ** 2 / 2 < 1, (
        "it knows more than one that expects nothing"
    )


def test_in_the_warm_up_the_policy_rests(ppo: Path) -> None:
    found = rows(ppo / "run")
    assert ["loss" in row for row in found] == [False] * 2 + [True] * 12
    assert all("value/loss" in row for row in found)


def test_a_run_with_a_critic_that_was_stopped_ends_with_the_same_bits(
    ppo: Path, tmp_path: Path
) -> None:
    folder = Path(shutil.copytree(ppo / "run", tmp_path / "run"))
    newest = folder / "checkpoints" / "000014"

    def bits() -> dict[str, bytes]:
        files = [
            path for path in newest.rglob("*") if path.is_file() and path.name != "manifest.json"
        ]
        return {str(path.relative_to(newest)): path.read_bytes() for path in files}

    whole = bits()
    assert {
        "critic/model.safetensors",
        "critic/optimizer/state.safetensors",
        "critic/value_head.safetensors",
    } <= set(whole)
    shutil.rmtree(newest)
    (folder / "summary.json").unlink()
    (folder / "checkpoints" / "best.json").unlink(missing_ok=True)
    said = whet("rl", ppo / "ppo.toml", "--out", folder, "--resume")
    assert said.code == 0, said.err
    assert "resuming from step 10" in said.err
    assert bits() == whole


def test_an_export_leaves_the_critic_behind(ppo: Path, tmp_path: Path) -> None:
    assert whet("export", ppo / "run", tmp_path / "model").code == 0
    assert not (tmp_path / "model" / "critic").exists()


def test_a_warm_up_as_long_as_the_run_is_refused(ppo: Path, tmp_path: Path) -> None:
    said = whet("rl", ppo / "ppo.toml", "--out", tmp_path / "run", "--critic.warmup_steps", 14)
    assert (said.code, said.last) == (
        2,
        "whet: critic.warmup_steps = 14 leaves the policy none of 14 steps; lower it",
    )


def test_the_metrics_of_a_run_are_those_documented(ppo: Path) -> None:
    check_metrics(ppo / "run", "rl")


def test_an_advantage_of_ones_own_that_uses_a_critic_trains_one(
    tiny: Pipeline, tmp_path: Path
) -> None:
    code = (
        "from whet.algos.advantages import uses_critic\n\n\n@uses_critic\n"
        "def one_step(rewards, values):\n    return rewards - values, rewards\n"
    )
    own = write(tmp_path / "my_critic.py", code)
    file = write(tmp_path / "own.toml", FILE.format(model=tiny.folder / "03-sft"))
    flags = ("--steps", 3, "--group_size", 1, "--algo.advantage", f"{own}:one_step")
    said = whet("rl", file, "--out", tmp_path / "run", *flags)
    assert said.code == 0, said.err
    assert all(row["value/grad_norm"] > 0 for row in rows(tmp_path / "run"))


@pytest.mark.parametrize("name", ["ppo", "reinforce_pp"])
def test_one_answer_a_problem_is_enough_where_answers_are_not_compared(
    name: str, tiny: Pipeline, tmp_path: Path
) -> None:
    text = FILE.format(model=tiny.folder / "03-sft").replace("warmup_steps = 2", "warmup_steps = 0")
    if name != "ppo":
        text = text.replace("critic = { lr = 3e-3, warmup_steps = 0 }\n", "")
    file = write(tmp_path / "one.toml", text)
    flags = ("--steps", 2, "--group_size", 1, "--algo.name", name)
    said = whet("rl", file, "--out", tmp_path / "run", *flags)
    assert said.code == 0, said.err
    assert [row["step/empty"] for row in rows(tmp_path / "run")] == [0.0, 0.0]
    assert all(row["train/grad_norm"] > 0 for row in rows(tmp_path / "run"))


@pytest.mark.parametrize(
    "flags",
    [("--algo.name", "grpo"), ("--algo.name", "ppo", "--dynamic_sampling.max_extra_problems", 2)],
)
def test_one_answer_a_problem_is_refused_where_answers_are_compared(
    flags: tuple[object, ...], tmp_path: Path
) -> None:
    file = write(tmp_path / "x.toml", 'kind = "rl"\ntask.name = "game24"\nmodel = { path = "m" }\n')
    said = whet("show", file, "--group_size", 1, *flags)
    assert said.code == 2
    assert "group_size = 1 leaves nothing to compare" in said.err
