"""`import whet` in a notebook: tasks, grading, models, sampling, a run as tables; and the example."""

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from statistics import fmean

import pytest
import torch

import whet
from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.store.run import RunStore
from whet.tasks.generated import GeneratedTask
from whet.testing.fakes import group
from whet.train.policy import Policy
from whet.types import Verdict

HEAVY = ("torch", "numpy", "pydantic", "pyarrow")
EXAMPLE = Path(__file__).parents[1] / "examples" / "grpo_loop.py"
MAX_EXAMPLE_LINES = 40


@pytest.fixture(scope="module")
def policy() -> Policy:
    return whet.load_model("tiny", task=whet.task("countdown", count=20, level=[0.0, 0.1]))


def test_a_task_grades_its_own_solution_as_correct() -> None:
    task = whet.task("countdown")
    problem = next(iter(task.problems("dev")))
    text = task.solve(problem, 0)
    assert text is not None
    assert whet.grade(task, problem, text).verdict is Verdict.CORRECT
    assert whet.grade("countdown", problem, "I do not know.").verdict is not Verdict.CORRECT


def test_an_unknown_task_is_refused_with_those_that_are_known() -> None:
    with pytest.raises(ConfigError, match=r"there is no task 'none'; known tasks: .*countdown"):
        whet.task("none")


def test_a_task_takes_its_settings() -> None:
    assert len(list(whet.task("countdown", count=3).problems("dev"))) == 3


def test_a_wrong_setting_of_a_task_is_refused_by_its_name() -> None:
    with pytest.raises(ConfigError, match=r"task\.counts.*count"):
        whet.task("countdown", counts=3)


@pytest.mark.parametrize("name", ["countdown", "game24", "distance", "math", "mix"])
def test_an_unknown_split_is_refused_with_those_that_are_known(name: str) -> None:
    settings = {"tasks": ["reverse", "math"]} if name == "mix" else {}
    with pytest.raises(
        ConfigError, match=r"^there is no split 'test1'; the splits are sft, rl, dev, test$"
    ):
        list(whet.task(name, **settings).problems("test1"))


def test_a_generator_refuses_a_split_that_no_draw_would_match() -> None:
    task = whet.task("countdown")
    assert isinstance(task, GeneratedTask)
    with pytest.raises(ConfigError, match="there is no split 'test1'"):
        task.generate(0, split="test1")


def test_what_is_no_problem_or_no_text_is_not_graded() -> None:
    task = whet.task("reverse", count=1)
    problem = next(iter(task.problems("dev")))
    with pytest.raises(ConfigError, match=r"takes a Problem, not a dict: .*Problem\.from_json$"):
        whet.grade(task, problem.to_json(), "x")
    with pytest.raises(ConfigError, match=r"not a Rollout: of a rollout, pass rollout\.text$"):
        whet.grade(task, problem, whet.solve(task, [problem])[0])


def test_one_problem_or_one_prompt_is_refused_where_a_list_belongs(policy: Policy) -> None:
    task = whet.task("reverse", count=1)
    with pytest.raises(ConfigError, match=r"takes a list of problems, .*pass \[problem\]$"):
        whet.sample(policy, task, next(iter(task.problems("dev"))))
    with pytest.raises(ConfigError, match=r"takes a list of prompts, .*pass \[prompt\]$"):
        whet.generate(policy, "one prompt")


def test_a_policy_and_a_task_say_what_they_are(policy: Policy) -> None:
    assert re.fullmatch(r"<policy tiny: [\d.]+M weights on cpu>", repr(policy))
    shown = repr(whet.task("countdown", count=3))
    assert shown.startswith("<task countdown: ") and "count=3" in shown


def test_solutions_of_a_task_are_rollouts_that_it_grades_as_correct() -> None:
    task = whet.task("countdown", count=3)
    problems = list(task.problems("sft"))
    rollouts = whet.solve(task, problems)
    assert [rollout.problem for rollout in rollouts] == problems
    assert {whet.grade(task, r.problem, r.text).verdict for r in rollouts} == {Verdict.CORRECT}


def test_a_new_model_reads_the_texts_of_its_task(policy: Policy) -> None:
    prompt = next(iter(whet.task("countdown", count=1, level=[0.0, 0.1]).problems("sft"))).prompt
    assert prompt[-1].content in policy.tokenizer.decode(policy.chat.encode_prompt(prompt))
    assert policy.engine.max_model_len == 256


def test_a_new_model_without_a_task_is_refused() -> None:
    with pytest.raises(ConfigError, match="size 'tiny' needs a task"):
        whet.load_model("tiny")


def test_a_saved_model_is_loaded_with_the_same_answers(policy: Policy, tmp_path: Path) -> None:
    policy.save(str(tmp_path))
    again = whet.load_model(tmp_path)
    answers = whet.generate(policy, ["Make 7 from 3 4"], max_tokens=8, temperature=0.0)
    assert whet.generate(again, ["Make 7 from 3 4"], max_tokens=8, temperature=0.0) == answers


def test_samples_come_in_graded_groups_and_follow_the_seed(policy: Policy) -> None:
    task = whet.task("countdown", count=2)
    problems = list(task.problems("rl"))

    def texts(seed: int) -> list[list[str]]:
        groups = whet.sample(policy, task, problems, samples=3, max_tokens=6, seed=seed)
        assert [{rollout.problem.id for rollout in group} for group in groups] == [
            {problem.id} for problem in problems
        ]
        assert all(rollout.score is not None for group in groups for rollout in group)
        return [[rollout.text for rollout in group] for group in groups]

    assert [len(group) for group in texts(0)] == [3, 3]
    assert texts(0) == texts(0) != texts(1)


def test_generated_texts_stand_under_their_prompts(policy: Policy) -> None:
    prompts = ["Make 7 from 3 4", "Make 8 from 2 4"]
    both = whet.generate(policy, prompts, samples=2, max_tokens=6)
    assert [len(texts) for texts in both] == [2, 2]
    assert both[0][0] != both[0][1]
    greedy = whet.generate(policy, prompts, max_tokens=6, temperature=0.0)
    alone = [whet.generate(policy, [p], max_tokens=6, temperature=0.0)[0] for p in prompts]
    assert greedy == alone


def test_the_grpo_example_learns_from_reward(capsys: pytest.CaptureFixture[str]) -> None:
    history = load_example()(sft_steps=200, rl_steps=24)
    assert len(history) == len(capsys.readouterr().out.splitlines()) == 24
    assert min(metrics["train/grad_norm"] for metrics in history) > 0
    rewards = [metrics["reward/mean"] for metrics in history]
    assert fmean(rewards[-8:]) > fmean(rewards[:8]) > 0


def test_the_grpo_example_runs_in_bfloat16_as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("whet.models.source.torch_dtype", lambda _: torch.bfloat16)
    history = load_example()(sft_steps=100, rl_steps=2)
    assert min(metrics["train/grad_norm"] for metrics in history) > 0


def load_example() -> Callable[..., list[dict[str, float]]]:
    spec = importlib.util.spec_from_file_location("grpo_loop", EXAMPLE)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    main: Callable[..., list[dict[str, float]]] = module.main
    return main


def test_the_grpo_example_is_short_enough_to_read_first() -> None:
    """Blank lines, comments and docstrings aside."""
    assert 20 < num_code_lines(EXAMPLE.read_text()) <= MAX_EXAMPLE_LINES


def num_code_lines(source: str) -> int:
    tree = ast.parse(source)
    text_lines = {
        line
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    lines = enumerate(source.splitlines(), start=1)
    code = [line for number, line in lines if number not in text_lines and line.strip()]
    return len([line for line in code if not line.strip().startswith("#")])


def test_a_run_is_read_as_tables(tmp_path: Path) -> None:
    with RunStore.open(tmp_path, Config(), {}, resume=False) as run:
        run.log_metrics(1, {"loss": 0.5})
        run.log_metrics(2, {"loss": 0.25, "reward/mean": 1.0})
        run.write_rollouts("train", 1, [group([1.0, 0.0])])
        run.write_rollouts("train", 2, [group([0.5])])
        run.write_rollouts("eval", 2, [group([None])])
        run.write_eval(2, {"pass": 1})

    tables = whet.read_run(tmp_path)

    assert tables.metrics.to_pylist() == [
        {"step": 1.0, "loss": 0.5, "reward/mean": None},
        {"step": 2.0, "loss": 0.25, "reward/mean": 1.0},
    ]
    rows = tables.rollouts.select(["step", "kind", "reward", "text"]).to_pylist()
    assert [(row["step"], row["kind"], row["reward"]) for row in rows] == [
        (1, "train", 1.0),
        (1, "train", 0.0),
        (2, "train", 0.5),
        (2, "eval", None),
    ]
    assert tables.evals == {2: {"pass": 1}}


def test_a_run_without_steps_has_empty_tables(tmp_path: Path) -> None:
    RunStore.open(tmp_path, Config(), {}, resume=False).close()
    tables = whet.read_run(str(tmp_path))
    assert (len(tables.metrics), len(tables.rollouts), tables.evals) == (0, 0, {})


def test_a_folder_without_a_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds no run"):
        whet.read_run(tmp_path)


def test_a_pipeline_folder_is_refused_with_the_stages_in_it(tmp_path: Path) -> None:
    for name in ("02-rl", "01-sft", ".old-01-sft-1"):
        RunStore.open(tmp_path / name, Config(), {}, resume=False).close()
    with pytest.raises(DataError, match=r"is a pipeline; name one of its stages: 01-sft, 02-rl$"):
        whet.read_run(tmp_path)


def test_everything_that_whet_offers_can_be_loaded_and_is_listed() -> None:
    assert all(getattr(whet, name).__name__ == name for name in whet.__all__)
    assert dir(whet) == sorted(whet.__all__)


def test_importing_whet_loads_nothing_heavy_and_knows_no_other_names() -> None:
    script = f"import sys, whet; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
    with pytest.raises(AttributeError, match="no attribute 'sharpen'"):
        whet.sharpen  # noqa: B018
    with pytest.raises(AttributeError, match=r"no attribute 'sampl'; did you mean 'sample'\?"):
        whet.sampl  # noqa: B018


def test_tasks_grading_and_runs_need_no_torch(tmp_path: Path) -> None:
    RunStore.open(tmp_path, Config(), {}, resume=False).close()
    script = (
        "import sys, whet; task = whet.task('reverse', count=1); "
        "problem = next(iter(task.problems('dev'))); whet.grade(task, problem, 'x'); "
        "whet.solve(task, [problem]); whet.read_run(sys.argv[1]); print('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "False"
