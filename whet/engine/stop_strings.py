"""Where a response first contains a stop string, token by token. Only a tail of it is decoded for
each token, which is long enough for the result to be that of decoding all of it."""

from collections.abc import Sequence

from whet.engine.base import Detokenize
from whet.types import Tokens

_INVALID = "\ufffd"
"""What decoders write for bytes that are no character, or not yet one."""
_MIN_TAIL = 16
"""Tokens of a tail below which cutting it would cost more than it saves."""


class StopStringSearch:
    """The search for the stop strings of one response, which may come piece by piece.

    The tail is cut in its middle if its second half decodes to the end of its text, and has so much
    text that a stop string which ends behind it begins in it. So no character of several tokens is
    cut, nor a run of single bytes that some decoders read as a whole. As long as that is not so the
    tail grows; in text of a language it seldom does.
    """

    def __init__(self, stop_strings: Sequence[str], detokenize: Detokenize) -> None:
        self.stop_strings = stop_strings
        self.detokenize = detokenize
        self._longest = max(map(len, stop_strings))
        # A later byte may turn characters into invalid ones, or back, which other words never see.
        self._can_cut = not any(_INVALID in word for word in stop_strings)
        self._start = 0
        self._end = 0

    def find_end(self, tokens: Tokens) -> int | None:
        """Return how many of a response's tokens complete a stop string, or None.

        Tokens of an earlier call, which begin the response, are not searched again.
        """
        while self._end < len(tokens):
            self._end += 1
            text = self.detokenize(tokens[self._start : self._end])
            if any(word in text for word in self.stop_strings):
                return self._end
            if self._can_cut and self._end - self._start >= _MIN_TAIL:
                self._cut_tail(tokens, text)
        return None

    def _cut_tail(self, tokens: Tokens, text: str) -> None:
        """Continue with the second half of the tail, which decodes to `text`, if that is exact."""
        middle = (self._start + self._end) // 2
        kept = self.detokenize(tokens[middle : self._end])
        if text.endswith(kept) and len(kept.rstrip(_INVALID)) >= self._longest:
            self._start = middle
