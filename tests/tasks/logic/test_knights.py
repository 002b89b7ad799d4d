"""Knights and knaves: the grader on real rows and on hedges, the truth tables against the real
statements."""

import ast
from itertools import pairwise, product

import pytest
from upstream import problem, rows

from whet.errors import DataError
from whet.tasks.logic.knights import Knights, roles_of, solutions
from whet.types import Json, Verdict

TASK = Knights()
GOLD = "(1) Ada is a knight\n(2) Boris is a knave\n(3) Carla is a knave"


def graded(response: str, gold: str = GOLD) -> tuple[Verdict, float]:
    score = TASK.score(problem("knights", gold), response)
    return score.verdict, score.parts["people"]


def listed(form: object) -> Json:
    return [listed(part) for part in form] if isinstance(form, tuple) else form  # type: ignore[return-value]


def test_every_real_gold_is_right_and_the_next_rows_is_not() -> None:
    table = rows("knights_knaves.jsonl")
    for row, following in zip(table, table[1:] + table[:1], strict=True):
        gold, other = row["solution_text_format"], following["solution_text_format"]
        assert graded(f"<answer>{gold}</answer>", gold)[0] is Verdict.CORRECT, row["id"]
        assert graded(f"<answer>{row['solution_text']}</answer>", gold)[0] is Verdict.CORRECT, row[
            "id"
        ]
        assert graded(f"<answer> {gold} </answer>", row["solution_text"])[0] is Verdict.CORRECT, (
            row["id"]
        )
        if other != gold:
            assert graded(f"<answer>{other}</answer>", gold)[0] is Verdict.WRONG, row["id"]


def test_the_real_statements_have_the_real_solution_and_no_other() -> None:
    for row in rows("knights_knaves.jsonl"):
        statements = [listed(form) for form in ast.literal_eval(row["statements"])]
        truth = sum(1 << person for person, is_knight in enumerate(row["solution"]) if is_knight)
        assert solutions(statements) == 1 << truth, row["id"]


def says(statement: Json, knights: tuple[bool, ...]) -> bool:
    """Judge a statement in one world, by its plain meaning."""
    assert isinstance(statement, list)
    kind, *rest = statement
    if kind in ("telling-truth", "lying"):
        return knights[int(str(rest[0]))] == (kind == "telling-truth")
    parts = [says(part, knights) for part in rest]
    match kind:
        case "not":
            return not parts[0]
        case "->":
            return parts[1] if parts[0] else True
        case "<=>":
            return parts[0] is parts[1]
        case _:
            return all(parts) if kind == "and" else any(parts)


@pytest.mark.parametrize("level", [0.1, 0.3, 0.5, 0.7, 0.9])
def test_generated_islands_have_one_solution_by_brute_force(level: float) -> None:
    for seed in range(5):
        made = TASK.generate(seed, level)
        forms, names = made.payload["statements"], made.payload["names"]
        assert isinstance(forms, list) and isinstance(names, list)
        worlds = [
            world
            for world in product((False, True), repeat=len(forms))
            if all(
                says(statement, world) is is_knight
                for statement, is_knight in zip(forms, world, strict=True)
            )
        ]
        assert len(worlds) == 1
        roles = roles_of(made.answer or "")
        assert roles is not None
        assert [roles[str(name).casefold()] == "knight" for name in names] == list(worlds[0])


@pytest.mark.parametrize(
    "answer",
    [
        "Ada is a knight, Boris is a knave, and Carla is a knave.",
        "1. Ada is a knight\n2. Boris is a knave\n3. Carla is a knave",
        "- **Carla**: knave\n- **Boris**: knave\n- **Ada**: knight",
        "(3) carla is a KNAVE; (1) ada is a knight; (2) boris is a knave",
        "Ada is a knight. Boris is a knave. Carla is a knave.",
    ],
)
def test_usual_ways_to_say_it_are_right(answer: str) -> None:
    assert graded(f"<answer>{answer}</answer>") == (Verdict.CORRECT, 1.0)


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        ("Ada is a knight, Boris is a knave", Verdict.WRONG),
        (GOLD + "\n(4) Dora is a knave", Verdict.WRONG),
        (GOLD.replace("Boris is a knave", "Boris is a knight"), Verdict.WRONG),
        (GOLD + "\n(2) Boris is a knight", Verdict.WRONG),
        (GOLD.replace("Boris is a knave", "Boris is a knave or a knight"), Verdict.NO_ANSWER),
        (GOLD.replace("Boris is a knave", "Boris is not a knave"), Verdict.WRONG),
        ("knight knave knave", Verdict.NO_ANSWER),
        ("", Verdict.NO_ANSWER),
    ],
)
def test_hedges_gaps_and_strangers_are_not_right(answer: str, verdict: Verdict) -> None:
    assert graded(f"<answer>{answer}</answer>")[0] is verdict


def test_the_share_of_people_told_right_is_stated() -> None:
    swapped = GOLD.replace("Ada is a knight", "Ada is a knave")
    verdict, people = graded(f"<answer>{swapped}</answer>")
    assert verdict is Verdict.WRONG and people == pytest.approx(2 / 3)


def test_bad_data_is_said_to_be_so() -> None:
    with pytest.raises(DataError, match="is a knight"):
        graded("x", gold="nobody")
    with pytest.raises(DataError, match="not a statement"):
        solutions([["perhaps", 1]])


def test_harder_islands_have_more_worlds_to_try_and_more_to_weigh() -> None:
    work = []
    for level in (0.1, 0.3, 0.5, 0.7, 0.9):
        forms = [TASK.generate(seed, level).payload["statements"] for seed in range(20)]
        work.append(
            sum(2 ** len(form) * str(form).count("[") for form in forms if isinstance(form, list))
        )
    assert all(harder > 2 * easier for easier, harder in pairwise(work)), work
