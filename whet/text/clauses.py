"""Read the clauses of a remark about an answer: what each is about, and what it says of it.

A clause is a list of plain words. Whether it denies an answer is told from its subject, which is
the answer, a word that stands for it or the writer, and its predicate: a negation or a word of
failure, but not both. The words are listed below by what they do.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Literal

_MAX_REACH = 200
"""Farther behind an answer a pronoun stands for something else."""

Stance = Literal["denied", "replaced", "confirmed", "turned"]
"""A turn (`wait`, `actually`) denies nothing yet; what replaces an answer may hold another."""

_BREAK = re.compile(
    r"[.;:!?](?=[\s)*_\"'”]|\Z)|\n|[,()。，；：！？—–]|(?<=\s)--?(?=\s)|\.\.\.|…"
    r"|\b(?:but|so|and|because|since|hence|thus|therefore|then|although|though|while|whereas"
    r"|yet|if|when|unless|until|except|as|for)\b",
    re.IGNORECASE,
)
_CONTRACTIONS = (
    (re.compile(r"\bca(?=n['’]t\b)|\bcan(?=not\b)"), "can "),
    (re.compile(r"\bwo(?=n['’]t\b)"), "will"),
    (re.compile(r"n['’]t\b|(?<=do)nt\b|(?<=is)nt\b|(?<=ca)nt\b"), " not "),
    (re.compile(r"\bain not\b"), "is not"),
    (re.compile(r"['’](?:s|re|m)\b"), " is "),
    (re.compile(r"['’](?:ve|d|ll)\b"), " have "),
)
_WORD = re.compile(r"[^\W\d_]+|[0-9]+")


@lru_cache(1 << 12)
def stem(word: str) -> str:
    """Cut off the ending of a verb or noun, the same way for all its forms.

    >>> [stem(word) for word in ("fail", "fails", "failed", "drop", "dropped", "violating")]
    ['fail', 'fail', 'fail', 'drop', 'drop', 'violat']
    """
    if word.startswith("note"):  # not `not`
        return "note"
    for ending in ("ing", "ed", "es", "s", "e", "d"):
        if len(word) > len(ending) + 2 and word.endswith(ending) and word[-2:] != "ss":
            word = word[: -len(ending)]
            break
    return word[:-1] if len(word) > 3 and word[-1] == word[-2] else word


def _stems(words: str) -> frozenset[str]:
    return frozenset(map(stem, words.split()))


ANSWER_WORDS = _stems(
    "answer result value solution reply response output number figure count total choice option"
    " pick letter claim conclusion assignment arrangement colouring coloring table grid tour cycle"
    " path route list order ordering set group selection tag box expression formula line"
    " guess attempt estimate sum sequence matching placement proposal suggestion verdict above"
    " foregoing one lot"
)
PRONOUNS = _stems("it this that these which mine everything")
_NOT = _stems("not never no neither nor nope hardly nowhere without cannot nothing none nobody")
_FAILS = _stems(
    "fail violate break miss contradict forget forgot ignore overlook skip omit clash collide"
    " conflict wrong incorrect false untrue invalid mistaken mistake error erroneous faulty flawed defeat"
    " bogus nonsense void impossible infeasible improper inconsistent unsound inadmissible illegal"
    " insufficient incomplete suboptimal unusable useless rubbish off eliminate exclude reject"
    " dismiss discard disqualify overrule vetoed refute disprove withdraw retract abandon scrap strike"
    " struck overcount undercount double-count exceed lack lose joke lie trap decoy dummy"
    " placeholder filler stub template sample example illustration format guess invent random fake misprint typo rejected absurd"
    " slip extraneous outdated obsolete superseded late provisional unfinished draft disallow forbid"
    " forbidden undone wrongly mistakenly erroneously incorrectly unfounded unlikely doubtful"
    " questionable meaningless arbitrary disregard debunk"
)
"""What an answer that stands does not do, and is not."""
_SUITS = _stems(
    "work hold fit count satisfy check stand qualify meet follow match agree suffice add right"
    " correct true valid answer solution sound allow possible reliable trust believe what it so"
    " mine accept good do close this that final optimal complete best quite exist exact ask want"
    " minimal maximal legal admissible feasible consistent solve yet case enough"
)
"""What an answer that does not stand does not do, and is not."""
_HARMLESS = _stems(
    "only just merely surprise hard difficult matter depend need necessary larger bigger smaller"
    " better longer shorter higher lower more fewer less any coincidence accident doubt chance"
    " change affect unique rely touch even further simply merely trivial obvious least"
)
"""With one of these a negation denies nothing: `it cannot be any larger`."""
_STANDS = _stems(
    "right correct good fine ok okay hold stand work check same agree confirm verify valid sure"
    " certain settle reach win stick keep true indeed still well correctly properly optimal"
    " consistent satisfied suffice pass"
)
_BE = _stems("is are was were be been being seem look appear prove turn out become remain has have")
_OPENERS = _stems(
    "so but and hence thus therefore however unfortunately alas sadly oh well then again also now"
    " actually really in fact indeed i we think believe see find notice note that realise realize"
    " looking on after upon checking reflection rereading second thought thoughts sorry clearly"
    " obviously then still still or rather honestly to be honest frankly though hmm wait oops no"
    " afraid am is it turns out seems plainly of course ps further inspection besides"
)
_OTHERS = _stems(
    "other another else friend people somebody someone some often usual usually rival alternative"
    " earlier previous previously draft first initially if any would many website textbook they"
    " beginner careless swap replace add remove take with without larger smaller opposite"
)
"""What is spoken of besides the answer: the pronoun behind it may stand for that."""
_TURNS = _stems("wait hold hmm actually sorry edit update well oh oops hang ah er um erm no")
_REVERSALS = (
    "scratch that", "strike that", "no wait", "wait no", "actually no", "hmm no", "yeah no", "oops",
    "whoops", "undo", "erratum", "kidding", "just kidding", "never mind", "nevermind", "no no",
    "so no", "no", "nope", "not", "not so fast", "not so", "not true", "it is not",
)  # fmt: skip
"""Each takes an answer back where it is a clause of its own."""
_WRITER_DROPS = _stems("reject discard abandon drop strike scrap take")
_WRITER_ERRS = _stems(
    "forget forgot forgotten miss overlook overlooked miscount misread mix swap slip skip err"
    " mistook mistake confuse guess retract withdraw recant disown erred invented wrong mistaken decline bluff pretend transposed doubt distrust"
    " miscalculated miscalculate misjudged copied reversed undercounted overcounted lied kid"
)
_WRITER_LACKS = _stems(
    "know tell sure certain confident believe think trust sign stand settle decide have find pin"
    " vouch recommend endorse rely claim bet say finish determine commit submit mean confirm"
    " justify prove agree accept verify worked work figure"
)
_LACKED = ANSWER_WORDS | _stems("idea clue other better way longer view opinion means")
_RESOLVED = _stems(
    "earlier initially first before draft noticed fixed mended previous previously corrected caught"
    " once beforehand until already afterwards resolved mend fix thanks"
)
_UNDOING = _stems(
    "ignore disregard forget strike scrap scratch delete discard cross undo drop swap flip double"
    " halve reverse dismiss replace redo invert negate toss bin take add subtract read divide"
    " multiply"
)
_REVERSED = {tuple(map(stem, turn.split())) for turn in _REVERSALS}
_DETERMINERS = _stems("the my our your this that these")
_ARTICLES = {("a",), ("an",), ("the",), ("my",)}
_NAMED = {(word,) for word in ANSWER_WORDS}
_THAT = {(word,) for word in ("i", "it", "thi", "that", "them", "one", "everyth", "all")}
_NOT_QUITE = {(stem(word),) for word in ("right", "correct", "true", "good", "quite", "valid", "so")}
_MENDED = _stems("be read have say been to")
_QUOTING = _stems("said say thought wrote claim would could might may versus vs")
"""With these as its verb an answer is somebody else's or is only looked at."""
_QUOTES = {(stem(word),) for word in ("what", "how", "only", "just", "merely", "but", "half")}
_VALUES = {(word,) for word in _stems("no none never nothing false invalid impossible unlikely")}
"""An answer may be such a word: `The answer is no.`"""
_VERBS = _BE | _NOT | _FAILS | _STANDS | _SUITS | _stems(
    "do does did can could will would should must has had only also all just"
)
_SOMEONES = {("your",), ("his",), ("her",), ("their",), ("some",)}
_PERSONS = _stems(
    "student pupil classmate friend colleague teacher professor tutor person people guy kid child"
    " user reviewer expert neighbour neighbor brother sister mother father uncle aunt cousin boss"
    " roommate model assistant bot chatbot website forum blog post internet participant solver"
    " critic stranger man woman boy girl author player opponent rival reader grader beginner fool"
    " book textbook newspaper key somebody someone anybody everybody most many"
)
_OBJECTS = PRONOUNS | ANSWER_WORDS | _stems("sign them both me last")


_GOVERNING = _stems(
    "than unless lest avoid nor reject abandon dismiss debunk formerly except versus without refute"
)
_GOVERNING_PAIRS = {
    tuple(map(stem, pair.split()))
    for pair in ("opposed to", "instead of", "far from", "from being", "short of", "such as")
} | {("as", "if"), ("not", "quit")}
"""Words right before an answer that deny it."""
_LABELS = _stems(
    "trap decoy dummy placeholder demo template sample illustration joke kidding lie debunked"
    " reject discard random todo decorative filler fake bogus"
)
_NO_LABEL = _NOT | _stems("avoid past right correct once left than")
_SPEAKING = _stems(
    "think thought say said guess expect believe believed answer assume write put had"
    " accept accepted conclude tempted told wrote"
)
_MODALS = _stems("might may could would often tempted forgiven")
_PAST = _stems("initially originally formerly earlier before first used yesterday")
_ANYONE = _stems("one you many most some people person reader somebody someone anyone everyone")


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """The stems of a clause, and where it stands in its text, end exclusive."""

    words: tuple[str, ...]
    start: int
    end: int
    mark: str
    """The sign or word that ends it."""
    is_gerund: bool
    """Whether its first word ends in -ing."""


def split_clauses(text: str) -> list[Clause]:
    """Split a text at its signs and conjunctions.

    >>> [clause.words for clause in split_clauses("I checked it, but it can't hold.")]
    [('i', 'check', 'it'), ('it', 'can', 'not', 'hold')]
    """
    return list(_clauses(text))


def _clauses(text: str) -> Iterator[Clause]:
    start = 0
    for end, stop, mark in [
        *((match.start(), match.end(), match[0].lower()) for match in _BREAK.finditer(text)),
        (len(text), len(text), ""),
    ]:
        plain = text[start:end].lower()
        for contraction, written in _CONTRACTIONS:
            plain = contraction.sub(written, plain)
        if words := _WORD.findall(plain):
            yield Clause(
                words=tuple(map(stem, words)),
                start=start,
                end=end,
                mark=mark,
                is_gerund=any(word.endswith("ing") for word in words[:2]),
            )
        start = stop


def judge(clause: Clause, before: Clause | None, *, is_predicate: bool = False) -> Stance | None:
    """Tell what a clause behind an answer says of it; with `is_predicate` the answer is its subject.

    >>> [judge(one, None) for one in split_clauses("So it is wrong. It cannot be larger. It holds.")]
    ['denied', None, 'confirmed']
    """
    words = clause.words
    if words in _REVERSED and (before is None or before.mark != "?"):
        return "denied" if len(words) > 1 or clause.mark != "," else "turned"
    if is_predicate:
        is_quoted = words[0] in _QUOTING or (words[0] in _BE and _is_foreign(words[1:]))
        return "denied" if is_quoted else _judge_predicate(words, is_vague=False)
    if not clause.is_gerund and _is_corrected(words, before):
        return "replaced"
    writer = _after_writer(words)
    if before is not None and before.mark == "and" and words[0] in _WRITER_ERRS | _WRITER_DROPS:
        writer = words if _after_writer(before.words) is not None else None
    if writer is not None:
        is_past = before is not None and not _RESOLVED.isdisjoint(before.words)
        return None if is_past else _judge_writer(writer)
    place, is_vague = _find_subject(words)
    if place:
        is_other = before is not None and not _OTHERS.isdisjoint(before.words)
        is_far = before is not None and (words[0] == "which" or clause.start > _MAX_REACH)
        if is_vague and (is_other or is_far):
            return None
        stance = _judge_predicate(words[place:], is_vague=is_vague)
        if stance is not None:
            return stance
    is_start = before is None or before.mark in ".!\n" or before.words[0] in _TURNS
    if len(words) <= 2 and words[0] in _FAILS and is_start and clause.mark in ".!:":
        return "denied"
    if len(words) <= 3 and words[0] in _STANDS:
        return "confirmed"
    if words[0] in _TURNS:
        return "turned"
    return None


def _is_foreign(words: tuple[str, ...]) -> bool:
    """Whether what an answer is said to be makes it no answer of the writer's."""
    return words[:1] in _QUOTES or (
        words[:1] in _ARTICLES | _SOMEONES and not _PERSONS.isdisjoint(words[1:3])
    )


def _is_corrected(words: tuple[str, ...], before: Clause | None) -> bool:
    """Whether a clause says what should stand in place of the answer, or how to change it."""
    if words[0] == "not":
        is_named = words[1:2] in _ARTICLES and (before is None or words[2:3] in _NAMED)
        return is_named or (words[1:] in _NOT_QUITE)
    while words and words[0] in _OPENERS:
        words = words[1:]
    if words and words[0] in _UNDOING:
        is_named = words[1:2] == ("the",) and words[2:3] and words[2] in _OBJECTS
        return is_named or words[1:2] in _THAT
    while words and words[0] in PRONOUNS:
        words = words[1:]
    is_mended = words[:1] in (("shoul",), ("ought",)) and not _MENDED.isdisjoint(words[1:3])
    return is_mended and _NOT.isdisjoint(words)


def is_given_away(words: tuple[str, ...], *, is_label: bool) -> bool:
    """Whether a clause that leads to an answer says that it is not the writer's, or none.

    `is_label` says that it ends in a colon.

    >>> [is_given_away(one.words, is_label=False) for one in split_clauses("One may think of")]
    [True]
    """
    if words[-1] in _GOVERNING or words[-2:] in _GOVERNING_PAIRS:
        return True
    if is_label and not _LABELS.isdisjoint(words) and _NO_LABEL.isdisjoint(words):
        return True
    while words and words[0] in _OPENERS - {"i", "we"}:
        words = words[1:]
    head = words[:4]
    if not _SPEAKING.isdisjoint(words) and not (_MODALS | _PAST).isdisjoint(words):
        is_one = not _ANYONE.isdisjoint(head) and not _MODALS.isdisjoint(words)
        return is_one or ("i" in words and not _PAST.isdisjoint(words))
    return False


def _is_negative(words: tuple[str, ...]) -> bool:
    return sum(word in _NOT for word in words) % 2 == 1


def _after_writer(words: tuple[str, ...]) -> tuple[str, ...] | None:
    """Take what the writer says of themselves; None where the clause is not about them."""
    for place, word in enumerate(words[:4]):
        if word in ("i", "we"):
            return words[place + 1 :]
        if word not in _OPENERS:
            return None
    return None


def _judge_writer(words: tuple[str, ...]) -> Stance | None:
    is_negative = _is_negative(words[:6])
    if not _WRITER_ERRS.isdisjoint(words[:5]):
        return None if is_negative or not _RESOLVED.isdisjoint(words) else "denied"
    if words[:2] == ("giv", "up") or not _WRITER_DROPS.isdisjoint(words[:3]):
        is_all = words[:2] == ("giv", "up") or not _OBJECTS.isdisjoint(words[1:4])
        return "denied" if is_all and not is_negative else None
    if "no" in words[:-1] and words[words.index("no") + 1] not in _LACKED:
        return None
    if ("hav", "to") in pairwise(words):
        return None
    if is_negative and not _WRITER_LACKS.isdisjoint(words[:6]):
        return None if not _HARMLESS.isdisjoint(words) else "denied"
    return "confirmed" if not is_negative and not _STANDS.isdisjoint(words[:3]) else None


def _find_subject(words: tuple[str, ...]) -> tuple[int, bool]:
    """Find where the predicate of a clause about the answer starts; 0 if it is about another.

    The second says whether the subject is a pronoun, which may stand for another thing.
    """
    place = 0
    while place < len(words) - 1 and words[place] in _OPENERS - PRONOUNS:
        place += 1
    if words[place] in _DETERMINERS:
        for end in range(place + 1, min(place + 4, len(words))):
            if words[end] == "of":
                break
            if words[end] in _PERSONS:
                return end + 1, True
            if words[end] in ANSWER_WORDS:
                if words[end] == "lin" and "abov" not in words or words[end - 1] in _OTHERS:
                    return 0, False
                while words[end : end + 1] and words[end] in ANSWER_WORDS:
                    end += 1
                is_value = words[end : end + 1] == ("is",) and words[end + 1 :] in _VALUES
                is_part = words[end : end + 1] == ("of",)
                return (0, False) if is_part or (is_value and "abov" not in words) else (end, False)
    after = words[place + 1 : place + 2]
    if words[place] not in PRONOUNS or not after or ("possibl", "to") in pairwise(words):
        return 0, False
    is_verb = after[0] in _VERBS or after[0].endswith("ly")
    return (place + 1, True) if is_verb else (0, False)


def _judge_predicate(words: tuple[str, ...], *, is_vague: bool) -> Stance | None:
    is_negative = _is_negative(words[:6])
    is_failure = not _FAILS.isdisjoint(words[:6]) or ("rul", "out") in pairwise(words[:6])
    if is_failure:
        return "confirmed" if is_negative else "denied"
    if is_negative:
        if not _HARMLESS.isdisjoint(words):
            return None
        suits = not _SUITS.isdisjoint(words) or words[1:2] == ("no",) or words[2:3] in _ARTICLES
        if is_vague and "woul" in words:
            return None
        return "denied" if suits or not is_vague else None
    return "confirmed" if not _STANDS.isdisjoint(words[:5]) else None
