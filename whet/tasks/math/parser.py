"""Parse an answer, in LaTeX or plain text, into a tree. Recursive descent, bounded in depth.

The grammar from the top: an answer is a list of elements; an element is a chain of relations
between ratios; a ratio holds unions, and a union expressions; an expression is a sum of terms; a
term is a product of factors with units after them; a factor is a leaf with its powers.
"""

import re
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from whet.tasks.math import lexer, tree, words
from whet.tasks.math.lexer import Token, TokenKey, decimal, repeating_decimal, tokens
from whet.tasks.math.respelling import ROW, normal, respell, wording
from whet.tasks.math.tree import Node, NotMathError

MAX_DEPTH = 40
MAX_ITEMS = 200
MAX_TERMS = 100
"""Sums and products over an index are written out up to this many terms."""

_FROM_TO = re.compile(r"_\{([a-z])=(-?[0-9]{1,6})\} \^\{?([0-9]{1,6})\}?")
_ALL_TEXT = re.compile(r"\\(?:text|textbf|textrm|mbox)\s?\{\s?([-+]?[0-9][^{}\\]*)\}")
"""Numbers in one text command: `\\text{12 and 15}`."""
_REALS = tree.symbol("field R")
_ALL_REALS = tree.seq("()", (tree.negative(tree.INFINITY), tree.INFINITY))
_ITEM_START = re.compile(
    r"[\s$]*(?:[0-9A-Za-z({\[|√π]|\\(?:[dtc]?frac|sqrt|pi|infty|binom|vec|mathbf|left|[({])|\Z)"
)
"""How an item may start; a line that starts otherwise continues the line before."""
_UNNAMED = tree.symbol("")
"""The missing left side in `> 3`."""


class Reading(NamedTuple):
    """One way to read an answer: its tree and its units."""

    node: Node
    units: tuple[str, ...]


@lru_cache(1 << 14)
def readings(text: str, *, literal: bool = False) -> tuple[Reading, ...]:
    """Read an answer in every way it can be meant; empty if it is not mathematics.

    `1,234` is a number and also a list. A `literal` reading evaluates nothing: numerals above one
    are symbols, so that 23 + 4 is 4 + 23 but not 27.
    """
    if "\n" in text and (items := _list_lines(text)):
        return readings(items, literal=literal)
    inside = _ALL_TEXT.fullmatch(normal(text))
    if inside and (result := readings(inside[1], literal=literal)):
        return result
    plain, units = respell(text)
    value = words.NUMBER_WORDS.get(wording(plain))
    if value is not None:
        return (Reading(tree.make_number(value), units),)
    results: list[Reading] = []
    for join in (None, False, True):
        try:
            pieces, is_ambiguous = tokens(plain, join_thousands=join)
            parser = Parser(pieces, literal=literal)
            results.append(Reading(parser.answer(), (*units, *parser.units)))
        except (NotMathError, ZeroDivisionError, RecursionError, OverflowError):
            is_ambiguous = "," in plain
        if not is_ambiguous:
            break
    return tuple(dict.fromkeys(results))


def _list_lines(text: str) -> str:
    """Put commas between lines that are one answer each; empty if they are not or if one
    continues."""
    lines = [line for line in text.splitlines() if line.strip(" \t$")]
    if len(lines) < 2 or not all(_ITEM_START.match(line) and readings(line) for line in lines):
        return ""
    return "" if any(wording(line) in words.UNIT_NAMES for line in lines) else " , ".join(lines)


class Parser:
    """Reads the tokens of one answer from left to right; one method per rule of the grammar.

    `units` gathers the words after numbers, and `units_end` is the position after the last of them.
    `num_bars` counts the bars that are open. `is_in_chain` is set after the first relation sign,
    `is_before_condition` before the bar of a set.
    """

    def __init__(self, tokens: list[Token], *, literal: bool = False) -> None:
        self.tokens = tokens
        self.literal = literal
        self.position = 0
        self.num_bars = 0
        self.units: list[str] = []
        self.units_end = -1
        self.is_in_chain = False
        self.is_before_condition = False
        self.depth = 0

    def peek(self, ahead: int = 0) -> TokenKey:
        position = self.position + ahead
        return self.tokens[position][:2] if position < len(self.tokens) else ("end", "")

    def take(self) -> Token:
        if self.position >= len(self.tokens):
            raise NotMathError("something is missing at the end")
        self.position += 1
        return self.tokens[self.position - 1]

    def accept(self, kind: str, text: str) -> bool:
        """Step over a token if it is the next one."""
        is_next = self.peek() == (kind, text)
        self.position += is_next
        return is_next

    def descend(self, read: Callable[[], Node]) -> Node:
        """Read something one level down; too many levels are refused."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise NotMathError("nested too deeply")
        node = read()
        self.depth -= 1
        return node

    # Lists, relations and sets

    def answer(self) -> Node:
        """Read a whole answer; bare commas make a list, and semicolons a list of lists."""
        while self._at_introduction():
            self.position += 1
        word = self.tokens[0].text if [token.kind for token in self.tokens] == ["word"] else ""
        if word.isupper() or word.lower() in words.ENGLISH:
            raise NotMathError(f"{word!r} is a word")
        groups: list[list[Node]] = [[]]
        while self.position < len(self.tokens):
            if self._at_separator():
                if self._take_separator().text == ";" and groups[-1]:
                    groups.append([])
                continue
            groups[-1] += _both_signs(self.element())
            kind, text = self.peek()
            if kind != "end" and not self._at_separator() and not self._at_equation():
                raise NotMathError(f"{text!r} is out of place")
            if len(groups[-1]) + len(groups) - 1 > MAX_ITEMS:
                raise NotMathError("too many items")
        if not groups[0]:
            raise NotMathError("nothing to read")
        node = _one_or_list([_one_or_list(items) for items in groups if items])
        return _ALL_REALS if node == _REALS else node

    def _at_introduction(self) -> bool:
        r"""Whether the next token only leads up to the answer: `=`, `about`, `\text{It is}`."""
        kind, text = self.peek()
        if lexer.RELATIONS.get((kind, text)) in ("=", "in") or text.lower() in lexer.LEAD_WORDS:
            return True
        return kind == "text" and text.endswith((" is", " are", ":"))

    def _at_separator(self) -> bool:
        token = self.peek()
        return token[0] == "join" or token in lexer.SEPARATORS

    def _take_separator(self) -> Token:
        """Take a separator; a joining word, as in `1 or 2`, must come before an item."""
        token = self.take()
        if token.kind == "join" and (self._at_separator() or self.position == len(self.tokens)):
            raise NotMathError(f"nothing follows {token.text!r}")
        return token

    def _at_equation(self) -> bool:
        """Whether a new equation follows: in `x = 1 y = 2`, y is not a factor of the first
        value."""
        token = self.tokens[self.position]
        if token.kind != "name" or not token.is_spaced:
            return False
        ahead = 1
        if self.peek(ahead) == ("sign", "_"):
            ahead += 4 if self.peek(ahead + 1) == ("sign", "{") else 2
        if self.peek(ahead) == ("sign", "("):
            ahead += 3
        return self.peek(ahead) == ("sign", "=")

    def element(self) -> Node:
        """Read a ratio, or a chain of relations that may start with its sign: `> 3`."""
        parts = [_UNNAMED if self.peek() in lexer.RELATIONS else self._ratio()]
        relations = []
        while self.peek() in lexer.RELATIONS:
            sign = lexer.RELATIONS[self.take()[:2]]
            if self.peek() in lexer.RELATIONS:
                if sign != "=":
                    raise NotMathError("two relations side by side")
                continue
            relations.append(sign)
            self.is_in_chain = True
            parts.append(self._ratio())
            self.is_in_chain = False
            if len(parts) > MAX_ITEMS:
                raise NotMathError("too many items")
        if not relations:
            return parts[0]
        if relations != ["in"]:
            return Node("relation", tuple(parts), " ".join(relations))
        if parts[1].kind == "symbol" and parts[1] != _REALS:
            return tree.seq("in", parts)
        return parts[1]

    def _ratio(self) -> Node:
        parts = [self._union()]
        while self.peek() == ("sign", ":"):
            if self.is_before_condition and tree.is_name(parts[0]):
                break
            self.position += 1
            parts.append(self._union())
        return parts[0] if len(parts) == 1 else tree.call("ratio", *parts)

    def _union(self) -> Node:
        node = self.expression()
        while self.peek() in lexer.SET_OPERATIONS:
            name = lexer.SET_OPERATIONS[self.take()[:2]]
            right = self.expression()
            if not (_is_set(node) and _is_set(right)):
                raise NotMathError("a union with something that is not a set, or is empty")
            parts = node.args if name == "union" and node.name == name else (node,)
            node = tree.call(name, *parts, right)
        return node

    # Brackets

    def bracket(self) -> Node:
        """Read a bracket, a set, a matrix or the content of bars."""
        token = self.take()
        opening = token.text
        if token.kind == "begin":
            return self._environment(opening)
        if token.kind != "sign":
            opening = lexer.SPELLINGS.get(opening, opening)
        if opening in lexer.SIDES:
            return self._between_bars(opening)
        closing = lexer.BRACKET_ENDS[opening]
        num_bars = self.num_bars
        self.num_bars = 0
        items, has_comma = self._items(closing)
        if opening == "\\{" and self.peek() in lexer.SUCH_THAT:
            self.position += 1
            items, has_comma = self._items(closing)
            opening = "such that"
        self.num_bars = num_bars
        end = closing.get(self.peek(), "")
        if not end:
            raise NotMathError("a bracket is not closed")
        self.position += 1
        return _in_brackets(opening, end, items, has_comma)

    def _items(self, closing: dict[TokenKey, str]) -> tuple[list[Node], bool]:
        """Read up to a closing bracket, and say whether a comma was in between."""
        items: list[Node] = []
        has_comma = False
        is_set = closing is lexer.BRACKET_ENDS["\\{"]
        while self.peek() not in closing and self.position < len(self.tokens):
            if self._at_separator():
                if self._take_separator().kind == "join" and not is_set:
                    raise NotMathError("a word between the ends of an interval")
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
            if is_set and self.peek() in lexer.SUCH_THAT:
                break
            if len(items) > MAX_ITEMS:
                raise NotMathError("too many items")
        return items, has_comma

    def _between_bars(self, opening: str) -> Node:
        closing, name = lexer.SIDES[opening]
        self.num_bars += 1
        inside = self.expression()
        self.num_bars -= 1
        if self.peek()[1] != closing:
            raise NotMathError("a bar is not closed")
        self.position += 1
        return tree.call(name, inside)

    def _environment(self, name: str) -> Node:
        rows: list[list[Node]] = [[]]
        while self.peek()[0] != "end" or self.position >= len(self.tokens):
            kind, text = self.peek()
            if kind == "sign" and text in ("&", ROW, ","):
                self.position += 1
                if text == ROW:
                    rows.append([])
                continue
            rows[-1].append(self.element())
            if sum(len(row) for row in rows) > MAX_ITEMS:
                raise NotMathError("too many items")
        if self.take().text != name:
            raise NotMathError("an environment is not closed")
        rows = [row for row in rows if row]
        if name not in lexer.MATRICES:
            return tree.seq("", [part for row in rows for part in row])
        if len({len(row) for row in rows}) > 1:
            raise NotMathError("rows of different length")
        return tree.determinant(rows) if name == "vmatrix" else tree.matrix(rows)

    # Sums, products and units

    def expression(self) -> Node:
        """Read a sum."""
        return self.descend(self._sum)

    def _sum(self) -> Node:
        total = self._signed_term()
        while (sign := self.peek()) in lexer.PREFIX_SIGNS or sign in lexer.PLUS_MINUS:
            total = tree.matrix_sum(total, self._signed_term())
        return total

    def _signed_term(self) -> Node:
        factors: list[Node] = []
        while (sign := self.peek()) in lexer.PREFIX_SIGNS or sign in lexer.PLUS_MINUS:
            factors.append(
                lexer.PLUS_MINUS[sign]
                if sign in lexer.PLUS_MINUS
                else tree.make_number(lexer.PREFIX_SIGNS[sign])
            )
            self.position += 1
            if len(factors) > MAX_DEPTH:
                raise NotMathError("too many signs in a row")
        term = self.term()
        for factor in factors:
            if factor == tree.MINUS_ONE:
                term = tree.matrix_negative(term)
            elif factor != tree.ONE:
                term = tree.matrix_product(factor, term)
        return term

    def term(self) -> Node:
        """Read a product, and step over the units in it."""
        start = self.position
        product = self.factor()
        while True:
            sign = self.peek()
            is_number = self.position - start == 1 and self.tokens[start].kind == "number"
            start = self.position
            if sign in lexer.TIMES:
                self.position += 1
                if start != self.units_end or start == 0 or not self._unit():
                    product = tree.matrix_product(product, self.factor())
            elif sign in lexer.OVER:
                self.position += 1
                num_units = len(self.units)
                if self._unit():
                    self.units.insert(num_units, "per")
                else:
                    inverse = tree.power(self.factor(), tree.MINUS_ONE)
                    product = tree.matrix_product(product, inverse)
            elif self.accept("command", "bmod"):
                product = tree.call("mod", product, self.factor())
            elif self._unit():
                continue
            elif self._at_factor():
                if sign[0] == "number" and (is_number or start == self.units_end):
                    raise NotMathError("two numbers side by side")
                if start == self.units_end and self.tokens[start - 1].kind == "chinese":
                    raise NotMathError("a word in the middle of a product")
                if self.is_in_chain and self._at_equation():
                    return product
                product = tree.matrix_product(product, self.factor())
            else:
                return product

    def _at_factor(self) -> bool:
        """Whether another factor follows without a sign between."""
        token = kind, text = self.peek()
        if token in lexer.BAR_SIGNS:
            return self.num_bars == 0
        if token in lexer.OPENING:
            return True
        if token == ("word", "in"):
            return False
        if kind == "number" and not self.tokens[self.position].is_spaced:
            return self.tokens[self.position - 1].kind != "name"  # x2 may be an index or a power
        return kind in lexer.LEAF_KINDS or (kind == "command" and text in lexer.LEAF_COMMANDS)

    def _unit(self) -> bool:
        """Step over a unit after a number: texts, known words, their powers and quotients."""
        if not self._at_unit():
            return False
        self.units.append(self.take().text)
        if self.peek() == ("sign", "^") and self.peek(1) != ("command", "circ"):
            self.position += 1
            self.units.append("^" + _text_of(self.argument()))
        kind, text = self.peek(1)
        is_unit = kind in ("name", "word") and text.lower() in words.UNIT_NAMES
        if is_unit and self.peek() in (("sign", "/"), ("word", "per")):
            self.units += ["per", text]
            self.position += 2
        self.units_end = self.position
        return True

    def _at_unit(self) -> bool:
        """Whether a unit follows; a text after another text that is not a unit is a second
        answer."""
        if self.position in (0, len(self.tokens)):
            return False
        token = self.tokens[self.position]
        before = self.tokens[self.position - 1].kind
        is_after_unit = self.position == self.units_end
        if token.kind == "text":
            return _is_unit_text(token) and (before != "text" or is_after_unit)
        if token.kind == "chinese":
            return not words.is_remark(token.text)
        return _is_unit_word(token) and (before not in ("name", "word") or is_after_unit)

    # Factors

    def factor(self) -> Node:
        """Read a factor of a product, with its sign and powers."""
        if self.peek() not in lexer.PREFIX_SIGNS:
            return self._postfix(self._leaf())
        is_minus = self.take().text == "-"
        factor = self.descend(self.factor)
        return tree.matrix_negative(factor) if is_minus else factor

    def _postfix(self, base: Node) -> Node:
        """Apply what follows a leaf: powers, factorials, percent and degree signs."""
        while True:
            token = kind, text = self.peek()
            word = text.lower() if kind in ("word", "text") else ""
            if token in lexer.CARETS:
                self.position += 1
                base = self._power(base)
            elif token in lexer.POSTFIX or word in words.PERCENT_WORDS:
                self.position += 1
                base = tree.call(lexer.POSTFIX.get(token, "percent"), base)
            elif word in words.SCALES:
                self.position += 1
                base = tree.mul(base, tree.make_number(10 ** words.SCALES[word]))
            elif token in lexer.MODULO:
                self.position += 1
                base = tree.call("modulo", base, self.argument())
            elif token == ("sign", "_") and base.kind == "number":
                self.position += 1
                numeral = _text_of(self.argument()).removeprefix("text ")
                base = tree.symbol(f"{base.value}_{words.BASES.get(numeral, numeral)}")
            else:
                return base

    def _power(self, base: Node) -> Node:
        is_group = self.peek() == ("sign", "{")
        mark = self.peek(int(is_group))
        if mark in lexer.RAISED_MARKS and (not is_group or self.peek(2) == ("sign", "}")):
            self.position += 3 if is_group else 1
            if mark[1] != "prime":
                return tree.call("degree", base)
            if base.kind == "symbol":
                return tree.symbol(base.name + "'")
            return tree.call("prime", base)
        if mark in lexer.TRANSPOSE and tree.is_matrix(base):
            self.position += 3 if is_group else 1
            return tree.matrix(zip(*(row.args for row in base.args), strict=True))
        exponent = self.argument()
        if self.peek() in lexer.CARETS:
            self.position += 1
            exponent = self.descend(lambda: self._power(exponent))
        return tree.power(base, exponent)

    def argument(self, *, is_digit: bool = False) -> Node:
        r"""Read what a command applies to: a brace group or one leaf.

        With `is_digit` a single digit is taken from a number, as in `\frac12`.
        """
        token = kind, text = self.peek()
        if token == ("sign", "{"):
            return self.bracket()
        if is_digit and kind == "number" and len(text) > 1 and text[0].isdigit():
            self.tokens[self.position] = Token("number", text[1:], False)
            return self._numeral(Fraction(int(text[0])))
        if kind == "number":  # 6 in log_6 1/36 is not part of a mixed number
            self.position += 1
            return self._numeral(*decimal(text))
        if token in lexer.PREFIX_SIGNS:
            self.position += 1
            argument = self.descend(self.argument)
            return tree.negative(argument) if text == "-" else argument
        return self.descend(self._leaf)

    # Leaves

    def _leaf(self) -> Node:
        token = kind, text = self.peek()
        if kind == "number":
            return self._number()
        if kind == "begin" or token in lexer.OPENING:
            return self.bracket()
        taken = self.take()
        if kind == "command":
            return self._command(text)
        if kind == "word":
            return self._word(text)
        if kind == "name":
            return self._symbol(text)
        if kind == "text":
            return self._text(taken)
        raise NotMathError(f"{text!r} is out of place")

    def _number(self) -> Node:
        digits = self.take().text
        value, num_digits = decimal(digits)
        kind, text = self.peek()
        if text == "!" and digits.startswith("00"):
            raise NotMathError(f"{digits} is no number")
        if self.literal and "e" in (lower := digits.lower()):
            mantissa, _, exponent = lower.partition("e")
            scale = tree.power(self._numeral(Fraction(10)), self._signed(int(exponent)))
            return tree.mul(self._numeral(Fraction(mantissa)), scale)
        if "." in digits:
            if kind == "text" and self.tokens[self.position].detail in ("overline", "bar", "dot"):
                return self._numeral(repeating_decimal(digits, self.take().text))
            if kind == "command" and text in ("ldots", "dots", "cdots"):
                self.position += 1
                return self._numeral(repeating_decimal(digits))
        if digits.isdigit():
            if (kind, text) == ("command", "frac") and self._is_mixed_number():
                self.position += 1
                return tree.add(self._numeral(value), self._fraction())
            is_spaced = kind == "number" and self.tokens[self.position].is_spaced
            if is_spaced and self.peek(1) == ("sign", "/"):
                self.position += 2
                bottom = self.take().text
                if text.isdigit() and bottom.isdigit() and int(bottom[:50]) > 0:
                    return self._numeral(value + decimal(text)[0] / decimal(bottom)[0])
                raise NotMathError("two numbers side by side")
        return self._numeral(value, num_digits)

    def _numeral(self, value: Fraction, num_digits: int = 0) -> Node:
        is_symbol = self.literal and value not in (0, 1)
        return tree.symbol(f"{value}") if is_symbol else tree.make_number(value, num_digits)

    def _signed(self, value: int) -> Node:
        numeral = self._numeral(Fraction(abs(value)))
        return tree.negative(numeral) if value < 0 else numeral

    def _is_mixed_number(self) -> bool:
        r"""Whether the `\frac` that follows holds only digits."""
        ahead = [self.peek(index) for index in range(1, 7)]
        shape = " ".join({"number": "#", "sign": text}.get(kind, "?") for kind, text in ahead)
        if shape.startswith(("{ # } { # }", "# #", "# { # }", "{ # } #")):
            return True
        return ahead[0][0] == "number" and len(ahead[0][1]) == 2

    def _fraction(self) -> Node:
        top = self.argument(is_digit=True)
        return tree.divide(top, self.argument(is_digit=True))

    def _command(self, name: str) -> Node:
        if name == "frac":
            return self._fraction()
        if name in ("sqrt", "cbrt"):
            return self._root(3 if name == "cbrt" else 2)
        if name in lexer.BINOMIALS:
            return tree.call("binom", self.argument(is_digit=True), self.argument(is_digit=True))
        if name in words.FUNCTIONS:
            return self._function(name)
        if name in words.OPAQUE:
            return self._opaque(name)
        if name in lexer.NAMED_SYMBOLS:
            return self._symbol(lexer.NAMED_SYMBOLS[name])
        raise NotMathError(f"\\{name} is not read")

    def _root(self, degree: int) -> Node:
        order = tree.make_number(degree)
        if self.accept("sign", "["):
            order = self.expression()
            if not self.accept("sign", "]"):
                raise NotMathError("the degree of a root is not closed")
        return tree.power(self.argument(), tree.divide(tree.ONE, order))

    def _function(self, name: str) -> Node:
        base = exponent = None
        while self.peek() in lexer.SCRIPT_SIGNS:
            if self.take().text == "_":
                base = self.argument()
            else:
                exponent = self.argument()
        inside = self._function_argument()
        name = words.FUNCTIONS[name]
        if name in words.TRIGONOMETRIC:
            inside = _in_radians(inside)
            if exponent == tree.MINUS_ONE and name in ("sin", "cos", "tan"):
                name = "arc" + name
                exponent = None
        if name == "sqrt":
            node = tree.power(inside, tree.HALF)
        elif name == "exp":
            node = tree.power(tree.symbol("e"), inside)
        elif name == "log" and base is not None:
            node = tree.divide(tree.call("ln", inside), tree.call("ln", base))
        else:
            args = inside.args if inside.kind == "seq" else (inside,)
            if not args:
                raise NotMathError(f"{name} of nothing")
            node = tree.call(name if base is None else f"{name}_{_text_of(base)}", *args)
        return node if exponent is None else tree.power(node, exponent)

    def _function_argument(self) -> Node:
        """Read the brackets after a function, or the product up to the next function or sign."""
        if self.peek() in lexer.OPENING or self.peek()[1] in lexer.BRACKET_COMMANDS:
            return self.bracket()
        product = self.factor()
        while self._at_factor():
            kind, text = self.peek()
            if text in words.FUNCTIONS or kind in ("text", "begin"):
                break
            if kind == "sign" and text in ("(", "[") and product.kind != "number":
                break
            product = tree.mul(product, self.factor())
        if self.peek() in lexer.OVER and self.peek(1)[0] == "number":
            self.position += 1
            product = tree.divide(product, self.factor())
        return product

    def _opaque(self, name: str) -> Node:
        """Read a sum, product, limit or integral; unless written out, it equals only itself."""
        bounds: list[str] = []
        while self.peek() in lexer.SCRIPT_SIGNS:
            bounds.append(self.take().text + "".join(self._group()))
        body = self.term()
        written_out = None if self.literal else _write_out(name, " ".join(bounds), body)
        return written_out or tree.call(name, *map(tree.symbol, bounds), body)

    def _group(self) -> list[str]:
        """Take one token, or a brace group as written."""
        start = self.position
        depth = 0
        while self.position == start or depth > 0:
            token = self.take()[:2]
            depth += (token == ("sign", "{")) - (token == ("sign", "}"))
        return [token.text for token in self.tokens[start : self.position]]

    def _word(self, word: str) -> Node:
        lower = word.lower()
        if lower in words.FUNCTIONS and (
            lower in words.PREFIX_FUNCTIONS or self.peek()[1] in ("(", "{", "^", "_", "|")
        ):
            return self._function(lower)
        if lower in words.CONSTANT_WORDS:
            return tree.symbol(words.CONSTANT_WORDS[lower])
        if lower in words.GREEK:
            return self._symbol(lower)
        if word[:-1] in ("sin", "cos", "tan", "ln", "log"):
            self.position -= 1
            token = self.tokens[self.position]
            self.tokens[self.position] = token._replace(kind="name", text=word[-1])
            return self._function(word[:-1])
        if lower in words.PROSE or (len(word) > 3 and not (word.isupper() and len(word) <= 6)):
            raise NotMathError(f"{word!r} is a word")
        letters = [Token("name", letter, False) for letter in word]
        self.tokens[self.position - 1 : self.position] = letters
        return self._symbol(word[0])

    def _text(self, token: Token) -> Node:
        content = token.text.strip()
        bare = content.strip("() ")
        if token.detail in ("dot", "ddot"):
            return self._symbol(content + "''"[: token.detail.count("d")])
        if token.detail in words.VECTORS and not content.isdigit():
            return self._symbol(f"{words.VECTORS[token.detail]} {content}")
        if bare.isdigit() and len(bare) < 50:
            return self._numeral(Fraction(int(bare)))
        if len(bare) == 1 and bare.isalpha():
            return self._symbol(bare)
        if len(bare) > 1 and bare.lower() in words.CONSTANT_WORDS:
            return tree.symbol(words.CONSTANT_WORDS[bare.lower()])
        return self._symbol(f"text {content.casefold()}")

    def _symbol(self, name: str) -> Node:
        """Read what belongs to a name: subscripts, primes, the arguments of a function."""
        while self.peek() in lexer.NAME_ENDINGS:
            name += (mark := self.take().text)
            if mark == "_":
                name += "".join(text for text in self._group() if text not in "{}")
        if self.peek() != ("sign", "("):
            return tree.symbol(name)
        if self.peek(2) == ("sign", ","):
            inside = self.bracket()
            if inside.kind == "seq":
                return tree.call(name, *inside.args)
            return tree.mul(tree.symbol(name), inside)
        is_number = self.peek(1)[0] == "number" and self.peek(2) == ("sign", ")")
        is_call = is_number and (name[0] in lexer.FUNCTION_NAMES or name in tree.NAMED_FUNCTIONS)
        return tree.call(name, self.bracket()) if is_call else tree.symbol(name)


def _one_or_list(items: list[Node]) -> Node:
    return items[0] if len(items) == 1 else tree.seq("", items)


def _in_brackets(opening: str, end: str, items: list[Node], has_comma: bool) -> Node:
    if opening == "{" and not items:
        raise NotMathError("nothing in braces")
    if opening in ("{", "such that"):
        return _one_or_list(items)
    if opening == "\\{":
        return tree.seq("{}", items)
    brackets = ("(" if opening == "<" else opening) + end
    if len(items) == 1 and not has_comma and brackets in ("()", "[]"):
        return items[0]
    return tree.seq(brackets, items)


def _is_set(node: Node) -> bool:
    """Whether a node may be a set that is not empty: brackets, a name, an expression of names."""
    if node.kind == "seq":
        return bool(node.args) and not tree.is_matrix(node)
    if node.kind == "call" and node.name in lexer.SET_OPERATIONS.values():
        return True
    return node.kind != "relation" and bool(tree.symbols(node) - {"∅"})


def _both_signs(node: Node) -> list[Node]:
    """Write a plus-or-minus out as two nodes."""
    if not tree.names(node) & {"±", "∓"}:
        return [node]
    pairs = ((tree.ONE, tree.MINUS_ONE), (tree.MINUS_ONE, tree.ONE))
    return [
        tree.substitute(tree.substitute(node, "±", upper), "∓", lower) for upper, lower in pairs
    ]


def _write_out(name: str, bounds: str, body: Node) -> Node | None:
    """Write out a sum or product over a short range of whole numbers; None otherwise."""
    match = _FROM_TO.fullmatch(bounds)
    if match is None or name not in ("sum", "prod"):
        return None
    start = int(match[2])
    stop = int(match[3])
    if not 0 <= stop - start < MAX_TERMS // max(1, sum(1 for _ in tree.walk(body)) // 20):
        return None
    indices = map(tree.make_number, range(start, stop + 1))
    terms = [tree.substitute(body, match[1], index) for index in indices]
    return tree.add(*terms) if name == "sum" else tree.mul(*terms)


def _in_radians(node: Node) -> Node:
    if node.kind == "call" and node.name == "degree":
        return tree.mul(node.args[0], tree.symbol("π"), tree.make_number(Fraction(1, 180)))
    return tree.rebuild(node, _in_radians)


def _text_of(node: Node) -> str:
    return str(node.value) if node.kind == "number" else node.name


def _is_unit_text(token: Token) -> bool:
    content = token.text
    if token.detail in words.VECTORS or content in ("e", "i", "π") or words.is_remark(content):
        return False
    return any(letter.isalpha() for letter in content) or not content


def _is_unit_word(token: Token) -> bool:
    """Whether a word after a number is a unit: a known word, or a longer word separated by a
    space."""
    text = token.text
    if token.kind != "word" or text in words.FUNCTIONS or text in lexer.NAMED_SYMBOLS:
        return False
    if text.lower() in words.UNIT_WORDS:
        return True
    is_plural = text[:-1].isupper() and text[-1] == "s" and len(text) > 2  # CDs
    is_noun = len(text) > 3 and text.islower() and not words.is_remark(text)
    return token.is_spaced and (is_plural or is_noun)
