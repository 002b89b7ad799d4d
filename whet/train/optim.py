"""AdamW with float32 masters, learning-rate schedules and gradient clipping."""

import math
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from whet.config import Config
from whet.errors import TrainError


class TrainConfig(Config):
    """How weights move."""

    lr: float = Field(default=1e-5, gt=0.0)
    """Peak learning rate."""
    schedule: Literal["constant", "linear", "cosine"] = "constant"
    """From the end of warm-up to the last step: stay, or fall to `final_lr` in a line or a half cosine."""
    final_lr: float = Field(default=0.0, ge=0.0)
    warmup: int = Field(default=0, ge=0)
    """Steps over which the rate rises from zero."""
    weight_decay: float = Field(default=0.0, ge=0.0)
    """On matrices only; norms and biases are left alone."""
    beta1: float = Field(default=0.9, ge=0.0, lt=1.0)
    beta2: float = Field(default=0.95, ge=0.0, lt=1.0)
    clip: float = Field(default=1.0, gt=0.0)
    """Largest norm of the whole gradient."""
    micro_tokens: int = Field(default=16384, ge=1)
    """Largest grid (rows times longest row) of one forward pass; it changes memory and speed, never the result."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """Compute type; masters and moments are float32. auto is bfloat16 on a GPU and float32 elsewhere."""
    deterministic: bool = False
    """On CUDA, use only kernels that give the same bits every time, so that a resumed run equals a straight one."""


def learning_rate(cfg: TrainConfig, step: int, steps: int) -> float:
    """The rate of optimiser step `step`, counted from 0, of `steps`.

    >>> learning_rate(TrainConfig(lr=1.0, warmup=2, schedule="linear"), 0, 12)
    0.5
    """
    if step < cfg.warmup:
        return cfg.lr * (step + 1) / cfg.warmup
    if cfg.schedule == "constant":
        return cfg.lr
    share = min(1.0, (step - cfg.warmup) / max(1, steps - cfg.warmup))
    left = 1 - share if cfg.schedule == "linear" else 0.5 * (1 + math.cos(math.pi * share))
    return cfg.final_lr + (cfg.lr - cfg.final_lr) * left


class Optimizer:
    """Updates a model in place, so that addresses stay. Weights below float32 get a float32 master and gradient."""

    def __init__(self, model: nn.Module, cfg: TrainConfig) -> None:
        self.cfg = cfg
        self.weights = dict(model.named_parameters())
        self.masters = {name: _master(weight) for name, weight in self.weights.items()}
        matrices = [master for master in self.masters.values() if master.dim() > 1]
        vectors = [master for master in self.masters.values() if master.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": cfg.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.adam = torch.optim.AdamW(groups, lr=cfg.lr, betas=(cfg.beta1, cfg.beta2), eps=1e-8, fused=True)
        for name, weight in self.weights.items():
            if self.masters[name] is not weight:
                weight.register_post_accumulate_grad_hook(_accumulate_into(self.masters[name]))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def step(self, lr: float) -> float:
        """Clip, move, clear. Returns the gradient's norm before clipping."""
        gradients = [master.grad for master in self.masters.values() if master.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        if not math.isfinite(float(norm)):
            raise TrainError(
                f"the gradient is not finite ({float(norm)}): lower train.lr (now {self.cfg.lr}) and --resume "
                "from the last checkpoint"
            )
        scale = min(1.0, self.cfg.clip / (float(norm) + 1e-6))
        torch._foreach_mul_(gradients, scale)
        for group in self.adam.param_groups:
            group["lr"] = lr
        self.adam.step()
        for name, weight in self.weights.items():
            if self.masters[name] is not weight:
                weight.copy_(self.masters[name])
        self.adam.zero_grad(set_to_none=True)
        return float(norm)

    def tensors(self) -> dict[str, Tensor]:
        """Everything a resumed run needs besides the model: masters, both moments, and the step count."""
        out = {}
        for name, master in self.masters.items():
            if master is not self.weights[name]:
                out[f"master/{name}"] = master.detach()
            for key, value in self.adam.state.get(master, {}).items():
                out[f"{key}/{name}"] = value
        return out

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Take back what `tensors` gave; what was learned since is forgotten."""
        self.adam.state.clear()
        for key, value in tensors:
            kind, name = key.split("/", 1)
            master = self.masters[name]
            if kind != "step" and value.shape != master.shape:
                raise ValueError(f"{key} has shape {list(value.shape)}, expected {list(master.shape)}")
            if kind == "master":
                master.copy_(value)
            else:
                # Fused AdamW counts its steps on the parameter's own device.
                self.adam.state[master][kind] = value.to(master.device, copy=True)


def _master(weight: nn.Parameter) -> Tensor:
    return weight if weight.dtype == torch.float32 else weight.detach().float().clone().requires_grad_()


def _accumulate_into(master: Tensor) -> Callable[[Tensor], None]:
    """Add a low-precision gradient to the float32 one as soon as a backward pass has made it."""

    def hook(weight: Tensor) -> None:
        assert weight.grad is not None
        gradient = weight.grad.float()
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)
        weight.grad = None

    return hook
