import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from small import Pipeline, whet, write

from whet.data.problems import write_problems
from whet.tasks.game24 import Game24
from whet.types import Message


def test_the_report_is_one_file_that_asks_for_nothing_else(tiny: Pipeline) -> None:
    page = (tiny.folder / "report.html").read_text()
    fetched = re.findall(
        r"""<(?:script|img|iframe|link)[^>]*\s(?:src|href)=["']?(?!data:|#)([^"'\s>]+)""", page
    )
    assert fetched == []
    assert not re.search(r"@import|url\((?!['\"]?(?:data:|#))", page)


def test_the_report_shows_what_was_measured(tiny: Pipeline) -> None:
    page = (tiny.folder / "report.html").read_text()
    for words in (
        "Response length",
        "Entropy",
        "KL to the start",
        "Reward",
        "Loss",
        "group_size",
        "seed",
    ):
        assert words in page


def test_the_last_words_say_what_was_learned_and_where_to_look(tiny: Pipeline) -> None:
    words = tiny.said.err.split("What was learned\n")[1].splitlines()
    assert re.fullmatch(
        r"  after sft +\S+\s% \[\S+,\s\S+\] of 409 unseen problems solved, \S+ % greedily", words[0]
    )
    assert words[1].startswith("  after rl ")
    question = next(iter(Game24().problems("dev"))).prompt[-1].content
    assert words[-4:] == [
        f"See it   whet view {tiny.folder}",
        f"Report   {tiny.folder}/report.html",
        f'Ask it   whet try {tiny.folder} "{question}"',
        f"Take it  whet export {tiny.folder} OUT",
    ]


@pytest.mark.parametrize(
    ("question", "shown"),
    [
        ("How many?", "How many?"),
        ('a "b"', "YOUR QUESTION"),
        ("x " * 40, "YOUR QUESTION"),
        ("a\nb", "YOUR QUESTION"),
    ],
)
def test_the_question_to_ask_is_one_of_the_task_itself_where_it_fits_on_a_line(
    tiny: Pipeline, tmp_path: Path, question: str, shown: str
) -> None:
    problem = replace(
        next(iter(Game24().problems("dev"))), prompt=(Message(role="user", content=question),)
    )
    write_problems(tmp_path / "own", "dev", [problem])
    text = f"""kind = "run"
task.name = "game24"
[stages.sft]
kind = "sft"
steps = 1
data = "{tiny.folder}/02-traces"
problems = "{tmp_path}/own"
model = {{ new = "tiny", positions = 128 }}
validation = {{ samples = 1 }}
"""
    said = whet("run", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert f'Ask it   whet try {tmp_path}/run "{shown}"' in said.err.splitlines(), said.err


def test_a_pipeline_with_one_evaluation_tells_of_it_alone(tiny: Pipeline, tmp_path: Path) -> None:
    text = f"""kind = "run"
task.name = "game24"
[stages.validation]
kind = "eval"
split = "dev"
samples = 1
model = {{ path = "{tiny.folder}" }}
sampling = {{ max_tokens = 16 }}
"""
    said = whet("run", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [row["name"] for row in summary["stages"]] == [str(tiny.folder)]
    assert summary["stages"][0]["unsolvable"] is None
    assert "unseen problems" in (tmp_path / "run" / "report.html").read_text()


def test_a_pipeline_without_evaluations_still_has_a_summary_and_a_report(tmp_path: Path) -> None:
    file = write(
        tmp_path / "p.toml",
        'kind = "run"\ntask.name = "game24"\n[stages.problems]\nkind = "make"\n',
    )
    said = whet("run", file, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert said.last == f"Report   {tmp_path}/run/report.html", (
        "there is no model to ask or to take"
    )
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stages"] == []
    assert list(summary["seconds"]) == ["problems"]
    assert (tmp_path / "run" / "report.html").is_file()


BENCHMARKS = """kind = "run"
task.name = "game24"
samples = 2
sampling = {{ max_tokens = 16 }}
model = {{ path = "{folder}" }}
[stages.hands]
kind = "eval"
split = "dev"
[stages.tests]
kind = "eval"
split = "test"
[stages.again]
kind = "eval"
split = "dev"
model = {{ path = "{folder}/03-sft" }}
"""


def test_evaluations_on_several_benchmarks_end_in_one_report_and_are_told_apart(
    tiny: Pipeline, tmp_path: Path
) -> None:
    file = write(tmp_path / "p.toml", BENCHMARKS.format(folder=tiny.folder))
    said = whet("run", file, "--out", tmp_path / "run")
    assert said.code == 0, said.err
    names = [f"{tiny.folder} on hands", f"{tiny.folder} on tests", f"{tiny.folder}/03-sft"]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [row["name"] for row in summary["stages"]] == names
    page = (tmp_path / "run" / "report.html").read_text()
    assert all(name in page for name in names)
    headline = page.partition("</h1>")[2].partition("</")[0]
    assert f"{tiny.folder} on tests".upper() in headline.upper()
    assert f"\n  {names[1]} " in said.err, "nothing was trained before it"
