"""The requests of the pages under /api, answered as JSON."""

import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from whet.errors import DataError
from whet.types import Json
from whet.viewer import maps, query
from whet.viewer.detail import RolloutFiles, find_source, read_rollout
from whet.viewer.facts import Facts
from whet.viewer.index import RolloutIndex
from whet.viewer.loose_files import Datasets, list_results, read_result_file
from whet.viewer.overview import Overview
from whet.viewer.query import Filters, parse_count
from whet.viewer.run_folders import Root

WAIT_SECONDS = 0.25
"""How long a request waits for new rollouts to be read before it answers with what is ready."""
FIRST_INDEX_SECONDS = 30.0
LOOK_SECONDS = 1.0
"""A run's folder is scanned for new files at most this often, so a filter seldom costs a scan."""
MAX_SERIES = 64
MAX_SIBLINGS = 64
Params = Mapping[str, str]


class Api:
    """Answers the requests of the pages."""

    def __init__(self, root: Root, cache: Path, facts: Facts) -> None:
        self._root = root
        self._cache = cache
        self._facts = facts
        self._overview = Overview(root, facts)
        self._files = RolloutFiles(root, cache)
        self._datasets = Datasets(root)
        self._indexes: dict[str, RolloutIndex] = {}
        self._looked: dict[str, float] = {}
        self._lock = threading.Lock()

    def routes(self) -> dict[str, Callable[[Params], Json]]:
        return {
            "runs": self.runs,
            "run": self.run,
            "metrics": self.metrics,
            "compare": self.compare,
            "rollouts": self.rollouts,
            "rollout": self.rollout,
            "difficulty": self.difficulty,
            "problem": self.problem,
            "agreement": self.agreement,
            "datasets": self.datasets,
            "dataset": self.dataset,
            "results": self.results,
            "result": self.result,
        }

    def runs(self, params: Params) -> Json:
        return {
            "folder": self._root.folder.name,
            "runs": self._overview.list_runs(),
            "reports": [*self._root.reports()],
        }

    def run(self, params: Params) -> Json:
        return self._overview.read_run(self._root.run(params["run"]))

    def metrics(self, params: Params) -> Json:
        """Return some metrics of a run as series, and the names of all."""
        run = self._root.run(params["run"])
        file = self._overview.metrics(run)
        names = [name for name in params.get("names", "").split(",") if name][:MAX_SERIES]
        return {
            "names": [*sorted(file.series)],
            "step": file.last_step,
            "series": file.to_json(names),
            "intervals": self._overview.read_intervals(run, names),
        }

    def compare(self, params: Params) -> Json:
        return self._overview.compare(self._root.run(params["a"]), self._root.run(params["b"]))

    def rollouts(self, params: Params) -> Json:
        index = self._index(params)
        listed = query.list_rollouts(
            index.columns,
            Filters.from_params(params),
            sort=params.get("sort", "-step"),
            offset=parse_count(params.get("offset"), 0, 10**9),
            limit=parse_count(params.get("limit"), 50, query.MAX_ROWS),
        )
        return {**listed, **_state(index)}

    def rollout(self, params: Params) -> Json:
        """Return one rollout in full, and its siblings."""
        run = self._root.run(params["run"])
        source = find_source(self._root, run, params["file"])
        row = parse_count(params.get("row"), 0, 2**31 - 1)
        index = self._index(params)
        if index.progress is not None:  # a link to one rollout is worth waiting for
            index.refresh(wait=FIRST_INDEX_SECONDS)
        at, siblings = query.find_siblings(index.columns, source.name, row, MAX_SIBLINGS)
        rewards = [
            query.finite(value) for value in index.columns.numbers["reward"][[at, *siblings]]
        ]
        detail = read_rollout(
            self._files,
            run,
            source,
            row,
            rule=self._facts.advantage_rule(self._root, run),
            rewards=rewards,
        )
        filters = Filters.from_params(params)
        return {
            **query.describe_full(index.columns, at),
            **detail,
            "sample": sum(sibling < at for sibling in siblings) + 1,
            "siblings": [query.describe_full(index.columns, sibling) for sibling in siblings],
            "neighbours": query.find_neighbours(
                index.columns, at, filters, params.get("sort", "-step")
            ),
        }

    def difficulty(self, params: Params) -> Json:
        index = self._index(params)
        filters = Filters.from_params(params)
        most = parse_count(params.get("bins"), maps.MAX_BINS, maps.MAX_BINS)
        return {**maps.difficulty_map(index.columns, filters, most), **_state(index)}

    def problem(self, params: Params) -> Json:
        index = self._index(params)
        return {**maps.answer_distribution(index.columns, params["problem"]), **_state(index)}

    def agreement(self, params: Params) -> Json:
        index = self._index(params)
        names = maps.list_part_names(index.columns)
        preferred = [name for name in ("judge", "asked") if name in names]
        part = params.get("part") or (preferred + names + [""])[0]
        crossed = maps.cross_verdicts(index.columns, part) if part in names else None
        return {"parts": list(names), "table": crossed, **_state(index)}

    def datasets(self, params: Params) -> Json:
        return {"files": self._datasets.list()}

    def dataset(self, params: Params) -> Json:
        return self._datasets.read(
            params["file"],
            text=params.get("q", ""),
            offset=parse_count(params.get("offset"), 0, 10**9),
            limit=parse_count(params.get("limit"), 50, query.MAX_ROWS),
        )

    def results(self, params: Params) -> Json:
        return {"files": list_results(self._root)}

    def result(self, params: Params) -> Json:
        return read_result_file(self._root, params["file"])

    def report(self, folder: str) -> Path:
        """Find the file of a report by its folder, which is never used as a path."""
        path = self._root.reports().get(folder)
        if path is None:
            raise DataError(f"there is no report in {folder[:80]!r}")
        return self._root.open_path(path)

    def _index(self, params: Params) -> RolloutIndex:
        run = self._root.run(params["run"])
        with self._lock:
            index = self._indexes.get(run.id)
            if index is None:
                index = self._indexes[run.id] = RolloutIndex(self._root, run, self._cache)
            is_due = time.monotonic() - self._looked.get(run.id, -LOOK_SECONDS) >= LOOK_SECONDS
            if is_due:
                self._looked[run.id] = time.monotonic()
        if is_due or index.progress is not None:
            index.refresh(wait=WAIT_SECONDS)
        return index


def _state(index: RolloutIndex) -> dict[str, Json]:
    progress = None if index.progress is None else index.progress.to_json()
    broken: list[Json] = list(index.broken.values())
    return {"indexing": progress, "broken": broken}
