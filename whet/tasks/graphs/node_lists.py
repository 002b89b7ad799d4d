"""Read the final list of a response, or the final two: names or numbers in square brackets.

The first readable place of `claimed_lists` counts. If there is no list in brackets, names or
numbers count that are the whole answer. The atoms of two molecules may follow the letters A and B,
or be given in pairs: `0 → 1`. The thinking part and a repeated question do not count. Any text is
read, in linear time.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import attrgetter

from whet.answers.doubt import cut_remarks, is_denied, is_doubtful
from whet.answers.final_answer import Span, decided_text
from whet.tasks.answers import MAX_LIST_CHARS, after_heading, candidates, write_in_line
from whet.tasks.graphs.claimed_lists import (
    AnswerPlace,
    find_after_answer,
    find_claimed,
    find_closing_parts,
    find_places,
    find_row,
    list_alternatives,
)
from whet.tasks.graphs.instance import Names
from whet.tasks.graphs.named_runs import compare_lists_of, find_stated_run, is_only_remark

MAX_CHARS = 1 << 16
"""Only the end of a longer response is read."""

_SOME_NUMBER = r"[-+−]?[0-9]{1,6}(?:\.[0-9]{1,6})?"
_NUMBERS = re.compile(rf"\s*{_SOME_NUMBER}(?:\s*,\s*{_SOME_NUMBER})*\s*")
_NAMED_NUMBERS = re.compile(
    rf"(?i)(?:^|\n)[ *]*(?:the )?(?:partners?|pairing|mapping|assignment|matching)"
    rf"(?: (?:of|for) [^\n:;.,0-9]{{1,40}}?)?(?: in order)?[ *]{{0,4}}(?:is|are)?:[ *]*"
    rf"({_SOME_NUMBER}(?:(?: ?, ?| ){_SOME_NUMBER})+)[ *.]*(?=\n|\Z)"
)
"""Named numbers without brackets: `Mapping: 1, 0, 2`."""
_MAPPING = re.compile(r'\{(?:\s*"?[0-9]{1,4}"?\s*:\s*"?[0-9]{1,4}"?\s*,?)+\s*\}')
"""A mapping as an object: `{0: 1, 1: 0}`."""
_OTHER_FORM = re.compile(r"\n|\band\b|->|→|\\to\b|\\rightarrow\b|\*\*")
"""Signs of a list that is not written with commas."""
_EITHER = re.compile(
    r"\][^\w\[\]]{0,6}(?:or|versus|vs)\b[^\w\[\]]{0,4}(?:[a-z]{1,20}[^\w\[\]]{1,3}){0,4}(?=\[)",
    re.IGNORECASE,
)
"""A list that is offered beside another: `] or [`."""
_IN_BRACKETS = re.compile(r"\[[^\[\]]*\]")
_BOTH = re.compile(r"\b(?:can be|both|each|equally)\b", re.IGNORECASE)
_EDGES_AT_END = re.compile(
    r"(?<![\w,-])([0-9]{1,5}-[0-9]{1,5}(?:, ?[0-9]{1,5}-[0-9]{1,5})++)[^0-9,;\n]{0,80}\Z"
)
"""The edges that end a text: `1-0, 0-3`."""
_WALKED = re.compile(r", | ?-> ?")
_DIGIT = re.compile("[0-9]")
_STYLE = re.compile(r"(?<!\w)\\(?:text|textbf|mathrm|mathbf)\{([^{}]*)\}(?!\w)")
_ARROW = re.compile(r"->|→|\\to\b|\\rightarrow\b")
_MAX_END = 1 << 12
_MAX_REMARKS = 4
_LIST = r"[0-9]{1,4}(?:(?:\s?,\s?(?:and )?|\s(?:and )?)[0-9]{1,4}(?![0-9]))*+(?!\s?[-–→.]?[0-9])"
_BEHIND_LETTER = re.compile(
    r"(?<![\w\\])\**(?:atoms? )?(?:(?:from|of|in|for) )?(?:the )?(?:molecule )?([AB])\b\**"
    r"(?:\s?(?:atoms|nodes|vertices))?"
    rf"(?:[\s:=*$\\–—]|\b(?:take|use|choose|pick|keep|atoms|nodes)\b){{1,6}}"
    rf"[({{\\]{{0,2}}\s?({_LIST})"
    r"(?![^\n]{0,3}→)"
)
"""The atoms after a letter: `**A:** 0, 1, 2`, `From A take {0, 1}`."""
_BEFORE_LETTER = re.compile(
    rf"(?<![\w,.-])(?<![,0-9] )({_LIST})[)}}]? (?:of|in|from) (?:molecule )?([AB])\b"
)
"""The atoms before a letter: `0, 1, 2 of A`."""
_PAIR = re.compile(
    r"(?<![\w→>-])(?:atom )?(?:A[_ ]?)?\(?([0-9]{1,4})\)?(?: of A| in A|_A)?"
    r"\s{0,3}\$?\s{0,3}(?:→|↔|⟷|->|<->|=>|⇒|↦|⇔|\\(?:to|mapsto|leftrightarrow|rightarrow))"
    r"\s{0,3}\$?\s{0,3}(?:atom )?(?:B[_ ]?)?\(?([0-9]{1,4})\)?(?!\w|\s{0,3}(?:→|->|↔|\\to))"
)
"""An atom of A and its partner in B: `0 → 1`, `A0 ↔ B1`."""
_ONLY_PAIR = re.compile(rf"[\s*•`$-]*{_PAIR.pattern}[\s*`$,;.]*")
_HEADER = re.compile(r"^\s*\|[^|\n]*\bA\b[^|\n]*\|[^|\n]*\bB\b[^|\n]*\|\s*$", re.MULTILINE)
"""The header of a table of pairs: `| A | B |`."""
_ROW = re.compile(r"^\s*\|\s*([0-9]{1,4})\s*\|\s*([0-9]{1,4})\s*\|\s*$")
_RULE = re.compile(r"[\s|:-]*")
_CHOICE = re.compile(r"[\s)}]{0,3},? ?(?:or|/)\b")

Pair = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeListReply:
    """The lists of an answer as node numbers, the names that are not nodes, and the text read."""

    lists: tuple[tuple[int, ...], ...]
    unknown: tuple[str, ...]
    text: str


def final_part(text: str, question: str = "", names: Sequence[str] = ()) -> str:
    """Remove a repeated question and the thinking part, and keep the end of the rest.

    Prose above a list is not another answer if it names none of the names, or the same ones.
    """
    if question:
        text = text.replace(question, " ")
    return (decided_text(text, same=compare_lists_of(names)) or "")[-MAX_CHARS:]


def find_other_choice(text: str, *, num_lists: int = 1) -> str | None:
    """Cut a text after an answer that is given beside the last one; None if there is only one.

    Nothing is left if the last line with a list offers two and does not say that both hold.

    >>> find_other_choice("It is [A] or [B]."), find_other_choice("It can be [A] or [B].")
    ('', 'It can be [A]')
    """
    end = text.rfind("]") + 1
    start = text.rfind("\n", 0, end) + 1
    if choice := _EITHER.search(text, start, end):
        rest, _, _ = text[choice.end() :].partition("\n")
        words = _IN_BRACKETS.sub(" ", f"{text[start : choice.start()]}] {rest}")
        both_hold = _BOTH.search(words) and not is_doubtful(words)
        return text[: choice.start() + 1] if both_hold else ""
    before = find_row(text[:end])[:-num_lists]
    return text[: before[-1].end + 1] if before else None


def read_names(text: str, names: Sequence[str]) -> NodeListReply | None:
    """Read the final list of node names; None if there is no list.

    >>> read_names("Maybe [A, B]. The answer is: [B, c d]", ["A", "B", "C D"])
    NodeListReply(lists=((1, 2),), unknown=(), text='[B, c d]')
    """
    lookup = Names(names)
    tail = text[text.rfind("]") + 1 :]
    if "nswer" in tail and after_heading(tail) and (run := find_stated_run(tail, names)):
        return _read_names(run, lookup)
    read = (_read_place(place, lookup) for place in find_places(text))
    final = next((reply for reply in read if reply is not None), None)
    if final is not None:
        return final
    for span in _short_candidates(text):
        reply = _read_names(write_in_line(span), lookup)
        if reply is not None and reply.lists[0] and not reply.unknown:
            return reply
    if (run := find_stated_run(text, names)) is not None:
        return _read_names(run, lookup)
    strangers = (_read_names(one.text, lookup) for one in reversed(find_claimed(text)))
    return next((reply for reply in strangers if reply is not None), None)


def read_final_list(text: str) -> NodeListReply | None:
    """Read the final list of whole numbers.

    >>> read_final_list("[0, 1] is one [note]. [2, 0, 1]").lists
    ((2, 0, 1),)
    >>> read_final_list("0 → 2, 1 → 0, 2 → 1").lists
    ((2, 0, 1),)
    """
    if "[" not in text and (pairs := read_atom_pairs(text)):
        partners = tuple(b for _, b in sorted(pairs))
        is_whole = sorted(a for a, _ in pairs) == list(range(len(pairs)))
        return _list_reply(partners) if is_whole else None
    named = None if "[" in text else _NAMED_NUMBERS.search(text)
    if (
        named
        and is_only_remark(text[named.end() :])
        and not _NAMED_NUMBERS.search(text, named.end())
    ):
        return _read_numbers(re.sub(" ?, ?| ", ", ", named[1]))
    read = map(_read_numbers_at, find_places(text))
    final = next((reply for reply in read if reply is not None), None)
    listed = map(_read_numbers, _short_candidates(text))
    return final or next((one for one in listed if one and len(one.lists[0]) > 1), None)


def drop_walked_edges(text: str) -> str:
    """Drop edges at the end of a text that are the steps of a walk before them.

    >>> drop_walked_edges("1,0,3 visits all: 1-0, 0-3.")
    '1,0,3 visits all: '
    """
    edges = _EDGES_AT_END.search(text, max(len(text) - MAX_LIST_CHARS // 4, 0))
    if edges is None:
        return text
    steps = [one.split("-") for one in edges[1].replace(" ", "").split(",")]
    walk = [steps[0][0], *(end for _, end in steps)]
    before = _WALKED.sub(",", text[: edges.start()])
    is_walk = steps == [list(step) for step in pairwise(walk)]
    is_given = re.search(rf"(?<![\w,-]){','.join(walk)}(?![\w,-])", before)
    return text[: edges.start(1)] if is_walk and is_given else text


def read_two(text: str) -> NodeListReply | None:
    """Read the final two lists of whole numbers, the first for A and the second for B."""
    for part in find_closing_parts(text):
        inside = _all_numbers(find_claimed(part, in_pairs=True))
        if len(inside) >= 2:
            return _join(inside[-2:])
    brackets = find_claimed(text, in_pairs=True)
    for marked in find_after_answer(text, brackets):
        following = _all_numbers([one for one in brackets if marked.start <= one.start])
        until = text.find("\n\n", marked.end)
        if len(following) >= 2 and (until < 0 or following[1][0] < until):
            offered = _all_numbers(list_alternatives(text, brackets, marked))
            return _join(offered[-2:] if len(offered) > 2 else following[:2])
    inside = _all_numbers(brackets)
    if len(inside) >= 2:
        return _join(inside[-2:])
    return None if inside else _read_two_without_brackets(text)


def _read_two_without_brackets(text: str) -> NodeListReply | None:
    if pairs := read_atom_pairs(text):
        return _list_reply(tuple(a for a, _ in pairs), tuple(b for _, b in pairs))
    named = read_named_lists(text)
    return _list_reply(tuple(named[0]), tuple(named[1])) if named else None


def _list_reply(*lists: tuple[int, ...]) -> NodeListReply:
    return NodeListReply(lists=lists, unknown=(), text=", ".join(str([*one]) for one in lists))


def _short_candidates(text: str) -> list[str]:
    return [span for span in candidates(text) if len(span) <= MAX_LIST_CHARS]


def _read_place(place: AnswerPlace, lookup: Names) -> NodeListReply | None:
    """Read a list with a known name, a list of unknown names, or a stated list, not a pattern.

    `[A, B, ...]` is a pattern to fill in, and [1] or [note] is a remark.
    """
    reply = _read_names(place.text, lookup)
    if reply is None or reply.lists[0]:
        return reply
    if place.form == "list" and len(reply.unknown) != 1:
        return reply
    is_pattern = "..." in place.text or "…" in place.text or place.text.strip().isdigit()
    return reply if place.is_stated and not is_pattern else None


def _read_numbers_at(place: AnswerPlace) -> NodeListReply | None:
    """Read a list of numbers; a single number counts only in brackets, without a tag or box."""
    if place.form == "bare" and "," not in place.text:
        return None
    reply = _read_numbers(place.text)
    is_short = reply is not None and len(reply.lists[0]) < 2
    return None if is_short and place.form != "list" else reply


def _read_numbers(content: str) -> NodeListReply | None:
    if not _DIGIT.search(content):
        return None
    content = write_in_line(content).replace('"', "").strip("[] ").removesuffix("\\right")
    if not _NUMBERS.fullmatch(content):
        return None
    pieces = [piece.strip() for piece in content.split(",")]
    unknown = tuple(piece for piece in pieces if not piece.isdecimal())
    numbers = tuple(0 if piece in unknown else int(piece) for piece in pieces)
    return NodeListReply(lists=(numbers,), unknown=unknown, text=f"[{content}]")


def _all_numbers(brackets: Sequence[Span]) -> list[tuple[int, NodeListReply]]:
    read = [
        (one.start, _read_numbers(one.text)) for one in sorted(brackets, key=attrgetter("start"))
    ]
    return [(start, reply) for start, reply in read if reply is not None]


def _join(replies: Sequence[tuple[int, NodeListReply]]) -> NodeListReply:
    (_, first), (_, second) = replies
    text = f"{first.text}, {second.text}"
    unknown = first.unknown + second.unknown
    return NodeListReply(lists=(*first.lists, *second.lists), unknown=unknown, text=text)


def _read_names(content: str, lookup: Names) -> NodeListReply | None:
    """Split a list into names, which may contain commas; None if it only wraps another list.

    Names in another form than a list with commas are read in that form.
    """
    reply = _split_names(content, lookup)
    if reply is not None and reply.unknown and _OTHER_FORM.search(content):
        listed = _split_names(write_in_line(content), lookup)
        if listed is not None and not listed.unknown:
            return replace(reply, lists=listed.lists, unknown=())
    return reply


def _split_names(content: str, lookup: Names) -> NodeListReply | None:
    inner = _STYLE.sub(r"\1", content).strip().removesuffix("\\right").strip()
    inner = inner.removeprefix("\\{").removesuffix("\\}").strip()
    if lookup.find(inner) is None:
        if inner.startswith("[") and inner.endswith("]"):
            return None
        if "," not in inner:
            inner = _ARROW.sub(",", inner)
    pieces = inner.split(",")
    numbers: list[int] = []
    unknown: list[str] = []
    index = 0
    while index < len(pieces):
        for width in range(min(lookup.most_commas + 1, len(pieces) - index), 0, -1):
            number = lookup.find(",".join(pieces[index : index + width]))
            if number is not None:
                numbers.append(number)
                break
        else:
            width = 1
            if pieces[index].strip():
                unknown.append(pieces[index].strip())
        index += width
    return NodeListReply(
        lists=(tuple(numbers),), unknown=tuple(unknown), text=f"[{content.strip()}]"
    )


def read_atom_pairs(text: str) -> list[Pair]:
    """Read which atom of A is paired with which of B in the last lines; empty if fewer than two.

    >>> read_atom_pairs("So the pairs are 0 → 1, 1 → 0.")
    [(0, 1), (1, 0)]
    """
    end = _MAPPING.sub(_write_in_arrows, cut_remarks(text[-_MAX_END:]))
    if headers := list(_HEADER.finditer(end)):
        return _read_table(end[headers[-1].end() :])
    lines = [line for line in end.splitlines() if line.strip(" \t`")]
    rest: list[str] = []
    while lines and not _PAIR.search(lines[-1]) and len(rest) < _MAX_REMARKS:
        rest.insert(0, lines.pop())
    block: list[str] = []
    for line in reversed(lines):
        if not (_ONLY_PAIR.fullmatch(line) if rest else _PAIR.search(line)):
            break
        block.insert(0, line)
    if rest and not is_only_remark("\n".join(rest)):
        return []
    if not block or (len(block) < len(lines) and is_doubtful(lines[-len(block) - 1])):
        return []
    pairs = [pair for line in block for pair in _PAIR.finditer(line)]
    bare = " ".join(block).replace("->", " ").replace("<", " ")
    is_plain = not is_doubtful(bare) and len({pair[1] for pair in pairs}) == len(pairs)
    return [(int(pair[1]), int(pair[2])) for pair in pairs] if len(pairs) > 1 and is_plain else []


def _write_in_arrows(mapping: re.Match[str]) -> str:
    return " ".join(mapping[0].replace(":", " → ").replace('"', "").split())


def read_named_lists(text: str) -> tuple[Sequence[int], Sequence[int]] | None:
    """Read the atoms of A and B, after or before the letters, in the last two lines.

    >>> read_named_lists("A: 0, 1\\nB: 2, 0")
    ([0, 1], [2, 0])
    """
    end = cut_remarks(text[-_MAX_END:])
    lines = [line for line in end.splitlines() if line.strip()][-2:]
    last = "\n".join(lines)
    places = [(one.start(2), one.end(2), one[1]) for one in _BEHIND_LETTER.finditer(last)]
    if not places:
        places = [(one.start(1), one.end(1), one[2]) for one in _BEFORE_LETTER.finditer(last)]
    if [letter for *_, letter in places] != ["A", "B"] or is_doubtful(last):
        return None
    for start, stop, _ in places:
        if is_denied(last, start, stop) or _CHOICE.match(last, stop):
            return None
    first, second = ([int(n) for n in re.findall("[0-9]+", last[a:b])] for a, b, _ in places)
    return first, second


def _read_table(rows: str) -> list[Pair]:
    pairs: list[Pair] = []
    for line in rows.splitlines():
        if row := _ROW.match(line):
            pairs.append((int(row[1]), int(row[2])))
        elif not _RULE.fullmatch(line):
            return []
    return pairs if len({a for a, _ in pairs}) == len(pairs) else []
