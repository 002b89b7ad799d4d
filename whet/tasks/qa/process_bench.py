"""ProcessBench: name the first wrong step of a solution, or say that there is none.

answer   the index of the first wrong step, from 0; -1 where all are right
payload  {"f1": {"subset": "gsm8k", "half": "error" or "correct"}}: evaluations report the F1 of a
         subset, the harmonic mean of the accuracies on its halves (Zheng et al. 2024)
"""

import re
from typing import Literal

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
_NO_FAULT = re.compile(
    r"(?<=[-−]1)(\W{0,4}) \((?:no|all|every|there (?:is|are) no|since|as)\b[^\n()]{1,80}\)"
    r"(?=\W{0,4}\Z)",
    re.IGNORECASE,
)
"""Behind -1 a remark says what it means."""


class ProcessBenchConfig(Config):
    name: Literal["process_bench"] = "process_bench"


class ProcessBench(FileTask):
    """Grades the index of a step; its problems come from files."""

    name = "process_bench"
    is_bounded = True
    config: ProcessBenchConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare indices. Parts: `correct`."""
        named = _AT_FAULT.sub(lambda match: f"{match[1] or match[2]} fault ", text)
        named = _NO_FAULT.sub(r"\1", named).replace("\\_", "_")
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


def _compare(answer: int, gold: int) -> tuple[dict[str, float], str]:
    return {}, "the first wrong step" if answer == gold else "not the first wrong step"
