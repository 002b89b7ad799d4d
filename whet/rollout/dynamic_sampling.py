"""Which groups a step trains on, which problems get more responses, and which are replaced."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from pydantic import Field

from whet.config import Config
from whet.rollout.collect import GroupRequest
from whet.types import FinishReason, Group, Metrics, all_equal, rewards_of


class DynamicSamplingConfig(Config):
    """Which responses a step samples, and which of them it trains on."""

    max_extra_problems: int | None = Field(default=None, ge=0)
    """Dynamic sampling (DAPO): groups of equal reward are left out, and up to this many more
    problems per step are sampled in their place; none keeps them."""
    first_samples: int | None = Field(default=None, ge=2)
    """Responses to sample first; the rest of a group follows only if these differ in reward or one
    could not be graded; none samples all at once."""
    mask_unfinished: bool = False
    """Leave responses cut at the length limit out of the loss; their rewards still count for their
    group."""

    def num_problems_needed(self, groups: Sequence[Group], problems: int) -> int:
        """Return how many problems a step of `problems` samples next, after `groups`.

        First all of them, then replacements for groups of equal reward, within the budget.
        """
        if not groups:
            return problems
        missing = problems - len(self.choose_groups(groups))
        budget = problems + (self.max_extra_problems or 0) - len(groups)
        return max(0, min(missing, budget))

    def first_requests(self, requests: Sequence[GroupRequest]) -> list[GroupRequest]:
        """Return the requests for the responses to sample first."""
        return [
            replace(request, sample_ids=request.sample_ids[: self.first_samples])
            for request in requests
        ]

    def later_requests(
        self, requests: Sequence[GroupRequest], groups: Sequence[Group]
    ) -> list[GroupRequest]:
        """Return requests for the rest of each group whose first responses call for it."""
        if self.first_samples is None:
            return []
        return [
            replace(request, sample_ids=request.sample_ids[self.first_samples :])
            for request, group in zip(requests, groups, strict=True)
            if not all_equal(rewards_of(group)) or len(rewards_of(group)) < len(group)
        ]

    def choose_groups(self, groups: Sequence[Group]) -> list[Group]:
        """Choose the groups to train on."""
        if self.max_extra_problems is None:
            return list(groups)
        return [group for group in groups if not all_equal(rewards_of(group))]

    def masked_ids(self, groups: Sequence[Group]) -> set[str]:
        """Return the ids of rollouts that have no loss."""
        rollouts = [rollout for group in groups for rollout in group]
        return {
            r.id
            for r in rollouts
            if self.mask_unfinished and r.completion.finish_reason is FinishReason.LENGTH
        }

    def first_responses(self, groups: Sequence[Group]) -> list[Group]:
        """Cut all groups to their first responses, so that completed groups do not bias metrics."""
        return [group[: self.first_samples] for group in groups]

    def metrics(
        self, groups: Sequence[Group], step: int, *, problems: int, samples: int
    ) -> Metrics:
        """Count the effects of the active settings on a step."""
        trained = self.choose_groups(groups)
        metrics = {
            "sampling/lag": fmean(
                step - rollout.completion.policy_version for group in groups for rollout in group
            )
        }
        if self.max_extra_problems is not None:
            metrics |= {
                "groups/extra": float(len(groups) - problems),
                "groups/trained": float(len(trained)),
            }
        if self.first_samples is not None:
            metrics["groups/stopped"] = fmean(len(group) < samples for group in groups)
        if self.mask_unfinished:
            metrics["length/masked"] = float(len(self.masked_ids(trained)))
        return metrics


def join_groups(groups: Sequence[Group], later: Sequence[Group]) -> list[Group]:
    """Add later responses to their groups; two phases give the same group as one."""
    by_group_id = {group[0].group_id: group for group in later}
    return [group + by_group_id.get(group[0].group_id, ()) for group in groups]
