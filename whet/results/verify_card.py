"""`whet card --verify`: recompute a sample of the numbers in a run folder, and compare.

It checks hashes of inputs and results, checkpoints against their manifests, metrics and evaluations
against stored responses, and verdicts against the grader. A loss cannot be recomputed this way, and
is not checked.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from math import isclose
from pathlib import Path

from whet.errors import DataError, WhetError, visible
from whet.evals.summary import EvalSummary, summarise
from whet.grading.grader import Grader
from whet.pipeline.pipeline import hash_inputs
from whet.pipeline.report import summarise_evals
from whet.recipes.distill import DistillConfig
from whet.recipes.rl import RLConfig
from whet.results.arms import RunFolder, load_stage, view_run_folder
from whet.rng import make_rng
from whet.rollout.collect import group_rollouts
from whet.stages.stage import StageConfig
from whet.store.checkpoint_folders import check_checkpoint
from whet.store.files import find_damage, read_object
from whet.store.run import RunStore
from whet.tasks.task_config import build_task
from whet.toml import read
from whet.track.metrics import measure_rollouts
from whet.track.progress import printer, progress_bar
from whet.types import Json, Rollout, Verdict

INTERVAL_SLACK = 0.15
"""Share of an interval's width by which its ends may differ from those computed now."""
NUM_REGRADED = 64
"""Responses of a stage that are graded again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One comparison: whether the values agree, or None if there was nothing to compare."""

    stage: str
    what: str
    agrees: bool | None
    sentence: str


def verify_card(location: Path, *, as_json: bool) -> bool:
    """Check a run folder, print every check, and return whether all of them agree."""
    run = view_run_folder(location)
    checks = []
    with progress_bar("verify", len(run.stages)) as advance:
        for name, store in run.stages.items():
            checks += check_stage(name, store)
            advance(1)
    if run.is_pipeline:
        checks += _check_pipeline(run)
    if as_json:
        printer.print_json(json.dumps([asdict(check) for check in checks]))
    else:
        _print_checks(checks)
    return all(check.agrees is not False for check in checks)


def check_stage(name: str, store: RunStore) -> list[Check]:
    """Recompute a sample of the numbers of one stage."""
    stage = load_stage(store)
    parts: dict[str, Callable[[], Iterator[tuple[bool | None, str]]]] = {
        "input files": lambda: _check_inputs(store, stage),
        "made files": lambda: _check_made(store),
        "checkpoints": lambda: _check_checkpoints(store),
        "steps": lambda: _check_steps(store),
        "metrics": lambda: _check_metrics(store, stage),
        "validations": lambda: _check_validations(store),
        "evaluations": lambda: _check_evaluations(store),
        "grading": lambda: _check_grading(store, stage),
    }
    checks = []
    for what, check in parts.items():
        try:
            outcomes = list(check())
        except (WhetError, KeyError, TypeError, ValueError) as error:
            outcomes = [(False, f"cannot be read: {error}")]
        checks += [
            Check(stage=name, what=what, agrees=ok, sentence=sentence) for ok, sentence in outcomes
        ]
    return checks


def _check_inputs(store: RunStore, stage: StageConfig | None) -> Iterator[tuple[bool | None, str]]:
    before = store.inputs()
    now = hash_inputs(stage) if stage is not None else {}
    for file, digest in before.items():
        if file not in now:
            yield None, f"{file} is missing"
        else:
            is_same = now[file] == digest
            yield is_same, f"{file} {'is unchanged' if is_same else 'is not the file of the run'}"


def _check_made(store: RunStore) -> Iterator[tuple[bool | None, str]]:
    hashes = store.summary().get("files") if store.is_finished else None
    if isinstance(hashes, dict):
        damage = find_damage(store.folder, hashes)
        yield damage is None, damage or f"{len(hashes)} files are as they were made"


def _check_checkpoints(store: RunStore) -> Iterator[tuple[bool | None, str]]:
    folders = store.checkpoint_folders()
    for step, folder in folders.items():
        damage = check_checkpoint(folder)
        yield damage is None, f"step {step}: {damage or 'all files match its manifest'}"
    model = store.summary().get("model") if store.is_finished else None
    if isinstance(model, str) and not (store.folder / model).is_dir():
        yield False, f"the model of the summary, {model}, is not there"


def _check_steps(store: RunStore) -> Iterator[tuple[bool | None, str]]:
    """Compare the number of steps in the settings with the metrics."""
    steps = read(store.config_file).get("steps")
    if not isinstance(steps, int) or not store.is_finished:
        return
    logged = {int(row["step"]) for row in store.metrics()} - {0}
    missing = set(range(1, steps + 1)) - logged
    extra = logged - set(range(1, steps + 1))
    is_same = not missing and not extra
    sentence = f"all {steps:,} steps are logged"
    if not is_same:
        sentence = (
            f"{len(missing):,} of {steps:,} steps are not logged, {len(extra):,} are too many"
        )
    yield is_same, sentence


def _check_metrics(store: RunStore, stage: StageConfig | None) -> Iterator[tuple[bool | None, str]]:
    """Recompute response metrics of a few steps from the stored responses."""
    if not isinstance(stage, RLConfig | DistillConfig):
        return
    rows = {int(row["step"]): row for row in store.metrics() if "length/mean" in row}
    steps = [step for step in store.rollout_steps("train") if step in rows]
    for step in sorted({steps[0], steps[len(steps) // 2], steps[-1]}) if steps else []:
        groups = group_rollouts(store.rollouts("train", step))
        if isinstance(stage, RLConfig):
            groups = stage.dynamic_sampling.first_responses(groups)
        now = measure_rollouts(groups)
        shared = {key: rows[step][key] for key in now if key in rows[step]}
        wrong = _list_differences(dict(shared), {key: now[key] for key in shared})
        sentence = "; ".join(wrong) or f"{len(shared)} metrics are as the stored responses say"
        yield not wrong, f"step {step}: {sentence}"


def _check_validations(store: RunStore) -> Iterator[tuple[bool | None, str]]:
    """Compare the validations in evals/ with the metrics and the summary."""
    if read(store.config_file).get("kind") == "eval":
        return
    key = "validation/pass@1"
    logged = {int(row["step"]): row[key] for row in store.metrics() if key in row}
    stored = {s: EvalSummary.from_json(row).pass_at[1].mean for s, row in store.evals().items()}
    for step in sorted({*logged, *stored}):
        metric, evaluation = logged.get(step), stored.get(step)
        is_same = metric is not None and evaluation is not None and _is_close(metric, evaluation)
        differ = f"metrics say {metric}, evals {evaluation}"
        yield is_same, f"step {step}: {'metrics and evals agree' if is_same else differ}"
    best = store.summary().get("validation_pass@1") if store.is_finished else None
    kept = store.summary().get("step") if store.is_finished else None
    if isinstance(best, float) and isinstance(kept, int) and kept in stored:
        yield _is_close(best, stored[kept]), f"the summary has {best:.6g} for step {kept}"


def _check_evaluations(store: RunStore) -> Iterator[tuple[bool | None, str]]:
    """Recompute the summaries of evaluations from their stored responses."""
    if read(store.config_file).get("kind") != "eval":
        return
    summary = store.summary() if store.is_finished else {}
    for (step, row), title in zip(store.evals().items(), ("sampled", "greedy"), strict=False):
        stored = EvalSummary.from_json(row)
        groups = group_rollouts(store.rollouts("eval", step))
        now = summarise(groups, ks=sorted(stored.pass_at)).to_json()
        wrong = _list_differences(row, now)
        yield not wrong, f"{title}: {'; '.join(wrong) or 'as the stored responses say'}"
        listed = summary.get(title)
        if listed is not None:
            wrong = _list_differences(listed, now)
            yield not wrong, f"{title} in the summary: {'; '.join(wrong) or 'the same'}"


def _check_grading(store: RunStore, stage: StageConfig | None) -> Iterator[tuple[bool | None, str]]:
    """Grade a sample of the stored responses again."""
    rollouts = _draw_rollouts(store)
    if not rollouts:
        return
    if stage is None:
        yield None, "another version of whet wrote the settings, so its task is not known"
        return
    task = build_task(stage.task)
    judges = {subtask.name for subtask in task.subtasks if not subtask.is_repeatable}
    if any(rollout.problem.task in judges for rollout in rollouts):
        yield None, "a judge graded the responses, and is not asked again"
        return
    with Grader(task, stage.grading_limits, len(rollouts)) as grader:
        jobs = [(index, r.problem, r.text) for index, r in enumerate(rollouts)]
        scores = dict(grader.grade(jobs))
    wrong = []
    for index, rollout in enumerate(rollouts):
        before, now = rollout.score, scores[index]
        if before is None or before.verdict is Verdict.UNSCORED:
            continue
        parts = _list_differences(dict(before.parts), dict(now.parts))
        if before.verdict is not now.verdict or parts:
            reason = "; ".join(parts) or f"{before.verdict} is stored"
            wrong.append(f"{rollout.id}: {now.verdict} now, {reason}")
    sentence = f"{len(wrong)} of {len(rollouts)} differ: {wrong[0]}" if wrong else ""
    yield not wrong, sentence or f"{len(rollouts)} responses have the same verdicts and parts"


def _draw_rollouts(store: RunStore) -> list[Rollout]:
    """Draw graded responses at random, from every evaluation and a few training steps."""
    files = store.list_rollouts()
    rng = make_rng(0, "verify")
    chosen = rng.sample(files, min(4, len(files)))
    drawn: list[Rollout] = []
    for kind, step in chosen:
        rollouts = [r for r in store.rollouts(kind, step) if r.score is not None]
        count = min(len(rollouts), max(1, NUM_REGRADED // len(chosen)))
        drawn += rng.sample(rollouts, count)
    return drawn


def _check_pipeline(run: RunFolder) -> list[Check]:
    """Compare the summary of a pipeline with the evaluations of its stages."""
    file = RunStore(run.folder, lock=None).summary_file
    if not file.is_file():
        return [Check(stage="", what="summary", agrees=None, sentence="there is no summary.json")]
    try:
        stored = read_object(file).get("stages")
        evals = [s.folder for s in run.stages.values() if read(s.config_file).get("kind") == "eval"]
        now = [summarise_evals("", folder) for folder in evals]
        rows = stored if isinstance(stored, list) else []
        unnamed = [{**row, "name": ""} for row in rows if isinstance(row, dict)]
        wrong = _list_differences(list(unnamed), list(now))
    except DataError as error:
        wrong = [str(error)]
    sentence = "; ".join(wrong) or "as the evaluations of its stages"
    return [Check(stage="", what="summary.json", agrees=not wrong, sentence=sentence)]


def _is_close(one: float, other: float) -> bool:
    return isclose(one, other, rel_tol=1e-6, abs_tol=1e-9)


def _list_differences(one: Json, other: Json, path: str = "") -> list[str]:
    """List the differences between two JSON values; numbers may differ by rounding."""
    if isinstance(one, int | float) and isinstance(other, int | float):
        is_same = _is_close(float(one), float(other))
        return [] if is_same else [f"{path} is {one:.6g}, and {other:.6g} when computed again"]
    if isinstance(one, dict) and isinstance(other, dict):
        again = _accept_close_interval(one, other)
        pairs = [(key, one.get(key), again.get(key)) for key in sorted({*one, *again})]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(str(i), a, b) for i, (a, b) in enumerate(zip(one, other, strict=True))]
    else:
        return (
            []
            if one == other
            else [f"{path} is {one!r:.60}, and {other!r:.60} when computed again"]
        )
    return [d for key, a, b in pairs for d in _list_differences(a, b, f"{path}.{key}".strip("."))]


def _accept_close_interval(
    one: Mapping[str, Json], other: Mapping[str, Json]
) -> Mapping[str, Json]:
    """Accept the stored ends of an interval if another method gives nearly the same.

    A later version of whet may compute intervals differently; means and counts never differ.
    """
    ends = [row.get(end) for row in (one, other) for end in ("low", "high")]
    if not all(isinstance(end, float) for end in ends):
        return other
    low, high, low_now, high_now = (float(str(end)) for end in ends)
    slack = INTERVAL_SLACK * (high_now - low_now)
    if abs(low - low_now) <= slack and abs(high - high_now) <= slack:
        return {**other, "low": low, "high": high}
    return other


def _print_checks(checks: Sequence[Check]) -> None:
    marks: Mapping[bool | None, str] = {True: "agrees", False: "DIFFERS", None: "not there"}
    for check in checks:
        where = f"{check.stage} " if check.stage else ""
        printer.print(
            visible(f"{marks[check.agrees]:<9} {where}{check.what}: {check.sentence}"), markup=False
        )
    wrong = sum(check.agrees is False for check in checks)
    words = f"{wrong} of {len(checks)} checks differ" if wrong else f"{len(checks)} checks agree"
    printer.print(words)
