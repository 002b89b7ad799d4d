import json
import re
from pathlib import Path
from statistics import fmean

from small import Pipeline, check_clock, whet, write

from whet.batching.rollout_datasets import make_sft_examples, read_data
from whet.data.problem_sampler import EpochSampler
from whet.store.run import RunStore
from whet.testing.fakes import example
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Tokenizer


def losses(folder: Path) -> list[float]:
    return [row["loss"] for row in RunStore.view(folder).metrics() if "loss" in row]


def test_the_loss_falls(tiny: Pipeline) -> None:
    found = losses(tiny.folder / "03-sft")
    assert len(found) == 40
    # A new model knows nothing: its loss is the log of about 300 tokens, 5.7.
    assert found[0] > 5
    assert fmean(found[-5:]) < 0.5 * found[0]


def test_every_step_logs_where_its_time_went(tiny: Pipeline) -> None:
    check_clock(tiny.folder / "03-sft", samples=False)


def test_the_newest_two_checkpoints_are_kept_and_what_was_the_best_before_the_last(
    tiny: Pipeline,
) -> None:
    kept = sorted(
        path.name for path in (tiny.folder / "03-sft" / "checkpoints").iterdir() if path.is_dir()
    )
    assert kept == ["000020", "000030", "000040"]


def test_validations_come_every_so_often_and_after_the_last_step(tiny: Pipeline) -> None:
    assert list(RunStore.view(tiny.folder / "03-sft").evals()) == [0, 20, 40]


def test_of_equal_validations_the_later_is_handed_on(tiny: Pipeline) -> None:
    run = RunStore.view(tiny.folder / "03-sft")
    validations = [row["validation/pass@1"] for row in run.metrics() if "validation/pass@1" in row]
    assert validations == [0.0, 0.0, 0.0]
    assert run.summary() == {"model": "checkpoints/000040", "step": 40, "validation_pass@1": 0.0}


def test_micro_batches_too_small_for_the_longest_example_are_refused_before_the_first_step(
    tiny: Pipeline, tmp_path: Path
) -> None:
    text = f"""kind = "sft"
task.name = "game24"
data = "{tiny.folder}/02-traces"
model = {{ new = "tiny", positions = 48 }}
train = {{ micro_batch_tokens = 9 }}
"""
    said = whet("sft", write(tmp_path / "x.toml", text), "--out", tmp_path / "run")
    assert said.code == 2
    assert re.search(
        r"train\.micro_batch_tokens = 9 is below \d+, the tokens of the longest example: raise it$",
        said.last,
    )
    assert not RunStore.view(tmp_path / "run").metrics()


def test_rows_longer_than_the_context_are_counted_and_left_out(tmp_path: Path) -> None:
    lengths = (2, 2, 40)
    rows = [{"prompt": f"say {n}", "response": "7 " * n} for n in lengths]
    write(tmp_path / "rows.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    text = f"""kind = "sft"
task = "math"
data = "{tmp_path}/rows.jsonl"
steps = 1
batch_size = 2
model = {{ new = "tiny", positions = 32 }}
"""
    said = whet("sft", write(tmp_path / "x.toml", text), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "2 examples, 1 left out as longer than 32 tokens" in said.err


OWN = """kind = "sft"
task = "math"
data = "{data}"
epochs = 2.5
batch_size = 4
held_out = 4
model = {{ new = "tiny", positions = 64 }}
validation = {{ every = 2 }}
"""


def test_rows_of_your_own_are_trained_on_for_epochs_with_a_validation_loss(tmp_path: Path) -> None:
    rows = [{"prompt": f"{n} + 1?", "response": f"The sum is {n + 1}."} for n in range(12)]
    file = write(tmp_path / "mine.jsonl", "".join(f"{json.dumps(row)}\n" for row in rows))
    said = whet("sft", write(tmp_path / "x.toml", OWN.format(data=file)), "--out", tmp_path / "run")
    assert said.code == 0, said.err
    assert "8 examples" in said.err and "4 held out" in said.err
    run = RunStore.view(tmp_path / "run")
    # 2.5 epochs of 8 examples in batches of 4 are 5 steps.
    assert [row["step"] for row in run.metrics() if "loss" in row] == [1, 2, 3, 4, 5]
    validated = {
        row["step"]: row["validation/loss"] for row in run.metrics() if "validation/loss" in row
    }
    assert [*validated] == [2, 4, 5] and validated[5] < validated[2]
    assert "  step     loss" in said.err


def test_steps_beside_epochs_are_refused(tmp_path: Path) -> None:
    text = OWN.format(data="mine.jsonl").replace("epochs = 2.5", "epochs = 2.5\nsteps = 3")
    said = whet("sft", write(tmp_path / "x.toml", text), "--out", tmp_path / "run")
    assert said.code == 2 and "steps" in said.last and "epochs says how long to train" in said.last


def test_data_can_be_a_rollout_file(tiny: Pipeline) -> None:
    file = tiny.folder / "02-traces" / "rollouts" / "train-000000.parquet"
    assert [r.id for r in read_data(str(file))] == [
        r.id for r in read_data(str(tiny.folder / "02-traces"))
    ]


def test_a_batch_walks_through_all_examples_before_it_meets_one_again() -> None:
    examples = [example(length=3, seed=number) for number in range(5)]
    sampler = EpochSampler(examples, seed=1)
    seen = [e.rollout_id for step in range(3) for e in sampler.batch_at(step, 2)]
    assert sorted(seen[:5]) == ["r0", "r1", "r2", "r3", "r4"]


def test_each_epoch_has_an_order_of_its_own_fixed_by_the_seed() -> None:
    examples = [example(length=3, seed=number) for number in range(20)]
    sampler = EpochSampler(examples, seed=1)
    first, second = ([e.rollout_id for e in sampler.batch_at(epoch, 20)] for epoch in (0, 1))
    assert sorted(first) == sorted(second)
    assert first != second
    assert first == [e.rollout_id for e in sampler.batch_at(0, 20)]
    assert first != [e.rollout_id for e in EpochSampler(examples, seed=2).batch_at(0, 20)]


def test_only_the_answer_is_learned_from(tiny: Pipeline) -> None:
    policy_folder = tiny.folder / "03-sft" / "checkpoints" / "000040"
    chat = ChatFormat(Tokenizer.load(policy_folder))
    rollouts = read_data(str(tiny.folder / "02-traces"))[:50]
    for rollout, row in zip(rollouts, make_sft_examples(rollouts, chat, 48).examples, strict=True):
        learned = chat.tokenizer.decode(row.tokens[row.response_start :], keep_special=True)
        assert learned == f"{rollout.text}<eos>"
        assert row.num_targets == len(row.tokens) - row.response_start
