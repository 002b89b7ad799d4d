"""Every source reads its rows, true ones where there are some, and refuses an altered schema by the
field's name."""

import json
import shutil
from fnmatch import fnmatch
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from source_rows import BESIDE, ROWS

from whet.data.importers import FORMATS
from whet.data.problems import read_problems
from whet.data.row_files import iterate_rows
from whet.data.sources import Source, SourceFile, list_sources, load_source
from whet.data.sources.prepare import PrepareCounts, prepare_source
from whet.data.sources.raw_files import find_raw_files
from whet.errors import DataError
from whet.types import SPLITS, Json

SHARED = Path(__file__).parents[3] / ".." / "shared" / "data"
SEEN = [name for name in list_sources() if load_source(name)[0].seen == "rows"]
TRUE_ROWS = 3
"""Rows of a true file that altered columns are tried on."""

needs_rows = pytest.mark.skipif(
    not SHARED.is_dir(), reason="the shared data files are not beside the repository"
)


def run(name: str, raw: Path, out: Path) -> PrepareCounts:
    source, definition = load_source(name)
    raw_files = find_raw_files(source, raw, ())
    return prepare_source(source, raw_files, out, name=name, definition=definition)


def write_file(file: Path, rows: list[dict[str, Json]]) -> None:
    """Write rows in the layout that the file's name says."""
    file.parent.mkdir(parents=True, exist_ok=True)
    if file.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), file)
    elif file.suffix == ".csv":
        lines = [list(rows[0]), *([str(value) for value in row.values()] for row in rows)]
        file.write_text("".join(",".join(cells) + "\n" for cells in lines))
    else:
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def list_needed(source: Source, file: SourceFile) -> list[set[str]]:
    """List the columns that rows cannot lack, each with the other names it may have."""
    layout = file.format or source.format
    needed = [{column.split(".")[0]} for column in source.map.values()]
    if layout is not None:
        needed = [set(names.split("/")) for names in FORMATS[layout].required]
    needed += [{rule.column.split(".")[0]} for rule in source.keep]
    return [names for names in needed if not names & source.attach.keys()]


def check_altered(name: str, file: str, rows: list[dict[str, Json]], place: Path) -> None:
    """Rename each needed column in turn; the source must refuse the file and name the column."""
    source, _ = load_source(name)
    spec = next(spec for spec in source.files if any(fnmatch(file, p) for p in spec.names))
    needed = list_needed(source, spec)
    assert needed or spec.format in (None, "game24")
    for number, names in enumerate(needed):
        altered = [{f"x_{k}" if k in names else k: v for k, v in row.items()} for row in rows]
        raw = place / f"altered-{number}"
        write_file(raw / file, altered)
        copy_beside(name, raw)
        with pytest.raises(DataError, match="|".join(f"'{column}" for column in names)):
            run(name, raw, place / f"out-{number}")
        assert not (place / f"out-{number}").exists()


def copy_beside(name: str, raw: Path) -> None:
    for path, value in BESIDE.get(name, {}).items():
        (raw / path).parent.mkdir(parents=True, exist_ok=True)
        (raw / path).write_text(json.dumps(value))


def find_true_files(name: str) -> list[Path]:
    patterns = [p for file in load_source(name)[0].files for p in file.names if p[0] != "*"]
    return [
        file for file in sorted(SHARED.iterdir()) if any(fnmatch(file.name, p) for p in patterns)
    ]


def test_every_source_is_tried_on_true_rows_or_on_its_schema() -> None:
    assert set(SEEN) | ROWS.keys() == set(list_sources())
    assert not set(SEEN) & ROWS.keys()


@needs_rows
@pytest.mark.parametrize("name", SEEN)
def test_a_source_passes_on_true_rows(name: str, tmp_path: Path) -> None:
    source, _ = load_source(name)
    raw = tmp_path / "raw"
    raw.mkdir()
    files = find_true_files(name)
    assert files, "no file of this source is among the shared ones"
    for file in files:
        shutil.copy(file, raw)
    counts = run(name, raw, tmp_path / "out")
    num_rows = sum(1 for file in files for _ in iterate_rows(file))
    assert counts.rows == num_rows == counts.problems.total() + counts.left_out.total()
    assert counts.num_listed == 0, "every row can be read"
    assert counts.tasks.keys() <= set(source.tasks)
    for split in SPLITS:
        if counts.problems[split]:
            problems = read_problems(tmp_path / "out" / f"problems-{split}.jsonl")
            assert len(problems) == counts.problems[split]
            assert {problem.split for problem in problems} == {split}


@needs_rows
@pytest.mark.parametrize("name", SEEN)
def test_true_rows_of_an_altered_schema_are_refused(name: str, tmp_path: Path) -> None:
    file = find_true_files(name)[0]
    rows = [row.fields for row in islice(iterate_rows(file), TRUE_ROWS)]
    check_altered(name, file.name, rows, tmp_path)


@pytest.mark.parametrize("name", ROWS)
def test_a_source_reads_a_row_of_its_schema(name: str, tmp_path: Path) -> None:
    for file, rows in ROWS[name].items():
        write_file(tmp_path / "raw" / file, rows)
    copy_beside(name, tmp_path / "raw")
    counts = run(name, tmp_path / "raw", tmp_path / "out")
    assert counts.problems.total() == (2 if name == "cruxeval" else 1), counts.left_out
    assert counts.tasks.keys() <= set(load_source(name)[0].tasks)


@pytest.mark.parametrize("name", ROWS)
def test_rows_of_an_altered_schema_are_refused(name: str, tmp_path: Path) -> None:
    ((file, rows),) = ROWS[name].items()
    check_altered(name, file, rows, tmp_path)


def test_the_table_in_the_documents_is_that_of_the_files() -> None:
    lines = ["| source | rows | hub | tasks | splits | known |", "|---|---|---|---|---|---|"]
    for name in list_sources():
        source, _ = load_source(name)
        hubs = dict.fromkeys(file.hub or source.hub for file in source.files)
        cells = [
            *(f"`{name}`", source.about, ", ".join(f"`{hub}`" for hub in hubs if hub) or "files"),
            *(", ".join(source.tasks), ", ".join(source.splits), source.seen),
        ]
        lines.append(f"| {' | '.join(cells)} |")
    table = "\n".join(lines) + "\n"
    document = (Path(__file__).parents[3] / "docs" / "sources.md").read_text(encoding="utf-8")
    assert document.endswith(table), f"docs/sources.md should end with:\n{table}"
