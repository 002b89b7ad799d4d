"""Find the value, or the call, that the last sentence of a response to a prediction gives.

Answers in tags, boxes and blocks, or by themselves, need no sentence. This module reads the others:
`f(6) = 58213`, `it returns 2 * 5 = **10**`, `n = 24 works, so f(24) is True`. There must be exactly
one candidate, and nothing around it may doubt, deny or merely suppose it.
"""

import ast
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

from whet.answers.doubt import CHOICE, FALSE, TURN, any_of, cut_remarks, is_denied, is_doubtful
from whet.answers.final_answer import decided_text
from whet.answers.sentences import last_line
from whet.answers.withdrawal import DISOWNING, find_replacement, is_disowned
from whet.tasks.answers import after_heading, candidates
from whet.tasks.code import tests_text
from whet.tasks.code.python_literals import read_literal

_MAX_SENTENCE = 1000
_MAX_CALLS = 20
_NEXT = re.compile(r"(?<=[.!?])[*`]*\s+(?=[A-Z`*])")
_CLAUSE = re.compile(r"[.;!?][*`]* +|,? (?:so|thus|hence|therefore|and)\b,? ", re.IGNORECASE)
_GIVES = (
    r"returns?|returned|returning|gives?|giving|yields?|yielding|outputs?|prints?|produces?"
    r"|makes?|evaluates to|results? in|equals|becomes?|(?:is|be) equal to|comes out (?:as|to)"
    r"|ends? up (?:with|as)"
)
_JOINT = re.compile(
    rf"\b(?P<verb>{_GIVES}|(?:we|you|I) (?:get|obtain))\b[\s:*$`]*(?=\S)"
    r"|\b(?P<is>is|are|be)\b[\s:*$`]*(?=\S)|(?<![<>!=])(?P<sign>==?(?!=)|→|->|=>|⇒)"
    r"|(?P<colon>:)(?=[\s*`$])",
    re.IGNORECASE,
)
"""What joins a call to its value: `returns`, `is`, `=`, `→`."""
_NAMED = re.compile(rf"\b(?:{_GIVES}|results?|values?|answers?|we get)\b", re.IGNORECASE)
"""A clause with one of these is about the output."""
_LABEL = re.compile(
    r"(?:\A|[.;] )[\w\s`*-]{0,40}\b(?:outputs?|results?|values?|answer|returns?|returned"
    r"|prediction|final \w+)[\s`*]*\Z",
    re.IGNORECASE,
)
"""A label of an output, before a colon: `Output`, `the final value`."""
_OTHER_THING = re.compile(
    r"\b(?:input|argument|parameter|index|step|iteration|loop|initial|initially|before|first|start"
    r"|example|length|counter)s?\b",
    re.IGNORECASE,
)
"""Things other than the output that a clause may be about."""
_OTHER_CALL = re.compile(r"(\w+)\([^()]*\)[\s`*]*\Z")
_TYPE = re.compile(
    r"(?:(?:an?|the)\s+)?(?:(?:empty|resulting|final|new|single)\s+)?(?:(?:tuple|list|string|str"
    r"|dict|dictionary|set|integer|int|float|boolean|bool|number|value|object|pair|output|result)"
    r"\b[\s:]*)?(?:of\s)?",
    re.IGNORECASE,
)
"""Words for the type of a value, before it: `the empty list `."""
_PIECE = re.compile(r"`([^`\n]+)`|\*\*([^*\n]+)\*\*|(?<![\w)\]])([\[{][^\n]*[\]}])(?![\w(\[])")
"""A piece in code marks, in bold, or in brackets."""
_QUOTED = re.compile(r"`[^`\n]*`|(?<!\w)'[^'\n]*'(?!\w)|\"[^\"\n]*\"")
_CUE = re.compile(
    rf"\b(?:{_GIVES}|get|obtain|results?|is|are|be|input|argument|use|take|choose|pick|try|pass)\b"
    r"|[=→⇒:]|\w\(",
    re.IGNORECASE,
)
"""A sentence without one of these states no value."""
_ON_INPUT = re.compile(
    r"(?:\A|\n)\W*(?:(?:so|thus|hence|therefore),? )?(?:(?:the|our|its|my|given|recorded) ){0,2}"
    r"(?:inputs?|arguments?)\b(?![^\n]*\b(?:outputs?|returns?|results?)\b)[^\n]*\Z",
    re.IGNORECASE,
)
"""A last line about the input."""
_GOES_ON = re.compile(
    any_of(CHOICE, TURN, FALSE, "but|before|after|input|argument|then") + r"|\?", re.IGNORECASE
)
"""Words after a value that show that the sentence continues."""
_INPUT = re.compile(
    r"\b(?:inputs?|arguments?|use|using|take|taking|choose|choosing|pick|picking|try|pass|passing"
    r"|call|calling|set|setting|with|be|is)\b[\s:*$`]*(?:(?:for example|e\.g\.|say),?\s)?",
    re.IGNORECASE,
)
"""Words that introduce an input: `use `, `the argument is `."""
_LITERAL = r"""-?[0-9][0-9_.]*(?<!\.)|'[^'\n]*'|"[^"\n]*"|True|False|None|\[[^\n]*?\]|\{[^\n]*?\}"""
_GIVEN = re.compile(
    rf"[`*$]*({_LITERAL})[`*$]*(?: as (?:the|an) (?:input|argument))?"
    r"(?=[.!,]?\s*\Z| (?:for|since|because)\b)"
)
"""A literal as an input: `3 as the input`."""
_LATEX_WORD = re.compile(r"\\(?:text(?:bf|it|tt|rm|sf)?|math(?:bf|it|tt|rm|sf))\s?\{([^{}]*)\}")
_LATEX_SPACE = re.compile(r"\\(?:[,;:! ]|left(?![a-z])|right(?![a-z])|q?quad(?![a-z]))")
_CHECK = re.compile(
    r" \((?:check|verif|test|proof|since|because|as|so)(?:[^()\n]|\([^()\n]*\))*\)(?=[.!*_]*\Z)",
    re.IGNORECASE,
)
"""A remark in parentheses at the end of a sentence: `x = 3 (check: 3 + 1 = 4)`."""
_BELOW_ASSERTION = re.compile(r"^`*assert [^\n]+\n\s*(?=[A-Z][^\n]*\Z)", re.MULTILINE)
"""An assertion right above a last line of prose."""
_ARROWS = ("→", "->", "=>", "⇒")
_DISOWNING = DISOWNING - {"choose", "pick"}
_EDGE = " .!,*`$"


class Stated(NamedTuple):
    """What a sentence says about a call: the call and its output, either of which may be
    missing."""

    call: ast.Call | None
    value: str | None


def plain_latex(span: str) -> str:
    r"""Write a literal without LaTeX.

    >>> plain_latex(r"(\text{'c'},\ \{1, 2\})")
    "('c', {1, 2})"
    """
    if "\\" not in span:
        return span
    words = _LATEX_SPACE.sub(" ", _LATEX_WORD.sub(r"\1", span))
    return re.sub(r" +", " ", re.sub(r"\\([{}_%#&])", r"\1", words)).strip(" $")


def find_output(text: str, entry: str, read: Callable[[str], object]) -> Stated | None:
    """Find the value that the last sentence calls the output, and the call that gives it.

    >>> find_output("It is odd, so f(3) returns 3 + 1 = 4.", "f", read_literal).value
    '4'
    """
    for sentence in _sentences(text):
        value = _behind_joint(sentence, entry, read) or _only_piece(sentence, read)
        if value is not None:
            calls = _calls(sentence, entry)
            return Stated(calls[0][2] if len(calls) == 1 else None, value)
    return None


def find_input(
    text: str, entry: str, names: list[str], read: Callable[[str], object]
) -> Stated | None:
    """Find the call that the last sentence says gives the output, and the output it states.

    >>> stated = find_input("n = 24 works, so `f(24)` is True.", "f", ["n"], read_literal)
    >>> ast.unparse(stated.call), stated.value
    ('f(24)', 'True')
    """
    for sentence in _sentences(text):
        calls = _calls(sentence, entry)
        if calls:
            start, end, call = calls[-1]
            is_one = len({ast.dump(call) for _, _, call in calls}) == 1
            rest = _QUOTED.sub("x", sentence[end:])
            fails = is_doubtful(rest) or find_replacement(rest, is_predicate=True) is not None
            if not is_one or fails or _is_unsure(sentence, start, end):
                return None
            return Stated(call, _behind_joint(sentence, entry, read))
        arguments = _assigned(sentence, names) or _behind_input(sentence, read)
        given = _parse_call(f"{entry}({arguments})", entry) if arguments else None
        if given is not None:
            return Stated(given, None)
    return None


def is_on_input(text: str) -> bool:
    """Whether the last line of a response is about the input.

    >>> is_on_input("It is odd.\\nThe input is 3."), is_on_input("For the input 3 it is 4.")
    (True, False)
    """
    return _ON_INPUT.search(text[-_MAX_SENTENCE:].rstrip()) is not None


def cut_below_assertion(text: str) -> str:
    r"""Cut off a last line of prose below the only assertion of a response.

    >>> cut_below_assertion("assert f(2) == 4\n\nSince 2 is even.")
    'assert f(2) == 4'
    >>> cut_below_assertion("assert f(2) == 4\nNo.")
    'assert f(2) == 4\nNo.'
    """
    remark = _BELOW_ASSERTION.search(text) if text.count("assert ") == 1 else None
    return text[: remark.end()].rstrip() if remark and _is_plain(text[remark.end() :]) else text


def _is_plain(remark: str) -> bool:
    """Whether a remark neither doubts nor retracts what it comments on."""
    is_plain = DISOWNING.isdisjoint(remark.lower().split())
    return is_plain and not is_doubtful(remark) and find_replacement(remark) is None


def parameters(source: str, entry: str) -> list[str]:
    """List the parameters of a function, in order."""
    tree = tests_text.parse_python(source)
    names: list[str] = []
    for node in tree.body if tree else ():
        if isinstance(node, ast.FunctionDef) and node.name == entry:
            names = [argument.arg for argument in (*node.args.posonlyargs, *node.args.args)]
    return names


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences that may state an answer: the last one of each one-line candidate."""
    if not _CUE.search(text, max(len(text) - 2 * _MAX_SENTENCE, 0)):
        return
    spans = [span for span in candidates(text) if "\n" not in span]
    if (line := _line_behind_fence(text)) is not None:
        spans.append(line)
    for span in spans:
        sentence = _NEXT.split(span)[-1]
        has_two_assertions = _QUOTED.sub("x", sentence).count("assert ") > 1
        if len(sentence) <= _MAX_SENTENCE and not has_two_assertions:
            check = _CHECK.search(sentence)
            if check and _is_plain(check[0]):
                sentence = sentence[: check.start()]
            yield plain_latex(sentence)


def _line_behind_fence(text: str) -> str | None:
    visible = decided_text(text)
    if visible is None or "```" not in visible or "<answer>" in visible or "boxed" in visible:
        return None
    *_, rest = visible.split("```")
    is_inside = visible.count("```") % 2 == 1
    if is_inside or not rest.strip() or after_heading(rest) is not None:
        return None
    line = last_line(cut_remarks(rest))
    return None if line is None or is_denied(rest, line.start, line.end) else line.text.strip()


def _calls(sentence: str, entry: str) -> list[tuple[int, int, ast.Call]]:
    """List the calls of the function with literal arguments, and their positions."""
    calls = []
    for match in list(re.finditer(rf"(?<![\w.]){re.escape(entry)}\(", sentence))[:_MAX_CALLS]:
        end = match.end()
        for _ in range(_MAX_CALLS):
            end = sentence.find(")", end) + 1
            call = _parse_call(sentence[match.start() : end], entry) if end else None
            if call is not None:
                calls.append((match.start(), end, call))
            if not end or call is not None:
                break
    return calls


def _parse_call(text: str, entry: str) -> ast.Call | None:
    tree = tests_text.parse_python(text)
    node = tree.body[0] if tree is not None and len(tree.body) == 1 else None
    call = node.value if isinstance(node, ast.Expr) else None
    is_ours = isinstance(call, ast.Call) and isinstance(call.func, ast.Name)
    if not isinstance(call, ast.Call) or not is_ours or ast.unparse(call.func) != entry:
        return None
    parts = [*call.args, *(keyword.value for keyword in call.keywords)]
    is_written = all(read_literal(ast.unparse(part)) is not None for part in parts)
    return call if is_written and parts else None


def _is_unsure(sentence: str, start: int, end: int) -> bool:
    """Whether the clause before a piece, or the text after it, keeps it from being stated."""
    lead = _CLAUSE.split(_QUOTED.sub("x", sentence[:start]))[-1]
    words = re.findall(r"[\w'’]+", lead.lower())
    is_led_away = is_doubtful(lead) or not _DISOWNING.isdisjoint(words) or is_disowned(lead)
    rest = _QUOTED.sub("x", sentence[end:])
    is_taken_back = _GOES_ON.search(rest) is not None or find_replacement(rest) is not None
    return is_led_away or is_taken_back or is_denied(sentence, start, end)


def _behind_joint(sentence: str, entry: str, read: Callable[[str], object]) -> str | None:
    """Return the value that ends a sentence after `returns`, `is`, `=` and the like."""
    for joint in reversed(list(_JOINT.finditer(sentence))):
        tail = sentence[joint.end() :]
        start = joint.end() + len(tail) - len(tail.lstrip(_EDGE))
        bare = tail.strip(_EDGE)
        kind = _TYPE.match(bare)
        for text in (bare, bare[kind.end() :].strip(_EDGE) if kind else ""):
            if not text or read(text) is None:
                continue
            is_led_to = _leads_to_output(sentence[: joint.start()], joint, entry)
            is_led_to |= joint["sign"] in _ARROWS and _ends_steps(sentence[: joint.start()], text)
            is_unsure = _is_unsure(sentence, start, len(sentence.rstrip(_EDGE)))
            return text if is_led_to and not is_unsure else None
    return None


def _leads_to_output(lead: str, joint: re.Match[str], entry: str) -> bool:
    """Whether the words before a joint are about the output."""
    clause = _CLAUSE.split(lead)[-1]
    other = _OTHER_CALL.search(clause)
    if _OTHER_THING.search(_QUOTED.sub("x", clause)) or (other and other[1] != entry):
        return False
    if joint["verb"] or joint["is"]:
        return True
    is_about_call = f"{entry}(" in clause
    if joint["colon"]:
        return _LABEL.search(clause) is not None
    is_named = _NAMED.search(clause) is not None
    is_sum = joint["sign"].startswith("=") and not re.search(r"[^\W\d_]", clause)
    return is_about_call or is_named or is_sum


def _ends_steps(lead: str, value: str) -> bool:
    """Whether an arrow leads from steps to a value in quotes or brackets: `sorted → [1, 2]`."""
    clause = _CLAUSE.split(lead)[-1]
    is_other = _OTHER_THING.search(_QUOTED.sub("x", clause).removesuffix(" first "))
    return value[0] in "[({'\"" and " " in clause.strip() and not is_other


def _only_piece(sentence: str, read: Callable[[str], object]) -> str | None:
    """Return the only literal in code, bold or brackets in a sentence about the output."""
    words = _PIECE.sub("x", sentence)
    if not _NAMED.search(words) or _OTHER_THING.search(words):
        return None
    pieces = [
        (match.start(), match.end(), text.strip(_EDGE))
        for match in _PIECE.finditer(sentence)
        if (text := next(filter(None, match.groups()))) and read(text.strip(_EDGE)) is not None
    ]
    if len({text for _, _, text in pieces}) != 1:
        return None
    start, end, text = pieces[0]
    return None if _is_unsure(sentence, start, end) else text


def _assigned(sentence: str, names: list[str]) -> str | None:
    """Write the arguments that a sentence gives by name, each once: `s = 'ab' and n = 3`."""
    if not names:
        return None
    pattern = re.compile(
        rf"(?<![\w.'\"*+/%-])(?<![*+/%-] )[`*$]*({'|'.join(map(re.escape, names))})"
        rf"[`*$]*\s?(?:=|:|is|must be)\s?"
        rf"[`*$]*({_LITERAL})(?![\w'\"])(?![`*$]*\s?[-+*/%=<>(\[])"
    )
    assignments = list(pattern.finditer(sentence))
    given = {match[1]: match[2] for match in assignments}
    if not assignments or any(given[match[1]] != match[2] for match in assignments):
        return None
    if _is_unsure(sentence, assignments[0].start(1), assignments[-1].end(2)):
        return None
    return ", ".join(f"{name}={value}" for name, value in given.items())


def _behind_input(sentence: str, read: Callable[[str], object]) -> str | None:
    """Return the literal or literals that a sentence gives as the input."""
    if not re.search(r"\b(?:inputs?|arguments?|use|take|choose|pick|try|pass)\b", sentence, re.I):
        return None
    for joint in reversed(list(_INPUT.finditer(sentence))):
        tail = sentence[joint.end() :]
        match = _GIVEN.match(tail)
        text = match[1] if match else tail.strip(_EDGE)
        if read(text) is None or tests_text.parse_python(f"f({text})") is None:
            continue
        start = joint.end()
        end = start + (match.end() if match else len(tail))
        return None if _is_unsure(sentence, start, end) else text
    return None
