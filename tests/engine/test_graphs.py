"""Sizes that decode steps are recorded for: few, and never far above what is needed."""

from whet.engine.graphs import rounded


def test_rows_are_rounded_up_to_few_sizes() -> None:
    assert [rounded(n, 100) for n in (1, 2, 3, 4, 5, 7, 9, 13, 17, 25)] == [1, 2, 3, 4, 6, 8, 12, 16, 24, 32]
    assert len({rounded(n, 256) for n in range(1, 257)}) == 16


def test_a_size_holds_its_rows_wastes_at_most_half_of_them_and_never_passes_the_slots() -> None:
    for most in (1, 5, 100, 256):
        for rows in range(1, most + 1):
            assert rows <= rounded(rows, most) <= min(most, 1.5 * rows)
