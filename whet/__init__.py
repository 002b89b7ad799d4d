"""whet sharpens the reasoning of language models on problems whose answers can be checked."""

from difflib import get_close_matches
from importlib import import_module
from typing import TYPE_CHECKING

from whet.environment import avoid_broken_amx, keep_sums_in_order, limit_thread_spinning

if TYPE_CHECKING:
    from whet.library import generate, grade, load_policy, read_run, sample, solve, task
    from whet.rewards.spec import RewardSpec
    from whet.train.settings import TrainConfig

__all__ = [
    "RewardSpec",
    "TrainConfig",
    "generate",
    "grade",
    "load_policy",
    "read_run",
    "sample",
    "solve",
    "task",
]

_SETTINGS = {"RewardSpec": "whet.rewards.spec", "TrainConfig": "whet.train.settings"}
"""Settings that are offered here and live elsewhere; everything else is in `whet.library`."""

limit_thread_spinning()
keep_sums_in_order()
avoid_broken_amx()


def __getattr__(name: str) -> object:
    """Load the library on first use, so that `import whet` itself loads nothing heavy (PEP 562)."""
    if name not in __all__:
        close = get_close_matches(name, __all__, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else ""
        raise AttributeError(f"module 'whet' has no attribute {name!r}{hint}")
    return getattr(import_module(_SETTINGS.get(name, "whet.library")), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not, for completion in a notebook."""
    return __all__
