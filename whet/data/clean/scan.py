"""The first pass over all rows: their hashes, lengths, and possible overlap with an evaluation.

Chunks of rows are independent of each other, so several processes share them.
"""

import hashlib
import multiprocessing
import signal
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.data.clean.contamination import EvalIndex, hash_text
from whet.data.clean.near import hash_bands
from whet.data.clean.word_hashes import Hashes, hash_words, normalise
from whet.data.problem_lines import parse_problem, to_question
from whet.errors import DataError
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Tokenizer
from whet.types import Indices, Problem, compact

MIN_SHARED_BYTES = 1 << 26
"""Smaller inputs are read by this process alone, which is done before others would have started."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScanPlan:
    """What to compute for every row."""

    band_size: int | None
    """Hashes in a band of MinHash; None skips the search for near duplicates."""
    is_any_answer: bool = False
    """Whether near duplicates may have different answers."""
    index: EvalIndex | None = None
    """The evaluation questions to look for."""
    tokenizer: Path | None = None
    """The folder of the model whose tokens are counted."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ChunkScan:
    """The results for a chunk of rows."""

    text_hashes: Hashes
    bands: Hashes
    """One number per row and band; [rows, 0] without MinHash."""
    lengths: NDArray[np.int32]
    """Words of each question, or tokens of each prompt where a tokenizer is given."""
    is_suspect: NDArray[np.bool_]
    """Rows with n-grams of evaluation questions."""
    ngrams: Indices
    """Numbers of these n-grams, each as often as rows have it."""
    broken: int | None = None
    """The first row that is not a problem; nothing was computed then."""


class Scanner:
    """Scans chunks of lines by a plan; one for each process."""

    def __init__(self, plan: ScanPlan) -> None:
        self.plan = plan
        self._chat = None
        if plan.tokenizer is not None:
            self._chat = ChatFormat(Tokenizer.load(plan.tokenizer))

    def __call__(self, lines: Sequence[bytes]) -> ChunkScan:
        problems: list[Problem] = []
        for line in lines:
            try:
                problems.append(parse_problem(line, "a line"))
            except DataError:
                return _report_broken(len(problems))
        texts = [normalise(to_question(problem)) for problem in problems]
        text_hashes = np.array([hash_text(text) for text in texts], dtype=np.uint64)
        words = hash_words(texts)
        bands = np.zeros((len(texts), 0), dtype=np.uint64)
        if self.plan.band_size is not None:
            bands = hash_bands(words, self._salts(problems), self.plan.band_size)
        rows = ngrams = np.zeros(0, dtype=np.int64)
        if self.plan.index is not None:
            matches = self.plan.index.find(words, text_hashes)
            rows, ngrams = np.unique(np.stack([matches.texts, matches.ngrams]), axis=1)
        lengths = words.counts
        if self._chat is not None:
            lengths = np.array([len(self._chat.encode_prompt(p.prompt)) for p in problems])
        return ChunkScan(
            text_hashes=text_hashes,
            bands=bands,
            lengths=lengths.astype(np.int32),
            is_suspect=np.isin(np.arange(len(texts)), rows),
            ngrams=ngrams,
        )

    def _salts(self, problems: Sequence[Problem]) -> Hashes:
        if self.plan.is_any_answer:
            return np.zeros(len(problems), dtype=np.uint64)
        return np.array([hash_answer(problem) for problem in problems], dtype=np.uint64)


def hash_answer(problem: Problem) -> int:
    """Hash the answer of a problem, or its payload if it has none."""
    answer = problem.answer
    if answer is None:
        digest = hashlib.blake2b(compact(problem.payload, sort_keys=True), digest_size=8).digest()
        return int.from_bytes(digest, "little")
    return hash_text(normalise(answer))


def scan_chunks(
    chunks: Iterable[Sequence[bytes]], plan: ScanPlan, workers: int
) -> Iterator[ChunkScan]:
    """Scan chunks in their order, in this process or in several."""
    if workers == 1:
        yield from map(Scanner(plan), chunks)
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(workers, context, _start_worker, (plan,)) as pool:
        waiting: deque[Future[ChunkScan]] = deque()
        try:
            for chunk in chunks:
                waiting.append(pool.submit(_scan, chunk))
                if len(waiting) > 2 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool as error:
            raise DataError(
                "a process that reads rows was killed, perhaps for lack of memory; try --workers 1"
            ) from error
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def _report_broken(row: int) -> ChunkScan:
    none = np.zeros(0, dtype=np.uint64)
    return ChunkScan(
        text_hashes=none,
        bands=none,
        lengths=none.astype(np.int32),
        is_suspect=none.astype(np.bool_),
        ngrams=none.astype(np.int64),
        broken=row,
    )


_scanner: Scanner | None = None


def _start_worker(plan: ScanPlan) -> None:
    global _scanner
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives Ctrl-C and stops all workers
    _scanner = Scanner(plan)


def _scan(lines: Sequence[bytes]) -> ChunkScan:
    assert _scanner is not None, "the pool has started this worker"
    return _scanner(lines)
