"""Every file in experiments/ is a sound one: it says its kind first and what it shows next, and its
settings load."""

from pathlib import Path

import pytest

from whet.config import Config, kind_of, load_settings
from whet.pipeline.pipeline_config import STAGE_KINDS, PipelineConfig
from whet.study.study_file import StudyConfig, load_study

FILES = sorted((Path(__file__).parents[1] / "experiments").glob("*.toml"))
CLASSES: dict[str, type[Config]] = {"run": PipelineConfig, "study": StudyConfig, **STAGE_KINDS}


def by_name(file: Path) -> str:
    return file.stem


def test_there_are_experiments() -> None:
    assert {"game24_cpu", "game24_gpu"} <= {file.stem for file in FILES}


@pytest.mark.parametrize("file", FILES, ids=by_name)
def test_a_file_says_its_kind_in_its_first_line_and_what_it_shows_in_its_second(file: Path) -> None:
    first, second, *_ = file.read_text().splitlines()
    assert first == f'kind = "{kind_of(file)}"'
    assert second.startswith("# ")


@pytest.mark.parametrize("file", FILES, ids=by_name)
def test_a_file_loads_with_the_class_of_its_kind(file: Path) -> None:
    loaded = load_settings(CLASSES[kind_of(file)], file, [])
    assert file.name in loaded.origin.values()


@pytest.mark.parametrize("file", [file for file in FILES if kind_of(file) == "run"], ids=by_name)
def test_stages_refer_to_earlier_stages_only(file: Path) -> None:
    seen: set[str] = set()
    for name, stage in load_settings(PipelineConfig, file, []).config.stages.items():
        references = {word for word in _texts(stage.model_dump()) if word.startswith("@")}
        assert references <= {f"@{earlier}" for earlier in seen}, name
        seen.add(name)


@pytest.mark.parametrize("file", [file for file in FILES if kind_of(file) == "study"], ids=by_name)
def test_all_pipelines_of_a_study_load(file: Path) -> None:
    assert len(load_study(file, []).config.seeds) == 3


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [text for item in value.values() for text in _texts(item)]
    return [value] if isinstance(value, str) else []
