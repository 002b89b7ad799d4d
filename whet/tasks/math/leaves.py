"""Read the smallest things of an answer: numbers, fractions, roots, functions, names with their
subscripts, texts."""

import re
from fractions import Fraction

from whet.tasks.math import tree
from whet.tasks.math.cursor import OPENING, OPENING_COMMANDS, OVER, Cursor
from whet.tasks.math.lexer import Token
from whet.tasks.math.tree import Node, NotMathError
from whet.tasks.math.words import (
    CONSTANT_WORDS,
    FUNCTIONS,
    GREEK,
    OPAQUE,
    PREFIX_FUNCTIONS,
    PROSE,
    TRIGONOMETRIC,
    VECTORS,
)

MAX_TERMS = 100
_FROM_TO = re.compile(r"_\{([a-z])=(-?[0-9]{1,6})\} \^\{?([0-9]{1,6})\}?")
_FUNCTION_NAMES = frozenset("fghpqFGHIPQRSTV")
"""Letters that name functions: before a number in brackets they are no factors."""


class Leaves(Cursor):
    """The lowest layer of the reader."""

    def leaf(self) -> Node:
        kind, text = self.peek()
        if kind == "number":
            return self._number()
        if (
            (kind, text) in OPENING
            or kind == "begin"
            or (kind == "command" and text in OPENING_COMMANDS)
        ):
            return self.bracketed()
        token = self.take()
        if kind == "command":
            return self._command(text)
        if kind == "word":
            return self._word(text)
        if kind == "name":
            return self._subscripted(text)
        if kind == "text":
            return self._text(token)
        raise NotMathError(f"{text!r} is out of place")

    def _number(self) -> Node:
        token = self.take()
        value, digits = _value(token.text)
        if (
            "." in token.text
            and self.peek()[0] == "text"
            and self.tokens[self.place].detail in ("overline", "bar", "dot")
        ):
            return tree.number(value + _repeating(token.text, self.take().text))
        if (
            "." in token.text
            and self.peek()[0] == "command"
            and self.peek()[1] in ("ldots", "dots", "cdots")
        ):
            self.place += 1
            return tree.number(_continued(token.text))
        if token.text.isdigit():
            if self.peek() == ("command", "frac") and self._is_digit_fraction():
                self.place += 1
                return tree.add(tree.number(value), self._fraction())
            if (
                self.peek()[0] == "number"
                and self.tokens[self.place].is_spaced
                and self.peek(1) == ("sign", "/")
            ):
                top = self.take()
                _ = self.take()
                bottom = self.take()
                if top.text.isdigit() and bottom.text.isdigit() and int(bottom.text[:50]) > 0:
                    return tree.number(
                        value + Fraction(_value(top.text)[0], _value(bottom.text)[0])
                    )
                raise NotMathError("two numbers side by side")
        return tree.number(value, digits)

    def _is_digit_fraction(self) -> bool:
        """Whether `\\frac` holds only digits, as in a mixed number."""
        shapes = [
            self.peek(ahead)[0 if self.peek(ahead)[0] == "number" else 1] for ahead in range(1, 7)
        ]
        text = " ".join("n" if shape == "number" else shape for shape in shapes)
        return text.startswith(("{ n } { n }", "n n", "n { n }", "{ n } n")) or (
            shapes[0] == "number" and len(self.peek(1)[1]) == 2
        )

    def _fraction(self) -> Node:
        top = self.argument(is_digit=True)
        return tree.divide(top, self.argument(is_digit=True))

    def _command(self, name: str) -> Node:
        if name == "frac":
            return self._fraction()
        if name in ("sqrt", "cbrt"):
            return self._root(3 if name == "cbrt" else 2)
        if name in ("binom", "dbinom", "tbinom"):
            return tree.call("binom", self.argument(is_digit=True), self.argument(is_digit=True))
        if name in FUNCTIONS:
            return self._function(name)
        if name in OPAQUE:
            return self._opaque(name)
        if name in CONSTANT_WORDS or name in GREEK:
            return self._subscripted(CONSTANT_WORDS.get(name, name))
        raise NotMathError(f"\\{name} is not read")

    def _root(self, degree: int) -> Node:
        order = tree.number(degree)
        if self.peek() == ("sign", "["):
            self.place += 1
            order = self.expression()
            self.expect(("sign", "]"))
        return tree.power(self.argument(), tree.divide(tree.ONE, order))

    def _function(self, name: str) -> Node:
        base = exponent = None
        while self.peek() in (("sign", "_"), ("sign", "^")):
            if self.take().text == "_":
                base = self.argument()
            else:
                exponent = self.argument()
        inside = self._applied()
        name = FUNCTIONS[name]
        if name in TRIGONOMETRIC:
            inside = _in_radians(inside)
            if exponent == tree.MINUS_ONE and name in ("sin", "cos", "tan"):
                name = "arc" + name
                exponent = None
        if name == "sqrt":
            found = tree.power(inside, tree.HALF)
        elif name == "exp":
            found = tree.power(tree.symbol("e"), inside)
        elif name == "log" and base is not None:
            found = tree.divide(tree.call("ln", inside), tree.call("ln", base))
        else:
            args = inside.args if inside.kind == "seq" else (inside,)
            found = tree.call(name if base is None else f"{name}_{written(base)}", *args)
        return found if exponent is None else tree.power(found, exponent)

    def _applied(self) -> Node:
        """Read what a function applies to: its brackets, or the product up to the next function or
        sign."""
        if self.peek() in OPENING or self.peek()[1] in OPENING_COMMANDS:
            return self.bracketed()
        product = self.factor()
        while (
            self.starts_factor()
            and self.peek()[1] not in FUNCTIONS
            and self.peek()[0] not in ("text", "begin")
        ):
            if self.peek() in (("sign", "("), ("sign", "[")) and product.kind != "number":
                break
            product = tree.mul(product, self.factor())
        if self.peek() in OVER and self.peek(1)[0] == "number":
            self.place += 1
            product = tree.divide(product, self.factor())
        return product

    def _opaque(self, name: str) -> Node:
        """Read a sum, product, limit or integral as a thing of its own, equal only to the same
        one."""
        bounds: list[Node] = []
        while self.peek() in (("sign", "_"), ("sign", "^")):
            mark = self.take().text
            start = self.place
            self._skip_group()
            bounds.append(
                tree.symbol(mark + "".join(token.text for token in self.tokens[start : self.place]))
            )
        body = self.term()
        folded = _folded(name, [bound.name for bound in bounds], body)
        return tree.call(name, *bounds, body) if folded is None else folded

    def _skip_group(self) -> None:
        depth = 0
        while True:
            token = self.take()
            depth += (token[:2] == ("sign", "{")) - (token[:2] == ("sign", "}"))
            if depth <= 0:
                return

    def _word(self, word: str) -> Node:
        lower = word.lower()
        if lower in FUNCTIONS and (
            lower in PREFIX_FUNCTIONS or self.peek()[1] in ("(", "{", "^", "_", "|")
        ):
            return self._function(lower)
        if lower in CONSTANT_WORDS:
            return tree.symbol(CONSTANT_WORDS[lower])
        if lower in GREEK:
            return self._subscripted(lower)
        for name in ("sin", "cos", "tan", "ln", "log"):
            if word.startswith(name) and len(word) == len(name) + 1:
                self.place -= 1
                self.tokens[self.place] = self.tokens[self.place]._replace(
                    kind="name", text=word[-1]
                )
                return self._function(name)
        if lower in PROSE or (len(word) > 3 and not (word.isupper() and len(word) <= 6)):
            raise NotMathError(f"{word!r} is a word")
        letters = [Token("name", letter, False) for letter in word]
        self.tokens[self.place - 1 : self.place] = letters
        return self._subscripted(word[0])

    def _text(self, token: Token) -> Node:
        content = token.text.strip()
        bare = content.strip("() ")
        if token.detail in VECTORS:
            return self._subscripted(f"{VECTORS[token.detail]} {content}")
        if bare.isdigit() and len(bare) < 50:
            return tree.number(int(bare))
        if len(bare) == 1 and bare.isalpha():
            return self._subscripted(bare)
        if len(bare) > 1 and bare.lower() in CONSTANT_WORDS:
            return tree.symbol(CONSTANT_WORDS[bare.lower()])
        return self._subscripted(f"text {content.casefold()}")

    def _subscripted(self, name: str) -> Node:
        while (sign := self.peek()) in (("sign", "_"), ("sign", "'")):
            self.place += 1
            if sign[1] == "'":
                name += "'"
                continue
            start = self.place
            self._skip_group()
            inside = "".join(
                token.text for token in self.tokens[start : self.place] if token.text not in "{}"
            )
            name += f"_{inside}"
        if self.peek() == ("sign", "(") and self.peek(2) == ("sign", ","):
            inside_brackets = self.bracketed()
            if inside_brackets.kind == "seq":
                return tree.call(name, *inside_brackets.args)
            return tree.mul(tree.symbol(name), inside_brackets)
        is_applied = (
            self.peek() == ("sign", "(")
            and self.peek(1)[0] == "number"
            and self.peek(2) == ("sign", ")")
        )
        if is_applied and name[0] in _FUNCTION_NAMES:
            return tree.call(name, self.bracketed())
        return tree.symbol(name)


def _folded(name: str, bounds: list[str], body: Node) -> Node | None:
    """Write out a sum or product between two whole numbers that are not far apart; None for any
    other."""
    match = _FROM_TO.fullmatch(" ".join(bounds))
    if match is None or name not in ("sum", "prod"):
        return None
    index = match[1]
    start = int(match[2])
    stop = int(match[3])
    if not 0 <= stop - start < MAX_TERMS // max(1, sum(1 for _ in tree.walk(body)) // 20):
        return None
    terms = [tree.with_symbol(body, index, tree.number(place)) for place in range(start, stop + 1)]
    return tree.add(*terms) if name == "sum" else tree.mul(*terms)


def _value(text: str) -> tuple[Fraction, int]:
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > 2000 or len(exponent) > 5 or abs(int(exponent or 0)) > tree.MAX_EXPONENT:
        raise NotMathError("a number too long to read")
    whole, point, decimals = mantissa.partition(".")
    value = Fraction(int((whole + decimals) or "0"), 10 ** len(decimals))
    digits = len((whole + decimals).lstrip("0")) if point and decimals else 0
    return value * Fraction(10) ** int(exponent or 0), digits


def _repeating(before: str, digits: str) -> Fraction:
    """Give the part of a decimal that repeats without end: 0.1 and 3 make 3/90."""
    if not digits.isdecimal() or len(digits) > 50:
        raise NotMathError("not a repeating decimal")
    shift = len(before.partition(".")[2])
    return Fraction(int(digits), (10 ** len(digits) - 1) * 10**shift)


def _continued(text: str) -> Fraction:
    """Read a decimal that goes on as it ends: 0.1666... is 1/6."""
    decimals = text.partition(".")[2]
    for period in range(1, len(decimals) // 2 + 1):
        tail = decimals[-period:]
        if decimals.endswith(tail * (3 if period == 1 else 2)):
            return _value(text)[0] + _repeating(text, tail)
    raise NotMathError("a decimal that goes on in no known way")


def is_leaf(name: str) -> bool:
    return name in FUNCTIONS or name in OPAQUE or name in CONSTANT_WORDS or name in GREEK or name in (
        "frac", "sqrt", "cbrt", "binom", "dbinom", "tbinom"
    )  # fmt: skip


def written(node: Node) -> str:
    return str(node.value) if node.kind == "number" else node.name


def _in_radians(node: Node) -> Node:
    if node.kind == "call" and node.name == "degree":
        return tree.mul(node.args[0], tree.symbol("π"), tree.number(Fraction(1, 180)))
    if not node.args:
        return node
    return tree.rebuilt(node, [_in_radians(part) for part in node.args])
