"""Print a model's shape and memory; show, replace and check its chat template."""

import difflib
import hashlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer
from rich.table import Table

from whet.commands.model_folders import copy_model, write_folder
from whet.errors import ConfigError, DataError, visible
from whet.models.config import FAMILIES, ModelConfig
from whet.models.cost import GB, GPU, GPUS, Cost, state_bytes
from whet.models.load import CONFIG, weight_files
from whet.models.load import stored_dtype as read_dtype
from whet.models.source import CHAT_TEMPLATES, ModelSource, read_tokenizer, with_chat_template
from whet.store.files import write_json
from whet.store.run import model_folder
from whet.text.chat import STANDARD, ChatFormat
from whet.text.template import Template
from whet.text.tokenizer import Tokenizer, read_model_json
from whet.track.progress import printer, say
from whet.types import Json

STYLES = {"ok": "green", "note": "yellow", "fault": "bold red"}
JINJA = "chat_template.jinja"
_QUESTION, _ANSWER, MORE, LATER = "whetquestion", "whetanswer", "whetmore", "whetlater"
THOUGHT = "whetthought"
THINKING = f"<think>\n{THOUGHT}\n</think>\n\n{_ANSWER}"
_MARKUP = re.compile(r"<\|[\w-]+\|>|</?s>|\[/?INST\]")
"""Texts that look like special tokens."""
Mark = Literal["ok", "note", "fault"]
_MILLION = 1e6


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateCheck:
    """The result of one check; a note is not a fault."""

    check: str
    mark: Mark
    sentence: str


def show_template(
    location: str, *, other: str | None = None, is_linted: bool = False, out: Path | None = None
) -> bool:
    """Print a template or its difference from another, check it, and write a model with it.

    Returns whether the checks found no fault.
    """
    if out is not None and other is None:
        raise ConfigError("--out writes a model with another template: name it with --set")
    _, tokenizer = read_tokenizer(ModelSource(path=location))
    own = tokenizer.chat_template
    chosen = with_chat_template(tokenizer, other)
    if other is not None and chosen.chat_template is not None:
        Template(chosen.chat_template)  # one that does not compile is refused
        _print_diff(own or "", chosen.chat_template, old=location, new=other)
    elif not is_linted:
        if own is None:
            raise DataError(
                f"{location} has no chat template: give it one, such as --set plain, or set "
                "model.chat_template"
            )
        typer.echo(visible(own))
    findings = lint_template(chosen) if is_linted else []
    for finding in findings:
        _print_finding(finding)
    if out is not None:
        write_folder(out, lambda new: _write_model(location, new, chosen))
        say(f"{out} is the model with this template")
    elif other is not None:
        say("nothing is written: --out DIR writes a copy of the model with this template")
    return all(finding.mark != "fault" for finding in findings)


def _print_diff(own: str, other: str, *, old: str, new: str) -> None:
    """Print a unified diff; a template on a single line is split at its tags."""
    lines = difflib.unified_diff(_lines(own), _lines(other), f"{old} (own)", new, lineterm="")
    text = "\n".join(lines)
    typer.echo(visible(text) if text else f"{new} is the template that {old} has")


def _lines(template: str) -> list[str]:
    return template.replace("%}{", "%}\n{").replace("}}{", "}}\n{").splitlines()


def _print_finding(finding: TemplateCheck) -> None:
    style = STYLES[finding.mark]
    printer.print(f"[{style}]{finding.mark:<5}[/] {finding.check}: ", end="")
    printer.print(visible(finding.sentence), markup=False, soft_wrap=True)


def _write_model(location: str, new: Path, tokenizer: Tokenizer) -> None:
    """Copy a local model, and write its template where other tools look for it."""
    source = model_folder(location)
    if not source.is_dir():
        raise ConfigError(f"{location} is not on this machine: `whet model pull` it first")
    copy_model(source, new)
    file = new / "tokenizer_config.json"
    settings = read_model_json(file) if file.is_file() else {}
    write_json(file, settings | {"chat_template": tokenizer.chat_template})
    if (new / JINJA).is_file():
        (new / JINJA).write_text(tokenizer.chat_template or "", encoding="utf-8")


def lint_template(tokenizer: Tokenizer) -> list[TemplateCheck]:
    """Check a tokenizer's template on short conversations."""
    if tokenizer.chat_template is None:
        sentence = 'there is none: set one with --set, such as "plain"'
        return [TemplateCheck(check="template", mark="fault", sentence=sentence)]
    linter = _Linter(tokenizer)
    checks: tuple[tuple[str, Callable[[], Iterator[tuple[Mark, str]]]], ...] = (
        ("renders", linter.check_roles),
        ("generation prompt", linter.check_generation_prompt),
        ("prefix", linter.check_prefix),
        ("stop token", linter.check_stop),
        ("thoughts", linter.check_thoughts),
        ("bos", linter.check_bos),
        ("special tokens", linter.check_special),
    )
    findings = []
    for name, check in checks:
        try:
            results = list(check())
        except DataError as error:
            results = [("fault", str(error))]
        findings += [TemplateCheck(check=name, mark=mark, sentence=text) for mark, text in results]
    return findings


class _Linter:
    """The checks; each yields marks and sentences, or "ok"."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        assert tokenizer.chat_template is not None, "it is there to be checked"
        self.tokenizer = tokenizer
        self.template = Template(tokenizer.chat_template)

    def render(self, *turns: tuple[str, str], opens: bool = False) -> str:
        rows: list[Json] = [{"role": role, "content": content} for role, content in turns]
        fixed: dict[str, Json] = {"messages": rows, "tools": None, "documents": None}
        fixed["add_generation_prompt"] = opens
        return self.template.render({**self.tokenizer.named, **fixed})

    def check_roles(self) -> Iterator[tuple[Mark, str]]:
        text = self.render(("user", _QUESTION), opens=True)
        if _QUESTION not in text:
            yield "fault", "the user's message is not in the prompt"
        try:
            if MORE not in self.render(("system", MORE), ("user", _QUESTION), opens=True):
                yield "note", "system messages are dropped"
        except DataError:
            yield "note", "system messages are refused"
        yield "ok", "a user's message is in the prompt"

    def check_generation_prompt(self) -> Iterator[tuple[Mark, str]]:
        before = self.render(("user", _QUESTION), opens=True)
        whole = self.render(("user", _QUESTION), ("assistant", _ANSWER))
        if whole.startswith(before):
            yield "ok", "a finished conversation begins with the prompt that was answered"
            return
        start, _, _ = whole.partition(_ANSWER)
        yield (
            "note",
            f"a prompt ends in {_tail(before)!r}, but in a finished conversation the response "
            f"follows {_tail(start)!r}; whet trains on the response after the prompt",
        )

    def check_prefix(self) -> Iterator[tuple[Mark, str]]:
        turns = (("user", _QUESTION), ("assistant", _ANSWER))
        longer = self.render(*turns, ("user", MORE), ("assistant", LATER))
        if longer.startswith(self.render(*turns)):
            yield "ok", "a longer conversation begins with the shorter one"
        else:
            yield "note", "a longer conversation rewrites earlier turns"

    def check_stop(self) -> Iterator[tuple[Mark, str]]:
        rest = self.render(("user", _QUESTION), ("assistant", _ANSWER)).rpartition(_ANSWER)[2]
        specials = [text for text in self.tokenizer.special_texts if text in rest]
        eos = self.tokenizer.eos_tokens
        if not specials:
            named = "" if eos else ", and the tokenizer has no eos_token either"
            yield (
                "note" if eos else "fault",
                f"an assistant's turn ends in {rest!r}, which holds no special token{named}; whet "
                "adds eos_token",
            )
            return
        first = min(specials, key=rest.index)
        if self.tokenizer.id(first) in eos:
            yield "ok", f"an assistant's turn ends with {first}, where sampling stops"
        else:
            yield (
                "note",
                f"an assistant's turn ends with {first}, which is not among the eos tokens: whet "
                "stops there, others do once an export has written generation_config.json",
            )

    def check_thoughts(self) -> Iterator[tuple[Mark, str]]:
        turns = (("user", _QUESTION), ("assistant", THINKING))
        last = THOUGHT in self.render(*turns)
        earlier = THOUGHT in self.render(*turns, ("user", MORE), ("assistant", LATER))
        words = {True: "kept", False: "dropped"}
        yield (
            "ok" if last else "note",
            f"thoughts are {words[last]} in the last turn and {words[earlier]} in earlier ones"
            + ("" if last else "; whet trains on them all the same"),
        )

    def check_bos(self) -> Iterator[tuple[Mark, str]]:
        bos = self.tokenizer.named.get("bos_token")
        text = self.render(("user", _QUESTION), opens=True)
        if bos is None:
            yield "ok", "the tokenizer has no bos_token"
        elif text.startswith(bos * 2):
            yield "fault", f"a prompt begins with {bos} twice"
        elif text.startswith(bos) and self.tokenizer.adds_bos:
            yield (
                "note",
                f"the template writes {bos} and the tokenizer adds it too: other tools must encode "
                "with add_special_tokens=False, as whet does",
            )
        else:
            yield "ok", f"a prompt has {bos} {'once' if text.startswith(bos) else 'nowhere'}"

    def check_special(self) -> Iterator[tuple[Mark, str]]:
        text = self.render(("user", _QUESTION), ("assistant", _ANSWER), ("user", MORE), opens=True)
        known = self.tokenizer.vocabulary
        missing = sorted({markup for markup in _MARKUP.findall(text) if markup not in known})
        if missing:
            yield "fault", f"{', '.join(missing)}: no token of this tokenizer, so read as text"
        else:
            yield "ok", "all special tokens that it writes are in the vocabulary"


def _tail(text: str) -> str:
    return text[-30:]


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
        "parameters": f"{Cost(cfg=shape).parameters / _MILLION:,.4g} million",
        "layers": f"{shape.num_layers} of {shape.hidden_size}, {heads}",
        "features": features,
        "context": f"{shape.max_positions:,} tokens",
        "vocabulary": f"{shape.vocab_size:,}, of which the tokenizer uses {tokenizer.vocab_size:,}",
    }


def _find_dtype(location: str) -> str:
    """Read the dtype of local weights, else the one named in config.json."""
    folder = model_folder(location)
    if folder.is_dir() and weight_files(folder):
        return str(read_dtype(folder)).removeprefix("torch.")
    file = folder / CONFIG
    config = read_model_json(file) if Path(file).is_file() else {}
    return str(config.get("torch_dtype") or config.get("dtype") or "unknown until downloaded")


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
        "to train": f"{_gb(training)} of weights, gradients and optimizer, {activations} of "
        f"activations per 1,000 tokens; fits {_fits(training)}",
    }


def _fits(size: float) -> str:
    """Name the smallest card with enough memory."""
    by_size: list[tuple[str, GPU]] = sorted(GPUS.items(), key=lambda item: item[1].memory)
    fitting = [name for name, card in by_size if card.usable > size]
    return (
        f"on one {fitting[0]}"
        if fitting
        else "on no single GPU: `whet plan` says how many it takes"
    )


def _gb(size: float) -> str:
    return f"{size / GB:.3g} GB" if size >= GB else f"{size / _MILLION:.3g} MB"
