"""Times of day as answers: 20:34, 8:34 P.M., 8 p.m., 20:34:00."""

import re

from whet.tasks.math.normal import wording

_TIME = re.compile(r"([0-9]{1,2})(?::([0-5][0-9])(?::([0-5][0-9]))?)?(?: ?([ap])\.?m\.?)?")


def time_of(text: str) -> int | None:
    """Read a time as seconds after midnight; a bare 7:32 may as well be a ratio and is None below
    ten o'clock.

    >>> time_of("8:34 p.m.") == time_of("20:34:00")
    True
    """
    match = _TIME.fullmatch(wording(text)) if len(text) < 60 else None
    if match is None or not (match[2] or match[4]):
        return None
    hours = int(match[1])
    half = match[4]
    if (
        (half and not 1 <= hours <= 12)
        or hours > 24
        or not (half or match[3] or len(match[1]) == 2)
    ):
        return None
    if half:
        hours = hours % 12 + (12 if half == "p" else 0)
    return 3600 * hours + 60 * int(match[2] or 0) + int(match[3] or 0)
