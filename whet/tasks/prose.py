"""What a line of prose tells as the answer: `So the letters are "nda".`, `It was 1,062.` Nothing
where it doubts."""

import re

MAX_CHARS = 400
"""Longer lines tell nothing here."""

_DOUBT = re.compile(
    r"\b(?:not|never|neither|nor|or|maybe|perhaps|possibly|probably|likely|might|(?-i:may)|could|if|whether|between|"
    r"either|unless|except|wrong|incorrect|unknown|unsure|unclear|cannot|think|guess|about|approximately|around|roughly|"
    r"nearly|almost|than|least|most|wait|actually|gold|reference|instead|but)\b|n['’]t\b|[?≈]|\\approx",
    re.IGNORECASE,
)
_VERB = re.compile(r"\b(?:is|are|was|were|be|equals)\b[\s:*]*(?=\S)", re.IGNORECASE)
_SENTENCE = re.compile(r"[.!]\s+(?=[A-Z*\"'])")
_NUMBER = re.compile(r"[0-9](?:[0-9.,]*[0-9])?")
_LEAD = re.compile(r"[A-Za-z ,'*()-]*")
_SIGN = re.compile(r"(?<![A-Za-z0-9])[-−]?\s?\\?[$£€]?[-−]?\Z")


def told(line: str) -> str | None:
    """Take what stands behind the last verb of a line's last sentence; None where the line is in
    doubt or has no verb.

    >>> told("So the letters are **nda**."), told("It is not nda."), told("nda")
    ('nda', None, None)
    """
    if len(line) > MAX_CHARS or _DOUBT.search(line):
        return None
    verbs = list(_VERB.finditer(_SENTENCE.split(line)[-1]))
    if not verbs:
        return None
    said = verbs[-1].string[verbs[-1].end() :]
    return said.strip().rstrip(".!").strip(" *`") or None


def only_number(line: str) -> str | None:
    """Take the one number of a sentence and what follows it: `It was highest in 2008.`"""
    found = (
        list(_NUMBER.finditer(line)) if len(line) <= MAX_CHARS and not _DOUBT.search(line) else []
    )
    if len(found) != 1:
        return None
    sign = _SIGN.search(line, 0, found[0].start())
    start = sign.start() if sign else found[0].start()
    return (
        line[start:].strip().rstrip("!").replace("**", "")
        if _LEAD.fullmatch(line, 0, start)
        else None
    )
