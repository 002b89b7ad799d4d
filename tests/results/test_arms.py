"""Which runs are seeds of one setting, and in what settings differ."""

from pathlib import Path

import pytest
from small import write

from whet.errors import DataError
from whet.results.arms import Change, group_arms, view_run_folder
from whet.store.run import RunStore


def stage(folder: Path, *, seed: int, lr: float = 1e-3, **more: str) -> Path:
    """Write the settings of an RL run, as a run folder keeps them."""
    folder.mkdir(parents=True)
    lines = [f'{key} = "{value}"' for key, value in more.items() if "." not in key]
    text = [f'kind = "rl"\nseed = {seed}', *lines, 'task = { name = "game24" }']
    text += [f"train = {{ lr = {lr} }}", f'model = {{ path = "{more.get("model.path", "m")}" }}']
    write(folder / "config.toml", "\n".join(text))
    return folder


def test_runs_that_differ_in_their_seed_alone_are_one_arm(tmp_path: Path) -> None:
    runs = [stage(tmp_path / f"low-{seed}", seed=seed) for seed in (1, 2)]
    runs += [stage(tmp_path / f"high-{seed}", seed=seed, lr=1e-2) for seed in (1, 2, 3)]
    arms, changes, repeats = group_arms(runs)
    assert [(arm.name, [run.seed for run in arm.runs]) for arm in arms] == [
        ("lr 0.001", ["1", "2"]),
        ("lr 0.01", ["1", "2", "3"]),
    ]
    assert changes == [
        Change(key="train.lr", meaning="Peak learning rate", values=("0.001", "0.01"))
    ]
    assert repeats == []


def test_trackers_and_ranks_make_no_other_arm(tmp_path: Path) -> None:
    one = stage(tmp_path / "a", seed=1)
    other = stage(tmp_path / "b", seed=2)
    with (other / "config.toml").open("a") as file:
        file.write('\n[track]\nsinks = ["wandb"]\n[cluster]\nsequence_parallel = 2\n')
    assert len(group_arms([one, other])[0]) == 1


def test_the_same_settings_and_seed_again_are_left_out_and_said(tmp_path: Path) -> None:
    one, other = stage(tmp_path / "a", seed=1), stage(tmp_path / "b", seed=1)
    arms, _, (repeat,) = group_arms([one, other, stage(tmp_path / "c", seed=2)])
    assert [run.folder for run in arms[0].runs] == [one, tmp_path / "c"]
    assert repeat.startswith(f"{other} has the settings and the seed of {one} and is left out")


def test_a_stage_that_starts_from_its_own_pipeline_has_the_same_settings_in_each(
    tmp_path: Path,
) -> None:
    for seed in (1, 2):
        first = stage(tmp_path / f"run-{seed}" / "01-sft", seed=seed)
        stage(tmp_path / f"run-{seed}" / "02-rl", seed=seed, problems=str(first))
    arms, changes, _ = group_arms([tmp_path / "run-1", tmp_path / "run-2"])
    assert len(arms) == 1
    assert changes == []
    assert arms[0].name == "run"


def test_seeds_may_have_started_from_seeds_of_another_run(tmp_path: Path) -> None:
    starts = [stage(tmp_path / f"start-{seed}", seed=seed) for seed in (1, 2)]
    runs = [stage(tmp_path / f"a-{n}", seed=n, problems=str(s)) for n, s in enumerate(starts)]
    other = stage(tmp_path / "other", seed=1, lr=0.5)
    runs.append(stage(tmp_path / "b", seed=3, problems=str(other)))
    arms, changes, _ = group_arms(runs)
    assert [len(arm.runs) for arm in arms] == [2, 1]
    assert [change.key for change in changes] == ["problems"]
    assert [arm.name for arm in arms] == ["problems start-1", "problems other"]


def test_equal_files_under_two_paths_are_no_difference(tmp_path: Path) -> None:
    runs = []
    for seed, content in ((1, "aa"), (2, "aa"), (3, "bb")):
        run = stage(tmp_path / f"run-{seed}", seed=seed, problems=f"copy-{seed}")
        files = {"problems problems-rl.jsonl": content, "data x.parquet": str(seed)}
        RunStore(run, lock=None).log_event("inputs", files=files)
        runs.append(run)
    arms, changes, _ = group_arms(runs)
    assert [len(arm.runs) for arm in arms] == [2, 1]
    assert [(change.key, change.values) for change in changes] == [
        ("problems", ('"copy-1"', '"copy-3"'))
    ]


def test_other_content_under_one_path_is_a_difference(tmp_path: Path) -> None:
    runs = [stage(tmp_path / name, seed=1, problems="p") for name in ("old", "new")]
    for run, content in zip(runs, ("aa", "bb"), strict=True):
        RunStore(run, lock=None).log_event("inputs", files={"problems p.jsonl": content})
    _, (change,), _ = group_arms(runs)
    assert change.values == ('"p" (aa)', '"p" (bb)')


def test_paths_below_the_own_folder_of_a_run_are_compared_from_there(tmp_path: Path) -> None:
    for name, seed in (("run", 1), ("run2", 2)):
        model = str(tmp_path / name / "stand-ins" / "model")
        stage(tmp_path / name / "01-rl", seed=seed, **{"model.path": model})
    runs = [tmp_path / "run", tmp_path / "run2"]
    for locations in (runs, [run / "01-rl" for run in runs]):
        arms, changes, _ = group_arms(locations)
        assert (len(arms), changes) == (1, [])


def test_arms_with_many_differences_are_named_by_their_folders(tmp_path: Path) -> None:
    one = stage(tmp_path / "grpo_seed1", seed=1)
    other = stage(tmp_path / "rloo_seed1", seed=1, lr=2.0, problems="p", reward="binary")
    arms, changes, _ = group_arms([one, other])
    assert [arm.name for arm in arms] == ["grpo", "rloo"]
    assert ("problems", ("not set", '"p"')) in [(change.key, change.values) for change in changes]


def test_a_stage_that_one_pipeline_lacks_is_one_difference(tmp_path: Path) -> None:
    for name in ("a", "b"):
        stage(tmp_path / name / "01-rl", seed=1)
    stage(tmp_path / "b" / "02-more", seed=1)
    _, changes, _ = group_arms([tmp_path / "a", tmp_path / "b"])
    assert changes == [Change(key="more", meaning="a stage", values=("not set", "there"))]


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run"):
        view_run_folder(tmp_path)
