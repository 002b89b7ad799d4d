"""Where the steps of a response stand, and which of its tokens each takes up.

Steps are pieces of the text as it was decoded; tokens are found by their characters, and nothing is
tokenised again.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal

from whet.text.final_answer import Span, find_tags

StepLayout = Literal["lines", "paragraphs", "tags"]
"""lines and paragraphs (between blank lines) are steps as they are; tags are what stands in
<step>…</step>."""
_PARAGRAPH = re.compile(r"\n[ \t\r]*\n")


def steps_of(text: str, layout: StepLayout) -> list[Span]:
    """Cut a response into its steps, without the space around each; empty ones are none.

    >>> [step.text for step in steps_of("1 + 1 = 2\\n\\n 2 * 3 = 6", "lines")]
    ['1 + 1 = 2', '2 * 3 = 6']
    """
    if layout == "tags":
        found: Iterator[Span] | list[Span] = find_tags(text, "step")
    else:
        found = _between(text, re.compile("\n") if layout == "lines" else _PARAGRAPH)
    return [step for part in found if (step := _bare(part)).text]


def on_tokens(steps: Sequence[Span], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give each step the tokens that hold its characters, end exclusive; `spans` are those of the
    whole response.

    A token that ends one step and begins the next belongs to both. Tokens that only begin a
    character stand with the one that completes it.

    >>> on_tokens(steps_of("ab\\nc", "lines"), [(0, 1), (1, 3), (3, 4)])
    [(0, 2), (2, 3)]
    """
    starts = [start for start, _ in spans]
    ends = [end for _, end in spans]
    found = []
    for step in steps:
        first = bisect_right(ends, step.start)
        last = bisect_left(starts, step.end)
        while first > 0 and starts[first - 1] == ends[first - 1] == starts[first]:
            first -= 1
        found.append((first, last))
    return found


def _between(text: str, gap: re.Pattern[str]) -> Iterator[Span]:
    place = 0
    for match in gap.finditer(text):
        yield Span(text=text[place : match.start()], start=place, end=match.start())
        place = match.end()
    yield Span(text=text[place:], start=place, end=len(text))


def _bare(part: Span) -> Span:
    text = part.text.strip()
    start = part.start + len(part.text) - len(part.text.lstrip())
    return Span(text=text, start=start, end=start + len(text))
