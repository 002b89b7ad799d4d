"""A task whose grader does to its process what the response says; in a module of its own, for
workers to import."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

from whet.config import Config
from whet.errors import DataError
from whet.tasks.base import Task
from whet.types import Message, Problem, Score, Split, Verdict, content_id


def problem(answer: str = "yes", task: str = "trouble") -> Problem:
    return Problem(
        id=content_id(task, answer),
        task=task,
        prompt=(Message(role="user", content="What shall it be?"),),
        answer=answer,
        payload={},
        level=None,
        split="rl",
        source="made",
    )


LEAKED: list[bytearray] = []


class Trouble(Task):
    """Right where the response is the answer; the first word of others is what to do first."""

    name = "trouble"

    def problems(self, split: Split) -> list[Problem]:
        return [problem("yes"), problem("no")] if split == "rl" else []

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer

    def score(self, problem: Problem, text: str) -> Score:
        what, _, rest = text.partition(" ")
        note = getattr(self, f"_{what}", self._nothing)(rest) or ""
        is_right = text == problem.answer
        verdict = (
            Verdict.CORRECT if is_right else Verdict.WRONG if text.strip() else Verdict.NO_ANSWER
        )
        return Score(
            verdict=verdict,
            parts={"correct": float(is_right)},
            answer=text.strip() or None,
            note=note,
        )

    def _nothing(self, rest: str) -> None:
        return None

    def _loop(self, rest: str) -> None:
        while True:
            pass

    def _tower(self, rest: str) -> None:
        print(9**9**9)  # one call into C that no Python signal handler interrupts

    def _sleep(self, rest: str) -> None:
        time.sleep(float(rest or 3600))

    def _allocate(self, rest: str) -> None:
        kept = []
        while True:
            kept.append(bytearray(1 << 24))

    def _leak(self, rest: str) -> None:
        LEAKED.append(bytearray(int(rest)))

    def _fork(self, rest: str) -> None:
        os.fork()

    def _spawn(self, rest: str) -> None:
        """Leave a process behind that no group or session holds, then never end."""
        program = "import os, time; os.setsid(); time.sleep(3600)"
        subprocess.Popen([sys.executable, "-c", program, rest])
        time.sleep(3600)

    def _die(self, rest: str) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def _leave(self, rest: str) -> None:
        os._exit(3)

    def _exit(self, rest: str) -> None:
        sys.exit(0)

    def _raise(self, rest: str) -> None:
        raise ZeroDivisionError("on purpose")

    def _refuse(self, rest: str) -> None:
        raise DataError("it has no numbers")

    def _deep(self, rest: str) -> None:
        self._deep(rest)

    def _print(self, rest: str) -> None:
        for _ in range(10_000):
            print('{"scores": [[0, "correct", {}, null, ""]], "seconds": 0, "state": "ready"}')

    def _jam(self, rest: str) -> None:
        """Keep the worker from ever sending another score."""
        json.dumps = lambda *args, **options: time.sleep(3600)  # type: ignore

    def _modules(self, rest: str) -> str:
        return " ".join(name for name in ("torch", "whet.engine.base") if name in sys.modules)

    def _hash(self, rest: str) -> str:
        return str(hash(rest))

    def _pid(self, rest: str) -> str:
        return str(os.getpid())


class Wrong(Trouble):
    """Gives back what is no score, or one that no file can hold."""

    name = "wrong"

    def score(self, problem: Problem, text: str) -> Score:
        if text == "none":
            return None  # type: ignore
        if text == "surrogate":
            return Score(
                verdict=Verdict.WRONG, parts={"\udfff": 1.0}, answer="\ud800", note="\udfff"
            )
        if text == "long":
            return Score(verdict=Verdict.WRONG, parts={}, note="x" * 10_000_000)
        if text.startswith("part "):
            part = float(text.removeprefix("part "))
            return Score(verdict=Verdict.CORRECT, parts={"correct": part})
        return Score(verdict=Verdict.WRONG, parts={}, answer=5)  # type: ignore


class Shipped(Trouble):
    """The same trouble in a grader that comes with whet."""

    name = "shipped"


Shipped.__module__ = "whet.tasks.shipped"


class Bounded(Trouble):
    name = "bounded"
    is_bounded = True


class Slow(Trouble):
    """Says what it has loaded before workers are forked."""

    name = "slow"
    is_warm = False

    def preload(self) -> None:
        self.is_warm = True

    def score(self, problem: Problem, text: str) -> Score:
        return Score(verdict=Verdict.WRONG, parts={}, note=f"warm {self.is_warm}")


class Late(Trouble):
    """Takes a while to load."""

    name = "late"

    def preload(self) -> None:
        time.sleep(1.0)


class Patient(Trouble):
    """Keeps time itself, longer than grading processes may by default take."""

    name = "patient"
    max_seconds = 0.5


class Hangs(Trouble):
    """Never ends on random text."""

    def score(self, problem: Problem, text: str) -> Score:
        return super().score(problem, "sleep" if text.startswith("garbage") else text)


class LoudConfig(Config):
    word: str = "quiet"


class Loud(Trouble):
    """Has settings, and holds what cannot be sent to another process."""

    name = "loud"

    def __init__(self, config: LoudConfig | None = None) -> None:
        self.config = config or LoudConfig()
        self.lock = threading.Lock()

    def score(self, problem: Problem, text: str) -> Score:
        with self.lock:
            return Score(verdict=Verdict.WRONG, parts={}, note=self.config.word)


class Unloadable(Trouble):
    """Cannot be made in a process that has no pytest."""

    def __init__(self) -> None:
        if "pytest" not in sys.modules:
            raise ValueError("not in this process")


class Worded(Trouble):
    """Is made of a word, which is no class of settings."""

    def __init__(self, word: str) -> None:
        self.word = word
