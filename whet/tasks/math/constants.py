"""Arbitrary constants of general solutions, whose names and order are free."""

import re
from itertools import permutations

from whet.answers.sentences import find_formulas
from whet.tasks.math import tree
from whet.tasks.math.compare import same_tree
from whet.tasks.math.numeric import MathConfig
from whet.tasks.math.parser import readings
from whet.tasks.math.tree import Node, NotMathError

MAX_CONSTANTS = 4
MAX_QUESTION = 8000
"""Constants of longer questions keep their names."""

_ASKS = re.compile(
    r"\bgeneral (?:solution|integral)|\banti-?derivative|\bintegra(?:ls?|te)\b|\\int(?![a-z])|∫"
    r"|\bdifferential equation|\bdenot\w+ (?:the )?constants?\b",
    re.IGNORECASE,
)
"""Questions whose answers have arbitrary constants."""
_NAME = re.compile(r"([A-DKa-dk])(?:_([0-9]))?")
"""The name of a constant: a letter, with or without a number, as `C` or C_1."""
_COMMAND = re.compile(r"\\text\s?\{[^{}]*\}|\\[A-Za-z]+")
_LONG_WORD = re.compile(r"[A-Za-z]{3,}|\b(?:is|of|to|in|by|be|at|as|an|or|on|do|we|it|d[xyt])\b")
"""Words that are not products of letters, and differentials."""
_NAMES = (
    r"(?:[\s$,+\\()]|\b(?:and|[lc]?dots)\b"
    r"|(?<![A-Za-z])[A-Za-z](?:_\{?[0-9]\}?)?(?![A-Za-z])){1,80}+"
)
"""A list of single letters: `$A$, $B$ and $C$`."""
_INTRODUCED = re.compile(
    r"\bconstants?(?: of integration)?[\s,:]+(?:(?:as|by|called|named|are|is|be)\s)?"
    + _NAMES
    + rf"|{_NAMES}(?:(?:is|are|be|being|for|as|denotes?)\s(?:(?:an|the|any|some|real|arbitrary)\s)*"
    r"(?:arbitrary |integration )?constants?\b)",
)
"""Constants that a question names itself: `with arbitrary constants A and B`."""


def same_but_for_constants(gold: str, answer: str, prompt: str, rules: MathConfig) -> bool:
    """Compare two general solutions whose constants may have other names, in any order.

    >>> prompt = "Find the general solution of $y'' = y$."
    >>> gold = "y = C_1 e^x + C_2 e^{-x}"
    >>> same_but_for_constants(gold, "A e^{-x} + B e^x", prompt, MathConfig())
    True
    """
    if len(prompt) > MAX_QUESTION or not _ASKS.search(prompt):
        return False
    rest = _INTRODUCED.sub(" ", prompt)
    return any(
        _same_with_any_names(one.node, other.node, rest, rules)
        for one in readings(gold)
        for other in readings(answer)
        if one.units == other.units
    )


def _same_with_any_names(gold: Node, answer: Node, question: str, rules: MathConfig) -> bool:
    names = _constants(gold, question)
    others = _constants(answer, question)
    if len(names) != len(others) or not 0 < len(names) <= MAX_CONSTANTS:
        return False
    try:
        renamed = _rename(answer, others)
        return any(same_tree(_rename(gold, order), renamed, rules) for order in permutations(names))
    except NotMathError:
        return False


def _constants(node: Node, question: str) -> tuple[str, ...]:
    """List the letters that are not in the question and may name constants.

    Empty for lists and inequalities. Also empty if an expression has no other unknown, or if the
    left side of an equation has one of the letters: then they are what the question asks for.
    """
    is_equation = node.kind == "relation" and node.name == "="
    if node.kind == "seq" or (node.kind == "relation" and not is_equation):
        return ()
    symbols = tree.symbols(node)
    named = tree.symbols(node.args[0]) if is_equation else set()
    new = {name for name in symbols if _NAME.fullmatch(name) and not _is_used(name, question)}
    return tuple(sorted(new)) if symbols - new and new.isdisjoint(named) else ()


def _is_used(name: str, question: str) -> bool:
    """Whether a question uses a letter: in a formula, or as a word or factor in prose."""
    letter, _, index = name.partition("_")
    is_index = rf"_?\{{?{index}(?![0-9])" if index else r"(?!_?\{?[0-9])"
    formulas = find_formulas(question)
    for formula in formulas:
        if re.search(letter + is_index, _COMMAND.sub(" ", formula.text)):
            return True
        question = question.replace(formula.text, " ")
    words = _LONG_WORD.sub(" ", question)
    return bool(re.search(letter + is_index, words)) and (letter not in "aA" or not formulas)


def _rename(node: Node, names: tuple[str, ...]) -> Node:
    for index, name in enumerate(names):
        node = tree.substitute(node, name, tree.symbol(f"constant {index}"))
    return node
