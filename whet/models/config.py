"""The shape of a decoder, read from and written to a Hugging Face `config.json`."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from whet.errors import DataError
from whet.types import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """Llama 3's frequency scaling: long wavelengths are stretched by `factor`, short ones kept, the
    rest blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """One decoder of the Qwen2, Qwen3 or Llama 3 family. `family` is the `model_type` of
    `config.json`."""

    family: str
    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    max_positions: int
    rope_theta: float
    norm_eps: float
    tied: bool
    """The output head is the embedding matrix."""
    qkv_bias: bool
    """Qwen2 has biases on q, k and v."""
    qk_norm: bool
    """Qwen3 normalises each head of q and k before the rotation."""
    rope_scaling: RopeScaling | None = None

    @property
    def features(self) -> frozenset[str]:
        """Name what sets this decoder apart from the plainest: every field that is set and no size.

        A second implementation states which of them it knows; a new field is unknown to it.
        """
        return frozenset(name for name, value in asdict(self).items() if value) - _SIZES

    @property
    def qkv_size(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


_SIZES = {
    "family",
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "max_positions",
    "rope_theta",
    "norm_eps",
}
FAMILIES = ("qwen2", "qwen3", "llama")
_CLASSES = {"qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM", "llama": "LlamaForCausalLM"}


def from_json(row: Mapping[str, Json]) -> ModelConfig:
    """Read the shape from a `config.json`, old or new style; refuse what the decoder would compute
    wrongly."""
    family = row.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise DataError(
            f"config.json: model_type is {family!r}, expected one of {', '.join(FAMILIES)}"
        )
    _refuse_unsupported(row)
    hidden = _count(row, "hidden_size")
    heads = _count(row, "num_attention_heads")
    theta, scaling = _rope(row)
    cfg = ModelConfig(
        family=family,
        vocab_size=_count(row, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_count(row, "intermediate_size"),
        num_layers=_count(row, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_count(row, "num_key_value_heads", heads),
        # Qwen3's head size is 128 unless said otherwise; the other families divide the hidden size.
        head_dim=_count(row, "head_dim", 128 if family == "qwen3" else hidden // heads),
        max_positions=_count(row, "max_position_embeddings"),
        rope_theta=theta,
        norm_eps=_positive(row, "rms_norm_eps", 1e-6),
        tied=bool(row.get("tie_word_embeddings", False)),
        qkv_bias=family == "qwen2",
        qk_norm=family == "qwen3",
        rope_scaling=scaling,
    )
    if cfg.num_heads % cfg.num_kv_heads or cfg.head_dim % 2:
        raise DataError(
            f"config.json: {cfg.num_heads} heads must be a multiple of {cfg.num_kv_heads} key/value heads, "
            f"and head_dim, here {cfg.head_dim}, even"
        )
    return cfg


def to_json(cfg: ModelConfig) -> dict[str, Json]:
    """Write a `config.json` that transformers, before and after version 5, and vLLM read to the
    same model."""
    scaling: dict[str, Json] = {"rope_type": "default"}
    if cfg.rope_scaling is not None:
        scaling = {
            "rope_type": "llama3",
            "factor": cfg.rope_scaling.factor,
            "low_freq_factor": cfg.rope_scaling.low_freq_factor,
            "high_freq_factor": cfg.rope_scaling.high_freq_factor,
            "original_max_position_embeddings": cfg.rope_scaling.original_max_positions,
        }
    return {
        "architectures": [_CLASSES[cfg.family]],
        "model_type": cfg.family,
        "vocab_size": cfg.vocab_size,
        "hidden_size": cfg.hidden_size,
        "intermediate_size": cfg.intermediate_size,
        "num_hidden_layers": cfg.num_layers,
        "num_attention_heads": cfg.num_heads,
        "num_key_value_heads": cfg.num_kv_heads,
        "head_dim": cfg.head_dim,
        "max_position_embeddings": cfg.max_positions,
        "rms_norm_eps": cfg.norm_eps,
        "hidden_act": "silu",
        "attention_bias": False,
        "attention_dropout": 0.0,
        "tie_word_embeddings": cfg.tied,
        "rope_theta": cfg.rope_theta,
        "rope_scaling": None if cfg.rope_scaling is None else scaling,
        "rope_parameters": {"rope_theta": cfg.rope_theta, **scaling},
        "use_cache": True,
    }


def _refuse_unsupported(row: Mapping[str, Json]) -> None:
    activation = row.get("hidden_act", "silu")
    if activation != "silu":
        raise DataError(f"config.json: hidden_act is {activation!r}, only 'silu' is supported")
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if row.get(key):
            raise DataError(f"config.json: {key} is {row[key]!r}, it must be absent or false")
    kinds = row.get("layer_types")
    slides = isinstance(kinds, list) and any(kind != "full_attention" for kind in kinds)
    if row.get("use_sliding_window") and row.get("sliding_window") is not None and kinds is None:
        slides = _count(row, "max_window_layers", 1) < _count(row, "num_hidden_layers")
    if slides:
        raise DataError(
            "config.json: some layers use a sliding window, only full attention is supported"
        )


def _rope(row: Mapping[str, Json]) -> tuple[float, RopeScaling | None]:
    rope = row.get("rope_parameters") or row.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise DataError(f"config.json: rope_parameters is {rope!r}, expected an object")
    theta = _positive(rope, "rope_theta", _positive(row, "rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default" and rope.get("partial_rotary_factor", 1.0) == 1.0:
        return theta, None
    if kind != "llama3":
        raise DataError(
            f"config.json: rope_type is {kind!r} with {sorted(rope)}, expected 'default' or 'llama3'"
        )
    return theta, RopeScaling(
        factor=_positive(rope, "factor"),
        low_freq_factor=_positive(rope, "low_freq_factor"),
        high_freq_factor=_positive(rope, "high_freq_factor"),
        original_max_positions=_count(rope, "original_max_position_embeddings"),
    )


def _count(row: Mapping[str, Json], key: str, default: int | None = None) -> int:
    value = default if row.get(key) is None else row[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DataError(f"config.json: {key} is {value!r}, expected a whole number above 0")
    return value


def _positive(row: Mapping[str, Json], key: str, default: float | None = None) -> float:
    value = default if row.get(key) is None else row[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise DataError(f"config.json: {key} is {value!r}, expected a number above 0")
    return float(value)
