"""Run another checkout of whet beside this one and show that no number differs.

    python bench/same_numbers.py --baseline ../before [--only 'steps/*' data] [--jobs 2]

What is compared:

    steps/NAME   checkpoints of the pipelines in bench/same, twenty optimizer steps or more a stage
    smoke/NAME   checkpoints of `whet run FILE --smoke` for every file in experiments/
    data/FILE    problems imported from ../shared/data, and verdicts of right and wrong answers
    fuzz/TASK    verdicts of the texts of bench/fuzz.py

Checkpoints are compared bit for bit, verdicts with their parts and the answer that was read. Each
tree runs its own commands on its own files, so settings and modules may have other names: only the
command line, the run folder and the file formats are relied on. Where the baseline has no
bench/same or no `fuzz.py --verdicts`, this tree's copy serves both. A stage in bench/same with
fewer than twenty steps of non-zero gradient fails, as does a stage of a smoke form that has no
gradient: equal weights would then say nothing.

Differences that are meant stand in bench/same/explained.toml with their cause:

    [[explained]]
    item = "data/*"
    ids = ["*/open"]
    cause = "an answer inside a thought that is never closed is no answer"

Every differing value is written to --out. The exit code is 1 on a difference without a cause, or a
command that failed.
"""

import argparse
import fnmatch
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import pyarrow.parquet as pq
from safetensors import deserialize

HERE = Path(__file__).resolve().parents[1]
DATA = HERE / ".." / "shared" / "data"
CODE_FILES = ("humaneval", "mbpp_sanitized", "leetcode", "codeforces_stdin")
"""Their answers are programs, which run in sandboxes."""
NUM_STEPS = 20
TIMEOUT = 900
"""Seconds a command may take."""
Values = dict[str, str]
"""What was computed, by an id that is the same in both trees."""
Result = dict[str, Values]
"""Values by item."""


class CommandError(Exception):
    """A command of one tree failed; the text is the end of what it printed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A checkout, and a folder for what it computes."""

    name: str
    root: Path
    work: Path

    def run(self, *args: object, codes: Sequence[int] = (0,)) -> None:
        """Run Python with this tree's whet; an exit code that is not among `codes` is an error."""
        threads = dict.fromkeys(
            ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "TOKENIZERS_PARALLELISM"), "1"
        )
        self.work.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [sys.executable, *map(str, args)],
            env={
                **os.environ,
                **threads,
                "PYTHONPATH": str(self.root),
                "PYTHONDONTWRITEBYTECODE": "1",
            },
            cwd=self.work,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
            check=False,
        )
        if done.returncode not in codes:
            raise CommandError(
                f"{self.name}, exit code {done.returncode}: {(done.stderr or done.stdout)[-1500:]}"
            )

    def own(self, path: str, mark: str = "") -> Path:
        """Find a file of this tree, or this script's where it has none with `mark` in it."""
        file = self.root / path
        return file if file.is_file() and mark in file.read_text() else HERE / path


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """Something both trees compute. One job may give several items."""

    name: str
    compute: Callable[[Tree], Result]


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    item: str
    id: str
    baseline: str | None
    head: str | None
    cause: str | None


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--baseline", type=Path, required=True, help="a checkout of the commit to compare with"
    )
    parser.add_argument(
        "--only",
        nargs="*",
        default=["*"],
        metavar="NAME",
        help="steps/rl, smoke/*, data, code, fuzz",
    )
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--data", type=Path, default=DATA)
    parser.add_argument("--texts", type=int, default=20_000, help="of the fuzz corpus")
    parser.add_argument(
        "--code-texts", type=int, default=10, help="for each kind of row that starts sandboxes"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the fuzz corpus")
    parser.add_argument(
        "--keep", type=Path, help="a folder for everything computed; a temporary one by default"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("differences.json"), help="where differing rows go"
    )
    args = parser.parse_args()
    jobs = [
        job for job in list_jobs(args) if any(fnmatch.fnmatch(job.name, name) for name in args.only)
    ]
    if not jobs:
        parser.error(f"--only {' '.join(args.only)} names nothing")
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as temporary:
        folder = (args.keep or Path(temporary)).resolve()
        results, failures = compute_all(jobs, args.baseline.resolve(), folder, args.jobs)
    differences, rows = compare(results, read_explained())
    print_table(rows, failures)
    report(differences, failures, args.out)
    num_open = sum(difference.cause is None for difference in differences)
    num_values = sum(int(row[1]) for row in rows)
    seconds = time.monotonic() - began
    print(f"{len(rows)} items, {num_values:,} values, {len(failures)} failures, {seconds:,.0f} s")
    print(f"{len(differences):,} values differ, {num_open:,} of them unexplained")
    return 1 if num_open or failures else 0


def list_jobs(args: argparse.Namespace) -> Iterator[Job]:
    """List everything to compute, what takes longest first."""
    yield Job(name="code", compute=lambda tree: grade_data(tree, code_files(args.data)))
    yield Job(name="data", compute=lambda tree: grade_data(tree, other_files(args.data)))
    yield Job(
        name="fuzz", compute=lambda tree: grade_fuzz(tree, args.texts, args.code_texts, args.seed)
    )
    for name in sorted(
        file.stem for file in (HERE / "bench" / "same").glob("*.toml") if file.stem != "explained"
    ):
        yield Job(name=f"steps/{name}", compute=lambda tree, name=name: train(tree, name))
    trees = (args.baseline.resolve(), HERE)
    files = [file for tree in trees for file in (tree / "experiments").glob("*.toml")]
    for name in sorted({file.stem for file in files if 'kind = "study"' not in file.read_text()}):
        yield Job(name=f"smoke/{name}", compute=lambda tree, name=name: smoke(tree, name))


def compute_all(
    jobs: Sequence[Job], baseline: Path, folder: Path, workers: int
) -> tuple[dict[str, dict[str, Result]], list[str]]:
    """Compute every job in both trees; results by job and tree, and what failed."""
    roots = {"baseline": baseline, "head": HERE}
    results: dict[str, dict[str, Result]] = {job.name: {} for job in jobs}
    failures: list[str] = []
    with ThreadPoolExecutor(workers) as pool:
        waiting = {}
        for job in jobs:
            for name, root in roots.items():
                tree = Tree(name=name, root=root, work=folder / name / job.name)
                shutil.rmtree(tree.work, ignore_errors=True)
                waiting[pool.submit(job.compute, tree)] = (job.name, name)
        for number, future in enumerate(as_completed(waiting), start=1):
            job_name, tree_name = waiting[future]
            print(
                f"{number} of {len(waiting)}: {job_name} of the {tree_name}",
                file=sys.stderr,
                flush=True,
            )
            try:
                results[job_name][tree_name] = future.result()
            except (CommandError, subprocess.TimeoutExpired) as error:
                failures.append(f"{job_name}: {error}")
    return results, failures


# Weights


def train(tree: Tree, name: str) -> Result:
    """Run a pipeline of bench/same, and check that every stage moved in twenty steps."""
    out = tree.work / "run"
    tree.run("-m", "whet", "run", tree.own(f"bench/same/{name}.toml"), "--out", out)
    for stage, moving in moving_steps(out).items():
        if moving < NUM_STEPS:
            raise CommandError(
                f"{tree.name}: {stage} has a gradient in {moving} steps only, not in {NUM_STEPS}"
            )
    return {f"steps/{name}": read_weights(out)}


def smoke(tree: Tree, name: str) -> Result:
    """Run the smoke form of a recipe; a tree that does not have the recipe computes nothing."""
    item = f"smoke/{name}"
    out = tree.work / "run"
    file = tree.root / "experiments" / f"{name}.toml"
    if not file.is_file():
        return {item: {}}
    tree.run("-m", "whet", "run", file, "--smoke", "--out", out)
    idle = [stage for stage, moving in moving_steps(out).items() if not moving]
    if idle:
        raise CommandError(f"{tree.name}: no gradient in {', '.join(idle)}")
    return {item: read_weights(out)}


def moving_steps(run: Path) -> dict[str, int]:
    """Count the steps of each training stage whose gradient is not zero."""
    counts = {}
    for folder in sorted(path.parent for path in run.glob("*/checkpoints")):
        rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        norms = [[value for key, value in row.items() if key.endswith("grad_norm")] for row in rows]
        counts[folder.name] = sum(any(row) for row in norms)
    return counts


def read_weights(run: Path) -> Values:
    """Hash each tensor of the last checkpoint of each stage, critics and verifiers included."""
    values = {}
    for folder in sorted(run.glob("*/checkpoints")):
        last = max(path for path in folder.iterdir() if path.name.isdigit())
        for file in sorted(last.rglob("*.safetensors")):
            for name, tensor in deserialize(file.read_bytes()):
                digest = hashlib.sha256(tensor["data"]).hexdigest()[:16]
                values[f"{file.relative_to(run)}:{name}"] = (
                    f"{tensor['dtype']}{tensor['shape']} {digest}"
                )
    assert values, f"{run} has no checkpoint"
    return values


# Verdicts


def code_files(data: Path) -> list[Path]:
    return [file for file in sorted(data.glob("*.*")) if file.stem in CODE_FILES]


def other_files(data: Path) -> list[Path]:
    return [
        file
        for file in sorted(data.glob("*.*"))
        if file.stem not in CODE_FILES and file.suffix != ".md"
    ]


IMPORT = """
import json, runpy, sys
for args in json.loads(open(sys.argv[1]).read()):
    sys.argv = ["whet", *args]
    try:
        runpy.run_module("whet", run_name="__main__")
    except SystemExit as end:
        if end.code:
            raise
"""


def grade_data(tree: Tree, files: Sequence[Path]) -> Result:
    """Import every file, and grade right, wrong and real answers to each problem."""
    values: dict[str, Values] = {f"data/{file.stem}": {} for file in files}
    problems = import_problems(tree, [file for file in files if file.stem not in RAW])
    rows: list[dict[str, object]] = []
    with (make_folder(tree.work) / "problems.jsonl").open("w") as out:
        for name, imported in problems.items():
            for number, problem in enumerate(imported):
                values[f"data/{name}"][f"{number}"] = dump(problem)
                unique = {**problem, "id": f"{problem['task']}/{name}-{number}", "source_id": None}
                out.write(dump(unique) + "\n")
            rows += answer_rows(name, imported)
    for name, make in RAW.items():
        rows += [
            row for file in files if file.stem == name for row in make(read_jsonl(file), problems)
        ]
    (tree.work / "rows.jsonl").write_text("".join(dump(row) + "\n" for row in rows))
    graded = tree.work / "graded.jsonl"
    flags = ("--problems", tree.work / "problems.jsonl", "--workers", 1, "--out", graded)
    tree.run("-m", "whet", "grade", tree.work / "rows.jsonl", *flags)
    for row in read_jsonl(graded):
        name, _, id = str(row["id"]).partition(" ")
        values[f"data/{name}"][id] = dump([row["verdict"], row["parts"], row["extracted"]])
    return values


def import_problems(tree: Tree, files: Sequence[Path]) -> dict[str, list[dict[str, object]]]:
    """Import files in one process; `answers` are those that came along with a problem."""
    commands = []
    folder = make_folder(tree.work / "imported")
    for file in files:
        flags = ["--format", file.stem, "--out", str(folder / f"{file.stem}.jsonl")]
        commands.append(["data", "import", str(file.resolve()), *flags])
    (tree.work / "commands.json").write_text(json.dumps(commands))
    tree.run("-c", IMPORT, tree.work / "commands.json")
    load_split = {}
    for file in files:
        problems = read_jsonl(folder / f"{file.stem}.jsonl")
        stored = folder / f"{file.stem}.rollouts.parquet"
        texts: dict[str, list[str]] = {}
        if stored.is_file():
            table = pq.read_table(stored, columns=["problem", "text"]).to_pydict()
            for problem, text in zip(table["problem"], table["text"], strict=True):
                texts.setdefault(json.loads(problem)["id"], []).append(text)
        load_split[file.stem] = [
            {**problem, "answers": texts.pop(str(problem["id"]), [])} for problem in problems
        ]
    return load_split


def answer_rows(name: str, problems: Sequence[Mapping[str, object]]) -> Iterator[dict[str, object]]:
    """Answer each problem with its gold in several layouts, the next row's, and models' answers."""
    for number, problem in enumerate(problems):
        gold = problem["answer"]
        other = problems[(number + 1) % len(problems)]["answer"]
        texts = {"empty": ""}
        if gold is not None and name in CODE_FILES:
            texts["gold"] = f"```python\n{gold}\n```"
        elif gold is not None:
            texts["gold"] = str(gold)
            texts["boxed"] = f"<think>Let me see.</think>So it is \\boxed{{{gold}}}."
            texts["stated"] = f"First I work it out.\nAnswer: {gold}"
            texts["open"] = f"<think>It may be {gold}.\nAnswer: {gold}"
        if other is not None and name in CODE_FILES:
            texts["next"] = f"```python\n{other}\n```"
        elif other is not None:
            texts["next"] = f"\\boxed{{{other}}}"
            texts["tagged"] = f"<answer>{other}</answer>"
        answers = problem["answers"]
        assert isinstance(answers, list)
        texts |= {f"model-{index}": text for index, text in enumerate(answers)}
        for kind, text in texts.items():
            id = f"{name} {number}/{kind}"
            yield {"id": id, "problem": f"{problem['task']}/{name}-{number}", "response": text}


Problems = Mapping[str, Sequence[Mapping[str, object]]]
Raw = Iterator[dict[str, object]]


def equivalence_rows(rows: Sequence[dict[str, object]], _: Problems) -> Raw:
    """Cases of other graders: the prediction plain and boxed; letters are graded as choices too."""
    for row in rows:
        for task in ("math", "choice") if str(row["gold"]) in tuple("ABCDE") else ("math",):
            for kind, text in (
                ("plain", row["prediction"]),
                ("boxed", f"\\boxed{{{row['prediction']}}}"),
            ):
                id = f"equivalence {row['id']}/{task}-{kind}"
                yield {"id": id, "task": task, "answer": str(row["gold"]), "response": text}


def grapharena_rows(rows: Sequence[dict[str, object]], problems: Problems) -> Raw:
    numbers = {
        row["source_id"]: number for number, row in enumerate(problems["grapharena_problems"])
    }
    for index, row in enumerate(rows):
        number = numbers[row["problem_id"]]
        problem = f"{problems['grapharena_problems'][number]['task']}/grapharena_problems-{number}"
        yield {
            "id": f"grapharena_responses {index}",
            "problem": problem,
            "response": row["response"],
        }


def prm800k_rows(rows: Sequence[dict], _: Problems) -> Raw:
    for index, row in enumerate(rows):
        written = [step["completions"] for step in row["label"]["steps"] if step["completions"]]
        text = "\n".join(completions[0]["text"] for completions in written)
        gold = row["question"]["ground_truth_answer"]
        yield {"id": f"prm800k_samples {index}", "task": "math", "answer": gold, "response": text}


def shepherd_rows(rows: Sequence[dict], _: Problems) -> Raw:
    for index, row in enumerate(rows):
        gold = row["input"].rpartition("The answer is:")[2].replace("ки", "").strip()
        yield {
            "id": f"math_shepherd_samples {index}",
            "task": "math",
            "answer": gold,
            "response": row["input"],
        }


def shaping_rows(rows: Sequence[dict], _: Problems) -> Raw:
    """Texts that rewards were tested on; as answers to a problem they have a verdict too."""
    for row in rows:
        text = row["input"] if isinstance(row["input"], str) else json.dumps(row["input"])
        yield {"id": f"reward_shaping {row['id']}", "task": "math", "answer": "4", "response": text}


RAW: dict[str, Callable[[Sequence[dict], Problems], Raw]] = {
    "equivalence": equivalence_rows,
    "grapharena_responses": grapharena_rows,
    "prm800k_samples": prm800k_rows,
    "math_shepherd_samples": shepherd_rows,
    "reward_shaping": shaping_rows,
}
"""Files of texts and labels that are no problems."""


def grade_fuzz(tree: Tree, texts: int, code_texts: int, seed: int) -> Result:
    """Grade the texts of a seed; values hold their hashes, which tell texts from verdicts."""
    out = make_folder(tree.work) / "verdicts.jsonl"
    counts = ("--texts", texts, "--code-texts", code_texts, "--seed", seed, "--workers", 1)
    # 1 says that a verdict is false, which is not what is asked here.
    tree.run(tree.own("bench/fuzz.py", mark="--verdicts"), *counts, "--verdicts", out, codes=(0, 1))
    if not out.is_file():
        raise CommandError(f"{tree.name}: fuzz.py wrote no verdicts")
    values: dict[str, Values] = {}
    for row in read_jsonl(out):
        kind, _, number = str(row["id"]).partition("/")
        stated = [row.get(key) for key in ("verdict", "fault", "parts", "answer", "text")]
        values.setdefault(f"fuzz/{kind}", {})[number] = dump(stated)
    return values


def read_jsonl(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_bytes().splitlines()]


def dump(value: object) -> str:
    return json.dumps(value, ensure_ascii=True, sort_keys=True)


def make_folder(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


# Comparing


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A difference that is meant: which values of which item, as patterns, and why."""

    item: str
    ids: list[str]
    cause: str

    def matches(self, item: str, id: str) -> bool:
        is_listed = any(fnmatch.fnmatchcase(id, pattern) for pattern in self.ids)
        return is_listed and fnmatch.fnmatchcase(item, self.item)


def read_explained() -> list[Explained]:
    file = HERE / "bench" / "same" / "explained.toml"
    rows = tomllib.loads(file.read_text()).get("explained", []) if file.is_file() else []
    return [Explained(**row) for row in rows]


Row = tuple[str, int, int, str]
"""An item, how many values it has, how many differ, and a sentence."""


def compare(
    results: Mapping[str, Mapping[str, Result]], explained: Sequence[Explained]
) -> tuple[list[Difference], list[Row]]:
    differences: list[Difference] = []
    rows: list[Row] = []
    for trees in results.values():
        if trees.keys() != {"baseline", "head"}:
            continue
        before, after = trees["baseline"], trees["head"]
        for item in sorted(before.keys() | after.keys()):
            changed = list(differing(item, before.get(item, {}), after.get(item, {}), explained))
            differences += changed
            count = len(before.get(item, {}).keys() | after.get(item, {}).keys())
            rows.append((item, count, len(changed), describe(changed)))
    return differences, rows


def differing(
    item: str, before: Values, after: Values, explained: Sequence[Explained]
) -> Iterator[Difference]:
    for id in sorted(before.keys() | after.keys()):
        if before.get(id) != after.get(id):
            cause = next((entry.cause for entry in explained if entry.matches(item, id)), None)
            yield Difference(
                item=item, id=id, baseline=before.get(id), head=after.get(id), cause=cause
            )


def describe(differences: Sequence[Difference]) -> str:
    """Show the first difference that is not explained, or else the first."""
    if not differences:
        return ""
    first = next((row for row in differences if row.cause is None), differences[0])
    why = f" ({first.cause})" if first.cause else ""
    return f"{first.id}: {shorten(first.baseline)} -> {shorten(first.head)}{why}"


def shorten(value: str | None) -> str:
    text = "nothing" if value is None else value
    return text if len(text) <= 70 else f"{text[:69]}…"


def print_table(rows: Sequence[Row], failures: Sequence[str]) -> None:
    print(f"{'item':<46}{'values':>8}  {'result':<16}")
    for item, count, num_different, sentence in rows:
        verdict = (
            f"{num_different:,} differ" if num_different else "equal" if count else "nothing there"
        )
        print(f"{item:<46}{count:>8,}  {verdict:<16}{sentence}".rstrip())
    for failure in failures:
        print(f"failed: {failure}")


def report(differences: Sequence[Difference], failures: Sequence[str], out: Path) -> None:
    """Write what differs, and print each cause with its number of differences."""
    causes: dict[str, int] = {}
    for difference in differences:
        if difference.cause is not None:
            causes[difference.cause] = causes.get(difference.cause, 0) + 1
    for cause, count in causes.items():
        print(f"explained: {count:,} by: {cause}")
    fields = Difference.__slots__
    rows = [{name: getattr(difference, name) for name in fields} for difference in differences]
    out.write_text(json.dumps({"differences": rows, "failures": list(failures)}, indent=1))


if __name__ == "__main__":
    sys.exit(main())
