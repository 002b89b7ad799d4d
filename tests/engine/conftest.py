"""Every test that asks for `build` runs with each kind of cache."""

import pytest
from engines import BUILDS

from whet.engine.kv_cache import BuildCache


@pytest.fixture(params=list(BUILDS))
def build(request: pytest.FixtureRequest) -> BuildCache:
    return BUILDS[request.param]
