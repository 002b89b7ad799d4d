"""HTML that is safe by construction: text is escaped unless this file made it. Model text is
hostile."""

import html
import unicodedata

Attribute = str | int | float

VOID = frozenset({"meta", "line", "path", "rect", "circle", "polyline"})


class Markup(str):
    """Text that is already HTML. Only tag, join and raw make it."""

    __slots__ = ()


def tag(tag_name: str, *children: str, **attributes: Attribute) -> Markup:
    """Write an element; children and attributes are escaped, children that are Markup stay.

    A trailing underscore leaves an attribute's name, and others become hyphens.

    >>> tag("p", "1 < 2", class_="note", data_tip="a")
    '<p class="note" data-tip="a">1 &lt; 2</p>'
    """
    opened = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{html.escape(readable(str(value)))}"'
        for key, value in attributes.items()
    )
    if tag_name in VOID:
        return Markup(f"<{tag_name}{opened}/>")
    return Markup(f"<{tag_name}{opened}>{join(*children)}</{tag_name}>")


def join(*children: str) -> Markup:
    """Put children one after another, escaping what is not Markup."""
    return Markup(
        "".join(c if isinstance(c, Markup) else html.escape(readable(c)) for c in children)
    )


def raw(text: str) -> Markup:
    """Take a text as HTML. For the package's own style and script only, never for what a model or
    user wrote."""
    return Markup(text)


def readable(text: str) -> str:
    """Show what would hide or reorder text: control and format characters, and halves of surrogate
    pairs.

    >>> readable("a\\x00b\\u202ec")
    'a\\\\x00b\\\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(_shown(character) for character in text)


def _shown(character: str) -> str:
    if character in "\n\t" or unicodedata.category(character) not in ("Cc", "Cf", "Cs"):
        return character
    return character.encode("unicode_escape").decode("ascii")
