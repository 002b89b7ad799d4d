"""How verdicts agree with the truth, in numbers worked by hand; and who says one thing always."""

import pytest

from whet.algos.agreement import count_agreement, verifier_metrics

# Of five right solutions three are called right, one wrong, one has no verdict; of five wrong ones
# one is called right.
MIXED = [(True, True)] * 3 + [(True, False), (True, None)] + [(False, True)] + [(False, False)] * 4


def test_the_figures_of_a_mixed_verifier() -> None:
    found = count_agreement(MIXED)

    assert found.total == 10
    assert found.accuracy == pytest.approx(0.7)
    assert found.balanced_accuracy == pytest.approx(0.7)  # (3/5 + 4/5) / 2
    assert found.precision(True) == pytest.approx(3 / 4) and found.recall(True) == pytest.approx(
        3 / 5
    )
    assert found.f1(True) == pytest.approx(2 / 3)  # 2 × .75 × .6 / 1.35
    assert found.precision(False) == pytest.approx(4 / 5) and found.recall(False) == pytest.approx(
        4 / 5
    )
    assert found.f1(False) == pytest.approx(0.8)
    assert found.positive_rate == pytest.approx(4 / 9)
    assert (found.base_rate, found.readable_fraction) == (0.5, 0.9)
    assert not found.is_one_sided


def test_a_verifier_that_says_yes_to_everything_has_a_balanced_accuracy_of_one_half() -> None:
    """The accuracy is the base rate of .8, and F1 looks fine: 2 × .8 / 1.8."""
    found = count_agreement([(True, True)] * 8 + [(False, True)] * 2)

    assert (found.accuracy, found.balanced_accuracy) == (0.8, 0.5)
    assert found.f1(True) == pytest.approx(0.8889, abs=1e-4)
    assert found.is_one_sided


@pytest.mark.parametrize(
    ("pairs", "is_one_sided"),
    [
        ([(False, False)] * 9 + [(True, False)], True),
        ([(False, False)] * 10, True),  # all solutions are wrong: nothing shows that it can tell
        ([(True, None), (False, None)], True),
        ([], True),
        ([(False, False)] * 9 + [(True, True)], False),
        ([(False, False)] * 39 + [(True, True)], False),  # rare, and found
        ([(False, False)] * 39 + [(False, True)], True),
        ([(True, False)] * 5 + [(False, True)] * 5, False),  # always wrong, but not always the same
    ],
)
def test_one_thing_always_is_nearly_all_verdicts_the_same_and_no_sign_of_telling_apart(
    pairs: list[tuple[bool, bool | None]], is_one_sided: bool
) -> None:
    assert count_agreement(pairs).is_one_sided is is_one_sided


def test_what_cannot_be_told_is_not_logged() -> None:
    metrics = verifier_metrics(count_agreement([(False, None)] * 2), count_agreement([]))

    assert metrics["verifier/answered"] == 0.0
    assert not {"verifier/balanced_accuracy", "verifier/says_correct", "verifier/step_f1"} & set(
        metrics
    )


def test_steps_are_measured_by_how_well_wrong_ones_are_found() -> None:
    # Two wrong steps, one of them found, and one right step called wrong: precision ½, recall ½.
    steps = count_agreement([(False, False), (False, True), (True, False), (True, True)])

    metrics = verifier_metrics(count_agreement(MIXED), steps)

    assert metrics["verifier/step_f1"] == 0.5
    assert metrics["verifier/step_balanced_accuracy"] == 0.5
    assert metrics["verifier/f1"] == pytest.approx(2 / 3)
