"""Whether an answer only repeats the question: the expression to be worked out, as it stands in the
prompt."""

import re

from whet.tasks.math.exact import exact
from whet.tasks.math.normal import normal
from whet.text.extract import formulas

_OPERATION = re.compile(
    r"(?<!^)[-+*/^!]|\\(?:frac|sqrt|cdot|times|div|binom|log|ln|sin|cos|tan|sum|prod|int|lim)(?![a-z])"
)
_REDUCED = re.compile(r"-?\s?(?:\\frac\{?([0-9]+)\}?\{?([0-9]+)\}?|([0-9]+)\s?/\s?([0-9]+))")


def is_echo(answer: str, golds: list[str], prompt: str) -> bool:
    """Whether a right answer is a formula of the prompt that is neither worked out nor written as a
    reference is.

    >>> is_echo("23+4", ["27"], "Compute $23+4$."), is_echo("x+1", ["x+1"], "Is it $x+1$ or $x-1$?")
    (True, False)
    """
    plain = normal(answer)
    if (
        not _OPERATION.search(plain)
        or _is_reduced(plain)
        or _bare(plain) in {_bare(normal(gold)) for gold in golds}
    ):
        return False
    return any(_bare(normal(formula.text)) == _bare(plain) for formula in formulas(prompt))


def _bare(text: str) -> str:
    return "".join(text.split()).rstrip("=?")


def _is_reduced(text: str) -> bool:
    """Whether a text is a fraction in its lowest terms, which is worked out wherever it stands."""
    match = _REDUCED.fullmatch(text)
    value = exact(text)
    return (
        match is not None and value is not None and value.denominator == int(match[2] or match[4])
    )
