"""Read the final yes or no, number, list, pairs or rows of a response about a numbered graph.
Total, linear, cautious.

Where the text says two things at once nothing is read. What stands after the last `###`, in the
last box or answer tag comes first, then what a sentence says it is, and only then the last line.
"""

import re
from collections.abc import Iterator
from fractions import Fraction

from whet.text.final_answer import last_box

_YES_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_LEADING = re.compile(
    r"[\W_]{0,8}(yes|no)\b(?![\s,]*(?:or|and|/)\b)[\w\s,.;:'()\[\]>-]*", re.IGNORECASE
)
_BARE_YES_NO = re.compile(
    r"\b(yes|no)\b(?=\W*(?:\Z|[.,;:!)\]}*\n]|\b(?:or|and|yes|no)\b))", re.IGNORECASE
)
_DENIED = re.compile(r"\bnot\W{1,3}(?:yes|no)\b", re.IGNORECASE)
_ANSWER_YES_NO = re.compile(
    r"answer(?: is)?[\W_]{0,8}(yes|no)\b(?![\s.,;)*]*(?:\bor\b|\band\b|/|\())", re.IGNORECASE
)
_THERE = re.compile(r"\bthere (?:is|exists) (an?|no)\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.])-?[0-9]{1,12}(?:\.[0-9]{1,6})?(?!\.?\w)")
_SAID = re.compile(
    r"(?:\b(?:is|are|be|of|equals)\b|[=:])[\s*$\\(]{0,6}(-?[0-9]{1,12}(?:\.[0-9]{1,6})?)(?:\s[a-z]{1,20})?[\s.*$)\\]{0,6}",
    re.IGNORECASE,
)
_PROSE = re.compile(r"[\w\s,.'()*$\\>=+:-]*[^\W\d_]{3}[\w\s,.'()*$\\>=+:-]*")
_OF_NODES = re.compile(r"from node ([0-9]{1,5}) to node ([0-9]{1,5}) is\b", re.IGNORECASE)
_TIDY = re.compile(r"[\w\s,.;:'()\[\]{}*$\\>-]*")
_RUN = r"[0-9]{1,5}(?:\s{0,3}(?:,|->|→|-|\\to|\\rightarrow)\s{0,3}[0-9]{1,5}){1,2000}"
_RUNS = re.compile(rf"(?<![\w.,]){_RUN}(?!\w)")
_SAID_RUN = re.compile(rf"(?:\bis|\bbe|:|=)[\s*\[]{{0,6}}({_RUN})(?!\w)", re.IGNORECASE)
_SHOWN = re.compile(
    rf"\b(?:path|cycle|route)\b[^\n.;0-9]{{0,60}}?(?:\b(?:is|be)\b|[:=\[(])[\s*\[(]{{0,6}}({_RUN})(?!\w)",
    re.IGNORECASE,
)
_EDGE = re.compile(
    r"\(\s{0,3}[0-9]{1,5}\s{0,3}(?:,|->)\s{0,3}[0-9]{1,5}\s{0,3}(?:,\s{0,3}[0-9]{1,5}\s{0,3})?\)"
)
_PAIR = re.compile(
    r"applicant\s{0,3}([0-9]{1,5})\s{0,3}(?::|->|→|-|is assigned to|gets|takes)\s{0,3}job\s{0,3}([0-9]{1,5})"
)
_ROW = re.compile(
    r"node\s{0,3}([0-9]{1,5})\s{0,3}[:=]\s{0,3}[\[(]\s{0,3}(-?[0-9]{1,9})\s{0,3},\s{0,3}(-?[0-9]{1,9})\s{0,3}[\])]"
)
_SHORT = 240


def yes_or_no(text: str) -> str | None:
    """Read "yes" or "no"; None where neither is said, or both are.

    >>> yes_or_no("No way around it. ### Yes"), yes_or_no("### Yes or No"), yes_or_no("No, there is no cycle here.")
    ('yes', None, 'no')
    """
    for part in _closing_parts(text):
        said = {word.lower() for word in _YES_NO.findall(part)}
        if said:
            is_plain = len(said) == 1 and _TIDY.fullmatch(part) and not _DENIED.search(part)
            return str(said.pop()) if is_plain else _leading(part)
    answers = list(_ANSWER_YES_NO.finditer(text))
    if answers:
        line = text[answers[-1].start(1) :].partition("\n")[0]
        return None if _is_torn(line) else answers[-1].group(1).lower()
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    for line in (lines[-1:] + lines[:1])[: len(lines)]:
        found = _leading(line)
        if found:
            return found
    there = _THERE.findall(lines[-1]) if lines else []
    if len(there) != 1:
        return None
    return "no" if str(there[0]).lower() == "no" else "yes"


def number(text: str) -> Fraction | None:
    """Read the final number; None where there is none, or several.

    >>> number("The maximum flow from node 4 to node 9 is 6."), number("### 5"), number("### 5 or 6")
    (Fraction(6, 1), Fraction(5, 1), None)
    """
    for part in _closing_parts(text):
        if _NUMBER.search(part):
            return _alone(part)
    for line in [line for line in text.splitlines() if line.strip()][-3:][::-1]:
        said = _said(line)
        if said is not None:
            return said
    return _alone(text)


def asked_pair(text: str) -> tuple[int, int] | None:
    """Read between which nodes the last sentence of the kind `from node 4 to node 9 is 6` says its
    number holds."""
    found = _OF_NODES.findall(text)
    return (int(found[-1][0]), int(found[-1][1])) if found else None


def run(text: str) -> tuple[int, ...] | None:
    """Read the final list of nodes, joined by commas or arrows, in brackets or not.

    >>> run("(0,1) is an edge, so the path can be: 0 -> 1 -> 2.")
    (0, 1, 2)
    """
    for part in _closing_parts(text):
        inside = _RUNS.findall(part)
        if inside:
            return _numbers(inside[-1])
    bare = _EDGE.sub(" ", text)
    found = _SAID_RUN.findall(bare) or _RUNS.findall(bare) or _RUNS.findall(text)
    return _numbers(found[-1]) if found else None


def shown(text: str) -> tuple[int, ...] | None:
    """Read the last list of nodes that the text itself calls a path or a cycle; other lists are
    none.

    >>> shown("Nodes 0, 1, 2 are one block. The path can be: 0->1->2, so yes."), shown("0, 1, 2 are one block, so yes.")
    ((0, 1, 2), None)
    """
    found = _SHOWN.findall(text)
    return _numbers(found[-1]) if found else None


def pairs(text: str) -> list[tuple[int, int]]:
    """Read the last block of lines that give applicants their jobs."""
    block: list[tuple[int, int]] = []
    for line in reversed(text.splitlines()):
        found = [(int(a), int(b)) for a, b in _PAIR.findall(line.lower())]
        if found:
            block = found + block
        elif block and line.strip():
            break
    return block


def rows(text: str) -> dict[int, tuple[int, int]]:
    """Read two numbers for every node, the last said of each."""
    return {int(node): (int(x), int(y)) for node, x, y in _ROW.findall(text.lower())}


def _closing_parts(text: str) -> Iterator[str]:
    """Cut out what follows the last `###`, the last box and the last answer tag; headings over long
    text are none."""
    box = last_box(text)
    tag = text.rfind("<answer>")
    mark = text.rfind("###")
    parts = [
        text[mark:].lstrip("# \t") if mark >= 0 else None,
        box,
        text[tag + len("<answer>") :].split("</answer>", 1)[0] if tag >= 0 else None,
    ]
    return (
        part for part in parts if part is not None and len(part) <= max(_SHORT, 6 * part.count(","))
    )


def _leading(line: str) -> str | None:
    found = _LEADING.fullmatch(line[:_SHORT])
    return found.group(1).lower() if found and not _is_torn(line) else None


def _is_torn(line: str) -> bool:
    """See a yes and a no that both stand as answers; the no of `there is no cycle` does not."""
    return len({word.lower() for word in _BARE_YES_NO.findall(line[:_SHORT])}) > 1


def _alone(text: str) -> Fraction | None:
    """Read a text that is a number and nothing else, or whose last line says what the number is."""
    bare = text.strip()[-_SHORT:].strip(" \t\r\n*$\\.()[]{}")
    if len(bare) < 20 and _NUMBER.fullmatch(bare):
        return Fraction(bare)
    lines = text.strip().splitlines()
    last = lines[-1].strip(" \t*$\\.()[]{}") if len(lines) > 1 else ""
    if len(last) < 20 and _NUMBER.fullmatch(last) and _PROSE.fullmatch(lines[0]):
        return Fraction(last)
    return _said(lines[-1]) if lines else None


def _said(line: str) -> Fraction | None:
    """Read the number a line of prose ends with, where it says what it is."""
    line = line.strip()[-_SHORT:]
    if not _PROSE.fullmatch(line):
        return None
    ends = [match for match in _SAID.finditer(line) if match.end() == len(line)]
    return Fraction(ends[-1].group(1)) if ends else None


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(found) for found in re.findall(r"[0-9]+", text))
