import pytest
from two_models import TwoModels, make_two_models


@pytest.fixture(scope="session")
def two_models(tmp_path_factory: pytest.TempPathFactory) -> TwoModels:
    return make_two_models(tmp_path_factory.mktemp("two_models"))
