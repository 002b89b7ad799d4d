"""Real rows of logic puzzles, and their clue texts read into clues of our own."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from whet.tasks.logic.positions import Clue
from whet.types import Message, Problem

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"

_ITEM = r"([\w-]+:[\w&-]+)"
_ZEBRA: dict[str, str] = {
    f"{_ITEM} == {_ITEM}": "same",
    f"{_ITEM} != {_ITEM}": "differ",
    f"{_ITEM} is on the left of {_ITEM}": "left",
    f"{_ITEM} is on the right of {_ITEM}": "right",
    f"{_ITEM} is on the left or right of {_ITEM}": "beside",
    f"{_ITEM} is on the far left": "first",
    f"{_ITEM} is on the far right": "last",
    f"{_ITEM} is on the far left or far right": "end",
    f"{_ITEM} is in the middle": "middle",
    f"{_ITEM} is in an odd position": "odd",
    f"{_ITEM} is in an even position": "even",
    f"{_ITEM} is between {_ITEM} and {_ITEM}": "between",
    f"{_ITEM} is somewhere between {_ITEM} and {_ITEM}": "amid",
    f"{_ITEM} is somewhere to the left of {_ITEM}": "before",
    f"{_ITEM} is somewhere to the right of {_ITEM}": "after",
    f"{_ITEM} is not to the left of {_ITEM}": "not_before",
    f"{_ITEM} is not to the right of {_ITEM}": "not_after",
    f"{_ITEM} and {_ITEM} have the same parity positions": "same_parity",
    f"{_ITEM} and {_ITEM} have different parity positions": "other_parity",
    f"{_ITEM} == {_ITEM} or {_ITEM} == {_ITEM}, but not both": "one_same",
    f"{_ITEM} == {_ITEM} or {_ITEM} == {_ITEM} or both": "any_same",
    f"{_ITEM} != {_ITEM} or {_ITEM} != {_ITEM} or both": "any_differ",
}
_NAME = r"(?:[Tt]he )?([\w ]+?)"
_ORDERING: dict[str, str] = {
    f"{_NAME} is to the left of {_NAME}": "before",
    f"{_NAME} is to the right of {_NAME}": "after",
    f"{_NAME} is immediately to the left of {_NAME}": "left",
    f"{_NAME} is immediately to the right of {_NAME}": "right",
    rf"There (?:is|are) (?P<k>\d+) birds? between {_NAME} and {_NAME}": "apart",
}


def rows(name: str) -> list[dict[str, Any]]:
    file = DATA / name
    if not file.exists():
        pytest.skip(f"{name} of the shared data is not here")
    return [json.loads(line) for line in file.read_text().splitlines()]


def problem(task: str, answer: str) -> Problem:
    """Make a problem that asks nothing and has an answer."""
    return Problem(
        id=f"{task}/0",
        task=task,
        prompt=(Message(role="user", content="?"),),
        answer=answer,
        payload={},
        level=None,
        split="test",
        source="",
    )


def zebra_clue(text: str, items: list[str]) -> Clue:
    return _clue(text, _ZEBRA, items)


def ordering_clue(text: str, names: list[str]) -> Clue:
    return _clue(text, _ORDERING, names)


def _clue(text: str, patterns: dict[str, str], items: list[str]) -> Clue:
    for pattern, kind in patterns.items():
        if found := re.fullmatch(pattern, text):
            named = found.groupdict()
            groups = [group for group in found.groups() if group not in named.values()]
            return Clue(
                kind, tuple(items.index(group) for group in groups), int(named.get("k") or 0)
            )
    raise AssertionError(f"unknown clue: {text}")
