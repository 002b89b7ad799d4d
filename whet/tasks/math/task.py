"""Mathematics: a question and a gold answer, in text or LaTeX, graded exactly.

The gold answer is in the problem's `answer`. Its `payload` may have `answers`, a list of other
right answers; a relative `tolerance` and an absolute `error`, if the problem asks for an
approximate number; and `percent`, `units`, `order`, `names` and `echo`, which replace the settings
of these names for this problem. Problems come from files.
"""

import re
from collections.abc import Iterator
from fractions import Fraction
from functools import lru_cache

from pydantic import ValidationError

from whet.answers.final_answer import find_boxes
from whet.errors import DataError
from whet.tasks.base import FileTask, data_error
from whet.tasks.math import question, tree
from whet.tasks.math.asked_values import asked_values, keeps_order, order_values
from whet.tasks.math.compare import same_tree
from whet.tasks.math.constants import same_but_for_constants
from whet.tasks.math.echo import is_echo
from whet.tasks.math.find import find_answer
from whet.tasks.math.lexer import date_of, exact, time_of
from whet.tasks.math.numeric import MathConfig, contradicts_itself, same_value
from whet.tasks.math.parser import Reading, readings
from whet.tasks.math.respelling import normal, same_wording, wording
from whet.tasks.math.tree import Node, NotMathError
from whet.tasks.math.words import CURRENCIES
from whet.types import Problem, Score, Verdict

MAX_SHOWN = 500
MAX_CHARS = 20_000
"""Longer answers are only compared as text."""
_OWN_RULES = ("percent", "units", "order", "names", "echo", "tolerance", "error")
"""Settings that a problem's payload may override."""

_STATES_ANSWER = re.compile(
    r"\b(?:answer|result|solution|value|mode|mean)s?\s+(?:is|are)\b|####", re.IGNORECASE
)
_DECIMAL_COMMA = re.compile(r"-?(?:0,[0-9]+|[0-9]+,(?:[0-9]{1,2}|[0-9]{4,}))")
_TWO_DECIMALS = re.compile(r"-?(?:0,[0-9]+|[0-9]+,[0-9]{2})")
_LETTER_UNIT = re.compile(r"(?:\w ?= ?)?([-+]?[0-9][0-9.,/]*)\s?(?:\\[,; ]\s?)?[gmshLNJWVAKt]")
"""A number and a unit of one letter, perhaps after a name: `5 g`, `x = 3.5 m`."""
_NUMBERED = re.compile(r"[A-Z][a-z]{2,15} ([0-9]{1,4})")
_CUT_RATIO = re.compile(r"[0-9]\s*:\s*")
_PLAIN = MathConfig()
_SUBJECT = re.compile(
    r"(?:the |this )?(?:series|sequence|integral|function|sum|limit|graph|curve|equation|system"
    r"|statement|argument|lines?|planes?) (?:is |are )?(?=[a-z]+$)"
)
"""The subject of a one-word answer: `the series converges`."""
_MATRIX_NAME = re.compile(r"\A[\s$]*[A-Z]\^\{?-?[0-9]\}?\s*=\s*(?=\\begin\{)")
_APPLIED = re.compile(
    r"\A[\s$]*[fghFGHP]'?\s?(?:\\left\s?)?\((?:[-+0-9.,/*^{}()\s]|\\(?:[dt]?frac|sqrt|pi|left|right"
    r"|cdot|[,; ])(?![a-z]))*\)\s?=\s?(?=[^=]*\Z)"
)
"""A function of numbers, before the value it has there: `f(2) =`."""
_MATRIX_PRODUCT = re.compile(r"matrix\}\s*(?:\\cdot|\\times|\*)?\s*\\begin\{[a-z]*matrix\}")
_FACTORIAL = re.compile(r"(?<=[0-9)])!=(?=\s*[0-9])")
_BASE_TEN = re.compile(r"\A([\s$]*[0-9]+)_(?:\{10\}|10)(?=[\s$.]*\Z)")
_FACTOR = re.compile(r"\bfactor\b[^.\n]{0,200}\bcompletely\b", re.IGNORECASE)
_PAIR = re.compile(r"\([^(),]+,[^(),]+\)")
_ALL_SOLUTIONS = re.compile(r"(?i)\ball (?:the )?(?:real )?(?:solutions|roots|zeros)\b(?! \()")


class Math(FileTask):
    """Grades the final answer of a response against one or more gold answers."""

    name = "math"
    asks_sums = True
    config: MathConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Grade whether a response gives the gold answer. Parts: `correct` 0 or 1."""
        golds = list_golds(problem)
        if not golds:
            return _score(Verdict.UNSCORED, None, "the problem has no gold answer")
        rules = self.rules(problem)
        if any(len(text) <= 2 * len(gold) + 40 and same_wording(gold, text) for gold in golds):
            return _score(Verdict.CORRECT, text.strip(), "the response is the gold answer")
        prompt = "\n".join(message.content for message in problem.prompt)
        in_parts = bool(prompt) and question.has_parts(prompt, golds)
        names = asked_values(prompt) if prompt and rules.names == "drop" else ()
        span = find_answer(text, in_parts=in_parts, names=names)
        if span is None or not span.text.strip():
            return _score(Verdict.NO_ANSWER, None, "no answer found")
        answer = _normalise(span.text.strip(), golds, prompt, in_parts=in_parts)
        if names:
            answer, *golds = (order_values(one, names) for one in (answer, *golds))
        is_ordered = in_parts or (bool(names) and keeps_order(names, golds))
        rules = _settle_rules(rules, answer, golds, prompt, is_ordered=is_ordered)
        gold = _match(answer, golds, prompt, rules)
        if gold is None:
            return _score(Verdict.WRONG, answer, "not the gold answer")
        if fault := _find_fault(answer, gold, golds, prompt, rules, is_boxed="boxed" in text):
            return _score(Verdict.WRONG, answer, fault)
        return _score(Verdict.CORRECT, answer, "the same as the gold answer")

    def solve(self, problem: Problem, seed: int) -> str | None:
        """Put the gold answer in a box."""
        golds = list_golds(problem)
        return rf"\boxed{{{_core(golds[0])}}}" if golds else None

    def rules(self, problem: Problem) -> MathConfig:
        """Return the rules for one problem; its payload overrides the settings."""
        if not problem.payload:
            return self.config
        given = {key: problem.payload.get(key) for key in _OWN_RULES}
        own = {key: value for key, value in given.items() if value is not None}
        if not own:
            return self.config
        try:
            rules = MathConfig.model_validate({**self.config.model_dump(), **own})
        except ValidationError as error:
            fault = error.errors()[0]
            has = f"has payload.{fault['loc'][0]} {fault['input']!r}"
            raise DataError(f"problem {problem.id} {has}: {fault['msg']}") from error
        return rules.model_copy(update={"tolerance": max(self.config.tolerance, rules.tolerance)})


def list_golds(problem: Problem) -> list[str]:
    """List the gold answers of a problem, its `answer` first."""
    more = problem.payload.get("answers", [])
    if not isinstance(more, list) or not all(isinstance(answer, str) for answer in more):
        raise data_error(problem, "a list of texts in payload.answers", more)
    golds = [problem.answer or "", *(answer for answer in more if isinstance(answer, str))]
    return list(dict.fromkeys(gold for gold in golds if gold.strip()))


def _score(verdict: Verdict, answer: str | None, note: str) -> Score:
    return Score(
        verdict=verdict,
        parts={"correct": float(verdict is Verdict.CORRECT)},
        answer=None if answer is None else answer[:MAX_SHOWN],
        note=note,
    )


def _normalise(answer: str, golds: list[str], prompt: str, *, in_parts: bool) -> str:
    """Remove what the question or the gold answers leave out: a modulus, a name, labels."""
    if "mod" in answer:
        answer = question.drop_modulus(answer, prompt)
    if "=" in answer:
        answer = _FACTORIAL.sub("! =", _MATRIX_NAME.sub("", answer))
        if not any("=" in gold for gold in golds):
            answer = _APPLIED.sub("", answer)
            answer = question.drop_question(answer, prompt)
    if "_" in answer and not any("_" in gold for gold in golds):
        answer = _BASE_TEN.sub(r"\1", answer)
    return question.drop_labels(answer) if in_parts else answer


def _settle_rules(
    rules: MathConfig, answer: str, golds: list[str], prompt: str, *, is_ordered: bool
) -> MathConfig:
    """Fix the order if the question has one or has blanks, and what a percent sign means."""
    if is_ordered or (prompt and question.has_blanks(prompt, golds)):
        rules = _replace_rule(rules, "order", "fixed")
    if rules.percent == "unit" and _is_percent(answer, golds, prompt):
        rules = _replace_rule(rules, "percent", "value")
    return rules


def _is_percent(answer: str, golds: list[str], prompt: str) -> bool:
    """Whether an answer's percent sign means hundredths: nothing else mentions percent."""
    if not prompt or not _has_percent(answer) or any(map(_has_percent, golds)):
        return False
    return not question.read_question(prompt).has_percent


def _has_percent(text: str) -> bool:
    return "%" in text or "percent" in text


@lru_cache(64)
def _replace_rule(rules: MathConfig, name: str, value: str) -> MathConfig:
    return rules.model_copy(update={name: value})


def _match(answer: str, golds: list[str], prompt: str, rules: MathConfig) -> str | None:
    """Find the gold answer that an answer matches, as written or as the question allows."""
    for gold in golds:
        if same_text(gold, answer, rules):
            return gold
    if not prompt:
        return None
    for gold in question.shorter_golds(golds, prompt):
        if same_text(gold, answer, rules):
            return gold
    for gold in golds:
        is_stated = _chooses(answer, gold, prompt) or question.restates(answer, gold, prompt)
        if is_stated or same_but_for_constants(gold, answer, prompt, rules):
            return gold
    return None


def _chooses(answer: str, gold: str, prompt: str) -> bool | None:
    """Whether an answer chooses the gold option; None if neither its letter nor its text decides.

    The letter of one option with the text of another chooses neither.
    """
    options = question.list_options(prompt) if len(letter := gold.strip(" $()")) == 1 else {}
    if letter not in options:
        return None
    named, text = question.split_option(answer) or (None, answer)
    alike = [name for name, option in options.items() if same_text(option, text, _PLAIN)]
    if named == letter:
        return not alike or letter in alike
    return True if named is None and alike == [letter] else None


def _find_fault(
    answer: str, gold: str, golds: list[str], prompt: str, rules: MathConfig, *, is_boxed: bool
) -> str | None:
    """Explain why an answer that equals a gold answer is wrong anyway; None if it is right."""
    # In prose, adjacent matrices are a product to be worked out. In a box they are one answer
    # twice.
    is_product = "\\begin" in answer and not is_boxed
    if not is_product and _is_doubled(gold, answer, rules):
        return "the gold answer written twice"
    if _is_unfinished(gold, answer, prompt):
        return "not in the form asked for"
    if (is_chosen := _chooses(answer, gold, prompt)) is not None:
        return None if is_chosen else "the letter of one option with the text of another"
    if rules.echo == "wrong" and prompt and is_echo(answer, golds, prompt):
        return "the question again, not worked out"
    if rules.units != "ignore" and prompt and question.has_wrong_unit(answer, gold, prompt):
        return "another unit than the question asks for"
    return None


def _is_unfinished(gold: str, answer: str, prompt: str) -> bool:
    """Whether an answer leaves a matrix product or factors unfinished, or is a pair.

    (-2, 5) is a point, not all the solutions -2 and 5.
    """
    if prompt and _MATRIX_PRODUCT.search(answer):
        return not _MATRIX_PRODUCT.search(gold)
    if _FACTOR.search(prompt):
        return question.is_unfactored(answer, gold)
    is_pair = _PAIR.fullmatch(answer.strip(" $")) and "(" not in gold
    return bool(is_pair and _ALL_SOLUTIONS.search(prompt))


def _is_doubled(gold: str, answer: str, rules: MathConfig) -> bool:
    """Whether an answer is a right one written twice: a product that equals it by chance."""
    plain = normal(answer)
    middle = plain.find(" ", (len(plain) - 1) // 2, len(plain) // 2 + 2)
    if middle < 0 or plain[:middle].rstrip(" .,;") != plain[middle + 1 :]:
        return False
    return wording(gold) != wording(answer) and same_text(gold, plain[middle + 1 :], rules)


def same_text(gold: str, answer: str, rules: MathConfig) -> bool:
    """Compare an answer with one gold answer: plain numbers exactly, other texts by meaning."""
    left = exact(gold)
    right = exact(answer)
    if left is not None and right is not None:
        if left == right:
            return True
        is_exact = not rules.tolerance and not rules.error
        if "." not in gold and "." not in answer and is_exact:
            return False
    if len(answer) > MAX_CHARS or len(gold) > MAX_CHARS:
        return gold == answer
    gold = _core(gold)
    answer = _core(answer)
    is_cut = _CUT_RATIO.fullmatch(answer[-3:].lstrip()) and not gold.rstrip().endswith(":")
    currencies = [
        {name for sign, name in CURRENCIES.items() if sign in text} for text in (gold, answer)
    ]
    if is_cut or (all(currencies) and currencies[0] != currencies[1]):
        return False
    if left is not None:
        number = _LETTER_UNIT.fullmatch(answer.strip(" $")) or _NUMBERED.fullmatch(answer.strip())
        if number and exact(number[1]) == left:
            return True
    return _same_meaning(gold, answer, rules) or _same_option(gold, answer, rules)


@lru_cache(1 << 12)
def _core(text: str) -> str:
    """Extract the answer from a worked solution or sentence, as in some gold answers and boxes."""
    is_plain = "boxed" not in text
    if len(text) > MAX_CHARS or (is_plain and (exact(text) is not None or readings(text))):
        return text
    has_box = any(box.text.strip() for box in find_boxes(text))
    has_answer = has_box or (is_plain and _STATES_ANSWER.search(text))
    answer = find_answer(text) if has_answer else None
    return answer.text if answer else text


@lru_cache(1 << 14)
def _same_meaning(gold: str, answer: str, rules: MathConfig) -> bool:
    """Compare two texts by wording, as times or dates, and by all their readings."""
    if same_wording(gold, answer):
        return True
    predicate, num_subjects = _SUBJECT.subn("", wording(answer), count=1)
    if num_subjects and same_wording(gold, predicate):
        return True
    for read in (time_of, date_of):
        moment = read(gold)
        other = None if moment is None else read(answer)
        if other is not None:
            return moment == other
    golds = readings(gold)
    answers = readings(answer)
    if any(_is_statement(one.node) for one in golds) and any(
        _is_statement(other.node) for other in answers
    ):
        return _same_statement(gold, answer, rules)
    if any(_same_reading(one, other, rules) for one in golds for other in answers):
        return True
    return _same_with_comma(gold, answer)


def _is_statement(node: Node) -> bool:
    """Whether a node relates constants, as 24 = 2^3 * 3 does, so that only its form counts."""
    return node.kind == "relation" and not tree.symbols(node)


def _same_statement(gold: str, answer: str, rules: MathConfig) -> bool:
    golds = readings(gold, literal=True)
    answers = readings(answer, literal=True)
    return any(same_tree(one.node, other.node, rules) for one in golds for other in answers)


def _same_option(gold: str, answer: str, rules: MathConfig) -> bool:
    """Compare if a side is an option, as in (C) 27: by its letter, or by what follows."""
    names = [question.NAMED_OPTION.fullmatch(wording(text)) for text in (gold, answer)]
    if name := names[0] or names[1]:
        return wording(gold if names[1] else answer).casefold() == name[1]
    gold_option = question.split_option(gold)
    answer_option = question.split_option(answer)
    if gold_option and answer_option:
        is_same_letter = gold_option[0] == answer_option[0]
        return is_same_letter and _same_meaning(gold_option[1], answer_option[1], rules)
    option = gold_option or answer_option
    if option is None or question.SECOND_OPTION.match(option[1]):
        return False
    other = wording(answer if gold_option else gold)
    if len(other) == 1 and other.isalpha():
        return other == option[0]
    pair = (option[1], answer) if gold_option else (gold, option[1])
    return _same_meaning(*pair, rules)


def _same_with_comma(gold: str, answer: str) -> bool:
    """Read 1,22 as 1.22 if the other side is a decimal; a gold 2,3 is a list."""
    for comma, other, form in ((answer, gold, _DECIMAL_COMMA), (gold, answer, _TWO_DECIMALS)):
        bare = comma.strip(" $")
        if form.fullmatch(bare) and "." in other:
            return exact(bare.replace(",", ".")) == exact(other.strip(" $"))
    return False


def _same_reading(gold: Reading, answer: Reading, rules: MathConfig) -> bool:
    if not _units_agree(gold.units, answer.units, rules):
        return False
    if "odds" in answer.units and gold.node.name != "ratio":
        return False  # odds of 5:33 are a probability of 5/38
    for one, other in ((gold, answer), (answer, gold)):
        is_in_radians = one.units and "radian" in question.spell_unit(one.units)
        if is_in_radians and tree.has_call(other.node, "degree"):
            return same_value(gold.node, answer.node) is True
    try:
        if not answer.units and gold != answer and contradicts_itself(answer.node):
            return False  # with units, 3 ft = 36 in, the numbers may differ
        return any(
            left == right or same_tree(left, right, rules)
            for left in _percents(gold.node, rules)
            for right in _percents(answer.node, rules)
        )
    except NotMathError:  # 1/0%
        return False


def _percents(node: Node, rules: MathConfig) -> Iterator[Node]:
    """Read percent signs as the rules say: as a unit, as hundredths, or both ways."""
    if not tree.has_call(node, "percent"):
        yield node
        return
    if rules.percent != "value":
        yield tree.replace_calls(node, "percent", lambda call: call.args[0])
    if rules.percent != "unit":
        hundredth = tree.make_number(Fraction(1, 100))
        yield tree.replace_calls(node, "percent", lambda call: tree.mul(call.args[0], hundredth))


def _units_agree(gold: tuple[str, ...], answer: tuple[str, ...], rules: MathConfig) -> bool:
    if rules.units == "ignore" or gold == answer:
        return True
    left = question.spell_unit(gold)
    right = question.spell_unit(answer)
    if left == right or rules.units == "same":
        return left == right
    known = (part.removeprefix("/") in question.KNOWN_UNITS for part in left + right)
    return not left or not right or not all(known)
