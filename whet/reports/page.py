"""Parts that all pages share: templates in `static/`, a style sheet, and escaping."""

import hashlib
from base64 import b64encode
from functools import cache
from importlib.resources import files

from jinja2 import Environment, FunctionLoader

from whet.reports import formatting
from whet.reports.mathml import show_math

MAX_CHARACTERS = 2_000
"""Characters of one text that a page shows."""


@cache
def build_environment() -> Environment:
    """Build the template environment: everything is escaped, and hidden characters are shown."""
    environment = Environment(
        loader=FunctionLoader(read_static),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_escape_value,
    )
    for name in (
        "bounds",
        "detectable",
        "duration",
        "number",
        "p_value",
        "percent",
        "percent_interval",
        "points",
    ):
        environment.filters[name] = getattr(formatting, name)
    environment.filters["cut"] = truncate
    environment.filters["math"] = show_math
    return environment


def render_static(template: str, **parts: object) -> str:
    """Render a page without a script; its content security policy allows its style alone."""
    style = read_static("report.css")
    policy = f"default-src 'none'; style-src '{csp_hash(style)}'; base-uri 'none'"
    page = build_environment().get_template(template)
    return page.render(style=style, policy=policy, **parts)


def read_static(name: str) -> str:
    """Read a template, style or script."""
    return files("whet.reports").joinpath("static", name).read_text(encoding="utf-8")


def csp_hash(text: str) -> str:
    """Hash a style or script, for the content security policy to name it by."""
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _escape_value(value: object) -> object:
    return value if hasattr(value, "__html__") else formatting.escape_hidden(str(value))


def truncate(text: str) -> str:
    """Cut a long text, and say so."""
    excess = len(text) - MAX_CHARACTERS
    return f"{text[:MAX_CHARACTERS]} … {excess:,} more characters" if excess > 0 else text
