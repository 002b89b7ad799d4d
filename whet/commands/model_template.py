"""Show, replace and check the chat template of a model."""

import difflib
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import typer

from whet.commands.export_model import copy_model, write_folder
from whet.errors import ConfigError, DataError, visible
from whet.models.source import ModelSource, read_tokenizer, with_chat_template
from whet.store.files import write_json
from whet.store.run import model_folder
from whet.text.template import Template
from whet.text.tokenizer import Tokenizer, read_json
from whet.track.progress import printer, say
from whet.types import Json

STYLES = {"ok": "green", "note": "yellow", "fault": "bold red"}
JINJA = "chat_template.jinja"
QUESTION, ANSWER, MORE, LATER = "whetquestion", "whetanswer", "whetmore", "whetlater"
THOUGHT = "whetthought"
THINKING = f"<think>\n{THOUGHT}\n</think>\n\n{ANSWER}"
_MARKUP = re.compile(r"<\|[\w-]+\|>|</?s>|\[/?INST\]")
"""Texts that look like special tokens."""
Mark = Literal["ok", "note", "fault"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The result of one check. A note is no fault, but good to know."""

    check: str
    mark: Mark
    sentence: str


def show_template(
    location: str, *, other: str | None = None, is_linted: bool = False, out: Path | None = None
) -> bool:
    """Print a template, or a diff to another one; check it; write the model with the other one.

    Returns whether the checks found no fault.
    """
    if out is not None and other is None:
        raise ConfigError("--out writes a model with another template: name it by --set")
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
    """Print a unified diff; templates without line ends are cut at their tags."""
    lines = difflib.unified_diff(_lines(own), _lines(other), f"{old} (own)", new, lineterm="")
    text = "\n".join(lines)
    typer.echo(visible(text) if text else f"{new} is the template that {old} has")


def _lines(template: str) -> list[str]:
    return template.replace("%}{", "%}\n{").replace("}}{", "}}\n{").splitlines()


def _print_finding(finding: Finding) -> None:
    style = STYLES[finding.mark]
    printer.print(f"[{style}]{finding.mark:<5}[/] {finding.check}: ", end="")
    printer.print(visible(finding.sentence), markup=False, soft_wrap=True)


def _write_model(location: str, new: Path, tokenizer: Tokenizer) -> None:
    """Copy a model that is here, and write its template where all tools look for it."""
    source = model_folder(location)
    if not source.is_dir():
        raise ConfigError(f"{location} is not on this machine: `whet model pull` it first")
    copy_model(source, new)
    file = new / "tokenizer_config.json"
    settings = read_json(file) if file.is_file() else {}
    write_json(file, settings | {"chat_template": tokenizer.chat_template})
    if (new / JINJA).is_file():
        (new / JINJA).write_text(tokenizer.chat_template or "", encoding="utf-8")


def lint_template(tokenizer: Tokenizer, options: Mapping[str, Json] | None = None) -> list[Finding]:
    """Check the template of a tokenizer on short conversations."""
    if tokenizer.chat_template is None:
        sentence = 'there is none: set one with --set, such as "plain"'
        return [Finding(check="template", mark="fault", sentence=sentence)]
    linter = _Linter(tokenizer, options or {})
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
        findings += [Finding(check=name, mark=mark, sentence=text) for mark, text in results]
    return findings


class _Linter:
    """The checks; each yields marks and sentences, an "ok" if all is well."""

    def __init__(self, tokenizer: Tokenizer, options: Mapping[str, Json]) -> None:
        assert tokenizer.chat_template is not None, "it is there to be checked"
        self.tokenizer = tokenizer
        self.options = dict(options)
        self.template = Template(tokenizer.chat_template)

    def render(self, *turns: tuple[str, str], opens: bool = False) -> str:
        rows: list[Json] = [{"role": role, "content": content} for role, content in turns]
        fixed: dict[str, Json] = {"messages": rows, "tools": None, "documents": None}
        fixed["add_generation_prompt"] = opens
        return self.template.render({**self.tokenizer.named, **fixed, **self.options})

    def check_roles(self) -> Iterator[tuple[Mark, str]]:
        text = self.render(("user", QUESTION), opens=True)
        if QUESTION not in text:
            yield "fault", "the user's message is not in the prompt"
        try:
            if MORE not in self.render(("system", MORE), ("user", QUESTION), opens=True):
                yield "note", "system messages are dropped"
        except DataError:
            yield "note", "system messages are refused"
        yield "ok", "a user's message is in the prompt"

    def check_generation_prompt(self) -> Iterator[tuple[Mark, str]]:
        before = self.render(("user", QUESTION), opens=True)
        whole = self.render(("user", QUESTION), ("assistant", ANSWER))
        if whole.startswith(before):
            yield "ok", "a finished conversation begins with the prompt that was answered"
            return
        start, _, _ = whole.partition(ANSWER)
        yield (
            "note",
            f"a prompt ends in {_tail(before)!r}, but in a finished conversation the answer "
            f"follows {_tail(start)!r}; whet trains on the answer after the prompt",
        )

    def check_prefix(self) -> Iterator[tuple[Mark, str]]:
        turns = (("user", QUESTION), ("assistant", ANSWER))
        longer = self.render(*turns, ("user", MORE), ("assistant", LATER))
        if longer.startswith(self.render(*turns)):
            yield "ok", "a longer conversation begins with the shorter one"
        else:
            yield "note", "a longer conversation rewrites earlier turns"

    def check_stop(self) -> Iterator[tuple[Mark, str]]:
        rest = self.render(("user", QUESTION), ("assistant", ANSWER)).rpartition(ANSWER)[2]
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
        turns = (("user", QUESTION), ("assistant", THINKING))
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
        text = self.render(("user", QUESTION), opens=True)
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
        text = self.render(("user", QUESTION), ("assistant", ANSWER), ("user", MORE), opens=True)
        known = self.tokenizer.vocabulary
        missing = sorted({markup for markup in _MARKUP.findall(text) if markup not in known})
        if missing:
            yield "fault", f"{', '.join(missing)}: no token of this tokenizer, so read as text"
        else:
            yield "ok", "all special tokens that it writes are in the vocabulary"


def _tail(text: str) -> str:
    return text[-30:]
