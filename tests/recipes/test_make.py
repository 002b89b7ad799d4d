from itertools import islice
from pathlib import Path

from small import Pipeline, whet, write

from whet.data.problems import problem_file, read_problems
from whet.store.run import RunStore
from whet.tasks.game24.task import Game24, Game24Config
from whet.types import SPLITS


def test_each_split_is_a_file_that_reads_back_equal(tiny: Pipeline) -> None:
    task = Game24(Game24Config(unsolvable=True))
    for split in SPLITS:
        assert read_problems(problem_file(tiny.folder / "01-problems", split)) == list(
            task.problems(split)
        )


def test_no_problem_is_in_two_splits(tiny: Pipeline) -> None:
    folder: Path = tiny.folder / "01-problems"
    ids = [problem.id for split in SPLITS for problem in read_problems(problem_file(folder, split))]
    assert len(ids) == len(set(ids)) == 1820


def test_the_counts_are_in_the_summary_and_on_the_screen(tiny: Pipeline) -> None:
    counts = {"sft": 568, "rl": 569, "dev": 136, "test": 547}
    assert RunStore.view(tiny.folder / "01-problems").summary()["problems"] == counts
    for split, count in counts.items():
        assert f"{count:>7} {split} problems in " in tiny.said.err


def test_most_keeps_the_first_problems_of_a_split_and_leaves_other_splits_whole(
    tmp_path: Path,
) -> None:
    file = write(
        tmp_path / "make.toml",
        'kind = "run"\ntask.name = "game24"\n[stages.problems]\nkind = "make"\nmost = { sft = 0, rl = 3 }\n',
    )

    assert whet("run", file, "--out", tmp_path / "run").code == 0
    counts = {"sft": 0, "rl": 3, "dev": 102, "test": 409}
    assert RunStore.view(tmp_path / "run" / "01-problems").summary()["problems"] == counts
    first = list(islice(Game24().problems("rl"), 3))
    assert read_problems(problem_file(tmp_path / "run" / "01-problems", "rl")) == first
