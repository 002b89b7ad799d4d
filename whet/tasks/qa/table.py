"""Answers from tables: HiTab, MultiHiertt, FinQA, TableBench, TabMWP.

A problem's `answer` is a number with or without a unit, a text, or a list; a list with bars (`a |
b`) is free in its order, one with commas is not unless the payload says `"order": "free"`. The
`payload` may hold further accepted `answers`, the `unit` the question asks for, and a relative
`tolerance` where the data set defines one; none is assumed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from whet.config import Config
from whet.tasks.answers import no_answer, to_score, write_in_line
from whet.tasks.base import FileTask, data_error
from whet.tasks.qa.choice import last_word
from whet.tasks.qa.quantity import Quantity, plain_text, quantity, unit_words
from whet.tasks.qa.stated import MAX_SPAN, statements
from whet.text import doubt
from whet.text.final_answer import decided_text
from whet.text.sentences import find_only_number, text_after_verb
from whet.types import Problem, Score, read_number

_VERB = re.compile(
    r"\b(?:is|are|was|were|be|equals|will|would|can|should|must|has|have|had|does|did)\b"
)
"""In small letters: `What Is Love` is a name."""
_TAKEN_BACK = re.compile(
    doubt.any_of(doubt.TURN, doubt.FALSE, doubt.CHOICE, "but") + r"|[0-9?]", re.IGNORECASE
)
"""With it the sentence behind a number may speak of another one."""
_TAKES_BACK = re.compile(
    doubt.any_of(doubt.TURN, doubt.FALSE, "should|must|is|are|was") + r"|[=?]|^\W*[$£€]?[0-9]",
    re.IGNORECASE,
)
"""With it the line behind a box may state another answer."""
_IN = re.compile(r"(?:in|on|by|at|for|during)\s", re.IGNORECASE)
_NEEDS = re.compile(r"\b[a-z]{2,20}s (?:\*\*\s?[$£€]?|[$£€]\s?)[0-9]")
"""A verb of its own before a sum or a bold number: `she needs **$5**`."""
_ABOUT = re.compile(
    r"(?i)(?:\b(?:about|approximately|approx\.?|roughly|around)\s|\\approx(?![a-z])|[≈~])"
    r"[\s$\\]*(?=-?[0-9])"
)
_DECIMAL = re.compile(r"[0-9]\.[0-9]")
_LISTING = re.compile(
    r"(?:\A|\n)(?P<heading>[^\n]*)\n+"
    r"(?P<items>(?:[ \t]*(?:[-*•]|[0-9]{1,3}[.)])[ \t][^\n]*(?:\n+|\Z)){2,})\Z"
)
"""Lines with a bullet or a number each, at the end."""
_ASKED = re.compile(r"[^.?!\n]*\?")
_CHAIN = re.compile(r"\s+(?:>|->|→|\\to\b|\\rightarrow\b|\\gt\b)\s+")
_PARTING = re.compile(r"""(?<=[0-9])["'`*_!?;~{}()\[\]<>\\]+(?=[0-9])""")
_DROPPED = re.compile(
    r"""["'`*_?;~{}()\[\]\\]|[<>!](?!\s?[-=$]?\s?[0-9])"""
    r"""|(?<![0-9])[.,:]|[.,:](?![0-9])|(?<=[^\W\d])-(?=\w)|(?<![A-Z0-9])-(?![0-9])"""
)
_ARTICLE = re.compile(r"\bthe\s+|\A(?:a|an)\s+(?=\w{2})", re.IGNORECASE)
_INITIAL = re.compile(r"\W*An?\b\W+(?=[^\W\da-z_]\w)")
_CELL_END = re.compile(r"[|\t\n,;\"\[\]]")
_MAX_PARTS = 256
_MAX_LINE = 400


class TableConfig(Config):
    name: Literal["table"] = "table"
    percent_sign: Literal["optional", "required"] = "optional"
    """Whether 69.75 is right for 69.75 %; never is 69.75 % right for 69.75, nor 5000 for 50."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """How values are compared for one problem."""

    unit: frozenset[str] = frozenset()
    tolerance: Fraction = Fraction(0)
    is_free: bool = False
    needs_percent: bool = False
    question: str = ""
    """With the table in it."""


class Table(FileTask):
    """Grades numbers, texts and lists; its problems come from files."""

    name = "table"
    config: TableConfig

    def score(self, problem: Problem, text: str) -> Score:
        """State whether the last answer is one of the accepted ones. Parts: `correct`."""
        golds = list_earlier_stages(problem)
        rule = self._rule(problem)
        answer = read_answer(text)
        is_whole = any(_is_whole(gold, text) for gold in golds)
        if answer is None and not is_whole:
            return no_answer()
        answer = text if answer is None else answer
        is_right = is_whole or any(
            agrees(gold, answer, rule) or _agrees_otherwise(gold, text, rule) for gold in golds
        )
        is_right = is_right or any(_restates(rule.question, gold, answer) for gold in golds)
        note = "agrees with the answer" if is_right else f"the answer is {golds[0][:80]!r}"
        return to_score(is_right, {}, answer.strip(), note)

    def _rule(self, problem: Problem) -> Rule:
        unit = problem.payload.get("unit")
        tolerance = problem.payload.get("tolerance") or 0
        is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
        if not is_number or not 0 <= read_number(tolerance) < 1:
            raise data_error(problem, "a tolerance from 0 to 1", tolerance)
        return Rule(
            unit=unit_words(unit) if isinstance(unit, str) else frozenset(),
            tolerance=Fraction(str(tolerance)),
            is_free=problem.payload.get("order") == "free",
            needs_percent=self.config.percent_sign == "required",
            question=problem.prompt[-1].content,
        )


def list_earlier_stages(problem: Problem) -> list[str]:
    """List the references: the answer, and further ones of the payload."""
    more = problem.payload.get("answers")
    texts = [problem.answer, *(more if isinstance(more, list) else [])]
    golds = dict.fromkeys(str(text) for text in texts if text is not None and str(text).strip())
    if not golds:
        raise data_error(problem, "an answer", problem.answer)
    return list(golds)


def read_answer(text: str) -> str | None:
    """Choose the one reading of a response, whatever the reference is; None where there is none.

    What a tag or a box holds is an answer as it is. What follows a marker, or the last line, may be
    a sentence: then its number counts, else what stands after its verb.
    """
    stated = [span for span in statements(text) if span.form != "conclusion"]
    if not stated:
        return None
    last = stated[-1]
    marked = next((span for span in reversed(stated) if span.is_explicit), None)
    if marked is not None and last.form == "line" and not _TAKES_BACK.search(last.text):
        last = marked
    longest = _MAX_LINE if last.form == "line" else MAX_SPAN
    if not last.text.strip() or len(last.text) > longest:
        return None
    bare = last.text.strip().strip("#").strip().removeprefix("=").strip()
    return bare if last.is_explicit else _read_sentence(doubt.cut_remarks(bare))


def _agrees_otherwise(gold: str, text: str, rule: Rule) -> bool:
    """Compare by what the reference is: a rounded number, a yes or no, or a list in lines."""
    if _DECIMAL.search(gold) and _ABOUT.search(text):
        exact = read_answer(_ABOUT.sub("", text))
        return exact is not None and agrees(gold, exact, rule)
    if gold.strip().lower() in ("yes", "no"):
        word = last_word(text)
        return word is not None and word[1] == gold.strip().lower()
    if len(split_list(gold)) < 2:
        return False
    listing = _LISTING.search((decided_text(text) or "")[-MAX_SPAN:].rstrip())
    if listing is None or doubt.is_doubtful(listing["heading"] + listing["items"][-1]):
        return False
    return agrees(gold, write_in_line(listing["items"]), rule)


def _restates(question: str, gold: str, answer: str) -> bool:
    """Whether an answer says the question again with the reference in the place of what is asked.

    >>> _restates("Which dog has grown the most?", "Champ", "Champ has grown the most.")
    True
    """
    asked = _ASKED.findall(question[-MAX_SPAN:])
    name = text_form(gold).split()
    words = text_form(plain_text(answer).replace("'s", "")).split()
    rest = words[len(name) :]
    if not asked or not rest or words[: len(name)] != name or doubt.is_doubtful(plain_text(answer)):
        return False
    if _adds_initial(gold, answer):
        return False
    known = text_form(plain_text(asked[-1]).replace("'s", "")).split()
    return _VERB.search(plain_text(answer)) is not None and known[-len(rest) :] == rest


def _read_sentence(span: str) -> str:
    first, end, reason = span.partition(". ")
    if end and quantity(first) is not None and not _TAKEN_BACK.search(reason):
        return first
    verb = _VERB.search(span)
    if verb is None:
        span = doubt.strip_lead(span)
        is_sentence = _IN.match(span) or _NEEDS.search(span)
        return find_only_number(span) or span if is_sentence else span
    is_quantity = quantity(span) is not None or quantity(span[: verb.start()]) is not None
    if is_quantity or doubt.is_denied(span, verb.end(), verb.end()):
        return span
    rest = text_after_verb(span)
    number = _VERB.split(find_only_number(span) or "")[0].strip()
    is_name = rest is not None and (not rest[:1].islower() or quantity(rest) is not None)
    return number if quantity(number) is not None and not is_name else rest or span


def _is_whole(gold: str, text: str) -> bool:
    """Whether the reference is a sentence or a long listing, and the response says just that."""
    response = (decided_text(text) or "")[: MAX_SPAN + 1].strip()
    is_short = _VERB.search(gold) is None and len(gold) <= _MAX_LINE
    if is_short or len(response) > MAX_SPAN:
        return False
    stated = [span.text for span in statements(text) if span.form != "conclusion"]
    return text_form(gold) in (text_form(response), text_form(stated[-1] if stated else ""))


def agrees(gold: str, answer: str, rule: Rule) -> bool:
    """Compare two answers: as texts, as quantities, then as lists of both."""
    if _is_same(gold, answer, rule):
        return True
    golds = split_list(gold)
    if not 2 <= len(golds) <= _MAX_PARTS:
        return False
    answers = split_list(answer)
    if len(answers) != len(golds):
        answers = [part for answer in answers for part in answer.split(" and ")]
    if len(answers) != len(golds):
        return False
    if rule.is_free or "|" in gold:
        return _match_all(golds, answers, rule)
    return all(_is_same(left, right, rule) for left, right in zip(golds, answers, strict=True))


def _match_all(golds: Sequence[str], answers: Sequence[str], rule: Rule) -> bool:
    """Give every reference an answer of its own."""
    left = list(answers)
    for gold in golds:
        match = next((answer for answer in left if _is_same(gold, answer, rule)), None)
        if match is None:
            return False
        left.remove(match)
    return True


def _is_same(gold: str, answer: str, rule: Rule) -> bool:
    form = "" if answer.rstrip(" *")[-1:] == "?" != gold.strip()[-1:] else text_form(gold)
    if gold.strip() == answer.strip():
        return True
    if form and form == text_form(answer):
        return not _is_other_name(gold, answer, rule.question)
    left = quantity(gold)
    right = quantity(answer)
    if left is None or right is None or left.is_glued:
        return False
    return _is_equal(left, right, rule)


def _is_other_name(gold: str, answer: str, question: str) -> bool:
    """Whether an article makes another name of it: as an initial, or where the table has both."""
    names = {text_form(name, has_articles=True) for name in (gold, answer)}
    if len(names) == 1:
        return False
    cells = {text_form(cell, has_articles=True) for cell in _CELL_END.split(question)}
    return _adds_initial(gold, answer) or names <= cells


def _adds_initial(gold: str, answer: str) -> bool:
    """Whether an answer names an `A Telford` where the reference is `Telford`."""
    is_name = gold.strip()[:1].isupper() and not _INITIAL.match(gold)
    return is_name and _INITIAL.match(plain_text(answer)) is not None


def _is_equal(gold: Quantity, answer: Quantity, rule: Rule) -> bool:
    if gold.is_percent != answer.is_percent:
        return _is_equal_in_percent(gold, answer, rule)
    wanted = gold.unit | rule.unit
    fits = not wanted or not answer.unit or answer.unit <= wanted or wanted <= answer.unit
    return fits and _is_near(gold.value, answer.value, rule)


def _is_equal_in_percent(gold: Quantity, answer: Quantity, rule: Rule) -> bool:
    """Compare a percentage with a plain number: by value, or as is where the sign is optional."""
    if gold.is_percent:
        is_bare = not answer.unit and not rule.needs_percent
        is_same_number = is_bare and _is_near(gold.value, answer.value, rule)
        return is_same_number or _is_near(gold.value / 100, answer.value, rule)
    if "percent" in rule.unit:
        return _is_near(gold.value, answer.value, rule)
    return not gold.unit and _is_near(gold.value, answer.value / 100, rule)


def _is_near(gold: Fraction, answer: Fraction, rule: Rule) -> bool:
    return abs(gold - answer) <= rule.tolerance * abs(gold)


def text_form(text: str, *, has_articles: bool = False) -> str:
    """Reduce a text to what must agree: one case, no articles, punctuation inside numbers only.

    >>> text_form("The 'Red' Team, 3 - 0!") == text_form("red team 3 - 0")
    True
    """
    plain = " ".join(re.sub(r"(?<=[0-9])\s*-\s*(?=[0-9])", "-", plain_text(text)).split())
    plain = re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", plain)
    plain = _DROPPED.sub("", _PARTING.sub(" ", plain))
    words = " ".join((plain if has_articles else _ARTICLE.sub("", plain)).casefold().split())
    return re.sub(r"(?<=[0-9]) (?=[^\W\d])", "", words)


def split_list(text: str) -> list[str]:
    """Split a list at its bars, else its semicolons, else its commas outside numbers or its arrows.

    >>> split_list("5,118,195, 1218.56"), split_list("a | b, c")
    (['5,118,195', '1218.56'], ['a', 'b, c'])
    """
    for mark in ("|", ";"):
        if mark in text:
            return [part.strip() for part in text.split(mark) if part.strip()]
    inner = text.strip()
    if "," not in inner and _CHAIN.search(inner):
        return [part.strip(" *$") for part in _CHAIN.split(inner)]
    if inner[:1] == "[" and inner[-1:] == "]":
        inner = inner[1:-1]
    parts = re.split(r",(?![0-9]{3}(?![0-9]))|(?<![0-9]),|(?<=[0-9]{4}),", inner)
    return [part.strip().removeprefix("and ").strip(" \"'") for part in parts if part.strip()]
