"""An engine without a model: answers come from a function. For tests, and for trying a task."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np
from torch import Tensor

from whet.engine.base import Counts, Request
from whet.types import Completion, Finish, Tokens


class ScriptedEngine:
    """Gives each request what `answer` returns, cut at its limit; every token counts as certain."""

    def __init__(
        self, answer: Callable[[Request], Tokens], *, version: int = 0, context: int = 1 << 20
    ) -> None:
        self.answer = answer
        self.version = version
        self.context = context
        self.counts = Counts()

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        self.counts = Counts()
        for request in requests:
            whole = self.answer(request)
            limit = min(request.sampling.max_tokens, self.context - len(request.prompt))
            tokens = np.asarray(whole[:limit], dtype=np.int32)
            finish = Finish.LENGTH if len(whole) > limit else Finish.STOP
            logprobs = np.zeros(len(tokens), dtype=np.float32)
            self.counts.tokens += len(tokens)
            yield (
                request.id,
                Completion(tokens=tokens, logprobs=logprobs, finish=finish, version=self.version),
            )

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Take the version; there are no weights to fill."""
        self.version = version

    def sleep(self) -> None:
        """Nothing to give back."""

    def close(self) -> None:
        """Nothing to give back."""
