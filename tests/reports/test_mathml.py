"""Formulas on a page: what is drawn, what stays text, and that neither is ever markup of a model."""

import re
import time

import pytest

from whet.reports.mathml import show_math

TAGS = {
    *("math", "semantics", "annotation", "mrow", "mi", "mn", "mo", "mtext", "mspace"),
    *("mfrac", "msqrt", "mroot", "msup", "msub", "msubsup", "mover", "munder", "munderover"),
}


def drawn(text: str) -> str:
    """The formula alone, without its source."""
    match = re.fullmatch(r"<math[^>]*><semantics><mrow>(.*)</mrow><annotation.*", show_math(text))
    assert match is not None, f"{text} stayed text"
    return match[1]


@pytest.mark.parametrize(
    ("formula", "expected"),
    [
        ("$x^2$", "<msup><mi>x</mi><mn>2</mn></msup>"),
        (r"$\frac12$", "<mfrac><mn>1</mn><mn>2</mn></mfrac>"),
        (r"$\sqrt[3]{8}$", "<mroot><mrow><mn>8</mn></mrow><mrow><mn>3</mn></mrow></mroot>"),
        (r"$a_1^n$", "<msubsup><mi>a</mi><mn>1</mn><mi>n</mi></msubsup>"),
        (r"\(\alpha \le \pi\)", "<mi>α</mi><mo>≤</mo><mi>π</mi>"),
        (r"\boxed{24}", '<mrow class="boxed"><mrow><mn>24</mn></mrow></mrow>'),
        (r"$-3.5$", "<mo>−</mo><mn>3.5</mn>"),
        (r"$\text{if } x$", "<mtext>if\xa0</mtext><mi>x</mi>"),
        (r"$\left(x\right.$", "<mo>(</mo><mi>x</mi>"),
        (
            r"\[\sum_{i}^{n}\]",
            "<munderover><mo>∑</mo><mrow><mi>i</mi></mrow><mrow><mi>n</mi></mrow></munderover>",
        ),
    ],
)
def test_a_formula_is_drawn(formula: str, expected: str) -> None:
    assert drawn(formula) == expected


def test_the_source_of_a_formula_stays_in_the_page() -> None:
    assert '<annotation encoding="application/x-tex">x&lt;2</annotation>' in show_math("$x<2$")


@pytest.mark.parametrize(
    "text",
    [
        "It costs $5 and $6.",
        r"$\unknown{x}$",
        r"$\frac{a}$",
        "$x^$",
        "$a^b^c$",
        "$}{$",
        r"$\begin{matrix} 1 & 2 \end{matrix}$",
        "no formula at all",
        r"\boxed{",
    ],
)
def test_what_is_not_known_stays_as_it_was_written(text: str) -> None:
    assert show_math(text) == text.replace("&", "&amp;")


HOSTILE = [
    "$<script>alert(1)</script>$",
    r"\boxed{\text{<img src=x onerror=alert(1)>}}",
    r'$\operatorname{"onload="x}$',
    r"\[ </math><script>1</script> \]",
    "$x^{<!--}$ -->",
    "$\u202e\x00$",
]


@pytest.mark.parametrize("text", HOSTILE)
def test_no_tag_or_attribute_comes_from_the_text(text: str) -> None:
    page = show_math(text)
    assert set(re.findall(r"</?([A-Za-z!][^\s/>]*)", page)) <= TAGS
    attributes = {r"class=", r"encoding=", r"display=", r"width=", r"linethickness="}
    assert {
        name for tag in re.findall(r"<[^>]*>", page) for name in re.findall(r"\w+=", tag)
    } <= attributes
    assert "\u202e" not in page and "\x00" not in page


@pytest.mark.parametrize(
    "text",
    [
        "$" + "{" * 900 + "}" * 900 + "$",
        "$" + r"\sqrt" * 300 + "$",
        "$" + r"\frac" * 300 + "x$",
        r"\[" * 900,
        r"\boxed{" * 280,
        "$" * 1999,
        "$x^" * 600,
    ],
)
def test_a_text_written_to_hurt_takes_no_time_and_stays_text(text: str) -> None:
    start = time.process_time()
    assert "<mfrac>" not in show_math(text)
    assert time.process_time() - start < 1.0
