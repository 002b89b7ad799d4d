"""`whet card`: one page of facts about a run that a reader can check, as Markdown or JSON.

Every number is read from the run folder; `verify.py` computes a sample of them again.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import TypeAdapter

from whet.config import load_settings
from whet.errors import ConfigError, visible
from whet.evals.formatting import duration, number, percent_interval
from whet.evals.stats import Estimate
from whet.evals.summary import EvalSummary
from whet.pipeline.about import describe_run
from whet.pipeline.pipeline import KINDS
from whet.pipeline.report import measure_seconds
from whet.recipes.evaluate import GREEDY, SAMPLED
from whet.recipes.stage import StageConfig
from whet.results.arms import RunFolder, open_folder
from whet.results.deviations import list_deviations
from whet.store.files import check_target, sha256, write_atomic
from whet.store.rollouts import count_rows, count_tokens
from whet.store.run import RunStore
from whet.toml import read
from whet.track.progress import printer, say
from whet.types import Json

DEFAULT = "default"
HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting as it was, and where it came from: default, a file, or cli."""

    key: str
    value: str
    origin: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One measured share with its interval."""

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
    answers: int
    """Stored answers, of training and evaluation."""
    tokens: int
    """Of these answers."""
    events: Mapping[str, int]
    """How often each event is in the ledger."""
    inputs: Mapping[str, str]
    """SHA-256 of each file that the stage read."""
    results: Mapping[str, str]
    """SHA-256 of the manifest of each checkpoint, of stored answers, and of the metrics."""
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
    """Print the card of a run, or write it."""
    card = build_card(open_folder(location), price=price)
    text = json.dumps(to_json(card), indent=2) if as_json else render_card(card)
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
        about=_describe(run),
        code={key: text for key, text in facts.items() if key not in ("seed", "started")},
        stages=stages,
        deviations=list_deviations(run),
        seconds=sum(stage.seconds for stage in stages),
        tokens=sum(stage.tokens for stage in stages),
        gpu_hours=gpu_hours,
        dollars=None if price is None else price * gpu_hours,
    )


def to_json(card: RunCard) -> dict[str, Json]:
    """Write a card as JSON."""
    row: dict[str, Json] = TypeAdapter(RunCard).dump_python(card, mode="json")
    return row


def load_stage(store: RunStore) -> StageConfig | None:
    """Load the settings of a stage; None where another version of whet wrote them."""
    try:
        kind = KINDS[str(read(store.config_file).get("kind"))]
        return load_settings(kind, store.config_file, []).config
    except (ConfigError, KeyError):
        return None


def _describe(run: RunFolder) -> dict[str, str]:
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
    answers = [store.rollout_file(kind, step) for kind, step in store.list_rollouts()]
    shown = [*manifests, *answers[-1:], store.metrics_file, store.summary_file]
    return {str(f.relative_to(store.folder)): sha256(f) for f in shown if f.is_file()}


def _list_figures(store: RunStore) -> Iterator[Figure]:
    """List the evaluations of a stage, of a training stage its last validation."""
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
        f"Together {duration(card.seconds)}, {card.tokens:,} tokens of answers, "
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
    """Keep a text on its line and in its cell."""
    return " ".join(text.split()).replace("|", "\\|")
