"""What a reader would not expect of a clean run: other code, interruptions, lost answers."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from whet.evals.formatting import percent
from whet.evals.summary import EvalSummary
from whet.results.arms import RunFolder
from whet.store.run import RunStore
from whet.toml import read

MUCH_CUT_OFF = 0.05
"""Share of cut answers from which it is a deviation."""
HEADER = re.compile(r"Differences: (.*?)(?= Needs\b| whet plan:|$)")
"""What the first comment of a recipe says of its source."""


def list_deviations(run: RunFolder) -> list[str]:
    """List the deviations of a run, each in one sentence, the same one once."""
    sentences = list(_of_recipe(next(iter(run.stages.values()))))
    for name, store in run.stages.items():
        sentences += [f"{name}: {sentence}" for sentence in _of_stage(store)]
    sentences += _of_code(run)
    return list(dict.fromkeys(sentences))


def _of_recipe(store: RunStore) -> Iterator[str]:
    """Quote the differences from its source that a recipe states, where its file is still here."""
    words = shlex.split(str(store.provenance().get("command") or ""))
    for file in (Path(word) for word in words if word.endswith(".toml")):
        if file.is_file():
            lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
            comment = " ".join(line[1:].strip() for line in lines if line.startswith("#"))
            if match := HEADER.search(comment):
                yield f"{file.name} says how it differs from its source: {match[1]}"


def _of_code(run: RunFolder) -> Iterator[str]:
    facts = [store.provenance() for store in run.stages.values()]
    if any(row.get("commit") is None for row in facts):
        yield "The commit of the code is not known."
    if any(row.get("changed") is True for row in facts):
        yield "The code had changes that are in no commit."
    commits = {str(row.get("commit"))[:12] for row in facts}
    if len(commits) > 1:
        yield f"The stages ran on different commits: {', '.join(sorted(commits))}."


def _of_stage(store: RunStore) -> Iterator[str]:
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
        if row["event"] == "too_long" and isinstance(row["problems"], list):
            yield f"{len(row['problems']):,} problems with too long prompts were left out."
    flags = [f"{key} = {value}" for key, value, origin in store.settings() if origin == "cli"]
    if flags:
        yield f"set on the command line: {', '.join(flags)}."
    yield from _of_answers(store)


def _of_answers(store: RunStore) -> Iterator[str]:
    """Tell of lost results, and of answers that were cut off or not graded."""
    steps = [int(row["step"]) for row in store.metrics()]
    yield from (f"lost: {loss}." for loss in store.list_lost_results(max(steps, default=0)))
    stored = set(store.rollout_steps("train"))
    trained = read(store.config_file).get("kind") in ("rl", "distill", "tango")
    if trained and (missing := set(steps) - stored - {0}):
        yield f"the answers of {len(missing):,} of {max(steps):,} steps are not stored."
    cut = [row["length/unfinished"] for row in store.metrics() if "length/unfinished" in row]
    if cut and cut[-1] >= MUCH_CUT_OFF:
        yield f"{percent(cut[-1])} of the answers of the last step were cut off at the limit."
    unscored = sum(row.get("score/unscored", 0.0) for row in store.metrics())
    if unscored:
        yield f"{unscored:,.0f} answers could not be graded and were not trained on."
    for step, row in store.evals().items():
        summary = EvalSummary.from_json(row)
        if summary.unfinished.mean >= MUCH_CUT_OFF:
            share = percent(summary.unfinished.mean)
            yield f"{share} of the answers of evaluation {step} were cut off at the limit."
        if summary.num_unscored:
            yield f"{summary.num_unscored:,} answers of evaluation {step} could not be graded."
