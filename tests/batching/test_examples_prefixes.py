"""Equal beginnings are found once, whatever the order of the sequences, and every token finds
itself again."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from whet.batching.examples import MergedPrefixes, merge_prefixes

SEQUENCES = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=9), min_size=1, max_size=12)


def _merged(sequences: list[list[int]]) -> MergedPrefixes:
    tokens = np.array([token for sequence in sequences for token in sequence], dtype=np.int64)
    return merge_prefixes(tokens, np.array([len(sequence) for sequence in sequences]))


def test_two_samples_of_a_prompt_by_hand() -> None:
    merged = _merged([[5, 6, 7, 8], [5, 6, 9, 9, 9]])

    # 5 and 6 are shared, 7 follows them in one sequence and 9, 9 in the other; what ends a sequence
    # is not run.
    assert merged.node_T.tolist() == [0, 1, 2, -1, 0, 1, 3, 4, -1]
    assert merged.first_U.tolist() == [0, 1, 2, 6, 7]
    assert merged.node_SC.shape == (2, 8)
    assert merged.node_SC[:, :5].tolist() == [[0, 1, 2, 2, 2], [0, 1, 3, 4, 4]]
    assert merged.cell_U.tolist() == [0, 1, 2, 10, 11]


@settings(deadline=None, derandomize=True, database=None)
@given(SEQUENCES)
def test_as_many_tokens_are_run_as_there_are_different_beginnings(
    sequences: list[list[int]],
) -> None:
    merged = _merged(sequences)

    lines = [sequence[: max(1, len(sequence) - 1)] for sequence in sequences]
    beginnings = {tuple(line[: end + 1]) for line in lines for end in range(len(line))}
    assert len(merged.first_U) == len(merged.cell_U) == len(beginnings)


@settings(deadline=None, derandomize=True, database=None)
@given(SEQUENCES)
def test_every_token_finds_itself_and_what_stands_before_it(sequences: list[list[int]]) -> None:
    merged = _merged(sequences)

    tokens = np.concatenate([np.array(sequence) for sequence in sequences])
    grid = merged.node_SC
    start = 0
    for line, sequence in enumerate(sequences):
        count = max(1, len(sequence) - 1)
        nodes = merged.node_T[start : start + count]
        assert tokens[merged.first_U[nodes]].tolist() == sequence[:count]
        assert grid[line, :count].tolist() == nodes.tolist()
        start += len(sequence)
    assert merged.node_SC.reshape(-1)[merged.cell_U].tolist() == list(range(len(merged.first_U)))
