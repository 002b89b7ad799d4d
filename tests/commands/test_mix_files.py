"""Split, mix and count: stable choices, even strata, and every mistake one sentence."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from whet.commands.mix_files import MixOptions, mix_problems, parse_fractions, split_problems
from whet.commands.show_problem_stats import count_problems
from whet.data.problems import problem_file, read_problems
from whet.errors import ConfigError, DataError
from whet.store.files import write_rows
from whet.testing.fakes import sum_problem
from whet.types import SPLITS, Problem, content_id


def make(
    count: int, *, task: str = "sums", level: float | None = 0.1, difficulty: object = None
) -> list[Problem]:
    payload = {"difficulty": difficulty}
    ids = [content_id(task, [number, level]) for number in range(count)]
    return [
        replace(sum_problem(number, count), id=id, task=task, level=level, payload=payload)  # type: ignore[arg-type]
        for number, id in enumerate(ids)
    ]


def write(file: Path, problems: Sequence[Problem]) -> str:
    write_rows(file, (problem.to_json() for problem in problems))
    return str(file)


def mix(folder: Path, *inputs: str, name: str = "mix.jsonl", **options: object) -> list[Problem]:
    mix_problems(inputs, folder / name, MixOptions(**options))  # type: ignore[arg-type]
    return read_problems(folder / name)


def split(folder: Path, problems: Sequence[Problem], fractions: str) -> dict[str, list[str]]:
    file = write(folder / "in.jsonl", problems)
    split_problems([Path(file)], folder / "out", fractions=fractions, force=True)
    files = {name: problem_file(folder / "out", name) for name in SPLITS}
    return {
        name: [problem.id for problem in read_problems(path)]
        for name, path in files.items()
        if path.exists()
    }


def test_problems_are_split_by_what_they_ask_and_added_rows_move_none(tmp_path: Path) -> None:
    problems = make(400)
    before = split(tmp_path, problems[:300], "rl=0.8,dev=0.1,test=0.1")
    after = split(tmp_path, problems[::-1], "rl=0.8,dev=0.1,test=0.1")
    assert sum(map(len, before.values())) == 300 and set(before) == {"rl", "dev", "test"}
    assert 0.75 < len(before["rl"]) / 300 < 0.85
    for name, ids in before.items():
        assert set(ids) <= set(after[name])


def test_a_split_row_says_its_split_and_equal_questions_stay_together(tmp_path: Path) -> None:
    twins = [replace(problem, id=f"{problem.id}x") for problem in make(50)]
    halves = split(tmp_path, [*make(50), *twins], "sft=0.5,rl=0.5")
    for name, ids in halves.items():
        assert {f"{id}x" for id in ids if not id.endswith("x")} == {
            id for id in ids if id.endswith("x")
        }
        rows = read_problems(problem_file(tmp_path / "out", "sft" if name == "sft" else "rl"))
        assert {row.split for row in rows} == {name}


def test_a_split_that_is_there_is_replaced_by_force_alone(tmp_path: Path) -> None:
    file = Path(write(tmp_path / "in.jsonl", make(5)))
    split_problems([file], tmp_path, fractions="rl=1")
    with pytest.raises(ConfigError, match=r"problems-rl\.jsonl already exists: add --force"):
        split_problems([file], tmp_path, fractions="rl=1")


@pytest.mark.parametrize(
    "text", ["rl", "rl=2", "train=1", "rl=0.5,rl=0.5", "rl=0.5,dev=0.4", "rl=nan"]
)
def test_fractions_that_are_none_are_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"rl=0\.9,dev=0\.05|add up to 1"):
        parse_fractions(text)


def test_a_volume_is_dealt_evenly_over_tasks_and_then_over_levels(tmp_path: Path) -> None:
    rows = [
        *make(100, task="sums", level=0.1),
        *make(100, task="sums", level=0.9),
        *make(100, task="other", level=0.1),
    ]
    mixed = mix(tmp_path, write(tmp_path / "a.jsonl", rows), n=80, by="task,level")
    assert Counter((p.task, p.level) for p in mixed) == {
        ("sums", 0.1): 20,
        ("sums", 0.9): 20,
        ("other", 0.1): 40,
    }


def test_a_stratum_with_too_few_rows_gives_all_and_the_others_more(tmp_path: Path) -> None:
    rows = [*make(10, task="few"), *make(100, task="many"), *make(100, task="lots")]
    mixed = mix(tmp_path, write(tmp_path / "a.jsonl", rows), n=90, by="task")
    assert Counter(p.task for p in mixed) == {"few": 10, "many": 40, "lots": 40}


def test_a_larger_volume_holds_the_smaller_and_another_seed_takes_others(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", make(200))
    small = {p.id for p in mix(tmp_path, file, n=50, name="s.jsonl")}
    large = {p.id for p in mix(tmp_path, file, n=100, name="l.jsonl")}
    other = {p.id for p in mix(tmp_path, file, n=50, name="o.jsonl", seed=1)}
    assert small < large and small != other


def test_weights_share_a_volume_between_files(tmp_path: Path) -> None:
    one = write(tmp_path / "a.jsonl", make(100, task="one"))
    two = write(tmp_path / "b.jsonl", make(100, task="two"))
    assert Counter(p.task for p in mix(tmp_path, f"{one}=3", two, n=40)) == {"one": 30, "two": 10}


def test_a_quota_limits_a_task(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", [*make(50, task="one"), *make(50, task="two")])
    mixed = mix(tmp_path, file, n=60, by="task", quotas=("one=15",))
    assert Counter(p.task for p in mixed) == {"one": 15, "two": 45}
    with pytest.raises(
        ConfigError, match="-n 80 is more than the 65 different rows that the quotas allow"
    ):
        mix(tmp_path, file, n=80, by="task", quotas=("one=15",), name="b.jsonl")
    with pytest.raises(
        ConfigError, match="--quota three: no row has this task; there are one, two"
    ):
        mix(tmp_path, file, by="task", quotas=("three=15",), name="b.jsonl")


def test_a_curriculum_goes_from_easy_to_hard_and_rows_without_a_level_come_last(
    tmp_path: Path,
) -> None:
    rows = [*make(5, level=0.9), *make(5, level=None), *make(5, level=0.2)]
    mixed = mix(tmp_path, write(tmp_path / "a.jsonl", rows), order="level")
    assert [p.level for p in mixed] == [0.2] * 5 + [0.9] * 5 + [None] * 5


def test_equal_rows_of_two_files_are_taken_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = (write(tmp_path / name, make(10)) for name in ("a.jsonl", "b.jsonl"))
    assert len(mix(tmp_path, one, two)) == 10
    assert "10 rows have the id of an earlier one" in capsys.readouterr().err


def test_levels_are_made_of_a_column_of_words_or_numbers(tmp_path: Path) -> None:
    words = [*make(2, difficulty="Hard"), *make(2, level=0.2, difficulty="easy")]
    mixed = mix(
        tmp_path,
        write(tmp_path / "a.jsonl", words),
        level="payload.difficulty",
        bins="easy,medium,hard",
        order="level",
    )
    assert [p.level for p in mixed] == pytest.approx([1 / 6, 1 / 6, 5 / 6, 5 / 6])
    numbers = [
        replace(problem, payload={"difficulty": number}) for number, problem in enumerate(make(10))
    ]
    file = write(tmp_path / "b.jsonl", numbers)
    options = {"level": "payload.difficulty", "bins": "2", "is_reversed": True}
    mixed = mix(tmp_path, file, name="n.jsonl", **options)
    assert {p.payload["difficulty"]: p.level for p in mixed} == {
        number: 0.75 if number < 5 else 0.25 for number in range(10)
    }


def test_a_level_that_is_none_names_its_row(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", make(1, difficulty="hard"))
    with pytest.raises(
        DataError, match=r"a\.jsonl line 1: has the level .hard., which is not a number"
    ):
        mix(tmp_path, file, level="payload.difficulty")
    with pytest.raises(DataError, match="which is not one of low, high"):
        mix(tmp_path, file, level="payload.difficulty", bins="low,high")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"n": 0}, "-n 0 should be at least 1"),
        ({"n": 11}, "-n 11 is more than the 10 different rows: lower it"),
        ({"by": "task,colour"}, "--by task,colour should name some of task, level, source, split"),
        ({"order": "random"}, "--order random should be one of shuffle, level"),
        ({"quotas": ("a=1",)}, "give --by too"),
        ({"quotas": ("a",), "by": "task"}, "--quota a should be VALUE=ROWS"),
        ({"bins": "3"}, "--bins and --reverse need --level COLUMN"),
        ({"level": "level", "bins": "easy,2"}, "should be words from easy to hard"),
        ({"level": "level", "bins": "3,2"}, "should increase from edge to edge"),
        ({"level": "level", "bins": "1"}, "should be from 2 to 100 equal parts"),
    ],
)
def test_options_that_make_no_sense_are_refused(
    tmp_path: Path, options: dict[str, object], sentence: str
) -> None:
    file = write(tmp_path / "a.jsonl", make(10))
    with pytest.raises(ConfigError, match=sentence):
        mix(tmp_path, file, **options)
    assert not (tmp_path / "mix.jsonl").exists()


def test_a_weight_that_is_none_is_refused(tmp_path: Path) -> None:
    file = write(tmp_path / "a.jsonl", make(1))
    with pytest.raises(ConfigError, match="should be FILE=WEIGHT with a weight above 0"):
        mix(tmp_path, f"{file}=-1")


def test_counts_are_printed_and_the_page_has_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [*make(3, level=0.1), *make(2, level=None, task="other")]
    file = Path(write(tmp_path / "a.jsonl", rows))
    stats = count_problems([file], report=tmp_path / "page.html")
    out = capsys.readouterr().out
    assert "5 problems" in out and "tasks     sums 3 · other 2" in out
    assert "levels    1 3 · none 2" in out and "words     3 to 3" in out
    assert sum(count for _, count in stats.histogram()) == 5
    assert "5 problems." in (tmp_path / "page.html").read_text()
    with pytest.raises(ConfigError, match=r"page\.html already exists"):
        count_problems([file], report=tmp_path / "page.html")


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"should be a file of problems and end in \.jsonl"):
        count_problems([tmp_path / "a.csv"])
    with pytest.raises(DataError, match="there is no file"):
        count_problems([tmp_path / "a.jsonl"])
    (tmp_path / "a.jsonl").touch()
    with pytest.raises(DataError, match="no problems found"):
        count_problems([tmp_path / "a.jsonl"])
