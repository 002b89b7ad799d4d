r"""LiveBench: the reasoning, language and data analysis questions whose answers are exact.

answer words with commas, "yes, no, yes"; for `mapping` an object as JSON; otherwise the text
payload {"kind": "words" | "groups" | "mapping" | "text" | "order"}

words web_of_lies, house_traversal, zebra_puzzle, spatial, cta: the same words in the same order
groups connections: the same groups of four, in any order mapping tablejoin: the same pairs of
columns; null stands for a column without a partner text typos: the same text, ignoring spaces,
alone or among lines about it order plot_unscrambling: the same sentences in the same order, alone
or among such lines

An answer may stand in `<solution>` or `<PLOT_SUMMARY>` tags or, as the prompts ask, in bold.
tablereformat is not supported, because its script compares how pandas parses two tables.
"""

import re
from collections import Counter
from collections.abc import Callable, Sequence, Sized
from difflib import get_close_matches
from typing import Literal, TypeVar

from whet.answers.doubt import CHOICE, TURN, any_of, is_denied, is_doubtful, strip_lead
from whet.answers.final_answer import decided_text, find_tags, has_open_tag
from whet.answers.sentences import last_line
from whet.answers.withdrawal import REMARK_WINDOW, find_replacement, is_disowned
from whet.config import Config
from whet.tasks.answers import no_answer, read_final, to_score
from whet.tasks.base import FileTask, data_error
from whet.tasks.literals import parse_literal
from whet.types import Problem, Score

Kind = Literal["words", "groups", "mapping", "text", "order"]
Pairs = dict[str, str]
T = TypeVar("T")

GROUP = 4
MAX_WORDS = 64
_NUMBER_WORDS = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBERS = {word: str(number) for number, word in enumerate(_NUMBER_WORDS.split())}
_QUOTES = str.maketrans("‘’“”", "''\"\"")
_TAG = re.compile(r"<(/?)(?:solution|PLOT_SUMMARY)>")
_BOLD = re.compile(r"\*{2,3}([^*\n]{1,2000})\*{2,3}")
_WORD = re.compile(r"\w[\w '’./&!-]*")
_TOKEN = re.compile(r"\w+")
_MARGIN = re.compile(r"[ \t]*(?:>[ \t]*)*(?:(?:[0-9]{1,2}[.)]|[-*•])[ \t]+|```[a-z]*\s*\Z)?")
"""What may precede a line of a quotation, a list or a fenced block."""
_WRAPPED = re.compile(r"(\*\*|[\"“`])([^*\"“”`]+)(?:\*\*|[\"”`])\Z")
"""A text in bold or quotes, alone or at the end of a line."""
_LABELLED = re.compile(
    r"\A([\s*_#]*(?:here is |this is )?(?:the |my )?(?:corrected|fixed|mended|revised|edited|final"
    r"|output|result|answer|solution)(?: (?:text|version|sentences?|answer|story|order|output))?"
    r"[\s*_]*:[*_]*)[ \t]+(?=\S)",
    re.IGNORECASE,
)
"""A label that says that the rest of its line is the answer."""
_DRAFT = re.compile(
    r"[\s*_]*(?:(?:my|the|first|second|rough|initial) ?)*(?:draft|attempt|try)\b", re.I
)
"""The start of a draft: `My first attempt`."""
_REFUSED = re.compile(
    r"[.?!] (?:no\b|(?:that|this|it)(?:'s| is| was) (?:wrong|not right|incorrect|not correct))"
    r"[^.?!]*[.!]?\Z",
    re.IGNORECASE,
)
"""A last sentence that rejects a draft: `He paid first? No, he must order before.`"""
_SENTENCE_SIGN = " . "
_CHANGES = re.compile(
    any_of(TURN, CHOICE, "should|must|could|might|may|either|another|better|both|version"),
    re.IGNORECASE,
)
"""If one of these is below a text, it may change the text."""
_MAX_LINES = 200
_MAX_REMARKS = 2000
_NO_WORD = re.compile(
    r"\b(?:or|not|either|maybe|and|is|are|was|were|answer|therefore)\b", re.IGNORECASE
)
"""If a piece between commas has one of these, it is prose or more than one answer."""


class LiveBenchConfig(Config):
    name: Literal["livebench"] = "livebench"


class LiveBench(FileTask):
    """Grades words, groups, mappings and texts; its problems come from files."""

    name = "livebench"
    config: LiveBenchConfig

    def score(self, problem: Problem, text: str) -> Score:
        """Compare the answer as a whole.

        Parts: `correct`; `share`, the fraction of the answer that is right: words in their place,
        groups, the F1 of pairs, 0 or 1 for a text, the similarity of an order.
        """
        kind = problem.payload.get("kind")
        shown = _TAG.sub(r"<\1answer>", text)
        if kind in ("text", "order"):
            if "<PLOT_SUMMARY>" in text and "</PLOT_SUMMARY>" not in text:
                shown += "</answer>"  # the question asks for the opening tag only
            return _score_text(problem, shown)
        if kind == "mapping":
            return _score(problem, read_final(shown, read_pairs), read_pairs, compare_pairs)
        if kind not in ("words", "groups"):
            raise data_error(problem, "a kind: words, groups, mapping, text or order", kind)
        answer = _read_bold(shown) or read_final(shown, read_words)
        if answer and _offers_others(shown, answer[1]):
            answer = None
        compare = compare_words if kind == "words" else compare_groups
        return _score(problem, answer, read_words, compare)


def unsupported_reason(kind: Kind, answer: str) -> str | None:
    """Explain why an answer cannot be compared; None if it can."""
    if kind in ("text", "order"):
        parts: Sized | None = _list_sentences(answer, kind == "order")
    else:
        parts = read_pairs(answer) if kind == "mapping" else read_words(answer)
    return None if parts else f"the answer is not of the kind {kind!r}"


def read_words(span: str) -> list[str] | None:
    """Read words separated by commas; None if one of them is not a bare word.

    >>> read_words("Yes, no,Four"), read_words("yes or no"), read_words("")
    (['yes', 'no', '4'], None, None)
    """
    plain = span.translate(_QUOTES)
    words = [word.strip(" .*_\"'\n").casefold() for word in strip_lead(plain).split(",")]
    is_list = len(words) <= MAX_WORDS and all(
        _WORD.fullmatch(word) and not _NO_WORD.search(word) for word in words
    )
    return [_NUMBERS.get(word, word) for word in words] if is_list else None


def read_pairs(span: str) -> Pairs | None:
    """Read an object, JSON or Python, without the names that map to nothing.

    >>> read_pairs("{'a': 'b', 'c': None}")
    {'a': 'b'}
    """
    tree = parse_literal(span)
    if not isinstance(tree, dict):
        return None
    pairs = {key: value for key, value in tree.items() if value not in ("None", "null", "")}
    return {key: value for key, value in pairs.items() if isinstance(value, str)}


def compare_words(answer: list[str], gold: list[str]) -> float:
    num_right = sum(left == right for left, right in zip(answer, gold, strict=False))
    return num_right / max(len(gold), len(answer))


def compare_groups(answer: list[str], gold: list[str]) -> float:
    groups = [frozenset(gold[start : start + GROUP]) for start in range(0, len(gold), GROUP)]
    given = {frozenset(answer[start : start + GROUP]) for start in range(0, len(answer), GROUP)}
    if len(answer) != len(gold):
        return 0.0
    return sum(group in given for group in groups) / len(groups)


def compare_pairs(answer: Pairs, gold: Pairs) -> float:
    num_right = len(answer.items() & gold.items())
    return 2 * num_right / max(len(answer) + len(gold), 1)


def compare_order(answer: Sequence[str], gold: Sequence[str]) -> float:
    """Return 1 minus the edit distance between two orders of sentences, per reference sentence.

    A reference sentence is matched to the most similar sentence of the answer. An answer more than
    twice as long as the reference scores 0.
    """
    if sum(map(len, answer)) > 2 * sum(map(len, gold)) + 100:
        return 0.0
    order: list[int] = []
    for sentence in gold:
        nearest = [sentence] if sentence in answer else get_close_matches(sentence, answer, 1, 0.0)
        order += map(answer.index, nearest)
    row = list(range(len(order) + 1))
    for place in range(len(gold)):
        last, row = row, [place + 1]
        for column, other in enumerate(order):
            changed = last[column] + (other != place)
            row.append(min(changed, last[column + 1] + 1, row[column] + 1))
    return 1 - row[-1] / len(gold)


def _score(
    problem: Problem,
    answer: tuple[str, T] | None,
    read: Callable[[str], T | None],
    compare: Callable[[T, T], float],
) -> Score:
    gold = read(problem.answer or "")
    if not gold:
        raise data_error(problem, "an answer of its kind", problem.answer)
    if answer is None:
        return no_answer("share")
    fraction = compare(answer[1], gold)
    note = "agrees with the answer" if fraction == 1 else f"{fraction:.2f} of the answer is right"
    return to_score(fraction == 1, {"share": fraction}, answer[0], note)


def _score_text(problem: Problem, text: str) -> Score:
    is_order = problem.payload["kind"] == "order"
    gold = _list_sentences(problem.answer or "", is_order)
    if not gold:
        raise data_error(problem, "a text as its answer", problem.answer)
    visible = decided_text(text)
    if visible is None or not visible.strip() or has_open_tag(visible):
        return no_answer("share")
    tags = find_tags(visible)
    given = tags[-1].text if tags else visible.strip()
    lead, _, rest = given.partition("\n")
    is_introduced = lead.rstrip(" *").endswith(":") and not is_doubtful(lead)
    sentences = _list_sentences(rest if is_introduced else given, is_order)
    is_right = gold in (sentences, _list_sentences(given, is_order))
    is_right = is_right or _holds_only(given, gold, is_order)
    is_partly_right = is_order and not is_right
    fraction = compare_order(sentences, gold) if is_partly_right else float(is_right)
    note = "the text" if is_right else "another text"
    return to_score(is_right, {"share": fraction}, given, note)


def _holds_only(given: str, gold: Sequence[str], is_order: bool) -> bool:
    """Whether some lines are the reference and the others only comment on it.

    >>> _holds_only("The fixed text:\\n> A cat.\\nI changed one word.", ["A cat."], False)
    True
    """
    bare = [_MARGIN.sub("", line, count=1).strip() for line in given.splitlines()]
    if sum(_LABELLED.match(line) is not None for line in bare) > 1:
        return False
    split = (part for line in bare for part in _LABELLED.sub(r"\1\n", line).split("\n"))
    lines = [_WRAPPED.sub(r"\2", line.strip()) for line in split if line.strip()]
    wanted = _SENTENCE_SIGN.join(gold)
    if len(lines) > _MAX_LINES or len(given) > 2 * len(wanted) + _MAX_REMARKS:
        return False
    for start in range(len(lines)):
        key = ""
        for end in range(start + 1, len(lines) + 1):
            block = _list_sentences(" ".join(lines[start:end]), is_order)
            key = _SENTENCE_SIGN.join(block)
            if key == wanted or not wanted.startswith(key):
                break
        if key == wanted:
            is_last = end == len(lines)
            others = [line for line in lines[:start] if not _is_rejected(line, is_last)]
            others += lines[end:]
            is_alone = not any(_is_version(line, gold, is_order) for line in others)
            return is_alone and _lead_to(lines[:start]) and _only_explain(lines[end:])
    return False


def _is_version(line: str, gold: Sequence[str], is_order: bool) -> bool:
    """Whether a line has a sentence of the reference, or most of its words."""
    plain = " ".join(line.translate(_QUOTES).split()).casefold()
    if is_order and any(sentence.casefold() in plain for sentence in gold):
        return True
    words = Counter(_TOKEN.findall(" ".join(gold).casefold()))
    return 2 * (words & Counter(_TOKEN.findall(plain))).total() > words.total()


def _is_rejected(line: str, is_last: bool) -> bool:
    """Whether a line above the last one drafts a version and ends by rejecting it."""
    return is_last and _DRAFT.match(line) is not None and _REFUSED.search(line) is not None


def _lead_to(lines: Sequence[str]) -> bool:
    """Whether the lines above an answer introduce it and do not deny it."""
    if not lines:
        return True
    is_label = lines[-1].rstrip(" *").endswith(":")
    return not (is_label and is_doubtful(lines[-1])) and not is_disowned(lines[-1])


def _only_explain(lines: Sequence[str]) -> bool:
    """Whether the lines below an answer neither retract nor change it."""
    tail = "\n".join(["", *lines])
    is_short = len(tail) <= REMARK_WINDOW
    return is_short and not _CHANGES.search(tail) and find_replacement(tail) is None


def _list_sentences(text: str, is_split: bool) -> list[str]:
    """Split a text at its full stops, or not at all; normalize spaces and quotes."""
    text = text.translate(_QUOTES)
    pieces = text.split(".") if is_split else [text]
    return [words for piece in pieces if (words := " ".join(piece.split()))]


def _offers_others(text: str, words: list[str]) -> bool:
    """Whether other answers are on lines of their own: any lines, or lines in bold."""
    visible = decided_text(text) or ""
    if "answer>" in visible or "boxed" in visible:
        return False
    lines = [line.strip() for line in visible[-4000:].splitlines() if line.strip()]
    bold = [read_words(line) for line in lines if _BOLD.fullmatch(line)]
    stated = [read_words(line) for line in lines]
    is_spray = len(words) == 1 and all(one and len(one) == 1 for one in stated)
    return any(one and one != words for one in (stated if is_spray else bold))


def _read_bold(text: str) -> tuple[str, list[str]] | None:
    """Read the bold words of the last line, if there are no tags or boxes."""
    visible = decided_text(text)
    line = None if visible is None else last_line(visible)
    if visible is None or line is None or "answer>" in visible or "boxed" in visible:
        return None
    start = line.start + max(line.text.rfind(". ") + 1, 0)
    spans = list(_BOLD.finditer(visible, start, min(line.end, line.start + 4000)))
    if len(spans) != 1 or is_denied(visible, spans[0].start(), spans[0].end()):
        return None
    around = visible[start : spans[0].start()] + visible[spans[0].end() : line.end]
    if is_doubtful(around):
        return None
    words = read_words(spans[0][1])
    return None if words is None else (spans[0][1], words)
