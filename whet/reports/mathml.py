r"""LaTeX as MathML, which browsers draw without a script: fractions, roots, powers, Greek letters.

The text comes from a model, so all of it is escaped, and only the tags below are written. A formula
with anything unknown stays as it is.
"""

import re
from html import escape

from whet.reports.formatting import Html, escape_hidden

MAX_DEPTH = 30
"""Braces within braces; a formula with more stays text."""
MAX_FORMULA = 2_000
FORMULA = re.compile(
    r"\$\$(?P<block>[^$]+?)\$\$"
    r"|\\\[(?P<display>.+?)\\\]"
    r"|\\\((?P<inline>.+?)\\\)"
    r"|(?<![\\$\w])\$(?P<dollar>(?![\s$])[^$\n]*?(?<![\s\\]))\$(?!\d)"
    r"|(?P<boxed>\\boxed\{(?:[^{}\n]|\{(?:[^{}\n]|\{[^{}\n]*\})*\})*\})",
    re.DOTALL,
)
"""Formulas in a text. A dollar sign before a space or a digit
does not close one, so prices stay prices."""
TOKEN = re.compile(r"\\([A-Za-z]+|.)|(\d+(?:[.,]\d+)*)|(\s+)|(.)", re.DOTALL)


def _read_pairs(text: str) -> dict[str, str]:
    """Read pairs of a TeX name and its sign."""
    words = text.split()
    return dict(zip(words[::2], words[1::2], strict=True))


_GREEK = _read_pairs(
    """
    alpha α beta β gamma γ delta δ epsilon ϵ varepsilon ε zeta ζ eta η theta θ vartheta ϑ
    iota ι kappa κ lambda λ mu μ nu ν xi ξ pi π rho ρ sigma σ tau τ upsilon υ phi ϕ varphi φ
    chi χ psi ψ omega ω Gamma Γ Delta Δ Theta Θ Lambda Λ Xi Ξ Pi Π Sigma Σ Upsilon Υ Phi Φ
    Psi Ψ Omega Ω
    """
)
_LETTERS = {**_GREEK, "infty": "∞", "emptyset": "∅", "varnothing": "∅", "ell": "ℓ", "partial": "∂"}
OPERATORS = _read_pairs(
    """
    cdot ⋅ times × div ÷ pm ± mp ∓ ast ∗ circ ∘ le ≤ leq ≤ ge ≥ geq ≥ ne ≠ neq ≠ lt < gt >
    approx ≈ equiv ≡ sim ∼ cong ≅ propto ∝ in ∈ notin ∉ subset ⊂ subseteq ⊆ cup ∪ cap ∩
    setminus ∖ mid ∣ forall ∀ exists ∃ neg ¬ land ∧ lor ∨ wedge ∧ vee ∨ to → rightarrow →
    Rightarrow ⇒ implies ⇒ leftarrow ← iff ⇔ Leftrightarrow ⇔ mapsto ↦ sum ∑ prod ∏ int ∫
    ldots … dots … cdots ⋯ angle ∠ triangle △ perp ⊥ parallel ∥ lfloor ⌊ rfloor ⌋ lceil ⌈
    rceil ⌉ langle ⟨ rangle ⟩ { { } } % % $ $ # # & & _ _ | ∥ lvert | rvert | vert | prime ′
    star ⋆ bmod mod degree °
    """
)
_FUNCTIONS = frozenset(
    re.findall(
        r"\w+",
        """
        Pr arccos arcsin arctan arg cos cosh cot csc deg det dim exp gcd inf ker lcm lim ln log
        max min mod sec sin sinh sup tan tanh
        """,
    )
)
SPACES = frozenset([",", ";", ":", "!", " ", "quad", "qquad", "displaystyle", "textstyle"])
TEXTS = frozenset(
    re.findall(
        r"\w+",
        """
        mathbf mathit mathrm mathsf mbox operatorname text textbf textit textrm
        """,
    )
)
IGNORED = frozenset(["left", "right", "big", "Big", "bigl", "bigr", "Bigl", "Bigr", "limits"])
ACCENTS = {"overline": "¯", "bar": "¯", "hat": "^", "vec": "→", "tilde": "~"}
SUMS = frozenset("∑∏")


def show_math(text: str) -> Html:
    """Escape a text, and write its formulas as MathML if every part of them is known."""
    parts = []
    end = 0
    for match in FORMULA.finditer(text):
        parts += [_escape(text[end : match.start()]), _convert(match)]
        end = match.end()
    return Html("".join([*parts, _escape(text[end:])]))


def _escape(text: str) -> str:
    return escape(escape_hidden(text))


def _convert(match: re.Match[str]) -> str:
    """Write a formula as MathML with its source as annotation, or as text."""
    source = next(group for group in match.groups() if group is not None)
    try:
        if len(source) > MAX_FORMULA:
            raise _UnknownError
        formula = _Parser(source).parse()
    except _UnknownError:
        return _escape(match[0])
    block = match["block"] or match["display"]
    opening = '<math display="block">' if block is not None else "<math>"
    note = f'<annotation encoding="application/x-tex">{_escape(source)}</annotation>'
    return f"{opening}<semantics>{formula}{note}</semantics></math>"


class _UnknownError(Exception):
    """A formula uses something that this module does not support."""


class _Parser:
    """Reads a formula from left to right, one token at a time."""

    def __init__(self, source: str) -> None:
        self.tokens = list(TOKEN.finditer(source))
        self.position = 0
        self.depth = 0

    def parse(self) -> str:
        """Read the whole formula."""
        return f"<mrow>{self._row(None)}</mrow>"

    def _row(self, end: str | None) -> str:
        """Read up to and including the token that ends the row; None is the end of the formula."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _UnknownError
        parts: list[str] = []
        while (token := self._peek()) != end:
            if token is None:
                raise _UnknownError
            parts.append(self._scripted())
        self.position += 1
        self.depth -= 1
        return "".join(parts)

    def _peek(self) -> str | None:
        return None if self.position >= len(self.tokens) else self.tokens[self.position][0]

    def _scripted(self) -> str:
        """Read an element with the powers and indices that follow it."""
        base = self._element()
        scripts: dict[str, str] = {}
        while (token := self._peek()) in ("^", "_") and token is not None:
            if token in scripts:
                raise _UnknownError
            self.position += 1
            scripts[token] = self._argument()
        if not scripts:
            return base
        base = base or "<mrow></mrow>"
        is_sum = any(sign in base for sign in SUMS)
        above, below, both = (
            ("mover", "munder", "munderover") if is_sum else ("msup", "msub", "msubsup")
        )
        if len(scripts) == 2:
            return f"<{both}>{base}{scripts['_']}{scripts['^']}</{both}>"
        tag = above if "^" in scripts else below
        return f"<{tag}>{base}{next(iter(scripts.values()))}</{tag}>"

    def _argument(self) -> str:
        """Read one element, or a group in braces, as one box."""
        self._skip_spaces()
        token = self._peek()
        if token is None or token in ("^", "_", "}"):
            raise _UnknownError
        if token.isdigit() and len(token) > 1:  # \frac12 is one half
            return self._split_digit()
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise _UnknownError
        element = self._element() or "<mrow></mrow>"
        self.depth -= 1
        return element

    def _split_digit(self) -> str:
        digits = self.tokens[self.position][0]
        rest = TOKEN.match(digits[1:])
        assert rest is not None, "there are two digits at least"
        self.tokens[self.position] = rest
        return f"<mn>{digits[0]}</mn>"

    def _skip_spaces(self) -> None:
        while (token := self._peek()) is not None and token.isspace():
            self.position += 1

    def _element(self) -> str:
        match = self.tokens[self.position]
        self.position += 1
        command, digits, space, sign = match.groups()
        if command is not None:
            return self._command(command)
        if digits is not None:
            return f"<mn>{digits}</mn>"
        if space is not None:
            return ""
        if sign == "{":
            return f"<mrow>{self._row('}')}</mrow>"
        if sign in "}&^_$\\#%~":
            raise _UnknownError
        tag = "mi" if sign.isalpha() else "mo"
        return f"<{tag}>{_escape('−' if sign == '-' else sign)}</{tag}>"

    def _command(self, name: str) -> str:
        if name in _LETTERS:
            return f"<mi>{_LETTERS[name]}</mi>"
        if name in OPERATORS:
            return f"<mo>{escape(OPERATORS[name])}</mo>"
        if name in _FUNCTIONS:
            return f"<mi>{name}</mi>"
        if name in SPACES:
            return '<mspace width="0.3em"></mspace>' if "quad" in name else ""
        if name in IGNORED:
            if name in ("left", "right") and self._peek() == ".":
                self.position += 1
            return ""
        return self._call(name)

    def _call(self, name: str) -> str:
        """Read a command with arguments."""
        if name in TEXTS:
            return f"<mtext>{_escape(self._text())}</mtext>"
        if name in ("frac", "dfrac", "tfrac", "cfrac"):
            return f"<mfrac>{self._argument()}{self._argument()}</mfrac>"
        if name == "sqrt":
            index = self._index()
            root = self._argument()
            return f"<mroot>{root}{index}</mroot>" if index else f"<msqrt>{root}</msqrt>"
        if name in ("boxed", "fbox"):
            return f'<mrow class="boxed">{self._argument()}</mrow>'
        if name in ACCENTS:
            return f"<mover>{self._argument()}<mo>{ACCENTS[name]}</mo></mover>"
        if name in ("binom", "dbinom"):
            pair = f'<mfrac linethickness="0">{self._argument()}{self._argument()}</mfrac>'
            return f"<mrow><mo>(</mo>{pair}<mo>)</mo></mrow>"
        raise _UnknownError

    def _index(self) -> str:
        """Read the index of a root, in square brackets."""
        self._skip_spaces()
        if self._peek() != "[":
            return ""
        self.position += 1
        return f"<mrow>{self._row(']')}</mrow>"

    def _text(self) -> str:
        """Read the words in the braces of a text, without commands."""
        self._skip_spaces()
        if self._peek() != "{":
            raise _UnknownError
        self.position += 1
        words = []
        while (word := self._peek()) != "}":
            if word is None or word.startswith(("{", "\\")):
                raise _UnknownError
            words.append(word)
            self.position += 1
        self.position += 1
        return "".join(words).replace(" ", "\N{NO-BREAK SPACE}")
