"""Clean problem files: decide which rows to keep, and record why each other row is left out.

A duplicate names the row kept in its place. Rows are read twice, once to hash and once to write;
candidates for removal are read in between. Memory grows by about 250 bytes per row, however long
its text.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from whet.data.clean.contamination import NGRAM, EvalIndex, build_index, hash_text, list_eval_files
from whet.data.clean.near import choose_band_size, find_near_duplicates, pair_candidates
from whet.data.clean.scan import MIN_SHARED_BYTES, ChunkScan, ScanPlan, hash_answer, scan_chunks
from whet.data.clean.word_hashes import HashedWords, Hashes, hash_words, list_words, normalise
from whet.data.problem_lines import ProblemLines, to_question
from whet.errors import DataError
from whet.store.files import atomic_path, to_line
from whet.types import Advance, Indices, Json, Problem

COMMON_ROWS = 10
COMMON_FRACTION = 0.01
"""N-grams in more than 10 rows and 1 % of all may belong to a prompt's frame."""
_BATCH = 1000
OpenBar = Callable[[str, int], AbstractContextManager[Advance]]
"""Opens a progress bar by its label and total."""
OnKept = Callable[[Problem, int], None] | None


class Reason(StrEnum):
    """Why a row is left out. The first reason that applies counts."""

    TOO_LONG = "too_long"
    OVERLAP = "overlap"
    EXACT = "exact_duplicate"
    NEAR = "near_duplicate"


REASONS = tuple(Reason)
KEPT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanPlan:
    """What to clean out."""

    threshold: float = 0.8
    """Jaccard similarity from which two rows are near duplicates; 1 leaves near ones in."""
    is_any_answer: bool = False
    """Whether near duplicates may have different answers."""
    against: tuple[Path, ...] = ()
    """Evaluation files, and folders of them."""
    ngram: int = NGRAM
    """Words in a row that make an overlap."""
    tokenizer: Path | None = None
    """The folder of the model whose tokens are counted."""
    max_tokens: int | None = None
    """Longest prompt, in these tokens."""
    workers: int = 1
    """Processes that read rows."""


@dataclass(kw_only=True, eq=False)
class CleaningResult:
    """The decision about every row."""

    lines: ProblemLines
    reasons: NDArray[np.uint8]
    """0 for a row that is kept, otherwise the number of its reason, from 1."""
    partners: Indices
    """The row kept in place of a duplicate; the evaluation text of an overlap."""
    similarity: NDArray[np.float32]
    lengths: NDArray[np.int32]
    index: EvalIndex | None = None
    conflicts: int = 0
    """Exact duplicates with another answer, counted as they are written."""
    counts: Counter[Reason] = field(default_factory=Counter)
    overlap_files: Counter[str] = field(default_factory=Counter)
    shared: dict[int, str] = field(default_factory=dict)
    """The first words that a row shares with an evaluation question."""

    @property
    def num_kept(self) -> int:
        return int((self.reasons == KEPT).sum())

    def leave_out(self, rows: Indices | Sequence[int], reason: Reason) -> None:
        """Mark rows as left out for a reason, and count them."""
        self.reasons[rows] = REASONS.index(reason) + 1
        self.counts[reason] += len(rows)

    def remaining(self) -> Indices:
        """Return the numbers of the rows that are not left out yet."""
        return np.flatnonzero(self.reasons == KEPT)


def decide(files: Sequence[Path], plan: CleanPlan, open_bar: OpenBar) -> CleaningResult:
    """Decide about every row, without writing anything."""
    lines = ProblemLines(files)
    index = _build_index(plan, open_bar)
    scan = ScanPlan(
        band_size=choose_band_size(plan.threshold) if plan.threshold < 1 else None,
        is_any_answer=plan.is_any_answer,
        index=index,
        tokenizer=plan.tokenizer,
    )
    workers = plan.workers if lines.num_bytes >= MIN_SHARED_BYTES else 1
    scans: list[ChunkScan] = []
    ngram_counts = np.zeros(0 if index is None else len(index.hashes), dtype=np.int64)
    with open_bar("read", lines.num_bytes) as advance:
        first = 0
        for chunk in scan_chunks(lines.scan(advance), scan, workers):
            if chunk.broken is not None:
                _refuse_broken(lines, first + chunk.broken)
            first += len(chunk.text_hashes)
            np.add.at(ngram_counts, chunk.ngrams, 1)
            scans.append(chunk)
    if not scans:
        raise DataError(f"{', '.join(map(str, files))}: no problems found")
    outcome = _open_outcome(lines, scans, index)
    if plan.max_tokens is not None:
        outcome.leave_out(np.flatnonzero(outcome.lengths > plan.max_tokens), Reason.TOO_LONG)
    is_suspect = np.concatenate([chunk.is_suspect for chunk in scans])
    _leave_out_overlap(outcome, is_suspect, ngram_counts, open_bar)
    _leave_out_exact(outcome, np.concatenate([chunk.text_hashes for chunk in scans]))
    bands = np.concatenate([chunk.bands for chunk in scans])
    scans.clear()
    _leave_out_near(outcome, bands, plan.threshold, open_bar)
    return outcome


def write_outcome(
    outcome: CleaningResult, out: Path, left_out: Path, open_bar: OpenBar, *, on_kept: OnKept = None
) -> None:
    """Write the kept rows unchanged, and the other rows with their reasons.

    Both files are written, or neither. `on_kept` is called with each kept problem and its length.
    """
    lines = outcome.lines
    rows = range(len(lines))
    with (
        atomic_path(out) as new,
        atomic_path(left_out) as new_left_out,
        new.open("wb") as kept,
        new_left_out.open("wb") as others,
        open_bar("write", len(lines)) as advance,
    ):
        for row, line in zip(rows, lines.read(rows), strict=True):
            if outcome.reasons[row] != KEPT:
                others.write(to_line(_describe_removal(outcome, row, line)))
            else:
                kept.write(line.rstrip(b"\r\n") + b"\n")
                if on_kept is not None:
                    on_kept(lines.parse(row, line), int(outcome.lengths[row]))
            advance(1)
        lines.check_unchanged()


def _build_index(plan: CleanPlan, open_bar: OpenBar) -> EvalIndex | None:
    if not plan.against:
        return None
    files = list_eval_files(plan.against)
    with open_bar("index", sum(file.stat().st_size for file in files)) as advance:
        return build_index(files, plan.ngram, advance)


def _refuse_broken(lines: ProblemLines, row: int) -> None:
    for line in lines.read([row]):
        lines.parse(row, line)
    raise AssertionError("a row is broken at the second reading too")


def _open_outcome(
    lines: ProblemLines, scans: Sequence[ChunkScan], index: EvalIndex | None
) -> CleaningResult:
    return CleaningResult(
        lines=lines,
        reasons=np.zeros(len(lines), dtype=np.uint8),
        partners=np.full(len(lines), -1, dtype=np.int64),
        similarity=np.zeros(len(lines), dtype=np.float32),
        lengths=np.concatenate([chunk.lengths for chunk in scans]),
        index=index,
    )


def _leave_out_overlap(
    outcome: CleaningResult, is_suspect: NDArray[np.bool_], counts: Indices, open_bar: OpenBar
) -> None:
    """Check rows that share n-grams with an evaluation again, now that common n-grams are known."""
    index = outcome.index
    suspects = outcome.remaining()
    suspects = suspects[is_suspect[suspects]]
    if index is None or not len(suspects):
        return
    is_common = _find_frames(index, counts, len(outcome.lines))
    with open_bar("compare", len(suspects)) as advance:
        for start in range(0, len(suspects), _BATCH):
            rows = suspects[start : start + _BATCH]
            _compare_batch(outcome, index, rows, is_common)
            advance(len(rows))


def _find_frames(index: EvalIndex, counts: Indices, num_rows: int) -> NDArray[np.bool_]:
    """Find n-grams of the frame of a prompt: common ones, in questions that also have others.

    A question whose n-grams are all common is one that many rows repeat.
    """
    is_common = counts > max(COMMON_ROWS, COMMON_FRACTION * num_rows)
    num_common = np.bincount(index.owners[is_common], minlength=len(index.texts))
    num_ngrams = np.bincount(index.owners, minlength=len(index.texts))
    return is_common & (num_common < num_ngrams)[index.owners]


def _compare_batch(
    outcome: CleaningResult, index: EvalIndex, rows: Indices, is_common: NDArray[np.bool_]
) -> None:
    """Leave out rows that share an n-gram with an evaluation question, and name the closest."""
    texts = _read_texts(outcome.lines, rows.tolist())
    hashes = np.array([hash_text(text) for text in texts], dtype=np.uint64)
    matches = index.find(hash_words(texts), hashes)
    is_rare = ~is_common[matches.ngrams]
    shared: dict[int, Counter[int]] = {}
    first: dict[int, tuple[int, int]] = {}
    for text, ngram, word in zip(
        matches.texts[is_rare].tolist(),
        matches.ngrams[is_rare].tolist(),
        matches.words[is_rare].tolist(),
        strict=True,
    ):
        shared.setdefault(text, Counter())[int(index.owners[ngram])] += 1
        first.setdefault(text, (word, int(index.lengths[ngram])))
    outcome.leave_out(rows[list(shared)], Reason.OVERLAP)
    for text, owners in shared.items():
        ((owner, _),) = owners.most_common(1)
        row = int(rows[text])
        outcome.partners[row] = owner
        outcome.overlap_files[index.texts[owner].file] += 1
        start, length = first[text]
        words = list_words(texts[text])
        outcome.shared[row] = " ".join(words[start : start + length] if length else words)


def _leave_out_exact(outcome: CleaningResult, hashes: Hashes) -> None:
    """Keep the first of rows with equal text."""
    rows = outcome.remaining()
    _, first, group = np.unique(hashes[rows], return_index=True, return_inverse=True)
    kept = rows[first][group]
    is_copy = kept != rows
    outcome.leave_out(rows[is_copy], Reason.EXACT)
    outcome.partners[rows[is_copy]] = kept[is_copy]


def _leave_out_near(
    outcome: CleaningResult, bands: Hashes, threshold: float, open_bar: OpenBar
) -> None:
    """Keep the first of rows with similar text."""
    pairs = pair_candidates(bands, outcome.remaining())

    def read_words(rows: Sequence[int]) -> HashedWords:
        return hash_words(_read_texts(outcome.lines, rows))

    with open_bar("compare", len(pairs)) as advance:
        replaced = find_near_duplicates(pairs, read_words, threshold, advance)
    rows = list(replaced)
    outcome.leave_out(rows, Reason.NEAR)
    outcome.partners[rows] = [partner for partner, _ in replaced.values()]
    outcome.similarity[rows] = [value for _, value in replaced.values()]


def _read_texts(lines: ProblemLines, rows: Sequence[int]) -> list[str]:
    return [
        normalise(to_question(lines.parse(row, line)))
        for row, line in zip(rows, lines.read(rows), strict=True)
    ]


def _describe_removal(outcome: CleaningResult, row: int, line: bytes) -> dict[str, Json]:
    """Write the row and why it is left out."""
    lines = outcome.lines
    reason = REASONS[outcome.reasons[row] - 1]
    problem = lines.parse(row, line)
    fields: dict[str, Json] = {"reason": reason.value, "at": lines.locate(row)}
    partner = int(outcome.partners[row])
    if reason is Reason.TOO_LONG:
        fields["tokens"] = int(outcome.lengths[row])
    elif reason is Reason.OVERLAP:
        assert outcome.index is not None, "an overlap is with an indexed text"
        text = outcome.index.texts[partner]
        fields |= {"partner": text.id, "partner_at": str(text), "shared": outcome.shared[row]}
    else:
        kept = lines.parse(partner, next(lines.read([partner])))
        fields |= {"partner": kept.id, "partner_at": lines.locate(partner)}
        if reason is Reason.NEAR:
            fields["similarity"] = round(float(outcome.similarity[row]), 3)
        elif hash_answer(kept) != hash_answer(problem):
            fields["note"] = "the partner has another answer"
            outcome.conflicts += 1
    return fields | {"problem": problem.to_json()}
