"""`whet card`: one page of facts about a run that a reader can check, as Markdown or JSON.

Every number is read from the run folder; `verify_card.py` recomputes a sample of them. Deviations
are facts that a reader would not expect of a clean run: changed code, interruptions, lost
responses.
"""

import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from whet.errors import visible
from whet.evals.stats import Estimate
from whet.evals.summary import MUCH_CUT_OFF, EvalSummary
from whet.pipeline.about import describe_run
from whet.pipeline.report import measure_seconds
from whet.recipes.evaluate import GREEDY, SAMPLED
from whet.reports.formatting import duration, number, percent, percent_interval
from whet.results.arms import RunFolder, load_stage, view_run_folder
from whet.store.files import check_target, sha256, write_atomic
from whet.store.rollouts import count_rows, count_tokens
from whet.store.run import RunStore
from whet.toml import read
from whet.track.progress import printer, say
from whet.types import Json

DEFAULT = "default"
HOUR = 3600.0
HEADER = re.compile(r"Differences: (.*?)(?= Needs\b| whet plan:|$)")
"""What the first comment of a recipe says of its source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting with its value, and its origin: default, a file, or cli."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured fraction with its interval."""

    name: str
    estimate: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class StageCard:
    """The facts of one stage."""

    name: str
    kind: str
    seed: int | None
    is_finished: bool
    started: str
    seconds: float
    device: str
    """The name of the GPU, cpu, or not recorded."""
    processes: int
    steps: int
    answers: int  # the key in the JSON of a card
    """Stored responses, of training and evaluation."""
    tokens: int
    """Tokens of these responses."""
    events: Mapping[str, int]
    """How often each event is in the ledger."""
    inputs: Mapping[str, str]
    """SHA-256 of each file that the stage read."""
    results: Mapping[str, str]
    """SHA-256 of the manifest of each checkpoint, of stored responses, and of the metrics."""
    figures: Sequence[Figure]
    settings: Sequence[Setting]

    @property
    def gpu_hours(self) -> float:
        return 0.0 if self.device in ("cpu", "") else self.seconds * self.processes / HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class RunCard:
    """The facts of a run, its stages in order."""

    name: str
    about: Mapping[str, str]
    code: Mapping[str, str]
    """Versions, machine, command, commit, of the first stage."""
    stages: Sequence[StageCard]
    deviations: Sequence[str]
    """What a reader would not expect of a clean run of these settings."""
    seconds: float
    tokens: int
    gpu_hours: float
    dollars: float | None
    """Where a price was given."""


def print_card(location: Path, out: Path | None, *, as_json: bool, price: float | None) -> None:
    """Print the card of a run, or write it to a file."""
    card = build_card(view_run_folder(location), price=price)
    text = json.dumps(card_to_json(card), indent=2) if as_json else render_card(card)
    if out is None:
        printer.print(visible(text), markup=False)
        return
    check_target(out)
    write_atomic(out, f"{text}\n")
    say(f"card in {out}")


def build_card(run: RunFolder, *, price: float | None = None) -> RunCard:
    """Gather the facts of a run."""
    stages = [_build_stage(name, store) for name, store in run.stages.items()]
    gpu_hours = sum(stage.gpu_hours for stage in stages)
    first = next(iter(run.stages.values()))
    facts = {key: str(item) for key, item in first.provenance().items() if item is not None}
    return RunCard(
        name=run.folder.resolve().name,
        about=_describe_run(run),
        code={key: text for key, text in facts.items() if key not in ("seed", "started")},
        stages=stages,
        deviations=list_deviations(run),
        seconds=sum(stage.seconds for stage in stages),
        tokens=sum(stage.tokens for stage in stages),
        gpu_hours=gpu_hours,
        dollars=None if price is None else price * gpu_hours,
    )


def card_to_json(card: RunCard) -> dict[str, Json]:
    """Write a card as JSON."""
    row: dict[str, Json] = TypeAdapter(RunCard).dump_python(card, mode="json")
    return row


def _describe_run(run: RunFolder) -> dict[str, str]:
    loaded = {name: load_stage(store) for name, store in run.stages.items()}
    stages = {name: stage for name, stage in loaded.items() if stage is not None}
    return describe_run(stages, {name: store.folder for name, store in run.stages.items()})


def _build_stage(name: str, store: RunStore) -> StageCard:
    settings = read(store.config_file)
    seed = settings.get("seed")
    files = [store.rollout_file(kind, step) for kind, step in store.list_rollouts()]
    machine = next((row for row in store.events() if row["event"] == "machine"), {})
    processes = machine.get("processes")
    return StageCard(
        name=name,
        kind=str(settings.get("kind")),
        seed=seed if isinstance(seed, int) else None,
        is_finished=store.is_finished,
        started=str(store.provenance().get("started")),
        seconds=measure_seconds(store),
        device=str(machine.get("device", "")),
        processes=processes if isinstance(processes, int) else 1,
        steps=len({row["step"] for row in store.metrics() if row["step"] > 0}),
        answers=sum(map(count_rows, files)),
        tokens=sum(map(count_tokens, files)),
        events=dict(Counter(str(row["event"]) for row in store.events())),
        inputs=store.inputs(),
        results=_hash_results(store),
        figures=list(_list_figures(store)),
        settings=[Setting(key=k, value=v, origin=o) for k, v, o in store.settings()],
    )


def _hash_results(store: RunStore) -> dict[str, str]:
    manifests = [folder / "manifest.json" for folder in store.checkpoint_folders().values()]
    rollout_files = [store.rollout_file(kind, step) for kind, step in store.list_rollouts()]
    shown = [*manifests, *rollout_files[-1:], store.metrics_file, store.summary_file]
    return {str(f.relative_to(store.folder)): sha256(f) for f in shown if f.is_file()}


def _list_figures(store: RunStore) -> Iterator[Figure]:
    """List the evaluations of a stage; for a training stage, its last validation."""
    evals = store.evals()
    is_eval = read(store.config_file).get("kind") == "eval"
    titles = {SAMPLED: "sampled", GREEDY: "greedy"} if is_eval else {}
    if evals and not is_eval:
        titles = {max(evals): f"validation after step {max(evals)}"}
    for step, title in titles.items():
        if step in evals:
            for k, estimate in EvalSummary.from_json(evals[step]).pass_at.items():
                yield Figure(name=f"{title}, pass@{k}", estimate=estimate)


def render_card(card: RunCard) -> str:
    """Write a card as Markdown."""
    lines = [f"# Run card: {card.name}", ""]
    lines += [f"- {name}: {_escape(text)}" for name, text in card.about.items()]
    lines += ["", "## Results", ""]
    rows = [
        (
            stage.name,
            figure.name,
            percent_interval(figure.estimate, 1),
            f"{figure.estimate.count:,}",
        )
        for stage in card.stages
        for figure in stage.figures
    ]
    lines += _table(("stage", "figure", "share solved, 95 % interval", "problems"), rows)
    lines += ["", "## Known deviations", ""]
    lines += [f"- {_escape(text)}" for text in card.deviations] or ["None found."]
    lines += ["", "## Time and cost", ""]
    times = [
        (
            s.name,
            s.seed,
            duration(s.seconds),
            s.device or "not recorded",
            s.processes,
            s.steps,
            f"{s.answers:,}",
            f"{s.tokens:,}",
        )
        for s in card.stages
    ]
    titles = ("stage", "seed", "time", "device", "processes", "steps", "answers", "tokens")
    lines += _table(titles, times)
    cost = "" if card.dollars is None else f", {number(card.dollars, 2)} dollars"
    lines += [
        "",
        f"Together {duration(card.seconds)}, {card.tokens:,} tokens of responses, "
        f"{card.gpu_hours:.2f} GPU hours{cost}.",
    ]
    lines += ["", "## Code", ""]
    lines += [f"- {name}: {_escape(text)}" for name, text in card.code.items()]
    lines += ["", "## Files", ""]
    files = [(s.name, n, h) for s in card.stages for n, h in {**s.inputs, **s.results}.items()]
    lines += _table(("stage", "file", "SHA-256"), files)
    lines += ["", "## Ledger", ""]
    events = [(s.name, ", ".join(f"{e} {n}" for e, n in s.events.items())) for s in card.stages]
    lines += _table(("stage", "events"), events)
    lines += ["", "## Settings that are not defaults", ""]
    changed = [
        (s.name, f"`{setting.key}`", setting.value, setting.origin)
        for s in card.stages
        for setting in s.settings
        if setting.origin != DEFAULT
    ]
    lines += _table(("stage", "setting", "value", "origin"), changed)
    return "\n".join(lines)


def _table(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    if not rows:
        return ["None."]
    cells = [titles, ["---"] * len(titles), *rows]
    return [f"| {' | '.join(_escape(str(cell)) for cell in row)} |" for row in cells]


def _escape(text: str) -> str:
    """Keep a text on one line and inside its cell."""
    return " ".join(text.split()).replace("|", "\\|")


def list_deviations(run: RunFolder) -> list[str]:
    """List the deviations of a run, one sentence each, without repeats."""
    sentences = list(_quote_recipe(next(iter(run.stages.values()))))
    for name, store in run.stages.items():
        sentences += [f"{name}: {sentence}" for sentence in _describe_stage(store)]
    sentences += _describe_code(run)
    return list(dict.fromkeys(sentences))


def _quote_recipe(store: RunStore) -> Iterator[str]:
    """Quote the recipe's own list of differences from its source, if its file is still here, and
    say whether this is its smoke form."""
    words = shlex.split(str(store.provenance().get("command") or ""))
    if "--smoke" in words:
        yield "This is a smoke run: a few steps of tiny models on generated inputs."
    for file in (Path(word) for word in words if word.endswith(".toml")):
        if file.is_file():
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            comment = " ".join(line[1:].strip() for line in lines if line.startswith("#"))
            if match := HEADER.search(comment):
                yield f"{file.name} says how it differs from its source: {match[1]}"


def _describe_code(run: RunFolder) -> Iterator[str]:
    facts = [store.provenance() for store in run.stages.values()]
    if any(row.get("commit") is None for row in facts):
        yield "The commit of the code is not known."
    if any(row.get("changed") is True for row in facts):
        yield "The code had changes that are in no commit."
    commits = {str(row.get("commit"))[:12] for row in facts}
    if len(commits) > 1:
        yield f"The stages ran on different commits: {', '.join(sorted(commits))}."


def _describe_stage(store: RunStore) -> Iterator[str]:
    events = [row["event"] for row in store.events()]
    if not store.is_finished:
        yield "it is not finished."
    if resumed := events.count("resume"):
        yield f"it was resumed {resumed} times."
    for row in store.events():
        if row["event"] == "extend":
            yield f"it was extended from {row['before']} to {row['steps']} steps."
        if row["event"] == "restore":
            yield f"a guard went back to step {row['best']} after step {row['step']}."
        if row["event"] in ("note", "worse"):
            yield f"{row['said']}."
        if row["event"] == "too_long" and isinstance(row["problems"], list):
            yield f"{len(row['problems']):,} problems with too long prompts were left out."
    flags = [f"{key} = {value}" for key, value, origin in store.settings() if origin == "cli"]
    if flags:
        yield f"set on the command line: {', '.join(flags)}."
    yield from _list_missing_responses(store)


def _list_missing_responses(store: RunStore) -> Iterator[str]:
    """Report lost results, and responses that were cut off or could not be graded."""
    steps = [int(row["step"]) for row in store.metrics()]
    yield from (f"lost: {loss}." for loss in store.list_lost_results(max(steps, default=0)))
    stored = set(store.rollout_steps("train"))
    trained = read(store.config_file).get("kind") in ("rl", "distill", "tango")
    if trained and (missing := set(steps) - stored - {0}):
        yield f"the responses of {len(missing):,} of {max(steps):,} steps are not stored."
    cut = [row["length/unfinished"] for row in store.metrics() if "length/unfinished" in row]
    if cut and cut[-1] >= MUCH_CUT_OFF:
        yield f"{percent(cut[-1])} of the responses of the last step were cut off at the limit."
    unscored = sum(row.get("score/unscored", 0.0) for row in store.metrics())
    if unscored:
        yield f"{unscored:,.0f} responses could not be graded and were not trained on."
    for step, row in store.evals().items():
        summary = EvalSummary.from_json(row)
        if summary.unfinished.mean >= MUCH_CUT_OFF:
            fraction = percent(summary.unfinished.mean)
            yield f"{fraction} of the responses of evaluation {step} were cut off at the limit."
        if summary.num_unscored:
            yield f"{summary.num_unscored:,} responses of evaluation {step} could not be graded."
