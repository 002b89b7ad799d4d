"""Writes in a thread: training goes on, one at a time, errors are not lost, a kill spoils nothing."""

import signal
import subprocess
import sys
import threading
from pathlib import Path
from threading import Event

import pytest
import torch
from safetensors.torch import load_file

from whet.errors import DataError
from whet.models.load import defer_writes, write_tensors
from whet.store.checkpoints import Checkpoints
from whet.train.checkpoint import BackgroundWriter


def test_training_goes_on_during_a_write(tmp_path: Path) -> None:
    writer = BackgroundWriter()
    go_on = Event()
    weight = torch.zeros(3)
    with defer_writes() as later:
        write_tensors(tmp_path / "file", {"weight": weight})
    (write,) = later
    writer.start("a file", lambda: write() if go_on.wait() else None)

    weight.fill_(1.0)
    writer.check()
    assert not (tmp_path / "file").exists()
    go_on.set()
    writer.wait()

    assert load_file(tmp_path / "file")["weight"].tolist() == [0.0, 0.0, 0.0]


def test_a_write_waits_for_the_one_before_and_finishes_it() -> None:
    writer = BackgroundWriter()
    done = []
    writer.start("one", lambda: done.append("one"), finish=lambda: done.append("finished"))

    writer.start("two", lambda: done.append("two"))
    writer.wait()

    assert done == ["one", "finished", "two"]


def test_a_write_is_finished_once_by_the_thread_that_checks() -> None:
    writer = BackgroundWriter()
    finished: list[int] = []
    writer.start("one", lambda: None, finish=lambda: finished.append(threading.get_ident()))

    while not finished:
        writer.check()
    writer.check()
    writer.wait()

    assert finished == [threading.get_ident()]


def test_a_failed_write_is_one_sentence_at_a_later_step(tmp_path: Path) -> None:
    writer = BackgroundWriter()
    (tmp_path / "file").write_text("")
    file = tmp_path / "file" / "model.safetensors"

    def fail() -> None:
        raise AssertionError("what failed is not made visible")

    writer.start("the checkpoint of step 20", lambda: write_tensors(file, {}), finish=fail)

    with pytest.raises(DataError) as error:
        while True:
            writer.check()

    assert str(error.value) == (
        f"the checkpoint of step 20 was not written: cannot write {file}: a file is where a "
        "folder is needed; choose another --out"
    )
    writer.check()


SAVER = """
import sys
from pathlib import Path
from threading import Event
from whet.store.checkpoints import Checkpoints
from whet.train.checkpoint import BackgroundWriter

def save(step, text, is_half=False):
    with checkpoints.start(step) as folder:
        (folder / "weights").write_text(text)
        if is_half:
            print("half", flush=True)
            Event().wait()
        (folder / "state").write_text(text)
    checkpoints.complete(step)

checkpoints = Checkpoints(Path(sys.argv[1]))
writer = BackgroundWriter()
writer.start("one", lambda: save(1, "one"))
writer.start("two", lambda: save(2, "two", True))
writer.wait()
"""


def test_a_kill_in_the_middle_of_a_write_leaves_the_checkpoint_before(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SAVER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "half\n"
        assert (tmp_path / ".new-000002" / "weights").exists()
        child.send_signal(signal.SIGKILL)

    again = Checkpoints(tmp_path)

    assert again.latest() == (1, tmp_path / "000001")
    assert (tmp_path / "000001" / "state").read_text() == "one"
    assert [path.name for path in tmp_path.iterdir()] == ["000001"]


def test_the_end_of_the_program_waits_for_a_write(tmp_path: Path) -> None:
    program = SAVER.replace('"two", True', '"two"').replace("writer.wait()", "raise SystemExit(3)")

    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], check=False)

    assert done.returncode == 3
    assert Checkpoints(tmp_path).latest() == (2, tmp_path / "000002")
