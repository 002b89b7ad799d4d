"""The index has every rollout once, follows the files of a run, and never writes to it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
from viewer_runs import make_group, write_run, write_step, write_verl_dump, write_wandb_table

from whet.errors import DataError
from whet.store.rollouts import write_rollouts
from whet.store.view_cache import cache_folder
from whet.testing.fakes import rollout
from whet.types import Json
from whet.viewer.index import MAX_SEGMENTS, RolloutIndex
from whet.viewer.maps import answer_distribution, cross_verdicts, difficulty_map
from whet.viewer.query import Filters, find_siblings, list_rollouts
from whet.viewer.run_folders import Root


def open_index(root: Path, cache: Path, run: str = ".") -> RolloutIndex:
    folder = Root(root)
    index = RolloutIndex(folder, folder.run(run), cache)
    index.refresh(wait=30)
    return index


def ask(index: RolloutIndex, params: Mapping[str, str], sort: str = "-step") -> dict[str, Json]:
    return list_rollouts(index.columns, Filters.from_params(params), sort=sort, offset=0, limit=50)


def rows_of(answer: Mapping[str, Json]) -> list[dict[str, Json]]:
    rows = answer["rows"]
    assert isinstance(rows, list)
    return [row for row in rows if isinstance(row, dict)]


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> RolloutIndex:
    place = tmp_path_factory.mktemp("indexed")
    return open_index(write_run(place / "run"), place / "cache")


@pytest.mark.parametrize(
    ("params", "total"),
    [
        ({}, 12),
        ({"verdict": "correct"}, 3),
        ({"step": "2"}, 4),
        ({"step": "2.."}, 8),
        ({"reward": "0.5..", "step": "..2"}, 2),
        ({"length": "4..4"}, 6),
        ({"level": "0..0.1"}, 12),
        ({"level": "0.2.."}, 0),
        ({"finish": "length"}, 6),
        ({"task": "sums"}, 12),
        ({"task": "other"}, 0),
        ({"q": "SEVEN, after step 2"}, 2),
        ({"q": "4 + 5"}, 6),
        ({"q": "(seven"}, 0),
        ({"part": "asked:1"}, 9),
        ({"answer": "7", "verdict": "wrong"}, 9),
    ],
)
def test_filters_pass_the_rows_they_name(
    index: RolloutIndex, params: dict[str, str], total: int
) -> None:
    assert ask(index, params)["total"] == total


def test_counts_of_a_kind_leave_out_its_own_filter_and_keep_the_others(index: RolloutIndex) -> None:
    facets = ask(index, {"verdict": "correct", "step": "1"})["facets"]
    assert isinstance(facets, dict)
    assert facets["verdict"] == [["wrong", 3], ["correct", 1]]
    assert facets["finish"] == [["stop", 1]]


@pytest.mark.parametrize(
    ("sort", "rewards"), [("-reward", [1.0, 1.0, 1.0]), ("reward", [-0.5, -0.5, -0.5])]
)
def test_rows_are_sorted_both_ways(index: RolloutIndex, sort: str, rewards: list[float]) -> None:
    assert [row["reward"] for row in rows_of(ask(index, {}, sort))[:3]] == rewards


def test_a_mean_log_probability_is_that_of_the_tokens(index: RolloutIndex) -> None:
    row = rows_of(ask(index, {"verdict": "correct", "step": "1"}))[0]
    assert row["logprob"] == pytest.approx(-0.2)  # of -0.1, -0.2 and -0.3


def test_siblings_are_of_the_same_step_alone(index: RolloutIndex) -> None:
    at, siblings = find_siblings(index.columns, "train-000002.parquet", 0, 10)
    assert index.columns.numbers["step"][at] == 2
    assert [index.columns.text[i].as_py() for i in siblings] == ["Seven, after step 2"]


def test_an_unreadable_range_or_order_is_a_sentence(index: RolloutIndex) -> None:
    with pytest.raises(DataError, match=r"a range is written like 3\.\.7"):
        ask(index, {"step": "three"})
    with pytest.raises(DataError, match="sorted by step"):
        ask(index, {}, "text")


def test_the_difficulty_map_counts_right_answers_by_level_and_step(index: RolloutIndex) -> None:
    shown = difficulty_map(index.columns, Filters.from_params({}))
    assert shown["spans"] == [[1, 1], [2, 2], [3, 3]]
    assert shown["levels"] == [{"level": "1", "correct": [1, 1, 1], "count": [4, 4, 4]}]
    problems = shown["problems"]
    assert isinstance(problems, list)
    assert [row["correct"] for row in problems if isinstance(row, dict)] == [0.0, 0.5]


def test_answers_of_a_problem_are_counted_over_the_steps(index: RolloutIndex) -> None:
    problem = index.columns.texts["problem"].values[0]
    shown = answer_distribution(index.columns, problem)
    assert shown["pass"] == [0.5, 0.5, 0.5]
    assert shown["answers"] == [
        {"answer": "3", "correct": True, "counts": [1, 1, 1]},
        {"answer": "7", "correct": False, "counts": [1, 1, 1]},
    ]


def test_verdicts_are_crossed_with_what_a_judge_was_asked(index: RolloutIndex) -> None:
    cells = cross_verdicts(index.columns, "asked")["cells"]
    assert isinstance(cells, list)
    counted = {(c["verdict"], c["value"]): c["count"] for c in cells if isinstance(c, dict)}
    assert counted == {("correct", 0.0): 3, ("wrong", 1.0): 9}


def test_an_index_opens_again_without_reading_the_run(tmp_path: Path) -> None:
    write_run(tmp_path / "run")
    open_index(tmp_path / "run", tmp_path / "cache")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")}
    assert len(before) == 1
    assert open_index(tmp_path / "run", tmp_path / "cache").columns.count == 12
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.arrow")} == before


def test_a_new_step_is_added_and_a_rewound_one_is_gone(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    index = open_index(folder, tmp_path / "cache")
    write_step(folder, 4)
    index.refresh(wait=30)
    assert index.columns.count == 16
    (folder / "rollouts" / "train-000004.parquet").unlink()
    (folder / "rollouts" / "train-000003.parquet").unlink()
    index.refresh(wait=30)
    assert sorted(set(index.columns.numbers["step"])) == [1, 2]
    assert index.columns.count == 8


def test_many_small_segments_become_one(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", steps=0)
    index = open_index(folder, tmp_path / "cache")
    counts = []
    for step in range(1, MAX_SEGMENTS + 3):
        write_step(folder, step)
        index.refresh(wait=30)
        counts.append(len(list(tmp_path.rglob("*.arrow"))))
    assert counts[-3:] == [MAX_SEGMENTS, 1, 2]
    assert open_index(folder, tmp_path / "cache").columns.count == 4 * (MAX_SEGMENTS + 2)


def test_a_broken_file_is_named_and_the_others_are_shown(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "rollouts" / "train-000009.parquet").write_bytes(b"PAR1 and no more")
    index = open_index(folder, tmp_path / "cache")
    assert index.columns.count == 12
    assert [reason.split(":")[0] for reason in index.broken.values()] == ["train-000009.parquet"]


def test_a_damaged_cache_is_built_again(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    open_index(folder, tmp_path / "cache")
    for path in tmp_path.rglob("*.arrow"):
        path.write_bytes(b"no arrow")
    assert open_index(folder, tmp_path / "cache").columns.count == 12


def test_nothing_is_written_into_a_run(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    before = {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]}
    open_index(folder, tmp_path / "cache")
    assert {path: path.stat().st_mtime_ns for path in [folder, *folder.rglob("*")]} == before


def test_the_rollouts_of_verl_are_a_run(tmp_path: Path) -> None:
    write_verl_dump(tmp_path / "dumps" / "verl")
    index = open_index(tmp_path / "dumps", tmp_path / "cache", "verl")
    best = rows_of(ask(index, {}, "-reward"))[0]
    assert (best["step"], best["verdict"], best["gold"], best["question"]) == (
        10,
        "correct",
        "4",
        "2+2?",
    )
    assert ask(index, {"part": "format:0.5"})["total"] == 1


def test_a_row_of_a_wandb_table_is_as_many_rollouts_as_it_holds(tmp_path: Path) -> None:
    write_wandb_table(tmp_path / "wandb")
    index = open_index(tmp_path / "wandb", tmp_path / "cache")
    rows = rows_of(ask(index, {}, "-reward"))
    assert [(row["step"], row["question"], row["reward"]) for row in rows] == [
        (20, "3+3?", 1.0),
        (20, "1+1?", 0.0),
    ]


def test_the_cache_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/somewhere/cache")
    assert cache_folder() == Path("/somewhere/cache/whet/view")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder() == Path("/home/me/.cache/whet/view")


def test_empty_runs_have_empty_answers(tmp_path: Path) -> None:
    index = open_index(write_run(tmp_path / "run", steps=0), tmp_path / "cache")
    assert ask(index, {"q": "x", "verdict": "correct", "part": "asked:1"})["total"] == 0
    assert difficulty_map(index.columns, Filters.from_params({}))["levels"] == []
    assert np.array_equal(index.columns.numbers["step"], [])


def test_a_map_has_no_more_columns_than_a_page_has_room_for(index: RolloutIndex) -> None:
    """One problem is never solved, the other by one of two responses in each step."""
    shown = difficulty_map(index.columns, Filters.from_params({}), 2)
    assert shown["spans"] == shown["halves"] == [[1, 2], [3, 3]]
    assert shown["levels"] == [{"level": "1", "correct": [2, 1], "count": [8, 4]}]
    assert shown["histogram"] == [1, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_sampled_and_greedy_answers_of_an_evaluation_are_never_counted_together(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "run", steps=0)
    group = make_group(1, 2, 0)
    write_rollouts(run / "rollouts" / "eval-000000.parquet", [group])
    write_rollouts(run / "rollouts" / "eval-000001.parquet", [group[:1]])
    index = open_index(run, tmp_path / "cache")
    shown = {name: ask(index, {"set": name}) for name in ("sampled", "greedy")}
    assert {name: (answer["total"], answer["correct"]) for name, answer in shown.items()} == {
        "sampled": (2, 0.5),
        "greedy": (1, 1.0),
    }
    assert [row["group_size"] for row in rows_of(shown["sampled"])] == [2, 2]


def test_a_text_that_no_model_sampled_has_no_length(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", steps=0)
    write_rollouts(run / "rollouts" / "train-000000.parquet", [(rollout(tokens=(), text="3"),)])
    shown = ask(open_index(run, tmp_path / "cache"), {})
    assert shown["length"] is None and rows_of(shown)[0]["length"] is None
