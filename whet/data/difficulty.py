"""The difficulty map: how often each model solved each problem, and for how many tokens.

A map is a JSON lines file that runs share. It has a record for each problem, model and rollout
file; adding the same file again replaces its records, so that nothing is counted twice.
"""

import hashlib
import math
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from whet.errors import ConfigError, DataError
from whet.store.files import read_rows, write_rows
from whet.store.rollouts import read_rollouts
from whet.types import Json, Problem, Rollout, Verdict, read_integer

Z95 = 1.959964
"""The normal quantile of a 95 % interval."""
_RULE = re.compile(r"(?P<model>.*?)(?P<sign><=|>=|<|>)(?P<rate>[0-9]+\.?[0-9]*|\.[0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PassCount:
    """Counts of graded and of right responses to a problem, their tokens, and the last day."""

    num_answers: int
    """Responses; a map in a file has this name."""
    num_correct: int
    num_tokens: int
    last_seen: str

    @property
    def rate(self) -> float:
        return self.num_correct / self.num_answers

    @property
    def interval(self) -> tuple[float, float]:
        """Compute Wilson's 95 % interval of the pass rate.

        >>> count = PassCount(num_answers=8, num_correct=4, num_tokens=80, last_seen="")
        >>> [round(bound, 3) for bound in count.interval]
        [0.215, 0.785]
        """
        n = self.num_answers
        spread = Z95**2 / n
        middle = self.rate + spread / 2
        half = math.sqrt(self.rate * (1 - self.rate) * spread + spread**2 / 4)
        low, high = ((middle + sign * half) / (1 + spread) for sign in (-1, 1))
        return max(low, 0.0), min(high, 1.0)

    def __add__(self, other: "PassCount") -> "PassCount":
        return PassCount(
            num_answers=self.num_answers + other.num_answers,
            num_correct=self.num_correct + other.num_correct,
            num_tokens=self.num_tokens + other.num_tokens,
            last_seen=max(self.last_seen, other.last_seen),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemRecord:
    """The responses of one model to one problem in one rollout file."""

    problem: str
    task: str
    model: str
    source: str
    """The rollout file: its name and a hash of its content."""
    count: PassCount

    def to_json(self) -> dict[str, Json]:
        row = {"problem": self.problem, "task": self.task, "model": self.model}
        return {**row, "source": self.source, **asdict(self.count)}

    @staticmethod
    def from_json(row: Json) -> "ProblemRecord":
        match row:
            case {
                "problem": str(problem),
                "task": str(task),
                "model": str(model),
                "source": str(source),
                "num_answers": int(answers),
                "num_correct": int(correct),
                "num_tokens": tokens,
                "last_seen": str(seen),
            } if 0 <= correct <= answers and answers > 0:
                count = PassCount(
                    num_answers=answers,
                    num_correct=correct,
                    num_tokens=read_integer(tokens),
                    last_seen=seen,
                )
                return ProblemRecord(
                    problem=problem, task=task, model=model, source=source, count=count
                )
            case _:
                raise DataError(
                    "is not a record of a difficulty map; `whet data difficulty` writes one"
                )


def read_map(path: Path) -> list[ProblemRecord]:
    """Read a map; an error names the broken row."""
    if not path.is_file():
        raise DataError(f"there is no difficulty map {path}: create it with `whet data difficulty`")
    records = []
    for index, row in enumerate(read_rows(path), start=1):
        try:
            records.append(ProblemRecord.from_json(row))
        except DataError as error:
            raise DataError(f"row {index} of {path} {error}") from error
    return records


def update_map(
    path: Path, files: Sequence[Path], *, model: str | None = None
) -> list[ProblemRecord]:
    """Add rollout files to a map, which may be new; `model` overrides the model's name in the
    files."""
    records = read_map(path) if path.exists() else []
    for file in files:
        digest = hashlib.sha256(file.read_bytes()).hexdigest()[:16]
        source = f"{file.parent.parent.name}/{file.name}#{digest}"
        day = datetime.fromtimestamp(file.stat().st_mtime, tz=UTC).date().isoformat()
        rollouts = read_rollouts(file)
        if model is not None:
            rollouts = [replace(rollout, model=model) for rollout in rollouts]
        new = count_passes(rollouts, source=source, day=day)
        if not new:
            raise DataError(
                f"{file} has no graded responses: grade them first, or give another file"
            )
        records = [record for record in records if record.source != source] + new
    write_rows(path, (record.to_json() for record in records))
    return records


def count_passes(rollouts: Iterable[Rollout], *, source: str, day: str) -> list[ProblemRecord]:
    """Count the graded responses of each model to each problem."""
    counts: dict[tuple[str, str, str], PassCount] = {}
    for rollout in rollouts:
        if rollout.score is None or rollout.score.verdict is Verdict.UNSCORED:
            continue
        count = PassCount(
            num_answers=1,
            num_correct=int(rollout.score.verdict is Verdict.CORRECT),
            num_tokens=len(rollout.completion.tokens),
            last_seen=day,
        )
        key = (rollout.problem.id, rollout.problem.task, rollout.model)
        counts[key] = counts[key] + count if key in counts else count
    return [
        ProblemRecord(problem=problem, task=task, model=model, source=source, count=count)
        for (problem, task, model), count in counts.items()
    ]


def sum_by_problem(
    records: Iterable[ProblemRecord], model: str | None = None
) -> dict[str, PassCount]:
    """Add up the responses to each problem, of one model or of all."""
    totals: dict[str, PassCount] = {}
    for record in records:
        if model in (None, record.model):
            total = totals.get(record.problem)
            totals[record.problem] = record.count if total is None else total + record.count
    return totals


def read_pass_rates(path: Path, model: str | None = None) -> dict[str, float]:
    """Read the pass rate of each problem in a map, for one model or all models together."""
    records = read_map(path)
    _check_model(records, model, path)
    return {id: count.rate for id, count in sum_by_problem(records, model).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class RateRule:
    """A filter of problems by a model's pass rate, such as `weak<0.9`; `>0` counts all models."""

    model: str | None
    sign: str
    rate: float

    @staticmethod
    def parse(text: str) -> "RateRule":
        """Parse a rule such as `weak<0.9`.

        >>> RateRule.parse("qwen-7b>0")
        RateRule(model='qwen-7b', sign='>', rate=0.0)
        """
        match = _RULE.fullmatch(text.replace(" ", ""))
        if match is None or not 0 <= (rate := float(match["rate"])) <= 1:
            raise ConfigError(
                f"--keep {text!r} should be a model and a bound of its pass rate, such as weak<0.9"
            )
        return RateRule(model=match["model"] or None, sign=match["sign"], rate=rate)

    def accepts(self, rate: float) -> bool:
        return {
            "<": rate < self.rate,
            "<=": rate <= self.rate,
            ">": rate > self.rate,
            ">=": rate >= self.rate,
        }[self.sign]


def filter_problems(
    problems: Iterable[Problem],
    records: Sequence[ProblemRecord],
    rules: Sequence[RateRule],
    *,
    level: str | None = None,
    dropped: dict[str, int] | None = None,
) -> Iterator[Problem]:
    """Keep the problems that pass every rule; a problem that a model has not seen passes that
    model's rules.

    `level` names a model, or "" for all models: each level becomes the fraction of wrong answers.
    `dropped` counts what each rule leaves out.
    """
    models = {rule.model for rule in rules} | ({level or None} if level is not None else set())
    for model in models:
        _check_model(records, model, None)
    counts = {model: sum_by_problem(records, model) for model in models}
    for problem in problems:
        failed = next((rule for rule in rules if not _passes(rule, counts, problem.id)), None)
        if failed is not None:
            if dropped is not None:
                name = f"{failed.model or ''}{failed.sign}{failed.rate:g}"
                dropped[name] = dropped.get(name, 0) + 1
            continue
        seen = counts[level or None].get(problem.id) if level is not None else None
        yield problem if seen is None else replace(problem, level=1 - seen.rate)


def histogram(counts: Mapping[str, PassCount], num_bins: int = 10) -> list[int]:
    """Count problems by pass rate, in bins of equal width; the last bin includes 1."""
    bins = [0] * num_bins
    for count in counts.values():
        bins[min(int(count.rate * num_bins), num_bins - 1)] += 1
    return bins


def models_of(records: Iterable[ProblemRecord]) -> dict[str, dict[str, PassCount]]:
    """Add up responses by model and problem."""
    by_model: dict[str, list[ProblemRecord]] = defaultdict(list)
    for record in records:
        by_model[record.model].append(record)
    return {model: sum_by_problem(of_model) for model, of_model in sorted(by_model.items())}


def _passes(rule: RateRule, counts: Mapping[str | None, Mapping[str, PassCount]], id: str) -> bool:
    count = counts[rule.model].get(id)
    return count is None or rule.accepts(count.rate)


def _check_model(records: Iterable[ProblemRecord], model: str | None, path: Path | None) -> None:
    models = sorted({record.model for record in records})
    if model is not None and model not in models:
        where = f"the map {path}" if path is not None else "the map"
        raise ConfigError(f"{where} has no model {model!r}; its models: {', '.join(models)}")
