"""Find the program in a response: the last fenced block after the reasoning. Linear in the text."""

import re

MAX_CHARS = 1 << 20
MAX_PROGRAM_CHARS = 1 << 17
_LANGUAGES = {"", "python", "python3", "py"}


def fenced(program: str) -> str:
    """Write a program as a response does."""
    return f"```python\n{program.strip()}\n```"


def blocks(text: str) -> list[str]:
    """List the closed fenced blocks of Python, or of no named language, after the last `</think>`.

    >>> blocks("so\\n```python\\nx = 1\\n```\\nor\\n```json\\n{}\\n```\\n```\\ny")
    ['x = 1']
    """
    if len(text) > MAX_CHARS:
        return []
    said = text.rpartition("</think>")[2]
    if "<think>" in said:
        return []
    found: list[str] = []
    opened: tuple[str, list[str]] | None = None
    for line in said.split("\n"):
        mark = line.strip()
        if opened is not None and mark == "```":
            if opened[0] in _LANGUAGES:
                found.append("\n".join(opened[1]))
            opened = None
        elif opened is not None:
            opened[1].append(line)
        elif mark.startswith("```"):
            opened = (mark[3:].strip().lower(), [])
    return [block for block in found if len(block) <= MAX_PROGRAM_CHARS]


def last_program(text: str) -> str | None:
    """Take the last block that says anything."""
    return next((block for block in reversed(blocks(text)) if block.strip()), None)


def defining(text: str, name: str) -> str | None:
    """Take the last block that defines a name, else the last block; without fences, a text that defines it."""
    found = blocks(text)
    for block in reversed(found):
        if _defines(block, name):
            return block
    if found:
        return last_program(text)
    is_bare = len(text) <= MAX_PROGRAM_CHARS and "```" not in text and "<think>" not in text
    return text if is_bare and _defines(text, name) else None


def _defines(block: str, name: str) -> bool:
    if not name.isidentifier():
        return False
    return re.search(rf"^(?:async def|def|class)[ \t]+{name}\b|^{name}[ \t]*=", block, re.MULTILINE) is not None
