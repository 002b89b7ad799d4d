"""Questions about tables: TableBench and TabMWP."""

from whet.data.importers.base import (
    Draft,
    Fields,
    Format,
    fifth,
    items,
    layout,
    number,
    optional_text,
    row_id,
    scalar,
    table,
    text,
    texts,
    user,
)
from whet.data.importers.wording import BOXED
from whet.types import Json


def tablebench(row: Fields) -> Draft:
    """A chart to be drawn is no answer that can be compared, so those rows are left out."""
    grid = table(row, "table")
    is_chart = text(row, "qtype") == "Visualization"
    return Draft(
        task="table",
        prompt=user(
            markdown(items(grid, "columns"), items(grid, "data")), text(row, "question"), BOXED
        ),
        answer=scalar(row, "answer"),
        source_id=row_id(row, "id"),
        unsupported="the answer is a chart, which a program would have to draw"
        if is_chart
        else None,
    )


def tabmwp(row: Fields) -> Draft:
    """Options, where there are some, are answered by their text; a unit belongs to the question."""
    unit = optional_text(row, "unit")
    payload: dict[str, Json] = {"unit": unit} if unit else {}
    choices = texts(row, "choices") if row.get("choices") else []
    return Draft(
        task="table",
        prompt=user(
            optional_text(row, "table_title"),
            text(row, "table"),
            text(row, "question"),
            f"(Unit: {unit})" if unit else "",
            f"Choose one of: {'; '.join(choices)}" if choices else "",
            BOXED,
        ),
        answer=scalar(row, "answer"),
        payload=payload,
        level=fifth(number(row, "grade"), 8) if row.get("grade") is not None else None,
        source_id=row_id(row, "id"),
    )


def markdown(columns: list[Json], rows: list[Json]) -> str:
    """Write a table with bars.

    >>> print(markdown(["a", "b"], [[1, "x|y"]]))
    | a | b |
    |---|---|
    | 1 | x/y |
    """
    lines = [columns, *(row for row in rows if isinstance(row, list))]
    written = [f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines]
    return "\n".join([written[0], "|" + "---|" * len(columns), *written[1:]])


_TABMWP = "id choices unit table_title table_for_pd row_num column_num solution ques_type ans_type grade split"

FORMATS: dict[str, Format] = {
    "tablebench": layout(
        "TableBench", tablebench, "qtype table question answer", "id qsubtype chart_type"
    ),
    "tabmwp": layout("word problems about tables", tabmwp, "question answer table", _TABMWP),
}
