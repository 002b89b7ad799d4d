"""Rows of verl and its kin (Reasoning360's GURU, Tango, NPG-Muse): one schema, routed by
`data_source`.

What the reward would need and the row does not have is refused here, when the file is read. A
source that nobody knows is refused with the list of those that are known.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from whet.data.importers.base import (
    Answer,
    Draft,
    Fields,
    Format,
    layout,
    parsed,
    row_id,
    shown,
    table,
    text,
)
from whet.data.importers.chats import messages
from whet.data.importers.mapped import split_named
from whet.data.importers.routes import GURU, NPG, STOCK, TANGO, Build, Truth
from whet.errors import DataError
from whet.types import Json, Message

IDS = ("index", "idx", "id")
STYLES = ("rule", "rule-based", "model")
TRUTH_FIELDS = {"style", "ground_truth"}
PASS_RATES = ("low_pass_rate", "qwen2.5_7b_pass_rate")
"""How often a weak model solved the row; what is left is its level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Router:
    """Finds who can read a source: by its whole name, or by how it begins."""

    routes: Mapping[str, Build]

    def __call__(self, row: Fields) -> Draft:
        source = text(row, "data_source")
        extra = _extra(row)
        prompt = _prompt(row)
        truth = table(row, "reward_model")
        if unknown := truth.keys() - TRUTH_FIELDS:
            raise DataError(
                f"reward_model has the unknown field {min(unknown)!r}; known are style, ground_truth"
            )
        if "ground_truth" not in truth or truth.get("style", "rule") not in STYLES:
            raise DataError(
                f"reward_model should have a ground_truth and the style rule, not {shown(truth)}"
            )
        build = self._find(source)
        draft = build(Truth(value=truth["ground_truth"], extra=extra, prompt=prompt, source=source))
        split = extra.get("split")
        return replace(
            draft,
            prompt=prompt,
            level=draft.level if draft.level is not None else _level(row),
            split=split_named(split) if isinstance(split, str) else None,
            source_id=next(
                (found for name in IDS if (found := row_id(extra, name)) is not None), None
            ),
            answers=tuple(Answer(text=each) for each in _responses(row)),
        )

    def _find(self, source: str) -> Build:
        if source in self.routes:
            return self.routes[source]
        prefixes = [
            name for name in self.routes if name.endswith("*") and source.startswith(name[:-1])
        ]
        if not prefixes:
            raise DataError(
                f"data_source {source!r} is not known; known are {', '.join(self.routes)}"
            )
        return self.routes[max(prefixes, key=len)]


def _extra(row: Fields) -> dict[str, Json]:
    return table(row, "extra_info") if row.get("extra_info") is not None else {}


def _prompt(row: Fields) -> tuple[Message, ...]:
    if row.get("apply_chat_template") is False and isinstance(row.get("raw_prompt"), str):
        return (Message(role="user", content=text(row, "raw_prompt")),)
    value = parsed(row["prompt"])
    if isinstance(value, str):
        return (Message(role="user", content=text(row, "prompt")),)
    return messages(value, "prompt")


def _level(row: Fields) -> float | None:
    for name in PASS_RATES:
        rate = row.get(name)
        if isinstance(rate, int | float) and 0 <= rate <= 1:
            return 1.0 - float(rate)
    return None


def _responses(row: Fields) -> list[str]:
    found = row.get("responses")
    return (
        [each for each in found if isinstance(each, str) and each.strip()]
        if isinstance(found, list)
        else []
    )


def _format(about: str, routes: Mapping[str, Build]) -> Format:
    read: Callable[[Fields], Draft] = Router(routes=routes)
    return layout(
        about,
        read,
        "data_source prompt reward_model",
        "ability extra_info apply_chat_template raw_prompt responses is_unique agent_name level",
        split="rl",
    )


FORMATS: dict[str, Format] = {
    "verl": _format("verl rows of any known source", {**STOCK, **TANGO, **GURU, **NPG}),
    "guru": _format("Reasoning360's GURU rows", GURU),
    "tango": _format("Tango's rows, for training and evaluation", {**STOCK, **TANGO}),
    "npg": _format("NPG-Muse's graph rows", NPG),
}
