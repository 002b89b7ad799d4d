"""Grade the stored rollouts of a run again, reward them under its own or another spec, and break
each reward down. The run folder is not changed."""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from whet import toml
from whet.config import Config, load_settings
from whet.errors import ConfigError, DataError, visible
from whet.grading.grader import Grader
from whet.grading.limits import GradingConfig
from whet.rewards.spec import RewardSpec, break_down, load_spec, summarise_parts
from whet.store.files import check_target, to_finite, write_rows
from whet.store.run import RolloutSet, RunStore, stage_folders
from whet.tasks.task_config import TaskConfig, build_task
from whet.track.progress import printer, progress_bar, say
from whet.track.tables import align, format_metric, format_percent
from whet.types import Author, Json, Rollout, Score, Verdict

SETS: tuple[RolloutSet, ...] = ("train", "eval", "rejected")
NUM_NAMED = 5
"""Responses with another verdict than before that are named; the file of --out has all."""


class _GradingSettings(Config):
    """The settings of a stage that matter for grading."""

    task: TaskConfig
    grading: GradingConfig = GradingConfig()
    reward: RewardSpec | None = None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Regraded:
    """A stored rollout, and its copy with the new score and reward."""

    rollout_set: RolloutSet
    step: int
    stored: Rollout
    now: Rollout

    @property
    def has_other_verdict(self) -> bool:
        return _verdict(self.stored) != _verdict(self.now)

    @property
    def has_other_score(self) -> bool:
        old, new = self.stored.score, self.now.score
        return old is None or new is None or (old.parts, old.answer) != (new.parts, new.answer)

    def to_json(self) -> dict[str, Json]:
        score = self.now.score
        assert score is not None, "it has been graded"
        return {
            "id": self.now.id,
            "set": self.rollout_set,
            "step": self.step,
            "problem": self.now.problem.id,
            "verdict": score.verdict.value,
            "parts": dict(score.parts),
            "extracted": score.answer,
            "note": score.note,
            "reward": self.now.reward,
            "stored_verdict": _verdict(self.stored),
            "stored_reward": self.stored.reward,
        }


def grade_run(
    folder: Path,
    *,
    out: Path | None = None,
    step: int | None = None,
    rollout: str | None = None,
    reward: str | None = None,
    workers: int | None = None,
    as_json: bool = False,
) -> list[Regraded]:
    """Grade the rollouts of a run, of one step, or a single one, and print the result.

    `reward` is the name or file of a spec; the default is the run's own, if any.
    """
    if out is not None:
        check_target(out)
        if out.resolve().is_relative_to(folder.resolve()):
            raise ConfigError(f"--out {out} is in the run's folder, which is only read")
    run = _open_run(folder)
    settings = _read_settings(run)
    spec = settings.reward if reward is None else load_spec(reward)
    chosen = list(_read_rollouts(run, step, rollout))
    limits = settings.grading.model_copy(
        update={"unscored_fraction": 1.0} | ({} if workers is None else {"workers": workers})
    )
    results = _grade(chosen, settings.task, limits, spec)
    if out is not None:
        write_rows(out, (_to_row(result) for result in results))
    if rollout is not None:
        _print_one(results[0], spec, as_json=as_json)
    else:
        _print_all(run, results, spec, as_json=as_json)
    if out is not None:
        say(f"{len(results):,} rows in {out}")
    return results


def _open_run(folder: Path) -> RunStore:
    stages = [] if (folder / "config.toml").is_file() else stage_folders(folder)
    if stages:
        named = [stage.name for stage in stages if RunStore.view(stage).list_rollouts()]
        raise ConfigError(
            f"{folder} is a pipeline: name one of its stages that stored rollouts, "
            f"{', '.join(named) or 'of which there is none'}"
        )
    return RunStore.view(folder)


def _read_settings(run: RunStore) -> _GradingSettings:
    table = toml.read(run.config_file)
    known = {key: table[key] for key in _GradingSettings.model_fields if key in table}
    return load_settings(_GradingSettings, None, [], defaults=known).config


def _read_rollouts(
    run: RunStore, step: int | None, rollout: str | None
) -> Iterator[tuple[RolloutSet, int, Rollout]]:
    """Read the requested rollouts, without verifications, which the run's task does not grade."""
    steps = {name: run.rollout_steps(name) for name in SETS}
    num_files = num_found = num_verifications = 0
    for name, numbers in steps.items():
        for number in numbers:
            if step not in (None, number):
                continue
            num_files += 1
            for item in run.rollouts(name, number):
                if item.author is Author.VERIFIER:
                    num_verifications += 1
                elif rollout in (None, item.id):
                    num_found += 1
                    if rollout is not None and num_found > 1:
                        raise ConfigError(
                            f"{rollout!r} is in several steps: choose one with --step"
                        )
                    yield name, number, item
    if num_verifications:
        say(f"{num_verifications:,} verifications are left out: only solutions are graded again")
    if not num_files:
        where = "" if step is None else f" of step {step}"
        raise DataError(f"{run.folder} has no rollouts{where}")
    if not num_found:
        what = "solutions" if rollout is None else f"rollout {rollout!r}"
        raise DataError(f"{run.folder} has no {what} in these {num_files:,} files of rollouts")


def _grade(
    chosen: Sequence[tuple[RolloutSet, int, Rollout]],
    task: Config,
    limits: GradingConfig,
    spec: RewardSpec | None,
) -> list[Regraded]:
    has_tokens = all(len(item.completion.tokens) for _, _, item in chosen)
    if spec is not None and spec.needs_tokens and not has_tokens:
        raise ConfigError("the reward counts tokens, which some of these rollouts do not have")
    scores: dict[int, Score] = {}
    with (
        Grader([build_task(task)], limits, num_responses=len(chosen)) as grader,
        progress_bar("grading", len(chosen)) as advance,
    ):
        to_grade = ((number, item.problem, item.text) for number, (_, _, item) in enumerate(chosen))
        for number, score in grader.grade(to_grade):
            scores[number] = score
            advance(1)
    results = []
    for number, (name, step, stored) in enumerate(chosen):
        now = replace(stored, score=scores[number], reward=None)
        now = now if spec is None else spec.apply_to(now)
        results.append(Regraded(rollout_set=name, step=step, stored=stored, now=now))
    return results


def _print_all(
    run: RunStore, results: Sequence[Regraded], spec: RewardSpec | None, *, as_json: bool
) -> None:
    counts = Counter(_verdict(result.now) for result in results)
    changed = [result for result in results if result.has_other_verdict]
    other_scores = sum(result.has_other_score for result in results)
    other_rewards = sum(result.now.reward != result.stored.reward for result in results)
    groups: dict[tuple[str, int, str], list[Rollout]] = {}
    for result in results:
        key = (result.rollout_set, result.step, result.now.group_id)
        groups.setdefault(key, []).append(result.now)
    parts = [] if spec is None else summarise_parts(spec, [tuple(g) for g in groups.values()])
    if as_json:
        _print_json(
            {
                "run": str(run.folder),
                "responses": len(results),
                "verdicts": {str(verdict): count for verdict, count in counts.items()},
                "other_verdicts": len(changed),
                "other_scores": other_scores,
                "other_rewards": None if spec is None else other_rewards,
                "parts": [part.to_json() for part in parts],
            }
        )
        return
    listed = ", ".join(f"{counts[verdict]:,} {verdict.replace('_', ' ')}" for verdict in Verdict)
    lines = [f"{len(results):,} responses: {listed}", _describe_changes(changed, other_scores)]
    if spec is not None:
        count = f"{other_rewards:,} of" if other_rewards else "none of"
        lines.append(f"{count} {len(results):,} rewards differ from the stored ones")
        header = ["part", "weight", "mean", "adds", "if right", "if wrong", "variance", "in groups"]
        cells = [
            [
                part.name,
                *map(format_metric, (part.weight, part.mean, part.contribution)),
                *map(format_metric, (part.right, part.wrong)),
                *map(format_percent, (part.variance_fraction, part.variance_fraction_within)),
            ]
            for part in parts
        ]
        lines += ["", *align([header, *cells])]
    printer.print(visible("\n".join(lines)), markup=False)


def _describe_changes(changed: Sequence[Regraded], other_scores: int) -> str:
    parts = f"; {other_scores:,} have other parts or another answer" if other_scores else ""
    if not changed:
        return f"all verdicts are those stored{parts}"
    names = ", ".join(
        f"{item.now.id} of step {item.step} ({_verdict(item.stored)} before, now "
        f"{_verdict(item.now)})"
        for item in changed[:NUM_NAMED]
    )
    more = f" and {len(changed) - NUM_NAMED:,} more" if len(changed) > NUM_NAMED else ""
    return f"{len(changed):,} verdicts differ from those stored: {names}{more}{parts}"


def _print_one(result: Regraded, spec: RewardSpec | None, *, as_json: bool) -> None:
    is_rewarded = spec is not None and _verdict(result.now) != Verdict.UNSCORED
    parts = break_down(spec, result.now) if spec is not None and is_rewarded else []
    if as_json:
        _print_json(result.to_json() | {"contributions": [part.to_json() for part in parts]})
        return
    score = result.now.score
    assert score is not None, "it has been graded"
    before = "" if not result.has_other_verdict else f", stored as {_verdict(result.stored)}"
    lines = [f"{result.now.id} of step {result.step}: {score.verdict.replace('_', ' ')}{before}"]
    lines += [f"read as: {score.answer}"] if score.answer is not None else []
    lines += [score.note] if score.note else []
    if parts:
        cells = [
            [part.name, *map(format_metric, (part.weight, part.value, part.contribution))]
            for part in parts
        ]
        total = ["reward", "", "", format_metric(result.now.reward)]
        lines += ["", *align([["part", "weight", "value", "adds"], *cells, total])]
    printer.print(visible("\n".join(lines)), markup=False)


def _print_json(value: dict[str, Json]) -> None:
    printer.print(json.dumps(to_finite(value), indent=1, ensure_ascii=False), markup=False)


def _to_row(result: Regraded) -> dict[str, Json]:
    row = to_finite(result.to_json())
    assert isinstance(row, dict), "an object stays one"
    return row


def _verdict(rollout: Rollout) -> str | None:
    return None if rollout.score is None else rollout.score.verdict.value
