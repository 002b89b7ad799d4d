"""The steps of a run can be raised, finished or not: it goes on, and ends as one that began with as
many."""

import shutil
from pathlib import Path

import pytest
from small import Pipeline, cut_after, whet, write

from bench.kill_resume import facts
from whet.store.run import RunStore

RL = """kind = "rl"
task.name = "game24"
model = {{ path = "{folder}/03-sft" }}
problems = "{folder}/01-problems"
steps = 2
problems_per_step = 4
group_size = 4
sampling = {{ max_tokens = 24 }}
reward = {{ weights = {{ finished = 1.0, lines = -0.1 }} }}
algo = {{ name = "game24", kl_coef = 0.01, num_minibatches = 2 }}
train = {{ lr = 1e-3, warmup_steps = 3 }}
validation = {{ every = 2, samples = 1 }}
save = {{ every = 2, keep = 3 }}
"""


@pytest.fixture(scope="module")
def runs(tiny: Pipeline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two steps in `short`, and one of six in `long`."""
    place = tmp_path_factory.mktemp("steps")
    file = write(place / "rl.toml", RL.format(folder=tiny.folder))
    for name, steps in (("short", 2), ("long", 6)):
        said = whet("rl", file, "--steps", steps, "--out", place / name)
        assert said.code == 0, said.err
    return place


def copy(runs: Path, to: Path) -> Path:
    return Path(shutil.copytree(runs / "short", to / "run"))


def test_a_finished_run_goes_on_and_equals_one_that_began_with_more_steps(
    runs: Path, tmp_path: Path
) -> None:
    folder = copy(runs, tmp_path)
    said = whet("rl", runs / "rl.toml", "--steps", 6, "--out", folder, "--resume")

    assert said.code == 0, said.err
    assert "the run of 2 steps continues to 6, as if it had started with that many" in said.err
    assert facts(tmp_path, ["run"]) == {
        key.replace("long", "run"): value for key, value in facts(runs, ["long"]).items()
    }
    events = [(row["event"], row.get("steps")) for row in RunStore.view(folder).events()]
    assert ("extend", 6) in events
    assert "\nsteps = 6\n" in (folder / "config.toml").read_text()
    said = whet("rl", runs / "rl.toml", "--steps", 6, "--out", folder)
    assert said.code == 0 and said.last.endswith("is finished; nothing to do")


def test_an_unfinished_run_can_be_given_more_steps(runs: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(runs / "long", tmp_path / "run"))
    said = whet("rl", runs / "rl.toml", "--steps", 6, "--out", folder)
    cut_after(folder, 4)
    said = whet("rl", runs / "rl.toml", "--steps", 7, "--out", folder, "--resume")

    assert said.code == 0, said.err
    assert "the run of 6 steps continues to 7" in said.err and "resuming from step 4" in said.err
    assert len({row["step"] for row in RunStore.view(folder).metrics()} - {0}) == 7


def test_more_steps_are_asked_for_and_fewer_are_refused(runs: Path, tmp_path: Path) -> None:
    folder = copy(runs, tmp_path)
    said = whet("rl", runs / "rl.toml", "--steps", 6, "--out", folder)
    assert (said.code, said.last) == (
        2,
        f"whet: {folder} holds a finished run of 2 steps: add --resume to continue to 6, or "
        "choose another folder",
    )
    said = whet("rl", runs / "rl.toml", "--steps", 1, "--out", folder, "--resume")
    assert (said.code, said.last) == (
        2,
        f"whet: steps = 1 is below the 2 of the run in {folder}, and a run cannot be shortened: go "
        "back to 2, or choose another folder",
    )
    assert RunStore.view(folder).is_finished


def test_a_falling_schedule_says_what_more_steps_do_to_it(runs: Path, tmp_path: Path) -> None:
    """A line from 0.001 to 0 over 2 steps is at 0 after them; over 4 steps it is half way, but the
    warm-up of 1 comes first: (4 - 2) / (4 - 1) of 0.001."""
    flags = ("--train.lr_schedule", "linear", "--train.warmup_steps", 1, "--final_temperature", 0.5)
    folder = tmp_path / "run"
    assert whet("rl", runs / "rl.toml", *flags, "--out", folder).code == 0
    said = whet("rl", runs / "rl.toml", *flags, "--steps", 4, "--out", folder, "--resume")

    assert said.code == 0, said.err
    assert (
        'the run of 2 steps continues to 4; from here on, train.lr_schedule = "linear" and '
        "final_temperature = 0.5 spans 4 steps, and the learning rate goes from 0 to 0.000667"
    ) in said.err


def test_a_stage_of_a_pipeline_goes_on_to_more_steps_and_those_after_it_run_again(
    tiny: Pipeline, tmp_path: Path
) -> None:
    folder = tiny.copy(tmp_path / "run")
    flags = ("--stages.rl.steps", 8, "--out", folder)
    said = whet("run", tiny.file, *flags)

    assert said.code == 0, said.err
    assert "the run of 6 steps continues to 8; from here on, final_temperature = 0.5" in said.err
    assert "resuming from step 6" in said.err
    assert [path.name for path in folder.glob(".old-*")] == [".old-06-rl_eval-1"]
    said = whet("run", tiny.file, *flags)
    assert said.err.count("done before") == 6


def test_a_stage_with_fewer_steps_begins_again(tiny: Pipeline, tmp_path: Path) -> None:
    folder = tiny.copy(tmp_path / "run")
    said = whet("run", tiny.file, "--stages.rl.steps", 2, "--out", folder)

    assert said.code == 0, said.err
    assert sorted(path.name for path in folder.glob(".old-*")) == [
        ".old-05-rl-1",
        ".old-06-rl_eval-1",
    ]
