"""Load a user's own advantage or surrogate, `my_algo.py:name`, and check what it returns.

An error is one sentence that names the setting, the function and the returned value.
"""

from collections.abc import Callable
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from whet.algos.advantages import (
    AdvantageEstimator,
    AdvantageMark,
    AdvantageSpec,
    Baseline,
    ResponseAdvantage,
    Rewards,
    TokenAdvantage,
    TokenAdvantageEstimator,
)
from whet.algos.losses import LossInputs, Surrogate
from whet.errors import ConfigError
from whet.types import Doubles
from whet.user_code import load_from_file, load_function

ADVANTAGE_KEY = "algo.advantage"


def load_advantage(code_path: str) -> AdvantageSpec:
    """Read the mark of a user's advantage; building the advantage loads the function.

    Without a mark, the function has the signature of `AdvantageEstimator`. If its file is missing,
    a critic is assumed, so that old runs with critic settings can still be read; a run reports the
    missing file when it builds the advantage.
    """
    mark: AdvantageMark | None = "uses_critic"
    if Path(code_path.rpartition(":")[0]).is_file():
        mark = getattr(load_from_file(code_path, ADVANTAGE_KEY), "advantage_mark", None)
    if mark is None:
        return ResponseAdvantage(build=partial(_load_response_advantage, code_path))
    if mark == "per_token":
        return TokenAdvantage(build=partial(_load_token_advantage, code_path))
    return TokenAdvantage(build=partial(_load_critic_advantage, code_path), needs_critic=True)


def load_surrogate(code_path: str) -> Surrogate:
    """Load a surrogate: ratios [M] and inputs -> losses [M], or losses and metrics [M] by name."""
    label = f"algo.surrogate = {code_path!r}"
    call = _load_function(code_path, "algo.surrogate", ("ratio_M", "inputs"))

    def check_gradient(gradient_M: Tensor) -> None:
        if not gradient_M.isfinite().all():
            raise ConfigError(
                f"{label} returned finite losses whose gradient is not finite; torch.where does "
                "not stop the NaN of the branch it leaves out"
            )

    def surrogate(ratio_M: Tensor, inputs: LossInputs) -> tuple[Tensor, dict[str, Tensor]]:
        own_ratio_M = ratio_M.view_as(ratio_M)  # its gradient comes from the user's function alone
        result = call(own_ratio_M, inputs)
        loss_M, metrics = result if _is_pair(result) else (result, {})
        if not isinstance(loss_M, Tensor) or loss_M.shape != ratio_M.shape:
            raise ConfigError(
                f"{label} should return a loss per token, a tensor [M] with M = {len(ratio_M)}, "
                f"not {_describe(loss_M)}"
            )
        if inputs.logprob_M.requires_grad and not loss_M.requires_grad:
            raise ConfigError(
                f"{label} should return a loss with a gradient, not a detached tensor: compute it "
                "from ratio_M or inputs.logprob_M without .detach(), .item() or torch.no_grad()"
            )
        for name, value in metrics.items():
            is_per_token = isinstance(value, Tensor) and value.shape == ratio_M.shape
            if not is_per_token or "/" not in str(name):
                raise ConfigError(
                    f"{label} should return metrics by area/name, each a tensor [M] with "
                    f"M = {len(ratio_M)}, not {name!r}: {_describe(value)}"
                )
        is_bad_M = ratio_M.isfinite() & ~loss_M.isfinite()
        if is_bad_M.any():
            raise ConfigError(
                f"{label} should return finite losses, not {loss_M[is_bad_M][0].item()} at a "
                f"ratio of {ratio_M[is_bad_M][0].item():.4g}"
            )
        if own_ratio_M.requires_grad:
            own_ratio_M.register_hook(check_gradient)  # type: ignore[no-untyped-call]
        return loss_M, metrics

    return surrogate


def _load_response_advantage(code_path: str) -> AdvantageEstimator:
    """Load an advantage of whole responses; it may return arrays and tensors."""
    label = f"{ADVANTAGE_KEY} = {code_path!r}"
    call = _load_function(code_path, ADVANTAGE_KEY, ("rewards", "baseline"))

    def advantage(rewards: Rewards, baseline: Baseline) -> tuple[list[list[float]], Baseline]:
        result = call(rewards, baseline)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ConfigError(
                f"{label} should return advantages, a list per group, and the next baseline, not "
                f"{_describe(result)}"
            )
        groups, next_baseline = map(_to_plain, result)
        if not isinstance(groups, list) or not all(isinstance(group, list) for group in groups):
            raise ConfigError(
                f"{label} should return advantages as a list per group, not {_describe(result[0])}"
            )
        lengths = [len(group) for group in groups]
        wanted = [len(group) for group in rewards]
        if lengths != wanted:
            raise ConfigError(
                f"{label} should return one number per reward of each group, {wanted}, not "
                f"{lengths}"
            )
        for value in (value for group in groups for value in group):
            if not _is_finite(value):
                raise ConfigError(f"{label} should return finite numbers, not {_describe(value)}")
        if not isinstance(next_baseline, dict):
            raise ConfigError(
                f"{label} should return the next baseline as a dict from names to numbers, not "
                f"{_describe(next_baseline)}; {{}} is an empty one"
            )
        for name, value in next_baseline.items():
            if not isinstance(name, str) or not _is_finite(value):
                raise ConfigError(
                    f"{label} should return a baseline of finite numbers by name, not "
                    f"{name!r}: {_describe(result[1][name])}"
                )
        return groups, next_baseline

    return advantage


def _load_token_advantage(code_path: str) -> TokenAdvantageEstimator:
    """Load a token advantage without a critic: token `rewards` of one response -> advantages."""
    label = f"{ADVANTAGE_KEY} = {code_path!r}"
    call = _load_function(code_path, ADVANTAGE_KEY, ("rewards",))

    def advantage(reward: Doubles, value: Doubles | None) -> tuple[Doubles, Doubles | None]:
        return _check_row(call(reward), len(reward), f"{label} should return advantages"), None

    return advantage


def _load_critic_advantage(code_path: str) -> TokenAdvantageEstimator:
    """Load a token advantage with a critic: token `rewards` and `values` of one response ->
    advantages, and targets of the values."""
    label = f"{ADVANTAGE_KEY} = {code_path!r}"
    call = _load_function(code_path, ADVANTAGE_KEY, ("rewards", "values"))

    def advantage(reward: Doubles, value: Doubles | None) -> tuple[Doubles, Doubles | None]:
        rule = f"{label} should return advantages and value targets"
        result = call(reward, value)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ConfigError(f"{rule}, not {_describe(result)}")
        advantages, targets = (_check_row(row, len(reward), rule) for row in result)
        return advantages, targets

    return advantage


def _check_row(value: object, tokens: int, rule: str) -> Doubles:
    """Return a row of numbers, one per token, as an array."""
    row = _to_plain(value)
    if not isinstance(row, list) or len(row) != tokens or not all(map(_is_finite, row)):
        raise ConfigError(
            f"{rule}, a finite number for each of {tokens} tokens, not {_describe(row)}"
        )
    return np.array(row)


def _load_function(code_path: str, key: str, parameters: tuple[str, ...]) -> Callable[..., Any]:
    return load_function(code_path, key, parameters, passes=(torch.OutOfMemoryError,))


def _is_pair(result: object) -> bool:
    """Whether a function returned metrics besides its loss."""
    return isinstance(result, tuple) and len(result) == 2 and isinstance(result[1], dict)


def _to_plain(value: object) -> Any:
    """Turn arrays and tensors at any depth into numbers and lists."""
    if isinstance(value, Tensor | np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: _to_plain(item) for name, item in value.items()}
    return [_to_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and isfinite(value)


def _describe(value: object) -> str:
    """Describe a returned value.

    >>> _describe(torch.zeros(2, 3)), _describe([1.0, 2.0]), _describe("x"), _describe(None)
    ('a tensor [2, 3]', 'a list of 2', "the str 'x'", 'None')
    """
    if isinstance(value, Tensor):
        return f"a tensor {list(value.shape)}"
    if isinstance(value, list | tuple):
        return f"a {type(value).__name__} of {len(value)}"
    if value is None or isinstance(value, int | float):
        return repr(value)
    return f"the {type(value).__name__} {repr(value)[:60]}"
