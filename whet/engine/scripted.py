"""An engine without a model: answers come from a function. For tests, and for trying a task before
any policy."""

from collections.abc import Callable, Iterable, Iterator

import numpy as np

from whet.engine.base import Request
from whet.types import Completion, Finish, Tokens


class ScriptedEngine:
    """Gives each request what `answer` says, cut at its length limit; every token counts as
    certain."""

    def __init__(self, answer: Callable[[Request], Tokens], *, version: int = 0) -> None:
        self.answer = answer
        self.version = version

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        for request in requests:
            whole = self.answer(request)
            limit = request.sampling.max_tokens
            tokens = np.asarray(whole[:limit], dtype=np.int32)
            finish = Finish.LENGTH if len(whole) > limit else Finish.STOP
            logprobs = np.zeros(len(tokens), dtype=np.float32)
            yield (
                request.id,
                Completion(tokens=tokens, logprobs=logprobs, finish=finish, version=self.version),
            )

    def sleep(self) -> None:
        """Nothing to give back."""
