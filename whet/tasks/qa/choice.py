"""Multiple choice: GPQA, SuperGPQA, MMLU, AQuA and their like.

A problem's `answer` is the letter ("B", or "ABD" if several are right together). Its `payload` may
hold the texts of the options: `{"options": {"A": "4", "B": "5"}}`, or as a list. An answer is a
letter in any usual form or the whole text of an option; two letters are wrong if the question asks
for one. The last answer that the response commits itself to counts.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from whet.answers.doubt import CHOICE, TURN, any_of, is_denied
from whet.answers.final_answer import decided_text
from whet.config import Config
from whet.tasks.answers import no_answer, to_score
from whet.tasks.base import FileTask, data_error
from whet.tasks.qa.named_option import find_named
from whet.tasks.qa.stated import (
    LOOSE,
    MAX_SPAN,
    Statement,
    statements,
    strip_markup,
    write_boxed,
)
from whet.types import Problem, Score

OPTION_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_USUAL = OPTION_LETTERS[:10]

_LEAD = re.compile(
    r"(?:(?:(?:therefore|thus|so|hence|clearly|indeed|probably|likely|most likely|simply|"
    r"definitely|certainly|surely|for sure|obviously|of course|without (?:a )?doubt|the|both|"
    r"either|option|options|choice|choices|letter|letters|answer)(?![a-z])"
    r"|选项|选|是)[\s:：,，]*)+",
    re.IGNORECASE,
)
"""Words before a letter: `So the answer option`."""
_LABEL = re.compile(
    r"""([(\[{<"'“]{1,2}\s?)?([A-Za-z])(\s?[)\]}>"'”]{1,2})?(?![A-Za-z0-9'’=^_+(])"""
)
"""A letter, perhaps in brackets or quotes: `(B)`, `"C"`."""
_JOIN = re.compile(
    rf"\s*(?:\(\s*)?(,|、|，|/|&|;|\+|{CHOICE}|and|或者|或|和|与|及|as well as|also|but|\s)+\s*",
    re.IGNORECASE,
)
"""What joins two letters: a comma, `and`, `or`."""
_HEDGE = re.compile(rf"/|或|{any_of(CHOICE)}", re.IGNORECASE)
_DENIAL = re.compile(
    r"\s*(?:(?:is|was|are|were)(?:\s+(?:all|both|each|also|clearly|easily|then|therefore))?"
    r"(?:\s+not|n['’]t|\s+(?:too|wrong|incorrect|false|impossible|out|invalid|ruled|excluded"
    r"|eliminated|irrelevant|implausible|distractors))"
    r"|(?:all |both |each |also )?(?:fails?|falls?|violates?|contradicts?|misses|miss|lacks?"
    r"|ignores?|confuses?|confuse|mix(?:es)? up|overstates?|understates?)"
    r"|(?:all |both )?(?:ca|do|does|did|wo|would)(?:\s+not|n['’]t|nnot)"
    r"|can(?:not|\s+(?:all |both )?be (?:ruled|excluded|eliminated|discarded|dismissed)))"
    r"(?![A-Za-z])",
    re.IGNORECASE,
)
"""After a letter, these say that it is not the answer."""
_CONFIRMED = re.compile(
    r"\s*(?:(?:is|are|hold|holds)(?:\s+(?:all|both|each))?)?"
    r"(?:\s+(?:the\s+)?(?:right|correct|true|answers?|valid|hold|ones?|options?|choices?))*",
    re.IGNORECASE,
)
"""After several letters at the start of a line, these say that they are the answer."""
_CLOSING = re.compile(
    r"(?:[.!;:→⇒⟹]|->|=>|\\(?:to|Rightarrow|implies)\b|,(?= (?:so )?(?:option|choice|answer)\b))"
    r"[ \t*_$]{1,4}",
    re.IGNORECASE,
)
"""What precedes the answer that ends a line: `lined up with the Sun. A.`"""
_MAX_CLOSING = 200
_TURN = re.compile(
    rf"(?i:{any_of(TURN, 'no|make that|or (?:maybe|rather|perhaps|possibly)')})[\s,:;.(-]*"
    r"(?:(?:no|actually|rather|option|choice|it is|it's)[\s,:]+)*"
    r"[(\[]?([A-Z])(?![A-Za-z0-9'’]|\s[a-z])",
)
"""A turn to another letter: `no, make that (D)`."""
_OTHERWISE = re.compile(
    r"(?<![A-Za-z0-9])\(?([A-Z])\)?\s+(?:otherwise|if not|else|if)\b"
    r"|\b(?:otherwise|if not|else),?\s+(?:it is |option |choice )?"
    r"\(?([A-Z])(?![A-Za-z0-9'’]|\s[a-z])"
)
"""Another letter under a condition: `otherwise D`, `D if not`."""
_CONDITION = re.compile(
    r"[\s,(]*(?:if|only if|unless|provided|assuming|as long as|except|when|whenever)(?![A-Za-z])",
    re.IGNORECASE,
)
"""Right after a letter, these say that another letter may be right as well."""
_SAYS_WHY = re.compile(
    r"\s*(?:because|since|as|is|due|for|which|with|that)(?![A-Za-z])", re.IGNORECASE
)
_TEXT_AND_LETTER = re.compile(r"(.{1,400}\S)\s?\(([A-Z])\)[.!]?")
"""An option's text and its letter: `Madrid (C)`."""
_LISTED = re.compile(r"(?<![A-Za-z0-9])\(?([A-Z])[).:．](?=\s|\S)")
"""The letter of an option in a list: `B)`."""
_EDGE = " \t\r\n.:;,!?。．、：；，！-–—()[]{}\"'"


class ChoiceConfig(Config):
    name: Literal["choice"] = "choice"


@dataclass(frozen=True, slots=True, kw_only=True)
class Picked:
    letters: frozenset[str]
    is_hedged: bool = False
    """It says "A or B", or names a letter with another option's text."""
    is_same_text: bool = False
    """The options picked have the same text, so that picking by text cannot distinguish them."""


class Choice(FileTask):
    """Grades letters; its problems come from files."""

    name = "choice"
    config: ChoiceConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Grade whether the chosen letters are those of the answer. Parts: `correct`."""
        options = options_of(problem)
        gold = _gold(problem, options)
        question = "\n".join(message.content for message in problem.prompt)
        final = _with_last_sentence(last_pick(text, options), text, options, question)
        if final is None:
            return no_answer()
        statement, picked = final
        if picked is None:
            return to_score(False, {}, statement.text, "the answer is none of the options")
        shown = " or ".join(sorted(picked.letters))
        is_right = picked.letters == gold and not picked.is_hedged
        if picked.is_same_text:
            is_right = len(gold) == 1 and gold <= picked.letters
        note = f"picks {shown}" if not picked.is_hedged else f"does not decide: {shown}"
        return to_score(is_right, {}, shown, note)

    def solve(self, problem: Problem, seed: int) -> str | None:
        return write_boxed(problem)


def _with_last_sentence(
    final: tuple[Statement, Picked | None] | None,
    text: str,
    options: Mapping[str, str],
    question: str,
) -> tuple[Statement, Picked | None] | None:
    """Read the last sentence if nothing else can be read; if it names another option, it is a
    hedge."""
    *_, line = text.rstrip().rpartition("\n")
    is_read = final is not None and ("boxed" in line or "answer" in line.lower())
    named = None if is_read else find_named(text, options, question)
    if named is None:
        return final
    start, letter = named
    if final is None:
        statement = Statement(start=start, form="line", text=line)
        return statement, Picked(letters=frozenset(letter))
    statement, picked = final
    if picked is None or statement.start >= start or letter in picked.letters:
        return final
    return statement, _hedge(*picked.letters, letter)


def last_pick(text: str, options: Mapping[str, str]) -> tuple[Statement, Picked | None] | None:
    """Find the last statement that names an option, or the last tag or box with any content."""
    for statement in reversed(statements(text)):
        if statement.form == "line" and _is_in_list(text, statement):
            continue
        picked = pick(statement.text, options, must_be_whole=statement.form in LOOSE)
        if picked is None and statement.form == "line":
            picked = _closing_pick(statement.text, options)
        if picked is not None or statement.is_explicit:
            return statement, picked
    return _first_line(decided_text(text) or "", options)


def _closing_pick(line: str, options: Mapping[str, str]) -> Picked | None:
    """Read one letter, bare or with its own text, that ends a line of prose.

    After another letter, or after an option that is only mentioned, it may be an item of a list.
    """
    leads = list(_CLOSING.finditer(line, max(len(line) - _MAX_CLOSING, 0)))
    if not leads:
        return None
    before, rest = line[: leads[-1].start()], line[leads[-1].end() :]
    picked = pick(rest, options, must_be_whole=True)
    if picked is None or len(picked.letters) > 1 or picked.is_hedged:
        return None
    words = strip_markup(rest)
    lead = _LEAD.match(words)
    label = _LABEL.match(words, lead.end() if lead else 0)
    is_labelled = label is not None and label[2] in picked.letters
    *_, last = re.split(r"[\s(,;]", before.rstrip(" *_)"))
    if not is_labelled or last.strip("*_().:") in options or is_denied(line, *leads[-1].span()):
        return None
    return picked


def _first_line(text: str, options: Mapping[str, str]) -> tuple[Statement, Picked | None] | None:
    """Read a letter that is the whole first line, perhaps with its own text, before the reasons."""
    first, _, rest = text.strip().partition("\n")
    if _LISTED.match(rest.strip()) or is_denied(text.strip(), 0, len(first)):
        return None
    words = strip_markup(first[:MAX_SPAN])
    picked = pick(words, options, must_be_whole=True)
    is_bare = len(words.strip(_EDGE)) == 1
    if picked is None or len(picked.letters) > 1 or picked.is_hedged:
        return None
    letter = min(picked.letters)
    own = options[letter]
    if not is_bare and not (own and text_key(words).endswith(text_key(own))):
        return None
    turn = _TURN.search(strip_markup(rest[:MAX_SPAN]))
    if turn and turn[1] in options and turn[1] != letter:
        picked = _hedge(letter, turn[1])
    return Statement(start=0, form="line", text=first), picked


def options_of(problem: Problem) -> dict[str, str]:
    """Read the options from the payload, letter to text; without any, A to J have empty texts."""
    given = problem.payload.get("options")
    if given is None:
        return dict.fromkeys(_USUAL, "")
    if isinstance(given, list) and len(given) <= len(OPTION_LETTERS):
        given = dict(zip(OPTION_LETTERS, given, strict=False))
    if not isinstance(given, dict) or not all(
        len(key) == 1 and key in OPTION_LETTERS for key in given
    ):
        raise data_error(problem, "options by letter, or as a list", given)
    return {key: str(text) for key, text in given.items()}


def _gold(problem: Problem, options: Mapping[str, str]) -> frozenset[str]:
    picked = pick(problem.answer or "", options, must_be_whole=True)
    if picked is None or picked.is_hedged:
        raise data_error(problem, "a letter of its options as the answer", problem.answer)
    return picked.letters


def _is_in_list(text: str, line: Statement) -> bool:
    """Whether the last line belongs to a list of options: the line before it has a label too."""
    lines = text[-4 * len(line.text) - (1 << 14) :].rstrip().splitlines()[:-1]
    before = next((other for other in reversed(lines) if other.strip()), "").strip().lstrip("(")
    return len(before) > 2 and before[0] in OPTION_LETTERS and before[1] in ").:．、"


def pick(text: str, options: Mapping[str, str], *, must_be_whole: bool) -> Picked | None:
    """Read the options a text picks at its start; None if it picks none.

    With `must_be_whole` the letter must stand alone, or before its own text or punctuation.

    >>> options = {"A": "1", "B": "2", "C": "3"}
    >>> pick("(C) Because B is wrong", options, must_be_whole=False).letters
    frozenset({'C'})
    """
    if len(text) > MAX_SPAN:
        return None
    words = strip_markup(text).lstrip("#> ").rstrip("# ").removeprefix("= ")
    by_text = _by_text(words, options) or _text_and_letter(words, options)
    if by_text is not None and len(words) > 1:
        return by_text
    lead = _LEAD.match(words)
    is_either = lead is not None and "either" in lead[0].lower()
    words = words[lead.end() :] if lead else words
    letters, end, is_hedged = _letters(words, options)
    if (run := _read_run(words, options)) is not None or not letters:
        return run or by_text or _by_text(words, options)
    if len(letters) == 1 and not is_hedged:
        return _single(words, letters[0], end, options, must_be_whole)
    is_named = must_be_whole and not _CONFIRMED.fullmatch(f" {words[end:].strip(_EDGE)}")
    is_denied_run = is_named or _DENIAL.match(words, end) is not None
    picked = Picked(letters=frozenset(letters), is_hedged=is_hedged or is_either)
    return None if is_denied_run else picked


def text_key(text: str) -> str:
    """Reduce an option's text to what must agree: no spaces, markup or final punctuation."""
    plain = strip_markup(text).replace("\\dfrac", "\\frac").replace("\\tfrac", "\\frac")
    return "".join(plain.split()).strip(".,;:。")


def _by_text(words: str, options: Mapping[str, str]) -> Picked | None:
    key = text_key(words)
    for fold in (str, str.casefold):
        letters = [letter for letter, text in options.items() if fold(text_key(text)) == fold(key)]
        if key and letters:
            return Picked(letters=frozenset(letters), is_same_text=len(letters) > 1)
    return None


def _text_and_letter(words: str, options: Mapping[str, str]) -> Picked | None:
    """Read `Madrid (C)`; it is a hedge if the letter belongs to another text."""
    both = _TEXT_AND_LETTER.fullmatch(words)
    named = _by_text(both[1], options) if both and both[2] in options else None
    if both is None or named is None:
        return None
    if both[2] in named.letters:
        return Picked(letters=frozenset(both[2]))
    return _hedge(*named.letters, both[2])


def _read_run(words: str, options: Mapping[str, str]) -> Picked | None:
    """Read `ABD` or `A B D`, several letters and nothing else; they must be in rising order."""
    bare = words.strip(_EDGE)
    is_spaced = " " in bare
    letters = bare.split() if is_spaced else list(bare)
    is_rising = all(a < b for a, b in pairwise(letters))
    if len(letters) < 2 or not options.keys() >= set(letters):
        return None
    if not is_rising and (not is_spaced or len(set(letters)) == 1):
        return None
    return Picked(letters=frozenset(letters), is_hedged=not is_rising)


def _letters(words: str, options: Mapping[str, str]) -> tuple[list[str], int, bool]:
    """Read labels joined by "and", "or" or commas; return them, their end, and whether they
    hedge."""
    letters: list[str] = []
    start = end = 0
    is_hedged = False
    while label := _LABEL.match(words, start):
        opening, letter, closing = label.groups()
        is_alone = not letters and label.end() == len(words)
        is_marked = opening is not None or closing is not None or is_alone
        if letter.upper() not in options or not (letter.isupper() or is_marked):
            break
        if letters and not is_marked and not _is_label_here(words, label):
            break
        letters.append(letter.upper())
        end = label.end()
        join = _JOIN.match(words, end)
        if join is None or not join[0].strip(" ("):
            break
        if _LABEL.match(words, join.end()):
            is_hedged = is_hedged or _HEDGE.search(join[0]) is not None
        start = join.end()
    return list(dict.fromkeys(letters)), end, is_hedged and len(set(letters)) > 1


def _is_label_here(words: str, label: re.Match[str]) -> bool:
    """Distinguish "A, B" from "C, A train…": a second letter must not be a sentence's article."""
    join = _JOIN.match(words, label.end())
    if join and join[0].strip(" (") and _LABEL.match(words, join.end()):
        return True
    after = words[label.end() : label.end() + 2]
    return label[2] not in "AI" or not (after[:1] == " " and after[1:2].islower())


def _single(
    words: str, letter: str, end: int, options: Mapping[str, str], must_be_whole: bool
) -> Picked | None:
    """Read one letter and what follows: its own text, another option, a condition, or reasons."""
    rest = words[end:]
    if rest[:1] == "?" and len(rest) > 1:
        return None
    alone = Picked(letters=frozenset(letter))
    tail = rest.strip(_EDGE)
    if not tail:
        return alone
    # A dash may be a minus sign of the option's text or a separator after the letter.
    text = rest.lstrip(_EDGE.replace("-", "").replace("–", ""))
    if named := _by_text(text, options) or _by_text(tail, options):
        return alone if letter in named.letters else _hedge(letter, min(named.letters))
    is_ruled_out = _DENIAL.match(rest) is not None
    if not is_ruled_out and (_CONDITION.match(rest) or is_denied(words, end, end)):
        return _hedge(letter)
    if other := _second(tail, letter, options):
        return _hedge(letter, other)
    is_closed = words[end - 1] in ")]}" or not rest[:1].isspace()
    # `A) 4 B) 5 C) 6` picks nothing.
    is_label = any(other in options for other in _LISTED.findall(tail))
    is_article = not is_closed and letter in "AI" and not _SAYS_WHY.match(rest)
    is_part = must_be_whole and (is_label or not is_closed)
    return None if is_article or is_part or is_ruled_out else alone


def _hedge(*letters: str) -> Picked:
    return Picked(letters=frozenset(letters), is_hedged=True)


def _second(tail: str, letter: str, options: Mapping[str, str]) -> str | None:
    """Find another letter after the first: all that follows (`B A`), or a turn (`B; no, D`)."""
    turn = _TURN.search(tail) or _OTHERWISE.search(tail)
    others = [next(filter(None, turn.groups()))] if turn else []
    if turn is None and len(tail) < 2 * len(options):
        others = tail.split()
    is_other = bool(others) and all(other in options for other in others) and others[0] != letter
    return others[0] if is_other else None
