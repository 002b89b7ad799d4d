"""Training data from stored rollouts: SFT examples and preference pairs.

A response becomes an SFT example; a better and a worse response to the same prompt become a
preference pair. Responses that cannot be part of a pair are counted.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Literal

import numpy as np

from whet.batching.examples import Example, PreferencePair
from whet.data.import_rows import is_response_file, read_response_rows
from whet.data.row_files import file_ending
from whet.errors import DataError
from whet.rng import derive, make_rng
from whet.store.rollouts import list_columns, read_rollouts
from whet.store.run import RunStore
from whet.tasks.base import LineNote
from whet.text.chat import NO_PROMPT, ChatFormat, PromptConfig
from whet.types import FinishReason, Problem, Rollout, Verdict


def read_data(location: str) -> list[Rollout]:
    """Read the training rollouts of a run folder, a file of rollouts, or the user's own rows."""
    path = Path(location)
    if path.is_dir():
        run = RunStore.view(path)
        steps = run.rollout_steps("train")
        rollouts = [rollout for step in steps for rollout in run.rollouts("train", step)]
        if not rollouts:
            raise DataError(
                f"data = {location!r} is a run without training rollouts; give one that teach wrote"
            )
        return rollouts
    if not path.is_file():
        raise DataError(f"data = {location!r} is neither a file nor a run folder")
    if file_ending(path) == ".parquet" and not is_response_file(list_columns(path)):
        return read_rollouts(path)
    return read_response_rows(path)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class SftExamples:
    """Examples, and how many rollouts were left out because they do not fit the context."""

    examples: list[Example]
    num_too_long: int


Keep = Literal["correct", "all"]


def choose_responses(rollouts: Sequence[Rollout], keep: Keep) -> tuple[list[Rollout], Counter[str]]:
    """Choose the responses to imitate: all, or the correct and the ungraded ones.

    Ungraded responses, such as imported ones, are trusted. Also returns counts of those left out by
    verdict.
    """
    verdicts = [None if row.score is None else row.score.verdict for row in rollouts]
    is_kept = [keep == "all" or verdict in (None, Verdict.CORRECT) for verdict in verdicts]
    left_out = Counter(str(v) for v, kept in zip(verdicts, is_kept, strict=True) if not kept)
    return [row for row, kept in zip(rollouts, is_kept, strict=True) if kept], left_out


def make_sft_examples(
    rollouts: Iterable[Rollout], chat: ChatFormat, max_tokens: int
) -> SftExamples:
    """Tokenise prompts and responses as the model sees them; drop those that are too long."""
    examples = [_from_text(rollout, chat) for rollout in rollouts]
    kept = [example for example in examples if len(example.tokens) <= max_tokens]
    if not kept:
        raise DataError("there is nothing to learn from: no example fits the model's context")
    return SftExamples(examples=kept, num_too_long=len(examples) - len(kept))


def split_off_responses(
    rollouts: Sequence[Rollout], count: int, seed: int
) -> tuple[list[Rollout], list[Rollout]]:
    """Split off at least `count` responses for the validation loss, by whole problems. The seed and
    the problem ids decide which."""
    by_problem = Counter(rollout.problem.id for rollout in rollouts)
    held_out: set[str] = set()
    num_left = count
    for id in sorted(by_problem, key=lambda id: derive(seed, "held_out", id)):
        if num_left <= 0:
            break
        held_out.add(id)
        num_left -= by_problem[id]
    train = [rollout for rollout in rollouts if rollout.problem.id not in held_out]
    if not train:
        raise DataError(
            f"held_out = {count:,} leaves nothing to train on: there are {len(rollouts):,} "
            f"responses to {len(by_problem):,} problems"
        )
    return train, [rollout for rollout in rollouts if rollout.problem.id in held_out]


def list_texts(rollouts: Sequence[Rollout], prompt: PromptConfig = NO_PROMPT) -> list[str]:
    """List the prompts and responses of rollouts, to train a tokenizer on."""
    prompts = {message.content for row in rollouts for message in prompt.apply(row.problem)}
    return [*sorted(prompts), *(rollout.text for rollout in rollouts)]


PairRule = Literal["correct", "short", "first_wrong"]
"""correct: a right response against a wrong one. short: the shorter of two right ones.
first_wrong: after a shared beginning, a right step against the first wrong one."""
LeftOutReason = Literal["unscored", "repeated", "cut", "too_long"]
"""Why a response is left out: no verdict; the same text as another to the same prompt; cut at the
length limit by another model, so that its end is unknown; longer than the context."""
CommentLines = Callable[[Problem, str], Sequence[LineNote]]
MAX_SHORT_FRACTION = 0.8
"""A short response has at most this fraction of the long one's tokens."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class ScoredResponse:
    """A graded response with its tokens, to make pairs of."""

    rollout: Rollout
    example: Example

    @property
    def is_right(self) -> bool:
        return self.rollout.score is not None and self.rollout.score.verdict is Verdict.CORRECT


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleCount:
    """The result of one rule: pairs, pairs beyond the cap, problems without any pair."""

    num_pairs: int
    num_capped: int
    num_empty: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreferencePairs:
    """Pairs in a fixed order, and counts of rollouts left out by reason."""

    pairs: list[PreferencePair]
    rules: dict[PairRule, RuleCount]
    faults: Counter[LeftOutReason]
    num_responses: int
    num_problems: int


def make_preference_pairs(
    rollouts: Iterable[Rollout],
    chat: ChatFormat,
    rules: Sequence[PairRule],
    *,
    comment: CommentLines,
    max_tokens: int,
    per_problem: int,
    seed: int,
) -> PreferencePairs:
    """Make pairs by each rule, at most `per_problem` per problem and rule, drawn by the seed."""
    problems: dict[str, dict[str, dict[str, ScoredResponse]]] = {}
    faults: Counter[LeftOutReason] = Counter()
    num_responses = 0
    for rollout in rollouts:
        num_responses += 1
        # Responses to different wordings of a problem are not compared.
        responses = problems.setdefault(rollout.problem.id, {}).setdefault(
            repr(rollout.problem.prompt), {}
        )
        response = _to_scored_response(rollout, responses, chat, max_tokens)
        if isinstance(response, ScoredResponse):
            responses[rollout.text] = response
        else:
            faults[response] += 1
    pairs: list[PreferencePair] = []
    counts: dict[PairRule, RuleCount] = {}
    for rule in dict.fromkeys(rules):
        drawn = [
            _draw_pairs(rule, id, prompts.values(), chat, comment, seed)
            for id, prompts in problems.items()
        ]
        kept = [pair for some in drawn for pair in some[:per_problem]]
        num_capped = sum(len(some) for some in drawn) - len(kept)
        counts[rule] = RuleCount(
            num_pairs=len(kept), num_capped=num_capped, num_empty=sum(not some for some in drawn)
        )
        pairs += kept
    return PreferencePairs(
        pairs=pairs,
        rules=counts,
        faults=faults,
        num_responses=num_responses,
        num_problems=len(problems),
    )


def _to_scored_response(
    rollout: Rollout, known: dict[str, ScoredResponse], chat: ChatFormat, max_tokens: int
) -> ScoredResponse | LeftOutReason:
    if rollout.score is None or rollout.score.verdict is Verdict.UNSCORED:
        return "unscored"
    if rollout.text in known:
        return "repeated"
    is_own = _is_sampled_by(rollout, chat)
    if rollout.completion.finish_reason is not FinishReason.STOP and not is_own:
        return "cut"
    example = _from_tokens(rollout) if is_own else _from_text(rollout, chat)
    if len(example.tokens) > max_tokens:
        return "too_long"
    return ScoredResponse(rollout=rollout, example=example)


def _is_sampled_by(rollout: Rollout, chat: ChatFormat) -> bool:
    """Whether the stored tokens are this model's encoding of the prompt and the text."""
    tokens = rollout.completion.tokens
    return (
        len(tokens) > 0
        and int(max(tokens.max(), rollout.prompt_tokens.max(initial=0))) < chat.tokenizer.vocab_size
        and chat.decode_message(tokens) == rollout.text
        and np.array_equal(rollout.prompt_tokens, chat.encode_problem(rollout.problem))
    )


def _from_tokens(rollout: Rollout) -> Example:
    tokens = np.concatenate([rollout.prompt_tokens, rollout.completion.tokens])
    start = len(rollout.prompt_tokens)
    return Example(
        tokens=tokens, response_start=start, group_id=rollout.group_id, rollout_id=rollout.id
    )


def _from_text(rollout: Rollout, chat: ChatFormat) -> Example:
    tokens, is_response = chat.encode_response(rollout.problem, rollout.text)
    start = int(np.argmax(is_response))
    return Example(
        tokens=tokens, response_start=start, group_id=rollout.group_id, rollout_id=rollout.id
    )


def _draw_pairs(
    rule: PairRule,
    id: str,
    prompts: Iterable[dict[str, ScoredResponse]],
    chat: ChatFormat,
    comment: CommentLines,
    seed: int,
) -> list[PreferencePair]:
    """List all pairs of a problem in random order, so that the first few are a fair sample."""
    rng = make_rng(seed, "pairs", rule, id)
    pairs: list[PreferencePair] = []
    for known in prompts:
        responses = list(known.values())
        if rule == "correct":
            pairs += _pair_right_with_wrong(responses, rng)
        elif rule == "short":
            pairs += _pair_short_with_long(responses)
        else:
            pairs += _pair_first_wrong(responses, chat, comment, rng)
    rng.shuffle(pairs)
    return pairs


def _pair_right_with_wrong(
    responses: Sequence[ScoredResponse], rng: Random
) -> list[PreferencePair]:
    """Pair each response of the larger side once, each of the smaller about equally often."""
    right, wrong = _by_verdict(responses)
    if not right or not wrong:
        return []
    rng.shuffle(right)
    rng.shuffle(wrong)
    return [
        PreferencePair(
            chosen=right[index % len(right)].example, rejected=wrong[index % len(wrong)].example
        )
        for index in range(max(len(right), len(wrong)))
    ]


def _pair_short_with_long(responses: Sequence[ScoredResponse]) -> list[PreferencePair]:
    """Pair the shortest right responses with the longest, from both ends inwards."""
    right = sorted(
        (item.example for item in _by_verdict(responses)[0]), key=lambda item: item.num_targets
    )
    ends = list(zip(right, reversed(right), strict=True))[: len(right) // 2]
    return [
        PreferencePair(chosen=short, rejected=long)
        for short, long in ends
        if short.num_targets <= MAX_SHORT_FRACTION * long.num_targets
    ]


def _pair_first_wrong(
    responses: Sequence[ScoredResponse], chat: ChatFormat, comment: CommentLines, rng: Random
) -> list[PreferencePair]:
    """Pair each first wrong step with a right response's step there (Step-DPO, Lai et al. 2024).

    Both end with the step. Shared steps before it are context, since the losses would cancel there.
    """
    right, wrong = _by_verdict(responses)
    steps = [(item, _steps(item, chat, comment)) for item in right]
    pairs = []
    for item in wrong:
        wrong_steps = _steps(item, chat, comment)
        index = next((i for i, step in enumerate(wrong_steps) if step.is_right is False), None)
        if index is None:
            continue
        before = item.rollout.text[: wrong_steps[index].start]
        candidates = [
            (other, others[index])
            for other, others in steps
            if len(others) > index
            and others[index].is_right
            and other.rollout.text[: others[index].start] == before
        ]
        if candidates:
            chosen = _cut_after(*rng.choice(candidates), chat)
            pairs.append(_trim_common_start(chosen, _cut_after(item, wrong_steps[index], chat)))
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class _NotedStep:
    start: int
    end: int
    is_right: bool | None


def _steps(response: ScoredResponse, chat: ChatFormat, comment: CommentLines) -> list[_NotedStep]:
    """Find each noted line in the text, up to the next; a line cut at the limit is not a step."""
    text, example = response.rollout.text, response.example
    if chat.decode_message(example.tokens[example.response_start :]) != text:
        return []  # the template rewrites the response: characters cannot be mapped to tokens
    starts: list[int] = []
    noted = list(comment(response.rollout.problem, text))
    for note in noted:
        start = text.find(note.line, starts[-1] + 1 if starts else 0)
        if start < 0:
            return []
        starts.append(start)
    spans = pairwise([*starts, len(text)])
    steps = [
        _NotedStep(start=start, end=end, is_right=note.is_right)
        for (start, end), note in zip(spans, noted, strict=True)
    ]
    return steps if response.rollout.completion.finish_reason is FinishReason.STOP else steps[:-1]


def _cut_after(response: ScoredResponse, step: _NotedStep, chat: ChatFormat) -> Example:
    """Cut a response after a step; after the last step it keeps its stop token."""
    example = response.example
    if step.end == len(response.rollout.text):
        return example
    spans = chat.tokenizer.spans(example.tokens[example.response_start :])
    count = next(index for index, (_, end) in enumerate(spans, start=1) if end >= step.end)
    return replace(example, tokens=example.tokens[: example.response_start + count])


def _trim_common_start(chosen: Example, rejected: Example) -> PreferencePair:
    """Start both responses where their tokens differ; each keeps at least one token."""
    length = min(len(chosen.tokens), len(rejected.tokens)) - 1
    is_other = chosen.tokens[:length] != rejected.tokens[:length]
    start = int(np.argmax(is_other)) if is_other.any() else length
    return PreferencePair(
        chosen=replace(chosen, response_start=start),
        rejected=replace(rejected, response_start=start),
    )


def _by_verdict(
    responses: Sequence[ScoredResponse],
) -> tuple[list[ScoredResponse], list[ScoredResponse]]:
    right = [item for item in responses if item.is_right]
    return right, [item for item in responses if not item.is_right]
