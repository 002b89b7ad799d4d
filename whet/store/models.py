"""Which model a place stands for: a run stands for the checkpoint it handed on, a pipeline for its
last run's."""

from pathlib import Path

from whet.errors import DataError
from whet.store.files import read_json


def model_folder(place: str) -> Path:
    """Find the model of a run or pipeline folder; any other place is given back as it is."""
    path = Path(place)
    runs = sorted(path.glob("[0-9][0-9]-*/summary.json"), reverse=True) if path.is_dir() else []
    for file in [path / "summary.json", *runs]:
        found = _handed_on(file)
        if found is not None:
            return found
    if runs or (path / "ledger.jsonl").is_file():
        raise DataError(f"{place} has no model yet: no training run in it is finished")
    return path


def _handed_on(file: Path) -> Path | None:
    summary = read_json(file) if file.is_file() else None
    model = summary.get("model") if isinstance(summary, dict) else None
    return file.parent / model if isinstance(model, str) else None
