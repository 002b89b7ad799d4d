"""Find the program in a response: the last fenced block after the reasoning. Linear in the text."""

import ast
import re

MAX_CHARS = 1 << 20
MAX_PROGRAM_CHARS = 1 << 17
_FENCES = ("```", "~~~")
_LANGUAGES = {"", "python", "python3", "py"}


def fenced(program: str) -> str:
    """Write a program as a response does."""
    return f"```python\n{program.strip()}\n```"


def blocks(text: str) -> list[str]:
    """List the closed fenced blocks of Python, or of no named language, after the last `</think>`.

    >>> blocks("so\\n```python\\nx = 1\\n```\\nor\\n```json\\n{}\\n```\\n```\\ny")
    ['x = 1']
    """
    return [block for _, block in _blocks(text)]


def _blocks(text: str) -> list[tuple[str, str]]:
    if len(text) > MAX_CHARS:
        return []
    said = text.rpartition("</think>")[2]
    if "<think>" in said:
        return []
    found: list[tuple[str, str]] = []
    opened: tuple[str, str, list[str]] | None = None
    for line in said.split("\n"):
        mark = line.strip()
        if opened is not None and mark == opened[0]:
            if opened[1] in _LANGUAGES:
                found.append((opened[1], "\n".join(opened[2])))
            opened = None
        elif opened is not None:
            opened[2].append(line)
        elif mark.startswith(_FENCES):
            opened = (mark[:3], mark[3:].strip().lower(), [])
    return [(language, block) for language, block in found if len(block) <= MAX_PROGRAM_CHARS]


def last_program(text: str) -> str | None:
    """Take the last block that says anything.

    A block of no language that is no program, such as a sample of input, does not count beside one
    of Python.
    """
    found = [(language, block) for language, block in _blocks(text) if block.strip()]
    has_named = any(language for language, _ in found)
    return next(
        (
            block
            for language, block in reversed(found)
            if language or not has_named or _is_program(block)
        ),
        None,
    )


def defining(text: str, name: str) -> str | None:
    """Take the last block that defines a name, else the last block; without fences, a text that
    defines it."""
    found = blocks(text)
    for block in reversed(found):
        if _defines(block, name):
            return block
    if found:
        return last_program(text)
    if "[BEGIN]" in text:
        text = text.rpartition("[BEGIN]")[2].partition("[DONE]")[0].strip()
    is_bare = len(text) <= MAX_PROGRAM_CHARS and "```" not in text and "<think>" not in text
    return text if is_bare and _defines(text, name) else None


def _is_program(block: str) -> bool:
    """Whether a block of no language has a call or a statement in it, and not only values or
    `input: 5`."""
    try:
        tree = ast.parse(block)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False
    return any(
        isinstance(node.value, ast.Call)
        if isinstance(node, ast.Expr)
        else not isinstance(node, ast.AnnAssign)
        for node in tree.body
    )


def _defines(block: str, name: str) -> bool:
    if not name.isidentifier():
        return False
    return (
        re.search(rf"^(?:async def|def|class)[ \t]+{name}\b|^{name}[ \t]*=", block, re.MULTILINE)
        is not None
    )
