"""Which engine the settings name: the one place that knows them all."""

from whet.engine.base import Engine
from whet.engine.native import Detokenize, NativeConfig, NativeEngine
from whet.models.transformer import Transformer

EngineConfig = NativeConfig
"""Settings of an engine, told apart by `kind`; another engine makes this a union."""


def build_engine(
    cfg: EngineConfig,
    model: Transformer,
    *,
    stop_tokens: frozenset[int],
    detokenize: Detokenize | None = None,
) -> Engine:
    """Build the engine for a model. `detokenize` is needed for requests with stop strings."""
    return NativeEngine(model, cfg, stop_tokens=stop_tokens, detokenize=detokenize)
