"""Proofs of a policy: rewards stay with their rollouts, engine and learner agree, resumed steps are
equal, and a chat turn has the same stop token in SFT and in sampling.
"""

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from tokenizers import Tokenizer as Core
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from whet.algos.algorithm import build_algorithm
from whet.algos.settings import AlgoConfig
from whet.batching.examples import Example
from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig
from whet.grading.grader import Grader
from whet.kernels import TRITON_DEVICES
from whet.proofs import fixtures
from whet.proofs.base import Measurement, find_worst
from whet.proofs.fixtures import ScriptedEngine
from whet.proofs.learner_proofs import FLOAT32_LIMIT
from whet.rewards.spec import RewardSpec
from whet.rng import make_rng
from whet.rollout import collect
from whet.tasks.base import Task
from whet.text.chat import ChatFormat
from whet.text.tokenizer import PLAIN_TEMPLATE, Tokenizer
from whet.train import rl_step, training_state
from whet.train.learner import Learner, LocalLearner
from whet.train.policy import Policy, set_arithmetic
from whet.train.rl_step import update_policy
from whet.train.selftest import compare_logprobs, measure_exactness
from whet.train.settings import TrainConfig
from whet.types import (
    Completion,
    FinishReason,
    Floats,
    Message,
    Problem,
    Score,
    Split,
    Tokens,
    Verdict,
)

_QUESTION = Message(role="user", content="2+3 <|im_end|>?")
_ANSWER = Message(role="assistant", content="so 5")
"""The question contains text that looks like a special token and must stay text."""

_TURNS = (
    "{% for m in messages %}"
    "{{ '<|im_start|>' + m.role + '\\n' + THOUGHT + m.content + '<|im_end|>\\n' }}{% endfor %}"
)
_OPENING = "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
_THOUGHT = "('<think>\\n\\n</think>\\n\\n' if m.role == 'assistant' else '')"
_LLAMA = (
    "{{ bos_token }}{% for m in messages %}"
    "{{ '<|start_header_id|>' + m.role + '<|end_header_id|>\\n\\n' + m.content | trim"
    " + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{% endif %}"
)


IS_RIGHT = ("1000", "0100", "0011", "1110", "0101", "1101")
"""For each problem, which responses are right; no two rows are equal, even if rotated."""


class _EchoTask(Task):
    """The first word of a response must be the problem's number."""

    name = "specimen"
    is_bounded = True

    def problems(self, split: Split) -> list[Problem]:
        return [fixtures.make_problem(str(index)) for index in range(len(IS_RIGHT))]

    def score(self, problem: Problem, text: str) -> Score:
        is_right = text.split()[:1] == [problem.answer]
        verdict = Verdict.CORRECT if is_right else Verdict.WRONG
        return Score(verdict=verdict, parts={"correct": float(is_right)})

    def solve(self, problem: Problem, seed: int) -> str | None:
        return problem.answer


class _OutOfOrder(ScriptedEngine):
    """Completes requests in a shuffled but fixed order."""

    def generate(self, requests: Iterable[Request]) -> Iterator[tuple[str, Completion]]:
        done = list(super().generate(requests))
        make_rng(0, "out of order").shuffle(done)
        yield from done


def measure_rewards() -> Measurement:
    """Check advantages by responses that state their problem and number."""
    tokenizer = fixtures.make_tokenizer()
    chat = ChatFormat(tokenizer)
    task = _EchoTask()

    def answer(request: Request) -> Tokens:
        index, number = map(int, request.id.split("/"))
        first = index if IS_RIGHT[index][number] == "1" else 90 - index
        words = tokenizer.encode(f"{first} {number}")
        return np.append(words, min(chat.stop_tokens)).astype(np.int32)

    chat_engine = collect.ChatEngine(engine=_OutOfOrder(answer), chat=chat, name="specimen")
    samples = len(IS_RIGHT[0])
    with Grader(task) as grader:
        groups = collect.sample_and_grade(
            chat_engine, grader, task.problems("rl"), SamplingParams(), samples=samples, seed=0
        )
    groups = RewardSpec().apply(groups)
    algo = build_algorithm(AlgoConfig(name="dr_grpo"), max_tokens=8)
    selection = rl_step.select_rollouts(groups, algo)
    examples, _ = rl_step.assign_advantages(
        selection, rl_step.to_examples(selection, temperature=1.0), algo, {}
    )
    wrong = len(IS_RIGHT) * samples - len(examples)
    for example in examples:
        first, number = map(
            int, chat.decode_message(example.tokens[example.response_start :]).split()
        )
        row = IS_RIGHT[first if first < len(IS_RIGHT) else 90 - first]
        expected = float(row[number]) - row.count("1") / samples
        wrong += abs(float(np.mean(example.advantage)) - expected) > 1e-6
    count = f"{wrong} of {len(IS_RIGHT) * samples} responses, drawn out of order,"
    return Measurement(gap=wrong, limit=0, text=f"{count} have another's reward or advantage")


VERSION = 7
BF16_LIMIT = 0.25
"""Largest gap between engine and learner in bfloat16, in nats; with other weights it is several."""


def measure_engine(user_policy: Policy | None = None) -> Measurement:
    """Sample more requests than slots, some with the same prompt, and compare log-probabilities
    with those of a packed batch.

    `user_policy` replaces the tiny policy by one of the user's.
    """
    policy = user_policy or fixtures.make_policy()
    requests = fixtures.make_requests(policy.model.cfg.vocab_size)
    exactness = measure_exactness(policy) if user_policy else compare_logprobs(policy, requests)
    # Triton kernels give the same bits; elsewhere rounding depends on the shape of products.
    limit = 0.0 if policy.model.device.type in TRITON_DEVICES else _limit(policy)
    return Measurement(gap=exactness.largest_gap, limit=limit, text=exactness.summary)


def measure_publish() -> Measurement:
    """Move the weights far, publish, sample, and compare engine and learner."""
    policy = fixtures.make_policy()
    before = fixtures.sample_examples(policy)
    learner = policy.build_learner(TrainConfig(lr=0.05), steps=1)
    update_policy(learner, before, build_algorithm(AlgoConfig(name="grpo"), max_tokens=16), seed=0)
    change = np.concatenate(learner.compute_logprobs(before)) - _engine_logprobs(before)
    moved = float(np.abs(change).mean())
    policy.publish(VERSION)
    asked = fixtures.make_requests(policy.model.cfg.vocab_size)
    versions = sorted(
        {completion.policy_version for _, completion in policy.engine.generate(asked)}
    )
    after = fixtures.sample_examples(policy)
    ours = np.concatenate(learner.compute_logprobs(after))
    theirs = _engine_logprobs(after)
    gap = float(np.abs(ours - theirs).max())
    text = (
        f"the update moves log-probabilities by {moved:.1f}; after it their sum is "
        f"{theirs.sum():.3f} in the engine, {ours.sum():.3f} in the learner; version "
        f"{', '.join(map(str, versions))} of {VERSION}"
    )
    is_valid = versions == [VERSION] and moved > 4 * BF16_LIMIT
    return Measurement(gap=gap if is_valid else float("inf"), limit=_limit(policy), text=text)


def _engine_logprobs(examples: Sequence[Example]) -> Floats:
    """Return the engine's log-probabilities of all sampled tokens."""
    return np.concatenate(
        [
            example.sampling_logprob_M
            for example in examples
            if example.sampling_logprob_M is not None
        ]
    )


def _limit(policy: Policy) -> float:
    return FLOAT32_LIMIT if policy.model.dtype == torch.float32 else BF16_LIMIT


_STEPS = 4
ALGO = build_algorithm(AlgoConfig(name="grpo", num_minibatches=2), max_tokens=16)


def measure_resume() -> Measurement:
    """Take two steps, save, and take a third; load into another model and repeat the third."""
    straight = fixtures.make_policy()
    stopped = fixtures.make_policy(seed=1)
    cfg = TrainConfig(lr=1e-3, lr_schedule="linear", warmup_steps=1)
    first, second = (
        LocalLearner(policy.model, cfg, steps=2 * _STEPS) for policy in (straight, stopped)
    )
    for step in range(2):
        _step(straight, first, step)
    with tempfile.TemporaryDirectory(prefix="whet-doctor-") as folder:
        training_state.save_training_state(Path(folder), straight, first, {})
        training_state.load_training_state(Path(folder), stopped, second)
    for policy, learner in ((straight, first), (stopped, second)):
        _step(policy, learner, 2)
    pairs = [
        (first.optimizer.masters[name], second.optimizer.masters[name])
        for name in first.optimizer.masters
    ]
    gap = max(float((ours - theirs).detach().abs().max()) for ours, theirs in pairs)
    same = sum(int(torch.equal(ours, theirs)) for ours, theirs in pairs)
    text = (
        f"a step after, {same} of {len(pairs)} weights have the same bits, and the largest "
        f"difference is {gap:.1e}"
    )
    return Measurement(gap=gap, limit=0.0 if first.device.type == "cpu" else 1e-6, text=text)


def _step(policy: Policy, learner: Learner, step: int) -> None:
    policy.publish(step)
    examples = fixtures.sample_examples(policy)
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    set_arithmetic(deterministic=True)
    try:
        update_policy(learner, examples, ALGO, seed=step)
    finally:
        set_arithmetic(deterministic=was_deterministic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """The chat template of a model family, and a turn written by hand with QUESTION and ANSWER."""

    template: str
    eos: str
    prompt: str
    response: str
    stop: str

    @property
    def special(self) -> set[str]:
        """The special tokens of the family's template."""
        return {self.eos, *re.findall(r"<\|\w+\|>", self.prompt), self.stop}


_CHATML = "<|im_start|>user\nQUESTION<|im_end|>\n<|im_start|>assistant\n"
TEMPLATE_FAMILIES = {
    "plain": Family(
        template=PLAIN_TEMPLATE, eos="<eos>", prompt="QUESTION\n", response="ANSWER", stop="<eos>"
    ),
    "qwen2": Family(
        template=_TURNS.replace("THOUGHT", "''") + _OPENING,
        eos="<|endoftext|>",
        prompt=_CHATML,
        response="ANSWER",
        stop="<|im_end|>",
    ),
    "qwen3": Family(
        template=_TURNS.replace("THOUGHT", _THOUGHT) + _OPENING,
        eos="<|endoftext|>",
        prompt=_CHATML,
        response="<think>\n\n</think>\n\nANSWER",
        stop="<|im_end|>",
    ),
    "llama3": Family(
        template=_LLAMA,
        eos="<|end_of_text|>",
        prompt="<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nQUESTION<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        response="ANSWER",
        stop="<|eot_id|>",
    ),
}


def measure_stop_tokens() -> Measurement:
    """Compare each family's chat format with tokens laid out by hand, and sample to a stop."""
    differences = {name: _count_differences(family) for name, family in TEMPLATE_FAMILIES.items()}
    differences["the engine"] = _count_wrong_ends()
    worst, most = find_worst(differences)
    text = (
        f"{sum(differences.values())} differences from tokens laid out by hand, chat formats "
        f"{', '.join(TEMPLATE_FAMILIES)}"
    )
    return Measurement(gap=most, limit=0, text=text + (f"; most in {worst}" if most else ""))


def measure_model_stops(chat: ChatFormat) -> Measurement:
    """Check that a model's own template keeps the stop token."""
    written = chat.tokenizer.encode(chat.render([_QUESTION, _ANSWER], False), special=True)
    tokens, is_response = chat.conversation([_QUESTION, _ANSWER])
    response = tokens[is_response]
    stops = sorted(chat.stop_tokens)
    is_stop = np.isin(response, stops)
    faults = {
        "the template writes no stop token after a response": np.isin(written[-4:], stops).any(),
        "a response to learn from does not end with its stop token": is_stop[-1]
        and is_stop.sum() == 1,
        "the prompt of SFT is not that of sampling": np.array_equal(
            tokens[~is_response], chat.encode_prompt([_QUESTION])
        ),
        "a response is read back otherwise": chat.decode_message(response).endswith(
            _ANSWER.content
        ),
    }
    broken = [name for name, holds in faults.items() if not holds]
    names = ", ".join(repr(chat.tokenizer.decode([stop], keep_special=True)) for stop in stops)
    text = "; ".join(broken) or f"responses end with one of {names}, and keep it"
    return Measurement(gap=len(broken), limit=0, text=text)


def _count_differences(family: Family) -> int:
    tokenizer = _tokenizer(family)
    chat = ChatFormat(tokenizer)
    stop = tokenizer.id(family.stop)
    prompt = _encode_by_hand(tokenizer, family, family.prompt)
    response = [*_encode_by_hand(tokenizer, family, family.response), stop]
    text = family.response.replace("ANSWER", _ANSWER.content)
    tokens, is_response = chat.conversation([_QUESTION, _ANSWER])
    differs: list[bool] = [
        chat.encode_prompt([_QUESTION]).tolist() != prompt,
        tokens[~is_response].tolist() != prompt,
        tokens[is_response].tolist() != response,
        chat.stop_tokens != {stop, tokenizer.id(family.eos)},
        chat.decode_message(np.array(response, dtype=np.int32)) != text,
    ]
    return sum(differs)


def _count_wrong_ends() -> int:
    """Sample with every fourth token a stop token; count completions that end wrongly."""
    model = fixtures.make_model()
    size = model.cfg.vocab_size
    stops = frozenset(range(0, size, 4))
    engine = NativeConfig(max_num_seqs=4).build(model, stop_tokens=stops)
    wrong = 0
    for _, completion in engine.generate(fixtures.make_requests(size)):
        *before, last = completion.tokens.tolist()
        is_stopped = completion.finish_reason == FinishReason.STOP
        wrong += not stops.isdisjoint(before) or (last in stops) != is_stopped
    return wrong


def _tokenizer(family: Family) -> Tokenizer:
    """Make a tokenizer of single bytes and special tokens, in which nothing merges."""
    alphabet = sorted(ByteLevel.alphabet())
    core = Core(BPE({letter: index for index, letter in enumerate(alphabet)}, []))
    core.pre_tokenizer = ByteLevel(add_prefix_space=False)
    core.decoder = ByteLevelDecoder()
    core.add_special_tokens(
        sorted(set().union(*(one.special for one in TEMPLATE_FAMILIES.values())))
    )
    settings = {"bos_token": "<|begin_of_text|>", "eos_token": family.eos}
    return Tokenizer(core, dict(settings), family.template)


def _encode_by_hand(tokenizer: Tokenizer, family: Family, text: str) -> list[int]:
    contents = {"QUESTION": _QUESTION.content, "ANSWER": _ANSWER.content}
    tokens: list[int] = []
    for piece in re.split(r"(<\|\w+\|>|QUESTION|ANSWER)", text):
        if piece in family.special:
            tokens.append(tokenizer.id(piece))
        else:
            tokens += tokenizer.encode(contents.get(piece, piece)).tolist()
    return tokens
