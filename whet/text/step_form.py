"""Score the two layouts of RL-Tango from 0 to 1: a solution in steps, a verification of each step.

<think><step>…</step><step>…</step></think><answer>\\boxed{…}</answer>

<step_verification><step>… \\boxed{CORRECT}</step></step_verification>
<final_verification>\\boxed{CORRECT}</final_verification>
"""

import re
from dataclasses import dataclass

FEW_STEPS = 3
_LARGE = 0.8
_SMALL = 0.4
_VERDICT = re.compile(r"\\box(?:ed)?\{\s*(in)?correct\s*\}\s*\.?\s*\Z", re.IGNORECASE)
_BOX = re.compile(r"\\boxed\s*\{")


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """The verdicts on each step and on the whole, None where one cannot be read."""

    steps: tuple[bool | None, ...] = ()
    final: bool | None = None


def solution_form(text: str) -> float:
    """Take 0.8 off 1 for each large fault and 0.4 for few steps; 0 without an answer block.

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
    """Take 0.8 off 1 for each large fault, 0.4 for text between steps; 0 in any other layout.

    `num_steps` is how many steps the solution has; None where that is not to count.
    """
    parts = _parts(text.strip())
    if parts is None:
        return 0.0
    steps, outside = blocks(parts[0], "<step>", "</step>")
    num_judged = sum(_verdict(step) is not None for step in steps)
    score = 1.0
    for is_fault in (
        _verdict(parts[1]) is None,
        not steps,
        num_steps is not None and num_judged != num_steps,
    ):
        score -= _LARGE * is_fault
    score -= _SMALL * bool(outside.strip())
    return max(score, 0.0)


def read_verification(text: str) -> Verification:
    """Read the verdicts; a text in any other layout has none.

    >>> read_verification("<step_verification><step>\\\\boxed{CORRECT}</step></step_verification>"
    ...                   "<final_verification>\\\\boxed{INCORRECT}</final_verification>")
    Verification(steps=(True,), final=False)
    """
    parts = _parts(text.strip())
    if parts is None:
        return Verification()
    steps, _ = blocks(parts[0], "<step>", "</step>")
    return Verification(steps=tuple(map(_verdict, steps)), final=_verdict(parts[1]))


def blocks(text: str, opening: str, closing: str) -> tuple[list[str], str]:
    """Cut out the blocks between two tags, in order, and give what stands outside of them.

    >>> blocks("a<b>1</b>c<b>2</b>", "<b>", "</b>")
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
    return inside, "".join([*outside, text[position:]])


def _verdict(block: str) -> bool | None:
    match = _VERDICT.search(block[-64:])
    return None if match is None else match[1] is None


def _parts(text: str) -> tuple[str, str] | None:
    """Take the block of steps and the final block apart; None in any other layout."""
    head, closing, rest = text.partition("</step_verification>")
    middle, opening, tail = rest.rpartition("<final_verification>")
    is_whole = head.startswith("<step_verification>") and tail.endswith("</final_verification>")
    if not closing or not opening or not is_whole or middle.strip():
        return None
    return head.removeprefix("<step_verification>"), tail.removesuffix("</final_verification>")


def _between(text: str, opening: str, closing: str) -> str | None:
    """Read the last block between two tags."""
    start = text.rfind(opening)
    end = text.find(closing, start) if start >= 0 else -1
    return text[start + len(opening) : end] if end >= 0 else None
