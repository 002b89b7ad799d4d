"""Contracts of engines, learners and tasks; a violation raises an AssertionError."""

import copy
import math
import random
import string
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from whet.algos.objectives import Objective, policy_objective
from whet.algos.preferences import PreferenceConfig, preference_objective
from whet.algos.settings import AlgoConfig
from whet.algos.values import ValueObjective
from whet.batching.examples import Example
from whet.engine.base import Detokenize, Engine, Request, SamplingParams
from whet.errors import EngineError
from whet.models.transformer import Transformer
from whet.tasks.base import Task
from whet.testing.fakes import example
from whet.testing.tiny import tiny_model
from whet.train.learner import Learner
from whet.train.learner_factory import LOCAL_FACTORY, LearnerFactory
from whet.train.settings import TrainConfig
from whet.train.value_model import ValueModel
from whet.types import (
    SPLITS,
    Completion,
    FinishReason,
    Floats,
    Metrics,
    Problem,
    Split,
    Tokens,
    Verdict,
)

LR = 1e-3
"""Learning rate of learners that are compared."""


def check_engine(
    engine: Engine,
    prompts: Sequence[Tokens],
    *,
    weights: Iterable[tuple[str, Tensor]] = (),
    detokenize: Detokenize | None = None,
    max_tokens: int = 6,
) -> None:
    """Check every promise of `Engine`; the engine is closed afterwards.

    `weights` are loaded first. Stop strings are checked if `detokenize` is given, which must be the
    one that the engine was built with. An engine may refuse stop strings, top_k, top_p and min_p
    with an EngineError, but must not ignore them.

    `measure_exactness` in `whet/train/selftest.py` compares log-probabilities with a learner's.
    """
    engine.load_weights(weights, 0)
    requests = _requests(prompts, SamplingParams(max_tokens=max_tokens))
    first = _generate(engine, requests)
    for id, completion in first.items():
        _check_completion(id, completion, max_tokens)
    tokens = sum(len(completion.tokens) for completion in first.values())
    assert engine.stats.tokens == tokens, (
        f"stats.tokens is {engine.stats.tokens} after a call that gave {tokens}"
    )
    engine.sleep()
    again = _generate(engine, requests[::-1])
    for id, completion in first.items():
        assert completion.tokens.tolist() == again[id].tokens.tolist(), (
            f"request {id} has other tokens after sleep(), in another order: they follow from "
            "weights, prompt, sampling and seed alone"
        )
    assert list(engine.generate([])) == [], "no request, no completion"
    assert engine.stats.tokens == 0, "stats are those of the latest call, also of an empty one"
    _check_seeds(prompts, first)
    greedy = _check_greedy(engine, prompts, first, max_tokens)
    _check_truncation(engine, prompts, greedy, max_tokens)
    if detokenize is not None:
        _check_stop_strings(engine, prompts[0], greedy["0/0"], detokenize)
    _check_laziness(engine, prompts, max_tokens)
    _check_context(engine, prompts[0])
    _check_version(engine, requests[0])
    engine.close()
    engine.close()


def check_learners(learner_factory: LearnerFactory, folder: Path) -> None:
    """Check every promise of `LearnerFactory`, `Learner` and `LogprobModel` by comparing with one
    device; `folder` is for checkpoints."""
    examples = [
        example(length=5 + seed, start=2, loss_weight=0.05 * seed, advantage=seed - 2.5, seed=seed)
        for seed in range(1, 6)
    ]
    _check_training(learner_factory, examples, policy_objective(AlgoConfig()), folder / "policy")
    pairs = [
        replace(
            item, pair=index // 2, is_chosen=index % 2 == 0, ref_logprob_M=item.sampling_logprob_M
        )
        for index, item in enumerate(examples[:4])
    ]
    _check_training(
        learner_factory, pairs, preference_objective(PreferenceConfig()), folder / "pairs"
    )
    ones = np.ones(20, dtype=np.float32)
    valued = [
        replace(item, value_M=ones[: item.num_targets], value_target_M=ones[: item.num_targets])
        for item in examples
    ]
    _check_training(learner_factory, valued, ValueObjective(clip=None), folder / "critic")
    frozen = learner_factory.build_frozen_model(tiny_model().requires_grad_(False), TrainConfig())
    _check_arrays(
        frozen.compute_logprobs(examples),
        _learner(LOCAL_FACTORY)[1].compute_logprobs(examples),
        "a frozen model's",
    )


def check_task(task: Task, *, problems_per_split: int = 25, seed: int = 0) -> None:
    """Check that gold is right, that garbage is wrong and does not raise, and problems repeat."""
    seen: dict[str, Split] = {}
    garbage = list(_garbage(random.Random(seed)))
    for split in SPLITS:
        problems = list(task.problems(split))
        assert problems == list(task.problems(split)), f"{split} problems differ from call to call"
        for problem in problems:
            assert (problem.split, problem.task) == (split, task.name), (
                f"{problem.id} names another split or task"
            )
            assert seen.setdefault(problem.id, split) == split, f"{problem.id} is in two splits"
        for problem in problems[:problems_per_split]:
            _check_problem(task, problem, garbage, seed)
    for text in garbage:
        task.parse_question(text)


_SEEDS = 3


def _requests(prompts: Sequence[Tokens], sampling: SamplingParams) -> list[Request]:
    return [
        Request(id=f"{index}/{number}", prompt=prompt, sampling=sampling, seed=10 * index + number)
        for index, prompt in enumerate(prompts)
        for number in range(_SEEDS)
    ]


def _generate(engine: Engine, requests: Sequence[Request]) -> dict[str, Completion]:
    completions = list(engine.generate(iter(requests)))
    assert sorted(id for id, _ in completions) == sorted(request.id for request in requests), (
        "every request is answered once, under its id"
    )
    return dict(completions)


def _check_completion(id: str, completion: Completion, max_tokens: int) -> None:
    tokens, logprobs = completion.tokens, completion.logprobs
    assert 1 <= len(tokens) <= max_tokens, (
        f"request {id} has {len(tokens)} tokens, expected 1 to {max_tokens}"
    )
    assert tokens.dtype == np.int32, f"tokens are {tokens.dtype}, expected int32"
    assert logprobs.dtype == np.float32, f"log-probabilities are {logprobs.dtype}, expected float32"
    assert len(logprobs) == len(tokens), "every token has a log-probability"
    assert np.isfinite(logprobs).all() and (logprobs <= 0).all(), (
        f"request {id} has log-probabilities {logprobs.tolist()}, expected numbers up to 0"
    )
    assert completion.finish_reason == FinishReason.STOP or len(tokens) == max_tokens, (
        f"request {id} ended after {len(tokens)} of {max_tokens} tokens, but not by a stop token"
    )


def _check_seeds(prompts: Sequence[Tokens], first: Mapping[str, Completion]) -> None:
    """Check that other seeds sample other tokens, unless every token has probability 1."""
    for index in range(len(prompts)):
        samples = [first[f"{index}/{number}"] for number in range(_SEEDS)]
        is_certain = all((sample.logprobs == 0).all() for sample in samples)
        if is_certain or len({tuple(sample.tokens.tolist()) for sample in samples}) > 1:
            return
    raise AssertionError("samples of one prompt are equal: a request's seed has no effect")


def _check_greedy(
    engine: Engine, prompts: Sequence[Tokens], first: Mapping[str, Completion], max_tokens: int
) -> dict[str, Completion]:
    """Check that temperature 0 takes the most likely token for every seed."""
    requests = _requests(prompts, SamplingParams(max_tokens=max_tokens, temperature=0.0))
    greedy = _generate(engine, requests)
    for id, completion in greedy.items():
        _check_completion(id, completion, max_tokens)
        sibling = greedy[f"{id.partition('/')[0]}/0"]
        assert completion.tokens.tolist() == sibling.tokens.tolist(), (
            "at temperature 0 the seed changed the tokens"
        )
        assert completion.logprobs[0] >= first[id].logprobs[0] - 1e-3, (
            "at temperature 0 the first token is less likely than one that was sampled at 1: take "
            "the most likely token, with its log-probability at temperature 1"
        )
    return greedy


def _check_truncation(
    engine: Engine, prompts: Sequence[Tokens], greedy: Mapping[str, Completion], max_tokens: int
) -> None:
    """Check that truncation to a single token gives the most likely one."""
    for setting in ({"top_k": 1}, {"top_p": 1e-6}, {"min_p": 0.9999}):
        sampling = SamplingParams.model_validate({"max_tokens": max_tokens, **setting})
        try:
            truncated = _generate(engine, _requests(prompts, sampling))
        except EngineError:
            continue
        for id, completion in truncated.items():
            assert completion.tokens.tolist() == greedy[id].tokens.tolist(), (
                f"with {setting} request {id} has other tokens than at temperature 0"
            )
            assert np.allclose(completion.logprobs, greedy[id].logprobs, rtol=0, atol=1e-3), (
                f"with {setting} request {id} has other log-probabilities: they are those before "
                "truncation"
            )


def _check_stop_strings(
    engine: Engine, prompt: Tokens, greedy: Completion, detokenize: Detokenize
) -> None:
    """Check that a completion ends with the token that completes the stop string, and keeps it."""
    texts = [detokenize(greedy.tokens[: n + 1]) for n in range(len(greedy.tokens))]
    stop = texts[len(texts) // 2][-1:]
    assert stop, "the most likely tokens of the first prompt have no text; take another prompt"
    expected = greedy.tokens[: 1 + next(n for n, text in enumerate(texts) if stop in text)]
    sampling = SamplingParams(max_tokens=len(greedy.tokens), temperature=0.0, stop=(stop,))
    try:
        completion = _generate(engine, _requests([prompt], sampling))["0/0"]
    except EngineError:
        return
    assert completion.tokens.tolist() == expected.tolist(), (
        f"with the stop string {stop!r} the tokens are {completion.tokens.tolist()}, expected "
        f"{expected.tolist()}: the text of the last one completes the string"
    )
    assert completion.finish_reason == FinishReason.STOP, (
        f"finish is {completion.finish_reason} after a stop string"
    )


def _check_laziness(engine: Engine, prompts: Sequence[Tokens], max_tokens: int) -> None:
    """Check that requests are read lazily, and that closing drops the rest."""

    def endless() -> Iterator[Request]:
        for number in range(100_000):
            yield Request(
                id=str(number),
                prompt=prompts[number % len(prompts)],
                sampling=SamplingParams(max_tokens=max_tokens),
                seed=number,
            )
        raise AssertionError("requests are pulled as slots fall free; 100,000 were read at once")

    completions = iter(engine.generate(endless()))
    next(completions)
    next(completions)
    del completions


def _check_context(engine: Engine, prompt: Tokens) -> None:
    """Check that a completion ends at the end of the context, and that prompts are refused that are
    empty, fill the context, or have a token outside the vocabulary."""

    def generate(tokens: Tokens) -> list[tuple[str, Completion]]:
        request = Request(id="odd", prompt=tokens, sampling=SamplingParams(max_tokens=8), seed=0)
        return list(engine.generate([request]))

    ((_, completion),) = generate(np.resize(prompt, engine.max_model_len - 1))
    assert len(completion.tokens) == 1, "prompt and completion together fit the context"
    refused = {
        "no tokens": np.resize(prompt, 0),
        "as many tokens as the context": np.resize(prompt, engine.max_model_len),
        "a token below 0": np.array([-1], dtype=np.int32),
        "a token beyond the vocabulary": np.array([np.iinfo(np.int32).max], dtype=np.int32),
    }
    for description, tokens in refused.items():
        try:
            generate(tokens)
        except EngineError:
            continue
        raise AssertionError(
            f"a prompt of {description} raises no EngineError (`check_prompt_tokens`)"
        )


def _check_version(engine: Engine, request: Request) -> None:
    for version in (7, 8):
        engine.load_weights([], version)
        ((_, completion),) = engine.generate([request])
        assert completion.policy_version == version, (
            f"a completion is of version {completion.policy_version} after load_weights(..., "
            f"{version})"
        )


def _check_problem(task: Task, problem: Problem, garbage: list[str], seed: int) -> None:
    assert Problem.from_json(problem.to_json()) == problem, f"{problem.id} changes when stored"
    varied = task.vary(problem, seed)
    assert (varied.id, varied.answer) == (problem.id, problem.answer), (
        f"{problem.id} has another id or answer when varied"
    )
    gold = task.solve(problem, seed)
    if gold is not None:
        assert task.score(problem, gold).verdict == Verdict.CORRECT, (
            f"gold is not right for {problem.id}"
        )
    for text in garbage:
        assert task.score(problem, text).verdict != Verdict.CORRECT, (
            f"{text!r} is right for {problem.id}"
        )
        task.comment(problem, text)


def _garbage(rng: random.Random) -> Iterator[str]:
    yield from ("", " ", "\n\n", "\x00", "(((", "1/0", "é" * 50, "9" * 400)
    for _ in range(40):
        yield "garbage " + "".join(rng.choices(string.printable, k=rng.randrange(80)))


def _check_training(
    learner_factory: LearnerFactory, examples: Sequence[Example], objective: Objective, folder: Path
) -> None:
    """Take two steps with a checkpoint in between, and compare all results with one device."""
    is_value = isinstance(objective, ValueObjective)
    model, learner = _learner(learner_factory, is_value=is_value)
    local_model, local = _learner(LOCAL_FACTORY, is_value=is_value)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(2):
        if is_value:
            _check_arrays(
                learner.compute_values(examples), local.compute_values(examples), "values"
            )
        else:
            _check_arrays(
                learner.compute_logprobs(examples), local.compute_logprobs(examples), "logprobs"
            )
        assert learner.scale_lr(0.5**number) == local.scale_lr(0.5**number), "scale_lr"
        learner.reserve_memory(examples)
        learner.accumulate(examples, objective)
        learner.zero_grad()
        sums, expected = (item.accumulate(examples[:2], objective) for item in (learner, local))
        assert sums.num_losses == expected.num_losses, "accumulate counts losses of all examples"
        _check_metrics(sums.means, expected.means)
        rest = examples[2:]
        _check_metrics(learner.update(rest, objective), local.update(rest, objective))
        assert learner.num_optim_steps == local.num_optim_steps == number + 1, (
            "num_optim_steps counts optim_step"
        )
        learner.save(folder)
        if is_value:
            _, learner = _learner(learner_factory, is_value=True)
        else:  # an engine samples from it
            learner.sync_model()
            for weight, other in zip(model.parameters(), local_model.parameters(), strict=True):
                assert torch.allclose(weight, other, atol=0.1 * LR), (
                    "after sync_model the model that the learner was made for has its weights"
                )
            weights = copy.deepcopy(model.state_dict())
            model, learner = _learner(learner_factory)
            model.load_state_dict(weights)
        learner.load(folder, number + 1)


def _learner(
    learner_factory: LearnerFactory, *, is_value: bool = False
) -> tuple[Transformer | ValueModel, Learner]:
    model = ValueModel(tiny_model()) if is_value else tiny_model()
    return model, learner_factory.build_learner(
        model, TrainConfig(lr=LR, warmup_steps=0), steps=4, memory=None
    )


def _check_arrays(arrays: Sequence[Floats], expected: Sequence[Floats], name: str) -> None:
    shapes = [array.shape for array in expected]
    assert [array.shape for array in arrays] == shapes and all(
        np.allclose(array, other, atol=1e-4) for array, other in zip(arrays, expected, strict=True)
    ), f"{name} are those of one device, in the order of the examples"


def _check_metrics(metrics: Metrics, expected: Metrics) -> None:
    for name, value in expected.items():
        assert name in metrics and math.isclose(metrics[name], value, rel_tol=1e-3, abs_tol=1e-5), (
            f"{name} is {metrics.get(name)}, and {value} on one device: sums add, and are not "
            "divided by the number of ranks"
        )
