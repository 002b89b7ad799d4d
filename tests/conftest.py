"""One tiny pipeline, run once for all tests that look at what it leaves."""

import signal
import sys
from pathlib import Path

from small import TINY, Pipeline, whet, write  # first: whet sets what torch reads while it loads

# isort: split
import pytest
import torch

sys.path.append(
    str(Path(__file__).parents[1])
)  # bench/ is not installed, and some of its pieces are used here
# A shell gives its background jobs no Ctrl-C, and their children none; tests that press it would
# wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Make, teach, SFT, eval, RL, eval: six stages in about five seconds."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("tiny")
    file = write(place / "tiny.toml", TINY)
    said = whet("run", file, "--out", place / "run")
    assert said.code == 0, said.err
    return Pipeline(file=file, folder=place / "run", said=said)
