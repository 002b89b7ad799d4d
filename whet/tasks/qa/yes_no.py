"""Yes or no: StrategyQA.

A problem's `answer` is "yes" or "no"; true and false mean the same. The last answer that the
response commits to counts; if it commits to neither, the word it starts with counts. "Yes and no"
is wrong.
"""

import re
from typing import Literal

from whet.answers.clauses import split_clauses
from whet.answers.doubt import (
    CHOICE,
    CONTRACTION,
    DENIAL,
    FALSE,
    SUPPOSED,
    TURN,
    UNSURE,
    any_of,
    cut_remarks,
    is_denied,
    strip_lead,
)
from whet.answers.final_answer import decided_text
from whet.answers.sentences import last_line
from whet.answers.withdrawal import is_disowned
from whet.config import Config
from whet.tasks.answers import no_answer, to_score
from whet.tasks.base import FileTask, data_error
from whet.tasks.qa.question_words import list_stems
from whet.tasks.qa.stated import MAX_SPAN, statements, strip_markup, write_boxed
from whet.types import Problem, Score

Word = Literal["yes", "no", "both"]

_NOTES = {None: "the answer is neither yes nor no", "both": "does not decide"}
_WORDS: dict[str, Word] = {"yes": "yes", "true": "yes", "no": "no", "false": "no"}
_FIRST = re.compile(
    r"(?:(?:therefore|thus|so|hence|clearly|simply|most likely|likely|probably|a|an|definitely)"
    r"[ ,:]+)*[(\[\"'“]? ?(yes|no|true|false)(?![\w-]|['’]\w)",
    re.IGNORECASE,
)
"""A text that starts with its answer: `So yes`."""
_SECOND = re.compile(
    rf"[\"'”)\]]?[\s/,;.:?!(-]*(?P<joined>(?:{any_of(CHOICE, TURN, 'and|but|also')}"
    r"[\s,;:(]*){0,4})[\"'“(\[]?(?<![a-z])"
    r"(?P<word>yes|no|true|false)(?![\w'’-])(?P<more>\s+(?!(?:yes|no|true|false)\b)[a-z])?",
    re.IGNORECASE,
)
"""Another yes or no right after the first: `yes, or no`."""
_OFFERED = re.compile(r"(?i)\b(?:yes\W{1,3}no|no\W{1,3}yes)\Z")
"""Both words side by side, as the question offers them: `one of: yes; no`."""
_AT_END = re.compile(r"(?i)(?<!yes)(?<!no)[.!;:][ \t]+[*_]{0,3}(yes|no)[*_]{0,3}[.!]?\s*\Z")
"""A yes or no that is the last sentence."""
_PREDICATE = re.compile(
    r"(?:\A|[.!;:,] )(?:(?:so|thus|hence|therefore|then|overall|and|in short),? )?(?:"
    r"(?:(?:the|my|our|a) )?(?:(?:final|correct|right|best|overall|short|honest) )?"
    r"(?:it|that|this|answer|response|reply|verdict|conclusion)(?: to [^.,;:?]{1,80}| here)?"
    r"(?: is|['’]s| must be| would be| has to be| should be)(?: therefore| thus| clearly| simply)?"
    r"|(?:that|this|which) makes (?:it|this|the answer)"
    r"|I(?: would|['’]d|['’]ll| will)? (?:say|answer|go with|conclude(?: that it is)?))?"
    r"(?: |\A|(?<= ))(?:an? )?(?:(?:clear|definite|firm|resounding|simple|strong|hard|solid|big"
    r"|definitive|plain|emphatic|clearly|definitely) )?[\"“'‘]?(?P<word>yes|no)[\"”'’]?"
    r"(?: from me| in this case| here| overall| then)?\Z"
    r"|\b(?:the|this|that) (?:statement|claim|assertion|proposition|premise)(?: in question)?"
    r"(?: is|['’]s)(?: therefore| thus| clearly| simply)? (?P<truth>true|false)\Z",
    re.IGNORECASE,
)
"""The yes or no that a last sentence gives: `so that's a clear no`."""
_STATED = re.compile(
    r"(?:\A|(?<=[.!?;:)]) )(?:(?:so|thus|hence|therefore|then),? |and so )?"
    r"(yes|no)(?= ?[.,;:!—–]|\Z)",
    re.IGNORECASE,
)
"""A sentence that starts with its answer: `So no, it is not prime.`"""
_CONCLUDES = re.compile(
    any_of(
        TURN, DENIAL, FALSE, "so|thus|hence|therefore|then|but|however|although|though|unless|if"
    )
    + rf"|{CONTRACTION}|\?",
    re.IGNORECASE,
)
"""If a sentence after a yes or no has one of these, it may give another answer."""
_BOLD_WORD = re.compile(r"(?i)(?:yes|no)[,.]?\*\*")
_CLOSING_WORD = re.compile(r"(?i)(?<=[a-z,;:] )(?<!not )(?<!not a )(yes|no)\W{0,4}\Z")
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
_DOUBTED = re.compile(
    any_of(TURN, DENIAL, CHOICE, UNSURE, SUPPOSED, "but|yes|no|some|people|others?")
    + rf"|{CONTRACTION}|\?",
    re.IGNORECASE,
)
_ELSE = re.compile(r"\b(yes|no|true|false)\s+(?:otherwise|if not|else)\b", re.IGNORECASE)
_NOT_AN_ANSWER = re.compile(
    r"(?<=no)\s+(?!(?:i|it|its|they|their|he|his|she|her|we|you|this|that|these|those|there|the|an?"
    r"|because|since|as|for|if|when|while|although|though|and|or|but|so|not|no|nor|in|on|at|by|due"
    r"|given|according|yes|true|false)\b)(?-i:[a-z])",
    re.IGNORECASE,
)
"""What follows `no` if it is not an answer: `no idea`, `no war lasts forever`."""
_MAX_SENTENCE = 400
_ASKED = re.compile(r"[^.?!\n]*\?")
_CONTRACTION = re.compile(r"n['’]t\b")
_AUXILIARIES = frozenset(
    list_stems("is are was were do does did have has had can ca could will wo would should must")
)
_DO = frozenset(list_stems("do does did"))
_DENIALS = frozenset(list_stems("not never"))
_STANDS_FOR_IT = frozenset(
    list_stems("it they he she this that these those there one him her them its their his the")
)
_SMALL_WORDS = _STANDS_FOR_IT | frozenset(
    list_stems(
        "a an of in on at to for from by with be been being also so thus hence therefore then"
        " indeed clearly certainly definitely actually really still simply fact overall after all"
    )
)
_SUBORDINATE = frozenset(
    ["if", "unless", "although", "though", "while", "whereas", "when", "until", "except", "as"]
)


class YesNoConfig(Config):
    name: Literal["yes_no"] = "yes_no"


class YesNo(FileTask):
    """Grades yes and no; its problems come from files."""

    name = "yes_no"
    config: YesNoConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Grade whether the response says the right word. Parts: `correct`."""
        gold = _WORDS.get((problem.answer or "").strip().lower())
        if gold is None:
            raise data_error(problem, "yes or no as the answer", problem.answer)
        final = last_word(text, problem.prompt[-1].content)
        if final is None:
            return no_answer()
        shown, word = final
        return to_score(word == gold, {}, word or shown, _NOTES.get(word, f"says {word}"))

    def solve(self, problem: Problem, seed: int) -> str | None:
        return write_boxed(problem)


def last_word(text: str, question: str) -> tuple[str, Word | None] | None:
    """Find the last commitment; a tag or box counts even if it says neither.

    A commitment in words is contradicted if the last sentence answers the question otherwise.
    """
    for statement in reversed(statements(text)):
        must_be_whole = statement.form == "conclusion" and not _BOLD_WORD.match(statement.text)
        word = read_word(statement.text, must_be_whole=must_be_whole)
        if statement.is_explicit:
            return statement.text, word
        if word != "both" and statement.form in ("line", "marker"):
            word = _last_stated(statement.text) or word
        if word is not None:
            return statement.text, _settle(word, text, question)
    shown = (decided_text(text) or "").strip()
    if closing := _AT_END.search(shown, max(len(shown) - MAX_SPAN, 0)):
        return closing[1], _WORDS[closing[1].lower()]
    if word := _predicate_word(shown):
        return word, word
    opening = shown.partition("\n")[0]
    word = None if is_denied(shown, 0, len(opening)) else read_word(opening, must_be_whole=False)
    return None if word is None else (opening, _settle(word, text, question))


def _settle(word: Word, text: str, question: str) -> Word:
    """Return the word that a response says, or "both" if its last sentence contradicts it."""
    return word if read_restatement(decided_text(text) or "", question) in (None, word) else "both"


def _last_stated(line: str) -> Word | None:
    """Read the last sentence of a line that starts with yes or no and is not part of an argument.

    >>> _last_stated("It is 7 times 13. So no, it is not prime."), _last_stated("No. So it is.")
    ('no', None)
    """
    words = strip_markup(line[:MAX_SPAN])
    stated = list(_STATED.finditer(words))
    if not stated:
        return None
    last = stated[-1]
    if _OFFERED.search(words, 0, last.end()):
        return None
    _, _, after = words[last.end() :].partition(". ")
    is_second_question = len(stated) > 1 and words[: last.start()].rstrip().endswith("?")
    is_argument = is_second_question or _CONCLUDES.search(after) is not None
    sentence = words[last.start() :]
    if is_argument or is_denied(sentence, 0, last.end() - last.start()):
        return None
    return _WORDS[last[1].lower()]


def _predicate_word(shown: str) -> Word | None:
    """Read the answer that the last sentence states as its predicate.

    >>> _predicate_word("It crawls. So that's a clear no."), _predicate_word("It may be a no.")
    ('no', None)
    """
    line = last_line(cut_remarks(shown))
    if line is None or len(line.text) > MAX_SPAN or is_denied(shown, line.start, line.end):
        return None
    sentence = _SENTENCE_END.split(strip_markup(line.text))[-1].strip().rstrip(".! ")
    match = _PREDICATE.search(sentence)
    if match is None or _DOUBTED.search(
        sentence, 0, match.start("word" if match["word"] else "truth")
    ):
        return None
    start, end = match.span("word" if match["word"] else "truth")
    is_denied_here = is_denied(sentence, start, end) or is_disowned(sentence[:start])
    return None if is_denied_here else _WORDS[(match["word"] or match["truth"]).lower()]


def read_word(text: str, *, must_be_whole: bool) -> Word | None:
    """Read the yes or no that a text starts with.

    >>> read_word("Yes, since whales breathe air.", must_be_whole=False)
    'yes'
    >>> read_word("yes/no", must_be_whole=False)
    'both'
    """
    plain = strip_markup(text[:MAX_SPAN]).lstrip("#> ").rstrip("# ")
    words = strip_lead(plain if plain.count("=") > 1 else plain.removeprefix("= "))
    first = _FIRST.match(words)
    if first is None or _NOT_AN_ANSWER.match(words, first.end()):
        return None
    if must_be_whole and words[first.end() :].strip(" .!\"'”)]"):
        return None
    word = _WORDS[first[1].lower()]
    if any(_WORDS[other.lower()] != word for other in _ELSE.findall(words, first.end())):
        return "both"
    closing = _CLOSING_WORD.search(words, first.end())
    if closing and _WORDS[closing[1].lower()] != word:
        return "both"
    second = _SECOND.match(words, first.end())
    while second is not None:
        # "Yes, no animal can" says yes; "yes or no" and "yes, no" say both.
        is_stated = bool(second["joined"] or not second["more"])
        if is_stated and _WORDS[second["word"].lower()] != word:
            return "both"
        second = _SECOND.match(words, second.end("word"))
    return None if is_denied(words, *first.span(1)) else word


def read_restatement(text: str, question: str) -> Literal["yes", "no"] | None:
    """Whether the last sentence claims what a question asks ("yes") or denies it ("no"), or
    neither.

    >>> question = "Would nickel boil in the core of the earth?"
    >>> read_restatement("So nickel would not boil there.", question)
    'no'
    """
    asked = _ASKED.findall(question)
    words = list_stems(asked[-1]) if asked else []
    line = last_line(cut_remarks(text))
    if line is None or not words or not _DENIALS.isdisjoint(words):
        return None
    sentence = _SENTENCE_END.split(strip_markup(line.text[-2 * _MAX_SENTENCE :]))[-1]
    verdicts: set[Literal["yes", "no"] | None] = set()
    for clause in split_clauses(sentence[-_MAX_SENTENCE:]):
        if clause.lead not in _SUBORDINATE and clause.mark != "?":
            part = sentence[-_MAX_SENTENCE:][clause.start : clause.end]
            verdicts.add(_judge_clause(list_stems(_CONTRACTION.sub(" not", part)), words))
    verdicts.discard(None)
    return verdicts.pop() if len(verdicts) == 1 else None


def _judge_clause(words: list[str], asked: list[str]) -> Literal["yes", "no"] | None:
    """Compare the words of a clause with those of the question.

    If the clause has the question's verb, `it`, `there` or `the` may replace the words that it
    omits. Otherwise, as in `he won` for `did he win`, it may omit at most one word.
    """
    wanted = set(asked) - _SMALL_WORDS - _AUXILIARIES
    content = set(words) - _SMALL_WORDS - _AUXILIARIES - _DENIALS
    if not content or not content <= wanted:
        return None
    first = next((word for word in asked if word in _AUXILIARIES), "")
    is_asked_verb = first in words or (first in _DO and not _DO.isdisjoint(words))
    left_out = wanted - content
    if is_asked_verb and left_out and _STANDS_FOR_IT.isdisjoint(words):
        return None
    if not is_asked_verb and (first not in _DO or len(left_out) > 1):
        return None
    return "yes" if _DENIALS.isdisjoint(words) else "no"
