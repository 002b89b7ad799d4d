"""A run that cannot learn says so: tokens that training never shows, examples that do not fit, answers
that are cut, a model that ends worse than it began."""

from pathlib import Path

import pytest
from small import Said, whet, write

from whet.store.run import RunStore

TASK = """
from whet.tasks.answers import to_score
from whet.tasks.base import Task
from whet.tasks.generated import question, split_of

LETTERS = {100: "C", 90: "XC", 50: "L", 40: "XL", 10: "X", 9: "IX", 5: "V", 4: "IV", 1: "I"}


def write(number):
    text = ""
    for value, letters in LETTERS.items():
        count, number = divmod(number, value)
        text += letters * count
    return text


class Roman(Task):
    name = "roman"

    def problems(self, split):
        for number in range(1, 200):
            if split_of(self.name, number) == split:
                answer = " ".join(str(number))
                asked = f"Value of {write(number)}"
                yield question(self.name, asked, answer=answer, payload={}, level=None, split=split)

    def score(self, problem, text):
        return to_score(text == problem.answer, {}, answer=text, note="")

    def solve(self, problem, seed):
        return problem.answer
"""
FILE = """kind = "run"
task = "{task}:Roman"
sampling = {{ max_tokens = 8 }}

[stages.traces]
kind = "teach"
per_problem = 1
workers = 1

[stages.sft]
kind = "sft"
data = "@traces"
model = {{ new = "tiny", positions = 64, max_pieces = 0 }}
steps = 2

[stages.sft_eval]
kind = "eval"
model = {{ path = "@sft" }}
"""
EVAL = """kind = "run"
task = "{task}:Roman"

[stages.old_eval]
kind = "eval"
model = {{ path = "{model}" }}
samples = 2
sampling = {{ max_tokens = 3 }}
"""
PIECES = ("--stages.sft.model.max_pieces", 1024)
UNSEEN = "of the split dev have tokens that no training example has"
CUT = "references of the split test are longer than sampling.max_tokens = 3, the longest 6 tokens"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    task = write(tmp_path / "roman.py", TASK)
    return write(tmp_path / "roman.toml", FILE.format(task=task))


def run(file: Path, *flags: object) -> Said:
    return whet("run", file, "--out", file.parent / "run", *flags)


def notes(folder: Path) -> list[str]:
    return [str(row["said"]) for row in RunStore.view(folder).events() if row["event"] == "note"]


def test_a_file_without_these_mistakes_has_no_notes(file: Path) -> None:
    said = whet("check", file)
    assert said.code == 0 and "note" not in said.out

    said = run(file)
    assert said.code == 0 and "note" not in said.err
    assert notes(file.parent / "run" / "02-sft") == []


def test_tokens_that_training_never_shows_are_noted_by_check_and_by_the_run(file: Path) -> None:
    said = whet("check", file, *PIECES)
    assert said.code == 0 and UNSEEN in said.out and "model.max_pieces = 0" in said.out

    said = run(file, *PIECES)
    assert said.code == 0 and said.err.count(UNSEEN) == 1
    assert len(notes(file.parent / "run" / "02-sft")) == 1


def test_more_than_half_of_the_examples_too_long_stop_the_run_and_the_check(file: Path) -> None:
    short = ("--stages.sft.model.positions", 16)
    for said in (whet("check", file, *short), run(file, *short)):
        assert said.code == 2
        assert "are longer than the context of 16 tokens" in said.out + said.err
        assert "raise model.positions" in said.out + said.err


def test_references_longer_than_answers_may_be_are_noted(file: Path) -> None:
    short = ("--stages.sft_eval.sampling.max_tokens", 3)
    said = whet("check", file, *short)
    assert said.code == 0 and CUT in said.out

    said = run(file, *short)
    assert said.code == 0
    assert "references of the split test are longer than sampling.max_tokens = 3" in said.err
    assert len(notes(file.parent / "run" / "03-sft_eval")) == 1


def test_a_model_that_is_there_before_the_run_is_noted_once(file: Path) -> None:
    assert run(file).code == 0
    text = EVAL.format(task=file.parent / "roman.py", model=file.parent / "run" / "02-sft")

    said = whet("run", write(file.parent / "eval.toml", text), "--out", file.parent / "again")

    assert said.code == 0, said.err
    assert " ".join(said.err.split()).count(CUT) == 1
    assert notes(file.parent / "again" / "01-old_eval") == []


def test_an_evaluation_that_solves_nothing_names_the_page_to_read(file: Path) -> None:
    said = run(file)
    line = next(line for line in said.err.splitlines() if line.startswith("pass@1"))
    assert line.startswith("pass@1 0.0 %")
    assert "nothing is solved: docs/troubleshooting.md" in said.err
