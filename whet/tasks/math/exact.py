"""The fast path: plain numbers and simple fractions, as text or LaTeX, read exactly in a
microsecond or two.

It says what a text is only where there is one way to read it; everything else is None and goes on
to the reader.
"""

import re
from fractions import Fraction
from functools import lru_cache

_PLAIN = re.compile(
    r"\s*\\?\$?\s*(?P<sign>[-+]?)\s*(?:"
    r"(?P<whole>[0-9]{1,300})(?:\.(?P<decimals>[0-9]{0,300}))?"
    r"|\.(?P<only>[0-9]{1,300})"
    r"|(?P<top>[0-9]{1,300})\s?/\s?(?P<bottom>[0-9]{1,300})"
    r"|\\[dtc]?frac\s?(?:\{\s?(?P<minus>-?)\s?(?P<upper>[0-9]{1,300})\s?\}\s?\{\s?(?P<lower>[0-9]{1,300})\s?\}"
    r"|(?P<digit>[0-9])\s?(?P<other>[0-9]))"
    r")\s*\$?\s*\.?\s*"
)


@lru_cache(1 << 14)
def exact(text: str) -> Fraction | None:
    """Read a number that can be meant in one way only.

    >>> exact(r"\\dfrac{6}{4}"), exact("-.5"), exact("$12$"), exact("1,234")
    (Fraction(3, 2), Fraction(-1, 2), Fraction(12, 1), None)
    """
    match = _PLAIN.fullmatch(text) if len(text) < 1000 else None
    if match is None:
        return None
    part = match.groupdict(default="")
    if part["whole"] or part["only"]:
        decimals = part["decimals"] + part["only"]
        value = Fraction(int(part["whole"] + decimals), 10 ** len(decimals))
    else:
        top = part["top"] + part["upper"] + part["digit"]
        bottom = part["bottom"] + part["lower"] + part["other"]
        if int(bottom) == 0:
            return None
        value = Fraction(int(top), int(bottom))
    return -value if (part["sign"] == "-") != (part["minus"] == "-") else value
