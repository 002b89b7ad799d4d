"""One decoder for engine and learner; families differ in fields of ModelConfig.

Shapes: T tokens of all sequences laid end to end, H hidden, N query heads, G key/value heads, D
head size, X query, key and value heads of a token side by side, V vocabulary. Which tokens may see
which is not decided here: `attend` gets the heads of a layer, and how to turn them, and answers.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from whet.kernels.gate import swiglu
from whet.kernels.head import head_logits
from whet.kernels.norm import add_norm
from whet.kernels.switch import uses_triton
from whet.models.config import ModelConfig
from whet.models.rope import AttentionSpec, rope_table


class Attend(Protocol):
    """Attention over whatever context the caller keeps: packed sequences, or a cache."""

    def __call__(self, layer: int, qkv_TX: Tensor, spec: AttentionSpec) -> Tensor: ...


class Transformer(nn.Module):
    """Tokens and positions in, final hidden states out; `logits` applies the head in float32."""

    rope_PD: Tensor
    num_checkpointed = 0
    """First layers that keep only their inputs for the backward pass, and run twice."""

    def __init__(
        self, cfg: ModelConfig, *, dtype: torch.dtype = torch.float32, device: str = "cpu"
    ) -> None:
        super().__init__()
        self.cfg = cfg
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
            self.register_buffer("rope_PD", rope_table(cfg), persistent=False)

    @property
    def device(self) -> torch.device:
        return self.embed.weight.device

    @property
    def dtype(self) -> torch.dtype:
        return self.embed.weight.dtype

    @property
    def head_weight_VH(self) -> Tensor:
        return self.embed.weight if self.head is None else self.head.weight

    def forward(self, tokens_T: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
        stream_TH = None
        added_TH = self.embed(tokens_T)
        rope, positions = (
            (self.rope_PD, positions_T)
            if uses_triton(added_TH)
            else (self.rope_PD[positions_T], None)
        )
        num_checkpointed = self.num_checkpointed if torch.is_grad_enabled() else 0
        for index, layer in enumerate(self.layers):
            given = stream_TH, added_TH, rope, positions, attend
            if index < num_checkpointed:
                stream_TH, added_TH = checkpoint(
                    layer, *given, use_reentrant=False, preserve_rng_state=False
                )
            else:
                stream_TH, added_TH = layer(*given)
        return add_norm(added_TH, stream_TH, self.norm.weight, self.cfg.norm_eps)[0]

    def logits(self, hidden_TH: Tensor) -> Tensor:
        return head_logits(hidden_TH, self.head_weight_VH)


class FeedForward(nn.Module):
    """SwiGLU: down(silu(gate x) * up x), gate and up fused in one matrix."""

    def __init__(self, cfg: ModelConfig, dtype: torch.dtype) -> None:
        super().__init__()
        inner = cfg.intermediate_size
        self.gate_up = nn.Linear(cfg.hidden_size, 2 * inner, bias=False, dtype=dtype)
        self.down = nn.Linear(inner, cfg.hidden_size, bias=False, dtype=dtype)

    def forward(self, normed_TH: Tensor) -> Tensor:
        added_TH: Tensor = self.down(swiglu(self.gate_up(normed_TH)))
        return added_TH


class Layer(nn.Module):
    """Norm, attention, norm, feed-forward; q, k and v are projected by one fused matrix."""

    def __init__(self, cfg: ModelConfig, index: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.cfg = cfg
        self.index = index
        self.window = cfg.window(index)
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
        stream_TH: Tensor | None,
        added_TH: Tensor,
        rope_PD: Tensor,
        positions_T: Tensor | None,
        attend: Attend,
    ) -> tuple[Tensor, Tensor]:
        """Take the residual stream and what is to be added to it; give both for the next layer."""
        normed_TH, stream_TH = add_norm(
            added_TH, stream_TH, self.input_norm.weight, self.cfg.norm_eps
        )
        mixed_TND = attend(self.index, self.qkv(normed_TH), self._spec(rope_PD, positions_T))
        normed_TH, stream_TH = add_norm(
            self.out(mixed_TND.flatten(1)), stream_TH, self.post_norm.weight, self.cfg.norm_eps
        )
        return stream_TH, self.mlp(normed_TH)

    def _spec(self, rope_PD: Tensor, positions_T: Tensor | None) -> AttentionSpec:
        return AttentionSpec(
            num_heads=self.cfg.num_heads,
            num_kv_heads=self.cfg.num_kv_heads,
            head_dim=self.cfg.head_dim,
            rope_PD=rope_PD,
            positions_T=positions_T,
            q_norm_D=None if self.q_norm is None else self.q_norm.weight,
            k_norm_D=None if self.k_norm is None else self.k_norm.weight,
            eps=self.cfg.norm_eps,
            window=self.window,
        )


@torch.no_grad()
def initialise(model: Transformer, seed: int) -> None:
    """Draw fresh weights: normal, 1/sqrt(fan in), residual outputs scaled down by depth."""
    source = torch.Generator().manual_seed(seed)
    shrink = (2 * model.cfg.num_layers) ** -0.5
    for name, weight in model.named_parameters():
        if weight.dim() == 1:
            weight.fill_(0.0 if name.endswith("bias") else 1.0)
            continue
        deviation = 0.02 if name.startswith("embed") else weight.shape[1] ** -0.5
        if name.endswith(("out.weight", "down.weight")):
            deviation *= shrink
        weight.copy_(torch.randn(weight.shape, generator=source) * deviation)
