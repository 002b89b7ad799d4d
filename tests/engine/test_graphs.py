"""Sizes that decode steps are recorded for: few, and never far above what is needed."""

from whet.engine.cuda_graphs import round_up_length, round_up_rows


def test_rows_are_rounded_up_to_few_sizes() -> None:
    sizes = sorted({round_up_rows(n, 1024) for n in range(1, 1025)})

    assert sizes == [1, 2, 4, 8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024]


def test_a_size_holds_its_rows_and_never_passes_the_slots() -> None:
    for most in (1, 5, 100, 256):
        for rows in range(1, most + 1):
            assert rows <= round_up_rows(rows, most) <= min(most, 2 * rows)
    assert all(round_up_rows(rows, 4096) < 1.5 * rows for rows in range(65, 4097))


def test_lengths_fall_into_classes_that_double() -> None:
    assert sorted({round_up_length(n) for n in range(1, 9000)}) == [1024, 2048, 4096, 8192, 16384]
    assert all(n <= round_up_length(n) for n in range(1, 9000))
