"""Shards of a lesson: each answers every n-th problem in a run folder of its own, on any machine.

The shard that ends last gathers the answers of all in the folder above theirs.
"""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from whet.config import Config
from whet.errors import ConfigError, DataError
from whet.recipes.teachers import TRANSPORT
from whet.store.files import atomic_path
from whet.store.run import RolloutSet, RunStore
from whet.track.progress import say
from whet.types import Json

T = TypeVar("T")
MAY_DIFFER = tuple(f"teacher.{key}" for key in TRANSPORT)
TOTALS = ("problems", "answers", "traces", "failed", "prompt_tokens", "tokens", "cost")


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """One of `count` equal parts, numbered from 1."""

    number: int
    count: int

    @staticmethod
    def parse(text: str) -> "Shard":
        """Read a shard.

        >>> Shard.parse("3/64")
        Shard(number=3, count=64)
        """
        match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
        if match is None or not 1 <= int(match[1]) <= int(match[2]):
            raise ValueError("should be like 3/64, the third of 64 shards")
        return Shard(number=int(match[1]), count=int(match[2]))

    @property
    def name(self) -> str:
        return f"{self.number:03d}-of-{self.count:03d}"

    def take(self, items: Sequence[T]) -> list[T]:
        """Take every `count`-th item, from this shard's first.

        >>> Shard(number=2, count=3).take([1, 2, 3, 4, 5])
        [2, 5]
        """
        return list(items[self.number - 1 :: self.count])


def shard_folders(folder: Path) -> list[tuple[Shard, Path]]:
    """List the shards that have begun in a run folder, in order."""
    paths = RunStore(folder, lock=None).shard_folder.glob("*-of-*")
    found = [(re.fullmatch(r"(\d+)-of-(\d+)", path.name), path) for path in paths]
    shards = [(Shard(number=int(m[1]), count=int(m[2])), path) for m, path in found if m]
    return sorted(shards, key=lambda row: (row[0].count, row[0].number))


def check_count(folder: Path, shard: Shard) -> None:
    """Refuse a shard of another count than those that are there."""
    others = [other.count for other, _ in shard_folders(folder) if other.count != shard.count]
    if others:
        raise ConfigError(
            f"{folder} has shards of {others[0]}, not of {shard.count}: "
            "give the same count, or choose another folder"
        )


def check_no_shards(folder: Path) -> None:
    """Refuse to answer everything next to shards that are at work."""
    shards = shard_folders(folder)
    if shards and not RunStore(folder, lock=None).is_finished:
        raise ConfigError(
            f"{folder} has shards of {shards[0][0].count}: give --shard to continue one, "
            "or choose another folder"
        )


def gather(folder: Path, config: Config, shard: Shard) -> None:
    """Make one run of all shards, once each is finished; only one process does it."""
    shards = [RunStore(path, lock=None) for _, path in shard_folders(folder)]
    if len(shards) < shard.count or not all(run.is_finished for run in shards):
        return
    inputs = {
        str([row["files"] for row in run.events() if row["event"] == "inputs"]) for run in shards
    }
    if len(inputs) > 1:
        raise DataError(f"the shards in {folder} have read different problems: begin again")
    try:
        run = RunStore.open(folder, config, {}, resume=True, ignore=MAY_DIFFER)
    except ConfigError as error:
        say(f"the shards are not gathered here: {error}")
        return
    with run:
        if run.is_finished:
            return
        names: tuple[RolloutSet, ...] = ("train", "rejected")
        for name in names:
            files = [
                one.rollout_file(name, step) for one in shards for step in one.rollout_steps(name)
            ]
            for number, file in enumerate(files):
                with atomic_path(run.rollout_file(name, number)) as new:
                    shutil.copyfile(file, new)
        summaries = [one.summary() for one in shards]
        totals: dict[str, Json] = {
            key: sum(n for row in summaries if isinstance(n := row.get(key), int | float))
            for key in TOTALS
        }
        run.finish(totals | {"shards": len(shards)})
        say(f"all {shard.count} shards are finished; their answers are in {folder}")
