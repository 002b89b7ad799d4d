import pytest

from whet.tasks.code.program import blocks, fence, last_definition, last_program


def test_blocks_are_those_of_python_or_of_no_language_that_are_closed() -> None:
    text = "a\n```python\nx = 1\n```\n```c\nint y;\n```\n```\nz\n```\n  ```py\nw\n  ```\n```python\ncut"

    assert blocks(text) == [("python", "x = 1"), ("", "z"), ("py", "w")]


CODE = "def f(x):\n    if x:\n        return 1\n\n    return 2"


def indented(text: str, space: str) -> str:
    return "\n".join(space + line if line else line for line in text.split("\n"))


@pytest.mark.parametrize(
    "text",
    [
        indented(f"```python\n{CODE}\n```", "    "),
        indented(f"```python\n{CODE}\n```", "\t"),
        f"1. So:\n\n{indented(fence(CODE), '   ')}\n2. Done.",
        f"- ```python\n{indented(CODE, '  ')}\n  ```",
        f"2) ~~~py\n{indented(CODE, '   ')}\n   ~~~",
        f"```python\n{CODE}\n  ```",
        f"````python\n{CODE}\n````",
        f"```python\n{CODE}\n`````",
        f"```python title=solution.py\n{CODE}\n```",
        f"``` {{.python}}\n{CODE}\n```",
        f"Call ```f(x)``` so:\n```Python\n{CODE}\n```",
        f"```f(x)```\n```python\n{CODE}\n```",
    ],
)
def test_a_block_is_read_wherever_markdown_allows_it(text: str) -> None:
    assert last_program(text) == CODE
    assert last_definition(text, "f") == CODE


def test_a_longer_fence_holds_shorter_ones_and_other_languages_stay_out() -> None:
    assert last_program("````python\nx = 1\n```\ny = 2\n````") == "x = 1\n```\ny = 2"
    assert last_program("```{.c}\nint x;\n```") is None


def test_reasoning_is_not_read() -> None:
    draft, final = fence("draft"), fence("final")

    assert last_program(f"<think>{draft}</think>\n{final}") == "final"
    assert last_program(f"<think>\n{draft}\n</think>\nnothing") is None
    assert last_program(f"{draft}\n<think>\n{final}") is None


def test_an_empty_block_is_not_a_program() -> None:
    assert last_program("```python\nx\n```\n```\n\n```") == "x"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("def f(x): pass", "def f(x): pass"),
        ("f = len", "f = len"),
        ("    def f(x): pass", None),
        ("def foo(x): pass", None),
        ("```python\ndef f(): pass", None),
    ],
)
def test_a_text_without_fences_is_a_program_where_it_defines_the_entry(
    text: str, found: str | None
) -> None:
    assert last_definition(text, "f") == found


@pytest.mark.parametrize(
    ("text", "is_program"),
    [
        (CODE, True),
        ("print(3 * int(input()))", True),
        ("<think>a draft</think>\n\nn = int(input())\nprint(n)\n", True),
        ("It is simple:\nprint(3 * int(input()))", False),
        ("print(3 * int(input()))\nThis prints it.", False),
        ("Answer: 5", False),
        ("final", False),
        ("'All is said.'", False),
        ("```python\nprint(1)", False),
        ("~~~\nprint(1)", False),
    ],
)
def test_a_text_without_fences_is_a_program_where_all_of_it_is_one(
    text: str, is_program: bool
) -> None:
    assert (last_program(text) is not None) is is_program


def test_a_name_that_is_no_name_is_not_looked_for() -> None:
    assert last_definition("def f(x): pass", "f.*") is None
