"""A check finds the graders that are fooled, and holds nothing against those that are not."""

import json
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from troublesome import Hangs

from whet.errors import DataError
from whet.grading.check_task import (
    HUGE,
    MAX_LATE,
    GradingFailure,
    Variant,
    check_grader,
    parse_number,
    spoil_gold,
)
from whet.grading.limits import GradingConfig, describe_timeout
from whet.tasks.base import Task
from whet.tasks.game24.task import Game24, Game24Config
from whet.testing.fakes import SumTask, sum_problem
from whet.types import Problem, Score, Verdict

SUMS = [sum_problem(left, left + 2) for left in range(2, 9)]
HERE = GradingConfig(workers=0)


def check(
    task: Task, problems: Sequence[Problem], limits: GradingConfig | None = None
) -> list[GradingFailure]:
    return list(check_grader(task, problems, limits=limits).failures)


class Boxed(SumTask):
    """Reads the last box of a response, and is right; the gold is a sentence with a box in it."""

    def solve(self, problem: Problem, seed: int) -> str | None:
        return f"So we find \\boxed{{{problem.answer}}}."

    def read(self, text: str) -> str | None:
        _, box, rest = text.rpartition("\\boxed{")
        return rest.partition("}")[0] if box and "}" in rest else None

    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return (
            read is not None
            and parse_number(read) is not None
            and parse_number(read) == parse_number(problem.answer or "")
        )

    def score(self, problem: Problem, text: str) -> Score:
        read = self.read(text)
        right = self.is_right(problem, text, read)
        verdict = Verdict.CORRECT if right else Verdict.NO_ANSWER if read is None else Verdict.WRONG
        return Score(verdict=verdict, parts={"correct": float(right)}, answer=read)


class TakesAnything(Boxed):
    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return True


class TakesAnyNumber(Boxed):
    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return read is not None and parse_number(read) is not None


class TakesNothing(Boxed):
    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return text == ""


class TakesHundredfold(Boxed):
    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        values = parse_number(read or ""), parse_number(problem.answer or "")
        return values[0] is not None and values[0] in (values[1], 100 * (values[1] or 0))


class TakesStart(Boxed):
    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return read is not None and read.startswith(problem.answer or "")


class TakesDigits(Boxed):
    """Ignores the sign, so an answer out of range is right now and then."""

    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        value = parse_number(read or "")
        return value is not None and (
            abs(value) - 1 == int(problem.answer or 0) or str(value) == problem.answer
        )


class TakesVerdicts(Boxed):
    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return super().is_right(problem, text, read) or '"verdict": "correct"' in text


class TakesMention(Boxed):
    """Right where the sum stands anywhere, as it does in these prompts."""

    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return super().is_right(problem, text, read) or text.startswith("Is it ")


class TakesLong(Boxed):
    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return super().is_right(problem, text, read) or len(text) > 100_000


class Raises(Boxed):
    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        return 1 / len(text) > 0 and super().is_right(problem, text, read)


class Contradicts(Boxed):
    def score(self, problem: Problem, text: str) -> Score:
        return replace(super().score(problem, text), parts={"correct": 1.0})


class WrongGold(Boxed):
    def solve(self, problem: Problem, seed: int) -> str | None:
        return f"\\boxed{{{problem.answer}0}}"


def kinds(task: SumTask, problems: list[Problem] | None = None) -> set[Variant]:
    return {failure.variant for failure in check(task, problems or SUMS, limits=HERE)}


def test_sound_graders_pass() -> None:
    game = Game24(Game24Config(unsolvable=True))

    assert check(SumTask(), SUMS, limits=HERE) == []
    assert check(Boxed(), SUMS, limits=HERE) == []
    assert check(game, list(game.problems("rl"))[:60]) == []


@pytest.mark.parametrize(
    ("task", "found"),
    [
        (WrongGold(), {Variant.GOLD}),
        (TakesNothing(), {Variant.GOLD, Variant.EMPTY}),
        (TakesHundredfold(), {Variant.SHIFTED}),
        (TakesDigits(), {Variant.OUTSIDE}),
        (TakesVerdicts(), {Variant.VERDICT}),
        (TakesLong(), {Variant.HUGE}),
        (Raises(), {Variant.EMPTY}),
        (TakesAnyNumber(), {Variant.OTHER, Variant.SHIFTED, Variant.OUTSIDE}),
    ],
)
def test_each_fault_is_found_and_named(task: SumTask, found: set[Variant]) -> None:
    assert kinds(task) == found


def test_a_grader_that_reads_the_start_takes_doubled_answers() -> None:
    assert Variant.DOUBLED in kinds(TakesStart())


def test_a_grader_that_takes_anything_fails_in_every_way() -> None:
    assert kinds(TakesAnything()) == set(Variant) - {Variant.GOLD}


def test_a_grader_that_takes_the_prompt_is_found() -> None:
    asked = [
        replace(each, prompt=(replace(each.prompt[0], content=f"Is it \\boxed{{{each.answer}}}?"),))
        for each in SUMS
    ]

    # Every prompt holds its answer here, so it is no chance that the grader reads it there.
    assert kinds(TakesMention(), asked) == {Variant.ECHO}
    assert kinds(Boxed(), asked) == {Variant.ECHO}
    # One prompt in seven may.
    assert kinds(Boxed(), [asked[0], *SUMS[1:]]) == set()


def test_parts_that_contradict_the_verdict_are_a_failure() -> None:
    failures = check(Contradicts(), SUMS[:1], limits=HERE)

    assert {failure.variant for failure in failures} >= {
        Variant.EMPTY,
        Variant.VERDICT,
        Variant.RANDOM,
    }
    assert all(failure.score.verdict is not Verdict.CORRECT for failure in failures)


def test_a_failure_says_which_row_and_what_was_written() -> None:
    row = replace(SUMS[0], source_id="17")

    (failure,) = check(WrongGold(), [row], limits=HERE)

    assert str(failure) == f"{row.id} (row 17): gold '\\\\boxed{{60}}' is graded wrong"


def test_long_texts_are_shortened_when_told() -> None:
    failures = check(TakesLong(), SUMS[:1], limits=HERE)

    assert [failure.text for failure in failures] == list(HUGE)
    assert all(len(str(failure)) < 200 and "characters" in str(failure) for failure in failures)


class Halves(Boxed):
    """Some rows say 1/2 and others 0.5."""

    def read(self, text: str) -> str | None:
        found = super().read(text)
        return None if found is None else f"<{found}>"

    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        value = parse_number((read or "").strip("<>"))
        return value is not None and value == parse_number(problem.answer or "")


def test_equal_answers_in_other_words_are_chance() -> None:
    rows = [
        replace(SUMS[0], id="a", answer="1/2"),
        replace(SUMS[1], id="b", answer="0.5"),
        *SUMS[2:],
    ]

    assert kinds(Halves(), rows) == set()


class ManyRight(Boxed):
    """Any number that leaves the remainder of the sum by eleven is right."""

    has_one_answer = False

    def is_right(self, problem: Problem, text: str, read: str | None) -> bool:
        value = parse_number(read or "")
        return (
            value is not None and 0 <= value < 100 and (value - int(problem.answer or 0)) % 11 == 0
        )


def test_another_answer_may_be_right_where_many_are() -> None:
    rows = [
        replace(SUMS[0], id=str(answer), answer=str(answer))
        for answer in (3, 14, 5, 6, 7, 8, 9, 10)
    ]

    assert Variant.OTHER not in kinds(ManyRight(), rows)


class Silent(Boxed):
    def solve(self, problem: Problem, seed: int) -> str | None:
        if problem.answer == "6":
            raise DataError("no such sum")
        return None if problem.answer == "8" else super().solve(problem, seed)


class Polite(Boxed):
    """Any text that is long enough and has no comma follows its instructions."""

    has_one_answer = False
    has_unrelated_answers = True
    takes_echo = False

    def solve(self, problem: Problem, seed: int) -> str | None:
        return "Welcome to our house."

    def score(self, problem: Problem, text: str) -> Score:
        is_echo = text == problem.prompt[0].content and not self.takes_echo
        right = bool(text.strip()) and "," not in text and not is_echo
        verdict = Verdict.CORRECT if right else Verdict.WRONG
        return Score(verdict=verdict, parts={"correct": float(right)}, answer=text)


class TakesEcho(Polite):
    takes_echo = True


class Unwelcoming(Polite):
    def solve(self, problem: Problem, seed: int) -> str | None:
        return "Welcome, guest."


def test_any_text_may_follow_instructions_but_the_prompt_and_the_wrong_gold() -> None:
    assert check(Polite(), SUMS, HERE) == []
    assert {failure.variant for failure in check(TakesEcho(), SUMS, HERE)} == {Variant.ECHO}
    assert {failure.variant for failure in check(Unwelcoming(), SUMS, HERE)} == {Variant.GOLD}


def test_rows_without_gold_are_counted_and_broken_ones_are_failures() -> None:
    proof = check_grader(Silent(), SUMS, limits=HERE)

    assert (proof.num_problems, proof.num_without_gold) == (7, 1)
    assert [(failure.problem.answer, failure.score.note) for failure in proof.failures] == [
        ("6", "no such sum")
    ]
    assert str(proof).startswith("7 problems, 1 with no gold, ")
    assert str(proof).endswith("1 failure in 1 of them")


def test_no_failure_is_said_too() -> None:
    told: list[int] = []

    proof = check_grader(SumTask(), SUMS[:2], limits=HERE, advance=told.append)

    assert str(proof) == f"2 problems, {proof.num_responses} responses graded: no failure"
    assert sum(told) == proof.num_responses


def test_a_grader_that_hangs_on_random_text_does_not_hang_the_check() -> None:
    task = Hangs()

    failures = check(task, task.problems("rl")[:1], limits=GradingConfig(workers=2, wall=0.1))

    assert {failure.variant for failure in failures} == {Variant.RANDOM}
    assert {failure.score.note for failure in failures} == {"grading took more than 0.1 s"}


class HangsOffGold(Boxed):
    """Takes too long over all but golds."""

    def score(self, problem: Problem, text: str) -> Score:
        if text == self.solve(problem, 0):
            return super().score(problem, text)
        return Score(verdict=Verdict.UNSCORED, parts={}, note=describe_timeout(HERE))


class HangsOnGold(HangsOffGold):
    def score(self, problem: Problem, text: str) -> Score:
        return super().score(problem, "")


@pytest.mark.parametrize(("task", "num_golds"), [(HangsOnGold(), 0), (HangsOffGold(), 7)])
def test_a_grader_that_hangs_is_tried_no_further_than_a_few_times(
    task: Task, num_golds: int
) -> None:
    proof = check_grader(task, SUMS, limits=HERE)

    assert proof.num_responses == num_golds + MAX_LATE
    assert len(proof.failures) == MAX_LATE and proof.num_without_gold == 0


class Fails(Boxed):
    def score(self, problem: Problem, text: str) -> Score:
        raise ValueError("too bad")


def test_a_grader_that_fails_at_once_is_tried_on_everything() -> None:
    assert check_grader(Fails(), SUMS, limits=HERE).num_responses > 100


def test_checks_are_the_same_every_time() -> None:
    first, again = (check_grader(TakesAnything(), SUMS, limits=HERE, seed=3) for _ in range(2))

    assert first == again


def test_gold_is_spoiled_where_its_answer_stands() -> None:
    made = dict(spoil_gold("We get \\boxed{12}.", "12"))

    assert made == {
        Variant.TRUNCATED: "We get \\boxed{",
        Variant.DOUBLED: "We get \\boxed{12 12}.",
        Variant.SHIFTED: "We get \\boxed{12000}.",
        Variant.OUTSIDE: "We get \\boxed{-13}.",
    }


def test_a_program_that_begins_with_a_comment_is_not_doubled() -> None:
    made = dict(spoil_gold("```python\n# why\nx = 1\n```", "# why\nx = 1"))
    assert Variant.DOUBLED not in made
    assert Variant.DOUBLED in dict(spoil_gold("```python\nx = 1\n```", "x = 1"))


def test_an_answer_that_is_not_in_the_gold_is_spoiled_by_itself() -> None:
    made = dict(spoil_gold("one\ntwo\n", "B"))

    assert made == {Variant.TRUNCATED: "one\n", Variant.DOUBLED: "B B", Variant.OUTSIDE: "Q"}
    assert json.dumps(made)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("12", 12),
        ("-1,200", -1200),
        ("$3.50", Fraction(7, 2)),
        ("1/2", Fraction(1, 2)),
        ("x", None),
        ("9" * 40, None),
    ],
)
def test_plain_numbers_are_read(text: str, value: Fraction | None) -> None:
    assert parse_number(text) == value
