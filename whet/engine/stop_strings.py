"""Find where a response first contains a stop string, token by token. Only a tail of the response
is decoded for each token; it is long enough to give the same result as decoding all of it."""

from collections.abc import Sequence

from whet.engine.base import Detokenize
from whet.types import Tokens

_INVALID = "\ufffd"
"""What decoders write for bytes that are not, or not yet, a character."""
_MIN_TAIL = 16
"""Tails of fewer tokens are not cut: cutting would cost more than it saves."""


class StopStringSearch:
    """The search for the stop strings of one response, which may come piece by piece.

    The tail is cut in half if its second half decodes to the end of its text and is long enough
    that any stop string that ends after it starts inside it. So no character of several tokens is
    split, nor a run of single bytes that some decoders read as a whole. Otherwise the tail grows,
    which is rare in natural language.
    """

    def __init__(self, stop_strings: Sequence[str], detokenize: Detokenize) -> None:
        self.stop_strings = stop_strings
        self.detokenize = detokenize
        self._longest = max(map(len, stop_strings))
        # A later byte may make characters invalid or valid; that matters only to words with one.
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
