"""A model that reads and never moves: the starting policy of a KL, or a teacher. It can wait in
host memory."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from torch import nn

from whet.data.examples import Example
from whet.models.lora import twin
from whet.models.transformer import Transformer
from whet.train.learner import score_examples
from whet.train.offload import host_room
from whet.types import Floats


class Reference:
    """Scores tokens. `far` are weights that are in host memory between two passes, and on the
    device in them.

    All of them come at once: they take no more room than the gradients that come after them.
    """

    def __init__(self, model: Transformer, *, far: Sequence[nn.Parameter] = ()) -> None:
        self.model = model
        self.device = model.device
        self.far = list(far)
        for weight in self.far:
            weight.data = host_room(weight.shape, weight.dtype).copy_(weight.detach())

    def logprobs(self, examples: Sequence[Example], micro_tokens: int) -> list[Floats]:
        """Log-probabilities of each example's response tokens, in the order given."""
        with self._present():
            return score_examples(self.model, examples, micro_tokens)

    @contextmanager
    def _present(self) -> Iterator[None]:
        homes = [weight.data for weight in self.far]
        for weight, home in zip(self.far, homes, strict=True):
            weight.data = home.to(self.device, non_blocking=True, copy=True)
        try:
            yield
        finally:
            for weight, home in zip(self.far, homes, strict=True):
                weight.data = home


def reference_of(model: Transformer, *, offload: bool = False) -> Reference:
    """The starting policy, to compare with: a frozen copy of what is trained, over the same memory
    of what is not."""
    copied = twin(model).requires_grad_(False)
    shared = {id(weight) for weight in model.parameters()}
    return Reference(
        copied, far=[w for w in copied.parameters() if id(w) not in shared] if offload else ()
    )
