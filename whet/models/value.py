"""A critic's model: the decoder itself, with one number a token in place of the vocabulary.

Shapes: T tokens, H hidden, M states to value.
"""

from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from whet.models.lora import twin
from whet.models.transformer import Attend, Transformer


class ValueModel(nn.Module):
    """What a state is worth: the state before a token is the hidden state that predicts it.

    The body starts as a twin of the policy and goes its own way; where that is frozen under
    adapters, they share what is frozen. The head starts at zero, so that every first value is 0.
    """

    def __init__(self, policy: Transformer) -> None:
        super().__init__()
        self.body = twin(policy)
        # Nobody asks a critic for tokens.
        self.body.head = None
        self.body.cfg = replace(policy.cfg, tied=True)
        self.head = nn.Linear(policy.cfg.hidden_size, 1, dtype=torch.float32, device=policy.device)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)

    def forward(
        self, tokens_T: Tensor, positions_T: Tensor, attend: Attend, source_M: Tensor
    ) -> Tensor:
        hidden_MH = self.body(tokens_T, positions_T, attend)[source_M]
        return F.linear(hidden_MH.float(), self.head.weight, self.head.bias)[:, 0]
