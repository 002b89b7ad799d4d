"""Which of a teacher's responses are kept for a model to imitate."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from whet.config import Config
from whet.types import Rollout, Score, Verdict


class KeepConfig(Config):
    """Which responses to keep; repeats of a response are always dropped."""

    parts: tuple[str, ...] = ("correct",)
    """Parts of the score that have to be 1, such as correct, format, feasible or optimal; an empty
    list keeps all graded responses."""
    most: int | None = Field(default=None, ge=1)
    """Most responses kept per problem; none keeps all."""
    first: Literal["sampled", "shortest"] = "sampled"
    """Which responses are kept if there are more than `most`: the first sampled or the shortest."""

    def without_effect(self) -> dict[str, str]:
        return {"first": "most = none keeps all"} if self.most is None else {}

    def accepts(self, score: Score | None) -> bool:
        """Whether a response with this score may be kept."""
        if score is None or score.verdict is Verdict.UNSCORED:
            return False
        return all(_holds(score, part) for part in self.parts)

    def choose(self, responses: Sequence[Rollout]) -> list[Rollout]:
        """Choose among the responses to one problem; those kept stay in their order."""
        accepted: dict[tuple[str, str], Rollout] = {}
        for row in responses:
            if self.accepts(row.score):
                accepted.setdefault((row.problem.prompt[-1].content, row.text), row)
        kept = list(accepted.values())
        if self.most is None or len(kept) <= self.most:
            return kept
        ranked = sorted(kept, key=lambda row: len(row.text)) if self.first == "shortest" else kept
        chosen = {row.id for row in ranked[: self.most]}
        return [row for row in kept if row.id in chosen]


def _holds(score: Score, part: str) -> bool:
    if part == "correct":
        return score.verdict is Verdict.CORRECT
    return score.parts.get(part, 0.0) >= 1.0
