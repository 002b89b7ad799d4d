import pytest
from contest import Contest, make_contest


@pytest.fixture(scope="session")
def contest(tmp_path_factory: pytest.TempPathFactory) -> Contest:
    return make_contest(tmp_path_factory.mktemp("contest"))
