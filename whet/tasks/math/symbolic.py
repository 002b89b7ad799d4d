"""The slow path: math-verify, for LaTeX that our own reader does not know. Bounded before it sees
anything.

Only the LaTeX parser of math-verify is used. Its parser of plain expressions hands text to `eval`
through sympy, so it is never called here.
"""

import logging
import re
import threading
from functools import lru_cache

from whet.tasks.math.words import is_remark

MAX_CHARS = 200
TIME_LIMIT = 1
"""Seconds for each of its three calls. Its alarm works in a main thread only; elsewhere it is not
asked."""
_RISKY = re.compile(
    r"[0-9]{30}|\^\s*\{?[^{}]{0,20}\^|[0-9]{4,}\s*!|\^\s*\{?\s*-?[0-9]{4,}|!\s*!|[^\x20-\x7e]"
)
_SECOND = re.compile(r"\\(?:text|mbox|mathrm|textrm)\s?\{[^{}]*\}[\^{}0-9\s]*\s[0-9]")
"""A number behind a unit: math-verify reads the first of two answers."""
_TEXT = re.compile(r"\\(?:text[a-z]{0,6}|mbox|mathrm)\s?\{([^{}]*)\}")
_COMMAND = re.compile(r"\\[a-zA-Z]+")
_PROSE = re.compile(r"(?<![\\a-zA-Z{])[a-zA-Z]{3,}")
MAX_NESTING = 12


@lru_cache(1 << 12)
def same_by_math_verify(gold: str, answer: str) -> bool:
    """Compare by math-verify where both texts are small LaTeX without towers of powers or huge
    factorials."""
    is_main = threading.current_thread() is threading.main_thread()
    return is_main and all(_is_tame(text) for text in (gold, answer)) and _verified(gold, answer)


def _is_tame(text: str) -> bool:
    if (
        len(text) > MAX_CHARS
        or _RISKY.search(text)
        or _PROSE.search(text)
        or _SECOND.search(text)
        or "boxed" in text
        or any(is_remark(wrapped[1]) for wrapped in _TEXT.finditer(text))
        or not _COMMAND.search(text)
    ):
        return False
    depth = deepest = 0
    for sign in text:
        depth += (sign in "({[") - (sign in ")}]")
        deepest = max(deepest, depth)
    return deepest <= MAX_NESTING


def _verified(gold: str, answer: str) -> bool:
    from math_verify import LatexExtractionConfig, parse, verify  # noqa: PLC0415 (half a second, rarely needed)

    logging.getLogger("math_verify").setLevel(logging.ERROR)
    latex = [LatexExtractionConfig()]
    try:
        left, right = (
            parse(
                rf"\boxed{{{text}}}",
                extraction_config=latex,
                fallback_mode="no_fallback",
                parsing_timeout=TIME_LIMIT,
            )
            for text in (gold, answer)
        )
        return (
            bool(left)
            and bool(right)
            and bool(verify(left, right, strict=True, timeout_seconds=TIME_LIMIT))
        )
    except (
        Exception
    ):  # Model text in a foreign parser: whatever it raises, the answer is not shown to be right.
        return False
