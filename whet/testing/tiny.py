"""The smallest real parts, with random weights: a tokenizer, decoders of every family, a policy."""

from dataclasses import replace

from whet.engine.native import NativeConfig
from whet.models.sizes import new_config
from whet.models.transformer import Transformer
from whet.proofs.fixtures import init_sharp_weights, make_tokenizer
from whet.text.tokenizer import Tokenizer
from whet.train.policy import Policy, build_policy

VOCABULARY = 50


def tiny_tokenizer() -> Tokenizer:
    """Make a tokenizer with numbers below 100 as tokens, and characters for other text."""
    return make_tokenizer()


def tiny_model(
    *,
    family: str = "qwen3",
    tied: bool = False,
    vocab_size: int = VOCABULARY,
    positions: int = 64,
    seed: int = 0,
    cls: type[Transformer] = Transformer,
) -> Transformer:
    """Make a two-layer decoder of a family, with four query heads on two key heads."""
    cfg = replace(new_config("tiny", vocab_size, positions, family), tied=tied)
    model = cls(cfg)
    init_sharp_weights(model, seed)
    return model


def tiny_policy(*, seed: int = 0, slots: int = 16) -> Policy:
    pieces = tiny_tokenizer()
    model = tiny_model(tied=True, vocab_size=pieces.vocab_size, seed=seed)
    return build_policy(model, pieces, NativeConfig(max_num_seqs=slots), name="tiny")
