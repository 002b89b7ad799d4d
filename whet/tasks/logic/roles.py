"""Write what a response says of knights and knaves in the plain form that `knights` reads.

A liar is a knave and one who tells the truth a knight, alone or as a gloss; `Both are knaves` and
`Only Ada is a knight` speak of everyone. A gloss that says the contrary stays, so that nothing is
read.
"""

import re
from collections.abc import Sequence

_LIAR = (
    r"(?:s?he |they |an? |the )?(?:knaves?|liars?|lying|lies|lie|liar-type"
    r"|(?:always|invariably|who(?: always)?) (?:lies|lie|lying|tells? lies))"
)
_TRUE = (
    r"(?:s?he |they |an? |the )?(?:knights?|truth[- ]?tellers?|truthful|honest"
    r"|(?:always |who (?:always )?)?(?:tells?|telling|speaks?|speaking) the truth"
    r"|(?:always|who(?: always)?) truthful)"
)
_GLOSS = (
    (
        re.compile(
            rf"\b((?:an? |the )?)(?:knave|liar)(s?)"
            rf"(?: ?\({_LIAR}\)|,? (?:i\.e\.,?|that is,?|[–—-]) {_LIAR}|, {_LIAR}(?=[\n.;]|\Z))",
            re.I,
        ),
        r"\1knave\2",
    ),
    (
        re.compile(
            rf"\b((?:an? |the )?)(?:knight|truth[- ]?teller)(s?)"
            rf"(?: ?\({_TRUE}\)|,? (?:i\.e\.,?|that is,?|[–—-]) {_TRUE}|, {_TRUE}(?=[\n.;]|\Z))",
            re.I,
        ),
        r"\1knight\2",
    ),
    (
        re.compile(rf"\b(?:lies|is lying|is dishonest)(?: ?\({_LIAR}\)| and is {_LIAR})?", re.I),
        "is a knave",
    ),
    (
        re.compile(
            rf"\b(?:(?:always )?tells the truth|is (?:telling the truth|truthful|honest))"
            rf"(?: ?\({_TRUE}\)| and is {_TRUE})?",
            re.I,
        ),
        "is a knight",
    ),
    (re.compile(r"\bliar(s?)\b", re.I), r"knave\1"),
    (re.compile(r"\btruth[- ]?teller(s?)\b", re.I), r"knight\1"),
)
_MAY_GLOSS = re.compile(
    r"\b(?:liars?|lies?|lying|dishonest|truth|truthful|honest)\b|truth-?teller|\(", re.I
)
_SIGNS = re.compile("[ \t]?[✅❌✓✗✔✘☑🗡⚔\ufe0f]+")
_LIE = re.compile(r"\b(?:(?:both|all) )?lie(?=[.;,\n]|\Z)", re.I)
_ONLY_ONE = re.compile(r"\s*(?:so )?(\S{1,40}) is the only (knight|knave)[.!]?\s*", re.I)
_REASON = re.compile(
    r"(?:(?<=knight)|(?<=knave)),? (?:because|since|as|for|by|from) (?!(?:is|are)\b)[^\n;]*", re.I
)
_DASH = re.compile(r"(?<=\w)\s?(?:[–—→]|->|=>|\s-\s)\s?(?=(?:an? |the )?(?:knight|knave)\b)", re.I)
_IN_BRACKETS = re.compile(r"(?<=\w) \((knight|knave)\)", re.I)
_WHILE = re.compile(r",? (?:while|whereas) ", re.I)
_ELLIPSIS = re.compile(r"(?:,? and |, |; )(\S{1,40}),? (?:an?|the) (knight|knave)\b", re.I)
_INVERSE = re.compile(
    r"\b(?:the )?(?:only )?(knight|knave) is (?!an? |the |not )([^\s,.;:()]{1,40})", re.I
)
_ALL = re.compile(
    r"\s*(?:(?:so|thus|therefore|hence),? )?(?:both(?: of them)?|everyone|everybody|all"
    r"(?: (?:of them|two|three|four|five|six|people|persons|are))?"
    r"|they(?: are)? (?:both|all)|each(?: of them)?)"
    r" (?:are|is)(?: (?:both|all))?(?: an?)? (?P<role>knight|knave)s?[.!]?\s*",
    re.I,
)
_ONLY = re.compile(r"\s*(?:so )?only (\S{1,40}) is an? (knight|knave)[.!]?\s*", re.I)
_NEITHER = re.compile(
    r"\s*(?:so )?neither (\S{1,40}) nor (\S{1,40}) is an? (knight|knave)[.!]?\s*", re.I
)
_OTHER = {"knight": "knave", "knave": "knight"}


def write_roles_plainly(text: str, names: Sequence[str] = ()) -> str:
    """Replace other words for knights and knaves, reasons, dashes, and words for everyone.

    >>> write_roles_plainly("(1) Ada is a liar (knave)")
    '(1) Ada is a knave'
    >>> write_roles_plainly("Only Bo is a knave.", ["Ada", "Bo"])
    'Bo is a knave, Ada is a knight'
    """
    if _MAY_GLOSS.search(text):
        for pattern, plain in _GLOSS:
            text = pattern.sub(plain, text)
        text = _LIE.sub("are knaves", text)
        text = _IN_BRACKETS.sub(r" is a \1", text)
    text = _SIGNS.sub("", text)
    text = _DASH.sub(": ", _REASON.sub("", text))
    text = _ELLIPSIS.sub(r", \1 is a \2", _WHILE.sub(", ", text))
    text = _INVERSE.sub(r"\2 is a \1", text)
    return _write_everyone(text, names)


def _write_everyone(text: str, names: Sequence[str]) -> str:
    if only := _ONLY.fullmatch(text) or _ONLY_ONE.fullmatch(text):
        role = only[2].lower()
        others = [name for name in names if name.lower() != only[1].lower()]
        if len(others) == len(names) - 1:
            return ", ".join(
                [f"{only[1]} is a {role}", *(f"{name} is a {_OTHER[role]}" for name in others)]
            )
    if neither := _NEITHER.fullmatch(text):
        role = _OTHER[neither[3].lower()]
        return f"{neither[1]} is a {role}, {neither[2]} is a {role}"
    everyone = _ALL.fullmatch(text)
    if everyone and names:
        return ", ".join(f"{name} is a {everyone['role'].lower()}" for name in names)
    return text
