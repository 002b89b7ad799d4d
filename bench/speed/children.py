"""The parent's half: sides as child processes that take turns. Whoever is not measured is stopped
by a signal."""

import json
import os
import signal
import subprocess
import sys
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Self

from speed.work import Spec

BENCH = Path(__file__).parents[1]
NUM_LAST_LINES = 30

Row = dict[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One system of a comparison: a module of `speed.sides` with its settings. `is_default` marks
    what its makers chose."""

    name: str
    module: str
    is_default: bool = False
    python: str = sys.executable
    tree: Path = BENCH.parent
    """The checkout whose code runs."""
    settings: dict[str, str | int | float | bool] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Record:
    """What a side measured; `failure` says why it has no rounds."""

    side: Side
    start_seconds: float = 0.0
    warm_up: Row = field(default_factory=dict)
    rounds: list[Row] = field(default_factory=list)
    failure: str = ""


class ChildError(Exception):
    """A child ended before it answered."""


class Child:
    """A running side. It is asleep except between `ask` and the answer."""

    def __init__(self, side: Side, spec: Spec, folder: Path) -> None:
        file = folder / f"{side.name.replace(' ', '_').replace(',', '')}.json"
        file.write_text(spec.to_json())
        self.process = subprocess.Popen(
            [side.python, "-m", f"speed.sides.{side.module}", str(file)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=_environment(side, spec),
            cwd=side.tree,
            start_new_session=True,
        )
        self.said: deque[str] = deque(maxlen=NUM_LAST_LINES)
        # A full pipe would stop the child, so its words are always read.
        self._reader = Thread(target=self._listen, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self._signal(signal.SIGKILL)
        self.process.wait()

    def answer(self) -> Row:
        assert self.process.stdout is not None, "the child was started with a pipe"
        line = self.process.stdout.readline()
        if not line:
            self.process.wait()
            self._reader.join(timeout=5)
            raise ChildError("\n".join(self.said))
        row: Row = json.loads(line)
        return row

    def ask(self, number: int) -> Row:
        """Let the child do one round."""
        assert self.process.stdin is not None, "the child was started with a pipe"
        self._signal(signal.SIGCONT)
        self.process.stdin.write(f"{number}\n")
        self.process.stdin.flush()
        row = self.answer()
        self.rest()
        return row

    def rest(self) -> None:
        self._signal(signal.SIGSTOP)

    def _signal(self, what: signal.Signals) -> None:
        os.killpg(self.process.pid, what)

    def _listen(self) -> None:
        assert self.process.stderr is not None, "the child was started with a pipe"
        for line in self.process.stderr:
            self.said.append(line.rstrip())


def take_turns(sides: list[Side], specs: list[Spec], folder: Path) -> list[Record]:
    """Start every side, warm each up by one round, then let them take turns, round after round.

    Children are sessions of their own, so whoever ends the parent would leave them behind if it did
    not end them.
    """
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    records = [Record(side=side) for side in sides]
    with ExitStack() as stack:
        running: list[tuple[Record, Child]] = []
        for record, spec in zip(records, specs, strict=True):
            child = stack.enter_context(Child(record.side, spec, folder))
            try:
                record.start_seconds = child.answer()["start_seconds"]
                record.warm_up = child.ask(0)
            except ChildError as error:
                _drop(record, str(error))
                continue
            say(f"{record.side.name}: ready, first round {record.warm_up['seconds']:.2f} s")
            running.append((record, child))
        for number in range(1, 1 + specs[0].work.rounds):
            for record, child in running:
                if record.failure:
                    continue
                try:
                    record.rounds.append(child.ask(number))
                except ChildError as error:
                    _drop(record, str(error))
                    continue
                say(f"round {number}: {record.side.name} {record.rounds[-1]['seconds']:.2f} s")
    return records


def say(line: str) -> None:
    """Report progress; data alone goes to stdout."""
    print(line, file=sys.stderr, flush=True)


def _drop(record: Record, words: str) -> None:
    lines = [line for line in words.splitlines() if line.strip()]
    record.failure = lines[-1][:200] if lines else "it ended without a word"
    record.rounds.clear()
    say(f"{record.side.name}: failed\n{words}")


def _environment(side: Side, spec: Spec) -> dict[str, str]:
    """Our environment, with the bench and the repository after what PYTHONPATH already names."""
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    is_own = side.python == sys.executable
    bench = str(side.tree / "bench")
    paths += [bench, str(side.tree)] if is_own else [bench]
    threads = {"OMP_NUM_THREADS": str(spec.work.threads)} if spec.work.threads else {}
    # Waiting threads that spin take cores from others; all sides get the short spin that whet sets
    # for itself.
    quiet = {
        "GOMP_SPINCOUNT": os.environ.get("GOMP_SPINCOUNT", "1000"),
        "TOKENIZERS_PARALLELISM": "false",
    }
    offline = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    return {
        **os.environ,
        **quiet,
        **offline,
        **threads,
        **side.environment,
        "PYTHONPATH": os.pathsep.join(paths),
    }
