"""Clean a million generated rows of 150 words: seconds, peak memory, recall and precision.

    python bench/clean.py [--rows 1000000] [--against ../shared/data]

Planted are rows with words replaced, inserted or deleted, at Jaccard similarities of 0.8 to 0.95,
exact copies in other cases, and rows that hold an evaluation question or a passage of it. The
similarity is counted here, in Python sets of three words. A row left out that was not planted is a
false alarm. A passage that is in more than ten questions is a frame, and is missed. Memory is that
of all processes of the command together.
"""

import argparse
import json
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterator
from pathlib import Path

from whet.data.clean.contamination import list_eval_files, read_row_question
from whet.data.row_files import iterate_rows
from whet.rng import make_rng

ROOT = Path(__file__).parents[1]
WORDS = 150
VOCABULARY = 50_000
PLANTED = 0.02
"""Share of the rows, of each kind that is planted."""
PASSAGE = (13, 30)
"""Words of an evaluation question in every second contaminated row; others hold all of it."""
MEMORY = 5000
"""Earlier rows that copies are made of."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--rows", type=int, default=1_000_000)
    options.add_argument("--against", type=Path, default=ROOT / ".." / "shared" / "data")
    options.add_argument("--model", help="count the tokens of this model too")
    options.add_argument("--seed", type=int, default=0)
    given = options.parse_args()
    questions = read_questions(given.against)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        planted = write_rows(source, given.rows, questions, make_rng(given.seed, "bench"))
        size = source.stat().st_size / 1e9
        print(f"{given.rows:,} rows, {size:.2f} GB; planted {dict(planted)}", flush=True)
        out = Path(folder) / "clean.jsonl"
        command = ["clean", str(source), "--out", str(out), "--against", str(given.against)]
        if given.model:
            command += ["--model", given.model, "--max-tokens", "4096"]
        seconds, memory = run([sys.executable, "-m", "whet", "data", *command])
        print(f"{seconds:.0f} seconds, {memory / 1e9:.2f} GB at the peak")
        measure(out.with_suffix(".left_out.jsonl"), planted)


def read_questions(folder: Path) -> list[list[str]]:
    texts = (
        read_row_question(row.fields).split()
        for file in list_eval_files([folder])
        for row in iterate_rows(file)
    )
    return [words for words in texts if len(words) >= PASSAGE[0]]


def write_rows(
    file: Path, count: int, questions: list[list[str]], numbers: random.Random
) -> Counter[str]:
    """Write rows, each with what it is as its source_id."""
    planted: Counter[str] = Counter()
    vocabulary = [
        "".join(numbers.choices("abcdefghijklmnopqrstuvwxyz", k=numbers.randint(2, 9)))
        for _ in range(VOCABULARY)
    ]
    earlier: deque[tuple[list[str], str]] = deque(maxlen=MEMORY)
    with file.open("w") as rows:
        for index in range(count):
            words, answer, kind = make_row(numbers, vocabulary, questions, earlier)
            planted[kind] += 1
            row = {
                "id": f"math/{index:012x}",
                "task": "math",
                "prompt": [{"role": "user", "content": " ".join(words)}],
                "answer": answer,
                "payload": {},
                "level": None,
                "split": "rl",
                "source": "generated",
                "source_id": kind,
            }
            rows.write(json.dumps(row) + "\n")
    return planted


def make_row(
    numbers: random.Random,
    vocabulary: list[str],
    questions: list[list[str]],
    earlier: deque[tuple[list[str], str]],
) -> tuple[list[str], str, str]:
    """Make a new row, or a planted one."""
    draw = numbers.random()
    if draw < 2 * PLANTED and len(earlier) == MEMORY:
        words, answer = earlier[numbers.randrange(MEMORY)]
        if draw < PLANTED:
            return [word.upper() for word in words], answer, "exact"
        changed = change_words(words, vocabulary, numbers)
        return changed, answer, "near at 0.80" if jaccard(words, changed) < 0.82 else "near"
    words = numbers.choices(vocabulary, k=WORDS)
    if draw < 3 * PLANTED:
        question = numbers.choice(questions)
        length = len(question)
        if draw < 2.5 * PLANTED:
            length = min(numbers.randint(*PASSAGE), length)
        start = numbers.randrange(len(question) - length + 1)
        place = numbers.randrange(WORDS)
        return [*words[:place], *question[start : start + length], *words[place:]], "0", "overlap"
    answer = str(numbers.randrange(1000))
    earlier.append((words, answer))
    return words, answer, ""


def change_words(words: list[str], vocabulary: list[str], numbers: random.Random) -> list[str]:
    """Replace, insert or delete words until the similarity is between 0.8 and 0.95."""
    while True:
        changed = list(words)
        for _ in range(numbers.randint(1, 6)):
            place = numbers.randrange(len(changed))
            match numbers.randrange(3):
                case 0:
                    changed[place] = numbers.choice(vocabulary)
                case 1:
                    changed.insert(place, numbers.choice(vocabulary))
                case _:
                    del changed[place]
        if 0.8 <= jaccard(words, changed) <= 0.95:
            return changed


def jaccard(first: list[str], second: list[str]) -> float:
    one, two = (set(zip(words, words[1:], words[2:], strict=False)) for words in (first, second))
    return len(one & two) / len(one | two)


def run(command: list[str]) -> tuple[float, int]:
    """Run a command; return its seconds, and the most memory of it and its children together."""
    start = time.monotonic()
    child = subprocess.Popen(command)
    peak = 0
    while child.poll() is None:
        peak = max(peak, sum(read_memory(process) for process in family(child.pid)))
        time.sleep(0.2)
    if child.returncode:
        sys.exit(child.returncode)
    return time.monotonic() - start, peak


def family(process: int) -> Iterator[int]:
    yield process
    try:
        children = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    except OSError:
        children = []
    for child in children:
        yield from family(int(child))


def read_memory(process: int) -> int:
    """Return the resident bytes of a process; memory that several share counts in parts."""
    try:
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return 1024 * sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))


def measure(left_out: Path, planted: Counter[str]) -> None:
    found: Counter[tuple[str, str]] = Counter()
    with left_out.open() as rows:
        for line in rows:
            row = json.loads(line)
            found[row["reason"].removesuffix("_duplicate"), row["problem"]["source_id"]] += 1
    for kind in sorted(planted.keys() - {""}):
        recall = sum(count for (_, own), count in found.items() if own == kind) / planted[kind]
        print(f"{kind:<12} recall {recall:.2%} of {planted[kind]:,}")
    for name in ("exact", "near", "overlap"):
        alarms = {own: count for (reason, own), count in found.items() if reason == name}
        right = sum(count for own, count in alarms.items() if own.startswith(name))
        total = sum(alarms.values())
        print(f"{name:<12} precision {right / total:.2%} of {total:,}")


if __name__ == "__main__":
    main()
