"""Read lists of known names among other words: find the names on a line, and the only run of names
that a last statement states, on one line or on several.

`The best tour is A → B → A with cost 4.` and `I choose A and B, one of each circle.` are read
without any brackets.
"""

import re
from collections.abc import Callable, Sequence

from whet.answers.doubt import (
    CHOICE,
    FALSE,
    REFERENCE,
    TURN,
    UNSURE,
    any_of,
    cut_remarks,
    is_denied,
    is_doubtful,
)
from whet.answers.final_answer import is_same_text
from whet.answers.withdrawal import find_replacement, is_disowned
from whet.tasks.answers import strip_text_commands

_MAX_LINE = 2000
_MAX_NAMES = 200
_MAX_STATEMENTS = 12
_LETTERS = re.compile(r"[^\W\d_]+")
_NONE = re.compile(r"\b(?:no|none|unsure|not)\b", re.IGNORECASE)
_DRESS = "*`\"'$"
_SIGN = (
    r"->|→|⇒|\\to|\\rightarrow|[,;–—+>-]|(?:, )?(?:and )?(?:then )?back to|, and|and|, then|then"
)
"""What may stand between two names of a run: an arrow, a comma, `and`, `then`."""
_GAP = rf"[{_DRESS}]*\s*(?:(?:{_SIGN})\s+)+[{_DRESS}]*"
_TIGHT_GAP = rf"[{_DRESS}]*(?:->|→|[,–-])[{_DRESS}]*"
_ARROW = re.compile(r"->|→|\\to\b|\\rightarrow\b")
_NAMED_STEP = re.compile(
    r"\\xrightarrow(?:\[[^\[\]]*\])?\{[^{}]*\}"
    r"|(?<=\s)[-–—]{1,2} ?\([\w ]{1,40}\) ?(?:[-–—]{1,2}>?|→)(?=\s)"
)
"""A step of a path with its label: `A –(region)– B`."""
_ORDINAL = "first|second|third|fourth|fifth|sixth|last"
_ITEM = re.compile(r"[ \t]*(?:[-*•+]|\(?[0-9]{1,3}[.)])[ \t]+")
"""The bullet or number of a list item."""
_LABEL = re.compile(
    r"[ \t]*(?:[-*•][ \t]+)?\**(?:(?:[A-Za-z]{1,20} ){0,3}(?:[0-9]{1,3}|[A-Z])"
    rf"|(?i:(?:the )?(?:{_ORDINAL}) [a-z]{{1,20}}))\**:[ \t*]*"
)
"""The label of a line with one name: `- Circle 1: `, `Second group: `."""
_LEADS = re.compile(r"#[^\n]*|[^\n]*[:：][* ]*|\*\*[^\n]*\*\*")
"""A line that introduces a list: a heading, a line with a colon, a bold line."""
_SURE = re.compile(r"\b(?:between|cannot)\b", re.IGNORECASE)
_ASIDE = re.compile(r"\s\([^()]{1,60}\)")
_SENTENCE = re.compile(r"(?<!\b[A-Z])[.!]\s+(?=[A-Z*\"'])|\n\s*")
_STATES = re.compile(
    r"(?:[:=>⇒→∴]|\b(?:is|are|be|choose|pick|select|take|goes|runs|tour|path|route|set|group|clique"
    r"|cover|neighbou?rs|users|nodes|so|hence|thus|therefore|both know|share"
    r"|consists? of|comprises?|(?:made up|composed) of))"
    rf"[\s({{\\{_DRESS}]*\Z",
    re.IGNORECASE,
)
"""Words before a run that state it."""
_STATES_ONE = re.compile(
    r"(?:[=⇒∴]|\b(?:only|sole|single|one|just)\b[^.,;:]{0,60}(?::|\b(?:is|are)))"
    rf"[\s{{\\{_DRESS}]*\Z",
    re.IGNORECASE,
)
"""Words before a name that state it as the whole answer."""
_CALLS = re.compile(
    r"\b(?:answer|result|solution|tour|path|route|trip|clique|group|set|cover|taken|chosen|selected"
    r"|picked|representatives|optimum|optimal|best|largest|smallest|shortest)\b[^.,;]{0,40}[:=]"
    rf"[\s({{\\{_DRESS}]*\Z",
    re.IGNORECASE,
)
"""Words before a run that call it the answer."""
_CONCLUDES = re.compile(r"\W*(?:so|thus|hence|therefore|finally|overall)\b", re.IGNORECASE)
_LEAVES_OUT = re.compile(
    r"\b(?:(?:remov|delet|drop|exclud|discard|skip|avoid|reject|eliminat|omit)\w*|left out)\b"
    r"[^.,;]*\Z",
    re.IGNORECASE,
)
"""Words before a run that say what is left out of the answer."""
_AT_WORK = re.compile(
    r"\b(?:candidates?|greed\w+|so far|visited|current\w*|tentative|initial\w*|left|remaining|rest"
    r"|neighbou?r\w*|edges?|degrees?|example|start\w*|steps?)\b",
    re.IGNORECASE,
)
"""Words for a list that is an intermediate step."""
_BEHIND = re.compile(
    rf"[\s{_DRESS}]*(?:(?:(?:all )?(?:are|is|form|make(?: up)?|stand|cover|have all|know)\b)|\Z)",
    re.IGNORECASE,
)
"""Words that state a run before them, if it starts the sentence."""
_BEHIND_BOLD = re.compile(r"\*\*[.!]?(?:\s*[–—;:(]|\s-\s|\s*\Z)")
_OPEN = re.compile(
    any_of(CHOICE, TURN, FALSE, REFERENCE, UNSURE, _ORDINAL)
    + r"|\b(?:former|latter|another|also|likewise|option|but|however|yet|too|still|I|we|us|let|now"
    r"|next|start|continue|try)\b"
    r"|(?<!no )(?<!any )(?<!every )(?<!each )(?<!all )\bothers?\b|[?\[]",
    re.IGNORECASE,
)
"""If what follows an answer has one of these, it is more than a remark."""


def compare_lists_of(names: Sequence[str]) -> Callable[[str, str], bool]:
    """Make a comparison of two final answers, one of which may describe what the other lists.

    Prose above a list in brackets is not another answer if it names no nodes, or exactly those in
    the list.

    >>> compare_lists_of(["Ann", "Bo", "Cy"])("Bo, and Ann for the rest", "[Ann, Bo]")
    True
    """

    def is_same(one: str, other: str) -> bool:
        if is_same_text(one, other):
            return True
        prose, listed = (one, other) if "[" in other else (other, one)
        if "[" in prose or "[" not in listed or len(prose) > _MAX_LINE:
            return False
        if is_doubtful(prose) or _NONE.search(prose) or len(names) > _MAX_NAMES:
            return False
        if not names:
            return _says_numbers_of(prose, listed)
        rest = prose.lower()
        named = set()
        for name in sorted(names, key=len, reverse=True):
            if name.lower() in rest:
                named.add(name)
                rest = rest.replace(name.lower(), " ")
        words = [word for word in _LETTERS.findall(rest) if word not in ("and", "then")]
        inside = {name for name in names if name.lower() in listed.lower()}
        return len(words) > 1 and named in (set(), inside)

    return is_same


def _says_numbers_of(prose: str, listed: str) -> bool:
    """Whether prose has no list of numbers, or only numbers of the given list."""
    numbers = re.findall("[0-9]+", prose)
    is_prose = len(_LETTERS.findall(prose)) > 2
    return is_prose and (len(numbers) < 2 or {*numbers} <= {*re.findall("[0-9]+", listed)})


def find_stated_run(text: str, names: Sequence[str]) -> str | None:
    """Find the only run of names in the last statement, which must name nothing else.

    Remarks may follow the run if it is called the answer, or is a bold line or a line with arrows.

    >>> find_stated_run("I tried. So the tour is A → B → A (cost 4).", ["A", "B"])
    'A, B, A'
    >>> find_stated_run("**Path:** A → B\\n\\nIt has one step.", ["A", "B"])
    'A, B'
    """
    if not 0 < len(names) <= _MAX_NAMES:
        return None
    text = _NAMED_STEP.sub("→", strip_text_commands(cut_remarks(text)[-2 * _MAX_LINE :]))
    if (listed := _find_items(text, names)) is not None:
        return listed
    known = "|".join(map(re.escape, sorted(names, key=len, reverse=True)))
    name = rf"(?<!\w)(?:{known})(?!\w)"
    end = len(text.rstrip())
    starts = [0, *(match.end() for match in _SENTENCE.finditer(text, 0, end))]
    for start in starts[: -_MAX_STATEMENTS - 1 : -1]:
        sentence = text[start:end].split("\n")[0].rstrip()
        rest = text[start + len(sentence) :].strip(f".! \n{_DRESS}")
        if "[" in sentence or (rest and not is_only_remark(rest)):
            return None
        if not is_denied(text, start, start + len(sentence)):
            run = _find_in_sentence(sentence, name, is_last=not rest)
            if run is not None:
                return run
        end = start
    return None


def is_only_remark(rest: str) -> bool:
    """Whether the text after an answer does not change it: `No other path is shorter.`"""
    is_long = len(rest) > _MAX_LINE
    return not is_long and not _OPEN.search(_SURE.sub("", rest)) and find_replacement(rest) is None


def _find_in_sentence(sentence: str, name: str, *, is_last: bool) -> str | None:
    """Find the last run of names in a sentence; a single name must be the only one."""
    if is_doubtful(_ASIDE.sub("", sentence)) or _NONE.search(_ASIDE.sub("", sentence)):
        return None
    sentence = _ASIDE.sub(lambda one: one[0] if re.search(name, one[0]) else "", sentence)
    runs = list(re.finditer(rf"{name}(?:(?:{_GAP}|{_TIGHT_GAP}){name})*", sentence))
    if not runs:
        return None
    named = [re.findall(name, run[0]) for run in runs]
    place = max(range(len(runs)), key=lambda index: (len(named[index]) > 1, index))
    run = runs[place]
    lead = sentence[: run.start()]
    behind = sentence[run.end() :]
    is_at_end = not behind.strip(f"}}). {_DRESS}")
    ends_it = is_at_end and lead.rstrip(" *").endswith((":", " are", " is"))
    is_all = len(runs) == 1
    if len(named[place]) == 1:
        is_stated = is_all and is_last and is_at_end and not _AT_WORK.search(lead)
        is_stated = is_stated and _STATES_ONE.search(lead) is not None
    elif is_last:
        is_stated = (is_all or ends_it) and _is_stated(lead, run[0], behind)
    else:
        is_stated = is_all and _is_called(lead, run[0], behind)
    is_led_away = is_disowned(lead) or _LEAVES_OUT.search(lead)
    if not is_stated or is_led_away or is_denied(sentence, run.start(), run.end()):
        return None
    return ", ".join(named[place])


def _is_stated(lead: str, run: str, behind: str) -> bool:
    """Whether the words around a run state it."""
    if not lead.strip(f" {_DRESS}"):
        is_bold = lead.endswith("**") and _BEHIND_BOLD.match(behind)
        return bool(is_bold or _BEHIND.match(behind) or _ARROW.search(run))
    return bool(_STATES.search(lead) or _ARROW.search(run)) or _is_concluded(lead, behind)


def _is_called(lead: str, run: str, behind: str) -> bool:
    """Whether a run before the end is called the answer, or stands out on its own line."""
    if _ITEM.match(lead) or _LABEL.match(lead) or _AT_WORK.search(lead):
        return False
    is_alone = not (lead + behind).strip(f" .{_DRESS}")
    stands_out = lead.endswith("**") or _ARROW.search(run)
    return bool(_CALLS.search(lead) or (is_alone and stands_out)) or _is_concluded(lead, behind)


def _is_concluded(lead: str, behind: str) -> bool:
    """Whether a conclusion has the run in bold: `So we can take **A, B**.`"""
    is_bold = lead.endswith("**") and behind.startswith("**")
    return is_bold and bool(_CONCLUDES.match(lead))


def _find_items(text: str, names: Sequence[str]) -> str | None:
    """List the names of the last lines, each after a label, or in a list that a line introduces.

    >>> _find_items("### Clique\\n- Ann\\n- Bo\\n\\nThey know each other.", ["Ann", "Bo"])
    'Ann, Bo'
    """
    lines = [line for line in text.splitlines() if line.strip()][-_MAX_NAMES:]
    end = len(lines)
    while end and _read_item(lines[end - 1], names) is None and len(lines) - end < 4:
        end -= 1
    start = end
    while start and _read_item(lines[start - 1], names) is not None:
        start -= 1
    items = [_read_item(line, names) for line in lines[start:end]]
    rest = "\n".join(lines[end:])
    if len(items) < 2 or (rest and not is_only_remark(rest)):
        return None
    lead = lines[start - 1].strip() if start else ""
    if not _LEADS.fullmatch(lead):
        if rest or not all(map(_LABEL.match, lines[start:end])):
            return None
        lead = ""
    is_named = bool(rest) and any(map(lead.__contains__, names))
    is_open = is_named or is_doubtful(_SURE.sub("", lead)) or is_disowned(lead)
    is_open = is_open or (bool(rest) and bool(_LEAVES_OUT.search(lead) or _AT_WORK.search(lead)))
    return None if is_open else ", ".join(item for item in items if item)


def _read_item(line: str, names: Sequence[str]) -> str | None:
    """Read the name that is all of a list item after its bullet or label."""
    sign = _LABEL.match(line) or _ITEM.match(line)
    name = _ASIDE.sub("", line[sign.end() :]).strip(f",; {_DRESS}") if sign else ""
    return next((one for one in (name, name.removesuffix(".")) if one in names), None)
