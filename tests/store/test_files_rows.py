import os
import subprocess
import sys
from pathlib import Path

import pytest

from whet.errors import DataError
from whet.store.files import (
    Row,
    append_row,
    atomic_folder,
    atomic_path,
    filter_rows,
    read_json,
    read_rows,
    write_atomic,
    write_json,
    write_rows,
)
from whet.store.rollouts import write_rollouts
from whet.types import content_id


def limited(script: str, argument: Path) -> str:
    """Run Python in a child that may not write files above 4 KiB, which fails like a full disk
    does."""
    start = "import resource, sys; from pathlib import Path; path = Path(sys.argv[1])\n"
    start += "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
    environment = {
        **os.environ,
        "PYTHONPATH": str(Path(__file__).parents[2]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, "-c", start + script, str(argument)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    return done.stderr.strip().splitlines()[-1]


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append_row(path, {"a": 1})
    append_row(path, {"b": "ä\n"})
    assert read_rows(path) == [{"a": 1}, {"b": "ä\n"}]
    assert path.read_text(encoding="utf-8") == '{"a":1}\n{"b":"ä\\n"}\n'


def test_half_a_surrogate_pair_is_written_and_comes_back(tmp_path: Path) -> None:
    row: Row = {"a": "é \ud800 \\ud800", "\udfff": None}
    write_rows(tmp_path / "a.jsonl", [row])

    assert read_rows(tmp_path / "a.jsonl") == [row]
    assert "é \\ud800 \\\\ud800" in (tmp_path / "a.jsonl").read_text(encoding="utf-8")
    assert content_id("t", "\ud800") == content_id("t", "\ud800")
    assert len({content_id("t", text) for text in ("\ud800", "\udfff", "\\ud800", "?")}) == 4


def test_whole_files_of_rows_are_written_and_blank_lines_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.jsonl"
    write_rows(path, [{"a": 1}, {"a": 2}])
    path.write_text(path.read_text().replace("\n", "\n\n"))
    assert read_rows(path) == [{"a": 1}, {"a": 2}]


def test_a_broken_line_is_named_by_file_and_number(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": \n{"a": 3}\n')
    with pytest.raises(DataError, match=rf"^broken JSON in {path} line 2: "):
        read_rows(path)
    path.write_bytes(b'{"a": 1}\n{"a": "\xff"}\n')
    with pytest.raises(DataError, match=rf"^broken JSON in {path} line 2: "):
        read_rows(path)
    path.write_text("[1]\n")
    with pytest.raises(DataError, match=r"line 1 holds \[1\], which should be an object"):
        read_rows(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"cannot read .*none\.jsonl: No such file"):
        read_rows(tmp_path / "none.jsonl")


def test_only_a_cut_last_line_is_forgiven_and_only_on_request(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a": 1}\n{"a": 2')
    assert read_rows(path, repair=True) == [{"a": 1}]
    with pytest.raises(DataError, match="line 2"):
        read_rows(path)
    path.write_text('{"a": 1\n{"a": 2}\n')
    with pytest.raises(DataError, match="line 1"):
        read_rows(path, repair=True)


def test_cut_keeps_the_rows_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"step":1}\n{"step":2}\n{"step":3}\n{"ste')
    filter_rows(path, lambda row: row["step"] != 2)
    assert path.read_text() == '{"step":1}\n{"step":3}\n'
    filter_rows(tmp_path / "none.jsonl", lambda row: True)


def test_an_atomic_write_replaces_the_file_and_leaves_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b.txt"
    write_atomic(path, "one")
    write_atomic(path, b"two")
    assert path.read_text() == "two"
    assert list(path.parent.iterdir()) == [path]


def test_a_write_that_fails_midway_leaves_the_old_file_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    with pytest.raises(KeyboardInterrupt), atomic_path(path) as new:
        new.write_text("half")
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_json_files_are_read_back_or_named(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    write_json(path, {"a": [1, None]})
    assert read_json(path) == {"a": [1, None]}
    path.write_text("{")
    with pytest.raises(DataError, match=f"^broken JSON in {path}: "):
        read_json(path)
    with pytest.raises(DataError, match="cannot read"):
        read_json(tmp_path / "none.json")


def test_a_full_disk_leaves_the_old_file_and_nothing_half_written(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    write_atomic(path, "old")
    said = limited(
        "from whet.store.files import write_atomic; write_atomic(path, 'x' * 10000)", path
    )
    assert said.endswith(
        f"DataError: cannot write {path}: File too large; free space or choose another --out"
    )
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_full_disk_takes_back_the_part_of_a_row(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    append_row(path, {"a": 1})
    said = limited(
        "from whet.store.files import append_row; append_row(path, {'a': 'x' * 10000})", path
    )
    assert said.endswith("File too large; free space or choose another --out")
    assert path.read_text() == '{"a":1}\n'


def test_no_space_left_on_a_device_is_said_in_one_sentence() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("this system has no /dev/full")
    with pytest.raises(
        DataError, match=r"^cannot write /dev/full: No space left on device; free space or choose"
    ):
        append_row(Path("/dev/full"), {"a": 1})


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(
        DataError,
        match=r"cannot write .*a\.json: a file is where a folder is needed; choose another --out",
    ):
        write_json(tmp_path / "file" / "a.json", {})
    with pytest.raises(DataError, match="cannot write"):
        write_rollouts(tmp_path / "file" / "a.parquet", [])


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_number_of_json_is_refused_and_in_our_own_files_is_null(
    tmp_path: Path, number: str
) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"a":1.5}}\n{{"a":{number}}}\n')
    with pytest.raises(DataError, match=rf"broken JSON in .*a\.jsonl line 2: {number} is "):
        read_rows(path)
    assert read_rows(path, repair=True) == [{"a": 1.5}, {"a": None}]
    filter_rows(path, lambda row: True)
    assert path.read_text() == '{"a":1.5}\n{"a":null}\n'


def test_what_is_no_number_of_json_is_never_written(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    for write in (append_row, lambda path, row: write_rows(path, [row])):
        with pytest.raises(DataError, match="cannot be written as JSON"):
            write(path, {"a": float("nan")})
    assert not path.exists()
    write_json(tmp_path / "b.json", {"a": [float("inf"), 1.5]})
    assert read_json(tmp_path / "b.json") == {"a": [None, 1.5]}


def test_lines_that_nest_beyond_measure_are_named(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text('{"a":' + "[" * 200_000 + "]" * 200_000 + "}\n")
    with pytest.raises(DataError, match=r"broken JSON in .*a\.jsonl line 1"):
        read_rows(path)


def test_a_pipe_or_a_folder_is_not_replaced(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, what in (("pipe", "not a regular file"), ("folder", "a folder")):
        for write in (write_json, lambda path, row: write_rows(path, [row])):
            with pytest.raises(DataError, match=f"{name}: it is {what}; choose another --out"):
                write(tmp_path / name, {})
        with pytest.raises(DataError, match=f"{name}: it is {what}"):
            write_rollouts(tmp_path / name, [])
    assert (tmp_path / "pipe").is_fifo() and sorted(p.name for p in tmp_path.iterdir()) == [
        "folder",
        "pipe",
    ]


def test_a_folder_that_a_kill_left_under_its_old_name_survives_the_next_write(
    tmp_path: Path,
) -> None:
    old = tmp_path / ".a.old"
    old.mkdir()
    (old / "file").write_text("kept")
    with pytest.raises(ZeroDivisionError), atomic_folder(tmp_path / "a") as new:
        (new / "file").write_text(str(1 // 0))
    assert (tmp_path / "a" / "file").read_text() == "kept"
    assert [path.name for path in tmp_path.iterdir()] == ["a"]
