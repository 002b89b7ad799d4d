"""Read that a hand of the 24 game has no solution, in whatever words the last sentence says so."""

import re

from whet.answers.doubt import CHOICE, FALSE, TURN, any_of, cut_remarks
from whet.answers.withdrawal import is_disowned

_MAX_LINE_CHARS = 512
_HAND = (
    r"(?:(?:these|the|this|all|your)(?: (?:given|four|same|of|the|these))*"
    r" (?:numbers|cards|digits|hand|puzzle|game|combination)"
    r"|(?:the hand |the numbers )?\(?[0-9]{1,2}(?:,? (?:and )?[0-9]{1,2}){3}\)?)"
)
_MAKE = (
    r"(?:make|reach|get(?: to)?|give|yield|form|produce|equal|hit"
    r"|come to|lead to|result in|arrive at)"
)
_MAKES = (
    r"(?:makes?|reach(?:es)?|gets?(?: to)?|gives?|yields?|forms?|produces?|equals?|hits?|comes? to"
    r"|leads? to|results? in|arrives? at|is|works out to)"
)
_CANNOT = (
    r"(?:cannot|can['’]t|can not|(?:do|does)(?: not|n['’]t)|could(?: not|n['’]t)|never|will not)"
)
_WITH = rf"(?: (?:from|with|by|for|using|out of|to|in|of) (?:{_HAND}|these|them|this|it))?"
_WAYS = (
    r"(?:solutions?|ways?|expressions?|combinations?|arrangements?|orders?|sequences?|choices?"
    r"|formulas?|equations?)"
)
_LEADS = (
    r"(?:(?:so|thus|hence|therefore|overall|consequently|in (?:conclusion|short|total)"
    r"|(?:my |the )?(?:final )?answer(?: is)?|conclusion|result"
    r"|(?:this|which|that) means|it follows"
    r"|(?:we|i) conclude)[,:]? (?:that )?){0,2}"
)
_NONE = re.compile(
    r"(?i)\bno(?:ne)?\b|\bnothing\b|\bnever\b|n['’]t\b|\bnot\b|\bcannot\b|impossible|unsolvable"
)
"""Without it a line does not say that there is no solution."""
_NO_SOLUTION = re.compile(
    rf"(?i){_LEADS}(?:(?:there(?: is| are|['’]s| exists?) )?(?:absolutely |simply )?no"
    rf" (?:(?:such|valid|possible|legal) )?{_WAYS}(?: (?:to {_MAKE}|(?:that )?{_MAKES}"
    rf"|of (?:making|reaching|getting)) 24)?{_WITH}(?: exists?| is possible| can be found| here)?"
    rf"|(?:no {_WAYS}|nothing|none of (?:the|all|these)(?: \w+)? {_WAYS})"
    rf"{_WITH}(?: (?:ever|can|will))? {_MAKES} 24{_WITH}"
    rf"|(?:it|{_HAND}) (?:has|have) no solutions?"
    rf"|{_HAND} {_CANNOT} (?:be (?:combined|joined|used|made) (?:to|into) )?(?:{_MAKE} )?24"
    rf"|24 (?:cannot|can['’]t|can not) be (?:made|reached|formed|obtained|done|produced){_WITH}"
    rf"|24 is (?:not (?:reachable|possible|attainable)|unreachable|impossible){_WITH}"
    rf"|it(?: is|['’]s) (?:impossible|not possible)(?: to {_MAKE} 24)?{_WITH}"
    rf"|(?:it|this|{_HAND}) (?:cannot|can['’]t|can not) be (?:done|solved)"
    rf"|{_HAND} (?:is|are) (?:impossible|unsolvable|not solvable))[.!]?"
)
"""A sentence that says so."""
_ANSWERED = re.compile(
    r"(?i)(?:(?:the |my )?(?:final )?answer(?: is)?|conclusion|result)[:*]* *[*]*"
    r"(?:impossible|unsolvable|none|not possible|no(?: such)? expression)[.!*]*"
)
"""A line that answers so in a word."""
_SENTENCE_END = re.compile(
    r"[.!:;] +|, (?=(?:so|hence|thus|therefore)\b)| [–—] |\s*(?:→|⇒|=>|->)\s*"
)
_REASON_BEFORE = re.compile(r"(?i)(?:since|because|as|after|having|given)\b[^.;]{3,200}, ")
_REASON_BEHIND = re.compile(r"(?::|,? (?:since|because|as(?! far\b))\b| [–—-]) ")
_NO_REASON = re.compile(r"(?i)= ?24\b|\b(?:but|except|only|yet|so far)\b")
_BOLD = re.compile(r"\*\*(?!\w)|(?<!\w)\*\*")
_STOP = re.compile(r"[.!;] +")
_LEAVES_OPEN = re.compile(
    rf"(?i){any_of(CHOICE.removeprefix('or|'), TURN, FALSE)}|\b(?:may|might|could)\b(?! not)"
    r"|\b(?:if|think|guess|unsure|unless|suppose|assume|says?|said|claims?)\b|\?"
)
"""With it the rest of a sentence does not lead to its end."""
_HEDGES = re.compile(
    r"(?i)(?<!\bwe )\b(?:may|might)\b(?! not)|\b(?:maybe|perhaps|possibly|think|guess|unsure)\b"
)
"""So it does in a sentence before."""


def write_no_solution(text: str) -> str:
    """Write the last line as `no solution` where its last sentence says that there is none.

    >>> write_no_solution("I tried all. These four numbers cannot make 24.")
    'no solution'
    """
    if not _NONE.search(text, max(len(text) - 2 * _MAX_LINE_CHARS, 0)):
        return text
    end = cut_remarks(text)
    start = len(end) - len(end[end.rfind("\n") + 1 :].rpartition("</think>")[2])
    line = _BOLD.sub("", end[start:]).strip("#*_`$> ")
    last = _SENTENCE_END.split(line)[-1]
    lead = line[: len(line) - len(last)]
    is_said = any(map(_NO_SOLUTION.fullmatch, _without_reason(last, line)))
    is_said = is_said or _ANSWERED.fullmatch(line) is not None
    if len(line) > _MAX_LINE_CHARS or not is_said:
        return text
    is_hedged = _LEAVES_OPEN.search(_STOP.split(lead)[-1]) or _HEDGES.search(lead)
    is_open = is_hedged or is_disowned(lead.rstrip())
    return text if is_open else f"{end[:start]}no solution"


def _without_reason(last: str, line: str) -> list[str]:
    """List a sentence as it is, without the reason before it, and a line without one behind."""
    forms = [last, _REASON_BEFORE.sub("", last, count=1)]
    if behind := _REASON_BEHIND.search(line):
        reason = line[behind.end() :]
        if not _NO_REASON.search(reason) and not _LEAVES_OPEN.search(reason):
            forms.append(line[: behind.start()])
    return forms
