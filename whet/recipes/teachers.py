"""Who answers for `teach`: the task itself, the data, a model here, or a model behind a server."""

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from whet.config import Config
from whet.endpoints.client import Client, EndpointConfig, Reply, check_reachable, make_body
from whet.endpoints.http import HttpError
from whet.endpoints.stream import allow_open_files, stream_replies
from whet.engine.base import Request, SamplingParams
from whet.engine.registry import DEFAULT_ENGINE, AnyEngineConfig
from whet.errors import ConfigError, DataError
from whet.models.source import ModelSource, load_model, torch_device, torch_dtype
from whet.rollout.collect import ChatEngine
from whet.stages.stage import NEEDS_TRAINED_MODEL
from whet.stages.training import drop_long_prompts
from whet.store.response_ledger import ResponseKey, StoredResponse
from whet.store.run import RunStore
from whet.text.chat import PromptConfig
from whet.train.policy import build_policy
from whet.types import Dtype, Json, Problem

LASTING = frozenset((401, 403, 404))
"""HTTP statuses that every later request would get too."""
TRANSPORT = (
    "url",
    "key_env",
    "in_flight",
    "timeout",
    "tries",
    "requests_per_minute",
    "tokens_per_minute",
    "price_in",
    "price_out",
)
"""Settings of a server that change no response, and may differ when a run is resumed."""
MAX_FAILURES = 16
"""Requests that fail one after the other before the run stops."""


class TaskTeacher(Config):
    """The task writes the responses itself."""

    kind: Literal["task"] = "task"
    bare: bool = False
    """Also take responses that are the bare reference, without reasoning."""


class DataTeacher(Config):
    """The worked solutions that came with the problems are the responses; no model is asked."""

    kind: Literal["data"] = "data"


class ModelTeacher(Config):
    """A model answers, sampled by the engine in this process."""

    kind: Literal["model"] = "model"
    model: ModelSource
    """Where the weights come from."""
    sampling: SamplingParams = SamplingParams(max_tokens=2048)
    """How responses are sampled."""
    engine: AnyEngineConfig = DEFAULT_ENGINE
    """The engine that samples responses: its kind, slots and memory."""
    dtype: Dtype = "auto"
    """Compute type; auto is bfloat16 on a GPU and float32 elsewhere."""

    def without_effect(self) -> dict[str, str]:
        return {"model.new": NEEDS_TRAINED_MODEL, "model.lora": "nothing is trained here"}


class ServerTeacher(EndpointConfig):
    """A model behind an OpenAI-style server answers."""

    kind: Literal["server"] = "server"
    sampling: SamplingParams = SamplingParams(max_tokens=2048)
    """How responses are sampled."""


AnyTeacher = Annotated[
    TaskTeacher | DataTeacher | ModelTeacher | ServerTeacher, Field(discriminator="kind")
]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class WantedResponse:
    """A requested response: its problem, as worded, and its seed."""

    problem: Problem
    sample: int
    seed: int

    @property
    def key(self) -> ResponseKey:
        return self.problem.id, self.sample


Store = Callable[[StoredResponse], None]
Ask = Callable[[Iterator[WantedResponse], Store], Iterator[tuple[WantedResponse, StoredResponse]]]
"""Answers questions as they are pulled, and stores each response before yielding it."""


def load_model_teacher(
    cfg: ModelTeacher, prompt: PromptConfig, run: RunStore, problems: list[Problem]
) -> tuple[Ask, list[Problem]]:
    """Load a model that answers; return also the problems whose prompts fit its context."""
    model, tokenizer = load_model(
        cfg.model, dtype=torch_dtype(cfg.dtype), device=torch_device(), texts=[], seed=0
    )
    name = cfg.model.path or ""
    policy = build_policy(model, tokenizer, cfg.engine, name=name, prompt=prompt)
    chat_engine = policy.chat_engine
    kept = drop_long_prompts(problems, chat_engine, run)

    def ask(
        questions: Iterator[WantedResponse], store: Store
    ) -> Iterator[tuple[WantedResponse, StoredResponse]]:
        with closing(chat_engine.engine):
            yield from sample_wanted(chat_engine, cfg.sampling, questions, store)

    return ask, kept


def sample_wanted(
    chat_engine: ChatEngine,
    sampling: SamplingParams,
    questions: Iterator[WantedResponse],
    store: Store,
) -> Iterator[tuple[WantedResponse, StoredResponse]]:
    """Answer questions with the engine in this process."""
    asked: dict[str, tuple[WantedResponse, int]] = {}

    def requests() -> Iterator[Request]:
        for question in questions:
            id = f"{question.problem.id}:{question.sample}"
            prompt = chat_engine.chat.encode_problem(question.problem)
            asked[id] = question, len(prompt)
            yield Request(id=id, prompt=prompt, sampling=sampling, seed=question.seed)

    for id, completion in chat_engine.engine.generate(requests()):
        question, prompt_tokens = asked.pop(id)
        response = StoredResponse(
            problem=question.problem.id,
            sample=question.sample,
            text=chat_engine.chat.decode_message(completion.tokens),
            model=chat_engine.name,
            finish=completion.finish_reason,
            prompt_tokens=prompt_tokens,
            tokens=len(completion.tokens),
        )
        store(response)
        yield question, response


def check_server(cfg: ServerTeacher) -> None:
    """Refuse a server that does not reply."""
    try:
        check_reachable(Client(cfg))
    except HttpError as error:
        raise ConfigError(f"teacher.url = {cfg.url!r} cannot be reached: {error}") from error


def build_server_teacher(cfg: ServerTeacher, prompt: PromptConfig) -> Ask:
    """Make sure that the server can be reached, and return a function that asks it."""
    allow_open_files(cfg.in_flight)
    check_server(cfg)
    if prompt.chat_options:
        extra = {"chat_template_kwargs": prompt.chat_options} | cfg.extra
        cfg = cfg.model_copy(update={"extra": extra})

    def ask(
        questions: Iterator[WantedResponse], store: Store
    ) -> Iterator[tuple[WantedResponse, StoredResponse]]:
        return _ask_server(Client(cfg), cfg.sampling, prompt, questions, store)

    return ask


def _ask_server(
    client: Client,
    sampling: SamplingParams,
    prompt: PromptConfig,
    questions: Iterator[WantedResponse],
    store: Store,
) -> Iterator[tuple[WantedResponse, StoredResponse]]:
    failures = 0
    responses: dict[ResponseKey, StoredResponse] = {}

    def requests() -> Iterator[tuple[WantedResponse, dict[str, Json]]]:
        for question in questions:
            body = make_body(
                client.cfg,
                prompt.apply(question.problem),
                max_tokens=sampling.max_tokens,
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                top_k=sampling.top_k,
                stop=sampling.stop,
                seed=question.seed,
            )
            yield question, body

    def receive(question: WantedResponse, reply: Reply) -> None:
        nonlocal failures
        if reply.status in LASTING:
            raise ConfigError(f"{reply.fault} (teacher.url = {client.cfg.url!r})")
        response = _to_stored(question, reply, client.cfg.model)
        store(response)
        responses[question.key] = response
        failures = 0 if reply.text is not None else failures + 1
        if failures == MAX_FAILURES:
            raise DataError(
                f"{failures} requests in a row have failed, the last because {reply.fault}; the "
                "same command with --resume continues from here"
            )

    with closing(stream_replies(client, requests(), receive)) as replies:
        for question, _ in replies:
            yield question, responses.pop(question.key)


def _to_stored(question: WantedResponse, reply: Reply, model: str) -> StoredResponse:
    return StoredResponse(
        problem=question.problem.id,
        sample=question.sample,
        text=reply.text,
        model=model,
        finish=reply.finish,
        prompt_tokens=reply.prompt_tokens,
        tokens=reply.tokens,
        fault=reply.fault,
        may_pass=reply.may_pass,
    )
