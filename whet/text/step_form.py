"""The two layouts of RL-Tango, each scored from 0 to 1: a solution in steps, and a verification of
each step.

<think><step>…</step><step>…</step></think><answer>\\boxed{…}</answer> <step_verification><step>…
\\boxed{CORRECT}</step></step_verification>
<final_verification>\\boxed{CORRECT}</final_verification>
"""

import re
from dataclasses import dataclass

FEW_STEPS = 3
_LARGE, _SMALL = 0.8, 0.4
_VERDICT = re.compile(r"\\box(?:ed)?\{\s*(in)?correct\s*\}\s*\.?\s*\Z", re.IGNORECASE)
_BOX = re.compile(r"\\boxed\s*\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What a verification says of each step and of the whole; None where it says nothing that can
    be read."""

    steps: tuple[bool | None, ...] = ()
    final: bool | None = None


def solution_form(text: str) -> float:
    """Start from 1 and take off 0.8 for each large fault and 0.4 for few steps; 0 without an answer
    block.

    >>> solution_form("<think><step>1 + 1 = 2</step></think><answer>\\\\boxed{2}</answer>")
    0.6
    """
    answer = _between(text, "<answer>", "</answer>")
    if answer is None:
        return 0.0
    num_steps = len(blocks(text, "<step>", "</step>")[0])
    score = 1.0
    if len(_BOX.findall(answer)) != 1:
        score -= _LARGE
    if num_steps == 0:
        score -= _LARGE
    elif num_steps < FEW_STEPS:
        score -= _SMALL
    return max(score, 0.0)


def verification_form(text: str, num_steps: int | None) -> float:
    """Start from 1 and take off 0.8 for each large fault, 0.4 for text between steps; 0 in any
    other layout.

    `num_steps` is how many steps the solution has; None where that is not to count.
    """
    whole = text.strip()
    head, middle, tail = _layout(whole)
    if head is None or tail is None or middle.strip():
        return 0.0
    steps, outside = blocks(head, "<step>", "</step>")
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
    """Read the verdicts; a text in any other layout has none.

    >>> read_verification("<step_verification><step>\\\\boxed{CORRECT}</step></step_verification>"
    ...                   "<final_verification>\\\\boxed{INCORRECT}</final_verification>")
    Verification(steps=(True,), final=False)
    """
    head, middle, tail = _layout(text.strip())
    if head is None or tail is None or middle.strip():
        return Verification()
    steps, _ = blocks(head, "<step>", "</step>")
    return Verification(steps=tuple(_verdict(step) for step in steps), final=_verdict(tail))


def blocks(text: str, opening: str, closing: str) -> tuple[list[str], str]:
    """Cut out the blocks between two tags, in order, and give what stands outside of them.

    >>> blocks("a<b>1</b>c<b>2</b>", "<b>", "</b>")
    (['1', '2'], 'ac')
    """
    inside: list[str] = []
    outside: list[str] = []
    place = 0
    while (start := text.find(opening, place)) >= 0:
        end = text.find(closing, start)
        if end < 0:
            break
        outside.append(text[place:start])
        inside.append(text[start + len(opening) : end])
        place = end + len(closing)
    outside.append(text[place:])
    return inside, "".join(outside)


def _verdict(block: str) -> bool | None:
    found = _VERDICT.search(block[-64:])
    return None if found is None else found[1] is None


def _layout(text: str) -> tuple[str | None, str, str | None]:
    """Take the two blocks apart: the steps, what is between the blocks, the final verdict."""
    steps_open, steps_close = "<step_verification>", "</step_verification>"
    final_open, final_close = "<final_verification>", "</final_verification>"
    end = text.find(steps_close)
    start = text.rfind(final_open)
    if not text.startswith(steps_open) or not text.endswith(final_close) or not 0 <= end < start:
        return None, "", None
    return (
        text[len(steps_open) : end],
        text[end + len(steps_close) : start],
        text[start + len(final_open) : -len(final_close)],
    )


def _between(text: str, opening: str, closing: str) -> str | None:
    """Read the last block between two tags."""
    start = text.rfind(opening)
    end = text.find(closing, start) if start >= 0 else -1
    return text[start + len(opening) : end] if end >= 0 else None
