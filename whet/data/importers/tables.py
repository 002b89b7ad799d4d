"""Questions about tables: TableBench and TabMWP."""

from whet.data.importers.base import (
    BOXED,
    Draft,
    Fields,
    Format,
    layout,
    to_level,
    user,
)
from whet.types import Json

CHART = "the answer is a chart, which a program would have to draw"


def tablebench(row: Fields) -> Draft:
    """Leave out rows that ask for a chart, which cannot be compared."""
    grid = row.table("table")
    return Draft(
        task="table",
        prompt=user(markdown(grid), row.text("question"), BOXED),
        answer=row.scalar("answer"),
        source_id=row.row_id("id"),
        unsupported=CHART if row.text("qtype") == "Visualization" else None,
    )


def tabmwp(row: Fields) -> Draft:
    """Ask for the text of an option where there are options; a unit is part of the question."""
    unit = row.optional_text("unit")
    payload: dict[str, Json] = {"unit": unit} if unit else {}
    choices = row.texts("choices") if row.get("choices") else []
    return Draft(
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
        source_id=row.row_id("id"),
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


_TABMWP = (
    "id choices unit table_title table_for_pd row_num column_num solution ques_type ans_type "
    "grade split"
)

FORMATS: dict[str, Format] = {
    "tablebench": layout(
        "TableBench", tablebench, "qtype table question answer", "id qsubtype chart_type"
    ),
    "tabmwp": layout("word problems about tables", tabmwp, "question answer table", _TABMWP),
}
