"""AdamW with float32 masters, learning-rate schedules and gradient clipping."""

import math
import weakref
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw
from torch.utils.hooks import RemovableHandle

from whet.errors import TrainError
from whet.models.load import weight_files
from whet.train.offload import StateStreamer, host_zeros
from whet.train.settings import TrainConfig

OPTIMIZER = Path("optimizer", "state.safetensors")
"""In its own folder: vLLM refuses a model folder that holds another safetensors file."""
MOMENTS = ("exp_avg", "exp_avg_sq", "step")
SCALE = "scale"
Moments = tuple[Tensor, Tensor, Tensor]
FIRST_LOSS_SCALE = 2.0**16
SCALE_STEPS = 2000
"""Steps without an overflow after which the scale of the loss doubles, as torch's GradScaler does
(Micikevicius et al. 2018)."""
MIN_OFFLOADED = 2**16
"""State of weights with fewer elements stays on the device: offloading it saves little."""


def optimizer_files(folder: Path) -> list[Path]:
    """Find the files of an optimizer; ranks may have written several."""
    files = weight_files((folder / OPTIMIZER).parent, OPTIMIZER.name)
    if not files:
        raise FileNotFoundError(f"{OPTIMIZER} is missing")
    return files


def learning_rate(cfg: TrainConfig, step: int, steps: int, *, factor: float = 1.0) -> float:
    """Compute the learning rate of step `step`, from 0, of `steps`; `factor` scales it.

    >>> learning_rate(TrainConfig(lr=1.0, warmup_steps=2, lr_schedule="linear"), 0, 12)
    0.5
    """
    peak = cfg.lr * factor
    final = cfg.final_lr * factor
    if step < cfg.warmup_steps:
        return peak * (step + 1) / cfg.warmup_steps
    if cfg.lr_schedule == "constant":
        return peak
    done = min(1.0, (step - cfg.warmup_steps) / max(1, steps - cfg.warmup_steps))
    left = 1 - done if cfg.lr_schedule == "linear" else 0.5 * (1 + math.cos(math.pi * done))
    return final + (peak - final) * left


class Optimizer:
    """Updates the trainable weights of a model in place, so that their addresses stay the same.

    Weights below float32 have a float32 master and gradient. With `offload_optimizer`, masters and
    moments are in host memory and pass through the device piece by piece. A model may have another
    optimizer after `close`, or once this one is freed.
    """

    def __init__(self, model: nn.Module, cfg: TrainConfig) -> None:
        self.cfg = cfg
        self.params = self.list_params(model)
        self.masters = {name: self._master(param) for name, param in self.params.items()}
        self.moments: dict[str, Moments] = {}
        self.loss_scale = FIRST_LOSS_SCALE if cfg.dtype == "float16" else 1.0
        self._num_finite = 0
        self._gradients: dict[str, Tensor] = {}
        device = next(iter(self.params.values())).device
        self._streamer = StateStreamer(device) if cfg.offload_optimizer else None
        hooks: list[RemovableHandle] = []
        for name, param in self.params.items():
            if self.masters[name] is not param:
                hook = param.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                    _accumulate_into(self._gradients, name)
                )
                hooks.append(hook)
        self._remove_hooks = weakref.finalize(self, _remove, hooks)

    def list_params(self, model: nn.Module) -> dict[str, nn.Parameter]:
        """List the trainable parameters by their names in the optimizer's files."""
        return {
            # Files name the projections of a feed-forward without its module, `mlp`, so that
            # checkpoints written before it existed can still be resumed.
            name.replace(".mlp.", "."): param
            for name, param in model.named_parameters()
            if param.requires_grad
        }

    @torch.no_grad()
    def step(self, lr: float) -> float:
        """Clip the gradient, take a step, clear it. Returns the norm before clipping.

        A gradient that overflows in float16 is cleared without a step, and its norm is 0.
        """
        gradients = self.gradients()
        norm = self.total_norm(gradients) / self.loss_scale
        if not math.isfinite(norm) and self.loss_scale > 1.0:
            self.loss_scale /= 2
            self._num_finite = 0
            self.clear()
            return 0.0
        if not math.isfinite(norm):
            raise TrainError(
                f"the gradient is not finite ({norm}): lower train.lr (now {self.cfg.lr}) and "
                "--resume from the last checkpoint"
            )
        factor = min(1.0, self.cfg.max_grad_norm / (norm + 1e-6)) / self.loss_scale
        torch._foreach_mul_(list(gradients.values()), factor)
        resident = [name for name in gradients if not self._is_offloaded(self.params[name])]
        for names in (
            [name for name in resident if self._weight_decay(name) > 0],
            [name for name in resident if self._weight_decay(name) == 0],
        ):
            self._step_together(names, [gradients[name] for name in names], lr)
        for name, gradient in gradients.items():
            if self._is_offloaded(self.params[name]):
                self._step_offloaded(name, gradient, lr)
        if self._streamer is not None:
            self._streamer.join()
        self.clear()
        self._num_finite += 1
        if self.cfg.dtype == "float16" and self._num_finite % SCALE_STEPS == 0:
            self.loss_scale *= 2
        return norm

    @torch.no_grad()
    def zero_grad(self) -> None:
        """Set the gradients to zero; a step then moves the weights by the moments alone."""
        for gradient in self.gradients().values():
            gradient.zero_()

    def clear(self) -> None:
        """Drop the gradients."""
        self._gradients.clear()
        for param in self.params.values():
            param.grad = None

    def close(self) -> None:
        """Drop the gradients, and stop collecting them, so that another optimizer can."""
        self.clear()
        self._remove_hooks()

    def check_open(self) -> None:
        if not self._remove_hooks.alive:
            raise TrainError(
                "this learner was closed when its policy made another: train with that one"
            )

    def total_norm(self, gradients: Mapping[str, Tensor]) -> float:
        return float(torch.nn.utils.get_total_norm(list(gradients.values())))

    def tensors(self) -> dict[str, Tensor]:
        """Return the state besides the model: masters, moments, step counts, the loss scale."""
        if self._streamer is not None:
            self._streamer.wait()
        out = {}
        if self.cfg.dtype == "float16":
            out[f"{SCALE}/loss"] = torch.tensor([self.loss_scale, self._num_finite])
        for name, master in self.masters.items():
            if master is not self.params[name]:
                out[f"master/{name}"] = master.detach()
            if name in self.moments:
                for key, value in zip(MOMENTS, self.moments[name], strict=True):
                    out[f"{key}/{name}"] = value
        return out

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Load the result of `tensors`, in place of the present state."""
        if self._streamer is not None:
            self._streamer.wait()
        self.moments.clear()
        for key, value in tensors:
            kind, name = key.split("/", 1)
            if kind == SCALE:
                self.loss_scale, num_finite = value.tolist()
                self._num_finite = int(num_finite)
                continue
            master = self.masters[name]
            if kind != "step" and value.shape != master.shape:
                raise ValueError(
                    f"{key} has shape {list(value.shape)}, expected {list(master.shape)}"
                )
            if kind == "master":
                master.copy_(value)
            else:
                self._moments(name)[MOMENTS.index(kind)].copy_(value)

    @property
    def unallocated_bytes(self) -> int:
        """Count the device memory that the first step will allocate for moments."""
        fresh = [param for name, param in self.params.items() if name not in self.moments]
        return sum(8 * param.numel() for param in fresh if not self._is_offloaded(param))

    def gradients(self) -> dict[str, Tensor]:
        """Return the gradients so far, by name."""
        full_precision = {
            name: param.grad for name, param in self.params.items() if param.grad is not None
        }
        return {
            name: gradient
            for name in self.params
            if (gradient := full_precision.get(name, self._gradients.get(name))) is not None
        }

    def _step_together(self, names: list[str], gradients: list[Tensor], lr: float) -> None:
        """Update parameters of the same decay in one launch."""
        if not names:
            return
        masters = [self.masters[name] for name in names]
        firsts, seconds, counts = (
            list(column) for column in zip(*map(self._moments, names), strict=True)
        )
        decay = self._weight_decay(names[0])
        self._adamw(masters, gradients, firsts, seconds, counts, lr=lr, decay=decay)
        for name, master in zip(names, masters, strict=True):
            if master is not self.params[name]:
                self.params[name].copy_(master)

    def _step_offloaded(self, name: str, gradient: Tensor, lr: float) -> None:
        """Update one parameter whose moments, and master if any, are in host memory."""
        *moments, count = self._moments(name)
        param = self.params[name].view(-1)
        master = self.masters[name]
        is_own = master is self.params[name]
        whole = gradient.reshape(-1)
        decay = self._weight_decay(name)

        def act(at: slice, device: list[Tensor]) -> None:
            target = param[at] if is_own else device[2]
            self._adamw(
                [target], [whole[at]], [device[0]], [device[1]], [count.clone()], lr=lr, decay=decay
            )
            if not is_own:
                param[at].copy_(target)

        assert self._streamer is not None, "offloaded state has a streamer"
        self._streamer.stream(
            [tensor.view(-1) for tensor in (*moments, *([] if is_own else [master]))], act
        )
        count.add_(1)

    def _adamw(
        self,
        masters: list[Tensor],
        gradients: list[Tensor],
        firsts: list[Tensor],
        seconds: list[Tensor],
        counts: list[Tensor],
        *,
        lr: float,
        decay: float,
    ) -> None:
        adamw(
            masters,
            gradients,
            firsts,
            seconds,
            [],
            counts,
            fused=True,
            amsgrad=False,
            maximize=False,
            eps=self.cfg.eps,
            lr=lr,
            beta1=self.cfg.beta1,
            beta2=self.cfg.beta2,
            weight_decay=decay,
        )

    def _weight_decay(self, name: str) -> float:
        return self.cfg.weight_decay if self.params[name].dim() > 1 else 0.0

    def _moments(self, name: str) -> Moments:
        if name not in self.moments:
            param = self.params[name]
            # Fused AdamW needs the step count on the parameter's device.
            count = torch.zeros((), device=param.device)
            self.moments[name] = self._zeros(param), self._zeros(param), count
        return self.moments[name]

    def _master(self, param: nn.Parameter) -> Tensor:
        is_precise = param.dtype.itemsize >= torch.float32.itemsize
        return param if is_precise else self._zeros(param).copy_(param.detach())

    def _zeros(self, param: Tensor) -> Tensor:
        """Allocate float32 zeros of a parameter's shape, where masters and moments are kept."""
        if self._is_offloaded(param):
            return host_zeros(param.shape)
        return torch.zeros(param.shape, dtype=torch.float32, device=param.device)

    def _is_offloaded(self, param: Tensor) -> bool:
        return self.cfg.offload_optimizer and param.numel() >= MIN_OFFLOADED


def _accumulate_into(gradients: dict[str, Tensor], name: str) -> Callable[[Tensor], None]:
    """Make a hook that adds a low-precision gradient to the float32 one after a backward pass.

    A parameter keeps its hook alive, so the hook refers to the gradients only and not to the
    optimizer, which can then be freed.
    """

    def hook(param: Tensor) -> None:
        assert param.grad is not None, "one optimizer takes the gradients of a weight"
        total = gradients.get(name)
        if total is None:
            gradients[name] = param.grad.float()
        else:
            total.add_(param.grad)
        param.grad = None

    return hook


def _remove(hooks: Iterable[RemovableHandle]) -> None:
    for hook in hooks:
        hook.remove()
