"""An inference server on the loopback that speaks vLLM's or SGLang's calls, with a real engine.

It keeps the head of a tied model where a push does not name it, as vLLM does. A test may make it
hang, die, take no weights or keep its version.
"""

import asyncio
import copy
import json
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import safetensors.torch
from torch import nn

from whet.engine.base import Request, SamplingParams
from whet.engine.native import NativeConfig
from whet.engine.server_calls import DIALECTS, Dialect
from whet.models.transformer import Transformer
from whet.testing.server import Answer, Asked, serve
from whet.types import Completion, Json

VLLM, VLLM_WITHOUT_VERSIONS, SGLANG = DIALECTS
Fault = Callable[["InferenceServer", Asked], str | None]
"""What goes wrong with a call: `hang`, `die`, `stale` weights, an old `version`, a push in the
`middle` of an answer, `error`; None is nothing."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Place:
    """Where a server listens, and the server."""

    url: str
    server: "InferenceServer"


class InferenceServer:
    """The answers of a server: its own model, the version of its weights, and what it was asked."""

    def __init__(
        self, model: Transformer, dialect: Dialect, *, stops: frozenset[int], fault: Fault
    ) -> None:
        own = copy.deepcopy(model).requires_grad_(False)
        if model.cfg.tied:
            head = nn.Linear(model.cfg.hidden_size, model.cfg.vocab_size, bias=False)
            head.weight.data = model.embed.weight.detach().clone()
            own.head = head.requires_grad_(False)
            own.cfg = replace(model.cfg, tied=False)
        self.model = own
        self.engine = NativeConfig(max_num_seqs=4).build(own, stop_tokens=stops)
        self.dialect = dialect
        self.fault = fault
        self.version = "default"
        self.calls: list[str] = []

    def answer(self, asked: Asked) -> Answer | Awaitable[Answer]:
        path = asked.target.partition("?")[0]
        self.calls.append(path)
        fault = self.fault(self, asked)
        if fault == "hang":
            return asyncio.Future()
        if fault in ("die", "error"):
            return Answer(closes=fault == "die", status=500, body=b'{"error": "out of memory"}')
        reply: Json = {"success": True}
        if path in ("/collective_rpc", "/update_weights_from_disk") and fault != "stale":
            self._load(asked.body)
        if path in ("/update_weight_version", "/update_weights_from_disk") and fault != "version":
            stated = asked.body.get("new_version") or asked.body.get("weight_version")
            self.version = str(stated)
        if path in ("/inference/v1/generate", "/v1/completions", "/generate"):
            reply = self._generate(asked.body, has_two_versions=fault == "middle")
        return Answer(body=json.dumps(reply).encode())

    def _load(self, body: dict[str, Json]) -> None:
        arguments = body.get("kwargs", body)
        assert isinstance(arguments, dict), "a push names a folder"
        folder = Path(str(arguments.get("weights_path") or arguments.get("model_path")))
        tensors = safetensors.torch.load_file(folder / "model.safetensors")
        self.model.copy_weights(tensors.items())

    def _generate(self, body: dict[str, Json], *, has_two_versions: bool) -> Json:
        prompt = body.get("token_ids") or body.get("input_ids") or body.get("prompt")
        params = body.get("sampling_params", body)
        assert isinstance(prompt, list) and isinstance(params, dict), "tokens go in"
        names = {"max_new_tokens": "max_tokens"}
        sampling = {names.get(name, name): value for name, value in params.items()}
        sampling["top_k"] = max(0, int(str(sampling.get("top_k") or 0)))
        request = Request(
            id="0",
            prompt=np.array(prompt, dtype=np.int32),
            sampling=SamplingParams.model_validate(
                {name: sampling[name] for name in SamplingParams.model_fields if name in sampling}
            ),
            seed=int(str(params.get("seed") or params.get("sampling_seed") or 0)),
        )
        ((_, completion),) = self.engine.generate([request])
        versions = [self.version, "99"] if has_two_versions else [self.version]
        return self._format(completion, versions)

    def _format(self, completion: Completion, versions: list[str]) -> Json:
        tokens: list[Json] = [*completion.tokens.tolist()]
        logprobs: list[Json] = [*completion.logprobs.tolist()]
        pairs = list(zip(logprobs, tokens, strict=True))
        finish = str(completion.finish_reason)
        if self.dialect is SGLANG:
            rows: list[Json] = [[logprob, token, None] for logprob, token in pairs]
            info: dict[str, Json] = {"output_token_logprobs": rows, "weight_version": versions[0]}
            return {"meta_info": info | {"finish_reason": {"type": finish}}}
        choice: dict[str, Json] = {"token_ids": tokens, "finish_reason": finish}
        if self.dialect is VLLM_WITHOUT_VERSIONS:
            return {"choices": [choice | {"logprobs": {"token_logprobs": logprobs}}]}
        content: list[Json] = [{"logprob": logprob, "token_id": token} for logprob, token in pairs]
        spans: list[Json] = [{"version": version} for version in versions]
        return {"choices": [choice | {"logprobs": {"content": content}, "weight_versions": spans}]}


def no_fault(server: InferenceServer, asked: Asked) -> None:
    return None


@contextmanager
def serve_inference(
    model: Transformer,
    dialect: Dialect = VLLM,
    *,
    stops: frozenset[int] = frozenset(),
    fault: Fault = no_fault,
) -> Iterator[Place]:
    """Serve a copy of a model until the block ends."""
    server = InferenceServer(model, dialect, stops=stops, fault=fault)
    paths: dict[str, Json] = {path: {} for path in dialect.endpoints}
    models: Json = {"data": [{"id": "m", "max_model_len": model.cfg.max_positions}]}
    gets = {"/openapi.json": {"paths": paths}, "/v1/models": models}
    bodies = {path: json.dumps(body).encode() for path, body in gets.items()}
    with serve(server.answer, bodies) as listening:
        yield Place(url=listening.url.removesuffix("/v1"), server=server)
