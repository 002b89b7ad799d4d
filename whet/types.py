"""The records that travel between stages: Problem, Rollout, and their parts. No torch here.

All are frozen. Token data are numpy arrays, so types that hold them compare by identity. After
them: JSON written in one form, hashed into the ids of problems, and read as numbers.
"""

import hashlib
import json
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Generic, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from whet.errors import DataError

Json = None | bool | int | float | str | list["Json"] | dict[str, "Json"]
Tokens = NDArray[np.int32]
Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
Indices = NDArray[np.int64]
Advance = Callable[[int], None]
"""Advances a progress bar by a count."""
Metrics = dict[str, float]
"""Numbers of one step by `area/name`, such as `reward/mean`."""
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
"""A compute type by name; see `whet.models.source.torch_dtype`."""
Split = Literal["sft", "rl", "dev", "test"]
SPLITS: tuple[Split, ...] = ("sft", "rl", "dev", "test")
MessageRole = Literal["system", "user", "assistant"]
MESSAGE_ROLES: tuple[MessageRole, ...] = ("system", "user", "assistant")


class Verdict(StrEnum):
    """A grader's verdict. UNSCORED means the grader itself failed (time, memory, no judge)."""

    CORRECT = "correct"
    WRONG = "wrong"
    NO_ANSWER = "no_answer"
    UNSCORED = "unscored"


RAISED = "the response broke its grader: "
"""Prefix of a WRONG score's note if grading raised or ran out of processor time."""


class FinishReason(StrEnum):
    """Why a completion ended: a stop token or string, or the length limit."""

    STOP = "stop"
    LENGTH = "length"


class Author(StrEnum):
    """Who wrote a rollout."""

    SOLVER = "solver"
    VERIFIER = "verifier"
    TEACHER = "teacher"


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message of a chat: its role and its text."""

    role: MessageRole
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One question and its grading data. `id` is the task's name and a hash of the content."""

    id: str
    task: str
    prompt: tuple[Message, ...]
    answer: str | None
    payload: Mapping[str, Json]
    level: float | None
    split: Split
    source: str
    source_id: str | None = None

    def to_json(self) -> dict[str, Json]:
        return {
            "id": self.id,
            "task": self.task,
            "prompt": [{"role": m.role, "content": m.content} for m in self.prompt],
            "answer": self.answer,
            "payload": dict(self.payload),
            "level": self.level,
            "split": self.split,
            "source": self.source,
            "source_id": self.source_id,
        }

    @staticmethod
    def from_json(row: Mapping[str, Json]) -> "Problem":
        try:
            return _problem(row)
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"not a problem row ({error}): {json.dumps(row)[:200]}") from error


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Completion:
    """Sampled tokens, the log-probability of each, and the policy version."""

    tokens: Tokens
    logprobs: Floats
    finish_reason: FinishReason
    policy_version: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The result of grading one response: facts only, no weights."""

    verdict: Verdict
    parts: Mapping[str, float]
    answer: str | None = None
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedStep:
    """A span of completion tokens, end exclusive, and the reward a verifier gave it."""

    start: int
    end: int
    reward: float


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rollout:
    """One response to one problem: its author, tokens, text, score and reward."""

    id: str
    group_id: str
    problem: Problem
    author: Author
    model: str
    prompt_tokens: Tokens
    completion: Completion
    text: str
    score: Score | None = None
    reward: float | None = None
    judged_steps: tuple[JudgedStep, ...] = ()
    """Steps that a verifier judged; empty if none did."""

    @staticmethod
    def from_text(
        problem: Problem,
        text: str,
        *,
        model: str,
        number: int = 0,
        author: Author = Author.TEACHER,
        score: Score | None = None,
    ) -> "Rollout":
        """Make a rollout without tokens from a text that no policy sampled."""
        tokens = np.zeros(0, dtype=np.int32)
        logprobs = np.zeros(0, dtype=np.float32)
        return Rollout(
            id=f"{problem.id}:{number}",
            group_id=problem.id,
            problem=problem,
            author=author,
            model=model,
            prompt_tokens=tokens,
            completion=Completion(
                tokens=tokens, logprobs=logprobs, finish_reason=FinishReason.STOP, policy_version=0
            ),
            text=text,
            score=score,
        )


Group = tuple[Rollout, ...]
"""Responses to the same problem by the same policy version."""


def rewards_of(rollouts: Iterable[Rollout]) -> list[float]:
    """List the rewards; responses that could not be graded have none."""
    return [rollout.reward for rollout in rollouts if rollout.reward is not None]


def all_equal(rewards: Collection[float]) -> bool:
    """Whether a group's rewards are all equal, so that there is nothing to learn.

    >>> all_equal([0.5, 0.5]), all_equal([0.5, 0.0]), all_equal([])
    (True, False, True)
    """
    return len(set(rewards)) <= 1


Array = TypeVar("Array")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TokenFields(Generic[Array]):
    """Per-token quantities of a response, under one name each from example to loss.

    Examples hold numpy arrays, batches and losses tensors [M]. All three extend this class, so a
    new quantity is one field here. None means not computed.
    """

    sampling_logprob_M: Array | None = None
    """The engine's log-probability of the sampled token; None for text that was not sampled."""
    old_logprob_M: Array | None = None
    """Log-probability under the weights at the start of the step; None while those are current."""
    ref_logprob_M: Array | None = None
    """Log-probability under the reference or a teacher."""
    value_M: Array | None = None
    """The critic's value before the step."""
    value_target_M: Array | None = None

    def per_token(self) -> dict[str, Array | None]:
        """Return the quantities by name."""
        return {item.name: getattr(self, item.name) for item in fields(TokenFields)}


def content_id(task: str, content: Json) -> str:
    """Name a problem by its content, so that its id is the same in every file and machine.

    >>> content_id("game24", [1, 2, 3, 4])
    'game24/c3aea7055b1f'
    """
    return f"{task}/{hashlib.blake2b(compact(content, sort_keys=True), digest_size=6).hexdigest()}"


def compact(value: Json | Mapping[str, Json], *, sort_keys: bool = False) -> bytes:
    """Write JSON in UTF-8 without spaces; NaN and infinities are refused.

    Half of a surrogate pair, which UTF-8 cannot hold, is written as its escape.

    >>> compact({"a": ["b", 1]}), compact(chr(0xD800))
    (b'{"a":["b",1]}', b'"\\\\ud800"')
    """
    try:
        text = json.dumps(
            value, sort_keys=sort_keys, ensure_ascii=False, allow_nan=False, separators=(",", ":")
        )
    except (ValueError, RecursionError) as error:
        raise DataError(f"this cannot be written as JSON ({error})") from error
    return text.encode("utf-8", "backslashreplace")


def read_number(value: Json) -> float:
    """Read a JSON number.

    >>> read_number(2)
    2.0
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"not a number: {value!r}")
    return float(value)


def read_integer(value: Json) -> int:
    """Read a JSON integer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"not an integer: {value!r}")
    return value


def _problem(row: Mapping[str, Json]) -> Problem:
    prompt = row["prompt"]
    payload = row.get("payload") or {}
    split = row["split"]
    level = row.get("level")
    if not isinstance(prompt, list) or not isinstance(payload, dict):
        raise ValueError("prompt must be a list of messages and payload an object")
    if split not in SPLITS:
        raise ValueError(f"split must be one of {', '.join(SPLITS)}, not {split!r}")
    answer = row.get("answer")
    source_id = row.get("source_id")
    return Problem(
        id=str(row["id"]),
        task=str(row["task"]),
        prompt=tuple(_message(message) for message in prompt),
        answer=None if answer is None else str(answer),
        payload=payload,
        level=None if level is None else _read_level(level),
        split=split,
        source=str(row.get("source", "")),
        source_id=None if source_id is None else str(source_id),
    )


def _message(row: Json) -> Message:
    if not isinstance(row, dict):
        raise ValueError("a message must be an object")
    role = row["role"]
    content = row["content"]
    if isinstance(content, str):
        for known in MESSAGE_ROLES:
            if role == known:
                return Message(role=known, content=content)
    raise ValueError("a message needs a role of system, user or assistant and a text content")


def _read_level(value: Json) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 1:
        raise ValueError(f"level must be a number from 0 to 1, not {value!r}")
    return float(value)
