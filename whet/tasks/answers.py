"""Find where a response states its final answer. Linear in the text; reading the answer is left to
each task.

The last statement counts, in the strongest form there is: `<answer>` tags, then `\\boxed{}`, then a
line that starts with `Answer:`, then the last fenced block, then the text itself: all of it, what
follows its last line that ends in a colon, its last line, or what that line says it is. Reasoning
before `</think>` is not read; a tag, box or reasoning that is opened and not closed is no answer:
the response was cut.
"""

import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from whet.tasks.prose import told
from whet.text.extract import after_thought
from whet.types import Score, Verdict

T = TypeVar("T")

MAX_CHARS = 1 << 22
"""Longer responses are not read."""
MAX_ANSWER_CHARS = 1 << 16
"""Longer answers are not read."""

_BOX = "\\boxed{"
_COLON = re.compile(r"^[^\n]{0,400}:[ \t*]*\n", re.MULTILINE)
_MARKER = re.compile(
    r"^[ \t*#>]*(?:the )?(?:final )?answer(?: is)?[ \t*]*:[ \t*]*", re.IGNORECASE | re.MULTILINE
)


def candidates(text: str) -> tuple[str, ...]:
    """List the spans that may be the final answer, to be read in this order; most often there is
    one.

    >>> candidates("<think><answer>3</answer></think> so <answer> 4 </answer>")
    ('4',)
    >>> candidates("I think\\nAnswer: 4")
    ('4',)
    >>> candidates("<answer>4")
    ()
    """
    if len(text) > MAX_CHARS:
        return ()
    found = _stated(text)
    return tuple(
        dict.fromkeys(
            span for span in map(_unfenced, found) if span and len(span) <= MAX_ANSWER_CHARS
        )
    )


def read_final(text: str, read: Callable[[str], T | None]) -> tuple[str, T] | None:
    """Read the first candidate that the reader understands; None where there is none."""
    for span in candidates(text):
        value = read(span)
        if value is not None:
            return span, value
    return None


def no_answer(*parts: str) -> Score:
    """State that nothing could be read: `correct` and the other parts named are 0."""
    facts = dict.fromkeys(("correct", *parts), 0.0)
    return Score(verdict=Verdict.NO_ANSWER, parts=facts, note="no final answer could be read")


def judged(is_right: bool, parts: Mapping[str, float], answer: str, note: str) -> Score:
    """State a verdict, with `correct` among the parts."""
    verdict = Verdict.CORRECT if is_right else Verdict.WRONG
    return Score(
        verdict=verdict,
        parts={"correct": float(is_right), **parts},
        answer=answer[:1000],
        note=note,
    )


def _stated(text: str) -> tuple[str, ...]:
    start = after_thought(text)
    if start is None:
        return ()
    said = text[start:]
    if "<answer>" in said or "</answer>" in said:
        said = _tagged(said)
        return _boxed(said) if _BOX in said else (said,)
    if _BOX in said:
        return _boxed(said)
    ends = [marker.end() for marker in _MARKER.finditer(said)]
    if ends:
        rest = said[ends[-1] :]
        return rest, rest.partition("\n")[0]
    fenced = said.split("```")
    if len(fenced) >= 3:
        block = fenced[-2] if len(fenced) % 2 else fenced[-3]
        return (f"```{block}```",)
    line = said.rstrip().rpartition("\n")[2]
    colons = [found.end() for found in _COLON.finditer(said)]
    return said, said[colons[-1] :] if colons else "", line, told(line) or ""


def _tagged(text: str) -> str:
    """Take what the last answer tags hold; nothing where they are not closed."""
    opened = text.rfind("<answer>")
    closing = text.rfind("</answer>")
    return text[opened + len("<answer>") : closing] if 0 <= opened < closing else ""


def _boxed(text: str) -> tuple[str, ...]:
    """Take what the last box holds."""
    start = text.rfind(_BOX) + len(_BOX)
    depth = 1
    for place in range(start, min(len(text), start + MAX_ANSWER_CHARS)):
        depth += (text[place] == "{") - (text[place] == "}")
        if depth == 0:
            return (text[start:place],)
    return ()


def _unfenced(span: str) -> str:
    """Take the content of a fenced block that is all there is, its language word left out."""
    span = span.strip()
    if (
        len(span) >= 6
        and span.startswith("```")
        and span.endswith("```")
        and "```" not in span[3:-3]
    ):
        word, _, rest = span[3:-3].partition("\n")
        return (rest if word.strip().isalnum() and rest else span[3:-3]).strip()
    return span
