"""Suites: lists of benchmarks, each described by a TOML file in `named/` or by a user's own.

A benchmark says which problems to ask, how, how often, and what to report.
"""

import re
from collections.abc import Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from whet import toml
from whet.config import Config, load_settings
from whet.engine.base import SamplingParams
from whet.errors import ConfigError
from whet.tasks.task_config import TaskConfig
from whet.text.chat import NO_PROMPT, PromptConfig
from whet.types import Split

_FOLDER = Path(str(files("whet.suites"))) / "named"
METRIC = re.compile(r"avg|f1|(?:pass|maj)@([1-9][0-9]{0,5})")
NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}")
SuiteForm = Literal["fast", "all"]


class FastForm(Config):
    """What differs in the fast form, which is for choosing between models; reports need the full
    one."""

    limit: int | None = Field(default=None, ge=1)
    """Most problems, chosen by the hash of their ids."""
    samples: int | None = Field(default=None, ge=1)
    """Responses per problem."""
    metric: str | None = None
    """What is reported."""


class Benchmark(Config):
    """Problems, how they are asked, and what is reported."""

    source: str | None = None
    """A source that `whet data prepare` has prepared."""
    problems: str | None = None
    """A folder or a file of problems, in place of a source."""
    task: TaskConfig | None = None
    """The task that makes the problems if there are no others; otherwise, how responses are graded.
    None takes the tasks that the problems name, with their defaults."""
    split: Split = "test"
    """The split of the problems."""
    tasks: tuple[str, ...] = ()
    """Take only problems of these tasks; empty takes all."""
    limit: int | None = Field(default=None, ge=1)
    """Most problems, chosen by the hash of their ids; None takes all."""
    samples: int = Field(default=1, ge=1)
    """Responses per problem."""
    metric: str = "avg"
    """What is reported: avg (the mean over the responses), pass@k, maj@k, or f1 of problems that
    declare two halves."""
    sampling: SamplingParams = SamplingParams(max_tokens=4096)
    """How responses are sampled."""
    prompt: PromptConfig = NO_PROMPT
    """The prompt for models that were not trained with their own."""
    fast: FastForm | None = None
    """What differs in the fast form; a benchmark without it is not in that form."""

    @field_validator("metric")
    @classmethod
    def _check_metric(cls, metric: str) -> str:
        if METRIC.fullmatch(metric) is None:
            raise ValueError("should be avg, f1, pass@k or maj@k, with a number for k")
        return metric

    @model_validator(mode="after")
    def _refuse_contradictions(self) -> Self:
        if self.source is not None and self.problems is not None:
            raise ValueError("give source or problems, not both")
        if self.source is None and self.problems is None and self.task is None:
            raise ValueError("give source, problems, or a task that makes its problems")
        if self.k > self.samples:
            raise ValueError(f"{self.metric} needs at least {self.k} samples")
        return self

    @property
    def k(self) -> int:
        """Responses that the metric takes at once."""
        match = METRIC.fullmatch(self.metric)
        return int(match[1]) if match is not None and match[1] else 1

    @property
    def label(self) -> str:
        """The metric in full, such as avg@32."""
        return f"avg@{self.samples}" if self.metric == "avg" else self.metric

    def in_form(self, form: SuiteForm) -> Self | None:
        """Return the benchmark in a form; None if it is not part of it."""
        if form == "fast" and self.fast is None:
            return None
        changes = {} if self.fast is None else self.fast.model_dump(exclude_none=True)
        table = self.model_dump(exclude={"fast"}) | (changes if form == "fast" else {})
        return type(self).model_validate(table)


class Suite(Config):
    """Benchmarks that are reported together."""

    about: str
    """What it is, in a few words."""
    cite: str = ""
    """Where its settings are from."""
    benchmarks: dict[str, Benchmark] = Field(min_length=1)
    """The benchmarks by name, in the order of the report."""

    @field_validator("benchmarks")
    @classmethod
    def _check_benchmark_names(cls, benchmarks: dict[str, Benchmark]) -> dict[str, Benchmark]:
        for name in benchmarks:
            if NAME.fullmatch(name) is None:
                raise ValueError(
                    f"{name!r} is not a valid name for a benchmark: use letters, digits and -._"
                )
        return benchmarks


def load_suite(
    name: str, form: SuiteForm, only: Sequence[str] = ()
) -> tuple[Suite, Mapping[str, Benchmark]]:
    """Load a suite by name or file, with its benchmarks in a form, or `only` some of them."""
    listing = f"there are {', '.join(list_suites())}"
    path = toml.find_file(name, _FOLDER, "suite", listing=listing)
    suite = load_settings(Suite, path, ()).config
    for wanted in only:
        if wanted not in suite.benchmarks:
            raise ConfigError(
                f"--only {wanted}: the suite {path.stem} has {', '.join(suite.benchmarks)}"
            )
    chosen = {
        key: benchmark
        for key, whole in suite.benchmarks.items()
        if (not only or key in only) and (benchmark := whole.in_form(form)) is not None
    }
    if not chosen:
        raise ConfigError(
            f"nothing that was asked for is in the {form} form of {path.stem}: add --all"
        )
    return suite, chosen


def list_suites() -> list[str]:
    """List the names of the suites that come with whet."""
    return toml.list_names(_FOLDER)
