"""Words around an answer: whether they cast doubt on it or deny it, and those that only lead to it
or follow it.

The words come in groups, and each reader picks the groups it uses. A group is a pattern of words
with bars between them, matched without regard to case. The regular expressions backtrack over a
bounded length only.
"""

import re

CHOICE = "or|maybe|perhaps|possibly|alternatively|versus|vs"
"""Another answer is offered too: `3 or 4`."""
TURN = (
    "wait|actually|sorry|correction|oops|I mean|I meant|scratch that|on second thought"
    "|rather(?! than)|instead(?! of)"
)
"""What was just said is taken back: `3; wait, 4`."""
DENIAL = "not|never|neither|nor"
FALSE = "wrong|incorrect"
UNSURE = (
    "probably|likely|might|(?-i:may)|could|cannot|if|whether|between|either|unless|except|unknown"
    "|unsure|unclear|think|guess|(?<!no )doubt(?= that| it| if| whether| the)"
)
"""The answer holds perhaps, or under a condition. May with a capital is a month."""
ROUGH = "about|approximately|approx|roughly|around|nearly|almost"
"""The number is not exact."""
BOUND = "than|at (?:the )?(?:very )?(?:least|most)|up to|exceed(?:s|ing)?"
"""The number is a limit."""
SUPPOSED = "suppose|supposing|assume|assuming|impossible|untrue|unlikely|anything but|far from"
"""The answer is only being considered, or ruled out."""
LEADING = "therefore|thus|hence|then|so|now|simply|just|indeed|clearly|finally|exactly|equal to"
"""Between a verb and the answer that it states: `is therefore 7`."""
REFERENCE = "gold|golden|reference"
"""The answer is somebody else's."""
EVASIVE = (
    "idea|clue|comment|answer|opinion|doubt|preference|guess|information|info|conclusion|decision"
    "|response|reply|verdict|judge?ment|notion|inkling|hint|certainty|matter|need|reason|evidence"
    "|thanks|thank you|worries|telling|way (?:to|of) (?:know|tell|say)(?:ing)?|one (?:knows|can)"
)
"""Before one of these words, `no` is not an answer: `no idea`."""
CONTRACTION = r"n['’]t\b"


def any_of(*groups: str) -> str:
    """Write a pattern for any word of the groups.

    >>> any_of(FALSE, "no")
    '\\\\b(?:wrong|incorrect|no)\\\\b'
    """
    return rf"\b(?:{'|'.join(groups)})\b"


_DOUBT = re.compile(
    any_of(DENIAL, FALSE, CHOICE, UNSURE, ROUGH, BOUND, SUPPOSED, TURN, "reference|but")
    + r"|\bgold(?:en)? (?:answer|label|standard|solution|reference|value|one|is)\b"
    + rf"|{CONTRACTION}|[?≈]|\\approx",
    re.IGNORECASE,
)


def is_doubtful(line: str) -> bool:
    """Whether a line of prose has any word that keeps it from stating an answer."""
    return _DOUBT.search(line) is not None


_POINTS_ON = re.compile(
    r"(?!(?:none|not?|neither)\b)[A-Za-z ,'*]{3,80}\b(?:follows|following|below)\b[^\n0-9\[{]*"
)


def points_on(line: str) -> bool:
    """Whether a line only points to what follows: `the parents are as follows.`"""
    return _POINTS_ON.fullmatch(line) is not None and not is_doubtful(line)


def names_nothing(line: str) -> bool:
    """Whether a line doubts what it says, or only points to what follows."""
    return is_doubtful(line) or _POINTS_ON.fullmatch(line) is not None


_DENIED_BEFORE = re.compile(
    rf"(?:(?:{CONTRACTION}|\b(?:not|never|cannot|neither|nor))"
    r"(?: (?:be|get|have|obtain|equal|equal to|possibly|really|simply|just|the answer))*"
    r"|\b(?:(?:greater|less|larger|smaller|more|fewer|higher|lower|bigger|other) than"
    r"|different from|far from|at (?:the )?(?:very )?(?:least|most)|up to|above|below"
    r"|(?:is|are|be|was|were) (?:well |just )?(?:over|under)|exceed(?:s|ing)?"
    r"|between(?:[^,;.\n]{1,40}\band)?|(?:anything|everything|nothing|all) but|except(?: for)?"
    r"|(?:could|might|may|unlikely to|hardly) (?:be|say|answer)"
    r"|(?<!\bor )(?:maybe|perhaps|possibly|probably)"
    r"|(?:wrong|incorrect|rejected|gold|golden|reference) answer(?: is| was)?"
    r"|(?:wrong|incorrect|rejected|discarded|ruled out|guess|hypothetically)(?=[\s*]*:)))"
    r"(?:[\s:*$`\"'(\[{}\\]|boxed|text(?:bf)?|<answer>)*(?:[A-Za-z]\w{0,3}\s?=[\s$*(\\]*)?\Z",
    re.IGNORECASE,
)
"""Before an answer it says that the answer is another, or may be."""
_DENIED_ABOVE = re.compile(
    rf"(?:(?:{CONTRACTION}|(?<!\bdoes )(?<!\bdo )\b(?:not|never|cannot))"
    r"(?: (?:be|equal|the answer))*|\bthan"
    r"|\bat (?:least|most)|\b(?:could|might|may) be|\b(?:wrong|incorrect) answer(?: is)?)"
    r"[ \t:*]*\n[\s*$`#\[\\]*\Z",
    re.IGNORECASE,
)
"""The same for a sentence that continues on the next line: `The answer is not:`."""
_SIGNS = re.compile(r"[\s*$`#\[\\]*")
"""What may separate such a sentence from the answer on its line."""
_SUPPOSED = re.compile(
    r"(?:\A|[.;:!?\n])[\s*]*(?:(?:so|but|now|and),? )?(?:"
    r"(?:(?:if(?! (?:we|you|I)\b)|suppose|supposing|assume|assuming|let(?! us)(?!['’]s)|unless"
    r"|whether|say)\b"
    r"|(?:is|are|was|were|could|can|would) (?:it|this|that|they|the answer)\b"
    r"|[^,;.\n]{0,60}?(?:\b(?:(?:impossible|untrue|unlikely) (?:that|for)|false that|no way"
    r"|whether (?:it|this|that|they|the answer)"
    rf"|mistake is|wrong answer is)\b|(?:{CONTRACTION}|\b(?:not|never))(?: at all)? "
    r"(?:true|sure|certain|clear|think|believe|say|claim|the case)\b"
    r"|(?:I|we) (?:at )?(?:first|initially|originally|wrongly)(?: had)? "
    r"(?:suspect|thought|guess|assum|believ)(?:ed)?\b(?![^\n]*\bbut\b)"
    r"|(?<!no )(?<!without )\b(?:doubt|deny|unsure|uncertain|wonder)\b))"
    r"(?:(?!\bthen\b)[^,;.\n])*"
    r"|if\b[^,;.\n]{0,60}(?:[<>≤≥≠]|\\(?:[lg](?:eq?|t)|neq?)(?![a-z])"
    r"|\b(?:positive|negative|even|odd|nonzero)\b)[^;.\n]*)\Z",
    re.IGNORECASE,
)
"""In the sentence before an answer it says that what follows is supposed, doubted or asked."""
_ASKED_BEFORE = re.compile(
    r"(?:\A|[.;:!?])[\s*]*(?:(?:so|but|now|and),? )?(?:would|could|can|should|shall|is|are|was|were"
    r"|does|do|did|will|might|may|must|has|have|what (?:about|if)|how about)\b[^.;!?]*\Z",
    re.IGNORECASE,
)
_ASKED_AFTER = re.compile(
    r"[^.;!?\n]{0,120}\?(?!\s*(?:yes|indeed|right|correct|sure|certainly|it (?:is|does|would))\b)",
    re.IGNORECASE,
)
"""The sentence around an answer asks about it, and no yes follows: `Would 4 be allowed?`"""
_DENIED_AFTER = re.compile(
    r"(?:[\s*$`\"')\]}.,;\\]|</answer>){0,8}(?:\?"
    r"|(?:or|and) (?:more|less|fewer|greater|higher|lower|above|below|over|under|up)\b"
    r"|at (?:most|least)\b|(?:unless|if|otherwise|(?:just )?kidding|never mind"
    r"|(?:scratch|strike|forget) (?:that|this|it))\b"
    r"|(?:(?:no|wait|oops|sorry|hmm|but)[,.:;!]? )?"
    r"(?:that|this|it|(?:the|my) (?:line|answer|result|list)(?: above)?|the above)"
    r"(?: one| answer| line)? (?:is|was|seems|looks)"
    r" (?:also |clearly |obviously |certainly |just )?(?:wrong|incorrect|false|mistaken|impossible"
    r"|invalid|an? (?:mistake|error|trap)"
    r"|too (?:large|small|big|high|low|long|short|many|few)(?! (?:for (?:me|us)|to)\b)"
    r"|not (?:right|correct|true|it|the answer))\b(?! (?:to|in general)\b)"
    r"|(?:is|are|was|were|would be|seems|looks)"
    r"(?: (?:also|clearly|obviously|certainly|surely|just))?"
    r"(?:(?: not|n['’]t)(?! [-$\\0-9])| (?:never|wrong|incorrect|false|mistaken|impossible"
    r"|invalid|no)\b)"
    r"|(?:ca|could|would|does|do|did|wo|should)n['’]t\b"
    r"|(?:can|could|would|does|do|did|will|should)(?:not| not)\b"
    r"|(?:fails?|violates|breaks|contradicts|misses|overcounts)\b"
    r"|(?:is|was|would(?: have)? be(?:en)?)(?: only| just| merely)?"
    r" what (?:one|you|many|most|people|some)\b"
    r"|\((?:wrong|incorrect|false|not (?:right|correct|the answer|sure))\b"
    r"|(?:(?:or|and) )?(?:maybe|perhaps|possibly|probably)\b"
    r"|or (?:something|anything|another|some other|else|not)\b)",
    re.IGNORECASE,
)
"""Behind an answer it takes the answer back, makes it a bound or sets a condition."""
SENTENCE_WINDOW = 240
_WORDS_WINDOW = 80


def is_denied(text: str, start: int, end: int) -> bool:
    """Whether the sentence around an answer, end exclusive, denies it.

    It may deny the answer, doubt it, only suppose it, or give it as a bound.

    >>> [is_denied(text, text.find("4"), text.find("4") + 1)
    ...  for text in ("It is 4.", "It is not 4.", "If it were 4, no.", "At least 4.", "4, not 5")]
    [False, True, True, True, False]
    """
    window = max(start - SENTENCE_WINDOW, 0)
    before = text[max(text.rfind("\n", 0, start) + 1, window) : start]
    return (
        _DENIED_BEFORE.search(before, max(len(before) - _WORDS_WINDOW, 0)) is not None
        or _SUPPOSED.search(before) is not None
        or _DENIED_AFTER.match(text, end) is not None
        or (_ASKED_AFTER.match(text, end) and _ASKED_BEFORE.search(before)) is not None
        or (
            _SIGNS.fullmatch(before) is not None
            and _DENIED_ABOVE.search(text, max(start - _WORDS_WINDOW, 0), start) is not None
        )
    )


_CORRECTS = re.compile(
    any_of(
        TURN,
        FALSE,
        r"mistakes?|mistaken|errors?|typo|recheck\w*|re-check\w*|check\w*|verif\w+|fix\w*|attempt"
        r"|correct(?:ed|ing|ion|s)|revis\w+|improv\w+|updat\w+|better|draft|retry|again|recount\w*"
        r"|reconsider\w*|reflection|overlooked|forgot|missed|hmm+|disregard|ignore|initially"
        r"|fails?|failed|invalid|impossible|violates?"
        r"|no(?=[,:;.!—–-])|not (?:right|it|quite|the best|optimal|possible|valid)",
    )
    + rf"|{CONTRACTION}|更正|不对",
    re.IGNORECASE,
)
"""Between two answers it takes back the first."""
_OFFERS = re.compile(
    any_of(
        "or|either|alternatively|another|others?|also|versions?|variants?|readings?"
        "|interpretations?|strict(?:ly)?|loose(?:ly)?|options?|candidates?|possibly"
        "|perhaps|maybe|both|reviewers?|experts?|if|otherwise|weekdays?|weekends?|someone"
    )
    + "|或",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(
    any_of(
        r"no|not|but|however|so|thus|hence|therefore|then|now|next|finally|final|conclu\w+|looking"
        r"|answer is|total|sum|altogether|gives?|giving|yields?|implies|means|which|because|since"
        r"|step|where|substitut\w+|simplif\w+|equivalent(?:ly)?|i\.e|that is|same|expand\w*"
        r"|decimals?|part|case"
    )
    + r"|[=≈→⇒]|\\(?:implies|Rightarrow|to|approx)\b|所以|因此",
    re.IGNORECASE,
)
"""Between two answers it leads from the first to the second."""
_NEXT_PART = re.compile(
    r"\b(?:layer|round|iteration|pass|stage|phase|sweep)\b|\bin the end\b|\bin total\b"
    r"|\b(?:second|third|fourth|fifth|last|after(?:wards)?|end(?:s|ing)?) (?:up|result|state)\b",
    re.IGNORECASE,
)
"""Between two blocks it says that the second follows from the first: `After layer 2:`."""
_STATEMENT = re.compile(r"\s*\n[A-Z][a-z][^\n:?]*\.\s*\n")
_WORD = re.compile(r"[^\W\d_]+")
_LATEX = re.compile(r"\\[A-Za-z]+|</?answer>")
_MAX_GAP = 240
_MAX_GAP_WORDS = 12


def leaves_open(gap: str, *, are_marked: bool = False) -> bool:
    r"""Whether what stands between two answers leaves it open which one counts.

    Where the answers are marked with `####` a sentence in between leads from one to the other.

    >>> [leaves_open(gap) for gap in ("\n", " or ", "\nLoose reading: ", " Wait, no: ", " so x = ")]
    [True, True, True, False, False]
    """
    if len(gap) > _MAX_GAP:
        return False
    num_words = len(_WORD.findall(_LATEX.sub(" ", gap)))
    if num_words > 2 * _MAX_GAP_WORDS or _CORRECTS.search(gap):
        return False
    if _OFFERS.search(gap):
        return True
    if _NEXT_PART.search(gap):
        return False
    if are_marked and _STATEMENT.fullmatch(gap) and not is_doubtful(gap):
        return False
    return num_words <= _MAX_GAP_WORDS and not _CONCLUDES.search(gap)


_CHOOSES_LAST = re.compile(
    r"\b(?:go|going|side|sides|stick|settle|stay|choose|pick|prefer|submit|take|trust|keep)\b"
    r"[^\n.]{0,30}\b(?:second|latter|last|final)\b"
    r"|\bthe (?:second|latter|last)(?: one)? (?:is|counts)"
    r"|\n\W*(?:therefore|thus|hence|so|finally|in conclusion)\b",
    re.IGNORECASE,
)


def decides_for_last(rest: str) -> bool:
    """Whether what follows several answers decides for the last of them, or concludes."""
    return _CHOOSES_LAST.search(rest[:_MAX_GAP]) is not None


_LEAD = re.compile(
    r"[\s*]*(?:"
    r"(?:(?:my |the )?(?:final |correct )?(?:answer|ans|result|output|solution|value|conclusion)"
    r"|final|A)[\s*]{0,3}(?::|：|=>|=|→|->|–|—|-(?=\s))"
    r"|(?:so|thus|therefore|hence|finally|overall|all in all|to (?:sum up|conclude)"
    r"|in (?:short|total|conclusion|summary))[\s*]{0,3}(?:[,:]|(?=\s))"
    r"|(?:I|we) (?:get|obtain|have)|(?:this|that) (?:gives|yields|makes)|it['’]s(?=\s)"
    r")[\s:*]*(?=\S)",
    re.IGNORECASE,
)


def strip_lead(line: str) -> str:
    """Cut off the words that only introduce an answer; a line that doubts stays as it is.

    >>> strip_lead("So we get **7**."), strip_lead("Result = 7"), strip_lead("So 7 or 8")
    ('7**.', '7', 'So 7 or 8')
    """
    bare = line
    for _ in range(2):
        lead = _LEAD.match(bare)
        bare = bare[lead.end() :] if lead else bare
    return line if is_doubtful(line) else bare


_REMARK = re.compile(
    r"[\s*_]*(?:[-*_—]{3,}|∎|■|✓|✅|\$?\\(?:(?:black)?square|Box|qed)\$?|q\.?e\.?d\.?|done"
    r"|(?:I )?hope (?:this|that|it) helps[^\n]*|(?:please )?let me know[^\n]*|feel free[^\n]*"
    r"|you(?:['’]re| are) welcome\b[^\n]*|gern geschehen[^\n]*|happy to [^\n]*"
    r"|(?:have fun|good luck|tell me if|thanks|thank you|enjoy)\b[^\n]*"
    r"|(?:sanity check|verification|check)\b[:—–-][^\n]*"
    r"|(?:I|we)(?: have|['’]ve)?(?: also| now)? (?:double-)?(?:verified|checked)\b[^\n]*"
    r"|(?:this|that|it|everything)(?: all)? (?:checks out|works(?: out)?|fits|holds)\b[^\n]*"
    r"|<\|[a-z_]{1,20}\|>|</s>)[\s.!*_]*",
    re.IGNORECASE,
)
_HELP = re.compile(
    r"[\s*_]*(?:(?:is there anything else|would you like (?:me )?to|do you want (?:me )?to)\b"
    r"[^\n?\[]*\?|let me know if you(?: want| need| would like|['’]d like)\b[^\n?\[]*)[\s.!*_]*",
    re.IGNORECASE,
)
"""A sentence after an answer that only offers help."""
_NUMBER_OR_ASKS = re.compile("[0-9?]")
_SENTENCE_START = re.compile(r"(?:(?<=[.!]) |\n|(?=[∎■✓✅<]))[\s*_]*(?=\S)")
_NO_REMARK = re.compile(
    rf"[0-9?]|{any_of(TURN, FALSE, DENIAL, 'no|but|mistake|error')}|{CONTRACTION}", re.IGNORECASE
)
"""A sentence with one of these, after an answer, is more than a remark."""
_MAX_REMARK = 300
_ASIDE = re.compile(r"(?<=[^:\s])[ \t*_]*\n\s*[*_]{0,2}\((\w[^()\[\]\n\"'`=]*)\)[*_]{0,2}\.?\Z")
"""A last line all in brackets."""
_NO_ASIDE = re.compile(
    any_of(TURN, FALSE, CHOICE, UNSURE, "answer|result|should|must|mistake|error|no(?=[,:;])")
    + r"|\?",
    re.IGNORECASE,
)
"""A line in brackets with one of these is more than a remark."""


def cut_remarks(text: str) -> str:
    """Cut off what is said after an answer and neither changes nor doubts it.

    >>> cut_remarks("It is 7. I checked this twice.\\n\\nHope this helps!")
    'It is 7.'
    """
    text = text.rstrip()
    aside = _ASIDE.search(text, max(len(text) - _MAX_REMARK, 0))
    if aside and len(_WORD.findall(aside[1])) >= 2 and not _NO_ASIDE.search(aside[1]):
        text = text[: aside.start()]
    for _ in range(3):
        window = max(len(text) - _MAX_REMARK, 0)
        for start in _SENTENCE_START.finditer(text, window):
            remark = text[start.end() :]
            if _is_cut(remark):
                text = text[: start.start()].rstrip()
                break
        else:
            break
    return text


def _is_cut(remark: str) -> bool:
    if _HELP.fullmatch(remark):
        remark = _NUMBER_OR_ASKS.sub("", remark)
    elif not _REMARK.fullmatch(remark):
        return False
    return not _NO_REMARK.search(remark)
