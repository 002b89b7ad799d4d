"""The child's half of a bench: prepare once, then one round for every line read. Standard library
only."""

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from speed.work import Spec

Round = Callable[[int], dict[str, float]]
"""Does the round of a number and says what it measured: `seconds` and `tokens` at least."""


def serve(prepare: Callable[[Spec], Round]) -> None:
    """Read a spec from the file named on the command line, prepare, and answer each line with a
    JSON line.

    Libraries may print; what they print goes to stderr, so that answers stand alone on stdout.
    """
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    began = time.perf_counter()
    run = prepare(Spec.read(Path(sys.argv[1])))
    answers.write(json.dumps({"start_seconds": time.perf_counter() - began}) + "\n")
    for line in sys.stdin:
        # Processor time tells, on a machine that others use too, what the clock cannot.
        spent = time.process_time()
        row = run(int(line))
        answers.write(json.dumps(row | {"cpu_seconds": time.process_time() - spent}) + "\n")
