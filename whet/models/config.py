"""The shape of a decoder, read from and written to a Hugging Face `config.json`."""

import math
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, replace

from whet.errors import DataError
from whet.types import Json, read_integer


@dataclass(frozen=True, slots=True, kw_only=True)
class LinearRope:
    """Positions are divided by `factor`."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicRope:
    """NTK scaling past `max_positions`. whet runs no longer sequences, so it has no effect."""

    factor: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Llama3Rope:
    """Long wavelengths are stretched by `factor`, short ones are kept, the rest is blended."""

    factor: float
    low_freq_factor: float
    high_freq_factor: float
    original_max_positions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnRope:
    """YaRN (Peng et al. 2023): fast dimensions are kept, slow ones are stretched."""

    factor: float
    original_max_positions: int
    attention_factor: float
    """Multiplies queries and keys."""
    beta_fast: float = 32.0
    """A dimension with at least this many turns within the original length is kept."""
    beta_slow: float = 1.0
    """A dimension with at most this many turns is stretched by `factor`."""
    truncate: bool = True
    """Whether the bounds are rounded to whole dimensions."""


RopeScaling = LinearRope | DynamicRope | Llama3Rope | YarnRope


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindow:
    """In these layers a token sees only the last `tokens` tokens, including itself."""

    tokens: int
    layers: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """The shape of one decoder; `family` is the `model_type` of its `config.json`.

    Sizes come first and have no default. Every field with a default is a feature, absent by
    default.
    """

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
    tied: bool = False
    """Whether the output head is the embedding matrix."""
    qkv_bias: bool = False
    """Whether q, k and v have biases (Qwen2)."""
    qk_norm: bool = False
    """Whether each head of q and k is normalised before rope (Qwen3)."""
    rope_scaling: RopeScaling | None = None
    sliding_window: SlidingWindow | None = None

    def window(self, layer: int) -> int | None:
        """Return the number of tokens that a layer sees; None is all."""
        sliding = self.sliding_window
        return sliding.tokens if sliding is not None and layer in sliding.layers else None

    def can_split_heads(self, size: int) -> bool:
        """Whether `size` ranks can divide the heads; key-value heads are split or repeated."""
        kv_heads = self.num_kv_heads
        return self.num_heads % size == 0 and (kv_heads % size == 0 or size % kv_heads == 0)

    def with_family(self, family: str) -> "ModelConfig":
        """Return the same sizes with the features of another family."""
        return replace(self, family=family, qkv_bias=family == "qwen2", qk_norm=family == "qwen3")

    @property
    def features(self) -> frozenset[str]:
        """The names of this decoder's features.

        Plain torch supports all of them. A faster implementation lists the features that it
        supports in a constant FEATURES, and is not used for models with others.
        """
        values = asdict(self)
        return frozenset(
            field.name
            for field in fields(self)
            if field.default is not MISSING and values[field.name] != field.default
        )

    @property
    def qkv_size(self) -> int:
        return (self.num_heads + 2 * self.num_kv_heads) * self.head_dim


_ORIGINAL = "original_max_position_embeddings"
FAMILIES = {
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
}
"""Classes of transformers by `model_type`."""
_KNOWN_KEYS = {
    *("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"),
    *("num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings"),
    *("rms_norm_eps", "hidden_act", "tie_word_embeddings"),
    *("rope_theta", "rope_scaling", "rope_parameters"),
}
_WINDOW_KEYS = {"sliding_window", "layer_types"}
_QWEN_KEYS = _WINDOW_KEYS | {"use_sliding_window", "max_window_layers"}
_FAMILY_KEYS = {"qwen2": _QWEN_KEYS, "qwen3": _QWEN_KEYS, "mistral": _WINDOW_KEYS}
"""Keys that only some families have; for other families they are unknown."""
_DEFAULTS: Mapping[str, Mapping[str, Json]] = {
    "qwen2": {"num_key_value_heads": 32, "sliding_window": 4096},
    "qwen3": {"num_key_value_heads": 32, "sliding_window": 4096, "head_dim": 128},
    "mistral": {"num_key_value_heads": 8, "sliding_window": 4096},
}
"""Defaults of transformers for absent keys that depend on the family. A null key has no default: it
means as many key heads as query heads, or no window."""
_IGNORED_KEYS = {
    *("architectures", "transformers_version", "torch_dtype", "dtype", "_name_or_path"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "unk_token_id", "tokenizer_class"),
    *("use_cache", "return_dict", "id2label", "label2id", "initializer_range", "pretraining_tp"),
    *("attention_dropout", "_attn_implementation", "_attn_implementation_autoset"),
    *("attn_implementation", "_flash_attn_2_enabled", "is_llama_config", "transformers.js_config"),
    *("max_length", "temperature", "top_k", "top_p", "typical_p", "repetition_penalty"),
    *("length_penalty", "num_beams", "num_beam_groups", "num_return_sequences", "do_sample"),
    *("unsloth_fixed", "unsloth_version", "model_name"),
}
"""Keys that do not affect logits: about training, generation, or the file itself."""


def from_hf_config(row: Mapping[str, Json]) -> ModelConfig:
    """Read a decoder's shape from a `config.json`, old or new style; refuse unsupported models."""
    family = row.get("model_type")
    if not isinstance(family, str) or family not in FAMILIES:
        raise DataError(
            f"config.json: model_type is {family!r}, expected one of {', '.join(FAMILIES)}"
        )
    row = {**_DEFAULTS.get(family, {}), **row}
    _check_support(row, family)
    hidden = _int(row, "hidden_size")
    heads = _int(row, "num_attention_heads")
    theta, scaling = _read_rope(row)
    cfg = ModelConfig(
        family=family,
        vocab_size=_int(row, "vocab_size"),
        hidden_size=hidden,
        intermediate_size=_int(row, "intermediate_size"),
        num_layers=_int(row, "num_hidden_layers"),
        num_heads=heads,
        num_kv_heads=_int(row, "num_key_value_heads", heads),
        head_dim=_int(row, "head_dim", hidden // heads),
        max_positions=_int(row, "max_position_embeddings"),
        rope_theta=theta,
        norm_eps=_float(row, "rms_norm_eps", 1e-6),
        tied=bool(row.get("tie_word_embeddings", False)),
        rope_scaling=scaling,
        sliding_window=_read_window(row, family),
    ).with_family(family)
    if cfg.num_heads % cfg.num_kv_heads or cfg.head_dim % 2:
        raise DataError(
            f"config.json: {cfg.num_heads} heads must be a multiple of {cfg.num_kv_heads} "
            f"key/value heads, and head_dim, here {cfg.head_dim}, even"
        )
    return cfg


def to_hf_config(cfg: ModelConfig) -> dict[str, Json]:
    """Convert to a `config.json` that transformers (4 and 5) and vLLM read as the same model."""
    scaling = _rope_to_json(cfg.rope_scaling)
    return {
        "architectures": [FAMILIES[cfg.family]],
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
        **_sliding_to_json(cfg),
    }


def _check_support(row: Mapping[str, Json], family: str) -> None:
    activation = row.get("hidden_act", "silu")
    if activation != "silu":
        raise DataError(f"config.json: hidden_act is {activation!r}, only 'silu' is supported")
    for key in ("attention_bias", "mlp_bias", "quantization_config"):
        if row.get(key):
            raise DataError(f"config.json: {key} is {row[key]!r}, it must be absent or false")
    for key in sorted(row.keys() - _KNOWN_KEYS - _FAMILY_KEYS.get(family, set()) - _IGNORED_KEYS):
        if row[key]:
            raise DataError(
                f"config.json: {key} is {row[key]!r}, which whet does not know for a {family} "
                "model and which may change what it computes; remove it only if it has no effect"
            )


def _read_window(row: Mapping[str, Json], family: str) -> SlidingWindow | None:
    """Read the sliding window and its layers: all layers for Mistral, the last ones for Qwen."""
    is_on = family == "mistral" or (family in ("qwen2", "qwen3") and row.get("use_sliding_window"))
    if not is_on or row.get("sliding_window") is None:
        if isinstance(types := row.get("layer_types"), list) and set(types) != {"full_attention"}:
            raise DataError(
                f"config.json: layer_types are {types!r}, but sliding_window is not set"
            )
        return None
    count = _int(row, "num_hidden_layers")
    first = 0 if family == "mistral" else read_integer(row.get("max_window_layers", 28))
    types = row.get("layer_types") or [
        "sliding_attention" if index >= first else "full_attention" for index in range(count)
    ]
    known = {"full_attention", "sliding_attention"}
    if not isinstance(types, list) or len(types) != count or not known.issuperset(map(str, types)):
        raise DataError(
            f"config.json: layer_types are {types!r}, expected {sorted(known)} by layer"
        )
    layers = tuple(index for index, kind in enumerate(types) if kind == "sliding_attention")
    return SlidingWindow(tokens=_int(row, "sliding_window"), layers=layers) if layers else None


def _sliding_to_json(cfg: ModelConfig) -> dict[str, Json]:
    sliding = cfg.sliding_window
    if cfg.family == "mistral":  # transformers defaults to 4096 if the key is absent
        return {"sliding_window": None if sliding is None else sliding.tokens}
    if sliding is None:
        return {}
    types: list[Json] = [
        "full_attention" if cfg.window(layer) is None else "sliding_attention"
        for layer in range(cfg.num_layers)
    ]
    return {
        "sliding_window": sliding.tokens,
        "use_sliding_window": True,
        "max_window_layers": min(sliding.layers),
        "layer_types": types,
    }


def _read_rope(row: Mapping[str, Json]) -> tuple[float, RopeScaling | None]:
    rope = row.get("rope_parameters") or row.get("rope_scaling") or {}
    if not isinstance(rope, dict):
        raise DataError(f"config.json: rope_parameters is {rope!r}, expected an object")
    theta = _float(rope, "rope_theta", _float(row, "rope_theta", 10000.0))
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise DataError("config.json: partial_rotary_factor must be absent or 1")
    match kind:
        case "default":
            return theta, None
        case "linear":
            return theta, LinearRope(factor=_float(rope, "factor"))
        case "dynamic":
            return theta, DynamicRope(factor=_float(rope, "factor"))
        case "llama3":
            return theta, Llama3Rope(
                factor=_float(rope, "factor"),
                low_freq_factor=_float(rope, "low_freq_factor"),
                high_freq_factor=_float(rope, "high_freq_factor"),
                original_max_positions=_int(rope, _ORIGINAL),
            )
        case "yarn":
            factor = _float(rope, "factor")
            return theta, YarnRope(
                factor=factor,
                original_max_positions=_int(rope, _ORIGINAL, _int(row, "max_position_embeddings")),
                attention_factor=_float(rope, "attention_factor", _mscale(rope, factor)),
                beta_fast=_float(rope, "beta_fast", 32.0),
                beta_slow=_float(rope, "beta_slow", 1.0),
                truncate=bool(rope.get("truncate", True)),
            )
    known = "'default', 'linear', 'dynamic', 'llama3' or 'yarn'"
    raise DataError(f"config.json: rope_type is {kind!r}, expected {known}")


def _mscale(rope: Mapping[str, Json], factor: float) -> float:
    """Derive an attention factor that the file does not give, as transformers does."""

    def scale(by: float) -> float:
        return 0.1 * by * math.log(factor) + 1.0 if factor > 1 else 1.0

    if rope.get("mscale") and rope.get("mscale_all_dim"):
        return scale(_float(rope, "mscale")) / scale(_float(rope, "mscale_all_dim"))
    return scale(1.0)


def _rope_to_json(scaling: RopeScaling | None) -> dict[str, Json]:
    if scaling is None:
        return {"rope_type": "default"}
    types = {LinearRope: "linear", DynamicRope: "dynamic", Llama3Rope: "llama3", YarnRope: "yarn"}
    table: dict[str, Json] = {"rope_type": types[type(scaling)], **asdict(scaling)}
    if "original_max_positions" in table:
        table[_ORIGINAL] = table.pop("original_max_positions")
    return table


def _int(row: Mapping[str, Json], key: str, default: int | None = None) -> int:
    value = default if row.get(key) is None else row[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise DataError(f"config.json: {key} is {value!r}, expected a whole number above 0")
    return value


def _float(row: Mapping[str, Json], key: str, default: float | None = None) -> float:
    value = default if row.get(key) is None else row[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not value > 0:
        raise DataError(f"config.json: {key} is {value!r}, expected a number above 0")
    return float(value)
