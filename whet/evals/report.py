"""Write a report: one HTML file that needs nothing but itself."""

from pathlib import Path

from whet.evals.page import page
from whet.evals.report_data import ReportData
from whet.store.files import write_atomic


def write_report(data: ReportData, path: Path) -> None:
    """Draw the page and put it in place in one move, so that a reader never sees half of it."""
    write_atomic(path, page(data).encode())
