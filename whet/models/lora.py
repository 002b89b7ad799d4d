"""Low-rank adapters on frozen weights (LoRA, Hu et al. 2022), loaded and saved in peft's format.

An adapted projection computes W x + (alpha / rank) B A x. W is fused (q, k and v; gate and up).
Each target matrix in W has its own A and B, which are slices of one A and one B.

Shapes: T tokens, O outputs; the rank has no letter.
"""

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal, get_args

import torch
from pydantic import Field, ValidationError, field_validator
from torch import Tensor, nn
from torch.nn import functional as F

from whet.config import Config
from whet.errors import DataError
from whet.models.config import ModelConfig
from whet.models.load import (
    ADAPTER_CONFIG,
    TensorRows,
    check_finite,
    fill_rows,
    load_weights,
    read_shapes,
    write_tensors,
)
from whet.models.save import save_model, write_generation
from whet.models.transformer import Layer, Transformer
from whet.store.files import write_json
from whet.text.tokenizer import read_model_json
from whet.types import Json
from whet.world import get_world

Target = Literal["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"]
TARGETS: tuple[Target, ...] = get_args(Target)


class LoraConfig(Config):
    """Which matrices get adapters, and how large."""

    rank: int = Field(default=16, ge=1)
    """Rank of each adapter."""
    alpha: float = Field(default=32.0, gt=0.0)
    """Adapters are scaled by alpha / rank, so that the learning rate need not change with rank."""
    targets: tuple[Target, ...] = TARGETS
    """Matrices that get an adapter."""

    @field_validator("targets")
    @classmethod
    def _sort_targets(cls, targets: tuple[Target, ...]) -> tuple[Target, ...]:
        if not targets:
            raise ValueError(f"targets should name at least one of {', '.join(TARGETS)}")
        return tuple(name for name in TARGETS if name in targets)

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


@dataclass(frozen=True, slots=True, kw_only=True)
class FusedMatrix:
    """One matrix of a fused projection: its Hugging Face name within a layer, and its rows."""

    name: str
    rows: int
    is_adapted: bool


class LoraLinear(nn.Linear):
    """A frozen projection with adapters; it shares the memory of the projection it replaces."""

    def __init__(self, frozen: nn.Linear, fused: tuple[FusedMatrix, ...], cfg: LoraConfig) -> None:
        super().__init__(
            frozen.in_features, frozen.out_features, bias=frozen.bias is not None, device="meta"
        )
        self.weight = frozen.weight
        self.bias = frozen.bias
        self.fused = fused
        self.scale = cfg.scale
        self.rank = cfg.rank
        adapted = [matrix.rows for matrix in fused if matrix.is_adapted]
        self.lora_A = nn.Parameter(
            frozen.weight.new_zeros(len(adapted) * cfg.rank, frozen.in_features)
        )
        self.lora_B = nn.Parameter(frozen.weight.new_zeros(sum(adapted), cfg.rank))

    def forward(self, input: Tensor) -> Tensor:
        frozen_TO = F.linear(input, self.weight, self.bias)
        lows = torch.split(F.linear(input, self.lora_A), self.rank, dim=1)
        pieces = list(torch.split(frozen_TO, [matrix.rows for matrix in self.fused], dim=1))
        for low, (index, _, lora_B) in zip(lows, self.slices(), strict=True):
            pieces[index] = torch.addmm(pieces[index], low, lora_B.T, alpha=self.scale)
        return pieces[0] if len(pieces) == 1 else torch.cat(pieces, dim=1)

    def slices(self) -> Iterator[tuple[int, Tensor, Tensor]]:
        """Yield the index of each adapted matrix, its A and its B."""
        indices = [index for index, matrix in enumerate(self.fused) if matrix.is_adapted]
        slices_A = torch.split(self.lora_A, self.rank)
        slices_B = torch.split(self.lora_B, [self.fused[index].rows for index in indices])
        yield from zip(indices, slices_A, slices_B, strict=True)


class LoraTransformer(Transformer):
    """A decoder with frozen, shared weights and trainable adapters.

    It takes over the layers of `model`, which must not be used afterwards. `base` is the hub id or
    path of the weights. New adapters have no effect, since B is zero.
    """

    def __init__(self, model: Transformer, lora: LoraConfig, *, base: str, seed: int = 0) -> None:
        super().__init__(model.cfg, device="meta")
        self.lora = lora
        self.base = base
        model.requires_grad_(False)
        self.embed = model.embed
        self.layers = model.layers
        self.norm = model.norm
        self.head = model.head
        self.rope_CD = model.rope_CD
        rng = torch.Generator().manual_seed(seed)
        for layer in self.layers:
            assert isinstance(layer, Layer), "layers hold nothing but Layer"
            for name, fused in _projections(model.cfg, lora).items():
                if any(matrix.is_adapted for matrix in fused):
                    plain = layer.get_submodule(name)
                    assert isinstance(plain, nn.Linear), "projections are linear"
                    adapted = LoraLinear(plain, fused, lora)
                    _init_lora_A(adapted.lora_A, rng)
                    layer.set_submodule(name, adapted)

    def adapters(self) -> Iterator[tuple[str, Tensor, Tensor]]:
        """Yield the Hugging Face name, A and B of all adapted matrices, as views of the model."""
        for index, layer in enumerate(self.layers):
            for adapted in layer.modules():
                if isinstance(adapted, LoraLinear):
                    for matrix, lora_A, lora_B in adapted.slices():
                        name = f"model.layers.{index}.{adapted.fused[matrix].name}"
                        yield name, lora_A.detach(), lora_B.detach()

    @torch.no_grad()
    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights by name: merged in float32 if adapted, otherwise views."""
        adapters = {f"{name}.weight": (lora_A, lora_B) for name, lora_A, lora_B in self.adapters()}
        for name, view in self.named_views():
            if name in adapters:
                lora_A, lora_B = adapters[name]
                added = self.lora.scale * (lora_B.float() @ lora_A.float())
                yield name, (view.float() + added).to(view.dtype)
            else:
                yield name, view

    @torch.no_grad()
    def merge(self) -> Transformer:
        """Add the adapters to the weights in float32, in place; return them as a plain decoder."""
        views = dict(self.named_views())
        for name, merged in self.named_weights():
            if merged.data_ptr() != views[name].data_ptr():
                views[name].copy_(merged)
        plain = Transformer(self.cfg, device="meta")
        weights = {
            name: weight.detach()
            for name, weight in self.named_parameters()
            if ".lora_" not in name
        }
        plain.load_state_dict(weights, assign=True)
        plain.rope_CD = self.rope_CD
        return plain


def copy_trainable(model: Transformer) -> Transformer:
    """Copy a model; frozen weights are shared."""
    return _copy(model, [weight for weight in model.parameters() if not weight.requires_grad])


def share_weights(model: Transformer) -> Transformer:
    """Make another model that shares all weights."""
    return _copy(model, [*model.parameters()])


def _copy(model: Transformer, shared: Sequence[Tensor]) -> Transformer:
    return copy.deepcopy(model, {id(tensor): tensor for tensor in (*shared, model.rope_CD)})


def _projections(cfg: ModelConfig, lora: LoraConfig) -> dict[str, tuple[FusedMatrix, ...]]:
    """List the fused projections of a layer, with the matrices in each."""
    queries = cfg.num_heads * cfg.head_dim
    keys = cfg.num_kv_heads * cfg.head_dim

    def fused(block: str, **rows: int) -> tuple[FusedMatrix, ...]:
        return tuple(
            FusedMatrix(name=f"{block}.{name}", rows=count, is_adapted=name in lora.targets)
            for name, count in rows.items()
        )

    return {
        "qkv": fused("self_attn", q_proj=queries, k_proj=keys, v_proj=keys),
        "out": fused("self_attn", o_proj=cfg.hidden_size),
        "mlp.gate_up": fused("mlp", gate_proj=cfg.intermediate_size, up_proj=cfg.intermediate_size),
        "mlp.down": fused("mlp", down_proj=cfg.hidden_size),
    }


@torch.no_grad()
def _init_lora_A(lora_A: Tensor, rng: torch.Generator) -> None:
    """Draw uniformly within 1/sqrt(fan in), as peft does."""
    drawn = torch.rand(lora_A.shape, generator=rng) * 2 - 1
    lora_A.copy_(drawn * lora_A.shape[1] ** -0.5)


_WEIGHTS = "adapter_model.safetensors"
FIXED_OPTIONS: dict[str, Json] = {
    "bias": "none",
    **dict.fromkeys(("fan_in_fan_out", "use_rslora", "use_dora", "lora_bias"), False),
    **dict.fromkeys(("modules_to_save", "layers_to_transform", "layers_pattern")),
    "rank_pattern": {},
    "alpha_pattern": {},
}
"""Options of peft that are supported only with these values; others are refused."""


def is_adapter(folder: Path) -> bool:
    return (folder / ADAPTER_CONFIG).is_file()


def read_adapter(folder: Path) -> tuple[str, LoraConfig]:
    """Read the base and the settings of adapters; refuse unsupported adapters."""
    file = folder / ADAPTER_CONFIG
    row = read_model_json(file)
    if row.get("peft_type") != "LORA":
        raise DataError(f"{str(file)!r} should be an object that says peft_type = 'LORA'")
    for key, plain in FIXED_OPTIONS.items():
        if row.get(key) not in (plain, None) and row[key]:
            raise DataError(f"{str(file)!r} says {key} = {row[key]!r}; only {plain!r} is supported")
    base = row.get("base_model_name_or_path")
    targets = row.get("target_modules")
    if not isinstance(base, str) or not isinstance(targets, list):
        raise DataError(
            f"{str(file)!r} needs base_model_name_or_path, a text, and target_modules, a list of "
            "names"
        )
    try:
        lora = LoraConfig.model_validate(
            {"rank": row.get("r"), "alpha": row.get("lora_alpha"), "targets": tuple(targets)}
        )
    except ValidationError as error:
        wrong = error.errors(include_url=False)[0]
        raise DataError(
            f"{str(file)!r}: r, lora_alpha or target_modules is wrong ({wrong['msg']}); "
            f"targets are {', '.join(TARGETS)}"
        ) from error
    # Checked before memory is allocated for adapters of this rank.
    weights = folder / _WEIGHTS
    for name, shape in read_shapes(weights).items():
        if ".lora_A." in name and shape[:1] != [lora.rank]:
            raise DataError(
                f"tensor {name} in {str(weights)!r} has shape {shape}, but r is {lora.rank}"
            )
    return base, lora


def save_adapters(model: LoraTransformer, folder: Path) -> None:
    """Write a folder that peft loads on top of the base model."""
    tensors = {
        key: view.cpu().clone(memory_format=torch.contiguous_format)
        for key, view in _named_adapters(model)
    }
    check_finite(tensors.items())
    config: dict[str, Json] = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": model.base,
        "r": model.lora.rank,
        "lora_alpha": model.lora.alpha,
        "lora_dropout": 0.0,
        "target_modules": list(model.lora.targets),
        "inference_mode": True,
        "init_lora_weights": True,
        "revision": None,
        **FIXED_OPTIONS,
    }
    write_tensors(folder / _WEIGHTS, tensors)
    write_json(folder / ADAPTER_CONFIG, config)


def load_adapters(model: LoraTransformer, folder: Path) -> None:
    """Load adapters in place; missing or extra tensors and other shapes are errors."""
    wanted = {name: TensorRows(view, 0, len(view)) for name, view in _named_adapters(model)}
    fill_rows(folder / _WEIGHTS, wanted)
    if wanted:
        raise DataError(f"{str(folder / _WEIGHTS)!r} lacks the tensor {min(wanted)}")


def save_trained(
    model: Transformer,
    folder: Path,
    *,
    eos_tokens: Collection[int] = (),
    generation: Mapping[str, Json] = MappingProxyType({}),
) -> None:
    """Write a Hugging Face folder, or adapters in peft's format; all ranks call it together."""
    if not isinstance(model, LoraTransformer):
        save_model(model, folder, eos_tokens=eos_tokens, generation=generation)
    elif get_world().is_rank_zero:
        save_adapters(model, folder)
        write_generation(folder, eos_tokens, generation)


def load_trained(model: Transformer, folder: Path) -> None:
    """Load the files of `save_trained` in place: all weights, or the adapters."""
    if isinstance(model, LoraTransformer):
        load_adapters(model, folder)
    else:
        load_weights(model, folder)


def _named_adapters(model: LoraTransformer) -> Iterator[tuple[str, Tensor]]:
    """Yield all adapters by peft's names, as views of the model."""
    for name, lora_A, lora_B in model.adapters():
        yield f"base_model.model.{name}.lora_A.weight", lora_A
        yield f"base_model.model.{name}.lora_B.weight", lora_B
