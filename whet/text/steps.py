"""Steps of a response: their spans of text and tokens, and the layouts of RL-Tango.

Steps are parts of the decoded text. Character spans give their tokens; nothing is tokenised again.
RL-Tango's solutions and verifications look like this:

    <think><step>…</step><step>…</step></think><answer>\\boxed{…}</answer>

    <step_verification><step>… \\boxed{CORRECT}</step></step_verification>
    <final_verification>\\boxed{CORRECT}</final_verification>
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from whet.answers.final_answer import Span, find_tags, make_span

VERIFICATION = "verify"
"""The task of a verifier's problems. Prompt settings do not apply to it, and no user's task may
have this name."""
StepLayout = Literal["lines", "paragraphs", "tags"]
"""A step is a line, a paragraph (between blank lines), or the text inside <step>…</step>."""
_LINE = re.compile(r"[^\n]+")
_PARAGRAPH = re.compile(r"(?:[^\n]+|\n(?![ \t\r]*\n))+")
MIN_STEPS = 3
_LARGE, _SMALL = 0.8, 0.4
_VERDICT = re.compile(r"\\box(?:ed)?\{\s*(in)?correct\s*\}\s*\.?\s*\Z", re.IGNORECASE)
_BOX = re.compile(r"\\boxed\s*\{")
_LAYOUT = re.compile(
    r"<step_verification>((?:(?!</step_verification>).)*)</step_verification>\s*"
    r"<final_verification>((?:(?!<final_verification>).)*)</final_verification>",
    re.DOTALL,
)


def steps_of(text: str, layout: StepLayout) -> list[Span]:
    """Split a response into stripped steps without empty ones.

    >>> [step.text for step in steps_of("1 + 1 = 2\\n\\n 2 * 3 = 6", "lines")]
    ['1 + 1 = 2', '2 * 3 = 6']
    """
    if layout == "tags":
        parts = find_tags(text, "step")
    else:
        pattern = _LINE if layout == "lines" else _PARAGRAPH
        parts = [make_span(text, *match.span()) for match in pattern.finditer(text)]
    return [step for part in parts if (step := _strip(part)).text]


def token_ranges(steps: Sequence[Span], spans: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Return each step's range of tokens, given the character spans of all tokens of the response.

    A token that ends one step and begins the next belongs to both. Tokens with only the first bytes
    of a character belong with the token that completes it.

    >>> token_ranges(steps_of("ab\\nc", "lines"), [(0, 1), (1, 3), (3, 4)])
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


def _strip(part: Span) -> Span:
    text = part.text.strip()
    start = part.start + len(part.text) - len(part.text.lstrip())
    return Span(text=text, start=start, end=start + len(text))


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The verdicts on each step and on the whole solution; an unreadable verdict is None."""

    step_verdicts: tuple[bool | None, ...] = ()
    final: bool | None = None


def rate_solution(text: str) -> float:
    """Rate a solution's layout: 1, minus 0.8 per large fault and 0.4 for too few steps.

    A solution without an answer block gets 0.

    >>> rate_solution("<think><step>1 + 1 = 2</step></think><answer>\\\\boxed{2}</answer>")
    0.6
    """
    start = text.rfind("<answer>")
    end = text.find("</answer>", start)
    if start < 0 or end < 0:
        return 0.0
    answer = text[start + len("<answer>") : end]
    num_steps = len(split_blocks(text, "<step>", "</step>")[0])
    score = 1.0
    if len(_BOX.findall(answer)) != 1:
        score -= _LARGE
    if num_steps == 0:
        score -= _LARGE
    elif num_steps < MIN_STEPS:
        score -= _SMALL
    return max(score, 0.0)


def rate_verification(text: str, num_steps: int | None) -> float:
    """Rate a verification's layout: 1, minus 0.8 per large fault and 0.4 for text between steps.

    Any other layout gets 0. `num_steps` is the solution's number of steps; None does not check it.
    """
    layout_blocks = _match_layout(text)
    if layout_blocks is None:
        return 0.0
    head, tail = layout_blocks
    steps, outside = split_blocks(head, "<step>", "</step>")
    num_judged = sum(_verdict(step) is not None for step in steps)
    score = 1.0
    if _verdict(tail) is None:
        score -= _LARGE
    if not steps:
        score -= _LARGE
    if num_steps is not None and num_judged != num_steps:
        score -= _LARGE
    if outside.strip():
        score -= _SMALL
    return max(score, 0.0)


def read_verification(text: str) -> Verification:
    """Read the verdicts of a verification; text in any other layout has none.

    >>> read_verification("<step_verification><step>\\\\boxed{CORRECT}</step></step_verification>"
    ...                   "<final_verification>\\\\boxed{INCORRECT}</final_verification>")
    Verification(step_verdicts=(True,), final=False)
    """
    layout_blocks = _match_layout(text)
    if layout_blocks is None:
        return Verification()
    head, tail = layout_blocks
    steps, _ = split_blocks(head, "<step>", "</step>")
    return Verification(step_verdicts=tuple(_verdict(step) for step in steps), final=_verdict(tail))


def split_blocks(text: str, opening: str, closing: str) -> tuple[list[str], str]:
    """Return the texts inside pairs of tags, in order, and all text outside.

    >>> split_blocks("a<b>1</b>c<b>2</b>", "<b>", "</b>")
    (['1', '2'], 'ac')
    """
    inside: list[str] = []
    outside: list[str] = []
    position = 0
    while (start := text.find(opening, position)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        outside.append(text[position:start])
        inside.append(text[start + len(opening) : end])
        position = end + len(closing)
    outside.append(text[position:])
    return inside, "".join(outside)


def _verdict(block: str) -> bool | None:
    match = _VERDICT.search(block[-64:])
    return None if match is None else match[1] is None


def _match_layout(text: str) -> tuple[str, str] | None:
    """Return the contents of a verification's two blocks; None for any other text."""
    match = _LAYOUT.fullmatch(text.strip())
    return (match[1], match[2]) if match else None
