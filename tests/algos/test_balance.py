"""Class weights of a verifier against numbers worked by hand."""

import pytest

from whet.algos.agreement import class_weights


def test_the_rarer_label_weighs_more_and_weights_average_one() -> None:
    # Roots 2 and 1: weights ½, ½, ½, ½, 1 with mean .6.
    weights, counts = class_weights([True, True, True, True, False], {})

    assert weights == pytest.approx([0.5 / 0.6] * 4 + [1 / 0.6], abs=1e-5)
    assert counts == {"correct": 4.0, "wrong": 1.0}


def test_the_inverse_rule_gives_both_labels_the_same_total() -> None:
    weights, _ = class_weights([True, True, True, False], {}, rule="inverse")

    assert sum(weights[:3]) == pytest.approx(weights[3], abs=1e-5)


def test_counts_run_across_batches() -> None:
    # .8 × 4 + .2 × 2 = 3.6 and .8 × 1 + .2 × 2 = 1.2.
    weights, counts = class_weights(
        [True, True, False, False], {"correct": 4.0, "wrong": 1.0}, rule="inverse"
    )

    assert counts == pytest.approx({"correct": 3.6, "wrong": 1.2})
    assert weights == pytest.approx([0.5, 0.5, 1.5, 1.5], abs=1e-5)


def test_a_label_that_never_came_makes_no_weight_infinite() -> None:
    weights, counts = class_weights([True, True], {})

    assert weights == pytest.approx([1.0, 1.0])
    assert counts["wrong"] == 0.0
    assert max(class_weights([True, False], counts)[0]) < 2.0
    assert class_weights([], counts) == ([], counts)
