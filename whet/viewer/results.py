"""Tables of results: leaderboards, comparisons and studies that other commands leave as JSON."""

from whet.errors import DataError
from whet.types import Json
from whet.viewer.runs import Root, read_small

NAMES = ("leaderboard", "compare", "comparison", "study", "report", "scores")
SUMMARY = "summary.json"


def list_results(root: Root) -> list[Json]:
    """List the files that are tables of results, by their names; pipelines' summaries too."""
    entries: list[Json] = []
    for name in root.files():
        stem = name.rpartition("/")[2].removesuffix(".json")
        kind = next((known for known in NAMES if stem.startswith(known)), None)
        if name.endswith(".json") and kind is not None:
            entries.append({"file": name, "kind": kind})
        elif name.endswith(SUMMARY) and name.removesuffix(SUMMARY).rstrip("/") not in root.runs():
            entries.append({"file": name, "kind": "pipeline"})
    return entries


def read_result(root: Root, name: str) -> Json:
    """Read one of these files."""
    if name not in {row["file"] for row in list_results(root) if isinstance(row, dict)}:
        raise DataError(f"{name[:80]!r} is no table of results in this folder")
    return {"file": name, "value": read_small(root, root.files()[name])}
