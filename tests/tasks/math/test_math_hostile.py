"""Answers written to hang, crash or fool a grader; and the rules of others that they did fool."""

import random
import string
import time
from pathlib import Path

import pytest
from math_problems import is_right, problem, verdict

from whet.tasks.math import Math
from whet.types import Verdict

HOSTILE = {
    "power tower": r"\boxed{9^{9^{9^{9}}}}",
    "flat power tower": r"\boxed{9^9^9^9^9^9}",
    "huge factorial": r"\boxed{999999999!}",
    "factorial of factorials": r"\boxed{((((9!)!)!)!)!}",
    "huge binomial": r"\boxed{\binom{10^9}{5\cdot 10^8}}",
    "exponentials": r"\boxed{e^{e^{e^{e^{10}}}}}",
    "huge argument": r"\boxed{\sin(10^{1000})}",
    "huge exponent": r"\boxed{1e999999999}",
    "huge floor": r"\boxed{\lfloor 10^{100000}\pi \rfloor}",
    "huge remainder": r"\boxed{7^{10^{10}} \bmod 13}",
    "million digits": "9" * 1_000_000,
    "million digits boxed": r"\boxed{" + "9" * 1_000_000 + "}",
    "long sum": r"\boxed{" + "1+" * 400_000 + "1}",
    "deep brackets": r"\boxed{" + "(" * 100_000 + "1" + ")" * 100_000 + "}",
    "deep fractions": r"\boxed{" + r"\frac{1}{" * 250 + "1" + "}" * 250 + "}",
    "bare fractions": r"\boxed{" + r"\frac" * 500 + "1}",
    "many signs": r"\boxed{" + "-" * 2000 + "1}",
    "many bars": r"\boxed{" + "|" * 2000 + "}",
    "many plus-minus": r"\boxed{" + r"\pm 1" * 500 + "}",
    "many items": r"\boxed{\{" + ",".join(map(str, range(600))) + r"\}}",
    "open boxes": r"\boxed{" * 100_000,
    "dollars": "$1" * 200_000,
    "marks": "the answer is " * 50_000,
    "part without a value": r"\boxed{\dots\sum\left(y\pi\bmod\lim_{x \to 0}\sqrt9999\right)}",
    "code": r"\boxed{__import__('os').system('touch marker')}",
    "code too": r"\boxed{\text{open('marker', 'w').write('x')} or 42}",
}


@pytest.mark.parametrize("name", HOSTILE)
@pytest.mark.parametrize("gold", ["42", "9613", r"x^2+\sqrt{2}"])
def test_hostile_answers_are_wrong_soon(
    gold: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    start = time.process_time()

    assert verdict(gold, HOSTILE[name]) in (Verdict.WRONG, Verdict.NO_ANSWER)

    assert time.process_time() - start < 5
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("step", [r"\lfloor x/1000+%d/10^7\rfloor", "|x-%d|"])
def test_a_set_of_many_steps_of_an_unknown_is_compared_soon(step: str) -> None:
    steps = [step % number for number in range(60)]
    start = time.process_time()

    assert not is_right(rf"\{{{', '.join(steps)}\}}", rf"\{{{', '.join([*steps[1:], '7'])}\}}")

    assert time.process_time() - start < 20


@pytest.mark.parametrize("answer", [r"\frac\binom0.i", r"\binom1.2", r"\frac3.", r"\frac1."])
def test_a_number_cut_before_its_point_breaks_no_grader(answer: str) -> None:
    assert verdict("x^2-2x-15", rf"\boxed{{{answer}}}") is Verdict.WRONG


def test_a_matrix_without_cells_is_no_answer() -> None:
    for gold in ("(1, 2)", r"\{1\}", r"\begin{pmatrix}1\\2\end{pmatrix}", "7"):
        assert not is_right(gold, r"\begin{pmatrix}\end{pmatrix}")


def test_a_tower_is_still_the_same_tower() -> None:
    assert is_right("9^{9^{9^{9}}}", "9^{9^{9^9}}")
    assert is_right(r"\frac{1}{2004!}", "1/2004!")
    assert not is_right("10^{10^{10^{10}}}", "10^{10}")


def test_random_texts_never_raise_and_are_never_right() -> None:
    source, task = random.Random(0), Math()
    golds = [
        problem(gold)
        for gold in (r"\frac{173}{29}", r"(-\infty, 733]", r"3\sqrt{733}x+1", "Tuesday")
    ]
    pieces = [
        r"\boxed{",
        "}",
        r"\frac{",
        "{",
        "(",
        ")",
        "[",
        "]",
        ",",
        "^",
        "_",
        "$",
        "answer is ",
        "<answer>",
        "</answer>",
    ]
    pieces += [
        *string.digits,
        *"+-*/=<>!%|&x",
        " ",
        "\n",
        r"\sqrt",
        r"\pi",
        r"\text{",
        r"\begin{pmatrix}",
        r"\\",
        "é",
        "\x00",
    ]
    for number in range(2000):
        text = "".join(source.choices(pieces, k=source.randrange(1, 24)))
        assert task.score(golds[number % 4], text).verdict is not Verdict.CORRECT, text


def loose(a: float, b: float) -> bool:
    """The numeric rule of Reasoning360 and RLinf: 1e-4 relative, also for a hundredth and a
    hundredfold."""
    return any(abs(a - scale * b) <= 1e-4 * abs(scale * b) for scale in (0.01, 1, 100))


@pytest.mark.parametrize(
    ("gold", "answer"), [("500", "5"), ("50", "0.5"), ("5", "500"), ("10000", "10001")]
)
def test_answers_off_by_a_hundredfold_or_a_little_are_wrong(gold: str, answer: str) -> None:
    assert loose(float(gold), float(answer))
    assert not is_right(gold, answer)


def test_an_answer_inside_the_thinking_part_fooled_the_last_boxed_rule() -> None:
    text = r"<think>maybe \boxed{7}</think> I do not know."
    assert text.rpartition("boxed{")[2].partition("}")[0] == "7"
    assert verdict("7", text) is not Verdict.CORRECT


def test_numeric_answers_to_pi_questions_are_graded() -> None:
    assert is_right(r"2\pi", "6.283185307")
    assert not is_right(r"2\pi", "6.283")


def test_quoting_a_verdict_or_the_question_is_no_answer() -> None:
    for text in (
        "CORRECT",
        r"\boxed{CORRECT}",
        "Final Decision: Yes",
        r"\boxed{What is 6 times 7?}",
        "the same as the gold answer",
    ):
        assert verdict("42", text) is not Verdict.CORRECT
