"""Every test that asks for `build` runs with each kind of cache."""

import pytest
from engines import BUILDS

from whet.engine.runner import Build


@pytest.fixture(params=list(BUILDS))
def build(request: pytest.FixtureRequest) -> Build:
    return BUILDS[request.param]
