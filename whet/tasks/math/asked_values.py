"""Values that a question asks for one by one: `Compute $d(6), d(16)$, and $d(72)$`.

A bare list must keep the order of the question. Values with names may come in any order: `d(16) =
1, d(6) = 1/3, ...`, or one box for each on a line of its own.
"""

import re
from functools import lru_cache

from whet.answers.doubt import CHOICE, CONTRACTION, DENIAL, FALSE, TURN, UNSURE, any_of
from whet.answers.final_answer import Span, find_boxes
from whet.tasks.math.parser import readings

MAX_VALUES = 12
MAX_QUESTION = 8000
"""Only this many characters at the end of a question are searched for what it asks for."""
MAX_ANSWER = 2000
"""The values of longer answers are not reordered."""

_VERB = r"\b(?:find|compute|determine|calculate|evaluate|what (?:is|are)|solve for)"
_FORMULA = (
    r"(?:\$[^$\n]{1,120}\$|\\\([^\n]{1,120}?\\\)"
    r"|(?<![A-Za-z0-9\\])[A-Za-z](?:_?[0-9])?(?:\([-+0-9a-z.*/^]{1,20}\))?(?![A-Za-z0-9]))"
)
_ASKS = re.compile(
    rf"{_VERB}\s+(?:the )?(?:(?:exact|numerical) )?(?:values? of )?(?:both )?"
    r"(?:(?:the )?(?:constants|coefficients|unknowns) )?"
    rf"({_FORMULA}(?:(?:\s*[,;]\s*(?:and\s+)?|\s+and\s+){_FORMULA}){{0,{MAX_VALUES}}}+)"
    r"(?=\s*(?:[.?:;,!]|\Z|(?:if|when|where|such|so|given|for|in|at|using|as|to|by|with|from|that"
    r"|which|correct|rounded)\b))",
    re.IGNORECASE,
)
"""What a question asks for, as a list of formulas: `Find $a$, $b$ and $c$`."""
_ASKS_MORE = re.compile(rf"{_VERB}|\bhow (?:many|much|long)\b", re.IGNORECASE)
_AND = re.compile(r"\\text\s?\{\s?,?\s?and\s?\}|\band\b|;")
_NO_NAME = re.compile(
    r"[=<>]|\\(?:in|leq?|geq?|neq?|l?dots)(?![a-z])|\.\.\."
    r"|\\langle(?!.*\\rangle)|\A(?!.*\\langle).*\\rangle"
)
"""Something that is not a name: a condition, an ellipsis, or half of a bracket."""
_FILLER = r"(?:[\s{}]|\\(?:left|right)(?![a-z])|\\[,;:! ])*+"
r"""What may stand between the tokens of a name: spaces, braces, `\left`, `\,`."""
_TOKEN = re.compile(r"\\(?:left|right)(?![a-z])|\\[,;:! ]|[\s{}]|(\\[A-Za-z]+|.)")
_EQUALS = r"[\s{}$*]*+(?:\\\))?[\s&]*+(?:=|:)[\s$*&]*+"
_OPENING = re.compile(r"[\s$]*(?:\\begin\{(?:align|aligned|gather|gathered)\*?\})?[\s$]*\Z")
r"""What may precede the first name of an answer: `$`, `\begin{aligned}`."""
_MARGIN = re.compile(
    r"\A(?:[\s,;$&]|\\q?quad(?![a-z])|\\[,;: \\])+"
    r"|(?:[\s,;$&]|\\q?quad(?![a-z])|\\[,;: \\]|\\text\s?\{[\s,]*(?:and)?\s*\}|(?<![A-Za-z\\])and"
    r"|\\end\{[a-z]+\*?\})+\Z"
)
r"""What surrounds a value in a list: commas, `&`, `\quad`, `and`, `\end{aligned}`."""
_PROSE = re.compile(r"(?<![A-Za-z\\])[A-Za-z]{2,}")
_TURNS = re.compile(
    any_of(TURN, DENIAL, CHOICE, UNSURE, FALSE, "but|no|not|or") + f"|{CONTRACTION}", re.IGNORECASE
)
"""If one of these is beside or after a box, the boxes are not a list of values."""


@lru_cache(256)
def asked_values(prompt: str) -> tuple[str, ...]:
    """List the formulas whose values the question asks for last; empty unless there are several.

    >>> asked_values("Compute $f(1), f(2)$, and $f(3)$.")
    ('f(1)', 'f(2)', 'f(3)')
    """
    prompt = prompt[-MAX_QUESTION:]
    asked = list(_ASKS.finditer(prompt))
    if not asked or _ASKS_MORE.search(prompt, asked[-1].end()):
        return ()
    plain = re.sub(r"\\[(),;:! ]|\$", " ", asked[-1][1])
    names = tuple(name.strip() for name in _split(_AND.sub(",", plain)))
    are_names = not any(map(_NO_NAME.search, names))
    is_list = 1 < len(names) <= MAX_VALUES and len(set(names)) == len(names)
    return names if is_list and are_names else ()


def keeps_order(names: tuple[str, ...], golds: list[str]) -> bool:
    """Whether a gold answer lists one value for each name, and not every value is itself a list."""
    return any(
        reading.node.kind == "seq"
        and len(reading.node.args) == len(names)
        and not all(part.kind == "seq" for part in reading.node.args)
        for gold in golds
        for reading in readings(gold)
    )


def order_values(answer: str, names: tuple[str, ...]) -> str:
    """Put named values into the order of the question, and remove the names.

    >>> order_values("b = 2 and a = 7", ("a", "b")), order_values("7, 2", ("a", "b"))
    ('7, 2', '7, 2')
    """
    if len(answer) > MAX_ANSWER:
        return answer
    labels = [label for name in names for label in _label(name).finditer(answer)]
    if len(labels) != len(names):
        return answer
    starts = sorted(label.start() for label in labels)
    ends = dict(zip(starts, [*starts[1:], len(answer)], strict=True))
    values = [_MARGIN.sub("", answer[label.end() : ends[label.start()]]) for label in labels]
    is_whole = all(values) and _OPENING.match(answer[: starts[0]])
    are_names = [_label(name).match(label[0]) for name, label in zip(names, labels, strict=True)]
    return ", ".join(values) if is_whole and all(are_names) else answer


def find_named_boxes(text: str, names: tuple[str, ...]) -> Span | None:
    """Read one box for each value, its name before or inside it; None if there are other boxes."""
    boxes = [box for box in find_boxes(text) if box.text.strip()]
    if len(boxes) != len(names):
        return None
    end = 0
    value_by_name = {}
    for box in boxes:
        gap = text[end : box.start]
        line = gap[gap.rfind("\n") + 1 :] + box.text
        labels = [(name, label) for name in names for label in _label(name).finditer(line)]
        if len(labels) != 1 or _TURNS.search(line) or (end and _TURNS.search(gap)):
            return None
        name, label = labels[0]
        inside = len(line) - len(box.text)
        if _PROSE.search(line, label.end(), inside):
            return None
        value_by_name[name] = line[max(label.end(), inside) :].strip()
        end = box.end
    if len(value_by_name) != len(names) or _TURNS.search(text, end):
        return None
    values = ", ".join(value_by_name[name] for name in names)
    return Span(text=values, start=boxes[0].start, end=end)


@lru_cache(256)
def _label(name: str) -> re.Pattern[str]:
    """Match a name and the `=` or `:` after it, with any spacing."""
    tokens = (match[1] for match in _TOKEN.finditer(name))
    spelled = _FILLER.join(re.escape(token) for token in tokens if token)
    return re.compile(rf"(?<![A-Za-z0-9_^)}}\\]){spelled}{_EQUALS}")


def _split(text: str) -> list[str]:
    """Split at the commas outside brackets, and drop empty pieces."""
    pieces = [""]
    depth = 0
    for sign in text:
        depth += (sign in "([{") - (sign in ")]}")
        if sign == "," and depth <= 0:
            pieces.append("")
        else:
            pieces[-1] += sign
    return [piece for piece in pieces if piece.strip()]
