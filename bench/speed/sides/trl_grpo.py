"""TRL's GRPO trainer, in its own thread so that each optimizer step waits for its turn."""

# The peer's own annotations are partial.
# mypy: disable-error-code="attr-defined, import-untyped, method-assign, no-untyped-call, operator"

import tempfile
import time
from collections.abc import Callable
from queue import Queue
from threading import Thread
from typing import cast

import torch
from datasets import Dataset
from datasets.table import InMemoryTable
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerFast,
    StoppingCriteriaList,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from trl import GRPOConfig, GRPOTrainer

from speed.serve import Round, serve
from speed.sides.hugging_face import LengthTable
from speed.work import Spec

Row = dict[str, float]


class Turns(TrainerCallback):
    """Holds the trainer before each optimizer step until a round is asked for, and times the
    step."""

    def __init__(self) -> None:
        self.asked: Queue[int] = Queue()
        self.done: Queue[Row | BaseException] = Queue()
        self.began = 0.0
        self.rollout_seconds = 0.0

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        self.asked.get()
        self.rollout_seconds = 0.0
        self.began = time.perf_counter()

    def on_step_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: object
    ) -> None:
        synchronize()
        self.done.put(
            {"seconds": time.perf_counter() - self.began, "rollout_seconds": self.rollout_seconds}
        )


def prepare(spec: Spec) -> Round:
    turns = Turns()
    trainer = trainer_of(spec, turns)
    end_at_limits(spec, trainer)
    if spec.task == "rollout":
        return rollout_round(spec, trainer)
    time_generation(trainer, turns)
    Thread(target=train, args=(trainer, turns), daemon=True).start()
    per_round = sum(spec.work.limits())
    if spec.task == "update":
        per_round += spec.work.num_requests * spec.work.prompt_tokens

    def round_of(number: int) -> Row:
        turns.asked.put(number)
        row = turns.done.get()
        if isinstance(row, BaseException):
            raise row
        return row | {"tokens": float(per_round)} | memory()

    return round_of


def train(trainer: GRPOTrainer, turns: Turns) -> None:
    try:
        trainer.train()
    except BaseException as error:
        turns.done.put(error)


def rollout_round(spec: Spec, trainer: GRPOTrainer) -> Round:
    work = spec.work

    def round_of(number: int) -> Row:
        prompts = [
            ids for ids in work.prompt_ids(spec.vocab_size, number) for _ in range(work.samples)
        ]
        began = time.perf_counter()
        completions, _ = trainer._generate_single_turn(prompts, None, {}, work.samples)
        synchronize()
        seconds = time.perf_counter() - began
        assert [len(ids) for ids in completions] == work.limits(), (
            "a completion has not the length it was given"
        )
        return {"seconds": seconds, "tokens": float(sum(work.limits()))} | memory()

    return round_of


def trainer_of(spec: Spec, turns: Turns) -> GRPOTrainer:
    work, batch = spec.work, int(spec.settings["batch"])
    is_cuda = work.device == "cuda"
    assert spec.folder is not None, "TRL needs a checkpoint"
    args = GRPOConfig(
        output_dir=tempfile.mkdtemp(),
        per_device_train_batch_size=batch,
        gradient_accumulation_steps=work.num_requests // batch,
        gradient_checkpointing=bool(spec.settings["checkpointing"]),
        num_generations=work.samples,
        max_completion_length=work.cap,
        generation_kwargs={"eos_token_id": spec.vocab_size, "max_new_tokens": max(work.limits())},
        use_transformers_continuous_batching=bool(spec.settings.get("continuous", False)),
        temperature=1.0,
        loss_type="grpo",
        learning_rate=1e-6,
        max_steps=1 + work.rounds,
        bf16=is_cuda,
        use_cpu=not is_cuda,
        shuffle_dataset=False,
        report_to=[],
        save_strategy="no",
        logging_steps=1000,
        disable_tqdm=True,
        seed=work.seed,
    )
    if "weights" in spec.settings:
        args.model_init_kwargs = {"dtype": str(spec.settings["weights"])}
    words = [
        " ".join(f"t{id}" for id in ids)
        for number in range(1 + work.rounds)
        for ids in work.prompt_ids(spec.vocab_size, number)
    ]
    return GRPOTrainer(
        model=spec.folder,
        args=args,
        reward_funcs=mean_token,
        # A name given here saves a hash of the table, which fails under some versions of Python.
        train_dataset=Dataset(InMemoryTable.from_pydict({"prompt": words}), fingerprint="prompts"),
        processing_class=word_tokenizer(spec.vocab_size),
        callbacks=[turns],
        rollout_func=recorded(spec) if spec.task == "update" else None,
    )


def mean_token(completion_ids: list[list[int]], **_: object) -> list[float | None]:
    """The same reward as on our side: no two siblings are worth the same."""
    return [sum(ids) / len(ids) for ids in completion_ids]


def word_tokenizer(vocab_size: int) -> PreTrainedTokenizerFast:
    """A word for each token, so that prompts given as text have the ids that all other sides
    get."""
    words = {f"t{id}": id for id in range(vocab_size)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    end = f"t{vocab_size - 1}"
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="t0", eos_token=end)


def recorded(spec: Spec) -> Callable[[list[str], GRPOTrainer], dict[str, object]]:
    """Stand in for generation: the completions of the update bench."""
    responses = spec.work.responses(spec.vocab_size)

    def rollout(prompts: list[str], trainer: GRPOTrainer) -> dict[str, object]:
        ids = [[int(word[1:]) for word in prompt.split()] for prompt in prompts]
        return {
            "prompt_ids": list(ids),
            "completion_ids": list(responses),
            "logprobs": [[0.0] * len(r) for r in responses],
        }

    return rollout


def end_at_limits(spec: Spec, trainer: GRPOTrainer) -> None:
    """Give each row its length. The trainer finds a row's end by the token that ends it, so it is
    put there, alone."""
    work, end = spec.work, spec.vocab_size - 1
    model = trainer.model
    assert isinstance(model, PreTrainedModel), "the trainer loaded the checkpoint"
    generate = model.generate
    limit_B = torch.tensor(work.limits(), device=trainer.accelerator.device)

    def generate_to_limits(input_ids: Tensor, **options: object) -> Tensor:
        if work.lengths == "natural":
            options["stopping_criteria"] = StoppingCriteriaList(
                [LengthTable(limit_B, input_ids.shape[1])]
            )
        out = cast(Tensor, generate(input_ids, **options))
        completion_BT = out[:, input_ids.shape[1] :]
        completion_BT.masked_fill_(completion_BT == end, end - 1)
        completion_BT.scatter_(1, limit_B[:, None] - 1, end)
        return out

    model.generate = generate_to_limits  # type: ignore[assignment]


def time_generation(trainer: GRPOTrainer, turns: Turns) -> None:
    inner = trainer._generate_single_turn

    def timed(*args: object, **options: object) -> object:
        began = time.perf_counter()
        out = inner(*args, **options)
        synchronize()
        turns.rollout_seconds += time.perf_counter() - began
        return out

    trainer._generate_single_turn = timed


def synchronize() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def memory() -> Row:
    return (
        {"peak_bytes": float(torch.cuda.max_memory_allocated())}
        if torch.cuda.is_available()
        else {}
    )


if __name__ == "__main__":
    serve(prepare)
