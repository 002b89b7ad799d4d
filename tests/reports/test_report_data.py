"""Which answers a report shows."""

from report_fixture import line_notes, make_groups, make_problem, make_rollout

from whet.reports.report_data import ResponseLine, ResponseView, pick_samples
from whet.types import FinishReason, Verdict


def test_a_dozen_problems_are_spread_over_the_levels() -> None:
    groups = make_groups(0.5, 1, count=60)
    labels = [sample.label for sample in pick_samples(groups, groups, line_notes)]
    assert len(labels) == 12
    assert {f"level {fifth} of 5" for fifth in range(1, 6)} <= set(labels)
    assert labels == sorted(labels)  # by difficulty, "unsolvable" last


def test_only_problems_of_both_evaluations_are_drawn() -> None:
    groups = make_groups(0.5, 1, count=12)
    drawn = pick_samples(groups[:4], groups[2:], line_notes)
    assert len(drawn) == 2
    assert all(sample.before and sample.after for sample in drawn)


def test_one_evaluation_alone_is_shown_on_its_side() -> None:
    groups = make_groups(0.5, 1, count=12)
    drawn = pick_samples([], groups, line_notes, count=3)
    assert [sample.before for sample in drawn] == [None] * 3
    assert all(sample.after for sample in drawn)


def test_the_draw_follows_the_seed() -> None:
    problems = [make_problem(index, level=None) for index in range(200)]
    groups = [(make_rollout(problem, Verdict.WRONG, text=problem.id),) for problem in problems]

    def drawn(seed: int) -> list[str]:
        return [
            s.after.lines[0].text
            for s in pick_samples([], groups, lambda r: [ResponseLine(text=r.text)], seed=seed)
            if s.after
        ]

    assert drawn(1) == drawn(1) != drawn(2)


def test_nothing_to_draw_gives_nothing() -> None:
    assert pick_samples([], [], line_notes) == ()


def test_an_ungraded_rollout_shows_its_text_as_it_stands() -> None:
    rollout = make_rollout(
        make_problem(0, level=None), None, text="one\ntwo", finish=FinishReason.LENGTH, tokens=9
    )
    answer = ResponseView.from_rollout(rollout)
    assert answer.lines == (ResponseLine(text="one"), ResponseLine(text="two"))
    assert (answer.verdict, answer.is_finished, answer.num_tokens) == (Verdict.UNSCORED, False, 9)
