"""Fixtures of the proofs: a tiny model with random weights, its policy, and sequences for it.

`ScriptedEngine` is an engine without a model, for proofs, tests and trying out a task.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from whet.batching.examples import Example
from whet.engine.base import EngineStats, Request, SamplingParams, check_prompt_tokens
from whet.engine.native import NativeConfig
from whet.models.sizes import new_config
from whet.models.source import torch_device, torch_dtype
from whet.models.transformer import Transformer, init_weights
from whet.rng import derive, make_numpy_rng
from whet.text.tokenizer import Tokenizer, train_tokenizer
from whet.train.policy import Policy, build_policy
from whet.types import Completion, FinishReason, Message, Problem, Tokens

_POSITIONS = 64
SHAPES = ((2, 1), (9, 3), (30, 10), (17, 16), (9, 1), (24, 4), (5, 2), (40, 1), (33, 20), (12, 5))
"""Length and response start of each example: single targets, equal lengths, one far longer."""


def make_tokenizer() -> Tokenizer:
    return train_tokenizer([f"{number} {number}" for number in range(100)])


def make_model(*, seed: int = 0, dtype: torch.dtype | None = None) -> Transformer:
    """Make a two-layer decoder with sharp weights on this machine's device."""
    model = Transformer(new_config("tiny", make_tokenizer().vocab_size, _POSITIONS))
    init_sharp_weights(model, seed)
    return model.to(device=torch_device(), dtype=dtype or torch_dtype("auto"))


def init_sharp_weights(model: Transformer, seed: int) -> None:
    """Move norms and biases off one and zero, so that a missing one shows, and sharpen the head, so
    that token probabilities differ by orders of magnitude."""
    init_weights(model, seed)
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        model.head_weight_VH.copy_(torch.randn(model.head_weight_VH.shape, generator=rng) * 0.25)
        for weight in model.parameters():
            if weight.dim() == 1:
                weight.add_(torch.randn(weight.shape, generator=rng) * 0.2)


def make_policy(*, seed: int = 0, slots: int = 4) -> Policy:
    """Make a policy in the device's dtype, with few slots so that requests wait."""
    model = make_model(seed=seed)
    return build_policy(model, make_tokenizer(), NativeConfig(max_num_seqs=slots), name="specimen")


def make_random_examples() -> list[Example]:
    """Make random sequences of various lengths with the fields that losses need."""
    rng = make_numpy_rng(0, "written")
    size = make_tokenizer().vocab_size
    made = []
    for index, (length, start) in enumerate(SHAPES):
        reference = -4 * rng.random(length - start, dtype=np.float32)
        item = Example(
            tokens=rng.integers(0, size, length).astype(np.int32),
            response_start=start,
            group_id=f"g{index // 2}",
            rollout_id=f"r{index}",
            temperature=(1.0, 0.7)[index % 2],
            sampling_logprob_M=reference - np.float32(0.1),
            ref_logprob_M=reference,
            advantage=float(rng.normal()),
        )
        made.append(item)
    return made


def make_requests(
    size: int, *, groups: int = 4, samples: int = 3, max_tokens: int = 16, seed: int = 0
) -> list[Request]:
    """Make requests for several samples of prompts of 3 to 30 tokens, at two temperatures."""
    made = []
    for index in range(groups):
        rng = make_numpy_rng(seed, "prompt", index)
        prompt = rng.integers(0, size, 3 + 9 * index % 28).astype(np.int32)
        sampling = SamplingParams(temperature=(1.0, 0.7)[index % 2], max_tokens=max_tokens)
        made += [
            Request(
                id=f"{index}/{n}",
                prompt=prompt,
                sampling=sampling,
                seed=derive(seed, "sample", index, n),
            )
            for n in range(samples)
        ]
    return made


def sample_examples(policy: Policy) -> list[Example]:
    """Sample `make_requests` with a policy; return examples with nonzero advantages."""
    asked = make_requests(policy.model.cfg.vocab_size)
    return make_credited_examples(asked, dict(policy.engine.generate(asked)))


def make_credited_examples(
    asked: Sequence[Request], done: Mapping[str, Completion]
) -> list[Example]:
    """Make examples of completions, with nonzero advantages."""
    return [
        Example(
            tokens=np.concatenate([request.prompt, done[request.id].tokens]),
            response_start=len(request.prompt),
            group_id=request.id.partition("/")[0],
            rollout_id=request.id,
            temperature=request.sampling.temperature,
            sampling_logprob_M=done[request.id].logprobs,
            advantage=(-1.0) ** index * (0.5 + index % 3),
        )
        for index, request in enumerate(asked)
    ]


def make_problem(name: str) -> Problem:
    return Problem(
        id=f"specimen-{name}",
        task="specimen",
        prompt=(Message(role="user", content=name),),
        answer=name,
        payload={},
        level=None,
        split="rl",
        source="made",
    )


class ScriptedEngine:
    """Completes each request with the tokens of `answer`, cut at its limit, with probability 1."""

    def __init__(
        self, answer: Callable[[Request], Tokens], *, version: int = 0, context: int = 1 << 20
    ) -> None:
        self.answer = answer
        self.version = version
        self.max_model_len = context
        self.stats = EngineStats()

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        self.stats = EngineStats()
        for request in requests:
            check_prompt_tokens(request, self.max_model_len, np.iinfo(np.int32).max)
            whole = self.answer(request)
            limit = min(request.sampling.max_tokens, self.max_model_len - len(request.prompt))
            tokens = np.asarray(whole[:limit], dtype=np.int32)
            finish = FinishReason.LENGTH if len(whole) > limit else FinishReason.STOP
            logprobs = np.zeros(len(tokens), dtype=np.float32)
            self.stats.tokens += len(tokens)
            yield (
                request.id,
                Completion(
                    tokens=tokens,
                    logprobs=logprobs,
                    finish_reason=finish,
                    policy_version=self.version,
                ),
            )

    def load_weights(self, named: Iterable[tuple[str, Tensor]], version: int) -> None:
        """Set the version; there are no weights to load."""
        self.version = version

    def sleep(self) -> None:
        """Nothing to free."""

    def close(self) -> None:
        """Nothing to free."""
