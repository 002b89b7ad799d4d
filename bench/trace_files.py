"""Count the files of whet that one RL step and one grading of mathematics go through.

    python bench/trace_files.py [--baseline ../before]

Both are found by a profiler that sees every call, in a process that runs the command line. A step
is what lies between two rows of a run's metrics.jsonl: the third of the GRPO stage of
bench/same/rl.toml, without validation or a checkpoint. A grading is what `Task.score` calls for the
last of three responses that `whet grade` is given, from the text to the verdict. Importing a module
does not count as entering it. With --baseline the same is counted in another checkout, by its own
copies of these files where it has them, and what it has more or less is marked.
"""

import argparse
import json
import os
import runpy
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from pathlib import Path
from types import CodeType, FrameType

HERE = Path(__file__).resolve().parents[1]
RESPONSES = (
    r"Adding the two, \frac{1}{2} + \frac{1}{3} is \boxed{\frac{5}{6}}.",
    r"It is \boxed{0.5}.",
    r"We have $2x + 3 = 12$, so $2x = 9$. Therefore the answer is $\boxed{\frac{18}{4}}$.",
)
STAGE = "03-grpo"
"""Of bench/same/rl.toml."""
GOLDS = (r"\frac{5}{6}", r"\frac{1}{2}", r"4\frac{1}{2}")


class Tracer:
    """Counts calls by file of the package, while `is_counting`."""

    def __init__(self, package: Path) -> None:
        self.calls: Counter[str] = Counter()
        self.is_counting = False
        self._package = f"{package}{os.sep}"

    def start(self) -> None:
        threading.setprofile(self.see)
        sys.setprofile(self.see)

    def see(self, frame: FrameType, event: str, _: object) -> None:
        if event == "call" and self.is_counting:
            self.count(frame.f_code)

    def count(self, code: CodeType) -> None:
        if code.co_filename.startswith(self._package) and code.co_name != "<module>":
            self.calls[code.co_filename.removeprefix(self._package)] += 1

    def finish(self) -> None:
        """Print the counts and leave; nothing else of the command is needed."""
        sys.setprofile(None)
        print(json.dumps(self.calls))
        sys.stdout.flush()
        os._exit(0)


class StepTracer(Tracer):
    """Counts from the second row of a metrics file to the third; it sleeps until there is one."""

    def __init__(self, package: Path, file: Path) -> None:
        super().__init__(package)
        self._file = file
        self._size = 0
        self._num_rows = 0

    def start(self) -> None:
        threading.setprofile(self.see)
        sys.addaudithook(self._wake)

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        super().see(frame, event, argument)
        if event == "return" and frame.f_code.co_filename.startswith(self._package):
            self._look()

    def _wake(self, event: str, arguments: tuple[object, ...]) -> None:
        if event == "open" and str(arguments[0]) == str(self._file) and sys.getprofile() is None:
            sys.setprofile(self.see)

    def _look(self) -> None:
        size = self._file.stat().st_size if self._num_rows or self._file.is_file() else 0
        if size == self._size:
            return
        self._size = size
        self._num_rows = self._file.read_bytes().count(b"\n")
        self.is_counting = self._num_rows == 2
        if self._num_rows > 2:
            self.finish()


class ScoreTracer(Tracer):
    """Counts what `score` calls for one text."""

    def __init__(self, package: Path, text: str) -> None:
        super().__init__(package)
        self._text = text
        self._frame: FrameType | None = None

    def see(self, frame: FrameType, event: str, argument: object) -> None:
        is_score = event == "call" and frame.f_code.co_name == "score"
        if is_score and self._frame is None and self._text in frame.f_locals.values():
            self._frame = frame
            self.is_counting = True
        super().see(frame, event, argument)
        if event == "return" and frame is self._frame:
            self.finish()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--baseline", type=Path, help="a checkout of the commit to compare with")
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        trace(args.child[0], Path(args.child[1]))
        return
    roots = [HERE] if args.baseline is None else [args.baseline.resolve(), HERE]
    for what, title in (("step", "one RL step"), ("grade", "one grading of mathematics")):
        counts = [run_child(root, what) for root in roots]
        numbers = " -> ".join(str(len(count)) for count in counts)
        print(f"{title}: {numbers} files")
        for file in sorted(set().union(*counts)):
            calls = " -> ".join(f"{count.get(file, 0):>6,}" for count in counts)
            print(f"  {calls}  {file}")


def run_child(root: Path, what: str) -> dict[str, int]:
    """Trace one of the two in its own process, with the whet of a checkout."""
    script = root / "bench" / "trace_files.py"
    script = script if script.is_file() else Path(__file__).resolve()
    env = {**os.environ, "PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(script), "--child", what, str(root)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    if done.returncode:
        sys.exit(f"{root}: {done.stderr[-2000:]}")
    counts: dict[str, int] = json.loads(done.stdout.splitlines()[-1])
    return counts


def trace(what: str, root: Path) -> None:
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        if what == "step":
            command = ["run", f"{HERE / 'bench' / 'same' / 'rl.toml'}", "--out", f"{work / 'run'}"]
            tracer: Tracer = StepTracer(root / "whet", work / "run" / STAGE / "metrics.jsonl")
        else:
            command = ["grade", f"{write_rows(work)}", "--workers", "0", "--out", f"{work / 'out'}"]
            tracer = ScoreTracer(root / "whet", RESPONSES[-1])
        sys.argv = ["whet", *command]
        tracer.start()
        runpy.run_module("whet", run_name="__main__")


def write_rows(folder: Path) -> Path:
    rows = [
        {"id": index, "task": "math", "answer": gold, "response": text}
        for index, (gold, text) in enumerate(zip(GOLDS, RESPONSES, strict=True))
    ]
    file = folder / "rows.jsonl"
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    return file


if __name__ == "__main__":
    main()
