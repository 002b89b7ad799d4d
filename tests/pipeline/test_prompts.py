"""One prompt for all stages: who sees it, and what is refused where two stages differ."""

from itertools import islice
from pathlib import Path

import pytest
from small import whet, write

from whet.commands.show_responses import load_run_policy
from whet.data.problems import write_problems
from whet.library import load_policy
from whet.store.run import RunStore, find_run
from whet.tasks.base import list_problems
from whet.tasks.registry import build_default_task
from whet.text.tokenizer import Tokenizer
from whet.types import SPLITS

FILE = """kind = "run"
task.name = "game24"
problems = "{problems}"
prompt.template = "Make 24 of {{question}}!"
sampling = {{ max_tokens = 8 }}
[stages.traces]
kind = "teach"
per_problem = 1
workers = 1
[stages.sft]
kind = "sft"
data = "@traces"
steps = 1
batch_size = 4
model = {{ new = "tiny", positions = 96 }}
[stages.rl]
kind = "rl"
model = {{ path = "@sft" }}
steps = 1
problems_per_step = 2
group_size = 2
[stages.eval]
kind = "eval"
model = {{ path = "@rl" }}
samples = 1
"""


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prompts")
    task = build_default_task("game24")
    for split in SPLITS:
        write_problems(folder / "data", split, list(islice(list_problems(task, split), 4)))
    file = write(folder / "p.toml", FILE.format(problems=folder / "data"))
    said = whet("run", file, "--out", folder / "run")
    assert said.code == 0, said.err
    return folder / "run"


@pytest.mark.parametrize(
    ("stage", "kind", "step"),
    [("03-rl", "train", 1), ("04-eval", "eval", 0), ("04-eval", "eval", 1)],
)
def test_rl_and_evaluation_put_problems_by_the_template(
    stage: str, kind: str, step: int, pipeline: Path
) -> None:
    tokenizer = Tokenizer.load(pipeline / "02-sft" / "checkpoints" / "000001")
    rollouts = RunStore.view(pipeline / stage).rollouts(kind, step)  # type: ignore[arg-type]
    for rollout in rollouts:
        question = rollout.problem.prompt[-1].content
        assert not question.startswith("Make")
        assert tokenizer.decode(rollout.prompt_tokens) == f"Make 24 of {question}!\n"
    assert rollouts


def test_the_tokenizer_of_a_new_model_knows_the_template(pipeline: Path) -> None:
    tokenizer = Tokenizer.load(pipeline / "02-sft" / "checkpoints" / "000001")
    assert len(tokenizer.encode("Make 24 of")) == 3


def test_a_question_typed_at_a_trained_model_is_put_by_its_prompt(pipeline: Path) -> None:
    assert load_run_policy(str(pipeline), slots=1).chat.prompt.template == "Make 24 of {question}!"
    policy = load_policy(pipeline / "03-rl")
    assert policy.chat.prompt.template == "Make 24 of {question}!"


def evaluate(model: Path | str, folder: Path, *flags: str) -> str:
    file = write(folder / "eval.toml", 'kind = "eval"\ntask = "game24"\nmodel.path = "none"\n')
    return whet("plan", file, "--model.path", model, *flags).last


@pytest.mark.parametrize("part", ["", "03-rl", "03-rl/checkpoints/000001"])
def test_a_run_of_another_prompt_is_refused_in_a_sentence(
    part: str, pipeline: Path, tmp_path: Path
) -> None:
    model = pipeline / part
    said = evaluate(model, tmp_path)
    assert said == (
        "whet: eval puts problems to the model with prompt = none, but its model.path = "
        f'\'{model}\' was made with prompt = {{"template": "Make 24 of {{question}}!"}}: give '
        "both the same, or set prompt.differs = true"
    )
    assert "prompt.differs" not in evaluate(model, tmp_path, "--prompt.differs", "true")
    same = ("--prompt.template", "Make 24 of {question}!")
    assert "prompt.differs" not in evaluate(model, tmp_path, *same)


def test_the_answers_of_a_run_of_another_prompt_are_refused_too(
    pipeline: Path, tmp_path: Path
) -> None:
    text = 'kind = "dpo"\ntask = "game24"\nmodel.path = "m"\n'
    file = write(tmp_path / "dpo.toml", text)
    data = pipeline / "03-rl" / "rollouts" / "train-000001.parquet"
    said = whet("plan", file, "--data", data)
    assert said.code == 2 and f"its data = '{data}' was made with prompt = " in said.last


def test_stages_of_a_pipeline_that_differ_are_found_before_the_first_runs(tmp_path: Path) -> None:
    file = write(tmp_path / "p.toml", FILE.format(problems="p"))
    said = whet("show", file, "--stages.rl.prompt.system", "Think.")
    assert said.code == 2
    assert said.last.startswith("whet: rl puts problems to the model with prompt = ")
    assert '"system": "Think."' in said.last and "its model.path = '@sft'" in said.last
    flags = ("--stages.rl.prompt.system", "Think.", "--stages.rl.prompt.differs", "true")
    assert "eval puts problems" in whet("show", file, *flags).last
    more = ("--stages.eval.prompt.system", "Think.")
    assert whet("show", file, *flags, *more).code == 0


def test_only_the_folders_of_runs_are_looked_into(tmp_path: Path) -> None:
    write(tmp_path / "config.toml", "")
    (tmp_path / "models" / "one").mkdir(parents=True)
    assert find_run(str(tmp_path / "models" / "one")) is None
    assert find_run("Qwen/Qwen3-8B") is None
    assert find_run(str(tmp_path / "checkpoints" / "000001")) == tmp_path


def test_a_smoke_run_leaves_out_what_its_models_do_not_have(tmp_path: Path) -> None:
    text = FILE.format(problems="p").replace('new = "tiny", positions = 96', 'path = "Qwen/x"')
    text = text.replace(
        "[stages.traces]", "prompt.system = 's'\nprompt.chat_options.x = 1\n[stages.traces]"
    )
    file = write(tmp_path / "p.toml", text)
    said = whet("run", file, "--smoke", "--out", tmp_path / "out")
    assert said.code == 0, said.err
