"""`whet data show --model` prints what the model sees, token for token."""

import io
from pathlib import Path

import pytest
from rich.console import Console
from small import whet, write
from transformers import AutoTokenizer

from whet.commands.show_responses import show_prompts
from whet.config import Config
from whet.data.problems import write_problems
from whet.store.rollouts import write_rollouts
from whet.store.run import RunStore
from whet.testing.fakes import sum_problem
from whet.testing.tiny import tiny_policy
from whet.text.chat import PromptConfig
from whet.types import Rollout

TEMPLATE = (
    "{{ eos_token }}{% for message in messages %}{{ '[' + message.role + '] ' + message.content }}"
    "{{ eos_token }}{% endfor %}{% if add_generation_prompt %}{{ '[assistant] ' }}"
    "{% if enable_thinking is defined and not enable_thinking %}{{ '()' }}{% endif %}{% endif %}"
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    policy = tiny_policy()
    policy.tokenizer = policy.tokenizer.with_template(TEMPLATE)
    policy.save(folder)
    return folder


@pytest.fixture
def problems(tmp_path: Path) -> Path:
    write_problems(tmp_path, "rl", [sum_problem(2, 3), sum_problem(4, 5)])
    return tmp_path / "problems-rl.jsonl"


def test_the_prompt_is_that_of_transformers_with_the_same_options(
    model: Path, problems: Path
) -> None:
    flags = ("--prompt.system", "Add.", "--prompt.chat_options.enable_thinking", "false")
    said = whet("data", "show", problems, "-n", 1, "--model", model, *flags)
    foreign = AutoTokenizer.from_pretrained(model)
    rows = [{"role": "system", "content": "Add."}, {"role": "user", "content": "2 + 3"}]
    options = {"add_generation_prompt": True, "enable_thinking": False}
    text = foreign.apply_chat_template(rows, tokenize=False, **options)
    tokens = foreign.apply_chat_template(rows, return_dict=False, **options)
    assert said.code == 0, said.err
    heading, shown, _, summary = said.out.splitlines()
    assert shown == text == "<eos>[system] Add.<eos>[user] 2 + 3<eos>[assistant] ()"
    assert heading == f"{sum_problem(2, 3).id} · {len(tokens)} tokens of the prompt"
    assert summary == f"{len(tokens)} to {len(tokens)} tokens; the model reads 64"


def test_special_tokens_and_responses_are_coloured(model: Path, tmp_path: Path) -> None:
    rollout = Rollout.from_text(sum_problem(2, 3), "5 <eos>", model="t")
    write_rollouts(tmp_path / "x.parquet", [(rollout,)])
    out = io.StringIO()
    console = Console(file=out, force_terminal=True, color_system="standard", width=200)
    show_prompts(tmp_path / "x.parquet", 1, {"model": {"path": str(model)}}, [], console=console)
    special = "\x1b[1;7;35m<eos>\x1b[0m"
    assert f"{special}[assistant] \x1b[32m5 <eos>\x1b[0m{special}" in out.getvalue()


def test_a_text_that_would_move_the_cursor_is_written_out(model: Path, tmp_path: Path) -> None:
    rollout = Rollout.from_text(sum_problem(2, 3), "\x1b[2J", model="t")
    write_rollouts(tmp_path / "x.parquet", [(rollout,)])
    said = whet("data", "show", tmp_path / "x.parquet", "--model", model)
    assert said.code == 0 and "\x1b" not in said.out


def test_the_prompt_of_an_experiment_and_of_a_run_is_taken(
    model: Path, problems: Path, tmp_path: Path
) -> None:
    text = (
        f'kind = "rl"\ntask = "game24"\nmodel.path = "{model}"\nprompt.template = "Q{{question}}"\n'
    )
    file = write(tmp_path / "rl.toml", text)
    assert "[user] Q2 + 3<eos>" in whet("data", "show", problems, "--settings", file).out

    class Settings(Config):
        prompt: PromptConfig

    run = tmp_path / "run"
    settings = Settings(prompt=PromptConfig(template="R{question}"))
    with RunStore.open(run, settings, {}, resume=False) as store:
        store.finish({"model": str(model)})
    assert "[user] R2 + 3<eos>" in whet("data", "show", problems, "--model", run).out
    said = whet("data", "show", problems, "--settings", file, "--model", run)
    assert "[user] Q2 + 3<eos>" in said.out


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--prompt.system", "x"), "--prompt.system changes the prompt of a model: add --model"),
        (("--model", "none/such/model"), "neither a folder nor a hub id"),
        (("--model", "MODEL", "--prompt.sytem", "x"), "unknown flag --prompt.sytem"),
        (("--model", "MODEL", "--prompt.chat_options.x", "1"), "reads no x"),
        (("--model", "MODEL", "-n", "0"), "-n 0 should be at least 1"),
    ],
)
def test_a_mistake_is_a_sentence(
    flags: tuple[str, ...], words: str, model: Path, problems: Path
) -> None:
    given = [str(model) if flag == "MODEL" else flag for flag in flags]
    said = whet("data", "show", problems, *given)
    assert said.code == 2 and words in said.last
