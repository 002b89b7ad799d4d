"""A step's rollouts as a handful of numbers."""

from collections.abc import Sequence
from statistics import fmean, pstdev

from whet.types import Finish, Group, Verdict


def rollup(groups: Sequence[Group]) -> dict[str, float]:
    """Average rewards, score parts and lengths over all rollouts, and count what carries no signal.

    | metric | meaning |
    |---|---|
    | reward/mean, reward/deviation | over rewarded rollouts |
    | score/<part> | mean of each part the grader states |
    | length/mean, length/unfinished | tokens; share cut at the limit |
    | groups/equal | share of groups whose rewards are all the same: they teach nothing |
    | score/unscored | rollouts the grader failed on |
    """
    rollouts = [rollout for group in groups for rollout in group]
    rewards = [rollout.reward for rollout in rollouts if rollout.reward is not None]
    scores = [rollout.score for rollout in rollouts if rollout.score is not None]
    graded = [score for score in scores if score.verdict != Verdict.UNSCORED]
    names = sorted({name for score in graded for name in score.parts})
    spreads = [[r.reward for r in group if r.reward is not None] for group in groups]
    return {
        "reward/mean": fmean(rewards) if rewards else 0.0,
        "reward/deviation": pstdev(rewards) if rewards else 0.0,
        **{
            f"score/{name}": fmean(score.parts.get(name, 0.0) for score in graded) for name in names
        },
        "score/unscored": float(len(rollouts) - len(graded)),
        "length/mean": fmean(len(rollout.completion.tokens) for rollout in rollouts),
        "length/unfinished": fmean(
            rollout.completion.finish == Finish.LENGTH for rollout in rollouts
        ),
        "groups/equal": fmean(len(set(values)) <= 1 for values in spreads),
    }
