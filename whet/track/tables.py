"""Tables of numbers as plain text, for terminals and files."""

from collections.abc import Sequence

NOTHING = "–"


def align(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align rows of cells: the first column to the left, the others to the right.

    >>> align([["part", "mean"], ["correct", "0.5"]])
    ['part     mean', 'correct   0.5']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)]
        lines.append("  ".join([first.ljust(widths[0]), *cells]).rstrip())
    return lines


def format_metric(value: float | None) -> str:
    """Write a number with five digits; None becomes a dash.

    >>> format_metric(0.123456789), format_metric(None), format_metric(-0.0)
    ('0.12346', '–', '0')
    """
    return NOTHING if value is None else f"{value + 0.0:.5g}"


def format_percent(value: float | None) -> str:
    """Write a fraction in percent.

    >>> format_percent(0.1234)
    '12.3 %'
    """
    return NOTHING if value is None else f"{100 * value:.1f} %"
