"""The models of a suite: folders, runs and hub ids here, or names behind an address."""

import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from whet.engine.registry import DEFAULT_ENGINE
from whet.errors import ConfigError
from whet.models.load import resolve
from whet.models.source import (
    ModelSource,
    open_model,
    read_run_prompt,
    read_tokenizer,
    torch_device,
    torch_dtype,
)
from whet.recipes.teachers import Ask, ServerTeacher, open_server_teacher, sample_answers
from whet.recipes.training import leave_out_long
from whet.serving.client import Client, check_reachable
from whet.serving.http import HttpError
from whet.store.run import RunStore, model_folder
from whet.suites.suite import Benchmark
from whet.text.chat import NO_PROMPT, PromptConfig
from whet.train.policy import build_policy
from whet.types import Problem
from whet.user_code import read_settings

Open = Callable[[Benchmark, PromptConfig, RunStore, Sequence[Problem]], tuple[Ask, list[Problem]]]
"""Makes ready to answer a benchmark; returns also the problems whose prompts fit."""
ENDS = 1 << 20
"""Bytes at either end of a file of weights that are hashed."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Contestant:
    """A model that is evaluated: as the user named it, in short, and as a folder name."""

    location: str
    label: str
    slug: str
    server: ServerTeacher | None = None
    """Where it listens, if it is not here."""
    weights: str = ""

    def prompt(self, benchmark: Benchmark) -> PromptConfig:
        """Take the prompt of the model's own training, else the benchmark's."""
        own = PromptConfig() if self.server is not None else _own_prompt(self.location)
        return benchmark.prompt if own.is_same(NO_PROMPT) else own

    def open(self) -> Open:
        """Load the model once for all its benchmarks."""
        if self.server is not None:
            return partial(_open_server, self.server)
        model, tokenizer = open_model(
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
            kept = leave_out_long(problems, policy.chat_engine, run)
            return partial(sample_answers, policy.chat_engine, benchmark.sampling), kept

        return open_benchmark


def find_models(locations: Sequence[str], key_env: str | None) -> list[Contestant]:
    """Look at every model before anything runs: its files are there, or its server replies."""
    contestants = []
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
        contestants.append(_find(location, label, slug, key_env))
    return contestants


def _find(location: str, label: str, slug: str, key_env: str | None) -> Contestant:
    if not location.startswith(("http://", "https://")):
        read_tokenizer(ModelSource(path=location))
        weights = _fingerprint(resolve(str(model_folder(location))))
        return Contestant(location=location, label=label, slug=slug, weights=weights)
    url, _, name = location.partition("#")
    if not name:
        raise ConfigError(f"{location} names no model: write {url}#NAME, as the server calls it")
    server = ServerTeacher(url=url, model=name, key_env=key_env)
    try:
        check_reachable(Client(server))
    except HttpError as error:
        raise ConfigError(f"{url} cannot be reached: {error}") from error
    return Contestant(location=location, label=label, slug=slug, server=server)


def _open_server(
    server: ServerTeacher,
    benchmark: Benchmark,
    prompt: PromptConfig,
    run: RunStore,
    problems: Sequence[Problem],
) -> tuple[Ask, list[Problem]]:
    del run
    asked = server.model_copy(update={"sampling": benchmark.sampling})
    return open_server_teacher(asked, prompt), list(problems)


def _own_prompt(location: str) -> PromptConfig:
    return read_settings(PromptConfig, read_run_prompt(location))


def _shorten(location: str) -> str:
    """Name a model in a table.

    >>> _shorten("runs/game24_cpu/"), _shorten("http://127.0.0.1:8000/v1#my/model")
    ('game24_cpu', 'my/model')
    """
    if "#" in location:
        return location.partition("#")[2]
    return location.rstrip("/").rpartition("/")[2] or location


def _slug(location: str) -> str:
    """Name a model's folder: the last parts of its path, without signs.

    >>> _slug("runs/game24_cpu"), _slug("http://127.0.0.1:8000/v1#my/model")
    ('runs-game24_cpu', '127.0.0.1-8000-v1-my-model')
    """
    name = re.sub(r"[^\w.]+", "-", location.removeprefix("http://").removeprefix("https://"))
    return name.strip("-.")[-80:] or "model"


def _fingerprint(folder: Path) -> str:
    """Hash the names, sizes and ends of a model's files: enough to see that it was trained on."""
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
