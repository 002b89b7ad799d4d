"""Statistics of model text for rewards: loops, repeated n-grams, tag formats."""

import re
from collections.abc import Sequence
from math import ceil

import numpy as np
from numpy.typing import NDArray

MIN_UNIT = 20
"""Shorter units, such as rules, dots and padding, are not loops (the limit of NPG-Muse)."""
MIN_REPEATS = 5

_ANSWER_END = re.compile(r"\n</answer>$", re.MULTILINE)
_NUMBER = re.compile("[0-9]+")
_MASK = "0"
_MAX_DIGITS = 18
_SHORT_PERIOD = 16
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], dtype=np.uint64)
_SHIFT = np.uint64(29)

Codes = NDArray[np.uint32]
_Hashes = NDArray[np.uint64]


def repeated_fraction(
    text: str, *, min_unit: int = MIN_UNIT, min_repeats: int = MIN_REPEATS
) -> float:
    """Measure the fraction of characters in units repeated at least `min_repeats` times in a row.

    Units count as equal if they differ only in one number that changes by a constant step. The
    search takes one numpy pass per doubling of the unit, a fraction of a second for a megabyte.

    >>> repeated_fraction(6 * "so it is. " + "Then: 4", min_unit=10)
    0.8955223880597015
    """
    assert min_repeats >= 5, "only five-fold repeats are sure to hold an anchor of the search"
    if len(text) < min_unit * min_repeats or min_unit < 1:
        return 0.0
    edges = np.zeros(len(text) + 1, dtype=np.int64)
    for start, end, period in _runs(_to_codes(text), min_repeats):
        unit = ceil(min_unit / period) * period
        if end - start >= min_repeats * unit:
            edges[start] += 1
            edges[end] -= 1
    for start, end in _numbered_runs(text, min_unit, min_repeats):
        edges[start] += 1
        edges[end] -= 1
    return float(np.count_nonzero(np.cumsum(edges[:-1]))) / len(text)


def _numbered_runs(text: str, min_unit: int, min_repeats: int) -> list[tuple[int, int]]:
    """Find the start and end of loops whose units differ in a running number.

    Numbers are replaced by one character before the search. A loop counts if one number goes up or
    down by the same step from unit to unit and the others stay the same. Two running numbers, as
    in `f(3) is 7`, are new information.
    """
    numbers = list(_NUMBER.finditer(text))
    masked = _NUMBER.sub(_MASK, text)
    if len(numbers) < min_repeats:
        return []
    # Start of each masked character in the original text, and the end of the text.
    widths = np.ones(len(masked), dtype=np.int64)
    codes = _to_codes(masked)
    is_number = codes == ord(_MASK)
    widths[is_number] = [match.end() - match.start() for match in numbers]
    starts = np.concatenate(([0], np.cumsum(widths)))
    before = np.concatenate(([0], np.cumsum(is_number)))
    loops = []
    for start, end, period in _runs(codes, min_repeats):
        first, last = int(before[start]), int(before[end])
        size = int(before[start + period] - before[start])
        unit = masked[start : start + period]
        if size == 0 or (unit + unit).find(unit, 1) < min_unit:
            continue
        values = [int(match[0][-_MAX_DIGITS:]) for match in numbers[first:last]]
        pairs = set(zip(values[:size], values[size : 2 * size], strict=True))
        if sum(one != other for one, other in pairs) > 1:
            continue
        num_steady = _count_steady(values, size)
        stop = end if num_steady == len(values) else start + num_steady // size * period
        if stop - start >= min_repeats * period:
            loops.append((int(starts[start]), int(starts[stop])))
    return loops


def _count_steady(values: Sequence[int], size: int) -> int:
    """Count the leading numbers that keep the step of their position in the unit."""
    for index in range(2 * size, len(values)):
        step = values[index - size] - values[index - 2 * size]
        if values[index] - values[index - size] != step:
            return index
    return len(values)


def ngram_repetition(items: Sequence[str] | Sequence[int], size: int) -> float:
    """Measure the fraction of n-grams that occurred earlier; 0 if there are no n-grams.

    >>> ngram_repetition("this this this this this".split(), 2)
    0.75
    """
    total = len(items) - size + 1
    if size < 1 or total < 1:
        return 0.0
    return 1.0 - len({tuple(items[start : start + size]) for start in range(total)}) / total


def words(text: str) -> list[str]:
    return text.lower().split()


def has_thinking(text: str) -> bool:
    """Whether the text starts with its only thinking block, with text inside and after it.

    The opening tag may be in the prompt instead, written by the chat template.
    """
    thought, close, answer = text.partition("</think>")
    thought = thought.lstrip().removeprefix("<think>")
    is_single = "think>" not in thought and "think>" not in answer
    return bool(close) and is_single and bool(thought.strip()) and bool(answer.strip())


def is_think_format(text: str) -> bool:
    """Whether the text starts with its only <think> and closes it somewhere (TRL)."""
    return text.startswith("<think>") and text.count("<think>") == 1 and "</think>" in text


def is_think_answer_format(text: str) -> bool:
    """Whether the text is a thinking and an answer block, each tag on its own line (Open R1)."""
    middle = "\n</think>\n<answer>\n"
    start = text.find(middle, len("<think>\n")) if text.startswith("<think>\n") else -1
    return start >= 0 and _ANSWER_END.search(text, start + len(middle)) is not None


def tag_count(text: str) -> float:
    """Add a quarter for each of four tags that occurs exactly once, on its own line (Open R1)."""
    tags = ("<think>\n", "\n</think>\n", "\n<answer>\n", "\n</answer>")
    return sum(text.count(tag) == 1 for tag in tags) / 4


def has_block(text: str, tag: str) -> bool:
    """Whether an opening tag is closed later."""
    start = text.find(f"<{tag}>")
    return start >= 0 and text.find(f"</{tag}>", start) >= 0


Run = tuple[int, int, int]
"""Start, end and period of a run, in which every character equals the one a period later."""


def _to_codes(text: str) -> Codes:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype=np.uint32)


def _runs(codes: Codes, min_repeats: int) -> list[Run]:
    return [*_short_runs(codes, min_repeats), *_long_runs(codes, min_repeats)]


def _short_runs(codes: Codes, min_repeats: int) -> list[Run]:
    """Compare the text with itself shifted by each short period."""
    runs: list[Run] = []
    for period in range(1, min(_SHORT_PERIOD, len(codes) // min_repeats + 1)):
        same = np.zeros(len(codes) - period + 2, dtype=np.int8)
        same[1:-1] = codes[period:] == codes[:-period]
        steps = np.diff(same)
        starts = np.flatnonzero(steps == 1)
        ends = np.flatnonzero(steps == -1)
        is_long = ends - starts >= (min_repeats - 1) * period
        pairs = zip(starts[is_long].tolist(), ends[is_long].tolist(), strict=True)
        runs.extend((start, end + period, period) for start, end in pairs)
    return runs


def _long_runs(codes: Codes, min_repeats: int) -> list[Run]:
    """Find runs of period L to 2L, for L = 16, 32, …, by blocks of 2L characters at multiples of L.

    A five-fold repeat of period p contains an offset a with block(a) = block(a + p) = block(a +
    2p). If a shorter distance matched too, the greatest common divisor of both would be a period
    (Fine and Wilf 1965), and the run would belong to a smaller L; so the nearest match is the
    period. Hashes propose runs, which are then measured on the characters.
    """
    runs: list[Run] = []
    hashes = codes.astype(np.uint64)
    length = 1
    scale = _SHORT_PERIOD
    while scale * min_repeats <= len(codes):
        while length < 2 * scale:
            hashes = _double_blocks(hashes, length)
            length = 2 * length
        last_end: dict[int, int] = {}
        for anchor, period in _propose_runs(hashes, scale):
            if anchor >= last_end.get(period, 0):
                start, end = _extend_run(codes, anchor, period)
                last_end[period] = end
                runs.append((start, end + period, period))
        scale *= 2
    return runs


def _double_blocks(hashes: _Hashes, length: int) -> _Hashes:
    """Hash blocks of 2n characters from their halves' hashes, so that no terms cancel."""
    mixed: _Hashes = hashes[:-length] * _FACTORS[0] + hashes[length:] * _FACTORS[1]
    mixed ^= mixed >> _SHIFT
    mixed *= _FACTORS[2]
    mixed ^= mixed >> _SHIFT
    return mixed


def _propose_runs(hashes: _Hashes, scale: int) -> list[tuple[int, int]]:
    rows = len(hashes) // scale
    table = hashes[: rows * scale].reshape(rows, scale)
    same = table[1:] == table[:-1, :1]
    hits = np.flatnonzero(same.any(axis=1))
    anchors = hits * scale
    periods = scale + same[hits].argmax(axis=1)
    third = anchors + 2 * periods
    inside = third < len(hashes)
    fits = inside & (hashes[np.where(inside, third, 0)] == hashes[anchors])
    return list(zip(anchors[fits].tolist(), periods[fits].tolist(), strict=True))


def _extend_run(codes: Codes, anchor: int, period: int) -> tuple[int, int]:
    """Extend [start, end) around an anchor while characters equal those a period later."""
    start = anchor
    end = anchor
    step = 4 * period
    while end + period < len(codes):
        ahead = codes[end + period : end + period + step]
        differs = np.flatnonzero(codes[end : end + len(ahead)] != ahead)
        if len(differs):
            end += int(differs[0])
            break
        end = end + len(ahead)
        step = 2 * step
    step = 4 * period
    while start > 0:
        before = codes[max(start - step, 0) : start]
        differs = np.flatnonzero(codes[start - len(before) + period : start + period] != before)
        if len(differs):
            start += int(differs[-1]) + 1 - len(before)
            break
        start = start - len(before)
        step = 2 * step
    return start, end
