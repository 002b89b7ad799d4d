"""whet itself: the embedded engine, the learner, and both as one step over shared weights."""

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from whet.environment import limit_thread_spinning

limit_thread_spinning()

import numpy as np  # noqa: E402 - threads are set up before the first import that starts them
import torch  # noqa: E402

from speed.serve import Round, serve  # noqa: E402
from speed.shapes import drawn  # noqa: E402
from speed.work import Spec  # noqa: E402
from whet.algos.advantages import zscore  # noqa: E402
from whet.algos.algorithm import build_algorithm  # noqa: E402
from whet.algos.settings import AlgoConfig  # noqa: E402
from whet.batching.examples import Example  # noqa: E402
from whet.engine.base import Request, SamplingParams  # noqa: E402
from whet.engine.native import NativeConfig, NativeEngine  # noqa: E402
from whet.models.load import load_decoder  # noqa: E402
from whet.models.transformer import Transformer  # noqa: E402
from whet.train.learner import LocalLearner, compute_logprobs_locally  # noqa: E402
from whet.train.memory import DeviceMemory  # noqa: E402
from whet.train.rl_step import update_policy  # noqa: E402
from whet.train.settings import TrainConfig  # noqa: E402
from whet.types import Completion  # noqa: E402

NUM_CHECKED = 16
"""Completions whose log-probabilities are computed again after the first round."""


def prepare(spec: Spec) -> Round:
    work = spec.work
    dtype = getattr(torch, work.dtype)
    model = (
        drawn(work)
        if spec.folder is None
        else load_decoder(Path(spec.folder), dtype=dtype, device=work.device)
    )
    makers: dict[str, Callable[[Spec, Transformer], Round]] = {
        "rollout": rollout_round,
        "update": update_round,
        "rl_step": rl_step_round,
    }
    return makers[spec.task](spec, model)


def rollout_round(spec: Spec, model: Transformer) -> Round:
    engine = engine_of(spec, model)

    def round_of(number: int) -> dict[str, float]:
        requests = requests_of(spec, number)
        began = time.perf_counter()
        done = dict(engine.generate(requests))
        row = {
            "seconds": elapsed(spec, began),
            "tokens": float(sum(len(c.tokens) for c in done.values())),
        }
        assert row["tokens"] == sum(spec.work.limits()), (
            "a completion has not the length it was given"
        )
        return row | (checked(spec, model, requests, done) if number == 0 else {}) | memory(spec)

    return round_of


def update_round(spec: Spec, model: Transformer) -> Round:
    work, learner = spec.work, learner_of(spec, model)
    prompts = [
        prompt for prompt in work.prompt_ids(spec.vocab_size, 0) for _ in range(work.samples)
    ]
    responses = work.responses(spec.vocab_size)
    source = np.random.default_rng(work.seed)
    unscored = [
        Example(
            tokens=np.array(prompt + response, dtype=np.int32),
            response_start=len(prompt),
            group_id=str(index // work.samples),
            rollout_id=str(index),
            advantage=float(source.normal()),
        )
        for index, (prompt, response) in enumerate(zip(prompts, responses, strict=True))
    ]
    found = learner.compute_logprobs(unscored)
    examples = [
        replace(example, sampling_logprob_M=logprob)
        for example, logprob in zip(unscored, found, strict=True)
    ]
    algo = build_algorithm(AlgoConfig(), max_tokens=work.cap)

    def round_of(number: int) -> dict[str, float]:
        began = time.perf_counter()
        learner.reserve_memory(examples)
        update_policy(learner, examples, algo, seed=number)
        tokens = float(sum(len(example.tokens) for example in examples))
        return {"seconds": elapsed(spec, began), "tokens": tokens} | memory(spec)

    return round_of


def rl_step_round(spec: Spec, model: Transformer) -> Round:
    engine = engine_of(spec, model)
    learner = learner_of(spec, model, engine)
    algo = build_algorithm(AlgoConfig(), max_tokens=spec.work.cap)

    def round_of(number: int) -> dict[str, float]:
        requests = requests_of(spec, number)
        began = time.perf_counter()
        done = dict(engine.generate(requests))
        sampled = elapsed(spec, began)
        examples = credited(spec, requests, done)
        learner.reserve_memory(examples)
        metrics = update_policy(learner, examples, algo, seed=number).metrics
        engine.load_weights([], engine.version + 1)
        row = {"seconds": elapsed(spec, began), "rollout_seconds": sampled}
        row["tokens"] = float(sum(len(c.tokens) for c in done.values()))
        return row | {"engine_gap": metrics["policy/engine_gap"]} | memory(spec)

    return round_of


def engine_of(spec: Spec, model: Transformer) -> NativeEngine:
    own = {
        name.removeprefix("engine."): value
        for name, value in spec.settings.items()
        if name.startswith("engine.")
    }
    slots = min(spec.work.slots, spec.work.num_requests)
    cfg = NativeConfig.model_validate(
        {"max_num_seqs": slots, "max_model_len": spec.work.context} | own
    )
    return NativeEngine(model, cfg, stop_tokens=frozenset())


def learner_of(spec: Spec, model: Transformer, *engines: NativeEngine) -> LocalLearner:
    """Make a learner; where its updates need the room, the caches of these engines give way."""
    own = {
        name.removeprefix("train."): value
        for name, value in spec.settings.items()
        if name.startswith("train.")
    }
    cfg = TrainConfig.model_validate({"lr": 1e-6, "dtype": spec.work.dtype} | own)
    memory = DeviceMemory(model.device)
    for engine in engines:
        memory.add(engine)
    return LocalLearner(model, cfg, steps=1000, memory=memory)


def requests_of(spec: Spec, number: int) -> list[Request]:
    work = spec.work
    prompts = [np.array(ids, dtype=np.int32) for ids in work.prompt_ids(spec.vocab_size, number)]
    return [
        Request(
            id=str(index),
            prompt=prompts[index // work.samples],
            sampling=SamplingParams(max_tokens=limit),
            seed=number * work.num_requests + index,
        )
        for index, limit in enumerate(work.limits())
    ]


def credited(spec: Spec, requests: list[Request], done: dict[str, Completion]) -> list[Example]:
    """Reward each completion with the mean of its token ids, so that no two siblings are worth the
    same."""
    examples = []
    for first in range(0, len(requests), spec.work.samples):
        group = requests[first : first + spec.work.samples]
        advantages = zscore([float(done[request.id].tokens.mean()) for request in group])
        for request, advantage in zip(group, advantages, strict=True):
            examples.append(example_of(request, done[request.id], advantage))
    return examples


def example_of(request: Request, completion: Completion, advantage: float = 0.0) -> Example:
    return Example(
        tokens=np.concatenate([request.prompt, completion.tokens]),
        response_start=len(request.prompt),
        group_id="",
        rollout_id=request.id,
        sampling_logprob_M=completion.logprobs,
        advantage=advantage,
    )


def checked(
    spec: Spec, model: Transformer, requests: list[Request], done: dict[str, Completion]
) -> dict[str, float]:
    """How far the engine's log-probabilities are from those of a packed forward pass over the same
    tokens."""
    examples = [example_of(request, done[request.id]) for request in requests[:NUM_CHECKED]]
    again = compute_logprobs_locally(model, examples, 16 * spec.work.context)
    gaps = [
        np.abs(new - e.sampling_logprob_M).max()
        for new, e in zip(again, examples, strict=True)
        if e.sampling_logprob_M is not None
    ]
    return {"largest_logprob_gap": float(max(gaps))}


def elapsed(spec: Spec, began: float) -> float:
    if spec.work.device == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - began


def memory(spec: Spec) -> dict[str, float]:
    return (
        {"peak_bytes": float(torch.cuda.max_memory_allocated())}
        if spec.work.device == "cuda"
        else {}
    )


if __name__ == "__main__":
    serve(prepare)
