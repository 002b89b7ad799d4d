"""Read the option that the last sentence of a response names, by its letter or its text.

The sentence must say that this option is what the question asks for, in the question's own words or
with a pronoun or a noun such as `answer`: `the capital of Norway is Oslo`, `so the letter is C`,
`it is Oslo (option C)`. Other sentences about an option do not name it.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

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
    is_doubtful,
)
from whet.answers.final_answer import decided_text, has_open_box, has_open_tag
from whet.answers.sentences import last_line
from whet.answers.withdrawal import DISOWNING, RETREATING, find_replacement, is_disowned
from whet.tasks.qa.question_words import list_stems
from whet.tasks.qa.stated import strip_markup

_MAX_LINE = 600
_MAX_SENTENCES = 3
_MAX_TRAILING = 6
_MAX_LABEL = 40
_OPTIONS_START = re.compile(r"^[ \t*]*\(?A[).:]|[ \n]\(A\)", re.MULTILINE)
"""Where a question's list of options starts: `A)`."""
_SENTENCE_END = re.compile(r"(?<=[.!])\s+(?=[A-Z])")
_CLAUSE = re.compile(r"(?:^|,|;|:|→|⇒) ?(?:and )?(?:so|thus|hence|therefore|then)\b,? |; ", re.I)
"""The start of a clause that concludes: `, so`, `hence`."""
_IS = re.compile(
    r"\b(?:is|are|was|were|be|equals|(?:match|correspond)(?:es|s)?(?: to| with)?|makes it|leaves"
    r"|gives|yields)\b|=|:(?=\s)",
    re.IGNORECASE,
)
_CONTRACTED = re.compile(r"\b(it|that|this|what|which|answer|letter|option)['’]s\b", re.IGNORECASE)
_PREFIX = re.compile(r"^(?:of|among|out of) (?:the|these|all|our)\b[^,]{0,40}, ", re.IGNORECASE)
"""A phrase before the subject: `of these options, `."""
_STANDS_FOR_IT = frozenset(
    list_stems(
        "it its this that the so thus hence therefore then and now finally right correct best only"
        " final option choice letter answer pick selection question asked for we have get want need"
        " must will would should has to there my our value total result overall all in which i go"
        " as being thing one here looking"
    )
)
"""Words that may stand for what the question asks for."""
_NAMES_IT = frozenset(list_stems("it this that letter option choice answer pick selection"))
"""Words that refer to the answer itself."""
_INDEFINITE = frozenset(list_stems("a an one some another each any every no first next"))
"""A subject that starts with one of these may be one of many."""
_REVERSED = frozenset(list_stems("not except least false incorrect untrue never wrong"))
"""Words that reverse what a question asks for."""
_STATEMENTS = frozenset(list_stems("statement assertion conclusion claim"))
"""Things that may have letters of their own."""
_PREPOSITIONS = frozenset(list_stems("in on at by from to with for"))
_NO_VERBS = _PREPOSITIONS | frozenset(list_stems("of into and or than as the a an if is it what"))
"""Words before an option that are not verbs; a verb may precede it: `he pays $15`."""
_WHERE = re.compile(r"\b(in|on|at|by|from|to|with|for) (?:which|what)\b", re.IGNORECASE)
_ADVERBS = re.compile(
    r"^(?:(?:clearly|indeed|thus|therefore|hence|then|simply|exactly|equal to|now|that|of course"
    r"|the|an?|surely|definitely|certainly|obviously|option|choice|letter|number|answer)(?![a-z])"
    r"[ :,]*)+",
    re.IGNORECASE,
)
_PARTING = re.compile(r",? (?:because|since|which|as|where|for|so)\b|[,;:(]| [—–-] ")
"""Where a predicate may end: before a reason or an aside."""
_LETTER_BEHIND = re.compile(
    r"^(?P<text>.{1,300}?\S)(?:,? (?:i\.e\.,? |that is,? |which is )?\(?| ?\()"
    r"(?:(?:the )?(?:option|choice|letter|answer) )?\(?(?P<letter>[A-Z])\)*$"
)
"""An option's text and then its letter: `Oslo (option C)`."""
_LETTER_BEFORE = re.compile(
    r"^(?:(?:option|choice|letter|answer) )?\(?(?P<letter>[A-Z])\)?(?:[.:,)] ?| \(| [—–-] | = )"
    r"(?P<text>\S.{0,300}?)\)?$",
    re.IGNORECASE,
)
"""An option's letter and then its text: `C. Oslo`."""
_LETTER = re.compile(r"^(?:option |choice |letter |answer )?\(?([A-Z])\)?$")
_IT_IS = re.compile(r"^(?:so |then )?(?:option |choice )?\(?([A-Z])\)? it is$", re.IGNORECASE)
_ONLY = re.compile(
    r"^only (?:the )?(?:[a-z]{3,12} )?\(?([A-HJ-Z])\)? (?:works|fits|remains|holds|matches|survives"
    r"|is (?:left|correct|right|possible|valid|consistent))$",
    re.IGNORECASE,
)
"""The other options are ruled out: `only table D works`."""
_CURRENCY = re.compile(r"^(?:rs\.?|inr|usd|eur|gbp|[€£¥₹]) ?(?=[0-9])", re.IGNORECASE)
_LETTERS = re.compile(r"(?<![A-Za-z0-9'’])(?:([B-HJ-Z])|([AI])(?! [a-z]))(?![A-Za-z0-9'’])")
"""Letters that may be labels of options, but not an article or a pronoun."""
_DISOWNING = DISOWNING - {"pick", "choose"}
_DOUBT = re.compile(
    any_of(DENIAL, FALSE, CHOICE, UNSURE, SUPPOSED, TURN, "but|yet") + rf"|{CONTRACTION}|\?",
    re.IGNORECASE,
)
_ARTICLE = re.compile(r"^(?:the|an?) (?=\S)", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Known:
    """The options by their texts, and the words of the question."""

    texts: Mapping[str, str]
    letters: frozenset[str]
    words: frozenset[str]
    question: str
    prepositions: frozenset[str]
    """The prepositions before its `which` or `what`."""
    longest: int
    """The length of the longest text that can name an option."""


def find_named(text: str, options: Mapping[str, str], question: str) -> tuple[int, str] | None:
    """Find where the last line of the visible text starts, and the letter that it names.

    >>> options = {"A": "Bergen", "B": "Oslo"}
    >>> find_named("The capital is Oslo.", options, "What is the capital?")
    (0, 'B')
    >>> find_named("A big city is Oslo.", options, "What is the capital?")
    """
    shown = decided_text(text)
    if shown is None or has_open_tag(shown) or has_open_box(shown):
        return None
    line = last_line(cut_remarks(shown))
    if line is None or len(line.text) > _MAX_LINE or line.text.lstrip().startswith(("|", "<")):
        return None
    if is_denied(shown, line.start, line.end):
        return None
    known = _know(options, question)
    sentences = _SENTENCE_END.split(_CONTRACTED.sub(r"\1 is", strip_markup(line.text)))
    for behind, sentence in enumerate(reversed(sentences[-_MAX_SENTENCES:])):
        letter = _read_sentence(sentence.strip().rstrip(".! "), known)
        if letter is not None:
            rest = " ".join(sentences[len(sentences) - behind :])
            is_kept = find_replacement(f" {rest}") is None
            return (line.start, letter) if is_kept else None
        if _says_more(sentence, known):
            return None
    return None


def _know(options: Mapping[str, str], question: str) -> _Known:
    stem = _OPTIONS_START.split(question)[0]
    texts: dict[str, str] = {}
    for letter, option in options.items():
        key = _key(option)
        texts[key] = "" if key in texts else letter
    return _Known(
        texts={key: letter for key, letter in texts.items() if key and letter},
        letters=frozenset(options),
        words=frozenset(_words(stem)),
        question=f" {' '.join(_words(stem))} ",
        prepositions=frozenset(map(str.casefold, _WHERE.findall(stem))),
        longest=max(map(len, options.values()), default=0) + _MAX_LABEL,
    )


def _key(text: str) -> str:
    plain = _ARTICLE.sub("", strip_markup(text).strip(" .,;:()\"'“”").casefold())
    plain = _CURRENCY.sub("", plain)
    return re.sub(r"(?<=[0-9]),(?=[0-9]{3}(?![0-9]))", "", " ".join(plain.split()))


def _words(text: str) -> list[str]:
    return list_stems(strip_markup(text))


def _says_more(sentence: str, known: _Known) -> bool:
    """Whether a sentence after an answer doubts it or names an option."""
    plain = f" {' '.join(_words(sentence))} "
    names = (f" {' '.join(_words(text))} " in plain for text in known.texts)
    words = sentence.lower().split()
    is_more = _DOUBT.search(sentence) is not None or not (DISOWNING | RETREATING).isdisjoint(words)
    return is_more or any(names) or not known.letters.isdisjoint(_letters(sentence))


def _letters(text: str) -> set[str]:
    return {one or two for one, two in _LETTERS.findall(text)}


def _read_sentence(sentence: str, known: _Known) -> str | None:
    if "?" in sentence or not sentence:
        return None
    starts = list(_CLAUSE.finditer(sentence))
    clause = sentence[starts[-1].end() :] if starts else sentence
    clause = _PREFIX.sub("", clause)
    if (it_is := _IT_IS.fullmatch(clause)) and it_is[1] in known.letters:
        return it_is[1]
    if (only := _ONLY.fullmatch(clause)) and only[1] in known.letters:
        return only[1] if (_REVERSED | _STATEMENTS).isdisjoint(known.words) else None
    concludes = bool(starts) and not starts[-1][0].startswith(";")
    for verb in _IS.finditer(clause):
        subject = clause[: verb.start()]
        if not _is_asked(subject, known, concludes=concludes, is_label=verb[0] == ":"):
            continue
        if (letter := _read_predicate(clause[verb.end() :].strip(), known)) is not None:
            return letter
    return _read_subject(clause, known) or _read_object(clause, known)


def _is_asked(subject: str, known: _Known, *, concludes: bool, is_label: bool) -> bool:
    """Whether a subject is exactly what the question asks for, not just one of its kind."""
    words = _words(subject)
    if not words or words[0] in _INDEFINITE or is_doubtful(subject) or is_disowned(subject):
        return False
    if not _DISOWNING.isdisjoint(subject.lower().split()):
        return False
    if len(words) == 1 and len(words[0]) == 1:
        return concludes
    is_plain = not _NAMES_IT.isdisjoint(words)
    if not is_plain and not _REVERSED.isdisjoint(known.words):
        return False
    is_bare = len(words) == 1 and words[0] not in _STANDS_FOR_IT
    return not (is_label and is_bare) and known.words | _STANDS_FOR_IT >= set(words)


def _read_predicate(predicate: str, known: _Known) -> str | None:
    """Read the option of a predicate: all of it, or the part before a reason."""
    for start in (0, _end_of_adverbs(predicate, known)):
        for head, tail in _heads(predicate[start:], known):
            letter = _find_option(head, known)
            if letter is not None:
                return letter if _agrees(tail, letter, known) else None
    return None


def _end_of_adverbs(predicate: str, known: _Known) -> int:
    first = predicate.partition(" ")[0].casefold()
    if first in known.prepositions:
        return len(first) + 1
    adverbs = _ADVERBS.match(predicate)
    return adverbs.end() if adverbs else 0


def _heads(predicate: str, known: _Known) -> Iterator[tuple[str, str]]:
    """Yield the parts of a predicate that may be the option, longest first, and what follows
    each."""
    yield predicate, ""
    for part in reversed(list(_PARTING.finditer(predicate))):
        yield predicate[: part.start()], predicate[part.start() :]
    if "=" in predicate:
        yield predicate.rpartition("=")[2], ""
    words = predicate.rpartition("=")[2].split()
    for length in range(len(words) - 1, max(len(words) - _MAX_TRAILING, 0), -1):
        rest = " ".join(words[length:])
        if not known.words | _STANDS_FOR_IT >= set(_words(rest)):
            return
        yield " ".join(words[:length]), ""


def _find_option(head: str, known: _Known) -> str | None:
    """Find the option that a few words name: by letter, by text, or by both if they agree."""
    head = head.strip(" .,;:")
    if len(head) > known.longest:
        return None
    if (letter := known.texts.get(_key(head))) is not None:
        return letter
    if (alone := _LETTER.match(head)) and alone[1] in known.letters:
        return alone[1]
    for both in (_LETTER_BEHIND.match(head), _LETTER_BEFORE.match(head)):
        letter = known.texts.get(_key(both["text"])) if both else None
        if both and letter is not None:
            return letter if letter == both["letter"] else None
    return None


def _agrees(tail: str, letter: str, known: _Known) -> bool:
    """Whether the text after an option neither doubts it nor names another."""
    if not tail:
        return True
    plain = f" {' '.join(_words(tail))} "
    others = (text for text, other in known.texts.items() if other != letter)
    names_other = any(f" {' '.join(_words(text))} " in plain for text in others)
    letters = known.letters & _letters(tail)
    is_unsure = is_doubtful(tail) or not (DISOWNING | RETREATING).isdisjoint(tail.lower().split())
    return not names_other and not is_unsure and letters <= {letter}


def _read_subject(clause: str, known: _Known) -> str | None:
    """Read an option as the subject of what the question asks: `Oslo is the capital`."""
    words = clause.split()
    for length in range(1, len(words) - 1):
        letter = _find_option(" ".join(words[:length]), known)
        rest = " ".join(words[length:])
        if letter is None or is_doubtful(rest) or not _REVERSED.isdisjoint(known.words):
            continue
        predicate = " ".join(_words(rest))
        is_one = len(predicate.split()) > 1 and len(predicate) > len("is the ")
        return letter if is_one and f" {predicate} " in known.question else None
    return None


def _read_object(clause: str, known: _Known) -> str | None:
    """Read the option that ends a clause after the question's verb: `he pays $15`."""
    words = clause.split()
    for length in range(2, len(words)):
        lead = _words(" ".join(words[:length]))
        if not lead or lead[-1] not in known.prepositions | (known.words - _NO_VERBS):
            continue
        is_ours = known.words | _STANDS_FOR_IT | {"he", "she", "they"} >= set(lead)
        letter = _find_option(" ".join(words[length:]), known) if is_ours else None
        if letter is not None:
            subject = " ".join(words[:length])
            is_asked = lead[0] not in _INDEFINITE and _REVERSED.isdisjoint(known.words)
            is_sure = _DISOWNING.isdisjoint(lead) and not is_doubtful(subject)
            return letter if is_asked and is_sure and not is_disowned(subject) else None
    return None
