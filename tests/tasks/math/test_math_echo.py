"""A right value that is no answer: the question again, or the reference written twice."""

from dataclasses import replace

import pytest
from math_problems import problem

from whet.tasks.math import Math
from whet.types import Message, Verdict


def grade(gold: str, prompt: str, text: str) -> tuple[Verdict, str]:
    score = Math().score(
        replace(problem(gold), prompt=(Message(role="user", content=prompt),)), text
    )
    return score.verdict, score.note


@pytest.mark.parametrize(
    ("gold", "prompt", "text"),
    [
        (
            "3",
            r"Compute $\frac{1}{31} \div \frac{1}{93}$.",
            r"\boxed{\frac{1}{31}\div\frac{1}{93}}",
        ),
        ("4t", "Simplify $3t+4-6t+7t-4$.", r"\boxed{3t+4-6t+7t-4}"),
        (r"\frac{4}{11}", r"Simplify $\frac{8}{22}$.", r"The answer is $\frac{8}{22}$."),
        ("(x-1)(x+1)", "Factor $x^2-1$.", r"\boxed{x^2-1}"),
        ("123", r"Find $76-(-4\cdot8-2)+13.$", r"Find $76-(-4\cdot8-2)+13.$"),
    ],
)
def test_the_expression_of_the_question_is_no_answer(gold: str, prompt: str, text: str) -> None:
    assert grade(gold, prompt, text) == (Verdict.WRONG, "the question again, not worked out")


@pytest.mark.parametrize(
    ("gold", "prompt", "text"),
    [
        ("0.5", r"Which is larger, $\frac{1}{2}$ or $\frac{1}{3}$?", r"\boxed{\frac{1}{2}}"),
        ("x^2-1", "Which is even, $x^2 - 1$ or $x^3$?", r"\boxed{x^2-1}"),
        ("12", "Is it $12$ or $13$?", r"\boxed{12}"),
        ("1+x", r"Simplify $\frac{(x+1)^2}{x+1}$.", r"\boxed{x+1}"),
    ],
)
def test_an_answer_that_the_question_names_is_right(gold: str, prompt: str, text: str) -> None:
    assert grade(gold, prompt, text)[0] is Verdict.CORRECT


@pytest.mark.parametrize(
    ("gold", "twice"),
    [
        (
            r"\begin{pmatrix}0&0\\0&0\end{pmatrix}",
            r"\begin{pmatrix}0&0\\0&0\end{pmatrix} \begin{pmatrix}0&0\\0&0\end{pmatrix}",
        ),
        (r"$(-\infty, 0) \cup\{1\}$.", r"$(-\infty, 0) \cup\{1\}$. $(-\infty, 0) \cup\{1\}$."),
        ("MR=SRMC", "MR=SRMC MR=SRMC"),
        ("1", "1 1"),
    ],
)
def test_the_reference_written_twice_is_wrong(gold: str, twice: str) -> None:
    assert grade(gold, "", rf"\boxed{{{gold}}}")[0] is Verdict.CORRECT
    assert grade(gold, "", rf"\boxed{{{twice}}}")[0] is Verdict.WRONG


def test_a_product_of_equal_factors_is_still_a_product() -> None:
    assert grade("(x+1)^2", "", r"\boxed{(x+1) (x+1)}")[0] is Verdict.CORRECT
