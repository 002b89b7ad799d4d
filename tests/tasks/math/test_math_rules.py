"""Every rule of comparing, both ways; from the settings and from a problem's payload."""

import pytest
from math_problems import is_right, problem, verdict

from whet.errors import DataError
from whet.tasks.math import Math, MathConfig
from whet.types import Json, Verdict

RULES = [
    ({"percent": "unit"}, "10", r"10\%", True),
    ({"percent": "unit"}, "0.1", r"10\%", False),
    ({"percent": "value"}, "0.1", r"10\%", True),
    ({"percent": "value"}, "10", r"10\%", False),
    ({"percent": "both"}, "0.1", r"10\%", True),
    ({"percent": "both"}, "10", r"10\%", True),
    ({"percent": "both"}, "1000", r"10\%", False),
    ({"units": "agree"}, r"10\text{ cm}", "10", True),
    ({"units": "agree"}, r"10\text{ cm}", r"10\text{ m}", False),
    ({"units": "ignore"}, r"10\text{ cm}", r"10\text{ m}", True),
    ({"units": "same"}, r"10\text{ cm}", "10", False),
    ({"units": "same"}, r"10\text{ cm}", "10 centimeters", True),
    ({"order": "free"}, "1, 2, 3", "1, 3, 2", True),
    ({"order": "fixed"}, "1, 2, 3", "1, 3, 2", False),
    ({"order": "fixed"}, r"\{1, 2, 3\}", r"\{1, 3, 2\}", True),
    ({"order": "free"}, "(1, 2, 3)", "(1, 3, 2)", False),
    ({"names": "drop"}, "x=2", "2", True),
    ({"names": "keep"}, "x=2", "2", False),
    ({"names": "keep"}, "x=2", "x = 2", True),
    ({"rounded_digits": 6}, r"\sqrt{2}", "1.41421", True),
    ({"rounded_digits": 6}, r"\sqrt{2}", "1.4142", False),
    ({"rounded_digits": 4}, r"\sqrt{3}", "1.732", True),
    ({"rounded_digits": 0}, r"\sqrt{2}", "1.4142135623730951", False),
    ({"tolerance": 0.0}, r"\frac{100}{3}", "33.3", False),
    ({"tolerance": 0.01}, r"\frac{100}{3}", "33.3", True),
    ({"tolerance": 0.01}, "100", "102", False),
    ({"tolerance": 0.01}, "(1/3, 1/5)", "(0.333, 0.2)", True),
]


@pytest.mark.parametrize(("settings", "gold", "answer", "expected"), RULES)
def test_a_setting_decides(
    settings: dict[str, object], gold: str, answer: str, expected: bool
) -> None:
    assert is_right(gold, answer, MathConfig.model_validate(settings)) is expected


def test_a_problem_may_set_its_own_rules() -> None:
    assert not is_right("0.1", r"10\%")
    assert is_right("0.1", r"10\%", percent="value")
    assert is_right("1, 2", "2, 1") and not is_right("1, 2", "2, 1", order="fixed")
    assert is_right("3.14159", "3.14", error=0.01) and not is_right("3.14159", "3.1", error=0.01)
    assert is_right("300", "301", tolerance=0.01) and not is_right("300", "301")


def test_a_problem_may_widen_the_tolerance_of_the_task_and_not_narrow_it() -> None:
    rules = MathConfig(tolerance=0.01)

    assert is_right("300", "301", rules, tolerance=0.0001)
    assert is_right("300", "305", rules, tolerance=0.02) and not is_right("300", "305", rules)


def test_no_reference_is_unscored_and_one_that_is_not_read_is_compared_by_its_words() -> None:
    assert verdict(r"\foo(", r"\boxed{3}") is Verdict.WRONG
    assert verdict(r"\foo(", r"\boxed{\foo(}") is Verdict.CORRECT
    assert verdict(" ", r"\boxed{3}") is Verdict.UNSCORED


def test_any_of_several_references_is_right() -> None:
    assert is_right("1/2", "7", answers=["7", "8"])
    assert not is_right("1/2", "9", answers=["7", "8"])
    assert verdict(None, r"\boxed{8}", answers=["7", "8"]) is Verdict.CORRECT


@pytest.mark.parametrize(
    "payload", [{"percent": "often"}, {"tolerance": -1}, {"error": "small"}, {"answers": [3]}]
)
def test_a_payload_that_cannot_be_used_names_the_problem(payload: dict[str, Json]) -> None:
    with pytest.raises(DataError, match="math/test"):
        Math().score(problem("1", **payload), r"\boxed{1}")


def test_a_problem_without_reference_is_not_scored() -> None:
    assert verdict("", r"\boxed{42}") is Verdict.UNSCORED
    assert Math().solve(problem(None), 0) is None


def test_solve_boxes_the_reference() -> None:
    assert Math().solve(problem(r"\frac12"), 0) == r"\boxed{\frac12}"
    assert list(Math().problems("test")) == []
