"""The slow path: math-verify on two small, tame texts that the parser does not read."""

import logging
import re
import threading
from functools import lru_cache

from whet.tasks.math.words import is_remark

MAX_LATEX_CHARS = 200
MAX_NESTING = 12
TIME_LIMIT = 1
"""Seconds for each of its three calls. Its alarm works in a main thread only; elsewhere it is not
asked."""
_REFUSED = re.compile(
    r"[0-9]{30}|\^\s*\{?[^{}]{0,20}\^|[0-9]{4,}\s*!|\^\s*\{?\s*-?[0-9]{4,}|!\s*!|[^\x20-\x7e]"
    r"|(?<!\\)\{\s*\}"
    r"|(?<![\\a-zA-Z{])(?:[a-zA-Z]{3,}|no(?![a-zA-Z])|or(?![a-zA-Z]))|;|boxed"
    r"|^[^=]*(?<![_{0-9])[0-9][^=]*=|\\(?:mathbf|boldsymbol|bm|vec|hat)(?![a-zA-Z])"
    r"|\\(?:text|mbox|mathrm|textrm)\s?\{[^{}]*\}[\^{}0-9\s]*\s[0-9]"
)
"""Towers of powers and huge factorials, empty groups, prose, vectors, and texts with two numbers,
of which math-verify reads the first."""
_TEXT = re.compile(r"\\(?:text[a-z]{0,6}|mbox|mathrm)\s?\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[a-zA-Z]+")


@lru_cache(1 << 12)
def same_by_math_verify(gold: str, answer: str) -> bool:
    """Ask math-verify, the slow path, where both texts are small, tame LaTeX.

    Its parser of plain expressions hands text to `eval` through sympy, so only that of LaTeX is
    used.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    return _is_tame(gold) and _is_tame(answer) and _ask(gold, answer)


def _is_tame(text: str) -> bool:
    if len(text) > MAX_LATEX_CHARS or _REFUSED.search(text) or not _COMMAND.search(text):
        return False
    if any(is_remark(wrapped[1]) for wrapped in _TEXT.finditer(text)):
        return False
    depth = deepest = 0
    for sign in text:
        depth += (sign in "({[") - (sign in ")}]")
        deepest = max(deepest, depth)
    return deepest <= MAX_NESTING


def _ask(gold: str, answer: str) -> bool:
    # Half a second to import, rarely needed.
    from math_verify import LatexExtractionConfig, parse, verify  # noqa: PLC0415

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    try:
        left, right = (
            parse(
                rf"\boxed{{{text}}}",
                extraction_config=[LatexExtractionConfig()],
                fallback_mode="no_fallback",
                parsing_timeout=TIME_LIMIT,
            )
            for text in (gold, answer)
        )
        if not left or not right:
            return False
        return bool(verify(left, right, strict=True, timeout_seconds=TIME_LIMIT))
    except Exception:  # Model text in a foreign parser: nothing that it raises shows equality.
        return False
