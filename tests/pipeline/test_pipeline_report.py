import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from small import Pipeline, whet, write

from whet.config import load_settings
from whet.data.problems import write_problems
from whet.evals.stats import Estimate
from whet.evals.summary import summarise
from whet.pipeline.report import _describe_fall, list_warnings, write_stage_report
from whet.recipes.rl import RLConfig
from whet.reports.report_data import NamedEval
from whet.store.run import RunStore
from whet.tasks.game24 import Game24
from whet.testing.fakes import rollout, sum_problem
from whet.types import Group, Message, Score, Verdict


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
        r"  after sft +\S+\s% \[\S+,\s\S+\] of 409 unseen problems solved, \S+ % greedy", words[0]
    )
    assert words[1].startswith("  after rl ")
    steps = tiny.said.err.partition("05-rl\n")[2].partition("06-rl_eval\n")[0].splitlines()
    assert len(steps) > 6 and max(map(len, steps + words[:2])) <= 80
    question = next(iter(Game24().problems("dev"))).prompt[-1].content
    assert words[-4:] == [
        f"See it   whet view {tiny.folder}",
        f"Report   {tiny.folder}/report.html",
        f'Ask it   whet try {tiny.folder} "{question}"',
        f"Take it  whet export {tiny.folder} OUT",
    ]


def test_nearly_all_of_a_training_stage_has_a_phase(tiny: Pipeline) -> None:
    page = (tiny.folder / "report.html").read_text()
    run = RunStore.view(tiny.folder / "05-rl")
    (outside,) = [row for row in run.events() if row["event"] == "seconds"]
    assert all(outside[phase] > 0 for phase in ("start", "validate", "save"))
    bar = page.partition('<th scope="row">rl</th>')[2].partition("</svg>")[0]
    widths = {n: float(w) for w, n in re.findall(r'width="([\d.]+)%"[^>]+part-(\w+)"', bar)}
    assert widths["rest"] < sum(widths.values()) / 4


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


@pytest.mark.parametrize(
    ("validation", "sentence"),
    [
        (
            "every = 1, samples = 1",
            r"SFT took 1 step and went from \S+\s% .* of the validation problems solved",
        ),
        (
            "every = 0, samples = 1",
            r"SFT took 1 step and ends at .* the validation problems solved",
        ),
    ],
)
def test_without_an_evaluation_the_last_words_are_of_validations(
    tiny: Pipeline, tmp_path: Path, validation: str, sentence: str
) -> None:
    text = f"""kind = "run"
task.name = "game24"
[stages.sft]
kind = "sft"
steps = 1
data = "{tiny.folder}/02-traces"
model = {{ new = "tiny", positions = 48 }}
sampling = {{ max_tokens = 16 }}
validation = {{ {validation} }}
"""
    said = whet("run", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    words = said.err.split("What was learned\n")[1].splitlines()
    assert re.fullmatch(rf"  {sentence}\.", words[0])
    assert words[1].startswith("  in ")


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
    assert "\nDone\n  problems finished.\n  in " in said.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["stages"] == []
    assert list(summary["seconds"]) == ["problems"]
    assert (tmp_path / "run" / "report.html").is_file()


def test_the_report_says_what_the_run_is_about(tiny: Pipeline) -> None:
    page = (tiny.folder / "report.html").read_text()
    about = page.partition('class="facts about"')[2].partition("</dl>")[0]
    assert "The 24 game: make 24 from four numbers" in about
    assert "new from random weights, of the size tiny" in about
    assert re.search(r"[\d.]+ million parameters, \d+ layers of \d+", about)
    assert re.search(r"problems: \d+ sft, \d+ rl, \d+ dev, 547 test problems", about)
    assert re.search(r"traces: [\d,]+ responses", about)
    assert "sft 40 steps, rl 6 steps" in about


def test_a_right_answer_stands_beside_a_wrong_one(tiny: Pipeline) -> None:
    page = (tiny.folder / "report.html").read_text()
    wrong = [part for part in page.split("<article")[1:] if "level" in part.partition("</h3>")[0]]
    missed = [part for part in wrong if "✗" in part]
    assert missed
    assert all(re.search(r"Right answer</span>\s*<code[^>]*>[^<]*= 24\b", part) for part in missed)


def test_a_stage_by_itself_leaves_a_report(tiny: Pipeline, tmp_path: Path) -> None:
    text = f"""kind = "rl"
task.name = "game24"
steps = 2
problems_per_step = 2
group_size = 2
model = {{ path = "{tiny.folder}/03-sft" }}
sampling = {{ max_tokens = 16 }}
reward = {{ weights = {{ lines = -0.1, finished = 1.0 }} }}
validation = {{ every = 1, samples = 1 }}
"""
    said = whet("rl", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    page = (tmp_path / "run" / "report.html").read_text()
    assert re.search(
        r"RL took 2 steps and went from .* to .* of the validation problems solved", page
    )
    assert "problems of the task itself" in page
    assert "Response length" in page
    assert "group_size" in page


def test_many_answers_for_one_that_fall_while_one_rises_are_told_below_the_headline() -> None:
    def group(number: int, right: int) -> Group:
        scores = [
            Score(verdict=Verdict.CORRECT if i < right else Verdict.WRONG, parts={})
            for i in range(4)
        ]
        problem = sum_problem(number // 10, number % 10, "test")
        return tuple(rollout(problem=problem, score=s, number=i) for i, s in enumerate(scores))

    # One of four answers right to each of 20 problems, then all four to eight of them.
    answers = {
        "sft": [group(n, 1) for n in range(20)],
        "rl": [group(n, 4 if n < 8 else 0) for n in range(20)],
    }
    named = {name: NamedEval(name=name, summary=summarise(own)) for name, own in answers.items()}
    (warning,) = list_warnings([["sft", "rl"]], named, answers)
    assert warning.startswith("rl solves more problems with one response, but fewer with 4: pass@4")
    assert "changed by −60.0 points" in warning  # from 20 of 20 problems to 8
    assert "chance" not in warning
    assert warning.endswith("Its responses have become more alike.")
    assert list(list_warnings([["rl", "sft"]], named, answers)) == []


def test_a_fall_that_may_be_chance_is_not_given_a_cause() -> None:
    unclear = Estimate(mean=-0.1, low=-0.4, high=0.2, count=20)
    sentence = _describe_fall("rl", 4, unclear)
    assert sentence.endswith("which may be chance. Its responses may have become more alike.")


def test_curves_that_only_round_are_not_drawn_and_a_worse_end_is_said_at_the_top(
    tiny: Pipeline, tmp_path: Path
) -> None:
    run = RunStore(tiny.copy(tmp_path / "run") / "05-rl", lock=None)
    logged = map(json.loads, run.metrics_file.read_text().splitlines())
    rows = [row | {"loss": 1e-9 * row["step"], "policy/kl": 0.0} for row in logged]
    run.metrics_file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    run.log_event("worse", said="after 2 steps, the model ends worse than it began")
    loaded = load_settings(RLConfig, run.config_file, [])
    write_stage_report(loaded, run)
    page = run.report_file.read_text()
    assert "Entropy" in page and "KL to the start" not in page
    assert "<h3>Loss" not in page and ">Loss<" not in page
    header = page.partition("</header>")[0]
    assert "rl: after 2 steps, the model ends worse than it began" in header
    assert "ends worse" not in page.partition("</header>")[2]


def test_answers_cut_at_the_limit_are_told(tiny: Pipeline) -> None:
    page = (tiny.folder / "report.html").read_text()
    assert re.search(r"\d+\s% of the responses of rl were cut off at the length limit", page)


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
    assert all(Path(name).name in page for name in names)
    headline = page.partition("</h1>")[2].partition("</")[0]
    assert f"{tiny.folder.name} on tests" in headline
    assert f"\n  {names[1]} " in said.err, "nothing was trained before it"


def test_a_kind_of_the_users_own_that_measures_a_model_is_in_the_report(
    tiny: Pipeline, tmp_path: Path
) -> None:
    code = """from whet.recipes.evaluate import EvalConfig, evaluate_model
from whet.stages.stage import ModelStageConfig


class Mine(ModelStageConfig):
    measures_model = True

    def run_in(self, run):
        settings = {"task": self.task, "model": self.model, "sampling": self.sampling}
        evaluate_model(EvalConfig(**settings, split="dev", samples=1), run)
"""
    text = f"""kind = "run"
task.name = "game24"
[stages.mine]
kind = "{tmp_path}/mine.py:Mine"
model = {{ path = "{tiny.folder}" }}
sampling = {{ max_tokens = 16 }}
"""
    write(tmp_path / "mine.py", code)
    said = whet("run", write(tmp_path / "p.toml", text), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert [row["name"] for row in summary["stages"]] == [str(tiny.folder)]
    assert "unseen problems" in (tmp_path / "run" / "report.html").read_text()
