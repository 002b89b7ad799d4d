"""Numbers for the report, rounded, with units and intervals; changes as sentences; and the text of
models and users, whose hidden characters are shown and which is never markup."""

import unicodedata
from math import floor, isfinite, log10

from whet.evals.stats import Estimate

MINUS = "\N{MINUS SIGN}"
SPACE = "\N{NO-BREAK SPACE}"


def percent(fraction: float, digits: int = 0) -> str:
    """Write a fraction as a percentage.

    >>> percent(0.3412), percent(0.3412, 1)
    ('34\\xa0%', '34.1\\xa0%')
    """
    return f"{number(100 * fraction, digits)}{SPACE}%"


def percent_interval(estimate: Estimate, digits: int = 0) -> str:
    """Write an estimated fraction with its interval.

    >>> percent_interval(Estimate(mean=0.34, low=0.31, high=0.37, count=400))
    '34\\xa0% [31,\\xa037]'
    """
    return f"{percent(estimate.mean, digits)} {bounds(estimate, digits, scale=100)}"


def choose_digits(*estimates: Estimate) -> int:
    """Choose the decimals of percentages in a sentence: one if any is below 10 %.

    >>> choose_digits(Estimate(mean=0.014, low=0.01, high=0.018, count=400))
    1
    """
    return 1 if any(estimate.mean < 0.1 for estimate in estimates) else 0


def bounds(estimate: Estimate, digits: int, *, scale: float = 1) -> str:
    """Write the ends of an interval in square brackets."""
    return (
        f"[{number(scale * estimate.low, digits)},{SPACE}{number(scale * estimate.high, digits)}]"
    )


def points(difference: Estimate) -> str:
    """Write a difference of fractions as signed percentage points.

    >>> points(Estimate(mean=0.158, low=0.13, high=0.19, count=400))
    '+15.8 points [13.0,\\xa019.0]'
    """
    sign = "+" if difference.mean > 0 else ""
    return f"{sign}{number(100 * difference.mean, 1)} points {bounds(difference, 1, scale=100)}"


def p_value(chance: float) -> str:
    """Write a p-value.

    >>> p_value(0.0321), p_value(2e-9)
    ('0.032', '< 0.001')
    """
    return "< 0.001" if chance < 0.001 else number(chance, 3)


def p_equation(chance: float) -> str:
    """Write a p-value in a sentence.

    >>> p_equation(0.0321), p_equation(2e-9)
    ('p = 0.032', 'p < 0.001')
    """
    written = p_value(chance)
    return f"p {written}" if written.startswith("<") else f"p = {written}"


def detectable(least: float) -> str:
    """Write the smallest difference that some data would find; 1 means none at all.

    >>> detectable(0.052), detectable(1.0)
    ('5.2\\xa0points', 'none')
    """
    return f"{number(100 * least, 1)}{SPACE}points" if least < 1 else "none"


def number(value: float, digits: int) -> str:
    """Write a number with fixed decimals, thousands separators, a true minus and no minus zero."""
    text = f"{value:,.{digits}f}"
    if text.startswith("-"):
        text = MINUS + text[1:] if text.strip("-0.,") else text[1:]
    return text


def significant(value: float) -> str:
    """Write a number with three significant digits, whatever its size; zero is "0".

    >>> significant(0.012345), significant(12345.6), significant(2.0), significant(0.0)
    ('0.0123', '12,346', '2.00', '0')
    """
    if not isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    if abs(value) < 1e-4:
        return f"{value:.1e}".replace("-", MINUS)
    return number(value, max(0, 2 - floor(log10(abs(value)))))


def duration(seconds: float) -> str:
    """Write a time span in its two largest units.

    >>> duration(0.43), duration(75), duration(3720)
    ('0.4 s', '1 min 15 s', '1 h 2 min')
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, left = divmod(round(seconds), 60)
    if minutes == 0:
        return f"{left} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {left} s"


def describe_change(
    cause: str, things: str, before: Estimate, after: Estimate, difference: Estimate | None = None
) -> str:
    """Describe the change that a stage made, as far as the intervals show one.

    Without the paired difference, overlapping intervals count as no change. For example: "RL raised
    the share of unseen hands solved from 18 % [16, 20] to 34 % [31, 37]."
    """
    digits = choose_digits(before, after)
    old = percent_interval(before, digits)
    new = percent_interval(after, digits)
    low = after.low - before.high if difference is None else difference.low
    high = after.high - before.low if difference is None else difference.high
    subject = f"the share of {things} solved"
    if low <= 0 <= high:
        return f"{cause} did not measurably change {subject}: {old} before, {new} after."
    return f"{cause} {'raised' if low > 0 else 'lowered'} {subject} from {old} to {new}."


class Html(str):
    """Text that is already HTML, which a template inserts unchanged."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def escape_hidden(text: str) -> str:
    """Escape characters that hide or reorder text: control, format, half surrogates.

    >>> escape_hidden("a\\x00b\\u202ec")
    'a\\\\x00b\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    return character.encode("unicode_escape").decode("ascii")
