"""Read lists of known names where words stand around them: which ones a line names, and the only
run of names that a last sentence states.

`The best tour is A → B → A with cost 4.` and `I choose A and B, one of each circle.` are read
without any brackets.
"""

import re
from collections.abc import Callable, Sequence

from whet.answers.doubt import is_denied, is_doubtful
from whet.answers.final_answer import is_same_text
from whet.answers.sentences import last_line

_MAX_LINE = 2000
_MAX_NAMES = 200
_LETTERS = re.compile(r"[^\W\d_]+")
_NONE = re.compile(r"\b(?:no|none|unsure|not)\b", re.IGNORECASE)
_GAP = r"[*`\"'$]*\s*(?:(?:->|→|⇒|\\to|\\rightarrow|[,;–—-]|, and|and|, then|then)\s+)+[*`\"'$]*"
_TIGHT_GAP = r"[*`\"'$]*(?:->|→|[,–-])[*`\"'$]*"
_ARROW = re.compile(r"->|→|\\to\b|\\rightarrow\b")
_LABEL = r"[ \t]*[-*•]?[ \t]*(?:[A-Za-z]{1,20} ){0,3}(?:[0-9]{1,3}|[A-Z])\**:[ \t*]*"
_ASIDE = re.compile(r"\s\([^()]{1,60}\)")
_SENTENCE = re.compile(r"(?<!\b[A-Z])[.!]\s+(?=[A-Z*\"'])")
_STATES = re.compile(
    r"(?:[:=]|\b(?:is|are|be|choose|pick|select|take|goes|runs|tour|path|route|set|group|clique"
    r"|cover|neighbou?rs|users|nodes|so|hence|thus|therefore|both know|share"
    r"|consists? of|comprises?))"
    r"[\s*`\"'$]*\Z",
    re.IGNORECASE,
)
"""The words before a run that state it."""
_BEHIND = re.compile(
    r"[\s*`\"'$]*(?:(?:(?:all )?(?:are|is|form|make(?: up)?|stand|cover|have all|know)\b)|\Z)",
    re.IGNORECASE,
)
"""The words behind a run at the start of a sentence that state it."""


def compare_lists_of(names: Sequence[str]) -> Callable[[str, str], bool]:
    """Make a comparison of two final answers, of which one may say in words what the other lists.

    Prose above a list in brackets is no other answer where it names nobody, or those in the list.

    >>> compare_lists_of(["Ann", "Bo", "Cy"])("Bo, and Ann for the rest", "[Ann, Bo]")
    True
    """

    def is_same(one: str, other: str) -> bool:
        if is_same_text(one, other):
            return True
        prose, listed = (one, other) if "[" in other else (other, one)
        if "[" in prose or "[" not in listed or len(prose) > _MAX_LINE:
            return False
        if is_doubtful(prose) or _NONE.search(prose) or len(names) > _MAX_NAMES:
            return False
        if not names:
            return _says_numbers_of(prose, listed)
        rest = prose.lower()
        named = set()
        for name in sorted(names, key=len, reverse=True):
            if name.lower() in rest:
                named.add(name)
                rest = rest.replace(name.lower(), " ")
        words = [word for word in _LETTERS.findall(rest) if word not in ("and", "then")]
        inside = {name for name in names if name.lower() in listed.lower()}
        return len(words) > 1 and named in (set(), inside)

    return is_same


def _says_numbers_of(prose: str, listed: str) -> bool:
    """Whether prose holds no list of numbers, or those of a list."""
    numbers = re.findall("[0-9]+", prose)
    is_prose = len(_LETTERS.findall(prose)) > 2
    return is_prose and (len(numbers) < 2 or {*numbers} <= {*re.findall("[0-9]+", listed)})


def find_stated_run(text: str, names: Sequence[str]) -> str | None:
    """Find the one run of names in the last sentence, where nothing is named besides.

    >>> find_stated_run("I tried. So the tour is A → B → A (cost 4).", ["A", "B"])
    'A, B, A'
    """
    if (listed := _find_labelled(text, names)) is not None:
        return listed
    line = last_line(text) if 0 < len(names) <= _MAX_NAMES else None
    if line is None or len(line.text) > _MAX_LINE or "[" in line.text:
        return None
    sentence = _SENTENCE.split(line.text)[-1].strip()
    is_open = is_doubtful(_ASIDE.sub("", sentence)) or _NONE.search(sentence)
    if is_open or is_denied(text, max(text.rfind(sentence), 0), len(text)):
        return None
    return _find_in_sentence(
        _ASIDE.sub(lambda aside: "" if _is_remark(aside[0], names) else aside[0], sentence), names
    )


def _find_in_sentence(sentence: str, names: Sequence[str]) -> str | None:
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    name = rf"(?<!\w)(?:{known})(?!\w)"
    runs = list(re.finditer(rf"{name}(?:(?:{_GAP}|{_TIGHT_GAP}){name})+", sentence))
    if not runs:
        return None
    start, end = runs[-1].span()
    in_run = re.findall(name, runs[-1][0])
    is_at_end = end >= len(sentence.rstrip(". *`\"'$"))
    ends_it = is_at_end and sentence[:start].rstrip(" *").endswith((":", " are", " is"))
    if not ends_it and len(in_run) != len(re.findall(name, sentence)):
        return None
    has_lead = sentence[:start].strip("*`\"'$ ")
    is_stated = _STATES.search(sentence[:start]) if has_lead else _BEHIND.match(sentence, end)
    is_stated = is_stated or _ARROW.search(runs[-1][0])
    return ", ".join(in_run) if is_stated and not is_denied(sentence, start, end) else None


def _is_remark(aside: str, names: Sequence[str]) -> bool:
    return not any(name in aside for name in names)


def _find_labelled(text: str, names: Sequence[str]) -> str | None:
    """List the names of the last lines, each behind a label: `- Circle 1: Ann`."""
    labelled: list[str] = []
    for line in reversed(text[-_MAX_LINE:].rstrip().splitlines()):
        label = re.match(_LABEL, line)
        name = line[label.end() :].strip("*`. ") if label else ""
        if name not in names:
            break
        labelled.append(name)
    return ", ".join(labelled[::-1]) if len(labelled) > 1 else None
