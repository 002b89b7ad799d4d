"""The words that cast doubt on an answer, in groups. Each reader picks the groups it heeds.

A group is a pattern of words with bars between them, to be matched without regard to case.
"""

import re

CHOICE = "or|maybe|perhaps|possibly|alternatively|versus|vs"
"""Another answer is offered too: `3 or 4`."""
TURN = (
    "wait|actually|sorry|correction|oops|I mean|I meant|scratch that|on second thought"
    "|rather(?! than)|instead(?! of)"
)
"""What was just said is taken back: `3; wait, 4`."""
DENIAL = "not|never|neither|nor"
FALSE = "wrong|incorrect"
UNSURE = (
    "probably|likely|might|(?-i:may)|could|cannot|if|whether|between|either|unless|except|unknown"
    "|unsure|unclear|think|guess"
)
"""The answer holds perhaps, or under a condition. May with a capital is a month."""
ROUGH = "about|approximately|approx|roughly|around|nearly|almost"
"""The number is not exact."""
BOUND = "than|least|most"
"""The number is a limit."""
REFERENCE = "gold|golden|reference"
"""The answer is another's."""
CONTRACTION = r"n['’]t\b"


def any_of(*groups: str) -> str:
    """Write a pattern for any word of the groups.

    >>> any_of(FALSE, "no")
    '\\\\b(?:wrong|incorrect|no)\\\\b'
    """
    return rf"\b(?:{'|'.join(groups)})\b"


_DOUBT = re.compile(
    any_of(DENIAL, FALSE, CHOICE, UNSURE, ROUGH, BOUND, TURN, REFERENCE, "but")
    + rf"|{CONTRACTION}|[?≈]|\\approx",
    re.IGNORECASE,
)


def is_doubtful(line: str) -> bool:
    """Whether a line of prose has any word that keeps it from stating an answer."""
    return _DOUBT.search(line) is not None
