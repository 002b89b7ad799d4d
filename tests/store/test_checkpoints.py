import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from whet.errors import DataError
from whet.store.checkpoints import Checkpoints

SAVER = """
import sys
from pathlib import Path
from whet.store.checkpoints import Checkpoints
saved = Checkpoints(Path(sys.argv[1]))
found = saved.latest()
step = found[0] if found else 0
while True:
    step += 1
    with saved.start(step) as folder:
        (folder / "weights").mkdir()
        for part in range(3):
            (folder / "weights" / str(part)).write_bytes(bytes([step % 256]) * 50_000)
    saved.complete(step)
    if step % 3 == 0:
        saved.mark_best(step)
    print(step, flush=True)
"""


def save(saved: Checkpoints, step: int, text: str) -> Path:
    with saved.start(step) as folder:
        (folder / "inner").mkdir()
        (folder / "inner" / "weights").write_text(text)
        (folder / "state.json").write_text("{}")
    return saved.complete(step)


def test_the_newest_checkpoint_is_found(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path / "c")
    assert saved.latest() is None
    save(saved, 5, "five")
    path = save(saved, 10, "ten")
    assert path == tmp_path / "c" / "000010"
    assert saved.latest() == (10, path)
    assert (path / "inner" / "weights").read_text() == "ten"


def test_the_newest_two_and_the_best_are_kept(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path)
    for step in range(1, 6):
        save(saved, step, str(step))
        if step == 2:
            saved.mark_best(2)
    assert saved.steps() == [2, 4, 5]
    assert saved.best() == (2, tmp_path / "000002")
    saved.mark_best(5)
    save(saved, 6, "6")
    assert saved.steps() == [5, 6]


def test_a_best_checkpoint_of_a_lost_future_goes_too(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path)
    for step in (1, 2, 3):
        save(saved, step, str(step))
    saved.mark_best(3)
    save(saved, 2, "again")
    assert saved.steps() == [2]
    assert saved.best() is None


def test_fewer_than_two_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="at least 2"):
        Checkpoints(tmp_path, keep_last=1)


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            lambda folder: (folder / "inner" / "weights").write_text("t"),
            "inner/weights has 1 bytes instead of 3",
        ),
        (
            lambda folder: (folder / "inner" / "weights").write_text("tin"),
            "inner/weights is not what was written",
        ),
        (lambda folder: (folder / "state.json").unlink(), "state.json is missing"),
        (lambda folder: (folder / "manifest.json").unlink(), "it has no manifest.json"),
        (
            lambda folder: (folder / "manifest.json").write_text('{"st'),
            "its manifest.json is broken",
        ),
        (
            lambda folder: (folder / "manifest.json").write_text("[]"),
            "its manifest.json is not that of step 10",
        ),
        (
            lambda folder: shutil.copy(folder.parent / "000005" / "manifest.json", folder),
            "not that of step 10",
        ),
    ],
)
def test_a_damaged_checkpoint_is_skipped_with_a_sentence(
    tmp_path: Path, damage: object, told: str
) -> None:
    warnings: list[str] = []
    saved = Checkpoints(tmp_path, warn=warnings.append)
    save(saved, 5, "five")
    save(saved, 10, "ten")
    saved.mark_best(10)
    assert callable(damage)
    damage(tmp_path / "000010")
    assert saved.latest() == (5, tmp_path / "000005")
    assert len(warnings) == 1
    assert told in warnings[0]
    assert warnings[0].endswith("the one before it is used")
    assert saved.best() is None


def test_saving_a_step_again_replaces_it_and_drops_later_ones(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path)
    save(saved, 5, "five")
    save(saved, 10, "ten")
    save(saved, 5, "new")
    assert saved.steps() == [5]
    assert (tmp_path / "000005" / "inner" / "weights").read_text() == "new"


def test_a_failing_writer_leaves_what_was_there(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path)
    save(saved, 5, "five")

    message = r"cannot write .*000010: No space left on device; free space"
    with pytest.raises(DataError, match=message), saved.start(10) as folder:
        (folder / "weights").write_text("half")
        raise OSError(28, "No space left on device")
    assert [path.name for path in tmp_path.iterdir()] == ["000005"]


def test_leftovers_of_a_kill_are_cleared_and_a_replaced_one_is_put_back(tmp_path: Path) -> None:
    save(Checkpoints(tmp_path), 5, "five")
    (tmp_path / ".new-000010").mkdir()
    (tmp_path / ".gone-000001").mkdir()
    (tmp_path / ".best.json.new").touch()
    (tmp_path / "000005").rename(tmp_path / ".old-000005")
    assert Checkpoints(tmp_path).latest() == (5, tmp_path / "000005")
    assert [path.name for path in tmp_path.iterdir()] == ["000005"]


def test_a_best_file_that_says_nothing_is_named(tmp_path: Path) -> None:
    (tmp_path / "best.json").write_text("{}")
    with pytest.raises(DataError, match=r"best\.json should say"):
        Checkpoints(tmp_path).best()


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    warnings: list[str] = []
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    random_stream = random.Random(7)
    reached = 0
    for _ in range(10):
        child = subprocess.Popen(
            [sys.executable, "-c", SAVER, str(tmp_path)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert child.stdout is not None
        said = [child.stdout.readline() for _ in range(2)]
        time.sleep(random_stream.random() * 0.05)
        child.send_signal(signal.SIGKILL)
        said += child.communicate()[0].splitlines()
        printed = int(said[-1])
        saved = Checkpoints(tmp_path, warn=warnings.append)
        found = saved.latest()
        assert found is not None
        assert found[0] >= printed > reached
        assert all(path.name.isdigit() or path.name == "best.json" for path in tmp_path.iterdir())
        reached = found[0]
    assert warnings == []


def test_what_a_kill_after_a_save_left_is_deleted(tmp_path: Path) -> None:
    saved = Checkpoints(tmp_path, keep_last=3)
    for step in (1, 2, 3):
        save(saved, step, str(step))
    saved.mark_best(1)
    again = Checkpoints(tmp_path, keep_last=2)
    again.delete_older(3)
    assert again.steps() == [1, 2, 3]
    again.mark_best(3)
    again.delete_older(3)
    assert again.steps() == [2, 3]
