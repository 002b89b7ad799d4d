"""One prompt for teacher, SFT, RL and evaluation: a stage that puts problems to a model in other
words than the run before it is refused, unless it says so."""

from collections.abc import Callable

from whet.errors import ConfigError
from whet.recipes.training import StageConfig

COMPARED = ("model.path", "data")
"""Inputs that were made under a prompt; a verifier and a teacher of logits read what they get."""
MAX_SHOWN = 300
"""Characters of a prompt that the sentence quotes."""


def check_prompt(stage: StageConfig, find_maker: Callable[[str], StageConfig | None]) -> None:
    """Compare a stage's prompt with that of the stages or runs that made its model and answers."""
    own = stage.answer_prompt
    if own is None or own.differs:
        return
    for setting, location in stage.inputs.items():
        maker = find_maker(location) if setting in COMPARED else None
        other = None if maker is None else maker.answer_prompt
        if other is not None and not other.is_same(own):
            ours, theirs = (prompt.describe()[:MAX_SHOWN] for prompt in (own, other))
            raise ConfigError(
                f"{stage.kind} puts problems to the model by prompt = {ours}, but its {setting} = "
                f"{location!r} was made by prompt = {theirs}: give both the same, or set "
                "prompt.differs = true"
            )
