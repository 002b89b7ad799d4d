"""Read an answer, in LaTeX or plain text, into a tree: lists, tuples, intervals, sets, matrices,
equations, ratios."""

import re
from functools import lru_cache
from typing import NamedTuple

from whet.tasks.math import matrices, sets, tree
from whet.tasks.math.lexer import Token, tokens
from whet.tasks.math.normal import ROW, normal, wording
from whet.tasks.math.terms import Terms
from whet.tasks.math.tree import Node, NotMathError
from whet.tasks.math.words import ENGLISH, NUMBER_WORDS, is_remark, named

MAX_ITEMS = 200

RELATIONS = {
    ("sign", "="): "=", ("sign", "=="): "=", ("command", "approx"): "=", ("command", "simeq"): "=",
    ("command", "doteq"): "=", ("command", "equiv"): "=", ("command", "eq"): "=",
    ("sign", "<"): "<", ("command", "lt"): "<", ("sign", ">"): ">", ("command", "gt"): ">",
    ("sign", "<="): "<=", ("command", "le"): "<=", ("command", "leq"): "<=", ("command", "leqslant"): "<=",
    ("sign", ">="): ">=", ("command", "ge"): ">=", ("command", "geq"): ">=", ("command", "geqslant"): ">=",
    ("sign", "!="): "!=", ("command", "ne"): "!=", ("command", "neq"): "!=", ("command", "in"): "in",
    ("word", "in"): "in",
}  # fmt: skip
_CLOSING = {
    "(": {("sign", ")"): ")", ("sign", "]"): "]"}, "[": {("sign", ")"): ")", ("sign", "]"): "]"},
    "{": {("sign", "}"): "}"}, "\\{": {("command", "}"): "}", ("command", "rbrace"): "}"},
    "<": {("command", "rangle"): ")", ("sign", ">"): ")"},
}  # fmt: skip
_SIDES = {
    "|": "|",
    "\\|": "|",
    "lvert": "rvert",
    "vert": "vert",
    "lfloor": "rfloor",
    "lceil": "rceil",
}
_MATRICES = named("matrix pmatrix bmatrix Bmatrix vmatrix Vmatrix array smallmatrix")
_SUCH_THAT = {
    ("sign", "|"),
    ("command", "mid"),
    ("sign", ":"),
    ("command", "|"),
    ("command", "vert"),
}
_SET_OPERATIONS = {
    ("command", "cup"): "union",
    ("command", "cap"): "intersection",
    ("command", "setminus"): "without",
}
_NAMED_UNIT = re.compile(r"([-+]?[0-9][0-9.,/ ]*)\(([A-Za-z][A-Za-z ]+)\)")
_ALL_TEXT = re.compile(r"\\(?:text|textbf|textrm|mbox)\s?\{\s?([-+]?[0-9][^{}\\]*)\}")
"""Numbers that stand in a text as a whole: `\\text{12 and 15}`."""
_OUTWARD = re.compile(r"([\[\]])([^\[\]()]{1,100},[^\[\]()]{1,100})([\[\]])")
_TRANSPOSED = re.compile(
    r"^([(\[][^&\x02]{1,200},[^&\x02]{1,200}[)\]])\s?\^\s?\{?\s?(?:\\(?:top|mathrm|text|mathsf)\s?)?\{?T?\}*$"
)
"""A row turned into a column."""
_REALS = tree.symbol("field R")
_ALL_REALS = tree.seq("()", (tree.negative(tree.INFINITY), tree.INFINITY))
_REAL_WORDS = {
    "all real numbers",
    "all reals",
    "all real",
    "any real number",
    "the set of all real numbers",
}
_UNNAMED = tree.symbol("")
"""What stands before the sign in `> 3`."""
_LEADING = {
    "approximately",
    "about",
    "roughly",
    "exactly",
    "nearly",
    "around",
    "usd",
    "eur",
    "rmb",
    "rs",
}


class Reading(NamedTuple):
    """An answer understood: its tree, and the units that stood in it."""

    node: Node
    units: tuple[str, ...]


@lru_cache(1 << 14)
def readings(text: str) -> tuple[Reading, ...]:
    """Read an answer in every way it can be meant: `1,234` is a number and also a list. Empty where
    it is not read."""
    plain = normal(text)
    if wrapped := _ALL_TEXT.fullmatch(plain):
        inside = readings(wrapped[1])
        if inside:
            return inside
    if wording(plain) in _REAL_WORDS:
        return (Reading(_ALL_REALS, ()),)
    plain = _TRANSPOSED.sub(r"\1", plain)
    named = _NAMED_UNIT.fullmatch(plain)
    named = None if named and is_remark(named[2]) else named
    plain, units = (named[1], (named[2],)) if named else (plain, ())
    if "\\$" in text:
        units = (*units, "dollar")
    if plain[-1:].isalpha() or plain[-1:] == "}":
        value = NUMBER_WORDS.get(wording(plain))
        if value is not None:
            return (Reading(tree.number(value), units),)
    if plain[:1] == "]" or plain[-1:] == "[":
        plain = _OUTWARD.sub(_inward, plain)
    found: list[Reading] = []
    for join in (None, False, True):
        try:
            pieces, is_doubtful = tokens(plain, join_thousands=join)
            reader = Reader(pieces)
            found.append(Reading(reader.answer(), (*reader.units, *units)))
        except (NotMathError, ZeroDivisionError, RecursionError, OverflowError):
            is_doubtful = "," in plain
        if not is_doubtful:
            break
    return tuple(dict.fromkeys(found))


class Reader(Terms):
    """The whole grammar over the tokens of one answer."""

    def answer(self) -> Node:
        """Read a whole answer; bare commas make a list, and semicolons a list of lists."""
        while (
            RELATIONS.get(self.peek()) in ("=", "in")
            or self.peek()[1].lower() in _LEADING
            or _is_opening(self.peek())
        ):
            self.place += 1
        if (
            len(self.tokens) == 1
            and (word := self.tokens[0]).kind == "word"
            and _is_wording(word.text)
        ):
            raise NotMathError(f"{word.text!r} is a word")
        groups: list[list[Node]] = []
        group: list[Node] = []
        while self.place < len(self.tokens):
            kind, text = self.peek()
            if kind == "join" or (kind == "sign" and text in (",", ";", ROW)):
                self.place += 1
                if text == ";" and group:
                    groups.append(group)
                    group = []
                continue
            group += _both_signs(self.element())
            kind, text = self.peek()
            is_over = kind in ("end", "join") or (kind == "sign" and text in (",", ";", ROW))
            if not is_over and not self.starts_equation():
                raise NotMathError(f"{text!r} is out of place")
            if len(group) + len(groups) > MAX_ITEMS:
                raise NotMathError("too many items")
        groups.append(group)
        found = _listed([group for group in groups if group])
        return _ALL_REALS if found == _REALS else found

    def element(self) -> Node:
        """Read an expression, a ratio, a union, or a chain of relations between them; `> 3` is one
        of nothing named."""
        parts = [_UNNAMED if self.peek() in RELATIONS else self._ratio()]
        signs = []
        while self.peek() in RELATIONS:
            sign = RELATIONS[self.peek()]
            self.place += 1
            if self.peek() in RELATIONS:
                if sign != "=":
                    raise NotMathError("two relations side by side")
                continue
            signs.append(sign)
            self.is_in_chain = True
            parts.append(self._ratio())
            self.is_in_chain = False
            if len(parts) > MAX_ITEMS:
                raise NotMathError("too many items")
        if not signs:
            return parts[0]
        if signs == ["in"]:
            return (
                tree.seq("in", parts)
                if parts[1].kind == "symbol" and parts[1] != _REALS
                else parts[1]
            )
        return Node("relation", tuple(parts), " ".join(signs))

    def _ratio(self) -> Node:
        parts = [self._union()]
        while self.peek() == ("sign", ":") and not (
            self.is_before_condition and sets.is_name(parts[0])
        ):
            self.place += 1
            parts.append(self._union())
        return parts[0] if len(parts) == 1 else tree.call("ratio", *parts)

    def _union(self) -> Node:
        found = self.expression()
        while self.peek() in _SET_OPERATIONS:
            name = _SET_OPERATIONS[self.peek()]
            self.place += 1
            right = self.expression()
            parts = found.args if name == "union" and found.name == name else (found,)
            found = tree.call(name, *parts, right)
        return found

    def bracketed(self) -> Node:
        token = self.take()
        opening = (
            "\\" + token.text if token.kind == "command" and token.text in "{|" else token.text
        )
        if token.kind == "begin":
            return self._environment(token.text)
        if opening in _SIDES:
            return self._between_bars(opening)
        opening = {"langle": "<", "lbrace": "\\{", "lbrack": "["}.get(opening, opening)
        closing = _CLOSING[opening]
        saved = self.num_bars
        self.num_bars = 0
        items, has_comma = self._items(closing)
        if opening == "\\{" and self.peek() in _SUCH_THAT:
            self.place += 1
            items, has_comma = self._items(closing)
            opening = "such that"
        self.num_bars = saved
        end = closing.get(self.peek(), "")
        if not end:
            raise NotMathError("a bracket is not closed")
        self.place += 1
        return _grouped(opening, end, items, has_comma)

    def _items(self, closing: dict[tuple[str, str], str]) -> tuple[list[Node], bool]:
        items: list[Node] = []
        has_comma = False
        is_set = closing == _CLOSING["\\{"]
        while self.peek() not in closing and self.place < len(self.tokens):
            kind, text = self.peek()
            if kind == "join" or (kind == "sign" and text in (",", ";", ROW)):
                self.place += 1
                has_comma = True
                continue
            if items and not has_comma:
                break
            if is_set:
                self.num_bars = 1
                self.is_before_condition = not items
            item = self.element()
            self.is_before_condition = False
            items += _both_signs(item) if is_set else [item]
            if self.peek() in _SUCH_THAT and is_set:
                break
            if len(items) > MAX_ITEMS:
                raise NotMathError("too many items")
        return items, has_comma

    def _between_bars(self, opening: str) -> Node:
        self.num_bars += 1
        inside = self.expression()
        self.num_bars -= 1
        closing = _SIDES[opening]
        if self.peek()[1] != closing:
            raise NotMathError("a bar is not closed")
        self.place += 1
        name = {"lfloor": "floor", "lceil": "ceil"}.get(opening, "abs")
        return tree.call(name, inside)

    def _environment(self, name: str) -> Node:
        rows: list[list[Node]] = [[]]
        while self.peek()[0] != "end" or self.place >= len(self.tokens):
            kind, text = self.peek()
            if kind == "sign" and text in ("&", ROW, ","):
                self.place += 1
                if text == ROW:
                    rows.append([])
                continue
            rows[-1].append(self.element())
            if sum(len(row) for row in rows) > MAX_ITEMS:
                raise NotMathError("too many items")
        if self.take().text != name:
            raise NotMathError("an environment is not closed")
        rows = [row for row in rows if row]
        if name not in _MATRICES:
            return tree.seq("", [part for row in rows for part in row])
        if len({len(row) for row in rows}) > 1:
            raise NotMathError("rows of different length")
        if name == "vmatrix":
            return matrices.determinant(rows)
        return tree.seq("matrix", [tree.seq("row", row) for row in rows])


def _inward(match: re.Match[str]) -> str:
    """Write an interval whose open ends have their brackets turned outwards in the other way: ]1,
    2] is (1, 2]."""
    return f"{'(' if match[1] == ']' else '['}{match[2]}{')' if match[3] == '[' else ']'}"


def _grouped(opening: str, end: str, items: list[Node], has_comma: bool) -> Node:
    if opening == "such that":
        return items[0] if len(items) == 1 else tree.seq("", items)
    if opening == "{":
        if not items:
            raise NotMathError("nothing in braces")
        return items[0] if len(items) == 1 else tree.seq("", items)
    if opening == "\\{":
        return tree.seq("{}", items)
    brackets = ("(" if opening == "<" else opening) + end
    if len(items) == 1 and not has_comma and brackets in ("()", "[]"):
        return items[0]
    return tree.seq(brackets, items)


def _listed(groups: list[list[Node]]) -> Node:
    if not groups:
        raise NotMathError("nothing to read")
    if len(groups) > 1:
        return tree.seq(
            "", [group[0] if len(group) == 1 else tree.seq("", group) for group in groups]
        )
    return groups[0][0] if len(groups[0]) == 1 else tree.seq("", groups[0])


def _is_opening(token: tuple[str, str]) -> bool:
    """Whether a text only leads up to the answer: `\\text{The answer is } 12`."""
    return token[0] == "text" and token[1].endswith((" is", " are", ":"))


def _is_wording(word: str) -> bool:
    return word.isupper() or word.lower() in ENGLISH


def _both_signs(node: Node) -> list[Node]:
    """Write a plus-or-minus out as two things."""
    names = {part.name for part in tree.walk(node) if part.kind == "symbol"}
    if not names & {"±", "∓"}:
        return [node]
    pairs = ((tree.ONE, tree.MINUS_ONE), (tree.MINUS_ONE, tree.ONE))
    return [
        tree.with_symbol(tree.with_symbol(node, "±", upper), "∓", lower) for upper, lower in pairs
    ]


__all__ = ["Reader", "Reading", "Token", "readings"]
