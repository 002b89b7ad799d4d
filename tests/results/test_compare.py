"""Runs side by side: the numbers of the table, the page, and what is said beside them."""

import html
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from small import Pipeline, whet, write

from whet.config import load_settings
from whet.errors import DataError
from whet.evals.stats import mean_estimate
from whet.evals.summary import summarise
from whet.recipes.evaluate import EvalConfig
from whet.recipes.rl import RLConfig
from whet.reports.report_pages import write_comparison
from whet.results.compare_runs import build_comparison
from whet.store.run import RunStore
from whet.testing.fakes import rollout, sum_problem
from whet.types import Group, Score, Verdict

BAD = "<script>alert(1)</script>"


def answer(number: int, is_right: list[bool]) -> Group:
    """Answers to one sum, right or wrong."""
    verdicts = [Verdict.CORRECT if right else Verdict.WRONG for right in is_right]
    problem = sum_problem(number // 10, number % 10, "test")
    scores = [Score(verdict=verdict, parts={}) for verdict in verdicts]
    return tuple(rollout(problem=problem, score=s, number=n) for n, s in enumerate(scores))


def evaluation(
    folder: Path, right: list[int], *, seed: int, temperature: float, of: int = 2
) -> Path:
    """Write a finished evaluation in which problem n has right[n] right answers of two."""
    text = (
        f'kind = "eval"\ntask = "game24"\nseed = {seed}\nmodel = {{ path = "m" }}\n'
        f"sampling = {{ temperature = {temperature} }}\n"
    )
    loaded = load_settings(EvalConfig, write(folder.with_suffix(".toml"), text), [])
    sampled = [answer(n, [i < count for i in range(of)]) for n, count in enumerate(right)]
    greedy = [answer(n, [count == of]) for n, count in enumerate(right)]
    with RunStore.open(folder, loaded.config, loaded.origin, resume=False) as run:
        for step, groups in enumerate((sampled, greedy)):
            run.write_rollouts("eval", step, groups)
            run.write_eval(step, summarise(groups, ks=[1]).to_json())
        run.finish({"sampled": {}})
    return folder


@pytest.fixture
def four(tmp_path: Path) -> list[Path]:
    """Two seeds each of two temperatures, on ten problems."""
    cold, hot = [2] * 6 + [0] * 4, [2] * 4 + [0] * 6
    return [
        evaluation(tmp_path / "hot-1", hot, seed=1, temperature=1.0),
        evaluation(tmp_path / "hot-2", hot, seed=2, temperature=1.0),
        evaluation(tmp_path / "cold-1", cold, seed=1, temperature=0.5),
        evaluation(tmp_path / "cold-2", [1, *cold[1:]], seed=2, temperature=0.5),
    ]


def test_scores_are_means_over_seeds_and_problems_and_compared_with_the_first_arm(
    four: list[Path], tmp_path: Path
) -> None:
    said = whet("compare", *four, "--json")
    assert said.code == 0, said.err
    row = json.loads(said.out)
    assert [arm["name"] for arm in row["arms"]] == ["temperature 1.0", "temperature 0.5"]
    assert [arm["seeds"] for arm in row["arms"]] == [["1", "2"], ["1", "2"]]
    first = row["scores"][0]
    hot, cold = first["scores"]
    assert (first["stage"], first["figure"]) == ("eval", "pass@1")
    assert hot["by_seed"] == [0.4, 0.4]
    assert cold["by_seed"] == [0.6, pytest.approx(0.55)]  # 11 of 20 answers
    assert cold["estimate"]["mean"] == pytest.approx(0.575)
    assert cold["comparison"]["difference"]["mean"] == pytest.approx(0.175)
    assert cold["comparison"]["num_seeds"] == [2, 2]
    assert hot["comparison"] is None
    # pass@2 of cold: six problems have a right answer among two in both seeds.
    assert row["scores"][1]["figure"] == "pass@2"
    assert row["scores"][1]["scores"][1]["estimate"]["mean"] == pytest.approx(0.6)
    assert row["scores"][2]["figure"] == "greedy"
    assert list(tmp_path.glob("*.html")) == [], "--json alone writes no page"


def test_the_terminal_says_what_differs_and_whether_the_data_can_tell(
    four: list[Path], tmp_path: Path
) -> None:
    said = whet("compare", *four, "--out", tmp_path / "c.html")
    assert "sampling.temperature (divides the logits): 1.0 against 0.5" in said.out
    assert re.search(r"eval pass@1 +temperature 0.5 +57.5\s% \[.*\] +\+17.5 points", said.out)
    words = "No detectable difference between temperature 0.5 and temperature 1.0 on eval pass@1."
    assert words in said.out
    assert "would be found in four of five cases" in said.out
    assert f"page in {tmp_path / 'c.html'}" in said.err


def test_a_difference_that_no_chance_explains_has_a_p_below_a_thousandth(tmp_path: Path) -> None:
    none = evaluation(tmp_path / "a", [0] * 40, seed=1, temperature=1.0)
    all_right = evaluation(tmp_path / "b", [2] * 40, seed=1, temperature=0.5)
    page = build_comparison([none, all_right])
    assert page.headline.startswith("temperature 0.5 scores higher than temperature 1.0")
    assert page.detail.endswith(", p < 0.001.")


def test_single_seeds_and_problems_that_are_not_shared_are_said(tmp_path: Path) -> None:
    one = evaluation(tmp_path / "a", [2, 0], seed=1, temperature=1.0)
    other = evaluation(tmp_path / "b", [2, 0, 1], seed=1, temperature=0.5)
    for step in (0, 1):  # other problems than the first arm has
        file = RunStore.view(other).rollout_file("eval", step)
        file.unlink()
        groups = [answer(50 + n, [True, False]) for n in range(3)]
        RunStore(other, lock=None).write_rollouts("eval", step, groups)
    page = build_comparison([one, other])
    assert "have one seed" in page.notes[0]
    assert {row.note for row in page.scores} == {"not paired: no problem in common"}
    score = page.scores[0].scores[1]
    assert score is not None and score.comparison is not None
    assert score.comparison.difference.mean == 0.0  # one half against one half


def test_other_code_and_other_data_are_said(four: list[Path]) -> None:
    for folder, commit in zip(four, "aabb", strict=True):
        facts = json.loads((folder / "provenance.json").read_text())
        (folder / "provenance.json").write_text(json.dumps(facts | {"commit": commit * 40}))
        RunStore(folder, lock=None).log_event(
            "inputs", files={"problems problems-test.jsonl": commit}
        )
    notes = build_comparison(four).notes
    assert "The runs differ in the code: aaaaaaaaaaaa, bbbbbbbbbbbb." in notes
    assert "The runs read 2 versions of one input (eval: problems problems-test.jsonl)." in notes


def test_training_runs_are_compared_by_their_last_validations(
    tiny: Pipeline, tmp_path: Path
) -> None:
    folders = []
    for name, seed in (("a", 3), ("b", 4)):
        folders.append(Path(tmp_path / name))
        (tmp_path / name).mkdir()
        for file in ("metrics.jsonl", "provenance.json", "summary.json"):
            (tmp_path / name / file).write_bytes((tiny.folder / "05-rl" / file).read_bytes())
        (tmp_path / name / "evals").mkdir()
        last = sorted((tiny.folder / "05-rl" / "evals").iterdir())[-1]
        (tmp_path / name / "evals" / last.name).write_bytes(last.read_bytes())
        settings = (tiny.folder / "05-rl" / "config.toml").read_text()
        (tmp_path / name / "config.toml").write_text(settings.replace("seed = 3", f"seed = {seed}"))
    page = build_comparison(folders)
    assert len(page.arms) == 1
    (row,) = page.scores
    assert (row.stage, row.figure) == ("rl", "last validation")
    assert set(page.curves["rl"]) >= {"Reward", "Entropy", "Response length"}
    reward = page.curves["rl"]["Reward"][0]
    assert reward.low == reward.high == reward.values, "the two runs have the same metrics"


def test_the_page_has_no_script_and_takes_names_as_text(four: list[Path], tmp_path: Path) -> None:
    for folder in four:
        settings = (folder / "config.toml").read_text()
        (folder / "config.toml").write_text(settings.replace('path = "m"', f'path = "{BAD}"', 1))
    changed = four[2] / "config.toml"
    changed.write_text(changed.read_text().replace(BAD, f"{BAD}2", 1))
    write_comparison(build_comparison(four), tmp_path / "c.html")
    page = (tmp_path / "c.html").read_text()
    assert "<script" not in page
    assert "&lt;script&gt;" in page
    assert "default-src 'none'; style-src 'sha256-" in html.unescape(page)
    assert not re.search(r"https?://|url\(|@import|\ssrc=", page)


def test_a_page_is_replaced_by_a_page_and_nothing_else_is(four: list[Path], tmp_path: Path) -> None:
    out = tmp_path / "c.html"
    assert whet("compare", *four, "--out", out).code == 0
    assert whet("compare", *four, "--out", out).code == 0
    out.write_text("my notes")
    said = whet("compare", *four, "--out", out)
    assert (said.code, out.read_text()) == (2, "my notes")
    assert "already exists and is not a comparison" in said.last


def test_one_run_is_no_comparison_and_a_wrong_folder_is_one_sentence(
    four: list[Path], tmp_path: Path
) -> None:
    assert "needs at least two runs" in whet("compare", four[0]).last
    with pytest.raises(DataError, match="holds no run"):
        build_comparison([four[0], tmp_path / "none"])


def training(folder: Path, rates: dict[str, float], *, lr: float, seed: int = 1) -> Path:
    """Write a finished RL run whose last validation has these rates of problems."""
    text = (
        f'kind = "rl"\ntask = "game24"\nseed = {seed}\nmodel = {{ path = "m" }}\ntrain.lr = {lr}\n'
    )
    loaded = load_settings(RLConfig, write(folder.with_suffix(".toml"), text), [])
    any_summary = summarise([answer(0, [True])], ks=[1])
    mean = mean_estimate([*rates.values()])
    with RunStore.open(folder, loaded.config, loaded.origin, resume=False) as run:
        for step, scores in ((0, dict.fromkeys(rates, 0.0)), (4, rates)):
            summary = replace(any_summary, pass_at={1: mean}, rates=scores)
            run.write_eval(step, summary.to_json())
        run.finish({"sampled": {}})
    return folder


def test_last_validations_of_single_seeds_are_paired_by_problem(tmp_path: Path) -> None:
    low = training(tmp_path / "a", {f"p{n}": n % 2 / 2 for n in range(40)}, lr=1e-5)
    higher = {f"p{n}": n % 2 / 2 + (n % 5 == 0) / 2 for n in range(40)}
    high = training(tmp_path / "b", higher, lr=2e-5)
    page = build_comparison([low, high])
    (row,) = page.scores
    first, second = row.scores
    assert first is not None and first.comparison is None
    assert second is not None and second.comparison is not None
    assert second.comparison.difference.mean == pytest.approx(0.1)  # 8 of 40 by one half
    assert second.comparison.difference.count == 40
    assert page.headline.startswith("lr 2e-05 scores higher than lr 1e-05 on rl last validation")
    # t = 0.1 / sqrt(0.041 / 40) = 3.12, with 39 degrees of freedom
    assert page.detail.endswith("p = 0.003.")


def test_last_validations_on_other_problems_are_not_compared_and_a_sentence_says_so(
    tmp_path: Path,
) -> None:
    low = training(tmp_path / "a", {f"p{n}": n % 2 for n in range(40)}, lr=1e-5)
    high = training(tmp_path / "b", {f"q{n}": 1.0 for n in range(40)}, lr=2e-5)
    page = build_comparison([low, high])
    (row,) = page.scores
    assert [score is not None and score.comparison is None for score in row.scores] == [True, True]
    assert page.headline == "lr 2e-05 and lr 1e-05 are not compared on rl last validation."
    assert page.notes[0] == (
        "lr 2e-05 and lr 1e-05 are not compared on rl last validation: their validations have no "
        "problem in common."
    )
    assert row.note == "not compared: no problem in common"


def test_a_difference_on_some_of_the_problems_says_how_many(tmp_path: Path) -> None:
    low = training(tmp_path / "a", {f"p{n}": n % 2 for n in range(40)}, lr=1e-5)
    high = training(tmp_path / "b", {f"p{n}": n % 2 for n in range(10, 50)}, lr=2e-5)
    page = build_comparison([low, high])
    assert " on the 30 problems that both have, p = 1" in page.detail


def test_last_validations_without_rates_of_problems_are_shown_and_single_seeds_not_compared(
    tmp_path: Path,
) -> None:
    low = training(tmp_path / "a", {f"p{n}": n % 2 for n in range(40)}, lr=1e-5)
    high = training(tmp_path / "b", {f"p{n}": 1.0 for n in range(40)}, lr=2e-5)
    file = high / "evals" / "000004.json"
    row = json.loads(file.read_text())
    del row["rates"]
    file.write_text(json.dumps(row))
    page = build_comparison([low, high])
    assert [score is not None and score.comparison is None for score in page.scores[0].scores] == [
        True,
        True,
    ]
    assert page.scores[0].note == "one seed each"
