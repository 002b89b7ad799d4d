import json
import re
from pathlib import Path

from small import Pipeline, whet, write


def test_the_report_is_one_file_that_asks_for_nothing_else(tiny: Pipeline) -> None:
    page = (tiny.folder / "report.html").read_text()
    fetched = re.findall(r"""<(?:script|img|iframe|link)[^>]*\s(?:src|href)=["']?(?!data:|#)([^"'\s>]+)""", page)
    assert fetched == []
    assert not re.search(r"@import|url\((?!['\"]?(?:data:|#))", page)


def test_the_report_shows_what_was_measured(tiny: Pipeline) -> None:
    page = (tiny.folder / "report.html").read_text()
    for words in ("Answer length", "Entropy", "KL to the start", "Reward", "Loss", "group_size", "seed"):
        assert words in page


def test_the_last_words_say_what_was_learned_and_where_to_look(tiny: Pipeline) -> None:
    words = tiny.said.err.split("What was learned\n")[1].splitlines()
    assert re.fullmatch(r"  after sft +\S+\s% \[\S+,\s\S+\] of 409 unseen problems solved, \S+ % greedily", words[0])
    assert words[1].startswith("  after rl ")
    assert words[-3:] == [
        f"Report   {tiny.folder}/report.html",
        f'Ask it   whet try {tiny.folder} "4 6 8 1"',
        f"Take it  whet export {tiny.folder} OUT",
    ]


def test_a_pipeline_with_one_evaluation_tells_of_it_alone(tiny: Pipeline, tmp_path: Path) -> None:
    text = f"""kind = "run"
[stages.exam]
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
    file = write(tmp_path / "p.toml", 'kind = "run"\n[stages.problems]\nkind = "make"\n')
    assert whet("run", file, "--out", tmp_path / "run").code == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stages"] == []
    assert list(summary["seconds"]) == ["problems"]
    assert (tmp_path / "run" / "report.html").is_file()
