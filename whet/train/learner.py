"""The learner: sums weight times loss over packed sequences, and steps the optimizer.

It knows no algorithm: an objective computes losses, `whet/train/rl_step.py` chooses examples.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from whet.algos.losses import LossInputs, LossWeightRule
from whet.algos.objectives import BatchSums, LossSums, Objective, ValueInputs
from whet.batching.examples import Batch, Example, merge_prefixes, pack, to_batch, with_field
from whet.environment import keep_freed_memory
from whet.kernels import TRITON_DEVICES
from whet.models.load import write_tensors
from whet.models.lora import load_trained, save_trained
from whet.models.transformer import PackedAttention, SharedPrefixAttention, Transformer
from whet.train.memory import DeviceMemory, device_memory
from whet.train.offload import OffloadedWeights
from whet.train.optim import OPTIMIZER, Optimizer, learning_rate, optimizer_files
from whet.train.settings import TrainConfig
from whet.train.value_model import ValueModel
from whet.types import Floats, Metrics

CPU_MICRO_BATCH_TOKENS = 4096
"""Tokens of a micro-batch on a CPU, or twice the longest example if that is more."""


class LogprobModel(ABC):
    """Computes log-probabilities under one model, wherever its weights are."""

    @abstractmethod
    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        """Compute the log-probabilities of each example's response tokens, without gradient."""


class FrozenModel(LogprobModel):
    """A model that computes log-probabilities and is not trained.

    The weights in `offloaded` are kept in host memory between passes.
    """

    def __init__(
        self, model: Transformer, micro_batch_tokens: int, *, offloaded: Sequence[nn.Parameter] = ()
    ) -> None:
        self.model = model
        self.micro_batch_tokens = micro_batch_tokens
        self.offloaded = OffloadedWeights(offloaded, model.device) if offloaded else None

    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        with self.offloaded.on_device() if self.offloaded else nullcontext():
            return compute_logprobs_locally(self.model, examples, self.micro_batch_tokens)


class Learner(LogprobModel):
    """Trains one model, wherever its weights are.

    docs/add_a_learner.md lists the guarantees of each method.
    """

    num_optim_steps: int
    """Optimizer steps taken, which is the position in the schedule."""

    @abstractmethod
    def reserve_memory(self, examples: Sequence[Example]) -> None:
        """Free device memory for an update on the examples; `accumulate` calls it too."""

    @abstractmethod
    def accumulate(self, examples: Sequence[Example], objective: Objective) -> LossSums:
        """Add the gradient of all examples; value objectives need a value model's learner."""

    @abstractmethod
    def optim_step(self) -> Metrics:
        """Take an optimizer step with the gradient accumulated so far."""

    @abstractmethod
    def zero_grad(self) -> None:
        """Set the accumulated gradient to zero."""

    def sync_model(self) -> None:
        """Copy the weights into the model of the learner, unless it is updated in place."""
        return

    def close(self) -> None:
        """Release the model to another learner; this one can no longer train."""
        return

    @abstractmethod
    def compute_values(self, examples: Sequence[Example]) -> list[Floats]:
        """Compute the value of the state before each response token, by a value model."""

    @abstractmethod
    def scale_lr(self, factor: float) -> float:
        """Scale the learning rates of the settings from now on; return the peak rate."""

    @abstractmethod
    def save(self, folder: Path) -> None:
        """Write the state of the optimizer, and a value model; a policy saves its own model."""

    @abstractmethod
    def load(self, folder: Path, num_optim_steps: int) -> None:
        """Load the files that `save` wrote after this many steps, in place."""

    def update(self, examples: Sequence[Example], objective: Objective) -> Metrics:
        """Take one optimizer step on the sum of weight times loss over all examples."""
        return self.accumulate(examples, objective).means | self.optim_step()


class ForwardPass:
    """Runs a model over packed batches on one device, with a gradient."""

    def token_logprobs(
        self, model: Transformer, batch: Batch, *, entropy_gradient: bool
    ) -> tuple[Tensor, Tensor]:
        """Compute log-probability and entropy at each target."""
        return forward_logprobs(model, batch, entropy_gradient=entropy_gradient)

    def token_values(self, model: ValueModel, batch: Batch) -> Tensor:
        """Compute the value at each target."""
        value_M: Tensor = model(batch)
        return value_M


class LocalLearner(Learner):
    """Trains a model on the device where it is; an engine there may share its weights.

    `steps` is how many optimizer steps the schedule spans. Ranks pass their own optimizer, and
    their own forward pass where they share sequences.
    """

    def __init__(
        self,
        model: Transformer | ValueModel,
        cfg: TrainConfig,
        *,
        steps: int,
        memory: DeviceMemory | None = None,
        optimizer: Optimizer | None = None,
        forward: ForwardPass | None = None,
    ) -> None:
        self.value_model = model if isinstance(model, ValueModel) else None
        self.model = model.body if isinstance(model, ValueModel) else model
        self.cfg = cfg
        self.schedule_steps = steps
        self.optimizer = optimizer or Optimizer(model, cfg)
        self.forward = forward or ForwardPass()
        self.device = self.model.device
        self.memory = memory or device_memory(self.device)
        self.num_optim_steps = 0
        self.lr_factor = 1.0
        if self.device.type == "cpu":
            keep_freed_memory()

    def reserve_memory(self, examples: Sequence[Example]) -> None:
        layers = self.model.cfg.num_layers if self.cfg.gradient_checkpointing == "on" else 0
        if self.memory is not None:
            layers = self.memory.reserve(self.model, self.optimizer, examples)
        self.model.num_checkpointed = layers

    def accumulate(self, examples: Sequence[Example], objective: Objective) -> LossSums:
        self.reserve_memory(examples)
        packed = split_micro_batches(self.model, examples, self.cfg.micro_batch_tokens)
        micro_batches = ([examples[index] for index in indices] for indices in packed)
        return self.add_gradients(micro_batches, objective)

    def add_gradients(
        self, micro_batches: Iterable[list[Example]], objective: Objective
    ) -> LossSums:
        """Add the gradients of micro-batches of examples."""
        self.optimizer.check_open()
        num_losses = 0
        batch_sums: list[BatchSums] = []
        for examples in micro_batches:
            batch = to_batch(examples, self.device)
            batch_sums.append(self.forward_backward(batch, objective))
            num_losses += len(batch.loss_weight)
        signals = [sums.stop_signal for sums in batch_sums if sums.stop_signal is not None]
        return LossSums(
            loss=_add_up(sums.loss for sums in batch_sums),
            num_losses=num_losses,
            metrics={
                name: _add_up(sums.metrics[name] for sums in batch_sums)
                for name in (batch_sums[0].metrics if batch_sums else ())
            },
            stop_signal=_add_up(signals) if signals else None,
        )

    def forward_backward(self, batch: Batch, objective: Objective) -> BatchSums:
        """Add one batch's gradient."""
        if not len(batch.tokens_T):
            return BatchSums(torch.zeros((), device=self.device), {})
        token_loss = objective.compute_loss(LocalBatchForward(learner=self, batch=batch))
        assert token_loss.loss.shape == batch.loss_weight.shape, (
            "an objective has a loss for each token, or for each pair"
        )
        loss = (token_loss.loss * batch.loss_weight).sum()
        (loss * self.optimizer.loss_scale).backward()  # type: ignore[no-untyped-call]
        metrics = {name: value.detach().sum() for name, value in token_loss.metrics.items()}
        signal = token_loss.stop_signal
        return BatchSums(loss.detach(), metrics, None if signal is None else signal.detach().sum())

    def optim_step(self) -> Metrics:
        lr = learning_rate(
            self.cfg, self.num_optim_steps, self.schedule_steps, factor=self.lr_factor
        )
        norm = self.optimizer.step(lr)
        self.num_optim_steps += 1
        return {"train/lr": lr, "train/grad_norm": norm}

    def zero_grad(self) -> None:
        self.optimizer.zero_grad()

    def close(self) -> None:
        self.optimizer.close()

    def compute_logprobs(self, examples: Sequence[Example]) -> list[Floats]:
        return compute_logprobs_locally(self.model, examples, self.cfg.micro_batch_tokens)

    def compute_values(self, examples: Sequence[Example]) -> list[Floats]:
        assert self.value_model is not None, "values are those of a value model"
        return compute_per_token(
            self.model, examples, self.cfg.micro_batch_tokens, self.value_model
        )

    def scale_lr(self, factor: float) -> float:
        self.lr_factor = factor
        return self.cfg.lr * factor

    def save(self, folder: Path) -> None:
        if self.value_model is not None:
            save_trained(self.value_model.body, folder)
            self.value_model.save_head(folder)
        write_tensors(folder / OPTIMIZER, self.optimizer.tensors())

    def load(self, folder: Path, num_optim_steps: int) -> None:
        if self.value_model is not None:
            load_trained(self.value_model.body, folder)
            self.value_model.load_head(folder)
        files = optimizer_files(folder)
        self.optimizer.load(item for file in files for item in load_file(file).items())
        self.num_optim_steps = num_optim_steps


def _add_up(values: Iterable[Tensor]) -> float:
    """Sum numbers on their device, so that the host waits only once."""
    return float(sum(values))


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalBatchForward:
    """Runs the model of a learner over one batch, as an objective asks."""

    learner: LocalLearner
    batch: Batch

    def compute_logprobs(self, *, entropy_gradient: bool) -> LossInputs:
        logprob_M, entropy_M = self.learner.forward.token_logprobs(
            self.learner.model, self.batch, entropy_gradient=entropy_gradient
        )
        return LossInputs(
            logprob_M=logprob_M,
            entropy_M=entropy_M,
            advantage_M=self.batch.advantage_M,
            segment_M=self.batch.segment_M,
            chosen_P=self.batch.chosen_P,
            rejected_P=self.batch.rejected_P,
            **self.batch.per_token(),
        )

    def compute_values(self) -> ValueInputs:
        old_value_M, target_M = self.batch.value_M, self.batch.value_target_M
        assert old_value_M is not None and target_M is not None, (
            "a critic learns from valued and credited examples"
        )
        assert self.learner.value_model is not None, "values are those of a value model"
        value_M = self.learner.forward.token_values(self.learner.value_model, self.batch)
        return ValueInputs(value_M, old_value_M, target_M)


def split_micro_batches(
    model: Transformer, examples: Sequence[Example], tokens: int, *, ranks: int = 1
) -> list[list[int]]:
    """Split examples into micro-batches, which are padded if there is no Triton.

    Ranks have equally many; rank r takes every `ranks`-th from r on. On a CPU they are small unless
    examples are long: larger ones exceed its caches and gain nothing.
    """
    if model.device.type == "cpu":
        longest = max((len(example.tokens) for example in examples), default=0)
        tokens = min(tokens, max(CPU_MICRO_BATCH_TOKENS, 2 * longest))
    return pack(examples, tokens, ranks=ranks, is_padded=model.device.type not in TRITON_DEVICES)


def forward_logprobs(
    model: Transformer, batch: Batch, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Run the model over a packed batch; log-probability and entropy at each target."""
    logprob_M, entropy_M = model.token_logprobs(
        _compute_hidden(model, batch), batch.label_M, batch.temperature_M
    )
    return logprob_M, entropy_M if entropy_gradient else entropy_M.detach()


def _compute_hidden(model: Transformer, batch: Batch) -> Tensor:
    """Run the model; return the final hidden state at each target's predictor.

    On a CPU, shared prefixes of sequences are run once, and their last tokens not at all.
    """
    if batch.tokens_T.is_cuda or model.device.type in TRITON_DEVICES:
        attend = PackedAttention(batch.lengths_S, batch.longest, len(batch.tokens_T))
        hidden_TH: Tensor = model(batch.tokens_T, batch.positions_T, attend)
        return hidden_TH[batch.predictor_M]
    merged = merge_prefixes(batch.tokens_T.numpy(), batch.lengths_S.numpy())
    first_U, node_T, node_SC, cell_U = map(
        torch.from_numpy, (merged.first_U, merged.node_T, merged.node_SC, merged.cell_U)
    )
    hidden_UH: Tensor = model(
        batch.tokens_T[first_U], batch.positions_T[first_U], SharedPrefixAttention(node_SC, cell_U)
    )
    return hidden_UH.index_select(0, node_T[batch.predictor_M])


def compute_logprobs_locally(
    model: Transformer, examples: Sequence[Example], micro_batch_tokens: int
) -> list[Floats]:
    """Compute the log-probabilities of each example's response tokens, in the order given."""
    return compute_per_token(
        model, examples, micro_batch_tokens, lambda batch: forward_logprobs(model, batch)[0]
    )


@torch.no_grad()
def compute_per_token(
    model: Transformer,
    examples: Sequence[Example],
    micro_batch_tokens: int,
    forward: Callable[[Batch], Tensor],
) -> list[Floats]:
    """Apply `forward` to micro-batches, and return the values of each example's response tokens."""
    micro_batches = split_micro_batches(model, examples, micro_batch_tokens)
    arrays = compute_micro_batches(model, examples, micro_batches, forward)
    return [arrays[index] for index in range(len(examples))]


def compute_micro_batches(
    model: Transformer,
    examples: Sequence[Example],
    micro_batches: Sequence[list[int]],
    forward: Callable[[Batch], Tensor],
) -> dict[int, Floats]:
    """Apply `forward` to some micro-batches; return the values by the position of the example."""
    arrays: dict[int, Floats] = {}
    for indices in micro_batches:
        batch = to_batch([examples[index] for index in indices], model.device)
        ends = np.cumsum([examples[index].num_targets for index in indices])
        rows = np.split(forward(batch).cpu().numpy(), ends[:-1])
        arrays |= dict(zip(indices, rows, strict=True))
    return arrays


def add_logprobs(
    examples: Sequence[Example],
    field: Literal["ref_logprob_M", "old_logprob_M"],
    model: LogprobModel,
) -> list[Example]:
    """Add a model's log-probabilities of the response tokens, as this field."""
    return with_field(examples, field, model.compute_logprobs(examples))


def mean_loss(model: LogprobModel, examples: Sequence[Example]) -> float:
    """Compute the mean loss of all response tokens, without training on them."""
    return -float(np.concatenate(model.compute_logprobs(examples)).mean(dtype=np.float64))


def set_loss_weights(examples: Sequence[Example], weights: LossWeightRule) -> list[Example]:
    """Set the weight of each example's tokens; takes all examples of an optimizer step."""
    lengths = [example.num_targets for example in examples]
    return with_field(examples, "loss_weight", weights(lengths))


def average_metrics(collected: Sequence[Metrics]) -> Metrics:
    """Average each metric over the mini-batches that have it."""
    columns: dict[str, list[float]] = {}
    for metrics in collected:
        for name, value in metrics.items():
            columns.setdefault(name, []).append(value)
    return {name: sum(values) / len(values) for name, values in columns.items()}
