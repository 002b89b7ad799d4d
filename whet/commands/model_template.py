"""Show, replace and check the chat template of a model."""

import difflib
from pathlib import Path

import typer

from whet.commands.export_model import copy_model, write_folder
from whet.errors import ConfigError, DataError, visible
from whet.models.source import ModelSource, read_tokenizer, with_chat_template
from whet.store.files import write_json
from whet.store.run import model_folder
from whet.text.lint import Finding, lint_template
from whet.text.template import Template
from whet.text.tokenizer import Tokenizer, read_json
from whet.track.progress import printer, say

STYLES = {"ok": "green", "note": "yellow", "fault": "bold red"}
JINJA = "chat_template.jinja"


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
