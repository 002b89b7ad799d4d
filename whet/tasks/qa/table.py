"""Answers from tables: HiTab, MultiHiertt, FinQA, TableBench, TabMWP.

A problem's `answer` is a number with or without a unit, a text, or a list. A list with bars (`a |
b`) may be in any order unless the question asks for one. A list with commas may be in any order
only if the payload says `"order": "free"`. The `payload` may have further accepted `answers`, the
`unit` that the question asks for, and a relative `tolerance` if the data set defines one; by
default there is none.
"""

import re
from fractions import Fraction
from typing import Literal

from whet.answers import doubt
from whet.answers.final_answer import decided_text, find_tags
from whet.answers.sentences import find_only_number, text_after_label, text_after_verb
from whet.answers.withdrawal import is_disowned
from whet.config import Config
from whet.tasks.answers import no_answer, to_score, write_in_line
from whet.tasks.base import FileTask, data_error
from whet.tasks.qa.stated import MAX_SPAN, Statement, statements
from whet.tasks.qa.table_sentences import (
    is_about_another_row,
    is_in_other_direction,
    states_numbers,
)
from whet.tasks.qa.table_values import (
    ComparisonRule,
    adds_initial,
    agrees,
    list_references,
    plain_text,
    quantity,
    split_list,
    text_form,
    unit_words,
)
from whet.tasks.qa.yes_no import last_word
from whet.types import Problem, Score, read_number

_VERB = re.compile(
    r"\b(?:is|are|was|were|be|equals|will|would|can|should|must|has|have|had|does|did)\b"
)
"""A verb in lower case: `What Is Love` is a name."""
_TAKEN_BACK = re.compile(
    doubt.any_of(doubt.TURN, doubt.FALSE, doubt.CHOICE, "but") + r"|[0-9?]", re.IGNORECASE
)
"""If the sentence after a number has one of these, it may state another number."""
_TAKES_BACK = re.compile(
    doubt.any_of(doubt.TURN, doubt.FALSE, "should|must|is|are|was") + r"|[=?]|^\W*[$£€]?[0-9]",
    re.IGNORECASE,
)
"""If the line after a box has one of these, it may state another answer."""
_IN = re.compile(r"(?:in|on|by|at|for|during)\s", re.IGNORECASE)
_NEEDS = re.compile(r"\b[a-z]{2,20}s (?:\*\*\s?[$£€]?|[$£€]\s?)[0-9]")
"""A main verb before a sum of money or a bold number: `she needs **$5**`."""
_BECAUSE = re.compile(r",? (?:because|since (?:it|they|its|their|the|he|she)) ")
_CLAUSE_END = re.compile(r"[.;] +|,? (?:so|hence|thus|therefore),? ")
_STATES = re.compile(
    r"\b(?:stood|stands|c[ao]mes? to|amount(?:s|ed)? to|reach(?:es|ed)?|costs?|total(?:s|led|ed)?"
    r"|ma[kd]es?|made|rose|rises|fell|falls|dropped|drops|grew|grows|went|measures?|weigh(?:s|ed)?"
    r"|ha[sd]|have|shows?|lists|gives?|earn(?:s|ed)|sold|scored|spent|spends|pa(?:ys|id))\b"
)
"""The verb of a clause that ends in a number: `the share stood at 12.5 %`."""
_YEAR = r"(?:in|for|by|on|during|as of) (?:1[0-9]|20)[0-9]{2}"
_YEARS = re.compile(rf"(?i)\A{_YEAR},? |,? {_YEAR}(?=\W*\Z)")
_FROM = re.compile(r" (?:from|by) [$£€]?[0-9][0-9.,]*(?: ?%)?(?: [a-z]+)?(?= to [$£€]?[0-9])")
"""The start of a change, before its end: ` from 5 to 8`."""
_REMARK = re.compile(
    r"(?: \((?P<brackets>[^()\n]*)\)|,? (?:with|since|because|as) (?P<clause>[^()\n]*)"
    r"| [—–-] (?P<dash>[^()\n]*))\.?\Z"
)
"""A reason after a name: ` (58 against Ayr's 4)`."""
_MORE_THAN_REMARK = re.compile(
    doubt.any_of(
        doubt.TURN,
        doubt.FALSE,
        doubt.DENIAL,
        "or|maybe|perhaps|possibly|likely|but|and|also|too|both|ties?|tied|equal|equally|same|like"
        "|plus|except",
    )
    + rf"|{doubt.CONTRACTION}|\?",
    re.IGNORECASE,
)
_LABELLED = re.compile(r"([^:\n]*[^:\n\W\d][*_]{0,3}):[ *_]+([^:\n]+)")
"""A sentence that introduces its answer with a colon: `Two have three medals: Ida and Jon.`"""
_ABOUT = re.compile(
    r"(?i)(?:\b(?:about|approximately|approx\.?|roughly|around)\s|\\approx(?![a-z])|[≈~])"
    r"[\s$\\]*(?=-?[0-9])"
)
_NUMERAL = re.compile("[0-9]")
_DECIMAL = re.compile(r"[0-9]\.[0-9]")
_LISTING = re.compile(
    r"(?:\A|\n)(?P<heading>[^\n]*)\n+"
    r"(?P<items>(?:[ \t]*(?:[-*•]|[0-9]{1,3}[.)])[ \t][^\n]*(?:\n+|\Z)){2,})\Z"
)
"""Final lines that each have a bullet or a number."""
_LINES = re.compile(
    r"(?:\A|\n)[ \t*_#]*(?:(?:the|my|final|so)[ \t,]+){0,3}answers?(?: is| are)?[ \t*_]*"
    r"[:：]?[ \t*_]*\n+(?P<items>(?:[^\n]+(?:\n+|\Z)){2,})\Z",
    re.IGNORECASE,
)
"""Lines after a line that only says that the answer follows."""
_TOO_MANY = re.compile(
    r"\btoo (?:many|few|much|little|large|small|high|low|long|short)\b", re.IGNORECASE
)
_LEFT_OPEN = re.compile(r"[0-9]\s*[-+×÷/=^]\s*\.?\Z(?<!/-)")
"""A number with an operator after it that applies to nothing."""
_ASKED = re.compile(r"[^.?!\n]*\?")
_ASKS_FOR_ORDER = re.compile(
    r"(?i)\b(?:first(?:,| and| place)|respectively|rank(?:ed|ing)?|sort(?:ed)?"
    r"|in (?:\w+ ){0,2}order|from (?:the )?\w+ to (?:the )?\w+est\b)"
)
"""A question with one of these asks for a list in a certain order."""
_MAX_LINE = 400


class TableConfig(Config):
    name: Literal["table"] = "table"
    percent_sign: Literal["optional", "required"] = "optional"
    """Whether 69.75 is right for 69.75 %. 69.75 % is never right for 69.75, nor 5000 for 50."""


class TableTask(FileTask):
    """Grades numbers, texts and lists; its problems come from files."""

    name = "table"
    config: TableConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Grade whether the last answer is one of the accepted ones. Parts: `correct`."""
        golds = list_references(problem)
        rule = self._rule(problem)
        answer = read_answer(text)
        is_whole = any(_is_whole(gold, text) for gold in golds)
        if answer is None and not is_whole:
            return no_answer()
        answer = text if answer is None else answer
        is_right = is_whole or any(
            agrees(gold, answer, rule)
            or _agrees_in_part(gold, answer, rule)
            or _agrees_otherwise(gold, text, rule)
            for gold in golds
        )
        last = _last_statement(text)
        if last is not None and not is_right:
            is_right = any(
                states_numbers(gold, last.text, rule, is_explicit=last.is_explicit)
                for gold in golds
            )
        is_right = is_right or any(
            _restates(rule.question, gold, answer) or _is_choice(rule.question, gold, answer)
            for gold in golds
        )
        if is_right and last is not None and last.form == "line":
            is_number = any(quantity(gold) is not None for gold in golds)
            is_other = is_about_another_row(last.text, rule)
            is_other = is_other or is_in_other_direction(last.text, rule)
            is_right = not (is_number and is_other)
        is_right = is_right and not _is_other_number(golds, answer, rule)
        note = "agrees with the answer" if is_right else f"the answer is {golds[0][:80]!r}"
        return to_score(is_right, {}, answer.strip(), note)

    def _rule(self, problem: Problem) -> ComparisonRule:
        unit = problem.payload.get("unit")
        tolerance = problem.payload.get("tolerance") or 0
        is_number = isinstance(tolerance, int | float) and not isinstance(tolerance, bool)
        if not is_number or not 0 <= read_number(tolerance) < 1:
            raise data_error(problem, "a tolerance from 0 to 1", tolerance)
        asked = _ASKED.findall(problem.prompt[-1].content[-MAX_SPAN:])
        return ComparisonRule(
            unit=unit_words(unit) if isinstance(unit, str) else frozenset(),
            tolerance=Fraction(str(tolerance)),
            is_free=problem.payload.get("order") == "free",
            is_ordered=_ASKS_FOR_ORDER.search(asked[-1] if asked else "") is not None,
            needs_percent=self.config.percent_sign == "required",
            question=problem.prompt[-1].content,
        )


def read_answer(text: str) -> str | None:
    """Choose one reading of a response, independent of the reference; None if there is none.

    The content of a tag or box is an answer as written. The text after a marker, or the last line,
    may be a sentence; then its number counts, or else what follows its verb.
    """
    last = _last_statement(text)
    if last is None:
        return None
    bare = last.text.strip().strip("#").strip().removeprefix("=").strip()
    return bare if last.is_explicit else _read_sentence(doubt.cut_remarks(bare))


def _last_statement(text: str) -> Statement | None:
    """Choose the last statement; a box or tag takes precedence over a line that only comments."""
    stated = [span for span in statements(text) if span.form != "conclusion"]
    if not stated:
        return None
    last = stated[-1]
    marked = next((span for span in reversed(stated) if span.is_explicit), None)
    if marked is not None and last.form == "line" and not _TAKES_BACK.search(last.text):
        last = marked
    longest = _MAX_LINE if last.form == "line" else MAX_SPAN
    return last if last.text.strip() and len(last.text) <= longest else None


def _agrees_in_part(gold: str, answer: str, rule: ComparisonRule) -> bool:
    """Compare a name without the remark after it, or what follows a colon."""
    remark = _REMARK.search(answer)
    name = answer[: remark.start()] if remark else ""
    why = remark and (remark["brackets"] or remark["clause"] or remark["dash"])
    if why and _NUMERAL.search(why) and quantity(name) is None:
        is_more = _MORE_THAN_REMARK.search(why) or plain_text(answer) in plain_text(rule.question)
        return not is_more and agrees(gold, name, rule)
    labelled = _LABELLED.fullmatch(answer)
    if labelled is None or doubt.is_doubtful(answer) or is_disowned(f"{labelled[1]}:"):
        return False
    rest = labelled[2].strip(" *_").removesuffix(".")
    is_number = quantity(rest) is not None
    return agrees(gold, (text_after_label(answer) or "") if is_number else rest, rule)


def _agrees_otherwise(gold: str, text: str, rule: ComparisonRule) -> bool:
    """Compare by the kind of the reference: a rounded number, a yes or no, or a list on lines."""
    if _DECIMAL.search(gold) and _ABOUT.search(text):
        exact = read_answer(_ABOUT.sub("", text))
        return exact is not None and agrees(gold, exact, rule)
    if gold.strip().lower() in ("yes", "no"):
        word = last_word(text, rule.question)
        return word is not None and word[1] == gold.strip().lower()
    if len(split_list(gold)) < 2:
        return False
    shown = decided_text(text) or ""
    tags = find_tags(shown)
    stated = tags[-1].text.strip() if tags else shown
    stated = stated[-MAX_SPAN:].rstrip()
    if _is_in_lines(gold, stated, rule, is_tagged=bool(tags)):
        return True
    listing = _LISTING.search(f"\n{stated}")
    if listing is None or doubt.is_doubtful(listing["heading"] + listing["items"][-1]):
        return False
    return agrees(gold, write_in_line(listing["items"]), rule)


def _is_in_lines(gold: str, stated: str, rule: ComparisonRule, *, is_tagged: bool) -> bool:
    """Whether a tag, or the lines after `Answer:`, hold the items of a list, without bullets."""
    listing = _LINES.search(f"\nAnswer:\n{stated}" if is_tagged else stated)
    if listing is None or doubt.is_doubtful(listing["items"]):
        return False
    lines = [line.strip().strip("*_ ,;.") for line in listing["items"].splitlines()]
    return "|" not in listing["items"] and agrees(gold, " | ".join(filter(None, lines)), rule)


def _is_other_number(golds: list[str], answer: str, rule: ComparisonRule) -> bool:
    """Whether an answer goes on after its number, with an operator or with `too many`."""
    plain = plain_text(answer).strip()
    if any(plain == gold.strip() for gold in golds):
        return False
    is_too_many = _TOO_MANY.search(plain) is not None and "too " not in rule.question.lower()
    return _LEFT_OPEN.search(plain) is not None or is_too_many


def _restates(question: str, gold: str, answer: str) -> bool:
    """Whether an answer restates the question with the reference in place of what it asks for.

    >>> _restates("Which dog has grown the most?", "Champ", "Champ has grown the most.")
    True
    """
    asked = _ASKED.findall(question[-MAX_SPAN:])
    name = text_form(gold).split()
    words = text_form(plain_text(answer).replace("'s", "")).split()
    rest = words[len(name) :]
    if not asked or not rest or words[: len(name)] != name or doubt.is_doubtful(plain_text(answer)):
        return False
    if adds_initial(gold, answer):
        return False
    known = text_form(plain_text(asked[-1]).replace("'s", "")).split()
    return _VERB.search(plain_text(answer)) is not None and known[-len(rest) :] == rest


def _is_choice(question: str, gold: str, answer: str) -> bool:
    """Whether an answer omits the noun that the question gives once for all its choices.

    >>> question = "Has it a positive, a negative, or no clear impact?"
    >>> _is_choice(question, "Positive impact", "positive"), _is_choice(question, "No impact", "no")
    (True, False)
    """
    asked = _ASKED.findall(question[-MAX_SPAN:])
    words = text_form(answer)
    first, _, noun = text_form(gold).rpartition(" ")
    if not asked or not words or words != first:
        return False
    choices = " ".join(plain_text(asked[-1]).casefold().split())
    name = re.escape(words)
    other = rf"\bor (?!(?:an? |the )?{re.escape(noun)}\b)[^.,]{{1,40}} {re.escape(noun)}\b"
    behind = rf"(?:,[^.]{{1,80}}|,?) ?{other}"
    last = rf",? or (?:an? |the )?{name} {re.escape(noun)}\b"
    return re.search(rf"\b{name}{behind}|{last}", choices) is not None


def _read_sentence(span: str) -> str:
    if (because := _BECAUSE.search(span)) and not doubt.is_doubtful(span[because.end() :]):
        span = span[: because.start()]
    first, end, reason = span.partition(". ")
    if end and quantity(first) is not None and not _TAKEN_BACK.search(reason):
        return first
    verb = _VERB.search(span)
    if verb is None:
        span = doubt.strip_lead(span)
        is_sentence = _IN.match(span) or _NEEDS.search(span)
        return (find_only_number(span) if is_sentence else None) or _number_stated(span) or span
    is_quantity = quantity(span) is not None or quantity(span[: verb.start()]) is not None
    if is_quantity or doubt.is_denied(span, verb.end(), verb.end()):
        return span
    rest = text_after_verb(span)
    number = _VERB.split(find_only_number(span) or "")[0].strip()
    is_name = rest is not None and (not rest[:1].islower() or quantity(rest) is not None)
    is_number = quantity(number) is not None and not is_name
    return number if is_number else rest or _number_stated(span) or span


def _number_stated(span: str) -> str | None:
    """Return the number of the last clause, ignoring years: `..., so in 2001 they cost 8.75
    dollars.`"""
    if doubt.is_doubtful(span):
        return None
    clause = _CLAUSE_END.split(span.rstrip(". "))[-1]
    clause = _FROM.sub("", _YEARS.sub("", clause))
    number = find_only_number(clause) if _STATES.search(clause) else None
    return number if number and quantity(number) is not None else None


def _is_whole(gold: str, text: str) -> bool:
    """Whether the reference is a sentence or a long listing, and the response is exactly that."""
    response = (decided_text(text) or "")[: MAX_SPAN + 1].strip()
    is_short = _VERB.search(gold) is None and len(gold) <= _MAX_LINE
    if is_short or len(response) > MAX_SPAN:
        return False
    stated = [span.text for span in statements(text) if span.form != "conclusion"]
    return text_form(gold) in (text_form(response), text_form(stated[-1] if stated else ""))
