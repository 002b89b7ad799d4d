"""AdamW with float32 masters, learning-rate schedules and gradient clipping."""

import math
import weakref
from collections.abc import Callable, Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.optim.adamw import adamw

from whet.config import Config
from whet.errors import TrainError

MOMENTS = ("exp_avg", "exp_avg_sq", "step")
Moments = tuple[Tensor, Tensor, Tensor]


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
    offload: bool = False
    """On a GPU, keep masters and moments in host memory: 12 bytes a weight less, and slower steps."""
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
    """Updates a model in place, so that addresses stay. Weights below float32 get a float32 master and gradient.

    Frozen weights are left alone. With `offload`, masters and moments live in host memory and pass through the device
    one weight at a time.
    """

    def __init__(self, model: nn.Module, cfg: TrainConfig) -> None:
        self.cfg = cfg
        self.weights = {name: weight for name, weight in model.named_parameters() if weight.requires_grad}
        self.masters = {name: self._master(weight) for name, weight in self.weights.items()}
        self.moments: dict[str, Moments] = {}
        self._gradients: dict[str, Tensor] = {}
        for name, weight in self.weights.items():
            if self.masters[name] is not weight:
                weight.register_post_accumulate_grad_hook(self._accumulate_into(name))  # type: ignore[no-untyped-call]

    @torch.no_grad()
    def step(self, lr: float) -> float:
        """Clip, move, clear. Returns the gradient's norm before clipping."""
        gradients = self._found()
        norm = torch.nn.utils.get_total_norm(list(gradients.values()))
        if not math.isfinite(float(norm)):
            raise TrainError(
                f"the gradient is not finite ({float(norm)}): lower train.lr (now {self.cfg.lr}) and --resume "
                "from the last checkpoint"
            )
        torch._foreach_mul_(list(gradients.values()), min(1.0, self.cfg.clip / (float(norm) + 1e-6)))
        for names in self._together(gradients):
            self._move(names, [gradients[name] for name in names], lr)
        self._gradients.clear()
        for weight in self.weights.values():
            weight.grad = None
        return float(norm)

    @torch.no_grad()
    def forget(self) -> None:
        """Set the gradients to zero; a step then only lets the moments fade."""
        for gradient in self._found().values():
            gradient.zero_()

    def tensors(self) -> dict[str, Tensor]:
        """Everything a resumed run needs besides the model: masters, both moments, and the step count."""
        out = {}
        for name, master in self.masters.items():
            if master is not self.weights[name]:
                out[f"master/{name}"] = master.detach()
            if name in self.moments:
                for key, value in zip(MOMENTS, self.moments[name], strict=True):
                    out[f"{key}/{name}"] = value
        return out

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Take back what `tensors` gave; what was learned since is forgotten."""
        self.moments.clear()
        for key, value in tensors:
            kind, name = key.split("/", 1)
            master = self.masters[name]
            if kind != "step" and value.shape != master.shape:
                raise ValueError(f"{key} has shape {list(value.shape)}, expected {list(master.shape)}")
            if kind == "master":
                master.copy_(value)
            else:
                own = self.moments.setdefault(name, self._fresh(name))
                own[MOMENTS.index(kind)].copy_(value)

    def _found(self) -> dict[str, Tensor]:
        own = {name: weight.grad for name, weight in self.weights.items() if weight.grad is not None}
        return {
            name: gradient
            for name in self.weights
            if (gradient := own.get(name, self._gradients.get(name))) is not None
        }

    def _together(self, gradients: Iterable[str]) -> list[list[str]]:
        """Weights that one launch moves: all that decay and all that do not, or each alone when it has far to come."""
        if self.cfg.offload:
            return [[name] for name in gradients]
        decaying = [name for name in gradients if self._decay(name)]
        return [names for names in (decaying, [name for name in gradients if not self._decay(name)]) if names]

    def _move(self, names: list[str], gradients: list[Tensor], lr: float) -> None:
        device = gradients[0].device
        at_home = [[self.masters[name], *self.moments.setdefault(name, self._fresh(name))] for name in names]
        here = [[value.to(device, non_blocking=True) for value in values] for values in at_home]
        masters, firsts, seconds, counts = (list(column) for column in zip(*here, strict=True))
        adamw(
            masters, gradients, firsts, seconds, [], counts, fused=True, amsgrad=False, maximize=False, eps=1e-8,
            lr=lr, beta1=self.cfg.beta1, beta2=self.cfg.beta2, weight_decay=self._decay(names[0]),
        )  # fmt: skip
        for name, master in zip(names, masters, strict=True):
            if self.masters[name] is not self.weights[name]:
                self.weights[name].copy_(master)
        for home, values in zip(at_home, here, strict=True):
            for kept, value in zip(home, values, strict=True):
                if kept is not value:
                    kept.copy_(value, non_blocking=True)

    def _decay(self, name: str) -> float:
        return self.cfg.weight_decay if self.weights[name].dim() > 1 else 0.0

    def _fresh(self, name: str) -> Moments:
        weight = self.weights[name]
        # Fused AdamW counts its steps on the device where it works.
        return self._room(weight).zero_(), self._room(weight).zero_(), torch.zeros((), device=weight.device)

    def _master(self, weight: nn.Parameter) -> Tensor:
        return weight if weight.dtype == torch.float32 else self._room(weight).copy_(weight.detach())

    def _room(self, weight: Tensor) -> Tensor:
        """Make room for a float32 twin of a weight where masters and moments live."""
        is_far = self.cfg.offload and weight.is_cuda
        room = torch.empty(weight.shape, dtype=torch.float32, device="cpu" if is_far else weight.device)
        return pinned(room) if is_far else room

    def _accumulate_into(self, name: str) -> Callable[[Tensor], None]:
        """Add a low-precision gradient to the float32 one as soon as a backward pass has made it."""

        def hook(weight: Tensor) -> None:
            assert weight.grad is not None
            total = self._gradients.get(name)
            if total is None:
                self._gradients[name] = weight.grad.float()
            else:
                total.add_(weight.grad)
            weight.grad = None

        return hook


def pinned(room: Tensor) -> Tensor:
    """Keep host memory where it is, so that the device copies from and to it without a stop on the way.

    Torch's own pinned memory comes in powers of two, which for the weights of a large model is half as much again.
    """
    runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
    if runtime.cudaHostRegister(room.data_ptr(), room.nbytes, 0) == runtime.cudaError.success:
        weakref.finalize(room, runtime.cudaHostUnregister, room.data_ptr())
    return room
