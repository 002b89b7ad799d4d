"""A whole pipeline in a few seconds, and the command line called in this process, for tests of what
a user touches."""

import contextlib
import hashlib
import io
import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from whet.cli import main
from whet.store.run import RunStore
from whet.track.metrics import MACHINE_AREAS, TIME_METRICS

TINY = """kind = "run"
task.name = "game24"
seed = 3

[stages.problems]
kind = "make"
task = { unsolvable = true }

[stages.traces]
kind = "teach"
problems = "@problems"
task = { unsolvable = true }
unsolvable = true
per_problem = 2
workers = 1

[stages.sft]
kind = "sft"
data = "@traces"
steps = 40
batch_size = 32
model = { new = "tiny", positions = 48 }
train = { lr = 5e-3, warmup_steps = 5 }
sampling = { max_tokens = 24 }
validation = { every = 20, samples = 1 }
save = { every = 10 }

[stages.sft_eval]
kind = "eval"
model = { path = "@sft" }
problems = "@problems"
task = { unsolvable = true }
samples = 2
sampling = { max_tokens = 24 }

[stages.rl]
kind = "rl"
model = { path = "@sft" }
problems = "@problems"
steps = 6
problems_per_step = 4
group_size = 4
sampling = { max_tokens = 24, temperature = 1.0 }
final_temperature = 0.5
reward = { weights = { finished = 1.0, lines = -0.1 } }
algo = { name = "game24", kl_coef = 0.01, num_minibatches = 2 }
train = { lr = 1e-3 }
validation = { every = 3, samples = 1 }
save = { every = 2 }

[stages.rl_eval]
kind = "eval"
model = { path = "@rl" }
problems = "@problems"
task = { unsolvable = true }
samples = 2
sampling = { max_tokens = 24 }
engine = { max_num_seqs = 255 }
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    @property
    def last(self) -> str:
        """The last line on stderr, where a mistake is said."""
        return self.err.rstrip("\n").rpartition("\n")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """A finished pipeline: its file, its folder, what it said. Tests that change it work on a
    copy."""

    file: Path
    folder: Path
    said: Said

    def copy(self, to: Path) -> Path:
        """Copy the run folder with its times, so that a change can be seen."""
        return Path(shutil.copytree(self.folder, to, copy_function=shutil.copy2))


def whet(*args: object) -> Said:
    """Call the command line as a shell would, in this process."""
    out, err = io.StringIO(), io.StringIO()
    code = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main([str(arg) for arg in args])
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else int(end.code is not None)
    return Said(code=code, out=out.getvalue(), err=err.getvalue())


def write(file: Path, text: str) -> Path:
    file.write_text(text)
    return file


def files(folder: Path) -> dict[str, tuple[str, int]]:
    """Hash and time of every file below a folder; locks are no content."""
    found = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {
        str(path.relative_to(folder)): (
            hashlib.sha256(path.read_bytes()).hexdigest(),
            path.stat().st_mtime_ns,
        )
        for path in found
    }


def gradient_norms(folder: Path) -> dict[str, list[float]]:
    """Read the gradient norms that a stage logged, by metric, one for each step that has it."""
    norms: dict[str, list[float]] = {}
    for line in (folder / "metrics.jsonl").read_text().splitlines():
        for name, value in json.loads(line).items():
            if name.endswith("grad_norm"):
                norms.setdefault(name, []).append(value)
    return norms


def check_clock(folder: Path, *, samples: bool) -> None:
    """Check that each training step of a stage logged where its time went, and validations nothing
    of it."""
    engine = {"engine/tokens_per_s", "engine/slots_busy"} if samples else set()
    expected = {*TIME_METRICS.values(), "time/step", "memory/peak_gb", *engine}
    for row in RunStore.view(folder).metrics():
        measured = {name for name in row if name.startswith(MACHINE_AREAS)}
        if "validation/pass@1" in row:
            assert measured == set()
            continue
        assert measured == expected
        assert row["time/update"] > 0
        assert sum(row[name] for name in TIME_METRICS.values()) <= row["time/step"] + 1e-6
        if samples:
            assert row["time/sample"] > 0
            assert row["engine/tokens_per_s"] > 0
            assert 0 < row["engine/slots_busy"] <= 1


def half_written(folder: Path) -> list[str]:
    """Files and folders that only a write in progress should leave."""
    names = (".new", ".partial")
    found = [
        path
        for path in folder.rglob("*")
        if path.name.endswith(names) or path.name.startswith(".new-")
    ]
    return sorted(str(path) for path in found)


def cut_after(folder: Path, step: int) -> None:
    """Make a finished run look like one that was killed on its way from a checkpoint to the
    next."""
    (folder / "summary.json").unlink()
    for path in (folder / "checkpoints").iterdir():
        if path.name.isdigit() and int(path.name) > step:
            shutil.rmtree(path)


def documented_metrics() -> dict[str, tuple[set[str], bool]]:
    """Read docs/metrics.md: the stages that log each metric, and whether they always do."""
    page = (Path(__file__).parents[1] / "docs" / "metrics.md").read_text()
    table = re.findall(r"^\| `([^`]+)` \| ([a-z, ]+) \| (.+) \|$", page, re.MULTILINE)
    assert len(table) == len({name for name, _, _ in table})
    return {name: (set(stages.split(", ")), "only " not in text) for name, stages, text in table}


def check_metrics(folder: Path, stage: str, *, also: str = "all") -> None:
    """Compare what a run logged with what docs/metrics.md says its stage logs, and may log also."""
    logged = {name for row in RunStore.view(folder).metrics() for name in row} - {"step"}
    logged = {name.removeprefix("verifier_") for name in logged}
    documented = documented_metrics()
    known = {name for name, (stages, _) in documented.items() if stages & {stage, also, "all"}}
    always = {name for name in known if documented[name][1] and also not in documented[name][0]}
    if "score/process" not in logged:  # parts of a score are the task's
        logged = {name for name in logged if not name.startswith("score/") or name in known}
        always = {name for name in always if not name.startswith("score/")}
    assert logged - known == set(), f"logged and not documented: {logged - known}"
    assert always - logged == set(), f"documented and not logged: {always - logged}"
