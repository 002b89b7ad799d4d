"""Checkpoints: the model as a Hugging Face folder, its optimizer, and the rest as JSON; and the
thread that writes them while training continues."""

import json
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from safetensors import SafetensorError

from whet.errors import DataError, WhetError
from whet.train.learner import Learner
from whet.train.policy import Policy, TrainableModel
from whet.types import Json, read_integer, read_number
from whet.world import get_world

STATE, OTHERS = "state.json", "others"
OtherPolicies = Mapping[str, tuple[Policy, Learner]]
"""Policies that train beside the first, by name, with their learners."""


def read_numbers(state: Json) -> dict[str, float]:
    """Read numbers by name from a checkpoint's state; empty if there are none."""
    rows = state.items() if isinstance(state, dict) else ()
    return {name: read_number(value) for name, value in rows}


def save_training_state(
    folder: Path,
    policy: TrainableModel,
    learner: Learner,
    state: dict[str, Json],
    other_policies: OtherPolicies | None = None,
) -> None:
    """Write the whole training state; random state follows from seed and step.

    Each other policy has a folder that is itself a checkpoint. Ranks call this together, for the
    same folder.
    """
    policy.save(folder)
    learner.save(folder)
    if get_world().is_rank_zero:
        (folder / STATE).write_text(
            json.dumps(state | {"optimizer_steps": learner.num_optim_steps})
        )
    for name, (other_policy, other_learner) in (other_policies or {}).items():
        other_folder = folder / OTHERS / name
        other_folder.mkdir(parents=True, exist_ok=True)
        save_training_state(other_folder, other_policy, other_learner, {})


def load_training_state(
    folder: Path,
    policy: TrainableModel,
    learner: Learner,
    other_policies: OtherPolicies | None = None,
) -> dict[str, Json]:
    """Load weights and optimizer in place; return the state."""
    policy.load(folder)
    try:
        state: dict[str, Json] = json.loads((folder / STATE).read_text())
        learner.load(folder, read_integer(state["optimizer_steps"]))
    except (OSError, SafetensorError, KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"checkpoint {folder} cannot be read ({error}); delete it to use the one before"
        ) from error
    for name, (other_policy, other_learner) in (other_policies or {}).items():
        load_training_state(folder / OTHERS / name, other_policy, other_learner)
    return state


@dataclass(frozen=True, slots=True, kw_only=True)
class _Write:
    name: str
    result: Future[None]
    finish: Callable[[], None]


class BackgroundWriter:
    """Writes in a thread, one thing at a time. All ranks call its methods together."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix="writer")
        self._pending: _Write | None = None

    def start(
        self, name: str, write: Callable[[], None], finish: Callable[[], None] = lambda: None
    ) -> None:
        """Wait for the previous write, then start another; errors call it `name`.

        `write` runs in the thread and exchanges nothing with other ranks. `finish` may; it runs in
        a later call, once all ranks have written, and makes the files visible.
        """
        self.wait()
        self._pending = _Write(name=name, result=self._pool.submit(write), finish=finish)

    def check(self) -> None:
        """Finish a write that has ended on all ranks, or raise its error; called every step."""
        if self._pending is None:
            return
        is_done = get_world().all_gather(self._pending.result.done(), "a write in the background")
        if all(is_done):
            self.wait()

    def wait(self) -> None:
        """Wait until all ranks have written, and finish the write or raise its error."""
        pending = self._pending
        self._pending = None
        if pending is None:
            return
        reason = None
        try:
            pending.result.result()
        except WhetError as error:
            reason = str(error)
        for other in get_world().all_gather(reason, f"the end of writing {pending.name}"):
            if other is not None:
                raise DataError(f"{pending.name} was not written: {other}")
        pending.finish()
