import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from whet.config import Config, load_settings
from whet.errors import ConfigError, DataError
from whet.store.provenance import read_commit
from whet.store.run import RunStore
from whet.types import Author, Completion, FinishReason, Group, Message, Problem, Rollout


class Train(Config):
    lr: float = 0.001


class Track(Config):
    project: str = "whet"


class Job(Config):
    kind: str = "job"
    seed: int = 7
    train: Train = Train()
    track: Track = Track()


class Other(Config):
    rows: int = 1


def begin(folder: Path, *flags: str, resume: bool = False) -> RunStore:
    loaded = load_settings(Job, None, flags)
    return RunStore.open(folder, loaded.config, loaded.origin, resume=resume, ignore=["track"])


def group(number: int) -> Group:
    problem = Problem(
        id=f"t/{number}", task="t", prompt=(Message(role="user", content="?"),), answer=None, payload={}, level=None,
        split="rl", source="test",
    )  # fmt: skip
    tokens = np.array([1, 2], dtype=np.int32)
    completion = Completion(
        tokens=tokens,
        logprobs=np.zeros(2, dtype=np.float32),
        finish_reason=FinishReason.STOP,
        policy_version=number,
    )
    rollout = Rollout(
        id=str(number), group_id="g", problem=problem, author=Author.SOLVER, model="m", prompt_tokens=tokens,
        completion=completion, text="",
    )  # fmt: skip
    return (rollout,)


def test_a_fresh_run_writes_its_settings_and_where_it_came_from(tmp_path: Path) -> None:
    with begin(tmp_path / "runs" / "x", "--train.lr", "0.5") as run:
        assert load_settings(Job, run.config_file, []).config == Job(train=Train(lr=0.5))
        assert "# train.lr      = 0.5     # cli\n" in run.config_file.read_text()
        facts = run.provenance()
    assert facts["seed"] == 7
    assert facts["python"] == ".".join(map(str, sys.version_info[:3]))
    assert facts.keys() >= {"whet", "torch", "platform", "command", "commit", "started"}
    assert str(facts["started"]).endswith("+00:00")
    assert not run.is_finished


def test_metrics_and_ledger_come_back_in_order(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        run.log_metrics(1, {"loss": float(np.float32(0.5))})
        run.log_metrics(2, {"loss": 0.25, "count": 3})
        run.log_metrics(3, {"loss": float("nan"), "count": 4})
        run.log_event("restore", best=2)
        counted = [{"step": 2, "loss": 0.25, "count": 3}, {"step": 3, "count": 4}]
        assert run.metrics() == [{"step": 1, "loss": 0.5}, *counted]
        assert [event["event"] for event in run.events()] == ["start", "restore"]
        assert run.events()[1]["best"] == 2


def test_rollouts_and_evaluations_are_found_by_step(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        run.write_rollouts("train", 20, [group(20)])
        run.write_rollouts("train", 3, [group(3)])
        run.write_rollouts("eval", 5, [group(5)])
        run.write_eval(20, {"pass@1": 0.5})
        run.write_eval(3, {"pass@1": 0.25})
        assert (run.rollout_steps("train"), run.rollout_steps("eval")) == ([3, 20], [5])
        assert run.rollouts("train", 20)[0].id == "20"
        assert list(run.evals().items()) == [(3, {"pass@1": 0.25}), (20, {"pass@1": 0.5})]
    assert (tmp_path / "rollouts" / "train-000020.parquet").is_file()
    assert (tmp_path / "evals" / "000003.json").is_file()


def test_rewinding_cuts_everything_past_the_step(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        for step in (1, 2, 3):
            run.log_metrics(step, {"loss": step})
            run.write_rollouts("train", step, [group(step)])
            run.write_rollouts("eval", step, [group(step)])
            run.write_eval(step, {})
        run.rewind(2)
        assert [row["step"] for row in run.metrics()] == [1, 2]
        assert (run.rollout_steps("train"), run.rollout_steps("eval")) == ([1, 2], [1, 2])
        assert list(run.evals()) == [1, 2]


def test_a_finished_run_is_found_finished(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        run.finish({"pass@1": 0.5})
    with begin(tmp_path) as again:
        assert again.is_finished
        assert again.summary() == {"pass@1": 0.5}
        assert again.id == run.id
    with pytest.raises(ConfigError, match=r"other settings \(seed: 7 -> 8\)"):
        begin(tmp_path, "--seed", "8")


def test_an_unfinished_run_asks_for_resume(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        run.log_metrics(40, {"loss": 1})
    with pytest.raises(ConfigError) as caught:
        begin(tmp_path)
    assert str(caught.value) == (
        f"{tmp_path} holds an unfinished run (step 40, no checkpoint): add --resume to continue it, or choose another folder"
    )
    with begin(tmp_path, "--track.project", "other", resume=True) as run:
        assert [event["event"] for event in run.events()] == ["start", "resume"]


def test_progress_is_also_told_by_checkpoints_or_as_none(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        run.write_rollouts("eval", 0, [group(0)])
    with pytest.raises(ConfigError, match="no step yet"):
        begin(tmp_path)
    (tmp_path / "checkpoints" / "000060").mkdir(parents=True)
    with pytest.raises(ConfigError, match="step 60"):
        begin(tmp_path)


def test_other_settings_are_refused_with_what_differs(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        run.log_metrics(1, {})
    with pytest.raises(
        ConfigError, match=r"other settings \(seed: 7 -> 8; train.lr: 0.001 -> 0.002\): go back"
    ):
        begin(tmp_path, "--train.lr", "0.002", "--seed", "8", resume=True)
    with pytest.raises(
        ConfigError, match=r"another kind or version \(unknown key \"seed\" in config.toml"
    ):
        RunStore.open(tmp_path, Train(), {}, resume=True)


def test_a_run_stopped_before_its_first_step_is_begun_again(tmp_path: Path) -> None:
    begin(tmp_path, "--seed", "1").close()
    (tmp_path / "checkpoints").mkdir()
    with begin(tmp_path, "--seed", "2") as run:
        assert load_settings(Job, run.config_file, []).config.seed == 2
        assert len(run.events()) == 1


def test_a_folder_with_other_things_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.tex").write_text("")
    with pytest.raises(ConfigError, match=r"holds thesis.tex and no run: choose another folder"):
        begin(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".lock", "thesis.tex"]


def test_resuming_clears_what_a_kill_left(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        run.log_metrics(1, {"loss": 1})
        run.write_rollouts("train", 1, [group(1)])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step":2,"lo')
    (tmp_path / "rollouts" / ".train-000002.parquet.new").write_text("half")
    with begin(tmp_path, resume=True) as run:
        run.log_metrics(2, {"loss": 2})
        assert [row["step"] for row in run.metrics()] == [1, 2]
    assert [path.name for path in (tmp_path / "rollouts").iterdir()] == ["train-000001.parquet"]


def test_two_writers_of_one_run_are_refused_until_the_first_is_gone(tmp_path: Path) -> None:
    with (
        begin(tmp_path),
        pytest.raises(ConfigError, match=f"is being written by process {os.getpid()}: wait"),
    ):
        begin(tmp_path)
    begin(tmp_path).close()


def holder(folder: Path, then: str) -> "subprocess.Popen[bytes]":
    """Start a process that holds the folder's lock, does something, says so, and waits."""
    script = (
        f"import os, sys; from pathlib import Path; from whet.store.lock import Lock\n"
        f"lock = Lock(Path(sys.argv[1])); {then}; os.write(1, b'ready\\n'); sys.stdin.read()"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-c", script, str(folder)]
    child = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    return child


def test_the_lock_dies_with_its_process(tmp_path: Path) -> None:
    child = holder(tmp_path, "pass")
    with pytest.raises(ConfigError, match=f"process {child.pid}"):
        begin(tmp_path)
    child.kill()
    child.communicate()
    begin(tmp_path).close()


def test_a_forked_worker_that_outlives_its_run_does_not_keep_the_lock(tmp_path: Path) -> None:
    child = holder(tmp_path, "worker = os.fork(); worker or os.write(1, b'ready\\n')")
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    child.kill()
    child.wait()
    begin(tmp_path).close()
    child.communicate()


def test_a_run_can_be_viewed_while_it_is_written(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        run.log_metrics(1, {"loss": 1})
        seen = RunStore.view(tmp_path)
        assert seen.metrics() == [{"step": 1, "loss": 1}]
        seen.close()
    with pytest.raises(DataError, match="holds no run"):
        RunStore.view(tmp_path / "none")


def test_a_summary_that_is_no_object_is_named(tmp_path: Path) -> None:
    with begin(tmp_path) as run:
        (tmp_path / "summary.json").write_text("[]")
        with pytest.raises(DataError, match=r"summary\.json should hold a JSON object"):
            run.summary()


def test_a_folder_below_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(DataError, match="a file is where a folder is needed"):
        begin(tmp_path / "file" / "run")


def test_the_commit_is_read_from_a_branch_a_packed_branch_a_bare_head_and_a_worktree(
    tmp_path: Path,
) -> None:
    git = tmp_path / ".git"
    assert read_commit(tmp_path) is None
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "HEAD").write_text("ref: refs/heads/main\n")
    assert read_commit(tmp_path) is None
    (git / "packed-refs").write_text("# pack-refs with: peeled\nabc1 refs/heads/main\n")
    assert read_commit(tmp_path) == "abc1"
    (git / "refs" / "heads" / "main").write_text("abc2\n")
    assert read_commit(tmp_path) == "abc2"
    linked = git / "worktrees" / "w"
    linked.mkdir(parents=True)
    (linked / "commondir").write_text("../..\n")
    (linked / "HEAD").write_text("ref: refs/heads/main\n")
    (tmp_path / "w").mkdir()
    (tmp_path / "w" / ".git").write_text(f"gitdir: {linked}\n")
    assert read_commit(tmp_path / "w") == "abc2"
    (git / "HEAD").write_text("abc3\n")
    assert read_commit(tmp_path) == "abc3"
