"""Splits by content: stable, disjoint, of the sizes asked for."""

import pytest

from whet.data.problems import split_by_hash
from whet.errors import ConfigError


def test_a_text_stays_in_its_split_when_rows_are_added():
    fractions = {"rl": 0.8, "dev": 0.1, "test": 0.1}
    before = {text: split_by_hash(text, fractions, 42) for text in map(str, range(100))}
    after = {text: split_by_hash(text, fractions, 42) for text in map(str, range(200))}
    assert before == {text: after[text] for text in before}


def test_splits_have_the_fractions_asked_for():
    splits = [split_by_hash(f"problem {n}", {"rl": 0.75, "dev": 0.25}, 42) for n in range(4000)]
    assert set(splits) == {"rl", "dev"}
    assert splits.count("dev") == pytest.approx(1000, abs=110)  # four standard deviations


def test_another_seed_splits_in_another_way():
    texts = [f"problem {n}" for n in range(50)]
    first, second = ([split_by_hash(t, {"rl": 0.5, "dev": 0.5}, s) for t in texts] for s in (1, 2))
    assert first != second


@pytest.mark.parametrize("fractions", [{}, {"rl": 0.5}, {"rl": 0.9, "train": 0.1}, {"rl": 1.5}])
def test_fractions_that_are_not_a_whole_are_refused(fractions):
    with pytest.raises(ConfigError):
        split_by_hash("text", fractions, 0)
