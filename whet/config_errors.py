"""Turn pydantic's errors about settings into one sentence with key, value, file and remedy."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from whet import toml
from whet.errors import SettingsError
from whet.toml import TAGS, Table
from whet.types import Json

Model = type[BaseModel]
WANTED: Mapping[str, str] = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "model_attributes_type": "a table",
    "path_type": "a path",
    "none_required": "none",
    "greater_than": "greater than {gt}",
    "greater_than_equal": "at least {ge}",
    "less_than": "less than {lt}",
    "less_than_equal": "at most {le}",
    "too_short": "a list of {min_length} or more",
    "too_long": "a list of {max_length} or fewer",
    "string_too_short": "at least {min_length} characters long",
    "string_too_long": "at most {max_length} characters long",
    "string_pattern_mismatch": "text of the form {pattern}",
}
"""Expected values by pydantic's error type; other types keep pydantic's message."""


_MOVED_IN_TRAIN: Mapping[str, str] = {
    "clip": "max_grad_norm",
    "warmup": "warmup_steps",
    "schedule": "lr_schedule",
    "micro_tokens": "micro_batch_tokens",
    "checkpointing": "gradient_checkpointing",
    "offload": "offload_optimizer",
}
_MOVED_IN_ENGINE: Mapping[str, str] = {
    "slots": "max_num_seqs",
    "context": "max_model_len",
    "kv_gb": "kv_cache_gb",
}
_MOVED_IN_ALGO: Mapping[str, str] = {
    "kl": "kl_coef",
    "entropy": "entropy_coef",
    "gae_decay": "gae_lambda",
    "minibatches": "num_minibatches",
    "old": "old_logprobs",
    "weights": "loss_weights",
    "steps": "step_credit",
    "staleness": "importance_correction",
}


def _in_tables(keys: Mapping[str, str], *tables: str) -> dict[str, str]:
    return {f"{table}.{old}": f"{table}.{new}" for table in tables for old, new in keys.items()}


MOVED: Mapping[str, str] = {
    "exam": "validation",
    "batch": "batch_size",
    "gather": "dynamic_sampling",
    "dynamic_sampling.refill": "dynamic_sampling.max_extra_problems",
    "dynamic_sampling.first": "dynamic_sampling.first_samples",
    "critic.head_start": "critic.warmup_steps",
    "grading.unscored_share": "grading.unscored_fraction",
    **_in_tables(_MOVED_IN_TRAIN, "train", "verifier_train"),
    **_in_tables(_MOVED_IN_ENGINE, "engine", "verifier_engine"),
    **_in_tables(_MOVED_IN_ALGO, "algo", "verifier_algo"),
}
"""Renamed settings of a stage: old dotted keys -> current ones."""

_BATCH = (
    "whet has none, because micro-batches are packed by train.micro_batch_tokens; a step of rl "
    "trains on problems_per_step times group_size responses, one of sft on batch_size"
)
_MEMORY = (
    "whet has none, because the KV cache takes what it needs of free memory, or engine.kv_cache_gb"
)
_PARALLEL = (
    "whet has none, because every rank samples with the whole weights; cluster.shard divides "
    "those that train"
)
FOREIGN: Mapping[str, str] = {
    "beta": "algo.kl_coef",
    "bf16": "train.dtype",
    "clip_ratio": "algo.clip_high",
    "clip_ratio_high": "algo.clip_high",
    "clip_ratio_low": "algo.clip_low",
    "entropy_coeff": "algo.entropy_coef",
    "epsilon": "algo.clip_low",
    "epsilon_high": "algo.clip_high",
    "eval_steps": "validation.every",
    "gpu_memory_utilization": _MEMORY,
    "gradient_accumulation_steps": _BATCH,
    "gradient_checkpointing": "train.gradient_checkpointing",
    "init_kl_coef": "algo.kl_coef",
    "kl_coef": "algo.kl_coef",
    "kl_loss_coef": "algo.kl_coef",
    "lam": "algo.gae_lambda",
    "learning_rate": "train.lr",
    "logging_steps": "whet has none, because every step is logged",
    "loss_agg_mode": "algo.loss_weights",
    "loss_type": "algo.loss_weights",
    "lr_scheduler_type": "train.lr_schedule",
    "max_completion_length": "sampling.max_tokens",
    "max_grad_norm": "train.max_grad_norm",
    "max_model_len": "engine.max_model_len",
    "max_new_tokens": "sampling.max_tokens",
    "max_num_seqs": "engine.max_num_seqs",
    "max_prompt_length": "whet has none, because it leaves out, and names, the prompts that are "
    "too long for engine.max_model_len",
    "max_response_length": "sampling.max_tokens",
    "max_steps": "steps",
    "num_generations": "group_size",
    "num_iterations": "whet has none, because a step trains once on each response, in "
    "algo.num_minibatches optimizer steps",
    "num_train_epochs": "whet has none, because steps sets the length of a run",
    "output_dir": "whet has none, because the run folder is given with --out",
    "per_device_train_batch_size": _BATCH,
    "ppo_epochs": "whet has none, because a step trains once on each response, in "
    "algo.num_minibatches optimizer steps",
    "ppo_mini_batch_size": "whet has none, because algo.num_minibatches divides a step instead",
    "save_steps": "save.every",
    "tensor_model_parallel_size": _PARALLEL,
    "tensor_parallel_size": _PARALLEL,
    "train_batch_size": "problems_per_step",
    "use_vllm": "whet has none, because it samples with its own engine",
    "warmup_ratio": "train.warmup_steps",
}
"""Settings of TRL, vLLM and verl -> the settings here, or a reason why there is none."""


def describe_errors(
    cls: Model, errors: Sequence[ErrorDetails], tree: Table, origin: Callable[[str], str]
) -> SettingsError:
    """Describe the first error and count the others; renamed keys come first."""
    by_key: dict[str, list[ErrorDetails]] = {}
    for error in errors:
        by_key.setdefault(".".join(key_path(error["loc"], tree)), []).append(error)
    keys = sorted(by_key, key=lambda key: _moved_to(key) is None)
    sentences = [_describe_error(cls, by_key[key], key, tree, origin) for key in keys]
    more = len(keys) - 1
    counted = f" (and {more} more mistake{'s' if more > 1 else ''})" if more else ""
    return SettingsError(sentences[0] + counted, tuple(sentences))


def key_path(loc: Sequence[str | int], tree: Table) -> list[str]:
    """Convert an error's location to keys of the given table, dropping pydantic's union tags."""
    keys: list[str] = []
    here: Json = tree
    has_tag = False  # the tag of the current table has been skipped
    for index, part in enumerate(loc):
        is_last = index == len(loc) - 1
        is_tag = not has_tag and isinstance(here, dict) and part in [here.get(tag) for tag in TAGS]
        if is_tag and isinstance(here, dict) and not is_last and loc[index + 1] in here:
            has_tag = True  # a setting of the table may have the same name as the tag
            continue
        has_tag = False
        is_key = isinstance(here, dict) and (part in here or (is_last and not is_tag))
        if is_key or (isinstance(here, list) and isinstance(part, int) and part < len(here)):
            here = toml.look_up(here, [part])
            keys.append(str(part))
    return keys


def find_settings_classes(annotation: object) -> Iterator[Model]:
    """Find the settings classes in a type: itself, union members, list or dict items."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from find_settings_classes(inner)


def list_tags(model: Model) -> Iterator[str]:
    """List the values of `kind` or `name` that select a class in a union."""
    for name, field in model.model_fields.items():
        if name in TAGS and get_origin(field.annotation) is Literal:
            yield from get_args(field.annotation)


def _describe_error(
    cls: Model, errors: Sequence[ErrorDetails], key: str, tree: Table, origin: Callable[[str], str]
) -> str:
    error = errors[0]
    loc = error["loc"]
    value = toml.look_up(tree, key.split("."))
    leaves = list(toml.flatten(value, f"{key}.")) if isinstance(value, dict) else []
    is_flag = all(origin(leaf) == "cli" for leaf in leaves or [key])
    source = origin(leaves[0] if leaves and error["type"] == "extra_forbidden" else key)
    where = "" if source in ("cli", "default") else f" in {source}"
    given = f"{key} = {toml.literal(value)}{where}"
    match error["type"]:
        case "extra_forbidden":
            name = f"flag --{key}" if source == "cli" else f'key "{key}"{where}'
            return f"unknown {name}{_suggest(cls, loc, key)}"
        case "missing" if isinstance(loc[-1], int):
            return f"{given}: should have {loc[-1] + 1} or more items"
        case "missing":
            return f'"{key}" is missing: set it in the file or with --{key}'
        case "value_error":
            message = error["msg"].removeprefix("Value error, ")
            given = f"{key}{where}" if isinstance(value, dict) else given
            return f"{given}: {message}" if key else message
        case "union_tag_invalid" | "union_tag_not_found":
            return _describe_variant(cls, error, key, tree, where, leaves if is_flag else ())
    wanted = dict.fromkeys(_describe_type(row) for row in errors)
    return f"{given}: should be {' or '.join(wanted)}"


def _describe_variant(
    cls: Model, error: ErrorDetails, key: str, tree: Table, where: str, flags: Sequence[str]
) -> str:
    """List the known variants. If only `flags` created the table, such as by a mistyped stage name,
    list the tables next to it instead."""
    *parents, last = key.split(".")
    around = toml.look_up(tree, parents)
    others = [name for name in around if name != last] if isinstance(around, dict) else []
    if error["type"] == "union_tag_not_found" and flags and others:
        return f'unknown flag --{flags[0]}; there is no "{key}", only {", ".join(others)}'
    tag = str(error["ctx"]["discriminator"]).strip("'")
    value = toml.look_up(tree, [*parents, last, tag])
    names = [name for model in _models_at(cls, error["loc"]) for name in list_tags(model)]
    known = ", ".join(toml.literal(name) for name in names)
    close = get_close_matches(str(value), names, n=1, cutoff=0.65)
    hint = f'; did you mean "{close[0]}"?' if close else ""
    return f"{key}.{tag} = {toml.literal(value)}{where}: should be one of {known}{hint}"


def _describe_type(error: ErrorDetails) -> str:
    if template := WANTED.get(error["type"]):
        return template.format(**error.get("ctx", {}))
    wanted = error["msg"].removeprefix("Input should be ").removeprefix("Value error, should be ")
    return wanted.replace("'", '"')


def _suggest(cls: Model, loc: Sequence[str | int], key: str) -> str:
    parent, _, last = key.rpartition(".")
    if (new := _moved_to(key)) is not None:
        return f'; it is called "{new}" now'
    if (hint := _hint_at_foreign(cls, key)) is not None:
        return f"; {hint}"
    known = sorted({name for model in _models_at(cls, loc[:-1]) for name in model.model_fields})
    if close := get_close_matches(last, known, n=1, cutoff=0.65):
        return f'; did you mean "{parent + "." if parent else ""}{close[0]}"?'
    elsewhere = [name for name in list_keys(cls) if name.endswith(f".{key}") and not parent]
    if deep := get_close_matches(key, elsewhere, n=1, cutoff=0):
        return f'; did you mean "{deep[0]}"?'
    return f"; known keys{' of ' + parent if parent else ''}: {', '.join(known)}"


def _moved_to(key: str) -> str | None:
    """Return the new name of a renamed key, in a stage or above the stages; None if not renamed."""
    for old, new in MOVED.items():
        stage = f".{key}".removesuffix(f".{old}")
        if stage != f".{key}":
            return f"{stage}.{new}".removeprefix(".")
    return None


def _hint_at_foreign(cls: Model, key: str) -> str | None:
    """Name the equivalent of another system's setting, if this kind of stage has it."""
    *tables, last = key.split(".")
    target = FOREIGN.get(last)
    if target is None or " " in target:
        return target
    if target not in list_keys(cls):
        return None
    stage = ".".join(tables[:2]) + "." if tables[:1] == ["stages"] else ""
    return f'it is called "{stage}{target}" here'


def _models_at(cls: Model, loc: Sequence[str | int]) -> list[Model]:
    """Find the settings classes at a location; union tags select among them."""
    here = [cls]
    is_name = False  # the next part names an item of a dict, such as a stage
    for part in loc:
        fields = [model.model_fields[str(part)] for model in here if part in model.model_fields]
        tagged = [model for model in here if part in set(list_tags(model))]
        if is_name:
            is_name = False
        elif len(here) > 1 and tagged:
            here = tagged
        elif fields:
            here = [model for field in fields for model in find_settings_classes(field.annotation)]
            is_name = any(get_origin(field.annotation) is dict for field in fields)
        else:
            here = tagged or here
    return here


def list_keys(cls: Model, prefix: str = "") -> Iterator[str]:
    """List all settings as dotted keys, without the keys of dicts, such as names of stages."""
    for name, field in cls.model_fields.items():
        yield f"{prefix}{name}"
        below = prefix if get_origin(field.annotation) is dict else f"{prefix}{name}."
        for model in find_settings_classes(field.annotation):
            yield from list_keys(model, below)
