"""Questions about tables: TableBench and TabMWP."""

from whet.data.importers.base import BOXED, Fields, ParsedRow, Reader, to_level, user
from whet.types import Json

CHART = "the answer is a chart, which a program would have to draw"


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
    """Ask for the text of an option where there are options; a unit is part of the question."""
    unit = row.optional_text("unit")
    payload: dict[str, Json] = {"unit": unit} if unit else {}
    choices = row.texts("choices") if row.get("choices") else []
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
        answer=row.scalar("answer"),
        payload=payload,
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


READERS: dict[str, Reader] = {
    "tablebench": tablebench,
    "tabmwp": tabmwp,
}
