"""The path of docs/quickstart.md, walked as its reader does: every command, with the page's files, on
a tiny base model without a chat template and a teacher on the loopback."""

import re
import shlex
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from small import Said, whet, write
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
)

from whet.data.problems import read_problems
from whet.library import load_policy, sample, task
from whet.store.run import RunStore
from whet.testing.server import Asked, CannedReply, FakeServer, chat_reply, serve_replies

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "quickstart.md").read_text()
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
SMALLER = {
    "max_tokens = 512": "max_tokens = 24",
    "epochs = 3": "epochs = 60",
    "steps = 100": "steps = 2",
    "problems_per_step = 32": "problems_per_step = 8",
    "lr = 1e-5": "lr = 1e-2",
    "every = 20": "every = 2",
    "http://127.0.0.1:8000/v1": "URL",
}
"""What differs from the file of the page: sizes, and the address of the teacher."""
SUMS = [(a, b) for a in range(1, 13) for b in range(a, a + 7)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Walk:
    """The page, walked: where, what each command printed, and what the teacher was asked."""

    folder: Path
    said: dict[str, Said]
    asked: list[Asked]


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Walk:
    folder = tmp_path_factory.mktemp("quickstart")
    rows = "".join(f"What is {a} + {b}?,{a + b}\n" for a, b in SUMS)
    write(folder / "questions.csv", f"question,gold\n{rows}What is  1 + 1?,2\n")
    make_base_model(folder / "base")
    with pytest.MonkeyPatch.context() as patch, serve_replies(answer_sum) as server:
        patch.chdir(folder)
        patch.setenv("no_proxy", "127.0.0.1")
        write_files(folder, server)
        said = {line: whet(*shlex.split(line)[1:]) for line in list_commands()}
    return Walk(folder=folder, said=said, asked=server.asked)


def list_commands() -> list[str]:
    return [line for kind, text in BLOCKS if kind == "bash" for line in text.splitlines()]


def write_files(folder: Path, server: FakeServer) -> None:
    """Write the two files of the page."""
    write(folder / "my_reward.py", next(text for kind, text in BLOCKS if kind == "python"))
    settings = next(text for kind, text in BLOCKS if kind == "toml")
    for old, new in SMALLER.items():
        assert old in settings, f"{old} is no longer in the file of the page"
        settings = settings.replace(old, new)
    write(folder / "quick.toml", settings.replace("URL", server.url))


def make_base_model(folder: Path) -> None:
    """Write a model and its tokenizer by transformers, as they come from the hub."""
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|endoftext|>"],
        initial_alphabet=alphabet,
        show_progress=False,
    )
    core.train_from_iterator(
        [f"User: What is {a}? Assistant: {work(a, b)}" for a, b in SUMS], trainer
    )
    end = "<|endoftext|>"
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=core, eos_token=end, pad_token=end)
    torch.manual_seed(0)
    shape = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        max_position_embeddings=128,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
    )
    LlamaForCausalLM(shape).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    assert tokenizer.chat_template is None


def work(a: int, b: int, error: int = 0) -> str:
    return f"{a} + {b} = {a + b + error}, so the answer is \\boxed{{{a + b + error}}}."


def answer_sum(asked: Asked) -> CannedReply:
    """Answer a sum, one of five wrong."""
    found = re.search(r"What is +(\d+) \+ (\d+)\?\nReason step by step", asked.prompt)
    assert found is not None, "the teacher sees the prompt of the page"
    seed = asked.body["seed"]
    assert isinstance(seed, int), "every request has a seed of its own"
    return chat_reply(work(int(found[1]), int(found[2]), int(seed % 5 == 0)))


def test_the_commands_of_the_page_run_in_their_order(walk: Walk) -> None:
    assert {line: said.err for line, said in walk.said.items() if said.code} == {}
    assert len(walk.said) <= 10


def test_the_page_shows_what_the_commands_print(walk: Walk) -> None:
    for (kind, commands), (next_kind, shown) in pairwise(BLOCKS):
        if (kind, next_kind) == ("bash", "text"):
            said = [walk.said[line] for line in commands.splitlines()]
            printed = {mask(line) for one in said for line in f"{one.out}\n{one.err}".splitlines()}
            lines = [line for line in shown.splitlines() if line.strip() not in ("", "…")]
            assert [line for line in lines if mask(line) not in printed] == []


def mask(line: str) -> str:
    """Write a line without its numbers, what depends on them, and the width of its spaces."""
    words = line.removesuffix(", kept as best")
    return " ".join(re.sub(r"-?\d[\d.,]*(e-?\d+)?", "#", words).split())


def test_the_teach_run_has_right_answers_and_rl_is_rewarded_by_the_users_function(
    walk: Walk,
) -> None:
    teach = RunStore.view(walk.folder / "runs/quick/02-teach")
    kept = teach.rollouts("train", 0)
    assert len(walk.asked) == 4 * len(read_problems(walk.folder / "data/mine/problems-sft.jsonl"))
    assert kept and all(r.score is not None and r.score.parts["correct"] == 1 for r in kept)

    rl = RunStore.view(walk.folder / "runs/quick/05-rl")
    rollouts = rl.rollouts("train", 1)
    assert any(rollout.reward for rollout in rollouts)
    for rollout in rollouts:
        assert rollout.score is not None
        right = rollout.score.parts["correct"]
        assert rollout.reward == pytest.approx(right * (1 - 0.2 * len(rollout.text) / 2000))


def test_transformers_loads_the_export_and_gives_the_same_greedy_tokens(walk: Walk) -> None:
    export = walk.folder / "my-model"
    tokenizer = AutoTokenizer.from_pretrained(export)
    assert AutoModelForCausalLM.from_pretrained(export, dtype="auto").dtype == torch.bfloat16
    model = AutoModelForCausalLM.from_pretrained(export, dtype=torch.float32)
    problems = read_problems(walk.folder / "data/mine/problems-test.jsonl")[:4]

    groups = sample(load_policy(str(export)), task("math"), problems, temperature=0, max_tokens=12)

    for problem, (rollout,) in zip(problems, groups, strict=True):
        chat = [{"role": "user", "content": problem.prompt[-1].content}]
        prompt = tokenizer.apply_chat_template(
            chat, add_generation_prompt=True, return_tensors="pt"
        )
        ids = prompt["input_ids"]
        assert ids[0].tolist() == rollout.prompt_tokens.tolist()
        tokens = model.generate(**prompt, max_new_tokens=12, do_sample=False)[0, ids.shape[1] :]
        assert tokens.tolist() == rollout.completion.tokens.tolist()


def test_the_readme_begins_its_section_on_your_own_data_with_the_page() -> None:
    section = (ROOT / "README.md").read_text().partition("## Your own data\n")[2]
    assert re.findall(r"\]\((docs/\w+\.md)\)", section)[0] == "docs/quickstart.md"
