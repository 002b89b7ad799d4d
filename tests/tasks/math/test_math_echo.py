"""A right value that is no answer: the question again, or the gold answer written twice."""

from dataclasses import replace

import pytest
from math_problems import problem, rows

from whet.answers.sentences import find_formulas
from whet.tasks.math import Math, MathConfig
from whet.tasks.math.echo import is_written_alike
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
        ("92", r"Compute $23\times4$.", r"\boxed{23\cdot 4}"),
        ("92", "What is 23 times 4?", r"\boxed{4\times23}"),
        ("120", "Compute 5!", r"\boxed{5!}"),
        ("70", r"Find $\dbinom{8}{4}$.", r"\boxed{\binom{8}{4}}"),
        ("(-5,5)", "Solve $|x|<5$.", r"\boxed{5>|x|}"),
        ("2x-y+1=0", "Write $y=2x+1$ in standard form.", r"\boxed{y=1+2x}"),
        ("2x+6", "Expand $2(x+3)$.", r"\boxed{2(3+x)}"),
        ("(x-2)(x+2)", "Factor $(x+1)(x-1)-3$.", r"\boxed{x^2-4}"),
        ("0.625", r"Convert $\frac{5}{8}$ to a decimal.", r"\boxed{\frac{5}{8}}"),
        (r"\frac{\pi}{4}", r"Convert $45^\circ$ to radians.", r"\boxed{45^\circ}"),
        (r"\frac14", "Write $0.25$ as a fraction.", r"\boxed{0.25}"),
        ("10", r"Compute $\sum_{k=1}^{4} k$.", r"\boxed{\sum_{k=1}^{4} k}"),
        (
            r"\log_6\frac{1}{36}=-2",
            r"Evaluate $\log_6\frac{1}{36}$.",
            r"\boxed{\log_6\frac{1}{36}}",
        ),
        ("10", r"Compute $\sum_{k=1}^{4} k$.", r"\boxed{1+2+3+4}"),
        ("4,9", "Work out $2^2, 3^2$.", r"\boxed{(2^2, 3^2)}"),
        ("x^2+2x+1", "Expand $(x+1)^2$.", r"\boxed{(x+1)(1+x)}"),
        ("144", "What is 12 times 12?", r"\boxed{12^2}"),
        (r"5\sqrt{2}", r"Simplify $\sqrt{50}$.", r"\boxed{50^{1/2}}"),
        ("44", r"Evaluate $\lfloor\sqrt{2023}\rfloor$.", r"\boxed{\lfloor 2023^{1/2}\rfloor}"),
        ("5", "Find gcd(10, 35).", r"\boxed{\gcd(35,10)}"),
        ("5050", r"Compute $\sum_{k=1}^{100} k$.", r"\boxed{\sum_{n=1}^{100} n}"),
    ],
)
def test_the_expression_of_the_question_is_no_answer(gold: str, prompt: str, text: str) -> None:
    assert grade(gold, prompt, text) == (Verdict.WRONG, "the question again, not worked out")


SPELLINGS = ["23+4", "(23+4)", "x=23+4", "4+23", "23+4+0", r"1\cdot(23+4)", r"\frac{2(23+4)}{2}"]
SPELLINGS += ["|23+4|", r"\lfloor 4+23\rfloor", r"\sqrt{(23+4)^2}", "23-(-4)"]


@pytest.mark.parametrize("prompt", ["Compute $23+4$.", "What is 23 + 4?", "Work out $y=4+23$."])
@pytest.mark.parametrize("echo", SPELLINGS)
def test_an_echo_is_wrong_in_every_spelling(prompt: str, echo: str) -> None:
    assert grade("27", prompt, rf"\boxed{{{echo}}}")[0] is Verdict.WRONG
    assert grade("27", prompt, r"\boxed{27}")[0] is Verdict.CORRECT
    assert grade("27", prompt, r"\boxed{23+4=27}")[0] is Verdict.CORRECT


@pytest.mark.parametrize("echo", SPELLINGS)
def test_a_setting_and_a_payload_let_an_echo_be_right(echo: str) -> None:
    asked = replace(problem("27"), prompt=(Message(role="user", content="Compute $23+4$."),))
    text = rf"\boxed{{{echo}}}"

    assert Math().score(asked, text).verdict is Verdict.WRONG
    assert Math(MathConfig(echo="right")).score(asked, text).verdict is Verdict.CORRECT
    allowed = replace(asked, payload={"echo": "right"})
    assert Math().score(allowed, text).verdict is Verdict.CORRECT


@pytest.mark.parametrize("name", ["college_math", "math_train", "math500"])
def test_formulas_of_real_prompts_solve_no_problem(name: str) -> None:
    task = Math()
    solved = []
    for row in rows(name)[:200]:
        question = row.get("problem") or row["question"]
        asked = replace(problem(row["answer"]), prompt=(Message(role="user", content=question),))
        assert task.score(asked, rf"\boxed{{{row['answer']}}}").verdict is Verdict.CORRECT
        for formula in find_formulas(question):
            echo = rf"\boxed{{({formula.text})}}"
            is_solved = task.score(asked, echo).verdict is Verdict.CORRECT
            if is_solved and not is_written_alike(formula.text, row["answer"]):
                solved.append((question, formula.text))
    assert solved == []


@pytest.mark.parametrize(
    ("gold", "prompt", "text"),
    [
        ("2x-y+1=0", "Write $y=2x+1$ in standard form.", r"\boxed{2x-y=-1}"),
        ("(-5,5)", "Solve $|x|<5$.", r"\boxed{-5<x<5}"),
        ("ab+ac", "Expand $a(b+c)$.", r"\boxed{ca+ba}"),
        ("90", r"One angle is $90^\circ$. Which is the largest?", r"\boxed{90^\circ}"),
        ("0.5", r"Which is larger, $\frac{1}{2}$ or $\frac{1}{3}$?", r"\boxed{\frac{1}{2}}"),
        ("x^2-1", "Which is even, $x^2 - 1$ or $x^3$?", r"\boxed{x^2-1}"),
        ("12", "Is it $12$ or $13$?", r"\boxed{12}"),
        ("x^2", r"Simplify $x\cdot x$.", r"\boxed{x^2}"),
        ("5", "What is $|-5|$?", r"\boxed{5}"),
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
