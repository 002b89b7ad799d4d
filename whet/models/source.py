"""Open a model from a folder, a hub id or adapters on either, or make one of a named size."""

import gc
from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import Field, field_validator, model_validator

from whet import toml
from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.models.config import ModelConfig
from whet.models.load import load_decoder, read_shape, resolve, resolve_light, stored_dtype
from whet.models.lora import LoraConfig, LoraTransformer, is_adapter, load_adapters, read_adapter
from whet.models.save import save_model
from whet.models.sizes import SIZES, new_config
from whet.models.transformer import Transformer, init_weights, rope_table
from whet.rng import derive
from whet.store.checkpoint_folders import check_model
from whet.store.run import RunStore, find_run, model_folder
from whet.text.chat import ChatFormat
from whet.text.tokenizer import Pieces, Tokenizer, train_tokenizer
from whet.toml import Table
from whet.types import Dtype

CHAT_TEMPLATES: Mapping[str, str] = {
    "raw": (
        "{{ bos_token }}{% for message in messages %}{{ message.content }}"
        "{% if message.role == 'assistant' %}{{ eos_token }}"
        "{% elif message.role == 'system' %}{{ '\\n\\n' }}{% endif %}{% endfor %}"
    ),
    "plain": (
        "{{ bos_token }}{% for message in messages %}"
        "{% if message.role == 'user' %}{{ 'User: ' + message.content + '\\n\\n' }}"
        "{% elif message.role == 'assistant' %}{{ 'Assistant: ' + message.content + eos_token }}"
        "{% else %}{{ message.content + '\\n\\n' }}{% endif %}"
        "{% endfor %}{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
    ),
    "chatml": (
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
    ),
    "think": (
        "{% if messages[0].role != 'system' %}"
        "{{ '<|im_start|>system\\nThink step by step inside <think> and </think>, then answer.'"
        " + '<|im_end|>\\n' }}{% endif %}"
        "{% for message in messages %}"
        "{{ '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}"
        "{{ '<think>' }}{% endif %}"
    ),
}
"""Chat templates by name. raw is the text alone, for base models and finished prompts. plain is
DeepSeek LLM's, which needs no special tokens. chatml is Qwen's without a default system prompt;
think is Qwen's with an open thought (Reasoning360)."""
CHATML_TOKENS = ("<|im_start|>", "<|im_end|>")


class ModelSource(Config):
    """Where weights come from: a folder, a hub id, or a new model of a named size."""

    path: str | None = None
    """A folder, a hub id, or `@stage` in a pipeline."""
    new: str | None = None
    """The size of a new model with random weights; its tokenizer is trained on the data."""
    positions: int = Field(default=256, ge=2)
    """Longest context of a new model."""
    max_pieces: int = Field(default=1024, ge=0)
    """Largest number of text pieces (numbers, words, short phrases) that are single tokens of a new
    model; 0 makes every character a token, which suits tasks about letters."""
    pieces: Pieces = "phrases"
    """Kind of pieces: phrases, with numbers as single tokens, or words, with numbers as digits,
    which suits tasks with many names."""
    chat_template: str | None = None
    """How messages become text: none takes the model's own template, raw is the text alone, plain
    has turns of "User:" and "Assistant:", chatml is Qwen's, think is Qwen's with an open thought;
    anything else is a jinja file. Checkpoints keep the template."""
    lora: LoraConfig | None = None
    """Freeze the weights and train adapters on them; none trains the weights themselves."""

    @field_validator("new")
    @classmethod
    def _check_size(cls, new: str | None) -> str | None:
        if new is not None and new not in SIZES:
            raise ValueError(f"should be one of {', '.join(SIZES)}")
        return new

    @model_validator(mode="after")
    def _check_source(self) -> "ModelSource":
        if (self.path is None) == (self.new is None):
            raise ValueError("give path (a folder or hub id) or new (a size), and not both")
        if self.new is not None and self.lora is not None:
            raise ValueError("lora adapts existing weights: give path, not new")
        return self

    def without_effect(self) -> dict[str, str]:
        if self.new is not None:
            reason = "a model that starts from random weights has its own"
            no_pieces = {"pieces": "max_pieces = 0 makes every character a token"}
            return {"chat_template": reason} | ({} if self.max_pieces else no_pieces)
        reason = "it is for a model that starts from random weights, by `new`"
        reasons = dict.fromkeys(("positions", "max_pieces", "pieces"), reason)
        if self.chat_template is None:
            reasons["chat_template"] = "none takes the model's own, as leaving it out does"
        return reasons


def torch_device() -> torch.device:
    """Return the CUDA GPU of this process, or the CPU if there is none."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def torch_dtype(name: Dtype) -> torch.dtype:
    """Resolve "auto": bfloat16 on a GPU, float32 on a CPU, where bfloat16 is slow."""
    if name == "auto":
        return torch.bfloat16 if torch_device().type == "cuda" else torch.float32
    return {"bfloat16": torch.bfloat16, "float16": torch.float16}.get(name, torch.float32)


def load_model(
    source: ModelSource, *, dtype: torch.dtype, device: torch.device, texts: list[str], seed: int
) -> tuple[Transformer, Tokenizer]:
    """Load a model and its tokenizer, or make a new model with a tokenizer trained on `texts`."""
    if device.type != "cpu":
        gc.collect()  # a model of an earlier stage may still hold GPU memory
    if source.path is not None:
        _read_template(source.chat_template)  # fails before the weights are loaded
        model, tokenizer = _load_folder(
            source.path, source.lora, dtype=dtype, device=str(device), seed=seed
        )
        return model, with_chat_template(tokenizer, source.chat_template)
    assert source.new is not None, "a source has a path or a size"
    if not texts:
        raise ConfigError(
            "model.new needs training texts to make its tokenizer from; only sft can start a new "
            "model"
        )
    tokenizer = train_tokenizer(texts, max_pieces=source.max_pieces, pieces=source.pieces)
    shape = new_config(source.new, tokenizer.vocab_size, source.positions)
    model = Transformer(shape, dtype=torch.float32)
    init_weights(model, seed)
    model.to(device=device, dtype=dtype)
    with device:  # in float32 and on the device, bit for bit as `load_decoder` makes it
        model.rope_CD = rope_table(shape)
    return model, tokenizer


def read_tokenizer(source: ModelSource) -> tuple[ModelConfig, Tokenizer]:
    """Read the shape and the tokenizer of an existing model, without its weights.

    For a hub id that is not cached, only these small files are fetched.
    """
    assert source.path is not None, "a model that starts from random weights has no files yet"
    folder = resolve_light(str(model_folder(source.path)))
    base = folder
    if is_adapter(folder):
        name, stored = read_adapter(folder)
        _check_lora(source.lora, stored, folder)
        base = resolve_light(name)
    has_own = (folder / "tokenizer.json").is_file()
    tokenizer = Tokenizer.load(folder if has_own else base)
    shape = read_shape(str(base))
    return shape, with_chat_template(tokenizer, source.chat_template)


def read_run_prompt(location: str) -> Table:
    """Read the prompt settings of the run that a model belongs to; empty if there is none."""
    folder = find_run(location)
    if folder is None:
        return {}
    table = toml.read(RunStore.view(folder).config_file).get("prompt")
    return dict(table) if isinstance(table, dict) else {}


def with_chat_template(tokenizer: Tokenizer, name: str | None) -> Tokenizer:
    """Set a tokenizer's template by name or file; None keeps its own."""
    template = _read_template(name)
    if template is None:
        return tokenizer
    if name == "chatml" and not tokenizer.vocabulary.keys() >= set(CHATML_TOKENS):
        raise ConfigError(
            f'model.chat_template = "chatml" needs the tokens {" and ".join(CHATML_TOKENS)}, which '
            'the model\'s tokenizer lacks: set it to "plain"'
        )
    return tokenizer.with_template(template)


def _read_template(name: str | None) -> str | None:
    """Read the text of a chat template by name or file."""
    if name is None or name in CHAT_TEMPLATES:
        return None if name is None else CHAT_TEMPLATES[name]
    try:
        return Path(name).read_text(encoding="utf-8")
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"model.chat_template = {name!r} is neither {', '.join(CHAT_TEMPLATES)} nor a jinja "
            f"file that can be read: {error}"
        ) from error


def merge_adapters(adapters: Path, out: Path) -> None:
    """Merge adapters into their base and write a plain folder, in the dtype of the base."""
    base, _ = read_adapter(adapters)
    dtype = stored_dtype(resolve(base))
    source = ModelSource(path=str(adapters))
    model, tokenizer = load_model(source, dtype=dtype, device=torch_device(), texts=[], seed=0)
    stops = sorted(ChatFormat(tokenizer).stop_tokens)
    save_model(model, out, eos_tokens=stops, generation=tokenizer.generation)
    tokenizer.save(out)


def _load_folder(
    path: str, lora: LoraConfig | None, *, dtype: torch.dtype, device: str, seed: int
) -> tuple[Transformer, Tokenizer]:
    """Open a model or adapters; with `lora`, add new adapters or keep stored ones, else merge.

    Adapters store their base as a hub id or as the path of its folder.
    """
    location = model_folder(path)
    folder = resolve(str(location))
    check_model(folder.absolute())
    if is_adapter(folder):
        return _load_adapters(folder, lora, dtype=dtype, device=device)
    model = load_decoder(folder, dtype=dtype, device=device)
    if lora is not None:
        base = str(location.absolute()) if location.is_dir() else path
        model = LoraTransformer(model, lora, base=base, seed=derive(seed, "lora"))
    return model, Tokenizer.load(folder)


def _load_adapters(
    folder: Path, lora: LoraConfig | None, *, dtype: torch.dtype, device: str
) -> tuple[Transformer, Tokenizer]:
    base, stored = read_adapter(folder)
    base_folder = resolve(base)
    check_model(base_folder.absolute())
    if is_adapter(base_folder):
        raise DataError(
            f"{str(folder)!r} adapts {base!r}, which holds adapters itself; export that one first"
        )
    _check_lora(lora, stored, folder)
    model = LoraTransformer(
        load_decoder(base_folder, dtype=dtype, device=device), stored, base=base
    )
    load_adapters(model, folder)
    tokenizer = Tokenizer.load(folder if (folder / "tokenizer.json").is_file() else base_folder)
    return (model.merge() if lora is None else model), tokenizer


def _check_lora(lora: LoraConfig | None, stored: LoraConfig, folder: Path) -> None:
    if lora is not None and lora != stored:
        raise ConfigError(
            f"model.lora is {_describe_lora(lora)}, but the adapters in {folder} have "
            f"{_describe_lora(stored)}"
        )


def _describe_lora(lora: LoraConfig) -> str:
    return f"rank {lora.rank}, alpha {lora.alpha:g} and targets {', '.join(lora.targets)}"
