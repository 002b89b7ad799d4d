"""Print what a model is, and the memory that it takes."""

import hashlib
from pathlib import Path

from rich.table import Table

from whet.errors import visible
from whet.models.config import FAMILIES, ModelConfig
from whet.models.cost import GB, GPU, GPUS, Cost, state_bytes
from whet.models.load import CONFIG, weight_files
from whet.models.load import stored_dtype as read_dtype
from whet.models.source import CHAT_TEMPLATES, ModelSource, read_tokenizer
from whet.store.run import model_folder
from whet.text.chat import STANDARD, ChatFormat
from whet.text.template import Template
from whet.text.tokenizer import Tokenizer, read_json
from whet.track.progress import printer

MILLION = 1e6


def print_info(location: str) -> None:
    """Print a table of facts about a model, without loading its weights."""
    shape, tokenizer = read_tokenizer(ModelSource(path=location))
    table = Table(box=None, show_header=False, pad_edge=False)
    facts = {
        "model": location,
        "family": f"{shape.family} ({FAMILIES[shape.family]})",
        **_describe_shape(shape, tokenizer),
        "dtype": _find_dtype(location),
        "template": _describe_template(tokenizer),
        "stop tokens": _describe_stops(tokenizer),
        **_describe_memory(shape),
    }
    for name, fact in facts.items():
        table.add_row(f"[bold]{name}[/]", visible(fact).replace("[", r"\["))
    printer.print(table)


def _describe_shape(shape: ModelConfig, tokenizer: Tokenizer) -> dict[str, str]:
    heads = f"{shape.num_heads} heads on {shape.num_kv_heads} key-value heads of {shape.head_dim}"
    features = ", ".join(sorted(shape.features)) or "none"
    return {
        "parameters": f"{Cost(cfg=shape).parameters / MILLION:,.4g} million",
        "layers": f"{shape.num_layers} of {shape.hidden_size}, {heads}",
        "features": features,
        "context": f"{shape.max_positions:,} tokens",
        "vocabulary": f"{shape.vocab_size:,}, of which the tokenizer uses {tokenizer.vocab_size:,}",
    }


def _find_dtype(location: str) -> str:
    """Read the dtype of the weights where they are here, else the one that config.json names."""
    folder = model_folder(location)
    if folder.is_dir() and weight_files(folder):
        return str(read_dtype(folder)).removeprefix("torch.")
    file = folder / CONFIG
    config = read_json(file) if Path(file).is_file() else {}
    return str(config.get("torch_dtype") or config.get("dtype") or "not known before a download")


def _describe_template(tokenizer: Tokenizer) -> str:
    source = tokenizer.chat_template
    if source is None:
        return f"none; model.chat_template may be a file, {', '.join(CHAT_TEMPLATES)}"
    names = [name for name, text in CHAT_TEMPLATES.items() if text == source]
    options = ", ".join(sorted(Template(source).variables - STANDARD)) or "none"
    digest = hashlib.sha256(source.encode(errors="replace")).hexdigest()[:12]
    return f"{names[0] if names else 'its own'}, sha256 {digest}, options: {options}"


def _describe_stops(tokenizer: Tokenizer) -> str:
    has_template = tokenizer.chat_template is not None
    stops = ChatFormat(tokenizer).stop_tokens if has_template else tokenizer.eos_tokens
    words = [f"{tokenizer.decode([stop], keep_special=True)} ({stop})" for stop in sorted(stops)]
    return ", ".join(words) or "none"


def _describe_memory(shape: ModelConfig) -> dict[str, str]:
    """Count memory as `whet plan` does, in bfloat16 on a GPU."""
    cost = Cost(cfg=shape)
    held = state_bytes(cost.parameters, cost.width, trained=cost.parameters)
    gradients = 4 * cost.parameters
    training = sum(held.values()) + gradients
    weights = _gb(held["weights"])
    activations = _gb(1000 * cost.activation_bytes)
    return {
        "to sample": f"{weights} of weights, {_gb(1000 * cost.kv_bytes)} of cache per 1,000 tokens",
        "to train": f"{_gb(training)} of weights, gradients and optimiser, {activations} of "
        f"activations per 1,000 tokens; fits {_fits(training)}",
    }


def _fits(size: float) -> str:
    """Name the smallest card that holds so much."""
    by_size: list[tuple[str, GPU]] = sorted(GPUS.items(), key=lambda item: item[1].memory)
    fitting = [name for name, card in by_size if card.usable > size]
    return f"on one {fitting[0]}" if fitting else "on no single GPU: `whet plan` says on how many"


def _gb(size: float) -> str:
    return f"{size / GB:.3g} GB" if size >= GB else f"{size / MILLION:.3g} MB"
