"""Overlap with evaluation files: n-grams of words that a row shares with an evaluation question."""

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import numpy as np

from whet.data.clean.word_hashes import HashedWords, Hashes, hash_ngrams, hash_words, normalise
from whet.data.importers.base import IDS
from whet.data.problem_lines import to_question
from whet.data.row_files import READERS, file_ending, iterate_rows
from whet.errors import ConfigError, DataError
from whet.store.files import Row
from whet.types import Advance, Indices, Json, Problem

NGRAM = 13
"""Words of an n-gram, as for GPT-3 (Brown et al. 2020, appendix C)."""
MIN_WORDS = 8
"""Shorter questions are compared as whole texts, because their few words may occur in any other."""
MAX_QUESTIONS = 10
"""N-grams in more evaluation questions than this belong to a prompt's frame, and are ignored."""
COLUMNS = re.compile(
    "body|content|example|instruction|input|input_prompt|messages|problem|problem_description|"
    "prompt|puzzles?|query|question|question_content|quiz|statement|text|turns",
    re.IGNORECASE,
)
"""Columns of other systems' files that hold the question. If there is none, all texts count."""
_BATCH = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class EvalText:
    """The file and line of an evaluation question, and its id if it has one."""

    file: str
    location: str
    id: str | None

    def __str__(self) -> str:
        return f"{self.file} {self.location}"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Matches:
    """Matches between texts and the index: text, number of the n-gram, first word in the text."""

    texts: Indices
    ngrams: Indices
    words: Indices


class EvalIndex:
    """The n-grams of evaluation questions, sorted by hash, each with one question that has it."""

    def __init__(
        self,
        hashes: Hashes,
        owners: Indices,
        lengths: Indices,
        *,
        texts: Sequence[EvalText],
        num_rows: int,
    ) -> None:
        self.hashes = hashes
        self.owners = owners
        self.lengths = lengths
        """Words of each n-gram; 0 for the whole of a short text."""
        self.sizes = [size for size in np.unique(lengths).tolist() if size]
        self.texts = tuple(texts)
        self.num_rows = num_rows
        # One lookup in a sparse table rules out most hashes that are not in the index.
        size = 1 << min(max(16 * len(hashes), 1 << 16).bit_length(), 27)
        self._mask = np.uint64(size - 1)
        self._is_possible = np.zeros(size, dtype=np.bool_)
        self._is_possible[hashes & self._mask] = True

    def find(self, words: HashedWords, text_hashes: Hashes) -> Matches:
        """Find n-grams that texts share with evaluation questions."""
        texts, ngrams = self._look_up(text_hashes)
        parts = [(texts, ngrams, np.zeros_like(texts))]
        for size in self.sizes:
            own = hash_ngrams(words, size)
            places, ngrams = self._look_up(own.hashes)
            texts = np.searchsorted(own.starts, places, side="right") - 1
            parts.append((texts, ngrams, places - own.starts[texts]))
        texts, ngrams, first = (np.concatenate(column) for column in zip(*parts, strict=True))
        return Matches(texts=texts, ngrams=ngrams, words=first)

    def _look_up(self, hashes: Hashes) -> tuple[Indices, Indices]:
        """Return the positions of hashes that are in the index, and their numbers there."""
        places = np.flatnonzero(self._is_possible[hashes & self._mask])
        numbers = np.minimum(np.searchsorted(self.hashes, hashes[places]), len(self.hashes) - 1)
        is_equal = self.hashes[numbers] == hashes[places]
        return places[is_equal], numbers[is_equal]


def list_eval_files(paths: Iterable[Path]) -> list[Path]:
    """List the data files among paths, and those below folders."""
    files: list[Path] = []
    for path in paths:
        inside = sorted(path.rglob("*")) if path.is_dir() else [path]
        readable = [file for file in inside if file_ending(file) and not file.name.startswith(".")]
        if not readable:
            raise ConfigError(
                f"--against {path} has no evaluation file: give a file or a folder of files that "
                f"end in {', '.join(READERS)}"
            )
        files += readable
    return list(dict.fromkeys(files))


def build_index(files: Sequence[Path], n: int, advance: Advance) -> EvalIndex:
    """Index the questions of evaluation files; equal questions are indexed once."""
    seen: set[int] = set()
    texts: list[EvalText] = []
    parts: list[tuple[Hashes, Indices, Indices]] = []
    num_rows = 0
    for batch in _batch(_read_all(files, advance)):
        num_rows += len(batch)
        new = {key: pair for pair in batch if (key := hash_text(pair[0])) not in seen}
        keys = np.fromiter(new, dtype=np.uint64, count=len(new))
        hashes, owners, lengths = _list_ngrams([text for text, _ in new.values()], keys, n)
        parts.append((hashes, owners + len(texts), lengths))
        texts += [place for _, place in new.values()]
        seen.update(new)
    if not texts:
        raise DataError(f"--against {', '.join(map(str, files))}: there is no question in it")
    hashes, owners, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((owners, hashes))
    hashes, first, counts = np.unique(hashes[order], return_index=True, return_counts=True)
    rare = counts <= MAX_QUESTIONS
    kept = order[first[rare]]
    return EvalIndex(hashes[rare], owners[kept], lengths[kept], texts=texts, num_rows=num_rows)


def hash_text(text: str) -> int:
    """Hash a whole text."""
    digest = hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def _list_ngrams(texts: Sequence[str], keys: Hashes, n: int) -> tuple[Hashes, Indices, Indices]:
    """List each n-gram of the texts once, with its text and length; a short text is one n-gram."""
    words = hash_words(texts)
    sizes = np.where(words.counts < MIN_WORDS, 0, np.minimum(words.counts, n))
    short = np.flatnonzero(sizes == 0)
    parts = [(keys[short], short, np.zeros_like(short))]
    for size in set(sizes.tolist()) - {0}:
        grams = hash_ngrams(words, size)
        owners = np.repeat(np.arange(len(texts)), grams.counts)
        own = sizes[owners] == size
        parts.append((grams.hashes[own], owners[own], np.full(int(own.sum()), size)))
    hashes, owners, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    _, once = np.unique(np.stack([hashes, owners.astype(np.uint64)]), axis=1, return_index=True)
    return hashes[once], owners[once], lengths[once]


def _batch(pairs: Iterator[tuple[str, EvalText]]) -> Iterator[list[tuple[str, EvalText]]]:
    while batch := list(islice(pairs, _BATCH)):
        yield batch


def _read_all(files: Sequence[Path], advance: Advance) -> Iterator[tuple[str, EvalText]]:
    """Read the normalised questions of files, each with its file and line."""
    for file in files:
        for row in iterate_rows(file, advance=advance):
            id = next((str(row.fields[name]) for name in IDS if row.fields.get(name)), None)
            place = EvalText(file=str(file), location=row.location, id=id)
            if question := normalise(read_row_question(row.fields)):
                yield question, place


def read_row_question(row: Row) -> str:
    """Read the question of a row: a problem's prompt, a known column, or all texts."""
    try:
        return to_question(Problem.from_json(row))
    except DataError:
        known = [value for name, value in row.items() if COLUMNS.fullmatch(name)]
    texts = ["\n".join(_list_texts(value)) for value in known or row.values()]
    return "\n".join(dict.fromkeys(texts))


def _list_texts(value: Json) -> Iterator[str]:
    """List the texts in a value: itself, the items of a list, the content of a message."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from _list_texts(item)
    elif isinstance(value, dict) and value.get("role") != "system":
        yield from _list_texts(value.get("content", value.get("value")))
