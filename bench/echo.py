"""How many problems are solved by handing back a formula of the prompt.

    python bench/echo.py [--data ../shared/data] [--files college_math math_train math500] [--show]

Each formula of a prompt, bare numbers and names aside, is put in a box in several spellings. A row
is solved by echo where one of them is right; rows whose reference is a formula of the prompt, or
the value that an equation of it states, are counted apart as `named`: there the echo is the answer.
`open` is the share with `echo` set to `right`. References are graded in a box.
"""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path

from whet.tasks.math import Math, MathConfig
from whet.tasks.math.echo import is_atom, is_written_alike, literal_nodes, prompt_formulas
from whet.types import Message, Problem, Verdict

ROOT = Path(__file__).parents[1]
FIELDS = ("problem", "question", "content")
SPELLINGS = ("{}", "({})", "{}+0", r"1\cdot({})", "x={}")
GUARDED = Math()
OPEN = Math(MathConfig(echo="right"))


@dataclass(kw_only=True)
class Counts:
    num_rows: int = 0
    num_right: int = 0
    """References in a box that are right."""
    num_named: int = 0
    """Rows whose reference is a formula of the prompt."""
    num_open: int = 0
    num_solved: int = 0


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--data", type=Path, default=ROOT / ".." / "shared" / "data")
    options.add_argument("--files", nargs="+", default=["college_math", "math_train", "math500"])
    options.add_argument("--show", action="store_true", help="print the rows solved by echo")
    given = options.parse_args()
    print(f"{'':<14} {'rows':>5} {'reference right':>16} {'named':>8} {'open':>8} {'solved':>8}")
    for name in given.files:
        counts = count_rows(given.data / f"{name}.jsonl", shows=given.show)
        shares = [
            number / counts.num_rows
            for number in (counts.num_right, counts.num_named, counts.num_open, counts.num_solved)
        ]
        right, named, unguarded, solved = (f"{share:.2%}" for share in shares)
        print(f"{name:<14} {counts.num_rows:>5} {right:>16} {named:>8} {unguarded:>8} {solved:>8}")


def count_rows(path: Path, *, shows: bool) -> Counts:
    counts = Counts()
    for line in path.read_text().splitlines():
        problem = to_problem(json.loads(line))
        if problem is None:
            continue
        counts.num_rows += 1
        counts.num_right += is_right(GUARDED, problem, problem.answer or "")
        formulas = [
            formula
            for formula in prompt_formulas(problem.prompt[0].content)
            if not any(map(is_atom, literal_nodes(formula)))
        ]
        if any(is_written_alike(formula, problem.answer or "") for formula in formulas):
            counts.num_named += 1
            continue
        echoes = [spelling.format(formula) for formula in formulas for spelling in SPELLINGS]
        counts.num_open += any(is_right(OPEN, problem, echo) for echo in echoes)
        solving = [echo for echo in echoes if is_right(GUARDED, problem, echo)]
        counts.num_solved += bool(solving)
        if shows and solving:
            print(f"{problem.prompt[0].content!r}\n  {problem.answer!r}\n  {solving}")
    return counts


def to_problem(row: dict[str, str]) -> Problem | None:
    question = next((row[name] for name in FIELDS if row.get(name)), None)
    if question is None or not row.get("answer"):
        return None
    return Problem(
        id="echo",
        task="math",
        prompt=(Message(role="user", content=question),),
        answer=str(row["answer"]),
        payload={},
        level=None,
        split="test",
        source="bench",
    )


def is_right(task: Math, problem: Problem, answer: str) -> bool:
    return task.score(problem, rf"\boxed{{{answer}}}").verdict is Verdict.CORRECT


if __name__ == "__main__":
    main()
