"""One decoder for engine and learner, and attention over packed sequences.

Families differ in fields of ModelConfig. The decoder does not decide which tokens see each other:
it passes the projections of each layer to `attend`, which applies rope and attention.

Shapes: T tokens of all S sequences laid end to end, M targets, H hidden, N query heads, G key/value
heads, D head size, X query, key and value heads of a token side by side, K tiles of queries, V
vocabulary, U tokens with shared prefixes once, C columns of a grid with one row per sequence.
"""

import math
from collections.abc import Iterable, Iterator
from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from whet.errors import DataError
from whet.kernels import FEATURES, TRITON_DEVICES, AttentionOptions, AttentionSpec
from whet.kernels.attention import CAUSAL, grid_attention, packed_attention, tile_table
from whet.kernels.layer_ops import add_norm, split_heads, swiglu
from whet.kernels.lm_head import head_logits, token_logprobs, torch_token_logprobs
from whet.models.config import LinearRope, Llama3Rope, ModelConfig, YarnRope


def rope_table(cfg: ModelConfig) -> Tensor:
    """Tabulate cosines and sines for every position: float32 [max_positions, head_dim]."""
    half = torch.arange(0, cfg.head_dim, 2, dtype=torch.float32) / cfg.head_dim
    frequency = 1.0 / (cfg.rope_theta**half)
    scaling = cfg.rope_scaling
    factor = 1.0
    if isinstance(scaling, LinearRope):
        frequency = frequency / scaling.factor
    elif isinstance(scaling, Llama3Rope):
        frequency = _scale_llama3(frequency, scaling)
    elif isinstance(scaling, YarnRope):
        frequency = _scale_yarn(frequency, scaling, cfg)
        factor = scaling.attention_factor
    angle = torch.outer(torch.arange(cfg.max_positions, dtype=torch.float32), frequency)
    return torch.cat([angle.cos(), angle.sin()], dim=-1) * factor


def _scale_llama3(frequency: Tensor, scaling: Llama3Rope) -> Tensor:
    wavelength = 2 * math.pi / frequency
    low = scaling.original_max_positions / scaling.low_freq_factor
    high = scaling.original_max_positions / scaling.high_freq_factor
    smooth = (scaling.original_max_positions / wavelength - scaling.low_freq_factor) / (
        scaling.high_freq_factor - scaling.low_freq_factor
    )
    blended = (1 - smooth) * frequency / scaling.factor + smooth * frequency
    scaled = torch.where(wavelength > low, frequency / scaling.factor, frequency)
    return torch.where((wavelength <= low) & (wavelength >= high), blended, scaled)


def _scale_yarn(frequency: Tensor, scaling: YarnRope, cfg: ModelConfig) -> Tensor:
    def dimension(turns: float) -> float:
        """Compute the dimension that rotates `turns` times within the original length."""
        length = scaling.original_max_positions / (turns * 2 * math.pi)
        return cfg.head_dim * math.log(length) / (2 * math.log(cfg.rope_theta))

    low = dimension(scaling.beta_fast)
    high = dimension(scaling.beta_slow)
    if scaling.truncate:
        low = math.floor(low)
        high = math.ceil(high)
    low = max(low, 0)
    high = min(high, cfg.head_dim - 1)
    width = high - low or 0.001  # as transformers does
    ramp = ((torch.arange(len(frequency), dtype=torch.float32) - low) / width).clamp(0, 1)
    return frequency / scaling.factor * ramp + frequency * (1 - ramp)


class Attend(Protocol):
    """Attention over the caller's context: packed sequences, or a KV cache."""

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor: ...


class Transformer(nn.Module):
    """Tokens and positions in, final hidden states out; `logits` applies the head in float32."""

    rope_CD: Tensor
    num_checkpointed = 0
    """Number of leading layers that keep only their inputs for the backward pass, and run twice.
    The learner sets it before each update from the free memory."""
    compute_dtype: torch.dtype | None = None
    """Set if weights are stored in another dtype than the model computes in, as shards are."""

    def __init__(
        self, cfg: ModelConfig, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> None:
        super().__init__()
        self.cfg = cfg
        self.has_kernels = cfg.features <= FEATURES
        with torch.device(device):
            self.embed = nn.Embedding(cfg.vocab_size, cfg.hidden_size, dtype=dtype)
            self.layers = nn.ModuleList(
                [Layer(cfg, index, dtype) for index in range(cfg.num_layers)]
            )
            self.norm = nn.RMSNorm(cfg.hidden_size, eps=cfg.norm_eps, dtype=dtype)
            self.head = (
                None
                if cfg.tied
                else nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False, dtype=dtype)
            )
            self.register_buffer("rope_CD", rope_table(cfg), persistent=False)

    @property
    def device(self) -> torch.device:
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.compute_dtype or self.embed.weight.dtype

    @property
    def head_weight_VH(self) -> Tensor:
        return self.embed.weight if self.head is None else self.head.weight

    def forward(self, tokens_T: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
        residual_TH = None
        added_TH = self.embed(tokens_T)
        has_triton = added_TH.device.type in TRITON_DEVICES
        rope, positions = (
            (self.rope_CD, positions_T) if has_triton else (self.rope_CD[positions_T], None)
        )
        num_checkpointed = self.num_checkpointed if torch.is_grad_enabled() else 0
        for index, layer in enumerate(self.layers):
            inputs = residual_TH, added_TH, rope, positions, attend
            if index < num_checkpointed:
                residual_TH, added_TH = checkpoint(
                    layer, *inputs, use_reentrant=False, preserve_rng_state=False
                )
            else:
                residual_TH, added_TH = layer(*inputs)
        return add_norm(added_TH, residual_TH, self.norm.weight, self.cfg.norm_eps)[0]

    def logits(self, hidden_TH: Tensor) -> Tensor:
        """Compute float32 logits, in the same way for engine and learner."""
        return head_logits(hidden_TH, self.head_weight_VH)

    def token_logprobs(
        self, hidden_MH: Tensor, label_M: Tensor, temperature_M: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Compute log-probabilities of labels under softmax(logits / temperature), and the entropy.

        The kernels apply the head themselves. A model with features that they do not support uses
        `logits`.
        """
        targets = label_M, temperature_M
        if self.has_kernels:
            return token_logprobs(hidden_MH, self.head_weight_VH, *targets, entropy=True)
        return torch_token_logprobs(self.logits, hidden_MH, *targets, vocab=self.cfg.vocab_size)

    def named_views(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all parameters by Hugging Face name, as writable views of the model.

        A tied head appears only as the embedding.
        """
        yield "model.embed_tokens.weight", self.embed.weight.detach()
        for layer in self.layers:
            assert isinstance(layer, Layer), "layers hold nothing but Layer"
            for name, view in layer.named_views():
                yield f"model.layers.{layer.index}.{name}", view
        yield "model.norm.weight", self.norm.weight.detach()
        if self.head is not None:
            yield "lm_head.weight", self.head.weight.detach()

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the weights that the model computes with, by Hugging Face name."""
        return self.named_views()

    @torch.no_grad()
    def copy_weights(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Copy weights by Hugging Face name, in place.

        If the first weight is a view of the model's own memory, copying stops there.
        """
        views: dict[str, Tensor] = {}
        for name, tensor in named:
            views = views or dict(self.named_views())
            if name not in views:
                if name == "lm_head.weight" and self.cfg.tied:
                    continue
                raise DataError(f"the model has no weight {name}")
            if views[name].data_ptr() == tensor.data_ptr():
                return
            if views[name].shape != tensor.shape:
                shapes = f"{list(tensor.shape)}, expected {list(views[name].shape)}"
                raise DataError(f"weight {name} has shape {shapes}")
            views[name].copy_(tensor)


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate x) * up x), with gate and up fused in one matrix."""

    def __init__(self, cfg: ModelConfig, dtype: torch.dtype) -> None:
        super().__init__()
        inner = cfg.intermediate_size
        self.gate_up = nn.Linear(cfg.hidden_size, 2 * inner, bias=False, dtype=dtype)
        self.down = nn.Linear(inner, cfg.hidden_size, bias=False, dtype=dtype)

    def forward(self, normed_TH: Tensor) -> Tensor:
        added_TH: Tensor = self.down(swiglu(self.gate_up(normed_TH)))
        return added_TH


class Layer(nn.Module):
    """Norm, attention, norm, feed-forward; one fused matrix projects q, k and v."""

    def __init__(self, cfg: ModelConfig, index: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.cfg = cfg
        self.index = index
        self.options = AttentionOptions(
            window=cfg.window(index), has_kernels=cfg.features <= FEATURES
        )
        hidden = cfg.hidden_size
        self.input_norm = nn.RMSNorm(hidden, eps=cfg.norm_eps, dtype=dtype)
        self.qkv = nn.Linear(hidden, cfg.qkv_size, bias=cfg.qkv_bias, dtype=dtype)
        self.q_norm = (
            nn.RMSNorm(cfg.head_dim, eps=cfg.norm_eps, dtype=dtype) if cfg.qk_norm else None
        )
        self.k_norm = (
            nn.RMSNorm(cfg.head_dim, eps=cfg.norm_eps, dtype=dtype) if cfg.qk_norm else None
        )
        self.out = nn.Linear(cfg.num_heads * cfg.head_dim, hidden, bias=False, dtype=dtype)
        self.post_norm = nn.RMSNorm(hidden, eps=cfg.norm_eps, dtype=dtype)
        self.mlp = FeedForward(cfg, dtype)

    def forward(
        self,
        residual_TH: Tensor | None,
        added_TH: Tensor,
        rope_CD: Tensor,
        positions_T: Tensor | None,
        attend: Attend,
    ) -> tuple[Tensor, Tensor]:
        """Take the residual stream and the pending update to it; return both for the next layer."""
        normed_TH, residual_TH = add_norm(
            added_TH, residual_TH, self.input_norm.weight, self.cfg.norm_eps
        )
        mixed_TND = attend(self.index, self.qkv(normed_TH), self._spec(rope_CD, positions_T))
        normed_TH, residual_TH = add_norm(
            self.out(mixed_TND.flatten(1)), residual_TH, self.post_norm.weight, self.cfg.norm_eps
        )
        return residual_TH, self.mlp(normed_TH)

    def _spec(self, rope_CD: Tensor, positions_T: Tensor | None) -> AttentionSpec:
        return AttentionSpec(
            num_heads=self.cfg.num_heads,
            num_kv_heads=self.cfg.num_kv_heads,
            head_dim=self.cfg.head_dim,
            rope_CD=rope_CD,
            positions_T=positions_T,
            q_norm_D=None if self.q_norm is None else self.q_norm.weight,
            k_norm_D=None if self.k_norm is None else self.k_norm.weight,
            eps=self.cfg.norm_eps,
            options=self.options,
        )

    def named_views(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the parameters as views, by the Hugging Face names within the layer."""
        cfg = self.cfg
        sizes = [n * cfg.head_dim for n in (cfg.num_heads, cfg.num_kv_heads, cfg.num_kv_heads)]
        yield "input_layernorm.weight", self.input_norm.weight.detach()
        for letter, view in zip("qkv", torch.split(self.qkv.weight.detach(), sizes), strict=True):
            yield f"self_attn.{letter}_proj.weight", view
        if cfg.qkv_bias:
            for letter, view in zip("qkv", torch.split(self.qkv.bias.detach(), sizes), strict=True):
                yield f"self_attn.{letter}_proj.bias", view
        if self.q_norm is not None and self.k_norm is not None:
            yield "self_attn.q_norm.weight", self.q_norm.weight.detach()
            yield "self_attn.k_norm.weight", self.k_norm.weight.detach()
        yield "self_attn.o_proj.weight", self.out.weight.detach()
        yield "post_attention_layernorm.weight", self.post_norm.weight.detach()
        gate, up = self.mlp.gate_up.weight.detach().chunk(2)
        yield "mlp.gate_proj.weight", gate
        yield "mlp.up_proj.weight", up
        yield "mlp.down_proj.weight", self.mlp.down.weight.detach()


@torch.no_grad()
def init_weights(model: Transformer, seed: int) -> None:
    """Draw normal weights of standard deviation 1/sqrt(fan in); scale residual outputs by depth."""
    rng = torch.Generator().manual_seed(seed)
    shrink = (2 * model.cfg.num_layers) ** -0.5
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        std = 0.02 if name.startswith("embed") else weight.shape[1] ** -0.5
        if name.endswith(("out.weight", "down.weight")):
            std *= shrink
        weight.copy_(torch.randn(weight.shape, generator=rng) * std)


class PackedAttention:
    """Causal attention within each sequence; `lengths_S` sum to T.

    Without `longest`, the host waits for the device to compute it from `lengths_S`.
    """

    def __init__(
        self, lengths_S: Tensor, longest: int | None = None, tokens: int | None = None
    ) -> None:
        self.longest = int(lengths_S.max()) if longest is None else longest
        self.starts_S1 = F.pad(lengths_S.cumsum(0), (1, 0)).to(torch.int32)
        self.tiles_K2: Tensor | None = None
        if lengths_S.device.type in TRITON_DEVICES:
            tokens = int(lengths_S.sum()) if tokens is None else tokens
            self.tiles_K2 = tile_table(self.starts_S1, tokens)

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        return self.attend(*split_heads(qkv_TX, spec), spec.options)

    def attend(
        self, q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor, options: AttentionOptions = CAUSAL
    ) -> Tensor:
        return packed_attention(
            q_TND, k_TGD, v_TGD, self.starts_S1, self.longest, self.tiles_K2, options=options
        )


class SharedPrefixAttention:
    """Packed attention on a CPU over sequences whose shared prefixes are computed once.

    `node_SC` is the token in each cell of the grid; causality masks its padding on the right.
    `cell_U` is one cell of each token.
    """

    def __init__(self, node_SC: Tensor, cell_U: Tensor) -> None:
        self.node_SC = node_SC
        self.cell_U = cell_U

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor:
        heads = split_heads(qkv_TX, spec)
        return grid_attention(*heads, self.node_SC, self.cell_U, spec.options)
