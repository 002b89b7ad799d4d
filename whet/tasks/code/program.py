"""Find the program in a response: the last fenced block after the thinking part, or else the whole
text. Takes linear time.

If a response has several programs, the last one counts, or the last that defines the entry. The
words around them do not matter.
"""

import ast
import re

from whet.answers.final_answer import visible_text

MAX_CHARS = 1 << 20
MAX_PROGRAM_CHARS = 1 << 17
_FENCE = re.compile(r"([ \t]*(?:(?:[-*+]|\d{1,9}[.)])[ \t]+)?)(`{3,}|~{3,})([^`\n]*)")
"""The start of a block, perhaps in a list item: text before it, fence, language."""
_LATE_FENCE = re.compile(r"()(?:[^`\n]*[^`\s])[ \t]+(`{3,})((?i:python3?|py))")
"""A fence after words on the same line, with a named language: ``First: ```python``."""
_LANGUAGES = {"", "python", "python3", "py"}


def fence(program: str) -> str:
    """Write a program as a fenced block."""
    return f"```python\n{program.strip()}\n```"


def blocks(text: str) -> list[tuple[str, str]]:
    """List the closed fenced blocks of Python or of no named language, each with its language.

    >>> blocks("so\\n```python\\nx = 1\\n```\\nor\\n```json\\n{}\\n```\\n```\\ny")
    [('python', 'x = 1')]
    """
    visible = visible_text(text) if len(text) <= MAX_CHARS else None
    closed: list[tuple[str, str]] = []
    opened: re.Match[str] | None = None
    lines: list[str] = []
    is_hidden = False
    for line in (visible or "").split("\n"):
        mark = line.strip()
        if is_hidden or (opened is None and mark.startswith("<!--")):
            is_hidden = "-->" not in line
        elif opened is None:
            opened = _FENCE.fullmatch(line.rstrip()) or _LATE_FENCE.fullmatch(line.rstrip())
            lines = []
        elif mark.startswith(opened[2]) and set(mark) == {opened[2][0]}:
            language = opened[3].strip().lower().partition(" ")[0].strip("{.}")
            if language in _LANGUAGES:
                closed.append((language, "\n".join(lines)))
            opened = None
        else:
            lines.append(_dedent(line, len(opened[1])))
    return [(language, block) for language, block in closed if len(block) <= MAX_PROGRAM_CHARS]


def _dedent(line: str, width: int) -> str:
    """Remove as much leading space as the fence has, or all if there is less."""
    return line[min(width, len(line) - len(line.lstrip(" \t"))) :]


def last_program(text: str) -> str | None:
    """Return the last nonempty block; without fences, a text that is entirely a program.

    If there is a Python block, a block without a language that is not a program, such as sample
    input, does not count.
    """
    filled = [(language, block) for language, block in blocks(text) if block.strip()]
    has_named = any(language for language, _ in filled)
    for language, block in reversed(filled):
        if language or not has_named or _is_program(block):
            return block
    bare = _unfenced(text)
    return bare if not filled and bare and _is_program(bare) else None


def last_module(text: str, name: str) -> str | None:
    """Return the last program that does not test the module: that neither imports it nor has only
    tests.

    >>> last_module("```\\nx = 1\\n```\\n```\\nfrom solution import x\\n```", "solution")
    'x = 1'
    """
    last = last_program(text)
    if last is None or not _is_test(last, name):
        return last
    programs = [block for _, block in blocks(text) if _is_program(block)]
    return next((block for block in reversed(programs) if not _is_test(block, name)), last)


def last_definition(text: str, name: str) -> str | None:
    """Return the last block that defines a name, else the last; without fences, a text that
    does."""
    closed = blocks(text)
    for _, block in reversed(closed):
        if _defines(block, name):
            return block
    if closed:
        return last_program(text)
    bare = _unfenced(text)
    return bare if bare and _defines(bare, name) else None


def _unfenced(text: str) -> str | None:
    """Return the whole visible response, or the part between its markers; None if it has a
    fence."""
    bare = visible_text(text) or ""
    if "[BEGIN]" in bare:
        bare = bare.rpartition("[BEGIN]")[2].partition("[DONE]")[0].strip()
    return bare if len(bare) <= MAX_PROGRAM_CHARS and "```" not in bare else None


def _is_program(block: str) -> bool:
    """Whether a block contains a call or a statement, not just values or `input: 5`."""
    try:
        tree = ast.parse(block)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    for node in tree.body:
        part = node.value if isinstance(node, ast.Expr) else node
        if isinstance(part, ast.Call | ast.stmt) and not isinstance(part, ast.AnnAssign):
            return True
    return False


def _is_test(block: str, module: str) -> bool:
    """Whether a block imports the module, or defines tests and nothing else."""
    if re.search(rf"^(?:from|import)[ \t]+{re.escape(module)}\b", block, re.MULTILINE):
        return True
    defined = re.findall(r"^(?:def|class)[ \t]+(\w+)", block, re.MULTILINE)
    return bool(defined) and all(one.startswith(("test_", "Test")) for one in defined)


def _defines(block: str, name: str) -> bool:
    if not name.isidentifier():
        return False
    definition = rf"^(?:async def|def|class)[ \t]+{name}\b|^{name}[ \t]*="
    return re.search(definition, block, re.MULTILINE) is not None
