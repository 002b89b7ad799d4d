"""The report that most tests of the page look at, made once."""

import pytest
from report_fixture import make_report

from whet.reports.report_data import ReportData


@pytest.fixture(scope="session")
def report() -> ReportData:
    return make_report()
