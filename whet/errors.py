"""Errors that a user can fix, each one sentence. The command line prints it and exits with 2."""

import re


class WhetError(Exception):
    """The message names the thing, its value, and the remedy."""


class ConfigError(WhetError):
    """A setting, flag or file name that cannot be used as given."""


class SettingsError(ConfigError):
    """Mistakes in settings; the message has the first, and `sentences` has all."""

    def __init__(self, message: str, sentences: tuple[str, ...]) -> None:
        super().__init__(message)
        self.sentences = sentences


class DataError(WhetError):
    """A row, file, checkpoint or model folder that cannot be read as it is."""


class NoRoomError(DataError):
    """Every prompt fills the context of the model."""

    def __init__(self, message: str, *, context: int) -> None:
        super().__init__(message)
        self.context = context


class EngineError(WhetError):
    """A request that the engine cannot serve: too long, out of memory, unknown token."""


class TrainError(WhetError):
    """Training that cannot continue: a gradient is not finite, or no group has been usable."""


_UNSEEN = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def visible(text: str) -> str:
    """Escape characters that control a terminal or cannot be printed; newlines and tabs stay.

    >>> visible("a" + chr(27) + "[2J") == "a" + chr(92) + "x1b[2J"
    True
    """
    return _UNSEEN.sub(lambda match: _escape(ord(match[0])), text.replace("\r\n", "\n"))


def _escape(code: int) -> str:
    return f"\\x{code:02x}" if code < 256 else f"\\u{code:04x}"
