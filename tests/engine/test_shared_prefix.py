"""Who shares which prompt: kept while a row needs it, given away after, arranged line by line."""

import numpy as np

from whet.engine.cpu.dense_cache import SharedPrompts
from whet.types import Indices


def _placed(*sources: int | None) -> SharedPrompts:
    """Place rows 0, 1 and so on, with prompts of 10, 11 and so on tokens where they have their
    own."""
    room = SharedPrompts(8)
    for row, source in enumerate(sources):
        tokens = 10 + (row if source is None else source)
        assert room.allocate(row, tokens=tokens, reserve=tokens, max_tokens=tokens, source=source)
    return room


def _rows(*rows: int) -> Indices:
    return np.array(rows, dtype=np.int64)


def test_samples_of_one_prompt_stand_in_one_line() -> None:
    groups = _placed(None, 0, None, 2, 2, None).group_rows(6)

    assert (groups.lines, groups.width) == (3, 3)
    assert groups.cell_B.tolist() == [0, 1, 3, 4, 5, 6]
    assert groups.prompt_length_B.tolist() == [10, 10, 12, 12, 12, 15]
    assert not groups.is_full


def test_groups_are_full_when_all_prompts_have_as_many_rows_in_order() -> None:
    assert _placed(None, 0, None, 2).group_rows(4).is_full
    assert not _placed(None, None, 0, 1).group_rows(4).is_full


def test_a_prompt_is_given_away_when_its_last_row_ends() -> None:
    room = _placed(None, 0, None)

    room.free(_rows(0))
    room.allocate(3, tokens=4, reserve=4, max_tokens=4, source=None)
    assert room.prompt_R[[1, 2, 3]].tolist() == [0, 1, 2]

    room.free(_rows(1))
    room.allocate(4, tokens=5, reserve=5, max_tokens=5, source=None)
    assert room.prompt_R[4] == 0 and room.length_S[0] == 5


def test_a_row_that_moves_keeps_its_prompt_and_a_new_grouping_shows_it() -> None:
    room = _placed(None, None, 1)
    assert room.group_rows(3) is room.group_rows(3)

    room.free(_rows(0))
    room.move(_rows(2), _rows(0))

    assert room.group_rows(2).prompt_length_B.tolist() == [11, 11]
    assert room.prompt_R[2] == -1


def test_releasing_a_row_that_holds_nothing_changes_nothing() -> None:
    room = _placed(None)

    room.free(_rows(7))

    assert room.uses_S.tolist() == [1, 0, 0, 0, 0, 0, 0, 0]
