"""Decide whether an answer only repeats the question: a formula of the prompt, not worked out.

Formulas are compared as mathematics with nothing worked out. Numbers above one are treated like
unknowns, so that order, brackets, + 0 and 2(23 + 4)/2 leave 23 + 4 the same formula, and 27 is a
different one. Other spellings make no difference either: a square as a product, a root as a power,
another index of a sum, bars or rounding around the whole. An answer that is shorter than the
formula it equals counts as work, and so does one that is written like the gold answer.

If the gold answer is a plain number, an answer that equals it but still has work left is wrong as
well: a sum or product of numbers, a root, a determinant, a function of numbers. A fraction, a mixed
number, a power of one number, a factorial, a binomial and their products have no work left: 5/4,
2^10, 3 x 10^8. If the gold answer is not a plain number and has no sines or cosines, a sine or
cosine of a number is work left: cos 150°. A product does not answer `expand`, and a sum does not
answer `factor`.
"""

import re
from collections.abc import Iterator
from functools import lru_cache

from whet.answers.sentences import find_formulas
from whet.tasks.math import tree
from whet.tasks.math.lexer import exact
from whet.tasks.math.numeric import same_value
from whet.tasks.math.parser import readings
from whet.tasks.math.respelling import normal
from whet.tasks.math.tree import Node, NotMathError
from whet.tasks.math.words import TRIGONOMETRIC

MAX_FORMULAS = 200
_FRACTION = re.compile(r"-?\s?(?:\\frac\{?[0-9]+\}?\{?([0-9]+)\}?|[0-9]+\s?/\s?([0-9]+))")
_UNMARKED = re.compile(
    r"(?:(?:\\[A-Za-z]+|[0-9]+(?:[.,][0-9]+)*|(?<![A-Za-z])[A-Za-z](?![A-Za-z])"
    r"|(?:gcd|lcm)\s?\([0-9, ]+\)|sqrt|sin|cos|tan|log|ln|[-+*/^=<>()\[\]{}|!_%−×÷·√π²³≤≥])\s*)+"
)
"""A run of signs, numbers and single letters in plain text."""
_SPOKEN = {" times ": " * ", " plus ": " + ", " minus ": " - ", " divided by ": " / "}
_DRAWING = re.compile(r"\[asy\].*?\[/asy\]", re.DOTALL)
_ARTICLE = re.compile(r"^[aAI]\s+")
_FRAME = re.compile(r"[\s(){}\[\]*]|\\(?:cdot|times|left|right)(?![a-zA-Z])")
"""Signs that do not matter when two formulas are compared as text."""
_FLIPPED = str.maketrans("<>", "><")
_INDEX = re.compile(r"_\{([a-z])=")
"""The start of a subscript that names an index: `_{n=`."""
_TWO = tree.symbol("2")
_HALF = tree.power(_TWO, tree.MINUS_ONE)
_WRAPPERS = ("abs", "floor", "ceil")
_FINAL_CALLS = ("percent", "degree", "factorial", "binom", "ratio", "modulo")
_OPERATION = re.compile(
    r"\\(?!frac|[dt]frac|text|mathrm|[,;!% ]|\$)[a-z]|[0-9})\]!]\s*[-+*/^]|[a-z]\("
)
"""Something left to compute: a command, an operator or a function of one letter."""
_SUM = re.compile(r"[0-9})\]!]\s*(?:\\(?:right|left)\s?[()]?\s*)?[-+]")
"""A sign between two terms; without one, an addition in the tree is a mixed number."""
_ONCE = re.compile(r"\^\s?(?:1(?![0-9])|\{\s?1\s?\})")
"""A first power, as in 7.2 x 10^1; it is replaced so that it is read like other powers."""
_EXPAND = re.compile(r"\bexpand(?:ed)?\b", re.IGNORECASE)
_FACTOR = re.compile(
    r"(?:^|[.:\n]\s*)factor(?:ize|ise)?\b|\bfactor(?:ize|ise|ed form| completely"
    r"| the (?:expression|polynomial|quadratic|following))",
    re.IGNORECASE,
)
_TRIGONOMETRIC = re.compile(rf"(?:{'|'.join(TRIGONOMETRIC)})(?![a-z])")
_SYMMETRIC = ("gcd", "lcm", "text lcm", "max", "min")


def is_echo(answer: str, golds: list[str], prompt: str) -> bool:
    """Whether an answer is a formula of the prompt that is not worked out and not written like a
    gold.

    >>> is_echo("(4+23)", ["27"], "What is 23 + 4?"), is_echo("27", ["27"], "What is 23 + 4?")
    (True, False)
    >>> is_echo("x+1", ["1+x"], "Is it $x+1$ or $x-1$?")
    False
    """
    if answer.lstrip("-").isdigit():
        return False
    plain = normal(answer)
    value = exact(plain)
    written = _FRACTION.fullmatch(plain)
    is_lowest = written and value and value.denominator == int(written[1] or written[2])
    if is_lowest and "decimal" not in prompt:
        return False  # a fraction in its lowest terms needs no work
    if any(is_written_alike(answer, gold) for gold in golds):
        return False
    formulas = prompt_formulas(prompt)
    nodes = literal_nodes(answer)
    has_work = _is_unfinished(answer, golds) or _has_open_angle(answer, golds)
    if has_work or _is_other_form(answer, golds, prompt):
        return True
    if not nodes:
        return any(_bare(formula) == _bare(answer) for formula in formulas)
    read = [node for formula in formulas for node in literal_nodes(formula)]
    asked = [part for node in read for part in _parts(node)]
    return any(_hands_back(node, asked) for node in nodes)


def _is_unfinished(answer: str, golds: list[str]) -> bool:
    """Whether the question asks for a number and the answer is an expression with that value."""
    if not _OPERATION.search(answer) or all(exact(gold) is None for gold in golds):
        return False
    has_sum = _SUM.search(answer) is not None
    literal = [reading.node for reading in readings(_ONCE.sub("^2", answer), literal=True)]
    if not literal or not all(_has_work_left(node, has_sum) for node in literal):
        return "matrix}" in answer and bool(literal)
    values = [tree.make_number(value) for gold in golds if (value := exact(gold)) is not None]
    ends = [(_values(reading.node) or [reading.node])[-1] for reading in readings(answer)]
    try:
        return any(same_value(end, value) is True for end in ends for value in values)
    except NotMathError:
        return False


def _has_open_angle(answer: str, golds: list[str]) -> bool:
    """Whether the answer keeps a sine or cosine of a number, and no gold answer has one: cos
    150°."""
    if not _TRIGONOMETRIC.search(answer) or any(map(_TRIGONOMETRIC.search, golds)):
        return False
    ends = [(_values(reading.node) or [reading.node])[-1] for reading in readings(answer)]
    return any(
        part.kind == "call" and part.name in TRIGONOMETRIC and _is_constant(part)
        for end in ends
        for part in tree.walk(end)
    )


def _has_work_left(node: Node, has_sum: bool) -> bool:
    if node.kind == "relation":
        sides = node.args[1:] if _is_label(node.args[0]) else node.args
        return all(_has_work_left(side, has_sum) for side in sides)
    if node.kind == "pow":
        base, exponent = node.args
        is_root = "/" in exponent.name or exponent == tree.HALF or exponent.kind == "pow"
        return is_root or not _is_plain(base) or not is_atom(exponent)
    if node.kind == "call":
        return node.name not in _FINAL_CALLS and all(map(_is_constant, node.args))
    if node.kind == "add" and has_sum and sum(map(_is_constant, node.args)) > 1:
        return True
    if node.kind == "mul":
        bottoms = [part for part in node.args if _is_inverse(part)]
        if sum(map(_is_numeral, node.args)) > 1 or len(bottoms) > 1:
            return True
    return any(_has_work_left(part, has_sum) for part in node.args)


def _is_numeral(node: Node) -> bool:
    return node.kind == "symbol" and node.name[:1].isdigit()


def _is_inverse(node: Node) -> bool:
    return node.kind == "pow" and node.args[1] == tree.MINUS_ONE


def _is_plain(node: Node) -> bool:
    """Whether a node is a number or a fraction, possibly with a sign."""
    if node.kind == "mul":
        bottoms = [part for part in node.args if _is_inverse(part) and _is_numeral(part.args[0])]
        others = [part for part in node.args if part not in bottoms and part != tree.MINUS_ONE]
        return max(len(others), len(bottoms)) <= 1 and all(map(_is_numeral, others))
    return node.kind in ("number", "symbol") or (_is_inverse(node) and _is_numeral(node.args[0]))


def _is_constant(node: Node) -> bool:
    """Whether a node contains only numbers and constants."""
    names = tree.names(node)
    return all(name[:1].isdigit() or name in tree.CONSTANTS for name in names)


def _is_other_form(answer: str, golds: list[str], prompt: str) -> bool:
    """Whether a product is asked for and the answer is a sum, or the other way round."""
    is_product = _FACTOR.search(prompt) is not None
    if not (is_product or _EXPAND.search(prompt)):
        return False
    wanted = [reading.node for gold in golds for reading in readings(gold)]
    nodes = [reading.node for reading in readings(answer)]
    ends = [(_values(node) or [node])[-1] for node in nodes]
    if is_product:
        is_wanted = any(node.kind in ("mul", "pow") and _has_inner_sum(node) for node in wanted)
        return is_wanted and bool(ends) and all(node.kind == "add" for node in ends)
    return bool(ends) and not any(map(_has_inner_sum, wanted)) and all(map(_has_inner_sum, ends))


def _has_inner_sum(node: Node) -> bool:
    """Whether a product or power contains a sum."""
    return any(
        part.kind in ("mul", "pow") and any(factor.kind == "add" for factor in part.args)
        for part in tree.walk(node)
    )


def is_written_alike(answer: str, gold: str) -> bool:
    """Whether two answers, or the values they state, are the same formula up to brackets and
    order."""
    return not set(_forms(answer)).isdisjoint(_forms(gold)) or _bare(answer) == _bare(gold)


@lru_cache(64)
def prompt_formulas(prompt: str) -> list[str]:
    """List the formulas of a prompt, those between dollar signs first."""
    prompt = _DRAWING.sub(" ", prompt)
    marked = find_formulas(prompt)
    texts = [formula.text for formula in marked]
    rest = prompt
    for formula in reversed(marked):
        rest = f"{rest[: formula.start]}\n{rest[formula.end :]}"
    for word, sign in _SPOKEN.items():
        rest = rest.replace(word, sign)
    texts += [_ARTICLE.sub("", run.group()) for run in _UNMARKED.finditer(rest)]
    texts = [text.strip().rstrip("=?.,: ") for text in texts]
    whole = (text for text in texts if len(text) > 1 and text.count("{") == text.count("}"))
    return list(dict.fromkeys(whole))[:MAX_FORMULAS]


def _bare(text: str) -> str:
    return _FRAME.sub("", normal(text)).rstrip("=?")


@lru_cache(1 << 10)
def literal_nodes(text: str) -> tuple[Node, ...]:
    """Read a text without evaluating anything, in one spelling for each formula."""
    return tuple(_respell(reading.node) for reading in readings(text, literal=True))


def _respell(node: Node) -> Node:
    """Write squares as products and a power of 1/2 as a root, and rename indices to one name."""
    node = tree.rebuild(node, _respell)
    if node.kind == "pow" and node.args[1] == _TWO:
        return tree.mul(node.args[0], node.args[0])
    if node.kind == "pow" and node.args[1] == _HALF:
        return tree.power(node.args[0], tree.HALF)
    if node.kind != "call" or not node.args:
        return node
    if node.name in _SYMMETRIC:
        return node._replace(args=tuple(sorted(node.args)))
    bound, *rest = node.args
    if bound.kind == "symbol" and (index := _INDEX.match(bound.name)):
        named = tree.symbol(_INDEX.sub("_{index=", bound.name))
        rest = [tree.substitute(part, index[1], tree.symbol("index")) for part in rest]
        return node._replace(args=(named, *rest))
    return node


def _forms(text: str) -> Iterator[Node]:
    """Yield an answer and the value of its equation, without degree and percent signs."""
    for node in literal_nodes(text):
        if node.kind == "seq" and node.name in ("", "{}"):
            node = tree.seq("", sorted(node.args))
        for part in (node, *_values(node)[-1:]):
            try:
                bare = tree.replace_calls(part, "degree", lambda call: call.args[0])
                yield tree.replace_calls(bare, "percent", lambda call: call.args[0])
            except NotMathError:
                continue


def _values(node: Node) -> list[Node]:
    """List the sides of an equation that are more than a name; empty for anything else."""
    if node.kind != "relation" or set(node.name.split()) != {"="}:
        return []
    return [side for side in node.args if not _is_label(side)]


def _parts(node: Node) -> Iterator[Node]:
    """Yield what a prompt's formula may ask for: the formula itself, its items, its sides."""
    yield node
    if node.kind == "relation" or (node.kind == "seq" and not node.name):
        for part in node.args:
            yield from _parts(part)


def _is_label(node: Node) -> bool:
    is_numeral = any(name[:1].isdigit() for name in tree.names(node))
    return tree.is_name(node) and not is_numeral


def _hands_back(node: Node, asked: list[Node]) -> bool:
    """Whether an answer is a formula of the prompt, or all its items or sides are."""
    if any(_is_same_formula(node, formula) for formula in asked):
        return True
    if (inside := _unwrap(node)) is not None:
        return _hands_back(inside, asked)
    parts = list(node.args) if node.kind == "seq" else _values(node)
    parts = [part for part in parts if not (is_atom(part) and part in asked)]
    return bool(parts) and all(_hands_back(part, asked) for part in parts)


def _unwrap(node: Node) -> Node | None:
    """Return the content of bars, floors, or the root of a square."""
    if node.kind == "call" and node.name in _WRAPPERS:
        return node.args[0]
    if node.kind == "pow" and node.args[1] == tree.HALF and node.args[0].kind == "mul":
        first, *others = node.args[0].args
        return first if others == [first] else None
    return None


def _is_same_formula(answer: Node, formula: Node) -> bool:
    """Whether two formulas agree for any values of their numbers, and the answer is not shorter."""
    if answer.kind in ("relation", "seq") or formula.kind in ("relation", "seq"):
        return _has_same_sides(answer, formula)
    if is_atom(answer) or _num_leaves(answer) < _num_leaves(formula):
        return False
    try:
        return same_value(answer, formula) is True
    except NotMathError:
        return False


def _has_same_sides(answer: Node, formula: Node) -> bool:
    """Compare equations, inequalities and lists part by part, relations also from right to left."""
    if answer.kind != formula.kind or len(answer.args) != len(formula.args):
        return False
    if answer.kind == "relation" and all(map(is_atom, answer.args)) and "=" in answer.name.split():
        return False  # x = 4 is worked out
    flipped = " ".join(reversed(answer.name.translate(_FLIPPED).split()))
    orders = [(answer.name, answer.args), (flipped, answer.args[::-1])]
    return any(
        name == formula.name
        and all(
            part == other or _is_same_formula(part, other)
            for part, other in zip(args, formula.args, strict=True)
        )
        for name, args in (orders if answer.kind == "relation" else orders[:1])
    )


def is_atom(node: Node) -> bool:
    """Whether a node is a whole number or a name, possibly with a sign."""
    if node.kind == "mul" and len(node.args) == 2 and tree.MINUS_ONE in node.args:
        node = next(part for part in node.args if part != tree.MINUS_ONE)
    return node.kind in ("number", "symbol") and "/" not in node.name


def _num_leaves(node: Node) -> int:
    return sum(part.kind == "symbol" for part in tree.walk(node))
