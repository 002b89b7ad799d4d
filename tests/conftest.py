"""One tiny pipeline, run once for all tests that look at what it leaves; GPUs are hidden from tests
that are not about them."""

import os
import re
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


def pytest_configure(config: pytest.Config) -> None:
    """Hide GPUs before CUDA starts, also from processes that tests start, unless only tests of GPUs
    run: `-m gpu`, or paths in tests/gpu. Other tests state the bits and defaults of a CPU."""
    is_marked = re.search(r"(?<!not )\bgpu\b", config.getoption("markexpr"))
    folder = Path(__file__).parent / "gpu"
    paths = [Path(arg.partition("::")[0]).resolve() for arg in config.args]
    if not is_marked and not all(path.is_relative_to(folder) for path in paths):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""


@pytest.fixture(scope="session")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Pipeline:
    """Make, teach, SFT, eval, RL, eval: six stages in about five seconds."""
    torch.set_num_threads(1)
    place = tmp_path_factory.mktemp("tiny")
    file = write(place / "tiny.toml", TINY)
    said = whet("run", file, "--out", place / "run")
    assert said.code == 0, said.err
    return Pipeline(file=file, folder=place / "run", said=said)
