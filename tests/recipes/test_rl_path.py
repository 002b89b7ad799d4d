"""The files that docs/architecture.md names for one RL step are those that a step goes through."""

import re
import sys
import threading
from pathlib import Path
from types import FrameType

from small import Pipeline, whet, write

from bench.trace_files import Tracer

ROOT = Path(__file__).parents[2]
RL = """kind = "rl"
task = "{task}"
model = {{ path = "{model}" }}
steps = 2
problems_per_step = 4
group_size = 8
sampling = {{ max_tokens = 24 }}
validation = {{ every = 0 }}
algo = {{ kl_coef = 0.01 }}
grading = {{ workers = 0 }}
"""


class StepTracer(Tracer):
    """Counts from where a step takes its groups to where it ends."""

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        if event == "call" and frame.f_code.co_qualname == "RolloutQueue.take":
            self.is_counting = True
        elif event == "call" and frame.f_code.co_qualname == "TrainingLoop.end_step":
            self.is_counting = False
        super().see(frame, event, argument)


def test_a_step_enters_the_files_that_the_page_names_and_no_others(
    tiny: Pipeline, tmp_path: Path
) -> None:
    task = f"{ROOT}/tests/finished.py:Finished"
    file = write(tmp_path / "rl.toml", RL.format(task=task, model=tiny.folder / "03-sft"))
    tracer = StepTracer(ROOT)
    tracer.start()
    try:
        said = whet("rl", file, "--out", tmp_path / "run")
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert said.code == 0, said.err

    page = (ROOT / "docs" / "architecture.md").read_text()
    section = page.split("### The files of one RL step")[1].split("\n## ")[0]
    first = re.findall(r"^\d\. `(whet/\S+\.py)`", section, re.MULTILINE)
    others = re.findall(r"^- `(whet/\S+\.py)`", section, re.MULTILINE)
    leaves = tuple(re.findall(r"^- `(whet/\S+/)`", section, re.MULTILINE))
    assert len(first) == 8 and len(others) > 8
    assert [name for name in first + others if name not in tracer.calls] == [], "named, not entered"
    entered = {name for name in tracer.calls if name.startswith("whet/")}
    unnamed = entered - {*first, *others}
    assert sorted(name for name in unnamed if not name.startswith(leaves)) == [], (
        "entered, but not in the lists of docs/architecture.md"
    )
    assert [leaf for leaf in leaves if not any(name.startswith(leaf) for name in unnamed)] == []
