"""Where the steps of a response stand, and which of its tokens each takes up.

Steps are pieces of the text as it was decoded; tokens are found by their characters, and nothing is
tokenised again.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from typing import Literal

from whet.text.final_answer import Span, cut, find_tags

StepLayout = Literal["lines", "paragraphs", "tags"]
"""lines and paragraphs (between blank lines) are steps as they are; tags are what stands in
<step>…</step>."""
_GAPS = {"lines": re.compile("\n"), "paragraphs": re.compile(r"\n[ \t\r]*\n")}


def steps_of(text: str, layout: StepLayout) -> list[Span]:
    """Cut a response into its steps, without the space around each; empty ones are none.

    >>> [step.text for step in steps_of("1 + 1 = 2\\n\\n 2 * 3 = 6", "lines")]
    ['1 + 1 = 2', '2 * 3 = 6']
    """
    parts = find_tags(text, "step") if layout == "tags" else _split(text, _GAPS[layout])
    return [step for part in parts if (step := _strip(part)).text]


def on_tokens(steps: Sequence[Span], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Give each step the tokens that hold its characters, end exclusive.

    `spans` are the characters of each token of the whole response. A token that ends one step and
    begins the next belongs to both. Tokens that only begin a character stand with the one that
    completes it.

    >>> on_tokens(steps_of("ab\\nc", "lines"), [(0, 1), (1, 3), (3, 4)])
    [(0, 2), (2, 3)]
    """
    starts = [start for start, _ in spans]
    ends = [end for _, end in spans]
    ranges = []
    for step in steps:
        first = bisect_right(ends, step.start)
        last = bisect_left(starts, step.end)
        while first > 0 and starts[first - 1] == ends[first - 1] == starts[first]:
            first -= 1
        ranges.append((first, last))
    return ranges


def _split(text: str, gap: re.Pattern[str]) -> Iterator[Span]:
    start = 0
    for match in gap.finditer(text):
        yield cut(text, start, match.start())
        start = match.end()
    yield cut(text, start, len(text))


def _strip(part: Span) -> Span:
    text = part.text.strip()
    start = part.start + len(part.text) - len(part.text.lstrip())
    return Span(text=text, start=start, end=start + len(text))
