"""Text of models and users on a page: hidden characters are shown, and text is never markup."""

import unicodedata


class Html(str):
    """Text that is already HTML, which a template inserts unchanged."""

    __slots__ = ()

    def __html__(self) -> str:
        return self


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
