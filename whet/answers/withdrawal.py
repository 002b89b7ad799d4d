"""Sentences that disown an answer: those that lead to it and those after it.

Before an answer it may be denied, given as someone else's or offered for choice. After it, it may
be called wrong, taken back or left to the reader. The rules look for what a sentence is built of:
a word of denial with the answer, or a word that stands for it, as its object. `doubt` has the words
right beside an answer. The regular expressions backtrack over a bounded length only.
"""

import re
from collections.abc import Callable

from whet.answers.clauses import split_clauses, to_phrases, to_stems
from whet.answers.doubt import is_doubtful
from whet.answers.stances import CUES, PERSONS, STEMS, judge

REMARK_WINDOW = 480
"""What follows an answer is read this far."""
_MAX_LEAD = 240
_MAX_REST = 200
"""A replacement up to this long must not be in doubt itself."""


def _with_stops(words: str) -> frozenset[str]:
    """Make a set of words with and without the sign that may follow one."""
    return frozenset(f"{word}{stop}" for word in words.split() for stop in ("", *".,:;!?)"))


_CONTRACTED = "ai are ca could did do does had has have is must need should was were wo would"
_NEGATIONS = _with_stops(
    " ".join(f"{verb}n{mark}t" for verb in _CONTRACTED.split() for mark in "'’")
    + " not never no cannot wrong incorrect false untrue mistake mistaken error void invalid"
    " nonsense contradiction"
)
DISOWNING = _NEGATIONS | _with_stops(
    "but except excluding other tempting premature sample example illustration template told "
    "heard rumor rumour allegedly supposedly somebody someone pretend jokingly rejected "
    "discarded below following follows next nobody who whoever anyone opposite contrary "
    "negation according refuse avoid answers answered claim claims claimed say says said wrote "
    "writes think thinks thought believe believes believed guesses guessed suggest suggests "
    "suggested replies replied argue argues argued insist insists insisted tells submit "
    "submits submitted propose proposes proposed maintain maintains maintained whichever pick "
    "choose select your these those them ruled excluded dismissed eliminated != might may could"
    " would often tempted earlier initially originally formerly yesterday rather unless lest nor"
    " reject abandon abandoned dismiss debunk debunked versus without refute opposed instead trap"
    " decoy dummy placeholder demo joke kidding lie random todo decorative filler fake bogus"
)
"""Without one of these a lead disowns nothing: a check that costs little."""
RETREATING = _NEGATIONS | _with_stops(
    " ".join(CUES) + " mind marked trusted believed relied accepted submitted guessing leave pick"
    " crossed decide choose alternatively equally any some one either well whichever"
)
"""A sentence after an answer that has none of these takes nothing back."""
OF = (" of", " of the", " in", " from", " among")

_THING = (
    r"(?:above|line|list|answer|result|box|tag|one|value|solution|expression|path|route|order|grid"
    r"|table|block|output|choice|claim|reply|attempt|guess|conclusion|assignment|letter|option)"
)
_PERSON = rf"(?:{'|'.join(PERSONS.split())})s?"
_WITHDRAWN = re.compile(r"\bchanged my mind\b|以上(?:答案)?(?:是)?(?:错|不对)|(?:错误|不对|不正确)")
"""Behind an answer it takes the answer back, whatever the clause around it is about."""
_END = r"(?=\W*(?:[.!;\n]|\Z)|,| (?:and|but|either|here|myself|so|that works|though|yet)\b)"
_LEFT_OPEN = re.compile(
    r"\b(?:(?:I|we)(?: \w+){0,2} (?:have|give|gave|offer|submit|claim|see|got)(?: \w+){0,2}"
    r" (?:no (?:(?!other )\w+ )?(?:answer|solution|idea|clue|opinion|reply)"
    r"|nothing (?:better|else|to offer))"
    r"|(?:I|we) (?:could|can|did|do)(?: not|n['’]t|not) (?:find|have|get|give|offer)"
    rf" (?:one|any|it|(?:an? |the |any )?(?:\w+ )?(?<!other )(?:answer|solution)){_END}"
    r"|I (?:do|did|could|can|really)(?: not|n['’]t|not)(?: \w+)? (?:know|decide|tell)"
    rf"(?: (?:which|what|whether|if|who|how|the (?:answer|solution)|it)\b|{_END})"
    r"|I(?:['’]m| am)(?: \w+)? guessing"
    r"|(?:could|might|may) (?:just )?as well be(?! \w+(?:ed|en)\b)"
    r"|(?:could|might|may) be (?:equally|just as|as) (?:good|right|likely|plausible|valid)"
    r"|leave (?:it|this|that|the (?:answer|choice|decision|matter|pick|rest))(?: up)? to"
    r" (?:you|the \w+|others)(?! (?:to (?:check|confirm|prove|show|verify|work)|as an exercise))"
    r"|there is no (?:final )?answer(?= ?(?:[.!]|\Z))|take your pick"
    r"|(?:one|any|some|either|all) of (?:these|the above) (?:is|are|must be|should be|will be)"
    r"|(?:either|any)(?: one)? (?:could|may|might|can) be (?:the|an?|my|correct|right)"
    r"|whichever(?: one)? (?:you|(?:the )?\w+ (?:likes?|accepts?|prefers?|wants?)"
    r"|is (?:right|correct|true|accepted|expected|wanted|preferred|better|best)))\b",
    re.IGNORECASE,
)
"""Says that there is no answer, or leaves open which one holds."""
_GOES_ON = re.compile(
    r":|\n\s*\S|[0-9\[]|\b(?:answer|it|result|value|solution) (?:is|should|must|returns|gives)\b",
    re.IGNORECASE,
)
"""Behind a withdrawal it goes on, perhaps with another answer."""


def find_replacement(tail: str, *, is_predicate: bool = False, answer: str = "") -> int | None:
    """Find where what follows an answer takes it back and may give another; None where it stands.

    The end of the tail says that no other is given. `is_predicate` says that the answer is the
    subject of what follows it: `[A, B] fails clue 3`.

    >>> find_replacement(". I checked it."), find_replacement(" No, that is wrong.") == 19
    (None, True)
    >>> tail = " Oops, wrong. It is blue."
    >>> tail[find_replacement(tail):]
    '. It is blue.'
    """
    tail = tail[:REMARK_WINDOW]
    if _LEFT_OPEN.search(tail):
        return len(tail)
    value = plain if (plain := _to_plain(answer)).isdecimal() else ""
    ends = _find_denials(tail, is_predicate=is_predicate, value=value)
    if not ends:
        return None
    rest = tail[ends[0] :]
    is_short = len(rest) <= _MAX_REST
    if not _GOES_ON.search(tail, ends[-1]) or (is_short and is_doubtful(rest)):
        return len(tail)
    return ends[0]


def _find_denials(tail: str, *, is_predicate: bool = False, value: str = "") -> list[int]:
    """List where the clauses end that take back an answer before them.

    A bare `no` takes nothing back where the next clause confirms the answer.
    """
    ends = [match.end() for match in _WITHDRAWN.finditer(tail)]
    clauses = split_clauses(tail)
    for before, clause, after in zip([None, *clauses], clauses, [*clauses[1:], None], strict=False):
        leads_on = is_predicate and before is None
        if clause.mark == "?" or (not leads_on and STEMS.isdisjoint(clause.words)):
            continue
        stance = judge(clause, before, is_predicate=leads_on, value=value)
        if stance == "replaced":
            ends.append(clause.start)
        elif stance == "denied":
            is_bare = len(clause.words) == 1
            if not (is_bare and after is not None and judge(after, clause) == "confirmed"):
                ends.append(clause.end)
    return sorted(ends)


def takes_back_all(line: str, *, is_alone: bool) -> bool:
    """Whether a last line says that there is no answer, or takes back what is above it.

    One that is alone has nothing to take back. A line that goes on may give another answer.
    """
    ends = [match.end() for match in _LEFT_OPEN.finditer(line)]
    if not is_alone and _PARTLY.match(line) and _LEFT_OUT.search(line):
        return True
    if not is_alone:
        ends += _find_denials(line)
    return bool(ends) and (not _GOES_ON.search(line, max(ends)) or is_doubtful(line[max(ends) :]))


_NUMBER_WORDS = (
    *("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"),
    *("eleven", "twelve"),
)
_VALUE = (
    r"(?P<value>[*$`]{0,3}(?:-?[0-9][0-9.,/]*|\[[^\[\]\n]*\]"
    rf"|{'|'.join(_NUMBER_WORDS)}))[*$`]{{0,3}}(?: instead)?(?:[.!]?\s*\Z|[.!]\s|\n)"
)
"""A number or a list that ends its sentence."""
_RESULT = r"(?: \w+)? (?:answer|result|count|total|value|solution|list|number)"
_BECOMES = (
    r"(?:is|becomes|should(?: \w+)? be|must be|has to be)"
    r"(?: (?:really|actually|now|instead|rather))?[\s:*]{1,4}"
)
_OTHER = re.compile(
    rf"\b(?:(?:my|our){_RESULT} {_BECOMES}|(?:please|instead|rather)"
    rf" (?:take|use|read|accept|say|go with|answer|give|write) |or rather:? "
    rf"|(?:make|call) (?:that|it|this) |(?:change|correct) (?:that|it|this|(?:my|the) answer) to "
    rf"){_VALUE}",
    re.IGNORECASE,
)
_OTHER_AT_END = re.compile(rf"\bthe(?: \w+)? answer {_BECOMES}{_VALUE}\Z", re.IGNORECASE)
"""Behind an answer it gives another."""
_TURNED = re.compile(
    r"\b(?:wait|hold on|correction|oops|missed|mixed up|overlooked|forgot|skipped|on reflection"
    r"|on second thoughts?|was my first)\b",
    re.IGNORECASE,
)
_OTHER_TURNED = re.compile(
    rf"(?:\b(?:the|it|that){_RESULT} {_BECOMES}|\bit becomes |[.:\n] ?(?=[*`]*\[)){_VALUE}\Z",
    re.IGNORECASE,
)
"""After an answer and a turn, at the end, this gives another answer."""
_PARTLY = re.compile(
    r"\A\W{0,12}(?:correction|erratum|edit|on second thoughts?"
    r"|(?:hmm+|wait|no|oops)\W{1,3}(?:replace|remove|drop|swap|leave out))\b"
    r"(?![^.\n]{0,80}\b(?:right|correct|holds?|confirm\w*|stands?|sure|confident|agree|fine"
    r"|still|works?|same|keep|stick|none|needed"
    r"|necessary)\b)",
    re.IGNORECASE,
)
"""Right after an answer, this takes back a part of it."""
_LEFT_OUT = re.compile(
    r"\b(?:should|must|do|does|can|could)(?: not|n['’]t|not)\b"
    r"|\b(?:leave|drop|remove|delete|superfluous)\b",
    re.IGNORECASE,
)
_SPACES = re.compile(r"[\s*$`\\{}]|\b(?:boxed|text)\b")
_PLAIN = re.compile(r"-?[0-9][0-9.,/]*|\[.*\]")


def find_other_answer(tail: str, answer: str) -> int | None:
    """Find where what follows a number or list gives another; None where it does not.

    The end of the tail says that a part is taken back and no other is given.

    >>> find_other_answer(" So my answer is 4.", "4"), find_other_answer(" So my answer is 3.", "4")
    (None, 17)
    """
    tail = tail[:REMARK_WINDOW]
    plain = _to_plain(answer)
    if _PLAIN.fullmatch(plain):
        matches = [*_OTHER.finditer(tail), *_OTHER_AT_END.finditer(tail)]
        if turned := _TURNED.search(tail):
            matches += _OTHER_TURNED.finditer(tail, turned.end())
        values = {match.start("value"): _to_plain(match["value"]) for match in matches}
        alike = [start for start, value in values.items() if (value[0] == "[") == (plain[0] == "[")]
        if alike and values[max(alike)] != plain:
            return max(alike)
    partly = _PARTLY.match(tail)
    if partly is None:
        return None
    return partly.end() if _GOES_ON.search(tail, partly.end()) else len(tail)


def _to_plain(value: str) -> str:
    """Write a value without markup, and a small number in digits."""
    plain = _SPACES.sub("", value).lower().rstrip(".,")
    return str(_NUMBER_WORDS.index(plain)) if plain in _NUMBER_WORDS else plain


_RESTATES = re.compile(
    r"\n[ \t>✅•-]*(?P<heading>[#*_]+[ \t]*)?(?:(?:so|thus|hence|therefore),? )?"
    r"(?:(?:the|my|our) )?(?:(?:final|correct(?:ed)?|revised|updated|new) )*"
    r"(?:answer|答案)(?: is)?[ \t*_]*(?:[:：=→]|=>|(?(heading)\n|(?!)))[\s*_]*(?P<answer>\S)",
    re.IGNORECASE,
)
_POINTS_BACK = re.compile(
    r"(?:\b(?:as|see|the|is|it|this|my|answer|in|tags?|box|list|table|grid|order|given|stated|shown"
    r"|above|same|unchanged|stands|remains|confirmed|verified|checked)\b[ ,.!*]*)+",
    re.IGNORECASE,
)


def find_restated(text: str, answer: str, end: int, same: Callable[[str, str], bool]) -> int | None:
    r"""Find the last line behind a marked answer that gives another: `Final answer: 4`.

    >>> text = "<answer>3</answer>\nHmm.\n**Final answer:** 4"
    >>> text[find_restated(text, "3", 18, lambda one, other: one == other) :]
    '\n**Final answer:** 4'
    """
    matches = list(_RESTATES.finditer(text, end))
    if not matches:
        return None
    last = matches[-1]
    restated = text[last.start("answer") :].strip()
    line = restated.partition("\n")[0]
    if _POINTS_BACK.fullmatch(line):
        return None
    is_same = any(same(answer, one) or same(*map(_bare, (answer, one))) for one in (restated, line))
    return None if is_same else last.start()


def _bare(span: str) -> str:
    return span.strip(" \t\n*.[]()")


_CLAIMS = (
    r"(?:answered|claims?|claimed|says?|said|wrote|writes|thinks?|thought|believes?"
    r"|believed|guesses|guessed|suggests?|suggested|replies|replied|argues?|argued|insists?"
    r"|insisted|told me|tells me|submits?|submitted|proposes?|proposed|maintains?|maintained)"
)
_SAYS = rf"(?:answers?|{_CLAIMS})"
_SOURCE = (
    "table|text|passage|problem|question|clue|statement|rule|data|row|column|chart|formula|theorem"
    "|equation|definition|code|program|function|output|task|prompt|puzzle|sentence|line"
)
"""What these say is not a person's answer."""
_OPINION = (
    r"(?:answer|say|claim|believe|think|accept|conclude|trust|endorse|submit|agree|recommend|mean)"
)
_SAID = re.compile(
    rf"\b(?!(?:i|we|you|it|this|that|which|and|{_SOURCE})\b)\w+ {_CLAIMS}(?: that)?:"
    r"[^\n.!?。]{0,80}\Z"
)
"""Someone says what follows."""
_DISOWNED = re.compile(
    r"(?:\b(?:(?:anything|everything|all) but|(?:every(?:one|body|thing)|all|any(?:one|thing))"
    r"(?: \w+){0,3} (?:except|excluding|other than))\b"
    r"|\b(?:mistake|wrong|error|incorrect|false|tempting|premature) to"
    r" (?:conclude|say|answer|write|claim|think|state|give|submit)\b"
    r"|\b(?:false|untrue|wrong|incorrect|not (?:true|right|correct|the case)) that\b"
    r"|\b(?:sample|example|illustration|template) of (?:the |an? )?(?:\S+ )?"
    r"(?:format|layout|reply|answer|response|output)\b|\bcontradiction\b"
    r"|\b(?:told|heard|rumou?r|allegedly|supposedly|somebody|someone|pretend|jokingly)\b"
    rf"|\b(?:wrong|incorrect|rejected|discarded|false) {_THING}s?\b"
    rf"|\b(?:nobody|no one) (?:should|would|can|could|will)(?: \w+)? (?:(?:{_OPINION}|state)\b"
    r"|(?:choose|pick|take|trust|give|write)(?: that\b|(?: (?:the|this|that|any) \w+)?\W*\Z))"
    r"|\bnot (?:my|the|an?|our)(?: \w+)? (?:answer|solution|reply|result|conclusion)\b"
    r"|\b(?:following|follows|below|next)\b[^\n]{0,30}\b(?:is|are) (?:wrong|incorrect|false|not)\b"
    rf"|\b(?:whoever|any(?:one|body)|every(?:one|body)|those|people|{_PERSON}) (?:who|that)\b"
    r"[^\n]{0,60}\b(?:is|are|was|were) (?:\w+ )?(?:wrong|mistaken|incorrect|fooled)\b"
    rf"|(?:\A|\b(?:i|we|you|one|please|should|would|will)(?: \w+)? )(?:do not|don['’]t|never|not"
    rf"|cannot|can['’]t|wouldn['’]t|won['’]t|refuse to|avoid)(?: \w+)? {_OPINION}\b"
    r"|(?:do not|don['’]t|never) \w+ (?:this|that|these|it|the following|as follows)\b"
    rf"|\b(?:an?|some|one|another|my|the|that)(?: \w+)? {_PERSON}(?: \w+)? {_SAYS}\b"
    r"(?=[^\n]*(?::|\bthat\b|\banswer\b))"
    rf"|\baccording to (?:an?|some|my|the)(?: \w+)? {_PERSON}\b"
    r"|(?<![a-z。，,])(?:错误|不是|并非|不正确)(?![^\n]*而是))[^\n.!?。]{0,80}\Z"
    r"|\b(?:opposite|contrary|negation) (?:of|to)\W*\Z"
    r"|\bnot (?:to )?be (?:chosen|taken|given|used|submitted|trusted)\W*\Z"
    r"|\A\W*(?:wrong|incorrect|false|mistaken)(?: answer)? (?:would be|is|was)\W*\Z"
    r"|\b(?:i|we)(?: have)? (?:ruled out|excluded|rejected|discarded|dismissed|eliminated)\W*\Z"
    r"|\b(?:answer|result|output|solution|it|this)\W{0,4}(?:≠|\\neq?(?![a-z])|!=)\W*\Z"
    r"|\b(?:one|some|none|any|part|few|several|half|either|neither) of (?:the |these |those )?"
    r"(?:\w+ (?:of|in|from|among)\b)?[^\w:]*\Z",
)
"""Before an answer, in lower case, it says that the answer is another, or whose."""
_OFFERED = re.compile(
    r"\b(?:could|may|might|can) be (?:any|either|each)(?: one)? of\b[^\n.]*:\W*\Z"
    r"|\bwhichever(?: one)? (?:of|you|the|fits|suits|works|is (?:right|correct))\b"
    r"|\b(?:(?:pick|choose|take|select|use) (?:any|either|one|your)"
    r"|(?:one|either|any|some|none|neither)(?: \w+)? of (?:these|those|them|the (?:following|two)))"
    r"\b(?=[^\n]*(?::\W*\Z|\b(?:right|correct|true|answers?)\b))",
)
_PICKED = re.compile(
    r"(?:\b(?:i|we)(?:['’]ll| will| shall| now| here| just| simply)* (?:pick|choose|take|select|use"
    r"|give|report|submit|present|name|state|write|show|list|go with|settle (?:on|for))(?: just)? "
    r"|\bhere(?: is|['’]s) |\A\W*|, )one of (?:these|those|them)\W*\Z"
)
"""One of several is given by the one who answers, and not offered for choice."""
_BRACKETS = re.compile(r"\[[^\[\]\n]*\]")
_CLAUSE = re.compile(
    r"(?<!thing)(?<!\ball),? (?:but|so|thus|hence|therefore|then|rather|instead)\b"
    r"(?! (?:of|than)\b)|;|[.!?] "
)
"""What separates clauses, the last of which leads to the answer."""


_DENYING = to_stems("unless lest avoid nor reject abandon dismiss formerly except versus without")
_DENYING_PAIRS = to_phrases(
    "opposed to, instead of, far from, from being, short of, as if, not quite"
)
"""Words right before an answer that deny it."""
_LABELS = to_stems(
    "trap decoy dummy placeholder demo template sample joke kidding lie reject discard random todo"
    " filler fake"
)
_NO_LABEL = to_stems("not no never nor avoid past right correct once left than without")
_SPEAKS = to_stems("think thought say said guess expect believe answer assume had accept told")
_MAYBE = to_stems("might may could would often tempted forgiven")
_FORMERLY = to_stems("initially originally formerly earlier before first used yesterday")
_ANYONE = to_stems("one you many most some people person reader somebody someone anyone everyone")


def is_given_away(words: tuple[str, ...], *, is_label: bool) -> bool:
    """Whether a clause, or a label, that leads to an answer says that it is not the writer's."""
    if words[-1] in _DENYING or words[-2:] in _DENYING_PAIRS or words == ("rather", "than"):
        return True
    if is_label and not _LABELS.isdisjoint(words) and _NO_LABEL.isdisjoint(words):
        return True
    is_supposed = not _MAYBE.isdisjoint(words) and not _ANYONE.isdisjoint(words[:5])
    is_past = not _FORMERLY.isdisjoint(words) and "i" in words
    return not _SPEAKS.isdisjoint(words) and (is_supposed or is_past)


def is_disowned(lead: str) -> bool:
    """Whether the words that lead to an answer deny it, give it as another's or offer it.

    >>> [is_disowned(lead) for lead in ("So it is:", "A friend said:", "Pick one of these:")]
    [False, True, True]
    """
    plain = lead[-_MAX_LEAD:].lower()
    plain = _BRACKETS.sub("[]", plain) if "[" in plain else plain
    clause = _CLAUSE.split(plain)[-1].strip()
    is_plain = clause.isascii() and DISOWNING.isdisjoint(clause.split())
    if is_plain and not clause.rstrip(" [").endswith(OF):
        return False
    is_said = ":" in clause and _SAID.search(clause)
    is_offered = _OFFERED.search(clause) and not _PICKED.search(clause)
    if is_said or _DISOWNED.search(clause) or is_offered:
        return True
    clauses = split_clauses(clause)
    is_label = clause.endswith(":")
    return bool(clauses) and is_given_away(clauses[-1].words, is_label=is_label)
