"""Rows come out of every kind of file, one at a time, and what is broken is named by file and
line."""

import gzip
import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from whet.data import row_files
from whet.data.row_files import BATCH_BYTES, iterate_rows, to_json_value
from whet.errors import DataError
from whet.store.files import Row


def rows(file: Path) -> list[Row]:
    return [row.fields for row in iterate_rows(file)]


def written(folder: Path, name: str, content: str | bytes) -> Path:
    file = folder / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_json_lines_are_read_with_their_line_numbers_and_empty_lines_are_none(
    tmp_path: Path,
) -> None:
    file = written(tmp_path, "a.jsonl", '\ufeff{"a": 1}\n\n  \n{"a": "é"}')
    assert [(row.location, row.fields) for row in iterate_rows(file)] == [
        ("line 1", {"a": 1}),
        ("line 4", {"a": "é"}),
    ]


def test_packed_json_lines_are_read(tmp_path: Path) -> None:
    file = written(tmp_path, "a.jsonl.gz", gzip.compress(b'{"a": 1}\n{"a": 2}\n'))
    assert rows(file) == [{"a": 1}, {"a": 2}]


def test_a_json_list_is_read_in_pieces_and_lists_in_it_become_values(tmp_path: Path) -> None:
    long = "x" * 200_000
    file = written(
        tmp_path, "a.json", json.dumps([{"a": long}, [4, 9, 10, 13], {"a": {"b": "]"}}], indent=1)
    )
    assert rows(file) == [{"a": long}, {"values": [4, 9, 10, 13]}, {"a": {"b": "]"}}]
    assert [row.location for row in iterate_rows(file)] == ["row 1", "row 2", "row 3"]


def test_a_json_file_of_lines_is_read_as_lines(tmp_path: Path) -> None:
    assert rows(written(tmp_path, "a.json", '{"a": 1}\n{"a": 2}\n')) == [{"a": 1}, {"a": 2}]


def test_an_empty_json_list_has_no_rows(tmp_path: Path) -> None:
    assert rows(written(tmp_path, "a.json", " [ ] ")) == []


def test_csv_knows_quotes_and_lines_in_cells_and_a_byte_order_mark(tmp_path: Path) -> None:
    file = written(tmp_path, "a.csv", '\ufeffq,a\r\n"one, ""two""\nthree",4\r\n\r\nx,y\r\n')
    assert [(row.location, row.fields) for row in iterate_rows(file)] == [
        ("line 3", {"q": 'one, "two"\nthree', "a": "4"}),
        ("line 5", {"q": "x", "a": "y"}),
    ]


def test_tabs_part_the_cells_of_tsv(tmp_path: Path) -> None:
    assert rows(written(tmp_path, "a.tsv", "q\ta\n1,5\t2\n")) == [{"q": "1,5", "a": "2"}]


def test_parquet_gives_plain_values(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    table = {
        "prompt": [[{"role": "user", "content": "2 + 2"}], [{"role": "user", "content": "3"}]],
        "score": [0.5, float("nan")],
        "day": [date(2024, 1, 2), None],
        "price": [Decimal("1.50"), None],
        "raw": [b"text", b"\xff\x00"],
        "map": pa.array([[("a", 1)], []], pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(table), file)
    assert rows(file) == [
        {
            "prompt": [{"role": "user", "content": "2 + 2"}],
            "score": 0.5,
            "day": "2024-01-02",
            "price": "1.50",
            "raw": "text",
            "map": [["a", 1]],
        },
        {
            "prompt": [{"role": "user", "content": "3"}],
            "score": None,
            "day": None,
            "price": None,
            "raw": "/wA=",
            "map": [],
        },
    ]


def test_a_value_is_made_plain_at_any_depth() -> None:
    assert to_json_value({"a": [(1, float("nan"))], 2: date(2024, 1, 2)}) == {
        "a": [[1, None]],
        "2": "2024-01-02",
    }


def test_nested_parquet_is_decoded_a_little_at_a_time(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    tests = [{"inputs": [f"{index:04d}" * (1 << 16)] * 4} for index in range(128)]
    pq.write_table(
        pa.table({"tests": tests}),
        file,
        compression="zstd",
        use_dictionary=False,
        write_batch_size=8,
    )
    del tests
    before, peak, lengths = pa.total_allocated_bytes(), 0, []
    for row in iterate_rows(file):
        value = row.fields["tests"]
        assert isinstance(value, dict) and isinstance(value["inputs"], list)
        lengths.append(len(str(value["inputs"][3])))
        peak = max(peak, pa.total_allocated_bytes() - before)
    assert lengths == [1 << 18] * 128
    assert peak < 4 * BATCH_BYTES < 128 << 20, "128 MiB of text should not be in memory together"


def test_all_row_groups_are_read_and_rows_are_numbered_through(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": list(range(10))}), file, row_group_size=3)
    assert [(row.location, row.fields["a"]) for row in iterate_rows(file)] == [
        (f"row {n + 1}", n) for n in range(10)
    ]


@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv", "a.parquet", "a.jsonl.gz"])
def test_progress_adds_up_to_the_size_of_the_file(name: str, tmp_path: Path) -> None:
    file, number = tmp_path / name, 3000
    lines = "".join(json.dumps({"a": f"é{index}"}) + "\n" for index in range(number))
    if name == "a.parquet":
        pq.write_table(pa.table({"a": list(range(number))}), file)
    else:
        content = {
            "a.json": "[" + ",".join(lines.splitlines()) + "]",
            "a.csv": "a\n" + "é\n" * number,
        }.get(name, lines)
        file.write_bytes(
            gzip.compress(content.encode()) if name.endswith(".gz") else content.encode()
        )
    counts: list[int] = []
    assert sum(1 for _ in iterate_rows(file, advance=counts.append)) == number
    assert abs(sum(counts) - file.stat().st_size) <= 8


def test_nan_is_read_as_null_and_infinity_is_refused(tmp_path: Path) -> None:
    assert rows(written(tmp_path, "a.jsonl", '{"a": NaN}')) == [{"a": None}]
    assert rows(written(tmp_path, "a.json", '[{"a": NaN}]')) == [{"a": None}]
    with pytest.raises(DataError, match=r"a.jsonl line 1: Infinity is not a number"):
        rows(written(tmp_path, "a.jsonl", '{"a": Infinity}'))


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.jsonl", '{"a": 1}\n{"a": \n', "broken JSON in .*a.jsonl line 2"),
        (
            "a.jsonl",
            '{"a": 1}\n[1, 2]\n',
            r"a.jsonl line 2 holds \[1, 2\], which should be an object",
        ),
        ("a.jsonl", b'{"a": "\xff"}\n', "a.jsonl is not UTF-8 text"),
        ("a.jsonl", "[" * 100_000, "broken JSON in .*a.jsonl line 1"),
        ("a.json", '[{"a": 1}, {"a": ]', "broken JSON in .*a.json row 2"),
        ("a.json", '[{"a": 1} {"a": 2}]', "broken JSON in .*a.json row 2: '{' where ',' should be"),
        ("a.json", '[{"a": 1}, 7]', "a.json row 2 is '7]', which should be an object"),
        ("a.json", '[{"a": 1}', "broken JSON in .*a.json row 2: 'the end' where ',' should be"),
        ("a.json", "[" * 100_000, "broken JSON in .*a.json row 1"),
        ("a.csv", "a,b\n1,2\n1\n", "a.csv line 3 has 1 cells where the header has 2"),
        ("a.csv", "a,a\n1,2\n", "a.csv line 1 should name every column once"),
        ("a.csv", 'a,b\n"1"x,2\n', "a.csv line 2 is not CSV"),
        ("a.csv", "", "a.csv line 1 should name every column once"),
        ("a.parquet", "PAR1 and no more", "cannot read .*a.parquet"),
        ("a.jsonl.gz", "not packed", "cannot read .*a.jsonl.gz"),
        (
            "a.jsonl.gz",
            gzip.compress(b'{"a": 1}\n' * 1000, mtime=0)[:-20],
            "cannot read .*a.jsonl.gz",
        ),
        ("a.txt", "x", "a.txt is not a data file: its name should end in .jsonl"),
    ],
)
def test_what_cannot_be_read_is_said_in_one_sentence(
    name: str, content: str | bytes, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=sentence):
        rows(written(tmp_path, name, content))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"there is no file .*a\.jsonl"):
        rows(tmp_path / "a.jsonl")


def test_a_row_that_would_fill_the_memory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_files, "MAX_ROW_BYTES", 1000)
    file = written(tmp_path, "a.json", '[{"a": "' + "x" * 300_000)
    with pytest.raises(DataError, match=r"broken JSON in .*a\.json row 1"):
        rows(file)
    with pytest.raises(DataError, match=r"a\.jsonl line 2 is longer than"):
        rows(written(tmp_path, "a.jsonl", '{"a": 1}\n' + "x" * 1001))


def test_an_object_of_rows_by_number_is_a_list_of_rows(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{"7": {"q": "a"}, "8": {"q": "b", "id": "own"}}')
    rows = [(row.location, row.fields) for row in iterate_rows(file)]
    assert rows == [("row 1", {"id": "7", "q": "a"}), ("row 2", {"id": "own", "q": "b"})]
    file.write_text('{"7": {"q": "a"}, "8": 5}')
    with pytest.raises(DataError, match="row 2 holds 5, which should be an object"):
        list(iterate_rows(file))


def test_an_object_over_several_lines_is_one_row(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    file.write_text('{\n  "train": [1],\n  "test": 2\n}\n')
    assert [row.fields for row in iterate_rows(file)] == [{"train": [1], "test": 2}]
    file.write_text('{\n  "train": [1],\n')
    with pytest.raises(DataError, match="broken JSON"):
        list(iterate_rows(file))
