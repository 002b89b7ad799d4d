"""Decide whether a clause next to an answer denies or confirms it.

A clause after an answer is about it where its subject is the answer, a word that stands for it, or
the writer. It denies the answer by a negation or by a word of failure, but not by both. The lists
of words say what they do; they are compared by their stems, as `clauses` makes them.
"""

from itertools import pairwise
from typing import Literal

from whet.answers.clauses import Clause, inflect, to_phrases, to_stems

Stance = Literal["denied", "replaced", "confirmed", "turned"]
"""A turn (`wait`, `actually`) denies nothing yet; what replaces an answer may hold another."""
_Words = tuple[str, ...]

_MAX_REACH = 200
"""Beyond this distance from an answer, a pronoun no longer refers to it."""
_NEAR = 5
"""Only this many words of a predicate are looked at."""

# What a clause is about.
_ANSWERS = to_stems(
    "answer result value solution reply response output number figure count total choice option one"
    " claim conclusion assignment arrangement coloring table grid tour cycle path route list order"
    " set group selection tag box expression formula line guess attempt estimate sum above pick"
)
_CORE = to_stems("answer result value solution")
_PRONOUNS = to_stems("it this that these which mine everything")
_DETERMINERS = to_stems("the my our your this that these")
_ARTICLES = to_stems("a an the my")
_OWNERS = _ARTICLES | to_stems("your his her their some")
_WRITERS = to_stems("i we")
PERSONS = (
    "student pupil classmate friend colleague teacher professor tutor person people guy kid child"
    " user reviewer expert neighbour neighbor sister brother uncle boss model assistant bot website"
    " participant solver critic stranger man woman author player opponent rival reader grader"
)
_PERSONS = to_stems(f"{PERSONS} book textbook key somebody someone anybody everybody most many")
_OPENERS = _WRITERS | to_stems(
    "so but and hence thus therefore however unfortunately oh well then again also now actually on"
    " really in fact think believe see find notice note that realize looking after upon checking of"
    " reflection second thought sorry clearly still to be hmm wait oops am is no it turns out seems"
    " course please"
)
_BEFORE_SUBJECT = _OPENERS - _PRONOUNS
_OTHERS = to_stems(
    "other another else friend people somebody someone some often alternative earlier previous"
    " previously draft first initially if any would many they careless swap replace add remove take"
    " with larger smaller opposite naive tempting"
)
"""Other things that a response speaks of; a pronoun in the next clause may refer to one."""
_MODIFIERS = to_stems("i we you given stated here in on from clearly now then")
"""What may follow the name of an answer; with another word it is the name of another thing."""
_VAGUE = to_stems("line claim conclusion proposal suggestion attempt guess estimate")

# What it says.
_NEGATION = "not never no neither nor nope hardly cannot nothing none nobody"
_FAILURE = (
    "fail miss forget forgot ignore overlook skip omit overcount undercount exceed lack lose wrong"
    " incorrect false untrue invalid mistaken erroneous faulty flawed impossible void"
    " infeasible inconsistent inadmissible insufficient incomplete suboptimal off fake extraneous"
    " outdated unlikely doubtful"
)
_FLAW = "mistake error nonsense joke decoy dummy placeholder template sample example format guess"
_BREACH = "violate break contradict clash conflict"
_REMOVAL = (
    "eliminate exclude reject dismiss discard overrule refute disprove withdraw withdrawn retract"
    " abandon scrap strike struck disregard"
)
_NOT = to_stems(_NEGATION)
_FAILS = to_stems(_FAILURE)
_FLAWS = to_stems(_FLAW)
"""What a valid answer does not do, is not, and does not have."""
_BREAKS = to_stems(_BREACH)
_RULES = to_stems(
    "clue condition constraint rule requirement equation statement limit everything all it"
)
"""What an answer must not break: breaking a tie says nothing about the answer."""
_COUNTS = to_stems("one two three both 1 2 3")
_REMOVES = to_stems(_REMOVAL)
"""What is done to an answer that does not stand; with another object it says nothing about it."""
_ALONE = _FAILS | _FLAWS | _REMOVES
_TRUTHS = _FAILS | to_stems("right correct true answer solution work hold fit satisfy it possible")
"""What is said of an answer even where the clause before it has another subject."""
_SUITS = to_stems(
    "work hold fit count satisfy check stand meet follow match agree suffice add right correct true"
    " valid answer solution sound allow possible reliable trust believe mine accept good do final"
    " optimal complete best quite exist exact ask want path minimal maximal admissible consistent"
    " solve yet case enough"
)
"""What an invalid answer does not do, and is not."""
_SELVES = to_stems("it so what this that")
_EQUALS = to_stems("be equal to x n")
_HARMLESS = to_stems(
    "only just merely surprise hard difficult matter depend need necessary larger bigger smaller"
    " better longer shorter higher lower more fewer less any coincidence doubt chance change affect"
    " unique rely even further simply obvious least"
)
"""With one of these a negation denies nothing: `it cannot be any larger`."""
_SCOPES = to_stems("general generally always")
"""With one of these a predicate is denied of other cases than the one asked for."""
_STANDS = _SUITS | to_stems("fine ok okay same confirm verify sure keep indeed still well pass")
_IS = to_stems("is are was were be been being seem look appear prove out become remain has have")
_VERBS = (_IS | _NOT | _ALONE | _BREAKS | _STANDS) | to_stems(
    "do does did can could will would should must has had only also all just above"
)
_VALUES_ALONE = to_phrases("no, none, never, nothing, false, invalid, impossible, not possible")
_ATTRIBUTES = to_stems("said say thought wrote claim would could might may")
"""With one of these as its verb, an answer is somebody else's, or is only being considered."""
_ONLY = to_stems("what how only just merely but half")
_TURNS = to_stems("wait hold hmm actually sorry edit update well oh oops no")
_REVERSALS = to_phrases(
    "scratch that, strike that, no wait, wait no, actually no, hmm no, oops, whoops, undo, erratum,"
    " kidding, just kidding, never mind, nevermind, no no, so no, no, nope, not, not so fast,"
    " not so, not true, it is not"
)
"""Each takes an answer back where it is a clause of its own."""

# What the writer does.
_SLIPS = (
    "forget forgot forgotten miss overlook miscount misread mix swap slip skip err mistook mistake"
    " confuse retract withdraw wrong mistaken doubt distrust miscalculate overcount lie random"
)
_ERRS = to_stems(_SLIPS)
_WORK = to_stems("algebra arithmetic detail derivation proof say mention note add explain nothing")
_REJECTS = to_stems("reject discard abandon drop strike scrap take")
_LACKS = to_stems(
    "know tell sure certain confident believe think trust stand settle decide have find vouch rely"
    " claim say mean submit agree accept worked work figure"
)
_TO = to_stems("of about for")
_WHETHER = to_stems("that if whether why")
_MORE = to_stems("another other else more further better simpler")
_OPEN = _MORE | to_stems("a an there")
_LACKED = _ANSWERS | to_stems("idea clue other better way longer view opinion means")
"""Of these a writer with no answer says `no`."""
_RESOLVED = to_stems(
    "earlier initially first before draft noticed fixed mended previously corrected caught once"
    " mend until already resolved fix thanks almost nearly would"
)
"""With one of these a slip is in the past, or was never made."""
_CHANGES = (
    "ignore disregard forget strike scrap scratch delete discard undo drop swap flip double reverse"
    " dismiss replace redo take add subtract read reject"
)
_UNDOES = to_stems(_CHANGES)
_OBJECTS = _PRONOUNS | _ANSWERS | to_stems("sign them both me last i one all")
_ENDS = ".!;:\n—–"
_OUGHT = to_phrases("should be, should read, should have, should say, ought to")

_GIVES_UP = to_phrases("give up, gave up")
_EASY = to_stems("possible impossible easy hard wrong incorrect true false mistake error")
_CONCLUSIONS = ("so", "hence", "thus", "therefore")
_REASONS = ("because", "since", "if", "when", "unless", "until", "while")

CUES = inflect(f"{_FAILURE} {_FLAW} {_BREACH} {_REMOVAL} {_SLIPS} {_CHANGES}") | frozenset(
    f"{_NEGATION} should ought up oops whoops erratum kidding nevermind ruled".split()
)
"""A clause can deny an answer that is not its subject only if it has one of these."""
STEMS = to_stems(" ".join(CUES))


def judge(
    clause: Clause, before: Clause | None, *, is_predicate: bool = False, value: str = ""
) -> Stance | None:
    """Decide what a clause after an answer says about it, from the clause and the one before it.

    With `is_predicate`, the answer is the subject of the clause. `value` is the answer if it is a
    whole number, so that a clause about another number can be told apart.

    >>> from whet.answers.clauses import split_clauses
    >>> [judge(one, None) for one in split_clauses("It's wrong. It can't be larger. It holds.")]
    ['denied', None, 'confirmed']
    """
    words = clause.words
    may_answer = before is not None and (before.mark in "?:" or _has(before.words, _OTHERS))
    if words in _REVERSALS and not may_answer:
        return "denied" if len(words) > 1 or clause.mark in _ENDS else "turned"
    if is_predicate:
        return "denied" if _is_foreign(words) else _judge_predicate(words)
    if clause.lead in _REASONS:
        return None
    if not clause.is_gerund and _is_corrected(words, before):
        return "replaced"
    deed = _find_writer(words, before)
    if deed is not None:
        is_past = before is not None and not _RESOLVED.isdisjoint(before.words)
        *_, said = " ".join(deed).partition("that ")
        return None if is_past else _judge_writer(deed) or _judge_named(tuple(said.split()))
    return _judge_subject(clause, before, value) or _judge_remark(clause, before)


def _has(words: _Words, group: frozenset[str]) -> bool:
    return not group.isdisjoint(words)


def _is_at(words: _Words, place: int, group: frozenset[str]) -> bool:
    return place < len(words) and words[place] in group


def _find(words: _Words, group: frozenset[str]) -> int:
    return next((place for place, word in enumerate(words) if word in group), -1)


def _strip(words: _Words, group: frozenset[str]) -> _Words:
    place = 0
    while _is_at(words, place, group):
        place += 1
    return words[place:]


def _is_foreign(words: _Words) -> bool:
    """Whether a predicate makes an answer somebody else's, a part, or only a thought."""
    is_owned = _is_at(words, 1, _OWNERS) and _has(words[2:4], _PERSONS)
    return words[0] in _ATTRIBUTES or (words[0] in _IS and (is_owned or _is_at(words, 1, _ONLY)))


def _is_corrected(words: _Words, before: Clause | None) -> bool:
    """Whether a clause says what should stand in place of the answer, or how to change it."""
    if words[0] == "not":
        is_named = _is_at(words, 1, _ARTICLES) and (before is None or _is_at(words, 2, _ANSWERS))
        return is_named or (len(words) == 2 and words[1] in _SUITS | _SELVES)
    words = _strip(words, _OPENERS - _WRITERS)
    if words[:2] == ("do", "not"):
        return _is_at(words, 2, _LACKS) and _names_answer(words[3:])
    is_first = before is None or before.mark in _ENDS or before.words[0] in _TURNS
    if _is_at(words, 0, _UNDOES) and is_first:
        return _is_at(words, 1, _OBJECTS - _CORE) or (
            words[1:2] == ("the",) and _is_at(words, 2, _OBJECTS)
        )
    words = _strip(words, _WRITERS | _PRONOUNS)
    return words[:2] in _OUGHT and not _has(words, _NOT)


def _find_writer(words: _Words, before: Clause | None) -> _Words | None:
    """Return the words after `I` or `we`; None if a clause is not about the writer."""
    place = next((n for n, word in enumerate(words) if word not in _OPENERS), len(words))
    writers = [n for n, word in enumerate(words[: min(place, 4)]) if word in _WRITERS]
    if writers:
        return words[writers[0] + 1 :]
    goes_on = before is not None and before.mark == "and" and words[0] in _ERRS | _REJECTS
    return words if goes_on and before and _has(before.words[:4], _WRITERS) else None


def _judge_writer(words: _Words) -> Stance | None:
    is_negative = _has(words[:_NEAR], _NOT)
    if _has(words[:5], _ERRS) and not _has(words, _WORK):
        is_about_more = words[0] == "doubt" and _names_other_thing(words[1:])
        is_settled = is_negative or is_about_more or _has(words, _RESOLVED)
        return None if is_settled else "denied"
    if words[:2] in _GIVES_UP and words[2:3] != ("on",):
        return "denied"
    if _has(words[:3], _REJECTS):
        return "denied" if _has(words[1:4], _OBJECTS) and not is_negative else None
    if not is_negative:
        return "confirmed" if _has(words[:3], _STANDS) else None
    is_idle = _has(words, _HARMLESS - _LACKS) or ("have", "to") in pairwise(words)
    lacked = words[words.index("no") + 1 :] if "no" in words else ()
    is_other = "no" in words and (lacked[:1] == ("other",) or not _is_at(lacked, 0, _LACKED))
    denied = words if "no" in words[:_NEAR] else words[_find(words, _NOT) + 1 :]
    place = _find(denied[:_NEAR], _LACKS)
    is_lacking = place >= 0 and not _names_other_thing(_strip(denied[place + 1 :], _TO))
    return "denied" if is_lacking and not is_idle and not is_other else None


def _names_other_thing(words: _Words) -> bool:
    """Whether what the writer does not find or know is no answer: `an error`, `a simpler way`."""
    if _is_at(words, 0, _WHETHER) and _is_at(words, 1, _OPEN | _ARTICLES):
        return not _has(words[1:4], _ANSWERS - _MORE) or _has(words, _MORE)
    is_open = _is_at(words, 0, _OPEN)
    named = [word for word in words[1:4] if word in _LACKED and word not in _MORE]
    is_compared = any(word.endswith("er") and word not in _ANSWERS for word in words[:3])
    return is_open and (is_compared or not named)


def _judge_subject(clause: Clause, before: Clause | None, value: str) -> Stance | None:
    """Judge a clause whose subject is the answer, or a pronoun that may stand for it."""
    words = _strip(clause.words, _BEFORE_SUBJECT)
    if value and ((is_ours := _names_number(words, value)) is not None or _is_scoped(words)):
        return "denied" if is_ours else None
    if value and words[:1] == (value,) and _has(words[1:2], _VERBS):
        return _judge_predicate(words[1:])
    if _find_named(words) is not None:
        return _judge_named(words)
    is_person = _is_at(words, 0, _DETERMINERS) and _is_at(words, 1, _PERSONS)
    has_verb = len(words) > 1 and (words[1] in _VERBS or words[1].endswith("ly"))
    if not is_person and not (_is_at(words, 0, _PRONOUNS) and has_verb):
        return None
    is_far = before is not None and (words[0] == "which" or clause.start > _MAX_REACH)
    concludes = clause.lead in _CONCLUSIONS and _has(words[1:], _TRUTHS)
    if before is not None and before.is_gerund and value and value not in before.words:
        concludes &= not any(word.isdigit() for word in before.words[1:4])
    is_other = before is not None and (_has(before.words, _OTHERS) or _has_subject(before))
    is_idle = any(one in _EASY and other in ("to", "for", "that") for one, other in pairwise(words))
    if is_far or is_idle or (is_other and not concludes):
        return None
    return _judge_predicate(words[1 + is_person :], True)


def _names_number(words: _Words, value: str) -> bool | None:
    """Whether a number that is ruled out, or is a subject, is the answer; None without one."""
    place = _find(words, _NOT)
    if place >= 0 and not _has(words, _HARMLESS):
        number = _strip(words[place + 1 :], _EQUALS)[:2]
        if number and number[0].isdigit():
            return [word for word in number if word.isdigit()] == [value]
    verb = _find(words, _VERBS - _SUITS - _STANDS)
    others = [word for word in words[1 : max(verb, 0)] if word.isdigit()]
    return False if others and value not in others else None


def _is_scoped(words: _Words) -> bool:
    """Whether something is said of a range of cases: `for odd primes`. A number holds for none."""
    scope = words[words.index("for") + 1 :] if "for" in words else ()
    return bool(scope) and not _has(scope, _DETERMINERS | _RULES) and scope[-1].isalpha()


def _has_subject(before: Clause) -> bool:
    """Whether a clause of the same sentence is about another thing than the answer."""
    words = _strip(before.words, _BEFORE_SUBJECT | _TURNS)
    is_ours = _is_at(words, 0, _PRONOUNS) or _find_named(words) is not None
    is_ours |= before.is_gerund and _has(words, _PRONOUNS)
    return before.mark not in ".!?\n" and len(words) > 2 and not is_ours


def _find_named(words: _Words) -> int | None:
    """Find where a subject ends that names the answer: `the answer above`; None without one."""
    place = next((n for n in range(1, min(4, len(words))) if words[n] in _ANSWERS), 0)
    if not place or words[0] not in _DETERMINERS or "of" in words[:place]:
        return None
    end = len(words) - len(_strip(words[place:], _ANSWERS))
    has_above = "abov" in words[:end]
    is_line = _is_at(words, place, _VAGUE) and words[0] != "my" and not has_above
    is_value = words[end : end + 1] == ("is",) and words[end + 1 :] in _VALUES_ALONE
    is_part = end < len(words) and words[end] not in _VERBS | _MODIFIERS
    if is_part or any(map(str.isdigit, words[:end])) or is_line or words[place - 1] in _OTHERS:
        return None
    return None if is_value and not has_above else end


def _judge_named(words: _Words) -> Stance | None:
    end = _find_named(words)
    return None if end is None else _judge_predicate(words[end:])


def _judge_predicate(words: _Words, is_vague: bool = False) -> Stance | None:
    """Judge what is said of the answer; a vague subject may stand for another thing."""
    near = words[:_NEAR]
    if _has(words, _SCOPES) or (is_vague and "would" in words):
        return None
    if _is_broken(near):
        return "confirmed" if _has(near, _NOT) else "denied"
    if not _has(near, _NOT):
        return "confirmed" if _has(near, _STANDS) else None
    if ("no" in near and words[:2] != ("is", "no")) or _has(words, _HARMLESS):
        return None
    is_self = _is_at(_strip(words[_find(words, _NOT) + 1 :], _EQUALS), 0, _SELVES)
    return "denied" if is_self or _has(words, _SUITS) or words[:2] == ("is", "no") else None


def _is_broken(words: _Words) -> bool:
    """Whether the subject is removed, or breaks a rule that an answer must keep."""
    for place, word in enumerate(words[:_NEAR]):
        after = words[place + 1 :]
        if word in _FAILS:
            return after[:1] != ("only",)
        if word in _FLAWS:
            return _has(words[:place], _IS)
        if word in _REMOVES or words[place : place + 2] == ("rul", "out"):
            return _has(words[:place], _IS) or _names_answer(after)
        if word in _BREAKS:
            return not after or _has(after[:4], _RULES) or _is_at(after, 0, _COUNTS)
    return False


def _names_answer(words: _Words) -> bool:
    """Whether an object is the answer: `it`, `my answer`."""
    return _is_at(words, 0, _PRONOUNS) or _has(words[1:3], _CORE)


def _judge_remark(clause: Clause, before: Clause | None) -> Stance | None:
    """Judge a few words without a subject: `Wrong.`, `Correct.`, `Wait`."""
    words = clause.words
    is_start = before is None or before.mark in ".!\n" or before.words[0] in _TURNS
    if len(words) <= 2 and words[0] in _ALONE and is_start and clause.mark in ".!:":
        return "denied"
    if len(words) <= 3 and words[0] in _STANDS:
        return "confirmed"
    return "turned" if words[0] in _TURNS else None
