"""The model of a critic: a policy's body with a head of one value per token."""

from dataclasses import replace
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F

from whet.batching.examples import Batch
from whet.models.load import check_finite, write_tensors
from whet.models.lora import copy_trainable, share_weights
from whet.models.transformer import PackedAttention, Transformer
from whet.world import get_world

VALUE_HEAD = "value_head.safetensors"


class ValueModel(nn.Module):
    """Values the state before each token, from the hidden state that predicts the token.

    The body starts as a copy of the policy; under adapters the two share the frozen weights. With
    `is_shared` nothing is copied here: the learner makes its own copy, in shards. The head
    starts at zero, so all first values are 0.
    """

    def __init__(self, policy: Transformer, *, is_shared: bool = False) -> None:
        super().__init__()
        self.body = share_weights(policy) if is_shared else copy_trainable(policy)
        # A critic needs no vocabulary head.
        self.body.head = None
        self.body.cfg = replace(policy.cfg, tied=True)
        self.head = nn.Linear(policy.cfg.hidden_size, 1, dtype=torch.float32, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(self, batch: Batch) -> Tensor:
        attend = PackedAttention(batch.lengths_S, batch.longest, len(batch.tokens_T))
        hidden_TH = self.body(batch.tokens_T, batch.positions_T, attend)
        hidden_MH = hidden_TH[batch.predictor_M].float()
        return F.linear(hidden_MH, self.head.weight, self.head.bias)[:, 0]

    def save_head(self, folder: Path) -> None:
        head = self.head.state_dict()
        check_finite((f"value_head.{name}", tensor) for name, tensor in head.items())
        if get_world().is_rank_zero:
            write_tensors(folder / VALUE_HEAD, head)

    def load_head(self, folder: Path) -> None:
        self.head.load_state_dict(load_file(folder / VALUE_HEAD))
