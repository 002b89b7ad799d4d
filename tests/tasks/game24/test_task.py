import time
from dataclasses import replace

import pytest
from pydantic import ValidationError

from whet.errors import DataError
from whet.tasks.base import Task
from whet.tasks.game24 import Game24, Game24Config
from whet.tasks.game24.hands import HANDS
from whet.types import SPLITS, Problem, Verdict

FORMATS = ("v0", "v0l", "v1", "v2", "v3", "v4")


def test_problems_are_the_same_every_time_and_in_one_split_only():
    task = Game24(Game24Config(unsolvable=True))
    problems = [problem for split in SPLITS for problem in task.problems(split)]
    assert problems == [problem for split in SPLITS for problem in task.problems(split)]
    assert len({problem.id for problem in problems}) == len(problems) == 1820
    assert all(Problem.from_json(problem.to_json()) == problem for problem in problems)


def test_unsolvable_hands_are_asked_only_when_wanted():
    assert sum(1 for _ in Game24().problems("test")) == 409
    problems = list(Game24(Game24Config(unsolvable=True)).problems("test"))
    assert len(problems) == 409 + 138
    assert {(problem.answer, problem.level is None) for problem in problems} == {
        ("24", False),
        ("no solution", True),
    }


def test_a_problem_asks_the_numbers_in_a_fixed_order_that_can_be_changed():
    task = Game24()
    hand = (1, 2, 6, 13)
    orders = {task.problem(hand, order).prompt[0].content for order in range(200)}
    assert len(orders) == 24
    assert {task.problem(hand, order).id for order in range(5)} == {task.problem(hand).id}
    assert task.problem(hand).prompt[0].content == " ".join(
        map(str, task.problem(hand).payload["numbers"])
    )


def test_a_varied_problem_is_the_same_hand_in_another_order():
    task = Game24()
    problem = task.problem((1, 2, 6, 13))
    varied = [task.vary(problem, seed) for seed in range(20)]
    assert len({each.prompt for each in varied}) > 5
    assert {each.id for each in varied} == {problem.id}
    assert all(sorted(each.payload["numbers"]) == [1, 2, 6, 13] for each in varied)


def test_numbers_are_not_always_in_rising_order():
    asked = [problem.payload["numbers"] for problem in Game24().problems("dev")]
    assert sum(numbers == sorted(numbers) for numbers in asked) < 20


@pytest.mark.parametrize("format", FORMATS)
def test_gold_responses_are_right_and_follow_the_seed(format):
    task: Task = Game24(Game24Config(format=format, unsolvable=True))
    for problem in list(task.problems("dev"))[::3]:
        text = task.solve(problem, 1)
        score = task.score(problem, text)
        assert (score.verdict, score.parts["process"]) == (Verdict.CORRECT, 1.0)
        assert text == task.solve(problem, 1)


def test_longer_lengths_write_more_lines():
    problem = Game24().problem((3, 3, 8, 8))
    lines = {
        length: sum(
            Game24(Game24Config(format="v2", length=length)).solve(problem, seed).count("\n")
            for seed in range(30)
        )
        for length in ("short", "medium", "long")
    }
    assert lines["short"] < lines["medium"] < lines["long"]


def test_a_score_states_its_parts():
    task = Game24()
    problem = task.problem((1, 6, 8, 13))
    score = task.score(problem, "13 - 1 = 12\n12 - 8 = 4\n6 * 4 = 24")
    assert dict(score.parts) == {
        "correct": 1.0,
        "process": 1.0,
        "progress": 1.0,
        "length": 1.0,
        "lines": 3.0,
        "finished": 1.0,
    }
    assert score.answer == "13 - 1 = 12; 12 - 8 = 4; 6 * 4 = 24"
    wrong = task.score(problem, "13 - 1 = 12\n12 - 8 = 5")
    assert dict(wrong.parts) == {
        "correct": 0.0,
        "process": 0.5,
        "progress": pytest.approx(1 / 3),
        "length": 0.0,
        "lines": 2.0,
        "finished": 0.0,
    }


def test_steps_carry_the_graders_word_on_each_line():
    task = Game24()
    notes = task.comment(task.problem((1, 6, 8, 13)), "13 - 1 = 12\n12 - 8 = 5")
    assert [(note.line, note.is_right, note.note) for note in notes] == [
        ("13 - 1 = 12", True, "right"),
        ("12 - 8 = 5", False, "false arithmetic: 12 - 8 is 4, not 5"),
    ]


@pytest.mark.parametrize("format", FORMATS)
def test_instructions_explain_the_format_in_a_system_message(format):
    system, user = (
        Game24(Game24Config(format=format, instructions=True)).problem((1, 6, 8, 13)).prompt
    )
    assert (system.role, user.role) == ("system", "user")
    assert "24" in system.content and "no solution" in system.content


def test_the_instructions_show_lines_the_grader_takes():
    for format in FORMATS:
        task = Game24(Game24Config(format=format, instructions=True))
        problem = task.problem((1, 6, 8, 13))
        shown = [
            line
            for line in problem.prompt[0].content.split("`")[1::2]
            if line.startswith(("13 - 1", "(13) - (1)"))
        ]
        assert len(shown) == 1
        assert task.comment(problem, shown[0])[0].is_right


def test_problems_without_numbers_are_refused_in_one_sentence():
    task = Game24()
    for numbers in (None, [1, 2, 3], [1, 2, 3, True], "1 2 3 4"):
        broken = replace(task.problem((1, 6, 8, 13)), payload={"numbers": numbers})
        with pytest.raises(DataError, match="four whole numbers"):
            task.score(broken, "24")


@pytest.mark.parametrize("numbers", [[0, 1, 2, 3], [1, 2, 3, 14]])
def test_what_is_not_a_hand_is_refused_in_one_sentence(numbers):
    broken = replace(Game24().problem((1, 6, 8, 13)), payload={"numbers": numbers})
    with pytest.raises(DataError, match="a hand is four whole numbers from 1 to 13"):
        Game24().vary(broken, 1)


def test_unknown_formats_are_refused():
    with pytest.raises(ValidationError):
        Game24Config.model_validate({"format": "v9"})


def test_five_thousand_answers_are_scored_in_a_second():
    task = Game24()
    pairs = [
        (task.problem(hand), task.solve(task.problem(hand), seed))
        for hand in HANDS[::20]
        for seed in range(5)
    ]
    start = time.process_time()  # whoever else is on the machine
    for problem, text in pairs * 5:
        task.score(problem, text)
    assert len(pairs) * 5 / (time.process_time() - start) > 5_000


def test_wide_searches_show_from_a_few_to_over_sixty_steps():
    task = Game24(Game24Config(format="v4", depth=2, length="wide"))
    problem = task.problem((3, 3, 8, 8))
    shown = [task.solve(problem, seed).count(" = ") for seed in range(200)]
    assert min(shown) <= 8 and max(shown) >= 60
    assert 70 < sum(steps < 25 for steps in shown) < 140
