"""Questions about tables: HiTab, MultiHiertt, FinQA, TableBench, TabMWP."""

from html.parser import HTMLParser

from whet.data.importers.base import (
    BOXED,
    Fields,
    ParsedRow,
    Reader,
    to_level,
    user,
    worked_response,
    write_number,
)
from whet.errors import DataError
from whet.types import Json

SEVERAL = "If there are several answers, box them together, with | between them."
_TOLERANCE = 1e-3
"""FinQA's answers are results of a calculation, rounded in the data."""
MAX_CELLS = 10_000
CHART = "the answer is a chart, which a program would have to draw"


def hitab(row: Fields) -> ParsedRow:
    """Read a question about a table of texts; it may have several answers."""
    grid = row.table("table").entries("texts")
    answers = [Fields(answer=value).scalar("answer") for value in row.entries("answer")]
    prompt = user(write_table(grid), row.text("question"), BOXED, SEVERAL)
    return ParsedRow(task="table", prompt=prompt, answer=" | ".join(answers))


def multihiertt(row: Fields) -> ParsedRow:
    """Read a question about HTML tables; paragraphs are not shown, as in Reasoning360."""
    asked = row.table("qa")
    tables = [write_table(read_html(table)) for table in row.texts("tables")]
    prompt = user(*tables, asked.text("question"), BOXED)
    return ParsedRow(
        task="table", prompt=prompt, answer=asked.scalar("answer"), source_id=row.row_id("uid")
    )


def finqa(row: Fields) -> ParsedRow:
    """Read a page of a report, its table between two texts, and a question about both."""
    pages = [
        " ".join(str(line) for line in row.entries(name)) for name in ("pre_text", "post_text")
    ]
    grid = write_table(row.entries("table"))
    return ParsedRow(
        task="table",
        prompt=user(pages[0], grid, pages[1], row.text("question"), BOXED),
        answer=row.scalar("answer"),
        payload={"tolerance": _TOLERANCE},
    )


def tablebench(row: Fields) -> ParsedRow:
    """Leave out rows that ask for a chart, which cannot be compared."""
    grid = row.table("table")
    return ParsedRow(
        task="table",
        prompt=user(markdown(grid), row.text("question"), BOXED),
        answer=row.scalar("answer"),
        unsupported=CHART if row.text("qtype") == "Visualization" else None,
    )


def tabmwp(row: Fields) -> ParsedRow:
    """Ask for the text of an option, if there are options; a unit is part of the question."""
    unit = row.optional_text("unit")
    payload: dict[str, Json] = {"unit": unit} if unit else {}
    choices = row.texts("choices") if row.get("choices") else []
    solution = row.optional_text("solution")
    gold = row.scalar("answer")
    return ParsedRow(
        task="table",
        prompt=user(
            row.optional_text("table_title"),
            row.text("table"),
            row.text("question"),
            f"(Unit: {unit})" if unit else "",
            f"Choose one of: {'; '.join(choices)}" if choices else "",
            BOXED,
        ),
        answer=gold,
        payload=payload,
        responses=(worked_response(solution, gold),) if solution else (),
        level=to_level(row.number("grade"), 8) if row.get("grade") is not None else None,
    )


def markdown(grid: Fields) -> str:
    """Write a table in Markdown.

    >>> print(markdown(Fields(columns=["a", "b"], data=[[1, "x|y"]])))
    | a | b |
    |---|---|
    | 1 | x/y |
    """
    columns = grid.entries("columns")
    rows = [columns, *(row for row in grid.entries("data") if isinstance(row, list))]
    lines = [f"| {' | '.join(str(cell).replace('|', '/') for cell in row)} |" for row in rows]
    return "\n".join([lines[0], "|" + "---|" * len(columns), *lines[1:]])


def write_table(rows: list[Json]) -> str:
    """Write rows of cells in Markdown; short rows are padded.

    >>> print(write_table([["a", "b"], [1.0]]))
    | a | b |
    |---|---|
    | 1 |  |
    """
    grid = [cells for cells in rows if isinstance(cells, list)]
    if not grid or len(grid) < len(rows):
        raise DataError("a table should be a list of rows, and each row a list of cells")
    width = max(len(cells) for cells in grid)
    lines = [
        f"| {' | '.join([*(_write_cell(cell) for cell in cells), *[''] * (width - len(cells))])} |"
        for cells in grid
    ]
    return "\n".join([lines[0], "|" + "---|" * width, *lines[1:]])


def _write_cell(cell: Json) -> str:
    plain = (
        cell if isinstance(cell, str | int | float) and not isinstance(cell, bool) else str(cell)
    )
    return " ".join(write_number(plain).split()).replace("|", "/")


def read_html(table: str) -> list[Json]:
    """Read the cells of a table; a wide cell is followed by empty ones.

    >>> read_html("<table><tr><td colspan=2>a</td><td>b</td></tr></table>")
    [['a', '', 'b']]
    """
    reader = _TableReader()
    reader.feed(table)
    rows: list[Json] = [list[Json](cells) for cells in reader.rows if cells]
    if not rows:
        raise DataError("field 'tables' should hold tables in HTML, with tr and td")
    return rows


class _TableReader(HTMLParser):
    """Collects the texts of cells by row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._num_covered = 0
        self._is_in_cell = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        elif tag in ("td", "th") and self.rows:
            span = dict(attrs).get("colspan") or "1"
            width = int(span) if span.isdecimal() and len(span) < 4 else 1
            if sum(map(len, self.rows)) + width > MAX_CELLS:
                raise DataError(f"a table has more than {MAX_CELLS:,} cells")
            self._num_covered = max(width, 1) - 1
            self._is_in_cell = True
            self.rows[-1].append("")

    def handle_data(self, data: str) -> None:
        if self._is_in_cell:
            self.rows[-1][-1] += data

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._is_in_cell:
            self._is_in_cell = False
            self.rows[-1][-1] = self.rows[-1][-1].strip()
            self.rows[-1] += [""] * self._num_covered


READERS: dict[str, Reader] = {
    "hitab": hitab,
    "multihiertt": multihiertt,
    "finqa": finqa,
    "tablebench": tablebench,
    "tabmwp": tabmwp,
}
