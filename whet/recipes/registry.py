"""The kinds of stages: one line registers a kind, and its settings class has the rest.

Nothing heavy is loaded here: the command line reads the table for its help.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class StageKind:
    """Where the settings of a kind are, and the command that runs one such stage by itself."""

    path: str
    """Module and class."""
    help: str = ""
    """The help of the command; empty if the kind exists only in pipelines."""
    on_ranks: bool = True
    """Whether the command can run on several processes."""


STAGES = {
    "make": StageKind("whet.recipes.make:MakeConfig"),
    "teach": StageKind(
        "whet.recipes.teach:TeachConfig",
        "Write responses for a model to imitate, or ask a larger model for them. "
        "`whet teach status RUN` shows how far it is.",
        on_ranks=False,
    ),
    "sft": StageKind("whet.recipes.sft:SFTConfig", "Fine-tune a model on stored responses."),
    "difficulty": StageKind("whet.recipes.difficulty:DifficultyConfig"),
    "rl": StageKind("whet.recipes.rl:RLConfig", "Train a model by reinforcement learning."),
    "dpo": StageKind("whet.recipes.dpo:DPOConfig", "Train a model to prefer better responses."),
    "distill": StageKind(
        "whet.recipes.distill:DistillConfig", "Bring a model closer to a teacher."
    ),
    "tango": StageKind(
        "whet.recipes.tango:TangoConfig", "Train a generator and a verifier together."
    ),
    "verifications": StageKind("whet.recipes.verifications:VerificationsConfig"),
    "eval": StageKind(
        "whet.recipes.evaluate:EvalConfig",
        "Measure a model, with intervals; with `--suite NAME`, several models on several "
        "benchmarks.",
    ),
}
"""The kinds of the package, by their names in files."""
COMMANDS = {name: kind for name, kind in STAGES.items() if kind.help}
ON_RANKS = ("run", *(name for name, kind in COMMANDS.items() if kind.on_ranks))
"""Kinds of files that run on several processes."""
