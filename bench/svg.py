"""Elements of SVG and HTML as text, escaped."""

import html

from whet.reports.formatting import escape_hidden

VOID = frozenset({"line", "path", "rect", "circle", "polyline"})


class Markup(str):
    """Text that is already HTML; any other text is escaped."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


def tag(tag_name: str, *children: str, **attributes: str | float) -> Markup:
    """Write an element; attributes and children that are no Markup are escaped.

    A trailing underscore leaves an attribute's name, and others become hyphens.

    >>> tag("p", "1 < 2", class_="note", data_tip="a")
    '<p class="note" data-tip="a">1 &lt; 2</p>'
    """
    opening = tag_name
    for key, value in attributes.items():
        name = key.rstrip("_").replace("_", "-")
        opening += f' {name}="{html.escape(escape_hidden(str(value)))}"'
    if tag_name in VOID:
        return Markup(f"<{opening}/>")
    inside = [c if isinstance(c, Markup) else html.escape(escape_hidden(c)) for c in children]
    return Markup(f"<{opening}>{''.join(inside)}</{tag_name}>")
