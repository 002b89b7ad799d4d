"""Read the arithmetic of an answer: sums, products, powers, units. Recursive descent, bounded in
depth.

What stands between brackets is the business of `reader`, which builds on this.
"""

from whet.tasks.math import matrices, tree
from whet.tasks.math.cursor import MAX_DEPTH, OPENING, OPENING_COMMANDS, OVER, SIGNS
from whet.tasks.math.leaves import Leaves, is_leaf, written
from whet.tasks.math.lexer import Token
from whet.tasks.math.tree import Node, NotMathError
from whet.tasks.math.words import (
    BASES,
    CONSTANT_WORDS,
    FUNCTIONS,
    GREEK,
    PERCENT_WORDS,
    SCALES,
    UNIT_NAMES,
    UNIT_WORDS,
    VECTORS,
    is_remark,
)

_TIMES = {("sign", "*"), ("command", "cdot"), ("command", "times"), ("command", "ast")}
_PLUS_MINUS = {("command", "pm"): tree.symbol("±"), ("command", "mp"): tree.symbol("∓")}
_KINDS = ("number", "name", "word", "text", "begin")


class Terms(Leaves):
    """The middle layer of the reader."""

    def expression(self) -> Node:
        with self.nested():
            total = self._signed_term()
            while (sign := self.peek()) in SIGNS or sign in _PLUS_MINUS:
                total = matrices.plus(total, self._signed_term())
        return total

    def argument(self, *, is_digit: bool = False) -> Node:
        """Read what a command applies to: a brace group or one thing; `\\frac12` takes single
        digits."""
        kind, text = self.peek()
        if (kind, text) == ("sign", "{"):
            return self.bracketed()
        if is_digit and kind == "number" and len(text) > 1 and text[0].isdigit():
            self.tokens[self.place] = self.tokens[self.place]._replace(
                text=text[1:], is_spaced=False
            )
            return tree.number(int(text[0]))
        if (kind, text) in SIGNS:
            self.place += 1
            with self.nested():
                return tree.negative(self.argument()) if text == "-" else self.argument()
        with self.nested():
            return self.leaf()

    def _signed_term(self) -> Node:
        factors: list[Node] = []
        while (sign := self.peek()) in SIGNS or sign in _PLUS_MINUS:
            factors.append(_PLUS_MINUS[sign] if sign in _PLUS_MINUS else tree.number(SIGNS[sign]))
            self.place += 1
            if len(factors) > MAX_DEPTH:
                raise NotMathError("too many signs in a row")
        term = self.term()
        for factor in factors:
            if factor == tree.MINUS_ONE:
                term = matrices.negative(term)
            elif factor != tree.ONE:
                term = matrices.times(factor, term)
        return term

    def term(self) -> Node:
        start = self.place
        product = self.factor()
        while True:
            sign = self.peek()
            is_number = self.place - start == 1 and self.tokens[start].kind == "number"
            start = self.place
            if sign in _TIMES:
                self.place += 1
                if start != self.units_end or start == 0 or not self._unit():
                    product = matrices.times(product, self.factor())
            elif sign in OVER:
                self.place += 1
                if not self._unit():
                    product = matrices.times(product, tree.power(self.factor(), tree.MINUS_ONE))
            elif sign == ("command", "bmod"):
                self.place += 1
                product = tree.call("mod", product, self.factor())
            elif self._unit():
                continue
            elif self.starts_factor():
                if sign[0] == "number" and (is_number or start == self.units_end):
                    raise NotMathError("two numbers side by side")
                if start == self.units_end and self.tokens[start - 1].kind == "chinese":
                    raise NotMathError("a word in the middle of a product")
                if self.is_in_chain and self.starts_equation():
                    return product
                product = matrices.times(product, self.factor())
            else:
                return product

    def starts_factor(self) -> bool:
        kind, text = self.peek()
        if (kind, text) == ("sign", "|") or (kind == "command" and text in ("|", "vert")):
            return self.num_bars == 0
        if kind == "command" and text in OPENING_COMMANDS:
            return True
        if (kind, text) == ("word", "in"):
            return False
        return (kind, text) in OPENING or kind in _KINDS or (kind == "command" and is_leaf(text))

    def starts_equation(self) -> bool:
        """Whether a new equation follows: in `x = 1 y = 2` the second name is no factor of the
        first value."""
        token = self.tokens[self.place]
        if token.kind != "name" or not token.is_spaced:
            return False
        ahead = 1
        if self.peek(ahead) == ("sign", "_"):
            ahead += 4 if self.peek(ahead + 1) == ("sign", "{") else 2
        if self.peek(ahead) == ("sign", "("):
            ahead += 3
        return self.peek(ahead) == ("sign", "=")

    def _unit(self) -> bool:
        """Pass over a unit behind a number: texts, known unit words, their powers and quotients."""
        kind, text = self.peek()
        if self.place in (0, len(self.tokens)) or not (
            _is_unit_text(self.tokens[self.place]) and self._is_behind_value()
            if kind == "text"
            else (kind == "chinese" and not is_remark(self.tokens[self.place].text))
            or (_is_unit_word(self.tokens[self.place]) and self._is_behind_number())
        ):
            return False
        self.place += 1
        self.units.append(text)
        if self.peek() == ("sign", "^") and self.peek(1) != ("command", "circ"):
            self.place += 1
            self.units.append("^" + written(self.argument()))
        kind, text = self.peek(1)
        is_unit = kind in ("name", "word") and text.lower() in UNIT_NAMES
        if is_unit and self.peek() in (("sign", "/"), ("word", "per")):
            self.units.append(text)
            self.place += 2
        self.units_end = self.place
        return True

    def _is_behind_number(self) -> bool:
        return (
            self.tokens[self.place - 1].kind not in ("name", "word") or self.place == self.units_end
        )

    def _is_behind_value(self) -> bool:
        """Whether a text may be a unit: behind another text that is none itself it is a second
        answer."""
        return self.tokens[self.place - 1].kind != "text" or self.place == self.units_end

    def factor(self) -> Node:
        if self.peek() in SIGNS:
            is_minus = self.take().text == "-"
            with self.nested():
                factor = self.factor()
            return matrices.negative(factor) if is_minus else factor
        return self._after(self.leaf())

    def _after(self, base: Node) -> Node:
        """Apply what stands behind a thing: powers, factorials, percent and degree signs."""
        while True:
            kind, text = self.peek()
            if (kind, text) in (("sign", "^"), ("sign", "**")):
                self.place += 1
                base = self._raised(base)
            elif (kind, text) == ("sign", "!"):
                self.place += 1
                base = tree.call("factorial", base)
            elif self._is_percent():
                self.place += 1
                base = tree.call("percent", base)
            elif kind in ("word", "text") and text.lower() in SCALES:
                self.place += 1
                base = tree.mul(base, tree.number(10 ** SCALES[text.lower()]))
            elif (kind, text) in (("command", "pmod"), ("command", "mod"), ("word", "mod")):
                self.place += 1
                base = tree.call("modulo", base, self.argument())
            elif (kind, text) in (("command", "degree"), ("command", "circ")):
                self.place += 1
                base = tree.call("degree", base)
            elif (kind, text) == ("sign", "_") and base.kind == "number":
                self.place += 1
                numeral = written(self.argument()).removeprefix("text ")
                base = tree.symbol(f"{base.value}_{BASES.get(numeral, numeral)}")
            else:
                return base

    def _is_percent(self) -> bool:
        kind, text = self.peek()
        return (kind, text) in (("sign", "%"), ("command", "%")) or (
            kind in ("word", "text") and text.lower() in PERCENT_WORDS
        )

    def _raised(self, base: Node) -> Node:
        is_group = self.peek() == ("sign", "{")
        inner = self.peek(1 if is_group else 0)
        if inner in (("command", "circ"), ("command", "degree"), ("command", "prime")) and (
            not is_group or self.peek(2) == ("sign", "}")
        ):
            self.place += 3 if is_group else 1
            return tree.call("degree", base) if inner[1] != "prime" else _renamed(base, "'")
        exponent = self.argument()
        if self.peek() in (("sign", "^"), ("sign", "**")):
            self.place += 1
            with self.nested():
                exponent = self._raised(exponent)
        return tree.power(base, exponent)


def _is_unit_text(token: Token) -> bool:
    content = token.text
    if token.detail in VECTORS or content in ("e", "i", "π") or is_remark(content):
        return False
    return any(letter.isalpha() for letter in content) or not content


def _is_unit_word(token: Token) -> bool:
    """Whether a plain word behind a number is a unit: a known one, or any longer word that stands
    by itself."""
    text = token.text
    if token.kind != "word" or text in FUNCTIONS or text in GREEK or text in CONSTANT_WORDS:
        return False
    if text.lower() in UNIT_WORDS:
        return True
    return token.is_spaced and len(text) > 3 and text.islower() and not is_remark(text)


def _renamed(base: Node, mark: str) -> Node:
    if base.kind == "symbol":
        return tree.symbol(base.name + mark)
    return tree.call("prime", base)
