"""Tell what a clause beside an answer says of it.

A clause behind an answer is about it where its subject is the answer, a word that stands for it, or
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
"""Farther behind an answer a pronoun stands for something else."""
_NEAR = 5
"""A predicate is judged by so many words."""

# What a clause is about.
_ANSWERS = to_stems(
    "answer result value solution reply response output number figure count total choice option"
    " pick letter claim conclusion assignment arrangement colouring coloring table grid tour cycle"
    " path route list order ordering set group selection tag box expression formula line guess"
    " attempt estimate sum sequence matching placement proposal suggestion verdict above foregoing"
    " one lot"
)
_PRONOUNS = to_stems("it this that these which mine everything")
_DETERMINERS = to_stems("the my our your this that these")
_ARTICLES = to_stems("a an the my")
_OWNERS = _ARTICLES | to_stems("your his her their some")
_WRITERS = frozenset(("i", "we"))
_PERSONS = to_stems(
    "student pupil classmate friend colleague teacher professor tutor person people guy kid child"
    " user reviewer expert neighbour neighbor brother sister mother father uncle aunt cousin boss"
    " roommate model assistant bot chatbot website forum blog post internet participant solver"
    " critic stranger man woman boy girl author player opponent rival reader grader beginner fool"
    " book textbook newspaper key somebody someone anybody everybody most many"
)
_OPENERS = _WRITERS | to_stems(
    "so but and hence thus therefore however unfortunately alas sadly oh well then again also now"
    " actually really in fact indeed think believe see find notice note that realise realize"
    " looking on after upon checking reflection rereading second thought thoughts sorry clearly"
    " obviously still or rather honestly to be honest frankly though hmm wait oops no afraid am is"
    " it turns out seems plainly of course further inspection besides please"
)
"""What may stand before the subject."""
_BEFORE_SUBJECT = _OPENERS - _PRONOUNS
_OTHERS = to_stems(
    "other another else friend people somebody someone some often usual usually rival alternative"
    " earlier previous previously draft first initially if any would many website textbook they"
    " beginner careless swap replace add remove take with without larger smaller opposite"
)
"""What is spoken of besides the answer: a pronoun in the next clause may stand for it."""

# What it says.
_NEGATION = "not never no neither nor nope hardly nowhere without cannot nothing none nobody"
_FAILURE = (
    "fail violate break miss contradict forget forgot ignore overlook skip omit clash collide"
    " conflict wrong incorrect false untrue invalid mistaken mistake error erroneous faulty flawed"
    " bogus nonsense void impossible infeasible improper inconsistent unsound inadmissible illegal"
    " insufficient incomplete suboptimal unusable useless rubbish off eliminate exclude reject"
    " dismiss discard disqualify overrule refute disprove withdraw retract abandon scrap strike"
    " struck overcount undercount exceed lack lose joke trap decoy dummy placeholder filler"
    " stub template sample example illustration format guess invent random fake misprint typo slip"
    " absurd extraneous outdated obsolete superseded late provisional unfinished draft disallow"
    " forbid undone wrongly mistakenly erroneously incorrectly unfounded unlikely doubtful"
    " questionable meaningless arbitrary disregard debunk"
)
_NOT = to_stems(_NEGATION)
_FAILS = to_stems(_FAILURE)
"""What an answer that stands does not do, and is not."""
_SUITS = to_stems(
    "work hold fit count satisfy check stand qualify meet follow match agree suffice add right"
    " correct true valid answer solution sound allow possible reliable trust believe what it so"
    " mine accept good do close this that final optimal complete best quite exist exact ask want"
    " minimal maximal legal admissible feasible consistent solve yet case enough"
)
"""What an answer that does not stand does not do, and is not."""
_HARMLESS = to_stems(
    "only just merely surprise hard difficult matter depend need necessary larger bigger smaller"
    " better longer shorter higher lower more fewer less any coincidence accident doubt chance"
    " change affect unique rely touch even further simply trivial obvious least"
)
"""With one of these a negation denies nothing: `it cannot be any larger`."""
_STANDS = to_stems(
    "right correct good fine ok okay hold stand work check same agree confirm verify valid sure"
    " certain settle reach win stick keep true indeed still well correctly properly optimal"
    " consistent satisfied suffice pass"
)
_IS = to_stems(
    "is are was were be been being seem look appear prove turn out become remain has have"
)
_VERBS = (_IS | _NOT | _FAILS | _STANDS | _SUITS) | to_stems(
    "do does did can could will would should must has had only also all just"
)
"""With one of these behind it a pronoun is a subject."""
_VALUES = to_stems("no none never nothing false invalid impossible unlikely")
"""An answer may be such a word: `The answer is no.`"""
_ATTRIBUTES = to_stems("said say thought wrote claim would could might may versus vs")
"""With one of these as its verb an answer is somebody else's, or is only looked at."""
_ONLY = to_stems("what how only just merely but half")
_TURNS = to_stems("wait hold hmm actually sorry edit update well oh oops hang ah er um erm no")
_REVERSALS = to_phrases(
    "scratch that, strike that, no wait, wait no, actually no, hmm no, yeah no, oops, whoops, "
    "undo, erratum, kidding, just kidding, never mind, nevermind, no no, so no, no, nope, "
    "not, not so fast, not so, not true, it is not"
)
"""Each takes an answer back where it is a clause of its own."""
_NOT_QUITE = to_stems("right correct true good quite valid so")

# What the writer does.
_SLIPS = (
    "forget forgot forgotten miss overlook miscount misread mix swap slip skip err mistook mistake"
    " confuse guess retract withdraw recant disown invent wrong mistaken decline bluff pretend"
    " transpose doubt distrust miscalculate misjudge copy reverse undercount overcount lie kid"
    " random"
)
_ERRS = to_stems(_SLIPS)
_REJECTS = to_stems("reject discard abandon drop strike scrap take")
_LACKS = to_stems(
    "know tell sure certain confident believe think trust sign stand settle decide have find pin"
    " vouch recommend endorse rely claim bet say finish determine commit submit mean confirm"
    " justify prove agree accept verify worked work figure"
)
"""Of these a writer with no answer says `not`."""
_TO = to_stems("of about for")
_OTHER = to_stems("other another")
_MORE = to_stems("another other else more further better simpler")
"""A doubt about one of these is none about the answer: `I doubt there is another`."""
_LACKED = _ANSWERS | to_stems("idea clue other better way longer view opinion means")
"""Of these a writer with no answer says `no`."""
_RESOLVED = to_stems(
    "earlier initially first before draft noticed fixed mended previous previously corrected caught"
    " once beforehand until already afterwards resolved mend fix thanks"
)
"""With one of these a slip is in the past."""
_CHANGES = (
    "ignore disregard forget strike scrap scratch delete discard cross undo drop swap flip double"
    " halve reverse dismiss replace redo invert negate toss bin take add subtract read divide"
    " multiply reject abandon"
)
_UNDOES = to_stems(_CHANGES)
"""What a reader is told to do with an answer that does not stand."""
_OBJECTS = _PRONOUNS | _ANSWERS | to_stems("sign them both me last")
_ENDS = ".!;:\n—–"
_THAT = to_stems("i it this that them one everything all")
_MENDED = to_stems("be read have say been to")

# What leads to an answer.
_DENYING = to_stems(
    "unless lest avoid nor reject abandon dismiss debunk formerly except versus without refute"
)
_DENYING_PAIRS = to_phrases(
    "opposed to, instead of, far from, from being, short of, as if, not quite"
)
"""Words right before an answer that deny it."""
_RATHER_THAN = ("rather", "than")
_LABELS = to_stems(
    "trap decoy dummy placeholder demo template sample illustration joke kidding lie debunked"
    " reject discard random todo decorative filler fake bogus"
)
_NO_LABEL = _NOT | to_stems("avoid past right correct once left than")
_SPEAKS = to_stems(
    "think thought say said guess expect believe believed answer assume had accept conclude"
    " tempted told wrote"
)
_MAYBE = to_stems("might may could would often tempted forgiven")
_FORMERLY = to_stems("initially originally formerly earlier before first used yesterday")
_ANYONE = to_stems("one you many most some people person reader somebody someone anyone everyone")

# Single words and phrases.
_OUGHT = to_phrases("should, ought")
_GIVES_UP = to_phrases("give up, gave up")
_HAVE_TO = to_phrases("have to")
_EASY_TO = {
    (*adjective, *word)
    for adjective in to_phrases("possible, impossible, easy, hard, wrong, incorrect, true, false")
    for word in to_phrases("to, for, that")
}
_CONCLUSIONS = ("so", "hence", "thus", "therefore")
_REASONS = ("because", "since", "if", "when", "unless", "until", "while")
_ABOVE = to_stems("above")
_VAGUE = to_stems("line claim conclusion proposal suggestion")
_VALUES_ALONE = frozenset((value,) for value in _VALUES) | to_phrases("not possible")
_RULED_OUT = to_phrases("rule out")
_WOULD = to_stems("would")

CUES = inflect(f"{_FAILURE} {_SLIPS} {_CHANGES}") | frozenset(
    f"{_NEGATION} should ought up oops whoops erratum kidding nevermind ruled".split()
)
"""Without one of these a clause denies no answer that is not its subject."""
STEMS = to_stems(" ".join(CUES))


def judge(clause: Clause, before: Clause | None, *, is_predicate: bool = False) -> Stance | None:
    """Tell what a clause behind an answer says of it, from the clause and the one before it.

    With `is_predicate` the answer is the subject of the clause.

    >>> from whet.answers.clauses import split_clauses
    >>> [judge(one, None) for one in split_clauses("It's wrong. It can't be larger. It holds.")]
    ['denied', None, 'confirmed']
    """
    words = clause.words
    if words in _REVERSALS and not (before and _leaves_open(before)):
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
        return None if is_past else _judge_writer(deed)
    stance = _judge_subject(clause, before)
    return stance or _judge_remark(clause, before)


def is_given_away(words: _Words, *, is_label: bool) -> bool:
    """Whether a clause that leads to an answer says that it is not the writer's, or none.

    `is_label` says that it ends in a colon.

    >>> from whet.answers.clauses import split_clauses
    >>> [is_given_away(one.words, is_label=False) for one in split_clauses("One may think of")]
    [True]
    """
    if words[-1] in _DENYING or words[-2:] in _DENYING_PAIRS or words == _RATHER_THAN:
        return True
    if is_label and _has(words, _LABELS) and not _has(words, _NO_LABEL):
        return True
    head = _strip(words, _OPENERS - _WRITERS)[:4]
    is_supposed = _has(words, _MAYBE) and _has(head, _ANYONE)
    is_past = _has(words, _FORMERLY) and "i" in words
    return _has(words, _SPEAKS) and (is_supposed or is_past)


def _leaves_open(before: Clause) -> bool:
    """Whether a `no` behind a clause may answer it: a question, a label, another candidate."""
    return before.mark in "?:" or _has(before.words, _OTHERS)


def _has(words: _Words, group: frozenset[str]) -> bool:
    return not group.isdisjoint(words)


def _is_at(words: _Words, place: int, group: frozenset[str]) -> bool:
    return place < len(words) and words[place] in group


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
        return is_named or (len(words) == 2 and words[1] in _NOT_QUITE)
    words = _strip(words, _OPENERS - _WRITERS)
    if _is_at(words, 0, _UNDOES) and (before is None or before.mark in _ENDS):
        return _is_at(words, 1, _THAT) or (words[1:2] == ("the",) and _is_at(words, 2, _OBJECTS))
    words = _strip(words, _WRITERS | _PRONOUNS)
    is_mended = words[:1] in _OUGHT and _has(words[1:3], _MENDED)
    return is_mended and not _has(words, _NOT)


def _find_writer(words: _Words, before: Clause | None) -> _Words | None:
    """Take what the writer says of themselves; None where a clause is not about them."""
    place = next((n for n, word in enumerate(words) if word not in _OPENERS), len(words))
    writers = [n for n, word in enumerate(words[: min(place, 4)]) if word in _WRITERS]
    if writers:
        return words[writers[0] + 1 :]
    goes_on = before is not None and before.mark == "and" and words[0] in _ERRS | _REJECTS
    return words if goes_on and before and _has(before.words[:4], _WRITERS) else None


def _judge_writer(words: _Words) -> Stance | None:
    is_negative = _has(words[:_NEAR], _NOT)
    if _has(words[:5], _ERRS):
        is_about_more = words[0] == "doubt" and _has(words[:_NEAR], _MORE)
        is_settled = is_negative or is_about_more or _has(words, _RESOLVED)
        return None if is_settled else "denied"
    if words[:2] in _GIVES_UP:
        return "denied"
    if _has(words[:3], _REJECTS):
        return "denied" if _has(words[1:4], _OBJECTS) and not is_negative else None
    if not is_negative:
        return "confirmed" if _has(words[:3], _STANDS) else None
    is_idle = _has(words, _HARMLESS) or any(pair in _HAVE_TO for pair in pairwise(words))
    lacked = words[words.index("no") + 1 :] if "no" in words else ()
    is_other = "no" in words and (not _is_at(lacked, 0, _LACKED) or _is_at(lacked, 0, _OTHER))
    place = next((n for n, word in enumerate(words[:_NEAR]) if word in _LACKS), None)
    is_lacking = place is not None and not _names_other_thing(_strip(words[place + 1 :], _TO))
    return "denied" if is_lacking and not is_idle and not is_other else None


def _names_other_thing(words: _Words) -> bool:
    """Whether what the writer does not find or know is no answer: `an error`, `a simpler way`."""
    is_open = _is_at(words, 0, _ARTICLES | _MORE) and words[0] not in ("the", "my")
    named = [word for word in words[1:4] if word in _LACKED and word not in _MORE]
    is_compared = any(word.endswith("er") and word not in _ANSWERS for word in words[:3])
    return is_open and (is_compared or not named)


def _judge_subject(clause: Clause, before: Clause | None) -> Stance | None:
    """Judge a clause whose subject is the answer, or a pronoun that may stand for it."""
    words = _strip(clause.words, _BEFORE_SUBJECT)
    if (end := _find_named(words)) is not None:
        return _judge_predicate(words[end:])
    end = _find_person(words)
    is_pronoun = _is_at(words, 0, _PRONOUNS) and len(words) > 1
    if not end and not (is_pronoun and (words[1] in _VERBS or words[1].endswith("ly"))):
        return None
    is_far = before is not None and (words[0] == "which" or clause.start > _MAX_REACH)
    concludes = clause.lead in _CONCLUSIONS
    is_other = before is not None and (_has(before.words, _OTHERS) or _has_subject(before))
    is_idle = any(pair in _EASY_TO for pair in pairwise(words))
    if is_far or is_idle or (is_other and not concludes):
        return None
    return _judge_predicate(words[end or 1 :], True)


def _has_subject(before: Clause) -> bool:
    """Whether a clause of the same sentence is about another thing than the answer."""
    words = _strip(before.words, _BEFORE_SUBJECT | _TURNS)
    is_ours = _is_at(words, 0, _PRONOUNS) or _find_named(words) is not None
    return before.mark not in ".!?\n" and bool(words) and not is_ours


def _find_named(words: _Words) -> int | None:
    """Find where a subject ends that names the answer: `the answer above`; None without one."""
    place = next((n for n in range(1, min(4, len(words))) if words[n] in _ANSWERS), 0)
    if not place or words[0] not in _DETERMINERS or "of" in words[:place]:
        return None
    end = len(words) - len(_strip(words[place:], _ANSWERS))
    has_above = _has(words[:end], _ABOVE)
    is_line = _is_at(words, place, _VAGUE) and words[0] != "my" and not has_above
    is_value = words[end : end + 1] == ("is",) and words[end + 1 :] in _VALUES_ALONE
    if words[end : end + 1] == ("of",) or is_line or words[place - 1] in _OTHERS:
        return None
    return None if is_value and not has_above else end


def _find_person(words: _Words) -> int:
    """Find where a subject ends that is a person: `that student`; 0 without one."""
    return 2 if _is_at(words, 0, _DETERMINERS) and _is_at(words, 1, _PERSONS) else 0


def _judge_predicate(words: _Words, is_vague: bool = False) -> Stance | None:
    """Judge what is said of the answer; a vague subject may stand for another thing."""
    near = words[:_NEAR]
    is_failure = _has(near, _FAILS) or any(pair in _RULED_OUT for pair in pairwise(near))
    if is_failure:
        return "confirmed" if _has(near, _NOT) else "denied"
    if not _has(near, _NOT):
        return "confirmed" if _has(near, _STANDS) else None
    is_lack = "no" in near and words[:2] != ("is", "no")
    if is_lack or _has(words, _HARMLESS) or (is_vague and _has(words, _WOULD)):
        return None
    suits = _has(words, _SUITS) or words[:2] == ("is", "no") or _is_at(words, 2, _ARTICLES)
    return "denied" if suits or not is_vague else None


def _judge_remark(clause: Clause, before: Clause | None) -> Stance | None:
    """Judge a few words without a subject: `Wrong.`, `Correct.`, `Wait`."""
    words = clause.words
    is_start = before is None or before.mark in ".!\n" or before.words[0] in _TURNS
    if len(words) <= 2 and words[0] in _FAILS and is_start and clause.mark in ".!:":
        return "denied"
    if len(words) <= 3 and words[0] in _STANDS:
        return "confirmed"
    return "turned" if words[0] in _TURNS else None
