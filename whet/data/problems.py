"""Problems on disk: a folder with one JSON lines file per split."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

from whet.data.clean.word_hashes import normalise
from whet.data.problem_lines import to_question
from whet.errors import ConfigError, DataError
from whet.rng import derive
from whet.store.files import stream_rows, write_rows
from whet.tasks.base import Task, keep_solvable, list_problems
from whet.types import SPLITS, Problem, Split

HELD_OUT_FRACTION = 0.05
MAX_HELD_OUT = 500
"""The most training problems held out for validation if a folder has no problems for it."""
_TRAINING_SPLITS: tuple[Split, ...] = ("rl", "sft")
_SEED_RANGE = 1 << 63


def write_problems(folder: Path, split: Split, problems: Iterable[Problem]) -> None:
    write_rows(problem_file(folder, split), (problem.to_json() for problem in problems))


def read_problems(file: Path) -> list[Problem]:
    """Read a file of problems; an error names the file and line."""
    problems = []
    for line, row in stream_rows(file):
        try:
            problems.append(Problem.from_json(row))
        except DataError as error:
            raise DataError(f"{file} line {line}: {error}") from error
    return problems


def load_split(task: Task, folder: str | None, split: Split) -> list[Problem]:
    """Read a split from a folder of problems, or take it from the task if no folder is given."""
    if folder is None:
        return list(list_problems(task, split))
    file = problem_file(Path(folder), split)
    if not file.is_file():
        raise DataError(
            f"{folder} has no {file.name}: give a folder with such files, as a `make` stage writes "
            "them, or leave problems out"
        )
    return read_problems(file)


def load_problems(
    task: Task, folder: str | None, split: Split, *, include_unsolvable: bool = False
) -> list[Problem]:
    """Load the solvable problems of a split, or all of them; raise if there are none."""
    problems = load_split(task, folder, split)
    kept = problems if include_unsolvable else keep_solvable(problems)
    if kept:
        return kept
    if folder is None and not problems:
        raise DataError(
            f"the task {task.name!r} makes no problems of the split {split}: set `problems` to a "
            "folder that has some"
        )
    source = f"the split {split} of {task.name!r}"
    if folder is not None:
        source = str(problem_file(Path(folder), split))
    kind = "problem that has a solution" if problems else "problem"
    raise DataError(f"{source} holds no {kind}: give another")


def load_validation(
    task: Task, folder: str | None, split: Split, *, is_needed: bool
) -> tuple[list[Problem], bool]:
    """Load the problems to validate on, and whether they are held out of the training split.

    A folder without a file for the split holds problems out, unless validation is not needed.
    """
    if folder is None or problem_file(Path(folder), split).is_file():
        return load_split(task, folder, split), False
    if not is_needed:
        return [], False
    for training in _TRAINING_SPLITS:
        if problem_file(Path(folder), training).is_file():
            return choose_held_out(load_split(task, folder, training), folder), True
    return load_split(task, folder, split), False


def choose_held_out(problems: Sequence[Problem], folder: str) -> list[Problem]:
    """Choose validation problems by the hash of their question, so added rows move few of them."""
    fraction = min(HELD_OUT_FRACTION, MAX_HELD_OUT / max(len(problems), 1))
    fractions: dict[Split, float] = {"rl": 1 - fraction, "dev": fraction}
    held_out = [
        p for p in problems if split_by_hash(normalised_question(p), fractions, seed=0) == "dev"
    ]
    if not held_out:
        raise DataError(
            f"validation.every needs problems to validate on, and {folder} has too few to hold "
            "some out of training: add problems-dev.jsonl or leave validation.every out"
        )
    return held_out


def normalised_question(problem: Problem) -> str:
    """Return the text that decides a problem's split: its question without case and spaces."""
    return normalise(to_question(problem))


def problem_file(folder: Path, split: Split) -> Path:
    return folder / f"problems-{split}.jsonl"


def split_by_hash(text: str, fractions: Mapping[Split, float], seed: int) -> Split:
    """Return the split of a text, which depends on the text alone.

    >>> split_by_hash("What is 2 + 2?", {"rl": 0.9, "dev": 0.1}, seed=42)
    'rl'
    """
    names = [split for split in SPLITS if fractions.get(split, 0.0) > 0]
    ends = list(accumulate(fractions[split] for split in names))
    if len(names) < len([value for value in fractions.values() if value]) or not names:
        raise ConfigError(f"split = {dict(fractions)} should give sft, rl, dev or test a fraction")
    if abs(ends[-1] - 1) > 1e-6:
        raise ConfigError(f"the fractions of a split should add up to 1, not to {ends[-1]:g}")
    position = derive(seed, "split", text) / _SEED_RANGE
    chosen = (name for name, end in zip(names, ends, strict=True) if position < end)
    return next(chosen, names[-1])
