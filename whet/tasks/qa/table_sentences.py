"""Compare reference numbers with those that a sentence or a list with names states.

The sentence must use the words of the question: `four universities are located in London`. The
numbers of a list may have names, in the order in which the question asks for them: `mean = 9.3, s =
1.2`. Numbers may be written in words.
"""

import re
from collections.abc import Sequence
from itertools import pairwise

from whet.answers.clauses import stem
from whet.answers.doubt import is_doubtful
from whet.answers.withdrawal import DISOWNING, is_disowned
from whet.tasks.qa.question_words import list_stems
from whet.tasks.qa.table_values import (
    ComparisonRule,
    agrees,
    plain_text,
    quantity,
    read_forms,
    split_list,
    unit_words,
)

_MAX_TEXT = 600
_MAX_ROWS = 500
_UNITS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen"
    " sixteen seventeen eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_VALUES = {word: n for n, word in enumerate(_UNITS.split())}
_VALUES |= {word: 10 * n for n, word in enumerate(_TENS.split(), 2)}
_IN_WORDS = re.compile(
    rf"\b(?:({'|'.join(_TENS.split())})[- ]({'|'.join(_UNITS.split()[1:10])})"
    rf"|({'|'.join(_VALUES)}))\b(?!-)",
    re.IGNORECASE,
)
_NUMBER = re.compile(
    r"(?<![\w.,])[-+]?(?:[$£€]\s?)?(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?(?![\w.,]*[0-9])"
    r"(?![MB](?![^\W_]))"
    r"(?:\s?%|\s(?:hundred|thousand|million|billion)\b)?"
)
"""A number with its sign, currency, percent sign or scale: `$3,151`, `5 million`."""
_ROUGHLY = re.compile(r"\\approx(?![a-z])|≈|~(?=\s?[0-9])")
_ROUGH_DECIMAL = re.compile(rf"(?:{_ROUGHLY.pattern})[\s$]*[-−]?[0-9]*\.[0-9]")
_NOT_PLAIN = re.compile(
    r"[<>≤≥≠±≈^×÷/+]|\\(?:[lg]eq?|neq?|pm|times|cdot|d?frac)(?![a-z])"
    r"|[0-9][eE][-+]?[0-9]"
)
"""If one of these is near a number, it is a limit, or part of a formula or of a power of ten."""
_EQUATION = re.compile(r"(?!\W*[-−])[^=0-9]+=[^=]+")
"""A named number in a box: `\\text{mode} = 55`."""
_YEAR = re.compile(r"(?i)(?:,? |\A)(?:in|for|by|on|during|as of) (?:1[0-9]|20)[0-9]{2}\b,?")
_WORD = re.compile(r"[^\W\d_]+")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_CLAUSE = re.compile(r"; |,? (?:so|hence|thus|therefore),? |(?<=[a-z])\. ")
_ASKED = re.compile(r"[^.?!\n]*\?")
_LABEL_START = re.compile(r"[,;\n]|\band\b|\\\\")
_GENERIC = frozenset(
    list_stems(
        "the a an this that it its they them their he his she her we i there is are was were be"
        " been has have had do does did so thus hence therefore then and of in on at for to from"
        " by with which total altogether overall all sum count number amount value answer result"
        " get got give gives giving make makes making find found see shows show lists list"
        " listed read off according table row column entry data equals equal come comes exactly"
        " just times such out cell now final difference coefficient"
    )
)
"""Words that any answering sentence may use."""
_BY = re.compile(
    r"\b(?:(increased?s?|rises?|rose|gr[eo]ws?)|decreased?s?|f[ea]lls?|drop(?:s|ped)?|declined?s?"
    r"|shr[aiu]nks?|reduced?s?) by\b",
    re.IGNORECASE,
)
"""A change and its direction: `rose by`, `declined by`."""
_GROWS = frozenset(list_stems("increase rise grow growth"))
_FALLS = frozenset(list_stems("decrease fall drop decline shrink reduce reduction"))
_DISOWNING = DISOWNING - {"them", "these", "those", "according"}
_DEVIATION = re.compile(r"(?<![\w'’])s(?=[\s_{}=:]*\Z)")
"""The letter s as the name of a standard deviation: `s =`."""
_SAME = {"mu": "mean", "x": "mean", "bar": "mean", "averag": "mean", "avg": "mean"}
"""Names of a statistic, as stems, and the one that replaces them."""
_SAME |= {"s": "deviat", "sd": "deviat", "std": "deviat", "stdev": "deviat", "sigma": "deviat"}
_SAME |= {"standard": "deviat", "deviation": "deviat", "dev": "deviat", "var": "varianc"}
_SAME |= {"min": "minimum", "max": "maximum", "med": "median", "diff": "differenc"}
_SAME |= {"r": "correlation", "rho": "correlation"}


def states_numbers(gold: str, text: str, rule: ComparisonRule, *, is_explicit: bool) -> bool:
    """Whether a statement gives the reference, a number or a list of numbers.

    >>> rule = ComparisonRule(question="How many dogs are old?")
    >>> states_numbers("4", "There are four old dogs.", rule, is_explicit=False)
    True
    >>> states_numbers("4", "There are four young dogs.", rule, is_explicit=False)
    False
    """
    golds = [in_digits(part) for part in split_list(gold)]
    if len(text) > _MAX_TEXT or not any(map(quantity, golds)):
        return False
    is_decimal = any("." in one for one in golds) or _ROUGH_DECIMAL.search(text)
    plain = in_digits(_ROUGHLY.sub("=" if is_decimal else "≈", text))
    if len(golds) > 1:
        states = _states_list if all(map(quantity, golds)) else _states_parts
        return "|" not in gold and states(golds, plain, rule)
    forms = read_forms(text)
    if forms or (is_explicit and not _EQUATION.fullmatch(plain)):
        return any(agrees(golds[0], form, rule) for form in forms or [plain])
    plain = _SENTENCE_END.split(plain.strip())[-1]
    if _is_unsure(plain):
        return False
    *before, clause = _CLAUSE.split(plain.rstrip(". "))
    clause = _YEAR.sub(" ", plain_text(clause))
    number = _only_number(clause, rule)
    if (
        number is None
        or _are_unequal([*before, number[0]])
        or is_disowned(clause[: number.start()])
    ):
        return False
    words = set(_stems(_NUMBER.sub(" ", clause)))
    known = set(_known_words(rule)) | set(map(stem, rule.unit))
    known |= {word for word, other in _SAME.items() if other in known}
    if "chang" in known and _BY.search(clause):
        words -= _GROWS | _FALLS
    return words <= _GENERIC | known and agrees(golds[0], number[0], rule)


def _are_unequal(texts: Sequence[str]) -> bool:
    """Whether the bare numbers among some texts have different values: `50%` and `50`."""
    values = (quantity(text) for text in texts)
    return len({one.value / 100 if one.is_percent else one.value for one in values if one}) > 1


def _only_number(clause: str, rule: ComparisonRule) -> re.Match[str] | None:
    """Find the one number after the last `=` of a clause, ignoring those of the question."""
    start = clause.rfind("=") + 1
    numbers = list(_NUMBER.finditer(clause, start))
    if _NOT_PLAIN.search(clause, start) or _is_turned_round(clause, rule):
        return None
    if len(numbers) > 1:
        asked = {number[0].strip() for number in _NUMBER.finditer(_asked(rule))}
        numbers = [number for number in numbers if number[0].strip() not in asked]
    return numbers[0] if len(numbers) == 1 else None


def in_digits(text: str) -> str:
    """Write the numbers up to 99 of a text in digits.

    >>> in_digits("Twenty-four of forty teams")
    '24 of 40 teams'
    """
    return _IN_WORDS.sub(_to_digits, text)


def is_about_another_row(sentence: str, rule: ComparisonRule) -> bool:
    """Whether a sentence names rows of the table, but none of those that the question names.

    >>> question = "| Ann | 3 |\\n| Bob | 4 |\\nHow many has Ann?"
    >>> is_about_another_row("Bob has 3.", ComparisonRule(question=question))
    True
    """
    wanted = _rows_named(_asked(rule), rule)
    named = _rows_named(sentence, rule)
    return bool(named and wanted) and set(named).isdisjoint(wanted)


def is_in_other_direction(sentence: str, rule: ComparisonRule) -> bool:
    """Whether a sentence says how much something falls if the question asks for growth, or vice
    versa.

    A change means how much something grows; a fall has the opposite sign.

    >>> rule = ComparisonRule(question="By how much did the price change?")
    >>> [is_in_other_direction(f"It {verb} by $2.", rule) for verb in ("rose", "fell")]
    [False, True]
    """
    moves = [match[1] is not None for match in _BY.finditer(sentence)]
    asked = set(_stems(_asked(rule)))
    grows = not asked.isdisjoint(_GROWS)
    falls = not asked.isdisjoint(_FALLS)
    if not moves or (grows and falls) or not (grows or falls or "chang" in asked):
        return False
    return moves[-1] is falls


def _is_turned_round(sentence: str, rule: ComparisonRule) -> bool:
    """Whether an answer reverses the order of two rows that the question compares."""
    asked = _asked(rule)
    if " than " not in asked:
        return False
    named = _rows_named(sentence, rule)
    return bool(named) and named[:1] != _rows_named(asked, rule)[:1]


def _rows_named(text: str, rule: ComparisonRule) -> list[str]:
    """List the rows of the table that a text names, in the text's order."""
    lines = [line.strip(" |") for line in rule.question.splitlines() if "|" in line]
    names = {line.partition("|")[0].strip().casefold() for line in lines[:_MAX_ROWS]}
    names = {name for name in names if not unit_words(name) <= rule.unit}
    plain = plain_text(text).casefold()
    place_by_name = {name: _find_name(plain, name) for name in names if _WORD.search(name)}
    return sorted(
        (name for name, place in place_by_name.items() if place >= 0),
        key=lambda name: place_by_name[name],
    )


def _find_name(text: str, name: str) -> int:
    match = name in text and re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)
    return match.start() if match else -1


def _is_unsure(text: str) -> bool:
    words = re.findall(r"[\w'’]+", text.lower())
    return is_doubtful(text) or not _DISOWNING.isdisjoint(words)


def _to_digits(match: re.Match[str]) -> str:
    tens, units, alone = match.groups()
    value = _VALUES[alone.lower()] if alone else _VALUES[tens.lower()] + _VALUES[units.lower()]
    return str(value)


def _stems(text: str) -> list[str]:
    return [word for word in list_stems(text) if not word[0].isdigit()]


def _known_words(rule: ComparisonRule) -> list[str]:
    """List the words of the question and of the table's header."""
    lines = (line for line in rule.question.splitlines() if "|" in line)
    return _stems(plain_text(f"{_asked(rule)} {next(lines, '')}"))


def _asked(rule: ComparisonRule) -> str:
    """Return the last question of a prompt."""
    asked = _ASKED.findall(rule.question)
    return asked[-1] if asked else ""


def _states_list(golds: list[str], text: str, rule: ComparisonRule) -> bool:
    """Whether a text has exactly these numbers, bare or with names in the question's order."""
    if _is_unsure(text) or _NOT_PLAIN.search(text):
        return False
    plain = plain_text(text)
    numbers = list(_NUMBER.finditer(plain))
    if len(numbers) != len(golds):
        return False
    starts = [0, *(number.end() for number in numbers[:-1])]
    labels = [
        _LABEL_START.split(plain[start : number.start()])[-1]
        for start, number in zip(starts, numbers, strict=True)
    ]
    if not _are_in_order(labels, rule):
        return False
    pairs = zip(golds, numbers, strict=True)
    return all(agrees(gold, number[0], rule) for gold, number in pairs)


def _states_parts(golds: list[str], text: str, rule: ComparisonRule) -> bool:
    """Whether a text lists exactly these words and numbers; a number may have its name."""
    parts = split_list(plain_text(text))
    return len(parts) == len(golds) and all(
        agrees(gold, part, rule)
        or (quantity(gold) is not None and states_numbers(gold, part, rule, is_explicit=True))
        for gold, part in zip(golds, parts, strict=True)
    )


def _are_in_order(labels: list[str], rule: ComparisonRule) -> bool:
    """Whether the names of numbers are in the order of the question."""
    asked = [_SAME.get(word, word) for word in _known_words(rule)]
    labels = [_DEVIATION.sub("sd", label) for label in labels]
    names = [[_SAME.get(word, word) for word in _stems(label)] for label in labels]
    if not any(set(words) - _GENERIC for words in names):
        return True
    places = []
    for index, words in enumerate(names):
        others = {word for other in (*names[:index], *names[index + 1 :]) for word in other}
        own = [asked.index(word) for word in words if word in asked and word not in others]
        if not own:
            return False
        places.append(min(own))
    return all(one < two for one, two in pairwise(places))
