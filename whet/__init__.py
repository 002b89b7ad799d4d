"""whet sharpens the reasoning of language models on problems whose answers can be checked."""

from importlib import import_module
from typing import TYPE_CHECKING

from whet.environment import avoid_broken_amx, keep_sums_in_order, share_cores

if TYPE_CHECKING:
    from whet.library import grade, read_run, task

__all__ = ["grade", "read_run", "task"]

share_cores()
keep_sums_in_order()
avoid_broken_amx()


def __getattr__(name: str) -> object:
    """Load the library on first use, so that `import whet` itself loads nothing heavy (PEP 562)."""
    if name not in __all__:
        raise AttributeError(f"module 'whet' has no attribute {name!r}")
    return getattr(import_module("whet.library"), name)
