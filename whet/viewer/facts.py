"""Facts about the package, printed by `package_facts.py` and kept in the cache folder."""

import json
import subprocess
import sys
import threading
from importlib.metadata import version
from pathlib import Path

from whet.errors import DataError
from whet.store.files import read_object, write_json
from whet.types import Json
from whet.viewer.run_folders import ListedRun, Root, read_run_settings

_PROGRAM = "whet.viewer.package_facts"
PACKAGE = Path(__file__).parents[1]


def facts_file(cache: Path) -> Path:
    """Return the path of the facts about the current code, which may change between versions."""
    newest = max(path.stat().st_mtime_ns for path in PACKAGE.rglob("*.py"))
    return cache / f"facts-{version('whet')}-{newest}.json"


class Facts:
    """Meanings of settings and rules of algorithms; empty until they have been loaded."""

    def __init__(self, cache: Path) -> None:
        self._file = facts_file(cache)
        self._facts: dict[str, Json] = {}

    def start(self) -> None:
        """Read the cached facts, or run the program in a thread."""
        try:
            self._facts = read_object(self._file)
        except DataError:
            threading.Thread(target=self._run_program, daemon=True).start()

    def _run_program(self) -> None:
        done = subprocess.run(  # noqa: S603
            [sys.executable, "-m", _PROGRAM], capture_output=True, text=True, check=False
        )
        if done.returncode == 0:
            facts = json.loads(done.stdout)
            write_json(self._file, facts)
            self._facts = facts

    def meaning(self, kind: str, key: str) -> str:
        """Return the meaning of a setting, as in `whet show --explain`; "" if unknown."""
        meanings = self._facts.get("meanings")
        of_kind = meanings.get(kind) if isinstance(meanings, dict) else None
        words = of_kind.get(key) if isinstance(of_kind, dict) else None
        return words if isinstance(words, str) else ""

    def advantage_rule(self, root: Root, run: ListedRun) -> str | None:
        """Return how a run compares rewards; None if it has no algorithm."""
        algo = read_run_settings(root, run).get("algo")
        if not isinstance(algo, dict):
            return None
        name = algo.get("advantage") or self.preset(algo.get("name")).get("advantage")
        return name if isinstance(name, str) else "this algorithm"

    def preset(self, name: Json) -> dict[str, Json]:
        """Return the settings that an algorithm's name stands for; empty if unknown."""
        presets = self._facts.get("presets")
        parts = presets.get(name) if isinstance(presets, dict) and isinstance(name, str) else None
        return parts if isinstance(parts, dict) else {}
