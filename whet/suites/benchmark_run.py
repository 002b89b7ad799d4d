"""One model on one benchmark. The model is a folder, a run, a hub id, or a name behind an address.

Every problem is asked as often as the benchmark says. A response is written to the ledger of its
run folder before it is graded, so a kill costs only the requests in flight.
"""

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

from whet.config import Config
from whet.endpoints.client import Client, check_reachable
from whet.endpoints.http import HttpError
from whet.engine.registry import DEFAULT_ENGINE
from whet.errors import ConfigError, DataError
from whet.evals.summary import REPORTED_KS, summarise
from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.models.load import resolve
from whet.models.source import (
    ModelSource,
    load_model,
    read_run_prompt,
    read_tokenizer,
    torch_device,
    torch_dtype,
)
from whet.recipes.teachers import (
    Ask,
    ServerTeacher,
    WantedResponse,
    build_server_teacher,
    sample_wanted,
)
from whet.rng import derive
from whet.stages.training import drop_long_prompts
from whet.store.response_ledger import ResponseKey, ResponseLedger
from whet.store.run import RunStore, model_folder
from whet.suites.benchmarks import LoadedBenchmark
from whet.suites.result import BenchmarkResult, make_result, with_token_counts
from whet.suites.suite import Benchmark
from whet.text.chat import NO_PROMPT, PromptConfig
from whet.track.progress import progress_bar
from whet.train.policy import build_policy
from whet.types import Advance, Author, Group, Json, Problem, Rollout
from whet.user_code import validate_settings

OpenBenchmark = Callable[
    [Benchmark, PromptConfig, RunStore, Sequence[Problem]], tuple[Ask, list[Problem]]
]
"""Makes ready to answer a benchmark; returns also the problems whose prompts fit."""
ENDS = 1 << 20
"""Bytes at either end of a file of weights that are hashed."""
_EVAL_NUMBER = 0
"""The number of the one evaluation in a run folder."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EvaluatedModel:
    """A model to evaluate: as the user named it, by a short name, and by a folder name."""

    location: str
    label: str
    slug: str
    server: ServerTeacher | None = None
    """Where it listens, if it is not here."""
    weights: str = ""

    def prompt(self, benchmark: Benchmark) -> PromptConfig:
        """Take the prompt of the model's own training, else the benchmark's."""
        trained = PromptConfig() if self.server is not None else _own_prompt(self.location)
        return benchmark.prompt if trained.is_same(NO_PROMPT) else trained

    def open(self) -> OpenBenchmark:
        """Load the model once for all its benchmarks."""
        if self.server is not None:
            return partial(_build_server, self.server)
        model, tokenizer = load_model(
            ModelSource(path=self.location),
            dtype=torch_dtype("auto"),
            device=torch_device(),
            texts=[],
            seed=0,
        )

        def open_benchmark(
            benchmark: Benchmark, prompt: PromptConfig, run: RunStore, problems: Sequence[Problem]
        ) -> tuple[Ask, list[Problem]]:
            policy = build_policy(
                model, tokenizer, DEFAULT_ENGINE, name=self.location, prompt=prompt
            )
            kept = drop_long_prompts(problems, policy.chat_engine, run)
            return partial(sample_wanted, policy.chat_engine, benchmark.sampling), kept

        return open_benchmark


def find_models(locations: Sequence[str], key_env: str | None) -> list[EvaluatedModel]:
    """Check all models before anything runs: their files exist, or their server replies."""
    models = []
    slugs: set[str] = set()
    shorts = [_shorten(location) for location in locations]
    for location, short in zip(locations, shorts, strict=True):
        if locations.count(location) > 1:
            raise ConfigError(f"{location} is named twice")
        slug = _slug(location)
        while slug in slugs:
            slug += "_"
        slugs.add(slug)
        label = short if shorts.count(short) == 1 else location
        models.append(_find(location, label, slug, key_env))
    return models


def _find(location: str, label: str, slug: str, key_env: str | None) -> EvaluatedModel:
    if not location.startswith(("http://", "https://")):
        read_tokenizer(ModelSource(path=location))
        weights = _fingerprint(resolve(str(model_folder(location))))
        return EvaluatedModel(location=location, label=label, slug=slug, weights=weights)
    url, _, name = location.partition("#")
    if not name:
        raise ConfigError(
            f"{location} names no model: write {url}#NAME, with the server's name for the model"
        )
    server = ServerTeacher(url=url, model=name, key_env=key_env)
    try:
        check_reachable(Client(server))
    except HttpError as error:
        raise ConfigError(f"{url} cannot be reached: {error}") from error
    return EvaluatedModel(location=location, label=label, slug=slug, server=server)


def _build_server(
    server: ServerTeacher,
    benchmark: Benchmark,
    prompt: PromptConfig,
    run: RunStore,
    problems: Sequence[Problem],
) -> tuple[Ask, list[Problem]]:
    del run
    asked = server.model_copy(update={"sampling": benchmark.sampling})
    return build_server_teacher(asked, prompt), list(problems)


def _own_prompt(location: str) -> PromptConfig:
    return validate_settings(PromptConfig, read_run_prompt(location))


def _shorten(location: str) -> str:
    """Shorten a model's name for tables.

    >>> _shorten("runs/game24_cpu/"), _shorten("http://127.0.0.1:8000/v1#my/model")
    ('game24_cpu', 'my/model')
    """
    if "#" in location:
        return location.partition("#")[2]
    return location.rstrip("/").rpartition("/")[2] or location


def _slug(location: str) -> str:
    """Name the folder of a model: the last parts of its path, without special characters.

    >>> _slug("runs/game24_cpu"), _slug("http://127.0.0.1:8000/v1#my/model")
    ('runs-game24_cpu', '127.0.0.1-8000-v1-my-model')
    """
    name = re.sub(r"[^\w.]+", "-", location.removeprefix("http://").removeprefix("https://"))
    return name.strip("-.")[-80:] or "model"


def _fingerprint(folder: Path) -> str:
    """Hash the names, sizes and ends of a model's files, which is enough to notice further
    training."""
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.is_file() and path.suffix in (".json", ".safetensors", ".jinja"):
            size = path.stat().st_size
            digest.update(f"{path.name} {size}\n".encode())
            with path.open("rb") as file:
                digest.update(file.read(ENDS))
                file.seek(max(size - ENDS, 0))
                digest.update(file.read(ENDS))
    return digest.hexdigest()[:16]


class BenchmarkRun(Config):
    """One model on one benchmark: the settings of its run folder."""

    kind: Literal["benchmark"] = "benchmark"
    seed: int = 0
    """Determines every random choice."""
    model: str
    """A folder, a hub id, or an address."""
    weights: str = ""
    """A hash of the model's files; empty of a model behind a server."""
    name: str
    """The benchmark's name."""
    benchmark: Benchmark
    """The problems, and how they are asked."""
    prompt: PromptConfig = NO_PROMPT
    """How problems are turned into prompts: as in the model's training, else as the benchmark
    says."""


def run_benchmark(
    cfg: BenchmarkRun, loaded: LoadedBenchmark, ask: Ask, run: RunStore, on_response: Advance
) -> BenchmarkResult:
    """Collect and grade the missing responses; write rollouts and the result."""
    with ResponseLedger(run.response_folder) as ledger:
        total = loaded.num_responses
        done = ledger.num_responses + ledger.num_failed
        with (
            Grader(loaded.task, GradingConfig()) as grader,
            progress_bar(loaded.name, total, done=done, note=_token_counter(ledger)) as advance,
        ):
            for key, score in grader.grade(_collect_responses(cfg, loaded, ask, ledger)):
                ledger.add_score(key, score)
                advance(1)
                on_response(1)
        if missing := total - ledger.num_responses - ledger.num_failed:
            raise DataError(
                f"{missing:,} of {total:,} responses are missing, the last because "
                f"{ledger.last_fault}; the same command with --resume asks for them again"
            )
        groups = [_read_group(ledger, problem) for problem in loaded.problems]
        stored = [ledger.responses(problem.id) for problem in loaded.problems]
        num_failed = ledger.num_failed
    samples = loaded.benchmark.samples
    summary = summarise(
        groups, ks=sorted({k for k in REPORTED_KS if k <= samples} | {loaded.benchmark.k})
    )
    summary = with_token_counts(summary, stored)
    result = make_result(
        summary,
        groups,
        model=cfg.model,
        loaded=loaded,
        num_failed=num_failed,
        num_too_long=_count_too_long(run),
    )
    run.write_rollouts("eval", _EVAL_NUMBER, groups)
    run.write_eval(_EVAL_NUMBER, summary.to_json())
    run.finish({"result": result.to_json()})
    return result


def read_run_result(run: RunStore) -> BenchmarkResult:
    """Read the result of a finished run."""
    return BenchmarkResult.from_json(run.summary().get("result"))


def _collect_responses(
    cfg: BenchmarkRun, loaded: LoadedBenchmark, ask: Ask, ledger: ResponseLedger
) -> Iterator[tuple[ResponseKey, Problem, str]]:
    """Yield responses to grade: those of an earlier attempt, then new ones as they arrive."""
    by_id = {problem.id: problem for problem in loaded.problems}
    for response in ledger.ungraded():
        if response.text is not None and response.problem in by_id:
            yield response.key, by_id[response.problem], response.text
    wanted = (
        WantedResponse(
            problem=problem, sample=sample, seed=derive(cfg.seed, "benchmark", problem.id, sample)
        )
        for problem in loaded.problems
        for sample in range(loaded.benchmark.samples)
        if (problem.id, sample) not in ledger
    )
    for question, response in ask(wanted, ledger.add):
        if response.text is not None:
            yield response.key, question.problem, response.text


def _read_group(ledger: ResponseLedger, problem: Problem) -> Group:
    rows = []
    for response in ledger.responses(problem.id):
        if response.text is None:
            continue
        row = Rollout.from_text(
            problem,
            response.text,
            model=response.model,
            number=response.sample,
            author=Author.SOLVER,
            score=ledger.score(response.key),
        )
        rows.append(replace(row, completion=replace(row.completion, finish_reason=response.finish)))
    return tuple(rows)


def _token_counter(ledger: ResponseLedger) -> Callable[[], str]:
    return lambda: f"{ledger.num_tokens / max(ledger.num_responses, 1):,.0f} tokens each"


def _count_too_long(run: RunStore) -> int:
    """Count the problems whose prompts did not fit in the latest attempt."""
    lists: list[Json] = [row.get("problems") for row in run.events() if row["event"] == "too_long"]
    return len(lists[-1]) if lists and isinstance(lists[-1], list) else 0
