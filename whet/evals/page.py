"""What all pages share: templates in `static/`, one style sheet, and text that stays text."""

import hashlib
import unicodedata
from base64 import b64encode
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader

from whet.evals import formatting

MAX_CHARACTERS = 2_000
"""Characters of one text that a page shows."""


@cache
def build_environment() -> Environment:
    """Build the environment of pages: everything is escaped, and hidden characters are shown."""
    environment = Environment(
        loader=FunctionLoader(read_static),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape_value,
    )
    for name in ("bounds", "duration", "number", "percent", "percent_interval", "points"):
        environment.filters[name] = getattr(formatting, name)
    environment.filters["cut"] = _truncate
    return environment


def render_static(template: str, **parts: object) -> str:
    """Render a page without a script; its content security policy allows its style alone."""
    style = read_static("report.css")
    policy = f"default-src 'none'; style-src '{csp_hash(style)}'; base-uri 'none'"
    page = build_environment().get_template(template)
    return page.render(style=style, policy=policy, **parts)


def read_static(name: str) -> str:
    """Read a template, style or script."""
    return files("whet.evals").joinpath("static", name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """Hash a style or script, for the content security policy to name it by."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def escape_hidden(text: str) -> str:
    """Escape characters that hide or reorder text: control, format, half surrogates.

    >>> escape_hidden("a\\x00b\\u202ec")
    'a\\\\x00b\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(_escape_character(character) for character in text)


def _escape_character(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    return character.encode("unicode_escape").decode("ascii")


def _escape_value(value: object) -> object:
    return value if hasattr(value, "__html__") else escape_hidden(str(value))


def _truncate(text: str) -> str:
    excess = len(text) - MAX_CHARACTERS
    return f"{text[:MAX_CHARACTERS]} … {excess:,} more characters" if excess > 0 else text
