"""Text of models and users on a page: characters that hide are shown, and no text is markup."""

import unicodedata


class Html(str):
    """Text that is HTML already, which a template takes as it is."""

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
