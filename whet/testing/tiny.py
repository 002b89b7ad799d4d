"""The smallest real parts: a tokenizer, decoders of every family, a policy; random weights."""

from dataclasses import replace

import torch

from whet.engine.native import NativeConfig
from whet.models.sizes import new_config
from whet.models.transformer import Transformer, initialise
from whet.text.tokenizer import Tokenizer, train_pieces
from whet.train.policy import Policy, build_policy

VOCABULARY = 50


def tiny_tokenizer() -> Tokenizer:
    """Numbers below 100 as single tokens, other text by characters."""
    return train_pieces([f"{n} {n}" for n in range(100)])


def tiny_model(
    *,
    family: str = "qwen3",
    tied: bool = False,
    vocab_size: int = VOCABULARY,
    positions: int = 64,
    seed: int = 0,
    kind: type[Transformer] = Transformer,
) -> Transformer:
    """Make a two-layer decoder of a family, with four query heads on two key heads.

    Norms and biases are moved off one and zero, so that a missing one shows, and the head is sharp
    enough for tokens to differ in probability by orders of magnitude.
    """
    cfg = replace(new_config("tiny", vocab_size, positions, family), tied=tied)
    model = kind(cfg)
    initialise(model, seed)
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.head_weight_VH.copy_(
            torch.randn(vocab_size, cfg.hidden_size, generator=source) * 0.25
        )
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn(weight.shape, generator=source) * 0.2)
    return model


def tiny_policy(*, seed: int = 0, slots: int = 16) -> Policy:
    tokenizer = tiny_tokenizer()
    model = tiny_model(tied=True, vocab_size=tokenizer.vocab_size, seed=seed)
    return build_policy(model, tokenizer, NativeConfig(slots=slots), name="tiny")
