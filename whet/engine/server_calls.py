"""HTTP calls of the inference servers that whet supports; a server's kind is detected.

Tokens go in, tokens and log-probabilities come out; weights are pushed by naming a folder. Replies
are untrusted: anything but the expected form is a WorkerError.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from whet.engine.base import Request, SamplingParams
from whet.engine.worker import WorkerError
from whet.types import Completion, FinishReason, Json

_SEEDS = 1 << 31
"""Servers accept seeds below this."""
GREEDY_SAMPLING = SamplingParams(temperature=0.0, max_tokens=1)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Call:
    """A POST: the path with its query, and the body."""

    path: str
    body: dict[str, Json]

    @property
    def endpoint(self) -> str:
        """Return the path without its query."""
        return self.path.partition("?")[0]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Sampled:
    """A server's completion, and the weight versions that it reports; empty if it reports none."""

    completion: Completion
    versions: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dialect:
    """The calls of one kind of server."""

    name: str
    generate: Callable[[Request, Collection[int], str], Call]
    """Request, stop tokens, name of the model -> the call that samples it."""
    read: Callable[[Json], Sampled]
    push: Callable[[Path, int], list[Call]]
    """Folder, version -> the calls that load its weights in place."""
    sleep: Call
    wake: Call
    states_all_versions: bool = False
    """Whether a response names every version that sampled a part of it, not only the last."""

    @property
    def endpoints(self) -> set[str]:
        """The endpoints that a server must have; those for sleeping are checked separately."""
        request = Request(id="", prompt=np.zeros(1, np.int32), sampling=GREEDY_SAMPLING, seed=0)
        calls = [self.generate(request, (), ""), *self.push(Path(), 0)]
        return {call.endpoint for call in calls}


def choose_dialect(paths: Collection[str], name: str) -> Dialect:
    """Choose the first kind of server that has all its endpoints among `paths`."""
    for dialect in DIALECTS:
        if dialect.endpoints <= set(paths):
            return dialect
    nearest = min(DIALECTS, key=lambda dialect: len(dialect.endpoints - set(paths)))
    missing = ", ".join(sorted(nearest.endpoints - set(paths)))
    raise WorkerError(
        f"lacks the endpoints that whet needs ({nearest.name}: {missing}); start vLLM with "
        "VLLM_SERVER_DEV_MODE=1 in its environment and --enable-scale-out, or see docs/fleet.md"
    )


def _vllm_generate(request: Request, stops: Collection[int], model: str) -> Call:
    params = _vllm_params(request, stops) | {"detokenize": False}
    body: dict[str, Json] = {"token_ids": request.prompt.tolist(), "sampling_params": params}
    return Call(path="/inference/v1/generate", body=body | {"stream": False})


def _vllm_params(request: Request, stops: Collection[int]) -> dict[str, Json]:
    sampling = request.sampling
    params: dict[str, Json] = {
        "max_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "seed": request.seed % _SEEDS,
        "logprobs": 0,
        "stop_token_ids": [*sorted(stops)],
        "ignore_eos": True,
    }
    if sampling.is_truncated:
        params |= {"top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p}
    return params


def _read_vllm(reply: Json) -> Sampled:
    choice = _item(_field(reply, "choices"), 0)
    content = _list(_field(_field(choice, "logprobs"), "content"))
    spans = _list(_field(choice, "weight_versions") or [])
    return Sampled(
        completion=_completion(
            _field(choice, "token_ids"),
            [_field(row, "logprob") for row in content],
            _field(choice, "finish_reason"),
        ),
        versions=tuple(str(_field(span, "version")) for span in spans),
    )


def _vllm_completions(request: Request, stops: Collection[int], model: str) -> Call:
    body: dict[str, Json] = {"model": model, "prompt": request.prompt.tolist()}
    body |= _vllm_params(request, stops) | {"return_token_ids": True}
    return Call(path="/v1/completions", body=body)


def _read_completions(reply: Json) -> Sampled:
    choice = _item(_field(reply, "choices"), 0)
    logprobs = _list(_field(_field(choice, "logprobs"), "token_logprobs"))
    tokens = _field(choice, "token_ids")
    completion = _completion(tokens, logprobs, _field(choice, "finish_reason"))
    return Sampled(completion=completion, versions=())


def _vllm_reload(folder: Path, version: int) -> list[Call]:
    arguments: dict[str, Json] = {"weights_path": str(folder)}
    return [
        Call(path="/pause?mode=keep", body={}),
        Call(path="/collective_rpc", body={"method": "reload_weights", "kwargs": arguments}),
        # Without the flag, nothing is reset while a request runs: later responses would reuse
        # prompts cached with the old weights.
        Call(path="/reset_prefix_cache?reset_running_requests=true", body={}),
        Call(path="/resume", body={}),
    ]


def _vllm_push(folder: Path, version: int) -> list[Call]:
    *before, resume = _vllm_reload(folder, version)
    stamp = Call(path="/update_weight_version", body={"new_version": str(version)})
    return [*before, stamp, resume]


def _sglang_generate(request: Request, stops: Collection[int], model: str) -> Call:
    sampling = request.sampling
    params: dict[str, Json] = {
        "max_new_tokens": sampling.max_tokens,
        "temperature": sampling.temperature,
        "sampling_seed": request.seed % _SEEDS,
        "stop_token_ids": [*sorted(stops)],
        "ignore_eos": True,
        "no_stop_trim": True,
    }
    if sampling.is_truncated:
        top_k = sampling.top_k or -1
        params |= {"top_k": top_k, "top_p": sampling.top_p, "min_p": sampling.min_p}
    body: dict[str, Json] = {"input_ids": request.prompt.tolist(), "sampling_params": params}
    return Call(path="/generate", body=body | {"return_logprob": True, "stream": False})


def _read_sglang(reply: Json) -> Sampled:
    info = _field(reply, "meta_info")
    rows = [_list(row) for row in _list(_field(info, "output_token_logprobs"))]
    version = _field(info, "weight_version")
    return Sampled(
        completion=_completion(
            [_item(row, 1) for row in rows],
            [_item(row, 0) for row in rows],
            _field(_field(info, "finish_reason"), "type"),
        ),
        versions=() if version is None else (str(version),),
    )


def _sglang_push(folder: Path, version: int) -> list[Call]:
    body: dict[str, Json] = {"model_path": str(folder), "weight_version": str(version)}
    return [
        Call(path="/pause_generation", body={"mode": "retract"}),
        Call(path="/update_weights_from_disk", body=body | {"flush_cache": True}),
        Call(path="/continue_generation", body={}),
    ]


def read_prompt_logprobs(reply: Json, tokens: list[int]) -> list[float]:
    """Read vLLM's log-probabilities of a prompt, from its second token on."""
    rows = _list(_field(reply, "prompt_logprobs"))
    if len(rows) != len(tokens):
        raise WorkerError(f"sent log-probabilities of {len(rows)} tokens of {len(tokens)}")
    pairs = zip(rows[1:], tokens[1:], strict=True)
    return [_number(_field(_field(row, str(token)), "logprob")) for row, token in pairs]


def _completion(tokens: Json, logprobs: list[Json], finish: Json) -> Completion:
    numbers = [_number(value) for value in logprobs]
    ids = [token for token in _list(tokens) if isinstance(token, int) and 0 <= token < _SEEDS]
    if not ids or len(ids) != len(numbers):
        raise WorkerError(f"sent {len(ids)} tokens with {len(numbers)} log-probabilities")
    return Completion(
        tokens=np.array(ids, dtype=np.int32),
        logprobs=np.minimum(np.array(numbers, dtype=np.float32), 0.0),
        finish_reason=FinishReason.STOP if finish == "stop" else FinishReason.LENGTH,
        policy_version=-1,
    )


def _field(value: Json, name: str) -> Json:
    return value.get(name) if isinstance(value, Mapping) else None


def _list(value: Json) -> list[Json]:
    if not isinstance(value, list):
        raise WorkerError("sent a reply that is not a completion")
    return value


def _item(value: Json, index: int) -> Json:
    items = _list(value)
    return items[index] if len(items) > index else None


def _number(value: Json) -> float:
    if not isinstance(value, int | float) or not np.isfinite(value):
        raise WorkerError(f"sent the log-probability {value!r}")
    return float(value)


_VLLM_SLEEP = Call(path="/sleep?level=1", body={})
_VLLM_WAKE = Call(path="/wake_up", body={})
DIALECTS = (
    Dialect(
        name="vLLM",
        generate=_vllm_generate,
        read=_read_vllm,
        push=_vllm_push,
        sleep=_VLLM_SLEEP,
        wake=_VLLM_WAKE,
        states_all_versions=True,
    ),
    Dialect(
        name="vLLM without versions",
        generate=_vllm_completions,
        read=_read_completions,
        push=_vllm_reload,
        sleep=_VLLM_SLEEP,
        wake=_VLLM_WAKE,
    ),
    Dialect(
        name="SGLang",
        generate=_sglang_generate,
        read=_read_sglang,
        push=_sglang_push,
        sleep=Call(path="/release_memory_occupation", body={}),
        wake=Call(path="/resume_memory_occupation", body={}),
    ),
)
"""Kinds of servers; the first that fits is used. docs/fleet.md has the same table."""
