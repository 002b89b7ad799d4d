"""Which of a teacher's answers are kept for a model to imitate."""

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from whet.config import Config
from whet.types import Rollout, Score, Verdict


class KeepConfig(Config):
    """The rule by which answers are kept; repeats of an answer never are."""

    parts: tuple[str, ...] = ("correct",)
    """Parts of the score that have to be 1, such as correct, format, feasible or optimal; an empty
    list keeps whatever could be graded."""
    most: int | None = Field(default=None, ge=1)
    """Most answers kept per problem; None keeps all."""
    first: Literal["sampled", "shortest"] = "sampled"
    """Which answers come first where there are more than `most`."""

    def without_effect(self) -> dict[str, str]:
        return {"first": "most = none keeps all"} if self.most is None else {}

    def accepts(self, score: Score | None) -> bool:
        """Whether an answer with this score may be kept."""
        if score is None or score.verdict is Verdict.UNSCORED:
            return False
        return all(_holds(score, part) for part in self.parts)

    def choose(self, answers: Sequence[Rollout]) -> list[Rollout]:
        """Choose among the answers to one problem; those kept stay in their order."""
        accepted: dict[tuple[str, str], Rollout] = {}
        for answer in answers:
            if self.accepts(answer.score):
                accepted.setdefault((answer.problem.prompt[-1].content, answer.text), answer)
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
