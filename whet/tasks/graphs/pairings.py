"""Read what a response says of two molecules without square brackets: the atoms of each, behind
its letter, or which atom of A goes with which of B, as arrows or a table.

Only the end of a text is read: the last lines that say such a thing, and nothing may deny them.
"""

import re
from collections.abc import Sequence

from whet.answers.doubt import cut_remarks, is_denied, is_doubtful

_MAX_END = 1 << 12
_LIST = r"[0-9]{1,4}(?:(?:\s?,\s?(?:and )?|\s(?:and )?)[0-9]{1,4}(?![0-9]))*+(?!\s?[-–→.]?[0-9])"
_BEHIND_LETTER = re.compile(
    r"(?<![\w\\])\**(?:atoms? )?(?:(?:from|of|in|for) )?(?:the )?(?:molecule )?([AB])\b\**"
    r"(?:\s?(?:atoms|nodes|vertices))?"
    rf"(?:[\s:=*$\\–—]|\b(?:take|use|choose|pick|keep|atoms|nodes)\b){{1,6}}"
    rf"[({{\\]{{0,2}}\s?({_LIST})"
    r"(?![^\n]{0,3}→)"
)
"""`**A:** 0, 1, 2`; `From A take {0, 1}`"""
_BEFORE_LETTER = re.compile(
    rf"(?<![\w,.-])(?<![,0-9] )({_LIST})[)}}]? (?:of|in|from) (?:molecule )?([AB])\b"
)
"""`0, 1, 2 of A`"""
_PAIR = re.compile(
    r"(?<![\w→>-])(?:atom )?(?:A[_ ]?)?\(?([0-9]{1,4})\)?(?: of A| in A|_A)?"
    r"\s{0,3}\$?\s{0,3}(?:→|↔|⟷|->|<->|=>|⇒|↦|⇔|\\(?:to|mapsto|leftrightarrow|rightarrow))"
    r"\s{0,3}\$?\s{0,3}(?:atom )?(?:B[_ ]?)?\(?([0-9]{1,4})\)?(?!\w|\s{0,3}(?:→|->|↔|\\to))"
)
"""`0 → 1`, `A0 ↔ B1`"""
_HEADER = re.compile(r"^\s*\|[^|\n]*\bA\b[^|\n]*\|[^|\n]*\bB\b[^|\n]*\|\s*$", re.MULTILINE)
_ROW = re.compile(r"^\s*\|\s*([0-9]{1,4})\s*\|\s*([0-9]{1,4})\s*\|\s*$")
_RULE = re.compile(r"[\s|:-]*")
_CHOICE = re.compile(r"[\s)}]{0,3},? ?(?:or|/)\b")

Pair = tuple[int, int]


def read_atom_pairs(text: str) -> list[Pair]:
    """Read which atom of A goes with which of B, in the last lines; nothing from fewer than two.

    >>> read_atom_pairs("So the pairs are 0 → 1, 1 → 0.")
    [(0, 1), (1, 0)]
    """
    end = cut_remarks(text[-_MAX_END:])
    if headers := list(_HEADER.finditer(end)):
        return _read_table(end[headers[-1].end() :])
    lines = [line for line in end.splitlines() if line.strip()]
    block: list[str] = []
    for line in reversed(lines):
        if not _PAIR.search(line):
            break
        block.insert(0, line)
    if not block or (len(block) < len(lines) and is_doubtful(lines[-len(block) - 1])):
        return []
    pairs = [pair for line in block for pair in _PAIR.finditer(line)]
    bare = " ".join(block).replace("->", " ").replace("<", " ")
    is_plain = not is_doubtful(bare) and len({pair[1] for pair in pairs}) == len(pairs)
    return [(int(pair[1]), int(pair[2])) for pair in pairs] if len(pairs) > 1 and is_plain else []


def read_named_lists(text: str) -> tuple[Sequence[int], Sequence[int]] | None:
    """Read the atoms of A and those of B behind or before the letters, in the last two lines.

    >>> read_named_lists("A: 0, 1\\nB: 2, 0")
    ([0, 1], [2, 0])
    """
    end = cut_remarks(text[-_MAX_END:])
    lines = [line for line in end.splitlines() if line.strip()][-2:]
    last = "\n".join(lines)
    places = [(one.start(2), one.end(2), one[1]) for one in _BEHIND_LETTER.finditer(last)]
    if not places:
        places = [(one.start(1), one.end(1), one[2]) for one in _BEFORE_LETTER.finditer(last)]
    if [letter for *_, letter in places] != ["A", "B"] or is_doubtful(last):
        return None
    for start, stop, _ in places:
        if is_denied(last, start, stop) or _CHOICE.match(last, stop):
            return None
    first, second = ([int(n) for n in re.findall("[0-9]+", last[a:b])] for a, b, _ in places)
    return first, second


def _read_table(rows: str) -> list[Pair]:
    pairs: list[Pair] = []
    for line in rows.splitlines():
        if row := _ROW.match(line):
            pairs.append((int(row[1]), int(row[2])))
        elif not _RULE.fullmatch(line):
            return []
    return pairs if len({a for a, _ in pairs}) == len(pairs) else []
