"""Write what the viewer says of metrics, from the table in docs/metrics.md.

    python tools/metric_meanings.py

The package has no documents, so the words are in a module of the pages; a test compares the two.
"""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODULE = ROOT / "whet" / "viewer" / "static" / "js" / "metrics.js"
ROW = re.compile(r"^\| `([^`]+)` \| [^|]* \| (.+) \|$", re.MULTILINE)


def render_module() -> str:
    """Give the module's text: the meaning of each metric that has a name of its own."""
    rows = ROW.findall((ROOT / "docs" / "metrics.md").read_text())
    meanings = {name: meaning.replace("`", "") for name, meaning in rows}
    head = "// What metrics mean, written by tools/metric_meanings.py from docs/metrics.md.\n\n"
    return f"{head}export const METRICS = {json.dumps(meanings, ensure_ascii=False, indent=2)};\n"


if __name__ == "__main__":
    MODULE.write_text(render_module())
