"""Settings of training a model: optimizer, learner, memory. They load no torch."""

from typing import Literal

from pydantic import Field

from whet.config import CONSTANT, Config
from whet.types import Dtype


class TrainConfig(Config):
    """The optimizer, the learner that runs it, and their memory."""

    lr: float = Field(default=1e-5, gt=0.0)
    """Peak learning rate."""
    lr_schedule: Literal["constant", "linear", "cosine"] = "constant"
    """Learning rate after warm-up: constant, or falling to `final_lr` linearly or as a half
    cosine."""
    final_lr: float = Field(default=0.0, ge=0.0)
    """Final rate of a falling schedule, one step after the last."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate rises from zero."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """Decoupled weight decay; norms and biases have none."""
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0, json_schema_extra=CONSTANT)
    """Adam's decay of the mean of gradients."""
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    """Adam's decay of the mean of squared gradients."""
    eps: float = Field(default=1e-8, gt=0.0)
    """Added to the root of Adam's second moment before dividing by it."""
    max_grad_norm: float = Field(default=1.0, gt=0.0)
    """Largest norm of the whole gradient."""
    learner: str = "auto"
    """Where models train: local is one device, fsdp is all ranks, with the weights in shards; auto
    is fsdp if there are several ranks; my_learner.py:Factory is your own."""
    micro_batch_tokens: int = Field(default=16384, ge=1)
    """Most tokens of one forward pass, padding included on a CPU; it changes memory and speed,
    never the result."""
    dtype: Dtype = "auto"
    """Compute type; masters and moments are float32. auto is bfloat16 on a GPU and float32
    elsewhere. float16 scales the loss: a gradient that overflows skips its step and halves the
    scale, and many steps without one double it."""
    offload_optimizer: bool = False
    """Keep masters and moments in host memory: 12 bytes per weight less on a GPU, and slower
    steps."""
    offload_reference: bool = False
    """Keep the reference of a KL, or a teacher, in host memory between forward passes."""
    reference_url: str | None = None
    """A vLLM server of a KL's reference, such as `http://localhost:8000`, which then computes its
    log-probabilities at temperature 1; none keeps a copy here."""
    gradient_checkpointing: Literal["auto", "on", "off"] = "auto"
    """Recompute layers in the backward pass: on is all of them, off none, auto as many as an update
    needs to fit on the GPU. It changes memory and speed, never the result."""
    deterministic: bool = False
    """On CUDA, use only deterministic kernels, so that a resumed run equals an uninterrupted
    one. On several ranks, take the micro-batches of one process and add their gradients in its
    order, so that the number of ranks changes no bit; ranks without a micro-batch wait."""

    def without_effect(self) -> dict[str, str]:
        reason = 'lr_schedule = "constant" stays at lr'
        return {"final_lr": reason} if self.lr_schedule == "constant" else {}
