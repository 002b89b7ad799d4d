"""ProcessBench: name the first wrong step of a solution, or say that there is none.

answer the index of the first wrong step, from 0; -1 if all are right payload {"f1": {"subset":
"gsm8k", "half": "error" or "correct"}}: evaluations report the F1 of a
         subset, the harmonic mean of the accuracies on its halves (Zheng et al. 2024)
"""

import re
from typing import Literal

from whet.answers.doubt import CHOICE, TURN, UNSURE, any_of
from whet.config import Config
from whet.tasks.base import FileTask
from whet.tasks.generated import grade_final_answer
from whet.tasks.literals import parse_literal
from whet.tasks.qa.stated import strip_markup
from whet.types import Problem, Score

_INDEX = re.compile(
    r"(?:(?:the )?(?:(?:first|earliest) )?(?:error|mistake|wrong|incorrect|faulty)?[ _]?"
    r"(?:(?:step|paragraph)[ _])?(?:index|step|paragraph|error|mistake)?"
    r"(?: of (?:the |that )?(?:first |earliest )?(?:wrong |faulty )?"
    r"(?:error|mistake|step|paragraph))?"
    r" ?[:=] ?)?<?(?:(?:step|paragraph|index)[ _]?)?(?:(?:number|index) |no\. |#)?"
    r"(-1|[0-9]{1,4})>?\.?(?P<aside> ?\((?:(?:step|paragraph)[ _]?\1"
    r"|(?:the (?!answer|above|index|result)|no |all |every|there (?:is|are) no|where |its |since "
    r"|as )[a-z ,'-]{1,60})\)\.?)?",
    re.IGNORECASE | re.ASCII,
)
"""An index in any usual form: `3`, `step 3`, `the first error: 3`."""
_AT_FAULT = re.compile(
    r"(\b(?:paragraph|step|(?:it|this|that)(?= (?:is|was) \w+ (?:because|since|as)\b))"
    r"(?:[ _]?[0-9]{1,4})?>?(?:, [^\n,]{1,80},| \([^\n()]{1,80}\))?"
    r" (?:is|was|seems|looks)(?: (?!answer)\w+){0,5})"
    r" (?:wrong|incorrect|false|mistaken|invalid|untrue|not (?:right|correct|true|valid))\b"
    r"|(\bthe (?:first |earliest )?)"
    r"(?:mistake(?= (?:is|lies)\b)|(?:wrong|incorrect|faulty|false) (?=paragraph|step))",
    re.IGNORECASE,
)
"""Since the question asks for a wrong step, such a word before an index is not a denial."""
_FAULT = r"(?:error|mistake|fault|flaw|(?:wrong|faulty|incorrect|false|bad) (?:step|paragraph|one))"
_OCCURS = (
    r"(?:(?:is|occurs|appears|lies|comes|sits|arises|happens|starts|is made|is found|is located"
    r"|shows up)(?: (?:first|already|right|early|therefore|thus|then))?"
    r"|first (?:occurs|appears|arises|comes))"
)
_WHERE = r"(?: in| at| with)? (?=<?(?:paragraph|step|index)[ _])"
_NAMED = re.compile(
    rf"(?P<part>; |, (?:so|and|but) )?\bthe (?:very )?(?:first|earliest|only) {_FAULT}"
    rf" {_OCCURS}{_WHERE}"
    rf"|\bthe {_FAULT} (?:first (?:occurs|appears|arises|comes)|is first made){_WHERE}"
    rf"|\b(?:it|the (?:solution|argument|reasoning)) (?:first )?goes wrong{_WHERE}",
    re.IGNORECASE,
)
"""Words that introduce the index, as `the answer is` does."""
_FIRST = re.compile(
    r"<?\b(?:paragraph|step)[ _]([0-9]{1,4})>? (?:(?:is|has|holds|contains|makes|introduces) "
    rf"the (?:very )?(?:first|earliest|only) {_FAULT}"
    rf"|is (?:the one )?where (?:the (?:first|earliest|only) {_FAULT} {_OCCURS}"
    r"|(?:it|the solution) (?:first )?goes wrong))"
    r"(?P<why>(?:[:,;]| [—–-]) [^\n]{1,200})?(?=\W{0,4}\Z)",
    re.IGNORECASE,
)
"""A step before what it is: `paragraph 3 has the first error: it adds`."""
_BOX = r"[\s*$(\\]*boxed\{[^{}\n]{1,20}\}"
_SOUND = re.compile(
    rf"\b(?:no {_FAULT}|nothing (?:is )?(?:wrong|amiss|off))(?: is| lies| occurs)? (?:at|in|with)"
    rf"(?: (?:the )?(?:paragraph|step|index|number))?(?={_BOX})"
    rf"|\b(?:paragraph|step)(?={_BOX}[*$)]* (?:(?:is|was|seems|looks) (?:\w+ )?(?:right|correct"
    rf"|fine|sound|valid|true|ok(?:ay)?)|holds|(?:has|contains|makes) no {_FAULT})\b)",
    re.IGNORECASE,
)
"""Text that says that the step in a box has no fault."""
_NONE = re.compile(
    r"\b(?:(?:every|each|all)(?: the| of the)? (?:\w+ )?(?:paragraph|step)s?|no (?:\w+ )?"
    r"(?:paragraph|step|error|mistake)s?)\b[^\n.!?]{0,60},? (?:so|hence|thus|therefore)"
    r"(?: (?:the (?:index|answer) is|it is))?,? (?=(?:-|\N{MINUS SIGN})1\W{0,4}\Z)",
    re.IGNORECASE,
)
"""Text that says that nothing is wrong, before the index -1 itself."""
_REMARK = re.compile(
    r"(?<![\w.])((?:-|\N{MINUS SIGN})1|[0-9]{1,4})([\])}>*`$]{0,6})"
    r"(?: \((?:no|all|every|there (?:is|are) no|since|as|because|where)\b[^\n()]{1,120}\)"
    r"|(?:,| ?[—–]| -|:|;) ?(?:as|since|because|where|for|all|every|no|there (?:is|are) no)"
    r"\b[^\n]{1,200})(?=\W{0,4}\Z)",
    re.IGNORECASE,
)
"""A remark after an index about its meaning or about the error."""
_FIELD = re.compile(
    r"(?:final_)?answer|(?:(?:first|earliest)_)?(?:(?:error|mistake|wrong|faulty|incorrect)_)?"
    r"(?:error|mistake|index|paragraph|step)(?:_(?:index|paragraph|step))?",
    re.IGNORECASE,
)
"""The name of the index in a JSON object."""
_TAKES_BACK = re.compile(any_of(TURN, CHOICE, UNSURE, "but|no(?=,)|nor") + r"|\?", re.IGNORECASE)
_MAX_LINE = 400


class ProcessBenchConfig(Config):
    name: Literal["process_bench"] = "process_bench"


class ProcessBench(FileTask):
    """Grades the index of a step; its problems come from files."""

    name = "process_bench"
    is_bounded = True
    config: ProcessBenchConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare indices. Parts: `correct`."""
        named = _cut_remark(text.rstrip()).replace("\\_", "_")
        named = _FIRST.sub(_name_first, _NAMED.sub(_name_answer, named))
        named = _SOUND.sub("not", _NONE.sub("the answer is ", named))
        named = _AT_FAULT.sub(lambda match: f"{match[1] or match[2]} fault ", named)
        return grade_final_answer(
            problem, named, read_index, _compare, needs="the index of a step, or -1,"
        )

    def solve(self, problem: Problem, seed: int) -> str | None:
        return None if problem.answer is None else f"\\boxed{{{problem.answer}}}"


def read_index(span: str) -> int | None:
    """Read the index of a step, bare or named.

    >>> read_index("3"), read_index("paragraph_3"), read_index("-1"), read_index("-2")
    (3, 3, -1, None)
    >>> read_index('{"first_error": 3, "reason": "4 + 9 is 13"}')
    3
    """
    if span.startswith("{"):
        return _in_object(span)
    if "\\" in span:
        span = re.sub(r"\\[lr]angle\b|~", " ", strip_markup(span).replace("\\_", "_"))
    plain = " ".join(span.replace("*", "").split()).strip("$` ").replace("\N{MINUS SIGN}", "-")
    match = _INDEX.fullmatch(plain[1:-1] if plain[:1] == "(" and plain[-1:] == ")" else plain)
    if match is None or _TAKES_BACK.search(match["aside"] or ""):
        return None
    return int(match[1])


def _in_object(span: str) -> int | None:
    """Read the only index among the values of an object, if its name says that it is the answer."""
    fields = parse_literal(span)
    if not isinstance(fields, dict):
        return None
    texts = {name: value for name, value in fields.items() if isinstance(value, str)}
    indices = {
        name: index
        for name, value in texts.items()
        if value[:1] != "{" and (index := read_index(value)) is not None
    }
    names = [name.replace(" ", "_").replace("-", "_") for name in indices]
    is_only = len(names) == 1 and len(texts) == len(fields) and _FIELD.fullmatch(names[0])
    if any(map(_TAKES_BACK.search, texts.values())):
        return None
    return next(iter(indices.values())) if is_only else None


def _name_answer(match: re.Match[str]) -> str:
    """Write the words that introduce the index; after another clause, they start a sentence."""
    return ". The answer is " if match["part"] else "the answer is "


def _name_first(match: re.Match[str]) -> str:
    """Write `paragraph 3 has the first error: it adds` as an answer, unless it is taken back."""
    why = match["why"] or ""
    is_more = _TAKES_BACK.search(why) or re.search(r"\b(?:paragraph|step)", why, re.IGNORECASE)
    return match[0] if is_more else f"the answer is {match[1]}"


def _cut_remark(text: str) -> str:
    """Cut off the reason after an index that ends a text, unless it takes the index back.

    >>> _cut_remark("3, since the sum is wrong."), _cut_remark("3, as it seems, or 4")
    ('3', '3, as it seems, or 4')
    """
    start = max(text.rfind("\n", 0, -1) + 1, len(text) - _MAX_LINE)
    remark = _REMARK.search(text, start)
    if remark is None or _TAKES_BACK.search(remark[0]):
        return text
    return text[: remark.end(2)] + text[remark.end() :]


def _compare(answer: int, gold: int) -> tuple[dict[str, float], str]:
    return {}, "the first wrong step" if answer == gold else "not the first wrong step"
