"""ProcessBench: name the first wrong step of a solution, or say that there is none.

answer   the index of the first wrong step, from 0; -1 where all are right
payload  {"f1": {"subset": "gsm8k", "half": "error" or "correct"}}: evaluations report the F1 of a
         subset, the harmonic mean of the accuracies on its halves (Zheng et al. 2024)
"""

import re
from typing import Literal

from whet.answers.doubt import CHOICE, TURN, UNSURE, any_of
from whet.config import Config
from whet.tasks.base import FileTask
from whet.tasks.generated import grade_final_answer
from whet.types import Problem, Score

_INDEX = re.compile(
    r"<?(?:(?:step|paragraph|index)[ _]?)?(?:number |no\. |#)?(-1|[0-9]{1,4})>?\.?",
    re.IGNORECASE | re.ASCII,
)
_AT_FAULT = re.compile(
    r"(\b(?:paragraph|step|(?:it|this|that)(?= (?:is|was) \w+ (?:because|since|as)\b))"
    r"(?:[ _]?[0-9]{1,4})?>?(?:, [^\n,]{1,80},| \([^\n()]{1,80}\))?"
    r" (?:is|was|seems|looks)(?: (?!answer)\w+){0,5})"
    r" (?:wrong|incorrect|false|mistaken|invalid|untrue|not (?:right|correct|true|valid))\b"
    r"|(\bthe (?:first |earliest )?)"
    r"(?:mistake(?= (?:is|lies)\b)|(?:wrong|incorrect|faulty|false) (?=paragraph|step))",
    re.IGNORECASE,
)
"""A wrong step is what is asked for: such a word in front of an index denies nothing."""
_FAULT = r"(?:error|mistake|fault|flaw|(?:wrong|faulty|incorrect|false|bad) (?:step|paragraph|one))"
_NAMED = re.compile(
    rf"\bthe (?:first|earliest|only) {_FAULT}"
    r" (?:is|occurs|appears|lies|comes|sits|is made)(?: in| at| with)? (?=<?(?:paragraph|step)[ _])"
    r"|\bit (?:first )?goes wrong (?:in|at|with) (?=<?(?:paragraph|step)[ _])",
    re.IGNORECASE,
)
"""Such words lead to the index as `the answer is` does."""
_FIRST = re.compile(
    r"<?\b(?:paragraph|step)[ _]([0-9]{1,4})>? (?:is|has|holds|contains) "
    rf"the (?:first|earliest|only) {_FAULT}(?=\W{{0,4}}\Z)",
    re.IGNORECASE,
)
_REMARK = re.compile(
    r"(?<![\w.])((?:-|\N{MINUS SIGN})1|[0-9]{1,4})([\])}>*`$]{0,6})"
    r"(?: \((?:no|all|every|there (?:is|are) no|since|as|because|where)\b[^\n()]{1,120}\)"
    r"|(?:,| ?[—–]| -|:|;) ?(?:as|since|because|where|for|all|every|no|there (?:is|are) no)"
    r"\b[^\n]{1,200})(?=\W{0,4}\Z)",
    re.IGNORECASE,
)
"""Behind an index a remark says what it means, or what is wrong there."""
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
        named = _FIRST.sub(r"the answer is \1", _NAMED.sub("the answer is ", named))
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
    """
    match = _INDEX.fullmatch(span.strip().replace("\N{MINUS SIGN}", "-"))
    return None if match is None else int(match[1])


def _cut_remark(text: str) -> str:
    """Cut off the reason behind an index that ends a text, unless it takes the index back.

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
