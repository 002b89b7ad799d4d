"""Read a formula over several lines that ends a text; of aligned lines the last one counts."""

import re
from dataclasses import replace

from whet.answers.final_answer import Span, make_span
from whet.answers.sentences import find_formulas
from whet.tasks.math.parser import readings

_MAX_ALIGNED = 4000
_ENVIRONMENT = r"(?:align|aligned|alignat|gather|gathered|eqnarray|split|multline|equation)"
_BEGIN = re.compile(rf"\\begin\{{({_ENVIRONMENT})(\*?)\}}(?:\[[a-z]\])?")
_END = re.compile(rf"\\end\{{{_ENVIRONMENT}\*?\}}[\s$.,*`]*(?:\\[\])])?[\s*$`.]*\Z")
_ROW_END = re.compile(r"\\\\(?:\[[^\]\n]{0,12}\])?|\\cr(?![a-z])")
_REMARK = re.compile(
    r"\\(?:nonumber|notag|hfill|qed|square|blacksquare)(?![a-z])"
    rf"|\\(?:tag\*?|label)\s?\{{[^{{}}]*\}}|\\end\{{{_ENVIRONMENT}\*?\}}"
)
_EDGE = re.compile(r"\A[\s&]*=(?!=)|[\s.,;&]+\Z|&")
_INNER = re.compile(
    r"\\begin\{(?:[a-zA-Z]{0,8}matrix|array|cases)\}.*?\\end\{(?:[a-zA-Z]{0,8}matrix|array|cases)\}",
    re.DOTALL,
)
_KEPT = re.compile("\ue000([0-9]+)\ue001")
_DISPLAY_END = re.compile(r"\n[ \t]*(?:\\[\])]|\$\$)[\s*$`.]*\Z")
"""The end of a formula on separate lines."""


def last_display(text: str) -> Span | None:
    r"""Take a formula over several lines that ends a text, or the last of aligned lines.

    >>> last_display(r"\begin{align*} x &= 40 + 2 \\ &= 42. \end{align*}").text
    '42'
    """
    if aligned := _last_aligned(text):
        return aligned
    if not text.rstrip(" \t\n.*`").endswith(("$", "\\]", "\\)")):
        return None
    formulas = find_formulas(text)
    if not formulas or "\n" not in formulas[-1].text.strip():
        return None
    formula = formulas[-1]
    if text[formula.end :].strip(" \t\n.$*`\\)]") or not readings(formula.text):
        return None
    return formula


def cut_display_end(text: str) -> str:
    """Cut off a line that only closes a formula."""
    display = _DISPLAY_END.search(text, max(0, len(text) - 40))
    return text[: display.start()] if display else text


def _last_aligned(text: str) -> Span | None:
    end = _END.search(text, max(0, len(text) - 80))
    begins = end and [*_BEGIN.finditer(text, max(0, end.start() - _MAX_ALIGNED), end.start())]
    if not end or not begins:
        return None
    rows = _split_rows(text[begins[-1].end() : end.start()])
    whole = make_span(text, begins[-1].start(), end.start())
    return replace(whole, text=rows[-1]) if rows else None


def _split_rows(body: str) -> list[str]:
    """Split aligned lines at their ends, those of matrices in them aside, and drop the marks."""
    inner: list[str] = []

    def keep(match: re.Match[str]) -> str:
        inner.append(match[0])
        return f"\ue000{len(inner) - 1}\ue001"

    rows = _ROW_END.split(_INNER.sub(keep, _REMARK.sub("", body.replace("\ue000", ""))))
    plain = (_EDGE.sub(" ", row.strip()).strip(" .,;") for row in rows)
    return [_KEPT.sub(lambda place: inner[int(place[1])], row) for row in plain if row]
