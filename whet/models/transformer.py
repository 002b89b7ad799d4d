"""One decoder for the engine and the learner: Qwen2/2.5, Qwen3 and Llama 3 differ only in flags of ModelConfig.

Shapes: T tokens of all sequences laid end to end, H hidden, N query heads, G key/value heads, D head size,
V vocabulary. Which tokens may see which is not decided here: `attend` gets q, k, v of a layer and answers.
"""

from typing import Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from whet.models.config import ModelConfig
from whet.models.rope import rope_table, rotate


class Attend(Protocol):
    """Attention over whatever context the caller keeps: packed sequences, or a cache."""

    def __call__(self, layer: int, q_TND: Tensor, k_TGD: Tensor, v_TGD: Tensor) -> Tensor: ...


class Transformer(nn.Module):
    """Tokens and positions in, final hidden states out; `logits` applies the head in float32."""

    rope_PD: Tensor

    def __init__(self, cfg: ModelConfig, *, dtype: torch.dtype = torch.float32, device: str = "cpu") -> None:
        super().__init__()
        self.cfg = cfg
        with torch.device(device):
            self.embed = nn.Embedding(cfg.vocab_size, cfg.hidden_size, dtype=dtype)
            self.layers = nn.ModuleList([Layer(cfg, index, dtype) for index in range(cfg.num_layers)])
            self.norm = nn.RMSNorm(cfg.hidden_size, eps=cfg.norm_eps, dtype=dtype)
            self.head = None if cfg.tied else nn.Linear(cfg.hidden_size, cfg.vocab_size, bias=False, dtype=dtype)
            self.register_buffer("rope_PD", rope_table(cfg), persistent=False)

    @property
    def head_weight_VH(self) -> Tensor:
        return self.embed.weight if self.head is None else self.head.weight

    def forward(self, tokens_T: Tensor, positions_T: Tensor, attend: Attend) -> Tensor:
        rope_TD = self.rope_PD[positions_T]
        x_TH = self.embed(tokens_T)
        for layer in self.layers:
            x_TH = layer(x_TH, rope_TD, attend)
        out: Tensor = self.norm(x_TH)
        return out

    def logits(self, hidden_TH: Tensor) -> Tensor:
        return F.linear(hidden_TH, self.head_weight_VH).float()


class Layer(nn.Module):
    """Norm, attention, norm, gated feed-forward. Projections are fused: q, k, v in one matrix, gate and up in one."""

    def __init__(self, cfg: ModelConfig, index: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.cfg, self.index = cfg, index
        hidden, inner = cfg.hidden_size, cfg.intermediate_size
        self.input_norm = nn.RMSNorm(hidden, eps=cfg.norm_eps, dtype=dtype)
        self.qkv = nn.Linear(hidden, cfg.qkv_size, bias=cfg.qkv_bias, dtype=dtype)
        self.q_norm = nn.RMSNorm(cfg.head_dim, eps=cfg.norm_eps, dtype=dtype) if cfg.qk_norm else None
        self.k_norm = nn.RMSNorm(cfg.head_dim, eps=cfg.norm_eps, dtype=dtype) if cfg.qk_norm else None
        self.out = nn.Linear(cfg.num_heads * cfg.head_dim, hidden, bias=False, dtype=dtype)
        self.post_norm = nn.RMSNorm(hidden, eps=cfg.norm_eps, dtype=dtype)
        self.gate_up = nn.Linear(hidden, 2 * inner, bias=False, dtype=dtype)
        self.down = nn.Linear(inner, hidden, bias=False, dtype=dtype)

    def forward(self, x_TH: Tensor, rope_TD: Tensor, attend: Attend) -> Tensor:
        q_TND, k_TGD, v_TGD = self._project(self.input_norm(x_TH), rope_TD)
        mixed_TND = attend(self.index, q_TND, k_TGD, v_TGD)
        x_TH = x_TH + self.out(mixed_TND.flatten(1))
        gate_TI, up_TI = self.gate_up(self.post_norm(x_TH)).chunk(2, dim=-1)
        down_TH: Tensor = self.down(F.silu(gate_TI) * up_TI)
        return x_TH + down_TH

    def _project(self, x_TH: Tensor, rope_TD: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        heads, groups = self.cfg.num_heads, self.cfg.num_kv_heads
        qkv = self.qkv(x_TH).view(len(x_TH), heads + 2 * groups, self.cfg.head_dim)
        if self.q_norm is None or self.k_norm is None:
            turned = rotate(qkv[:, : heads + groups], rope_TD)
            return turned[:, :heads], turned[:, heads:], qkv[:, heads + groups :]
        q_TND = rotate(self.q_norm(qkv[:, :heads]), rope_TD)
        k_TGD = rotate(self.k_norm(qkv[:, heads : heads + groups]), rope_TD)
        return q_TND, k_TGD, qkv[:, heads + groups :]


@torch.no_grad()
def initialise(model: Transformer, seed: int) -> None:
    """Draw fresh weights: normal, deviation 1/sqrt(fan in), residual outputs scaled down by the depth."""
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
