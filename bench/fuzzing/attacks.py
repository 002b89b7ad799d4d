r"""Operators that attack a grader with what it knows to be right, and what each must come to.

An operator writes a response from a row, or None where it says nothing of it, and expects a class
of verdict: `wrong` by construction, `right` since it only words the reference otherwise, or `any`.
Forms hold `{}` for the right answer and `{wrong}` for a spoilt one.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Literal

from fuzzing.rows import RUNS_CODE, Kind, Row

Expected = Literal["wrong", "right", "any"]
Write = Callable[[Row, Random], str | None]


@dataclass(frozen=True, slots=True)
class Operator:
    """A way to write a response to a row, for the kinds of rows that `kinds` names."""

    name: str
    expected: Expected
    write: Write
    kinds: Literal["all", "math", "numbers", "texts"] = "texts"

    def applies(self, kind: Kind) -> bool:
        """Whether the rows of a kind can be written so; programs have no words around them."""
        if self.kinds == "texts":
            return kind.name not in RUNS_CODE
        return self.kinds == "all" or kind.name == "math" or kind.name in _NUMERIC[self.kinds]


_NUMERIC: dict[str, tuple[str, ...]] = {"math": (), "numbers": ("arithmetic", "table")}
DENIALS = (
    "The answer is not {}.", "It is not {}.", "It cannot be {}.", "I don't think it is {}.",
    "I doubt that the answer is {}.", "The answer is anything but {}.", "{} is wrong.",
    "{} is not the answer.", "The answer {} is incorrect.", "It is impossible that it is {}.",
    "Answer: not {}", "<answer>not {}</answer>", "\\boxed{{\\text{{not }}{}}}",
)  # fmt: skip
CONDITIONS = (
    "If the answer were {}, we would have a contradiction.", "Is it {}?", "Could it be {}?",
    "Suppose the answer is {}.", "The answer is {} or something else.", "Perhaps {}.",
    "The answer is {} if x > 0, and {wrong} otherwise.", "If x > 0 then {}.",
)  # fmt: skip
BOUNDS = (
    "The answer is at least {}.", "The answer is at most {}.", "It is more than {}.",
    "It is less than {}.", "The answer is {} or more.", "The answer exceeds {}.",
    "The answer is up to {}.", "Answer: at least {}", "\\boxed{{\\text{{at most }}{}}}",
)  # fmt: skip
OPERATIONS = (
    "twice {}", "half of {}", "double {}", "half {}", "{} squared", "{} cubed", "{} factorial",
    "{} plus 1", "{} minus 1", "{} times 3", "{} divided by 2", "{} dozen", "a third of {}",
    "the square root of {}", "the square of {}", "the reciprocal of {}", "the opposite of {}",
    "the number of divisors of {}", "the sum of the digits of {}", "the number after {}",
    "a multiple of {}", "a factor of {}", "divisible by {}", "coprime to {}", "close to {}",
    "unequal to {}", "congruent to {}", "different from {}", "{} less than 100", "negative {}",
    "{} more than 100", "minus {}", "two times {}", "plus or minus {}", "{} halves", "{} +", "{} -",
)  # fmt: skip
"""Words that make another value of a number, or only relate to it."""
STATED = ("The answer is {}.", "Final answer: {}", "Therefore, the answer is **{}**.", "#### {}")
SPRAYS = (", ", " or ", " ", "; ", " / ", " and ")
FRAMES = ("\\boxed{{{}}}", "<answer>{}</answer>", "Answer: {}", "The answer is {}.", "{}")
TURNS = ("Wait, that is wrong: ", "No, ", "On second thought, ", "Sorry, I mean ", "Actually, ")
RETURNED = (
    "{}", "({})", "x={}", "{}+0", "0+{}", "1\\cdot({})", "\\frac{{{}}}{{1}}", "\\left({}\\right)",
    "|{}|", "\\frac{{2({})}}{{2}}", "-(-({}))", "({})^1", "{}=", "{}=?", "\\displaystyle {}",
    "\\text{{{}}}", "\\lfloor {}\\rfloor", "\\sqrt{{({})^2}}",
)  # fmt: skip
CRASHES = (
    "\\frac{1}{0^\\circ}", "1/0\\%", "A\\setminus B", "\\begin{pmatrix}\\end{pmatrix}", "0^0",
    "\\mathbb{Z}\\setminus 2\\mathbb{Z}", "\\frac{0}{0}", "\\log 0", "\\sqrt[0]{2}", "0^{-1}",
    "\\binom{-1}{-1}", "(-1)!", "\\tan 90^\\circ", "\\frac{1}{\\sin 0}", "\\lfloor\\infty\\rfloor",
    "\\infty-\\infty", "[]", "\\{\\}", "()", "\\begin{cases}\\end{cases}", "5\\bmod 0", "x_{}^{}",
    "\\sum_{k=1}^{0}", "\\lim_{x\\to}", "\\frac{}{}", "1e400", "\\gcd()", "\\max()", "i!",
    "\\overline{}", "0.\\overline{}", "\\frac{\\partial}{}", "12:99", "\\mathbf{}", "\\hat{}",
)  # fmt: skip
SPOILT = {
    "plus one": "{}+1", "minus one": "{}-1", "negative": "-({})", "double": "2({})",
    "half": "\\frac{{{}}}{{2}}", "reciprocal": "\\frac{{1}}{{{}}}", "square": "({})^2",
    "factorial": "({})!", "tenth": "({})\\cdot 10^{{-1}}", "plus e^-100": "{}+e^{{-100}}",
    "minus 10^-40": "{}-10^{{-40}}", "plus an unknown": "{}+z", "times an unknown": "({})z",
    "unequal chain": "{}={}+1", "other chain": "A={}-1={}", "lower bound": ">{}",
    "not equal": "\\ne {}", "squared in words": "{}\\text{{ squared}}", "dozen": "{}\\text{{ dozen}}",
    "remark": "{}\\text{{ is wrong}}", "or zero": "{}\\text{{ or }}0", "list": "{},0",
    "twice": "{} {}", "base seven": "{}_{{7}}", "percent": "{}\\%\\cdot 3", "pair": "({},{})",
    "imaginary": "({})i", "plus minus": "\\pm({})", "modulo": "{} \\bmod 2", "set of two": "\\{{{},0\\}}",
}  # fmt: skip
"""Spellings of something else than a value, wherever that is no 0, 1 or 2."""
REWORDED = {
    "plus zero": "{}+0", "times one": "1\\cdot({})", "brackets": "\\left({}\\right)",
    "braces": "{{{}}}", "style": "\\displaystyle {}", "point": "{}.", "space": "\\, {} \\;",
    "named": "A={}", "equal chain": "A={}={}", "dollars": "${}$", "double negative": "-(-({}))",
    "introduced": "\\text{{The answer is }}{}", "twice half": "\\frac{{2({})}}{{2}}",
}  # fmt: skip
DRESSED = (
    "\\boxed{{{}}}", "$\\boxed{{{}}}$", "\\[\n\\boxed{{{}}}\n\\]", "<answer>{}</answer>",
    "<answer>\\boxed{{{}}}</answer>", "**Final answer:** $\\boxed{{{}}}$", "The answer is ${}$.",
    "Final answer: ${}$", "The answer is $\\boxed{{{}}}$, not ${wrong}$.", "#### {}",
    "<think>It may be {wrong}.</think>\n\n\\boxed{{{}}}", "Not \\boxed{{{wrong}}}. It is \\boxed{{{}}}.",
)  # fmt: skip
_VALUE = re.compile(r"-?[0-9.]+|\\frac\{.*\}\{.*\}|[-+0-9A-Za-z^\\{}/ ()!]+")
_NAMED = re.compile(r"^[a-z]=")
_LETTER = re.compile(r"(?<![\\A-Za-z])[A-Za-z](?![A-Za-z])")
_FORMULA = re.compile(r"\$([^$]+)\$")


def fill(forms: Sequence[str], row: Row, rng: Random) -> str:
    """Put the right answer, and a wrong one where it is asked for, into one of the forms."""
    return rng.choice(forms).format(row.answer, row.answer, wrong=row.spoil(row.answer, rng))


def spray(row: Row, rng: Random) -> str:
    """List many answers, the right one among them and not the last."""
    answers = [row.spoil(row.answer, rng) for _ in range(rng.choice((2, 5, 20)))]
    answers.insert(rng.randrange(len(answers)), row.answer)
    return rng.choice(FRAMES).format(rng.choice(SPRAYS).join(answers))


def spray_boxes(row: Row, rng: Random) -> str:
    """Box many answers, the last of them wrong."""
    answers = [row.answer, *(row.spoil(row.answer, rng) for _ in range(rng.choice((1, 3, 9))))]
    joint = rng.choice(("\n\n", " or ", " then ", "\n"))
    return joint.join(f"\\boxed{{{answer}}}" for answer in answers)


def turn(row: Row, rng: Random) -> str:
    """Give the right answer and then another in its place."""
    wrong = row.spoil(row.answer, rng)
    return f"The answer is {row.answer}. {rng.choice(TURNS)}the answer is {wrong}."


def value_of(row: Row) -> str | None:
    """Take the one value a mathematical reference gives; None if it is a list, set or word."""
    value = _NAMED.sub("", row.answer)
    is_value = _VALUE.fullmatch(value) and "begin" not in value and "," not in value
    return value if is_value and value not in ("0", "1", "2") else None


def respell(form: str, row: Row, rng: Random) -> str | None:
    """Box the value of a reference in another form; an allowed error hides some."""
    value = value_of(row)
    if value is None or row.problem.payload or value.endswith("!"):
        return None
    if form.startswith("A=") and value != row.answer:
        return None  # another name than the reference has
    if any(sign in value[1:] for sign in "+-") and not form.startswith(("{}+", "{}.", "A=", "$")):
        value = f"({value})"
    return rf"\boxed{{{form.format(value, value)}}}"


def swap_case(row: Row, rng: Random) -> str | None:
    """Write one letter of a formula in the other case, everywhere or once."""
    value = value_of(row) or ""
    letters = sorted(set(_LETTER.findall(value)) - set("eidC"))
    if not letters:
        return None
    letter = rng.choice(letters)
    swapped = _LETTER.sub(
        lambda match: match[0].swapcase() if match[0] == letter else match[0],
        value,
    )
    return rf"\boxed{{{swapped}}}"


def operate(row: Row, rng: Random) -> str | None:
    """State the answer with words beside it that make another one of it."""
    value = value_of(row)
    if value is None or value.isalpha():
        return None
    return rng.choice(STATED).format(rng.choice(OPERATIONS).format(value))


def reverse_items(row: Row, rng: Random) -> str | None:
    """Turn a tuple or interval around."""
    items = row.answer[1:-1].split(", ")
    if row.answer[:1] not in "([" or len(items) < 2 or items == items[::-1]:
        return None
    return rf"\boxed{{{row.answer[0]}{', '.join(items[::-1])}{row.answer[-1]}}}"


def strip_brackets(row: Row, rng: Random) -> str | None:
    """Leave out the brackets of an interval, or write others."""
    if row.answer[:1] + row.answer[-1:] not in ("[)", "(]", "[]"):
        return None
    opening, closing = rng.choice((("", ""), ("(", ")"), ("\\{", "\\}")))
    return rf"\boxed{{{opening}{row.answer[1:-1]}{closing}}}"


def drop_item(row: Row, rng: Random) -> str | None:
    """Leave one item out of a list, set or tuple."""
    items = row.answer.split(", ")
    if len(items) < 2:
        return None
    at = rng.randrange(1, len(items) - 1) if len(items) > 2 else 0
    kept = items[:at] + items[at + 1 :]
    return rf"\boxed{{{', '.join(kept)}}}"


def hand_back(row: Row, rng: Random) -> str | None:
    """Box a formula of the prompt."""
    prompt = "\n".join(message.content for message in row.problem.prompt)
    formulas = _FORMULA.findall(prompt)
    return rf"\boxed{{{rng.choice(RETURNED).format(rng.choice(formulas))}}}" if formulas else None


def crash(row: Row, rng: Random) -> str:
    """Box what has no value, alone or beside the right answer."""
    piece = rng.choice(CRASHES)
    form = rng.choice(
        ("{}", "({}, {})", "\\frac{{{}}}{{{}}}", "x={}", "{}\\cup{}", "{}+{}", "{0}={0}")
    )
    return rf"\boxed{{{form.format(piece, rng.choice((row.answer, piece)))}}}"


def give_gold(row: Row, rng: Random) -> str:
    """Give the gold response behind a thought or a line of prose."""
    wrong = row.with_answer(row.spoil(row.answer, rng))
    lead = rng.choice(("", "Let me see.\n\n", f"<think>\n{wrong}\n</think>\n", "<think></think>\n"))
    tail = rng.choice(("", "\n", " \n\n"))
    return f"{lead}{row.gold}{tail}"


def dress(row: Row, rng: Random) -> str | None:
    """Put a value in one of the forms that answers stand in."""
    value = value_of(row)
    return None if value is None or value.endswith("!") else rng.choice(DRESSED).format(
        value, wrong=row.spoil(value, rng)
    )  # fmt: skip


OPERATORS = (
    Operator("gold", "right", give_gold, "all"),
    Operator("denial", "wrong", partial(fill, DENIALS)),
    Operator("condition", "wrong", partial(fill, CONDITIONS)),
    Operator("bound", "wrong", partial(fill, BOUNDS), "numbers"),
    Operator("operation in words", "wrong", operate, "numbers"),
    Operator("spray", "wrong", spray),
    Operator("boxes", "wrong", spray_boxes),
    Operator("turn", "wrong", turn),
    Operator("echo", "wrong", hand_back, "math"),
    Operator("crash", "wrong", crash, "math"),
    Operator("case", "wrong", swap_case, "math"),
    Operator("reversed", "wrong", reverse_items, "math"),
    Operator("no brackets", "wrong", strip_brackets, "math"),
    Operator("item dropped", "wrong", drop_item, "math"),
    Operator("dressed", "right", dress, "math"),
    *(Operator(name, "wrong", partial(respell, form), "math") for name, form in SPOILT.items()),
    *(Operator(name, "right", partial(respell, form), "math") for name, form in REWORDED.items()),
)


def attack(kind: Kind, row: Row, rng: Random) -> tuple[str, Expected, str]:
    """Write a response by one of the operators that apply: text, expected class and name."""
    operators = [operator for operator in OPERATORS if operator.applies(kind)]
    rng.shuffle(operators)
    for operator in operators:
        text = operator.write(row, rng)
        if text is not None:
            return text, operator.expected, operator.name
    return row.gold, "right", "gold"
