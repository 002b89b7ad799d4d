"""Read lists and tables that a model wrote: JSON, Python literals, or words without quotes.

The parser is bounded and uses no `eval`. Every leaf is kept as text, so that 1, 1.0 and "1" stay
distinct until a task says what they mean.
"""

import json
import re
from collections.abc import Callable
from typing import TypeVar

from whet.answers.doubt import any_of
from whet.answers.withdrawal import find_replacement

T = TypeVar("T")
Tree = str | list["Tree"] | dict[str, "Tree"]

MAX_CHARS = 1 << 16
MAX_DEPTH = 8

_PIECE = re.compile(
    r"""\s*(?:([\[\]{}(),:])|("(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')"""
    r"""|([^\[\]{}(),:"'\s][^\[\]{}(),:"\n]*))""",
    re.DOTALL,
)
"""One token: a bracket or separator, a quoted text, or a bare word."""
_OPENING = re.compile(r"\{(?=\s*[\"'}])")
"""A brace that opens a JSON object rather than prose."""
_RULE = re.compile(r"\|[-:| ]+\|")
"""The rule below a table's header: `|---|:--|`."""
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_ANSWER_FIELD = re.compile(
    r"(?:(?:the|my|final|correct|test|predicted)[ _-]?)*(?:answer|output|result|solution|order"
    r"|sequence|word|grid|expression|equation|next|left[ _-]to[ _-]right)"
    r"(?:[ _-]?(?:answer|output|order|sequence|word|step|grid|expression))?",
    re.IGNORECASE,
)
"""The name of a field with the answer: `answer`, `final_answer`, `predicted output`."""
_OTHER_FIELD = re.compile("alternative|other|second|backup|runner", re.IGNORECASE)
_HEDGE = re.compile(
    any_of("maybe|perhaps|possibly|probably|might|could|unsure|guess") + r"|\A(?:false|no)\Z",
    re.IGNORECASE,
)


def parse_literal(text: str) -> Tree | None:
    """Parse a whole text; None if it is not a literal, repeats a key, or is too long or deep.

    >>> parse_literal("{'rows': [[1, 'red'], [2, blue jay]]}")
    {'rows': [['1', 'red'], ['2', 'blue jay']]}
    """
    pieces = _to_json(text) if len(text) <= MAX_CHARS else None
    try:
        tree: Tree = json.loads("".join(pieces or ()), object_pairs_hook=_to_table)
    except ValueError:
        return None
    return tree


def last_object(text: str) -> str | None:
    """Cut out the last complete JSON object, ignoring prose in braces; None if one is not closed.

    >>> last_object('{so} then {"a": {"b": 1}}.')
    '{"a": {"b": 1}}'
    """
    starts: list[int] = []
    best = None
    is_quoted = False
    is_escaped = False
    objects = {match.start() for match in _OPENING.finditer(text)}
    for index, sign in enumerate(text):
        if is_quoted:
            is_quoted = is_escaped or sign != '"'
            is_escaped = not is_escaped and sign == "\\"
        elif sign == '"':
            is_quoted = bool(starts)
        elif index in objects:
            starts.append(index)
        elif sign == "}" and starts:
            best = (starts.pop(), index + 1)
    return text[slice(*best)] if best and not starts else None


def parse_markdown(text: str) -> list[list[str]] | None:
    """Parse a text that is one Markdown table, its header first; None if it is not a table.

    >>> parse_markdown("| Name | Pet |\\n|---|---|\\n| Ann | cat |")
    [['Name', 'Pet'], ['Ann', 'cat']]
    """
    lines = [line.strip() for line in text[: MAX_CHARS + 1].strip().splitlines()]
    if len(text) > MAX_CHARS or len(lines) < 3 or not _RULE.fullmatch(lines[1]):
        return None
    if not all(len(line) > 1 and line[0] == line[-1] == "|" for line in lines):
        return None
    return [[cell.strip() for cell in line[1:-1].split("|")] for line in (lines[0], *lines[2:])]


def read_field(text: str, read: Callable[[str], T | None]) -> T | None:
    """Read the answer field of a JSON object; None if two differ, or another field takes it back.

    >>> read_field('{"reasoning": "a, then b", "final_answer": "c"}', str)
    'c'
    >>> read_field('{"answer": "c", "note": "That is wrong."}', str)
    """
    tree = parse_literal(text) if text.startswith("{") else None
    values: list[T] = []
    for name, leaf in tree.items() if isinstance(tree, dict) else ():
        content = leaf if isinstance(leaf, str) else json.dumps(leaf)
        if _ANSWER_FIELD.fullmatch(name):
            value = read(content)
            values += [] if value is None else [value]
        elif values and (
            _OTHER_FIELD.search(name) or _HEDGE.search(content) or find_replacement(f" {content}")
        ):
            return None
    return values[0] if values and all(value == values[0] for value in values) else None


def last_table(text: str) -> str | None:
    """Cut out the Markdown table that a text ends with; None if it ends otherwise.

    >>> last_table("So:\\n| Name | Pet |\\n|---|---|\\n| Ann | cat |\\n")
    '| Name | Pet |\\n|---|---|\\n| Ann | cat |'
    """
    lines = text[-MAX_CHARS:].rstrip().split("\n")
    start = len(lines)
    while start and lines[start - 1].lstrip().startswith("|"):
        start -= 1
    table = "\n".join(lines[start:])
    return table if parse_markdown(table) else None


def plain(text: str) -> str:
    """Fold case and whitespace, for comparing words."""
    return " ".join(text.split()).casefold()


def _to_json(text: str) -> list[str] | None:
    """Rewrite a text token by token as JSON in which every leaf is a string."""
    pieces: list[str] = []
    waiting: list[str] = []
    position = 0
    text = text.rstrip()
    while position < len(text):
        match = _PIECE.match(text, position)
        if not match:
            return None
        position = match.end()
        mark, quoted, bare = match.groups()
        if not mark:
            word = _unquote(quoted) if quoted else bare.strip()
            pieces.append(json.dumps(word, ensure_ascii=False))
        elif mark in _CLOSING:
            waiting.append(_CLOSING[mark])
            pieces.append("{" if mark == "{" else "[")
        elif mark in ",:":
            pieces.append(mark)
        elif not waiting or mark != waiting.pop():
            return None
        else:
            if pieces[-1] == "," and pieces[-2] not in "[{":  # JSON allows no comma at the end
                pieces.pop()
            pieces.append("}" if mark == "}" else "]")
        if len(waiting) > MAX_DEPTH:
            return None
    return pieces


def _to_table(pairs: list[tuple[str, Tree]]) -> dict[str, Tree]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise ValueError("a key is repeated")
    return table


def _unquote(quoted: str) -> str:
    if quoted[0] == '"':
        try:
            return str(json.loads(quoted, strict=False))
        except ValueError:
            pass
    return re.sub(r"\\(.)", r"\1", quoted[1:-1], flags=re.DOTALL)
