"""A user's own advantage or surrogate, `my_algo.py:name`: loaded, called, and checked.

Whatever is wrong with it is one sentence that names the setting and the function.
"""

import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from whet.algos.advantages import Advantage, Rewards, State
from whet.algos.losses import Surrogate, TokenTerms
from whet.errors import ConfigError
from whet.user_code import load_from_file


def load_advantage(reference: str) -> Advantage:
    """Load an advantage that takes and returns what those of `whet/algos/advantages.py` do."""
    label = f"algo.advantage = {reference!r}"
    call = _load_function(reference, label)

    def advantage(rewards: Rewards, state: State) -> tuple[list[list[float]], State]:
        result = call(rewards, state)
        try:
            values, next_state = result
            lengths = [len(group) for group in values]
        except (TypeError, ValueError) as error:
            raise ConfigError(
                f"{label} should return advantages, a list per group, and the next state"
            ) from error
        if lengths != [len(group) for group in rewards]:
            raise ConfigError(f"{label} should return as many numbers as each group has rewards")
        return values, next_state

    return advantage


def load_surrogate(reference: str) -> Surrogate:
    """Load a surrogate: ratios [M] and terms -> losses [M]."""
    label = f"algo.surrogate = {reference!r}"
    call = _load_function(reference, label)

    def surrogate(ratio_M: Tensor, terms: TokenTerms) -> tuple[Tensor, dict[str, Tensor]]:
        loss_M = call(ratio_M, terms)
        if not isinstance(loss_M, Tensor) or loss_M.shape != ratio_M.shape:
            raise ConfigError(f"{label} should return a loss per token")
        return loss_M, {}

    return surrogate


def _load_function(reference: str, label: str) -> Callable[..., Any]:
    function = load_from_file(reference)
    if not callable(function):
        raise ConfigError(f"{label} should name a function")
    file = str(Path(reference.rpartition(":")[0]).resolve())

    def call(*args: object) -> Any:
        try:
            return function(*args)
        except torch.OutOfMemoryError:
            raise
        except Exception as error:  # a user's function may raise anything
            frames = traceback.extract_tb(error.__traceback__)
            lines = [frame.lineno for frame in frames if frame.filename == file]
            where = f" in line {lines[-1]}" if lines else ""
            raise ConfigError(f"{label} raised {type(error).__name__}{where}: {error}") from error

    return call
