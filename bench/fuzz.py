"""Grade generated texts with every grader: no exception, no text taken for correct that is wrong,
none over its time.

    python bench/fuzz.py --texts 1000000 --workers 2 --seed 0

The texts are spread evenly over the tasks. Tasks that make problems make theirs; small rows for the
others stand in `fuzzing/written.py`. Each text comes of the seed, its task and its number alone, so
that a finding can be made again: even numbers are texts made at random, odd ones attacks by the
operators of `fuzzing/attacks.py`, of which each must be wrong or must be right. Tasks that start
sandboxes are slow and get a fixed number of texts, `--code-texts` each, which the output says; the
judge has no endpoint, so what it would ask comes back unscored. Graders run in worker processes; a
watchdog kills one that is over `--limit` seconds with a text, or over the task's own where it runs
programs, and goes on with the next.

A text counts as false only where it is wrong by construction (`held` in the table); one made at
random that may be right by chance is graded, and must not raise, but its verdict is not held
against the grader (`chance` counts those graded correct). `refused` counts texts that are right by
construction and are not graded so, `unscored` is a fault outside the judge, and what a grader
raises and catches is an exception. A second table counts the faults of each
way to write texts. Seconds are processor time of the grading process, sandboxes not counted. The
last line says whether all of it passed; the exit code is 1 on any fault or text over its time.
`--verdicts FILE` writes what was graded, one JSON line a text, in the order of tasks and numbers:
its id and hash, verdict, parts and answer, or what was raised.
"""

import argparse
import hashlib
import json
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.sharedctypes import SynchronizedArray
from pathlib import Path

from fuzzing.rows import KINDS, RUNS_CODE, Kind, kind_of
from fuzzing.texts import Text, text_for

from whet.grading.limits import GradingConfig, extend_wall_limit, limit_memory
from whet.rng import make_rng
from whet.types import RAISED, Json, Score, Verdict

CHUNK = 400
CODE_CHUNK = 10
NUM_SHOWN = 5


@dataclass(slots=True, kw_only=True)
class Tally:
    """What came of texts of one kind."""

    texts: int = 0
    held: int = 0
    seconds: float = 0.0
    slowest: float = 0.0
    verdicts: Counter[str] = field(default_factory=Counter)
    exceptions: int = 0
    false_correct: int = 0
    over_limit: int = 0
    refused: int = 0
    unscored: int = 0
    chance: int = 0
    ways: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Texts and faults by the way a text was written and the name of the count."""
    findings: list[str] = field(default_factory=list)
    graded: dict[str, dict[str, Json]] = field(default_factory=dict)
    """What a grader stated of each text, where that is kept."""

    def add(self, other: "Tally") -> None:
        self.texts += other.texts
        self.held += other.held
        self.seconds += other.seconds
        self.slowest = max(self.slowest, other.slowest)
        self.verdicts += other.verdicts
        self.exceptions += other.exceptions
        self.false_correct += other.false_correct
        self.over_limit += other.over_limit
        self.refused += other.refused
        self.unscored += other.unscored
        self.chance += other.chance
        self.ways += other.ways
        self.findings += other.findings
        self.graded |= other.graded

    @property
    def faults(self) -> int:
        wrong = self.exceptions + self.false_correct + self.refused
        return wrong + self.unscored + self.over_limit

    def to_json(self) -> dict[str, object]:
        return {
            "texts": self.texts,
            "held": self.held,
            "seconds": round(self.seconds, 2),
            "slowest": round(self.slowest, 3),
            "verdicts": dict(self.verdicts),
            "exceptions": self.exceptions,
            "false_correct": self.false_correct,
            "over_limit": self.over_limit,
            "refused": self.refused,
            "unscored": self.unscored,
            "chance": self.chance,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Numbers of texts of one kind, end exclusive."""

    kind: int
    start: int
    end: int


def written(kind: Kind, seed: int, number: int) -> tuple[int, Text]:
    """Write the text of a number, and say to which row it is a response."""
    rng = make_rng(seed, "fuzz", kind.name, number)
    place = rng.randrange(len(kind.rows))
    return place, text_for(kind, kind.rows[place], rng, attacks=number % 2 == 1)


def tried(kind: Kind, seed: int, number: int, tally: Tally, *, keep: bool = False) -> None:
    """Grade one text and add what came of it."""
    place, text = written(kind, seed, number)
    problem = kind.rows[place].problem
    began = time.thread_time()
    try:
        score = kind.task.score(problem, text.text)
        fault = unsound(score)
    except Exception as error:
        score, fault = None, f"raised {type(error).__name__}: {error}"[:200]
    spent = time.thread_time() - began
    tally.texts += 1
    tally.held += text.is_wrong
    tally.seconds += spent
    tally.slowest = max(tally.slowest, spent)
    if score is not None:
        tally.verdicts[score.verdict.value] += 1
    if keep:
        tally.graded[f"{kind.name}/{number}"] = stated(text.text, score, fault)
    is_right = score is not None and score.verdict is Verdict.CORRECT
    is_unscored = score is not None and score.verdict is Verdict.UNSCORED
    faults = {
        "raised": bool(fault),
        "false": is_right and text.is_wrong,
        "refused": text.is_right and not (is_right or is_unscored),
        "unscored": is_unscored and kind.task.name != "judge",
    }
    tally.exceptions += faults["raised"]
    tally.false_correct += faults["false"]
    tally.refused += faults["refused"]
    tally.unscored += faults["unscored"]
    tally.chance += is_right and not (text.is_wrong or text.is_right)
    tally.ways[text.way, "texts"] += 1
    for name, is_fault in faults.items():
        tally.ways[text.way, name] += is_fault
    if any(faults.values()):
        names = fault or ", ".join(name for name, is_fault in faults.items() if is_fault)
        tally.findings.append(
            f"{kind.name} {number} {text.way}, {problem.answer!r:.200}: {names}: {shown(text.text)}"
        )


def stated(text: str, score: Score | None, fault: str) -> dict[str, Json]:
    """What can be compared with another grading of the same text."""
    known: dict[str, Json] = {
        "text": hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()[:12]
    }
    if score is None:
        return known | {"fault": fault}
    return known | {
        "verdict": score.verdict.value,
        "parts": dict(score.parts),
        "answer": score.answer,
    }


def unsound(score: Score) -> str:
    """Say what is wrong with a score itself."""
    if score.note.startswith(RAISED):
        return score.note
    if (score.parts.get("correct") == 1.0) != (score.verdict is Verdict.CORRECT):
        return f"parts {dict(score.parts)} do not say {score.verdict}"
    return (
        ""
        if score.answer is None or isinstance(score.answer, str)
        else f"an answer of {type(score.answer).__name__}"
    )


def shown(text: str) -> str:
    return (
        repr(text)
        if len(text) <= 400
        else f"{text[:200]!r} … {text[-100:]!r} ({len(text):,} characters)"
    )


def worker(
    place: Connection,
    kinds: list[Kind],
    seed: int,
    clock: "SynchronizedArray[float]",
    slot: int,
    keep: bool,
) -> None:
    """Grade chunk after chunk; `clock` says which text this worker has, and since when."""
    limit_memory(GradingConfig())
    parent = os.getppid()
    while True:
        while not place.poll(1.0):
            if os.getppid() != parent:  # the bench was killed
                return
        chunk: Chunk | None = place.recv()
        if chunk is None:
            return
        tally = Tally()
        for number in range(chunk.start, chunk.end):
            clock[2 * slot], clock[2 * slot + 1] = number, time.monotonic()
            tried(kinds[chunk.kind], seed, number, tally, keep=keep)
        clock[2 * slot + 1] = 0.0
        place.send(tally)


class Crew:
    """Workers that can be killed. A chunk whose worker was killed goes on behind the text that was
    too much."""

    def __init__(
        self, kinds: list[Kind], seed: int, limit: float, workers: int, *, keep: bool = False
    ) -> None:
        self._kinds, self._seed, self._limit = kinds, seed, limit
        self._keep = keep
        self._context = multiprocessing.get_context("fork")
        self._clock: SynchronizedArray[float] = self._context.Array("d", 2 * workers)
        self._places: list[Connection] = []
        self._processes = [self._started(slot) for slot in range(workers)]

    def run(self, chunks: Iterable[Chunk]) -> Iterator[tuple[int, Tally]]:
        """Yield the kind and the tally of chunks as they are done."""
        waiting = iter(chunks)
        extra: list[Chunk] = []
        held: dict[int, Chunk] = {}
        while True:
            for slot in range(len(self._processes)):
                chunk = None if slot in held else extra.pop() if extra else next(waiting, None)
                if chunk is not None:
                    held[slot] = chunk
                    self._places[slot].send(chunk)
            if not held:
                break
            ready = wait([self._places[slot] for slot in held], timeout=0.5)
            for slot, chunk in list(held.items()):
                if self._places[slot] in ready:
                    del held[slot]
                    try:
                        yield chunk.kind, self._places[slot].recv()
                    except EOFError:
                        yield chunk.kind, self._lost(slot, chunk, extra, "the process ended")
                    continue
                limit = self._limit_of(self._kinds[chunk.kind])
                if 0 < self._clock[2 * slot + 1] < time.monotonic() - limit:
                    del held[slot]
                    yield chunk.kind, self._lost(slot, chunk, extra, f"more than {limit:g} s")
        for place, process in zip(self._places, self._processes, strict=True):
            place.send(None)
            process.join()

    def _limit_of(self, kind: Kind) -> float:
        own = kind.task.max_seconds if kind.name in RUNS_CODE else 0.0
        return extend_wall_limit(GradingConfig(wall=self._limit), own).wall

    def _started(self, slot: int) -> multiprocessing.context.ForkProcess:
        here, there = self._context.Pipe()
        self._places[slot : slot + 1] = [here]
        self._clock[2 * slot + 1] = 0.0
        process = self._context.Process(
            target=worker,
            args=(there, self._kinds, self._seed, self._clock, slot, self._keep),
            daemon=True,
        )
        process.start()
        there.close()
        return process

    def _lost(self, slot: int, chunk: Chunk, extra: list[Chunk], why: str) -> Tally:
        """Replace a worker; what it had graded of its chunk is graded again."""
        number = int(self._clock[2 * slot])
        self._processes[slot].kill()
        self._processes[slot].join()
        self._places[slot].close()
        self._processes[slot] = self._started(slot)
        parts = (
            Chunk(kind=chunk.kind, start=chunk.start, end=number),
            Chunk(kind=chunk.kind, start=number + 1, end=chunk.end),
        )
        extra += [part for part in parts if part.start < part.end]
        kind = self._kinds[chunk.kind]
        found, text = written(kind, self._seed, number)
        answer = kind.rows[found].problem.answer
        finding = f"{kind.name} {number} {text.way}, {answer!r:.200}: {why}: {shown(text.text)}"
        graded = {f"{kind.name}/{number}": stated(text.text, None, why)} if self._keep else {}
        return Tally(
            texts=1,
            held=int(text.is_wrong),
            over_limit=1,
            ways=Counter({(text.way, "texts"): 1, (text.way, "late"): 1}),
            findings=[finding],
            graded=graded,
        )


def chunks_of(kinds: list[Kind], texts: int, code_texts: int) -> Iterator[Chunk]:
    """Share the texts out: a fixed number to what runs code, the rest evenly; kinds take turns."""
    slow = [kind.name in RUNS_CODE for kind in kinds]
    rest = max(0, texts - code_texts * sum(slow))
    fast = max(1, slow.count(False))
    counts, place = [], 0
    for is_slow in slow:
        counts.append(
            min(code_texts, texts // len(kinds))
            if is_slow
            else rest // fast + (place < rest % fast)
        )
        place += not is_slow
    starts = [0] * len(kinds)
    while any(start < count for start, count in zip(starts, counts, strict=True)):
        for kind, count in enumerate(counts):
            end = min(starts[kind] + (CODE_CHUNK if slow[kind] else CHUNK), count)
            if starts[kind] < end:
                yield Chunk(kind=kind, start=starts[kind], end=end)
                starts[kind] = end


def fuzz(
    kinds: list[Kind],
    *,
    texts: int,
    code_texts: int,
    workers: int,
    seed: int,
    limit: float,
    keep: bool = False,
) -> list[Tally]:
    """Grade so many texts, a tally for each kind, with a line of progress on the way."""
    tallies = [Tally() for _ in kinds]
    chunks = list(chunks_of(kinds, texts, code_texts))
    total, done, began, told = (
        sum(chunk.end - chunk.start for chunk in chunks),
        0,
        time.monotonic(),
        0.0,
    )
    is_shown = sys.stderr.isatty()
    pause, end = (1.0, "") if is_shown else (10.0, "\n")
    for kind, tally in Crew(kinds, seed, limit, workers, keep=keep).run(chunks):
        for finding in tally.findings[: max(0, NUM_SHOWN - len(tallies[kind].findings))]:
            start = "\r" if is_shown else ""
            print(f"{start}{finding.encode('unicode_escape').decode()}", file=sys.stderr)
        tallies[kind].add(tally)
        done += tally.texts
        now = time.monotonic()
        if now - told > pause or done == total:
            told, rate = now, done / max(now - began, 1e-9)
            line = f"{done:,} of {total:,} texts, {rate:,.0f} a second, {(total - done) / rate:,.0f} s left"
            print(f"\r{line:<78}" if is_shown else line, end=end, file=sys.stderr, flush=True)
    print(end="\n" if is_shown else "", file=sys.stderr)
    return tallies


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument(
        "--code-texts", type=int, default=400, help="for each kind of row that starts sandboxes"
    )
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=10.0, help="seconds a text may take")
    parser.add_argument("--only", nargs="*", default=KINDS, help="kinds of rows, all unless named")
    parser.add_argument(
        "--verdicts", type=Path, help="where every verdict goes; none are kept by default"
    )
    args = parser.parse_args(arguments)
    kinds = [kind_of(name) for name in args.only]
    for kind in kinds:
        kind.task.preload()
    began = time.monotonic()
    tallies = fuzz(
        kinds,
        texts=args.texts,
        code_texts=args.code_texts,
        workers=args.workers,
        seed=args.seed,
        limit=args.limit,
        keep=args.verdicts is not None,
    )
    seconds = time.monotonic() - began
    report(kinds, tallies)
    whole = Tally()
    for tally in tallies:
        whole.add(tally)
    if args.verdicts is not None:
        rows = ({"id": id, **row} for tally in tallies for id, row in sorted(tally.graded.items()))
        args.verdicts.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    slow = ", ".join(kind.name for kind in kinds if kind.name in RUNS_CODE)
    print(f"{slow or 'no kind'} got {args.code_texts} texts each")
    by_task = {kind.name: tally.to_json() for kind, tally in zip(kinds, tallies, strict=True)}
    print(
        json.dumps(
            {**whole.to_json(), "wall": round(seconds, 1), "seed": args.seed, "tasks": by_task}
        )
    )
    print(conclude(whole, seconds))
    return 1 if whole.faults else 0


def conclude(whole: Tally, seconds: float) -> str:
    """Say in one line whether all passed, and what did not."""
    counts = {
        "raised": whole.exceptions,
        "false correct": whole.false_correct,
        "refused": whole.refused,
        "unscored outside the judge": whole.unscored,
        "late": whole.over_limit,
    }
    faults = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    texts = f"{whole.texts:,} texts in {seconds:,.0f} s, {whole.held:,} wrong by construction"
    return f"{'FAILED' if whole.faults else 'passed'}: {texts}: {faults}"


def report(kinds: list[Kind], tallies: list[Tally]) -> None:
    names = (
        "texts",
        "held",
        "seconds",
        "slowest",
        *(each.value for each in Verdict),
        "chance",
        "raised",
        "false",
        "refused",
        "late",
    )
    print(f"{'task':<14}" + "".join(f"{name:>10}" for name in names))
    for kind, tally in zip(kinds, tallies, strict=True):
        counts = [tally.verdicts[each.value] for each in Verdict]
        faults = (
            tally.chance,
            tally.exceptions,
            tally.false_correct,
            tally.refused,
            tally.over_limit,
        )
        print(f"{kind.name:<14}{tally.texts:>10,}{tally.held:>10,}{tally.seconds:>10.1f}{tally.slowest:>10.3f}"
              + "".join(f"{count:>10,}" for count in (*counts, *faults)))  # fmt: skip
    ways = sum((tally.ways for tally in tallies), Counter[tuple[str, str]]())
    counts = ("texts", "raised", "false", "refused", "unscored", "late")
    print(f"\n{'way':<20}" + "".join(f"{name:>10}" for name in counts))
    for way in dict.fromkeys(way for way, _ in ways):
        print(f"{way:<20}" + "".join(f"{ways[way, name]:>10,}" for name in counts))


if __name__ == "__main__":
    sys.exit(main())
