"""Several processes as ranks of one world, started by torchrun: objects over gloo, tensors over
NCCL or gloo.

No rank waits forever. A rank that does not answer within `cluster.timeout` ends the run with a
sentence that names it; torchrun notices a rank that dies.
"""

import copy
import os
import pickle
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar
from uuid import uuid4

import torch
from torch import distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.rendezvous import rendezvous

from whet.errors import ConfigError, TrainError, WhetError
from whet.track.progress import console, printer
from whet.world import ClusterConfig, World, get_world, set_world

T = TypeVar("T")
POLL_SECONDS = 0.02
"""How often a rank checks for the result of rank 0."""
_COLLECTIVE = re.compile("gloo|NCCL|[Tt]imed out|[Cc]onnection (closed|reset|refused)")
"""Phrases by which errors of a collective are recognised."""
REPORT_SECONDS = 5.0
"""How long ranks that noticed a timeout wait for each other's report."""


class RankWorld(World):
    """The ranks that torchrun started, including this process."""

    def __init__(self, cluster: ClusterConfig) -> None:
        self.rank = int(os.environ["RANK"])
        self.size = int(os.environ["WORLD_SIZE"])
        self.timeout = cluster.timeout
        deadline = timedelta(seconds=cluster.timeout)
        shared, _, _ = next(rendezvous("env://", timeout=deadline))
        start = _agree_on_start(shared, self.rank, self.size, cluster.timeout)
        dist.init_process_group(
            _backend(),
            store=PrefixStore(start, shared),
            rank=self.rank,
            world_size=self.size,
            timeout=deadline,
        )
        self._objects = dist.new_group(backend="gloo", timeout=deadline)
        self._store = dist.distributed_c10d._get_default_store()
        self._num_firsts = 0
        self._acting: str | None = None
        self._last = "the start"
        self.hosts = self.all_gather(socket.gethostname(), "the start")
        self.is_restarted = self.run_on_rank_zero(lambda: shared.add("starts", 1), "the start") > 1
        self.configure(cluster)

    def configure(self, cluster: ClusterConfig) -> None:
        """Group the ranks by the stage's settings: copies of the model, and shards of each copy."""
        self.sequence_size = cluster.sequence_parallel
        self.shard_size = cluster.shard or self.size
        for name, count in (("shard", self.shard_size), ("sequence_parallel", self.sequence_size)):
            if self.size % count:
                raise ConfigError(
                    f"cluster.{name} = {count} does not divide {self.size} ranks: set it to one "
                    f"of {_list_divisors(self.size)}"
                )
        self.dp_size = self.size // self.sequence_size
        self.dp_rank = self.rank // self.sequence_size
        self.mesh = self._build_mesh()
        self.shard_group = self.mesh.get_group(self.mesh.ndim - 1)
        self.sequence_group = self._build_groups(self.sequence_size)

    def for_thread(self) -> "RankWorld":
        other = copy.copy(self)
        other._objects = dist.new_group(backend="gloo", timeout=timedelta(seconds=self.timeout))
        other._store = PrefixStore("thread", self._store)
        return other

    def _build_groups(self, count: int) -> dist.ProcessGroup | None:
        """Group consecutive ranks by `count`; return this rank's group, None if it is alone."""
        groups = [
            dist.new_group(list(range(start, start + count)))
            for start in range(0, self.size if count > 1 else 0, count)
        ]
        return groups[self.rank // count] if groups else None

    def _build_mesh(self) -> DeviceMesh:
        device = "cuda" if torch.cuda.is_available() else "cpu"
        if self.shard_size == self.size:
            return init_device_mesh(device, (self.size,))
        copies = self.size // self.shard_size
        names = ("replicate", "shard")
        return init_device_mesh(device, (copies, self.shard_size), mesh_dim_names=names)

    def all_gather(self, part: T, tag: str) -> list[T]:
        self._check_together(tag)
        if self.size == 1:
            return [part]
        self._last = tag
        parts: list[tuple[str, T]] = [(tag, part)] * self.size
        try:
            dist.all_gather_object(parts, (tag, part), group=self._objects)
        except RuntimeError as error:
            raise self.explain(error) or error from None
        for rank, (place, _) in enumerate(parts):
            if place != parts[0][0]:
                raise TrainError(
                    f"the ranks are not at the same place: rank 0 is at {parts[0][0]!r}, rank "
                    f"{rank} on {self.hosts[rank]} at {place!r}; resume from the last checkpoint, "
                    "and check that all nodes have the same files and versions"
                )
        return [mine for _, mine in parts]

    def run_on_rank_zero(self, act: Callable[[], T], tag: str) -> T:
        """Run a function on rank 0. Other ranks wait on a store, not in a collective, while rank 0
        is alive."""
        self._check_together(tag)
        self._last = tag
        self._num_firsts += 1
        key = f"first/{self._num_firsts}"
        if not self.is_rank_zero:
            theirs: T = self._await_first(key, tag)
            return theirs
        result: T | None = None
        failure: Exception | None = None
        with self._heartbeat(key):
            self._acting = tag
            try:
                result = act()
            except Exception as error:
                failure = error
            finally:
                self._acting = None
        is_ours = failure is None or isinstance(failure, WhetError)
        shared = failure if is_ours else TrainError(f"the first rank failed: {failure}")
        self._store.set(key, pickle.dumps((tag, result, shared)))  # type: ignore[arg-type]
        if failure is not None:
            raise failure
        return result  # type: ignore[return-value]

    def _check_together(self, tag: str) -> None:
        assert self._acting is None, (
            f"the first rank is alone at {self._acting!r}, so that {tag!r} would wait for ranks "
            "that wait for it"
        )

    def _await_first(self, key: str, tag: str) -> Any:
        beat = -1
        heard = time.monotonic()
        while not self._store.check([key]):
            now = self._store.add(f"{key}/beats", 0)
            if now != beat:
                beat = now
                heard = time.monotonic()
            if time.monotonic() - heard > self.timeout:
                raise TrainError(self._describe_silent([0], tag))
            time.sleep(POLL_SECONDS)
        place, result, failure = pickle.loads(self._store.get(key))  # noqa: S301 - rank 0 wrote it
        if failure is not None:
            raise failure
        if place != tag:
            raise TrainError(
                f"the ranks are not at the same place: rank 0 is at {place!r}, rank {self.rank} "
                f"on {self.hosts[self.rank]} at {tag!r}; resume from the last checkpoint"
            )
        return result

    @contextmanager
    def _heartbeat(self, key: str) -> Iterator[None]:
        """Show other ranks that this one is alive while it works alone."""
        done = threading.Event()

        def beat() -> None:
            while not done.wait(min(self.timeout / 4, 5.0)):
                self._store.add(f"{key}/beats", 1)

        thread = threading.Thread(target=beat, daemon=True)
        thread.start()
        try:
            yield
        finally:
            done.set()
            thread.join()

    def explain(self, error: Exception) -> TrainError | None:
        """Name the ranks that caused a failed collective: those that do not report it themselves.

        Returns None for any other error.
        """
        if not isinstance(error, dist.DistError) and not _COLLECTIVE.search(str(error)):
            return None
        self._store.set(f"heard/{self.rank}", self._last)
        time.sleep(min(self.timeout, REPORT_SECONDS))
        silent = [r for r in range(self.size) if not self._store.check([f"heard/{r}"])]
        reason = str(error).partition("\n")[0]
        if not silent:
            return TrainError(f"the ranks lost each other at {self._last!r} ({reason})")
        return TrainError(self._describe_silent(silent, self._last))

    def _describe_silent(self, ranks: list[int], tag: str) -> str:
        names = ", ".join(f"{rank} on {self.hosts[rank]}" for rank in ranks)
        return (
            f"rank {names} did not answer within {self.timeout:g} s, or died, while the others "
            f"were at {tag!r}: look at its log; the same command with --resume continues from the "
            "last checkpoint. If it was only slow, raise cluster.timeout"
        )


def _agree_on_start(store: Store, rank: int, size: int, wait: float) -> str:
    """Agree with the other ranks on a name for this start, which prefixes their shared keys.

    torchrun keeps one store for all starts, and it still holds the addresses of dead processes.
    Nodes may count starts differently, so each rank chooses a name, and the first rank combines
    them into one.
    """
    own = uuid4().hex
    store.set(f"rank/{rank}", own)
    deadline = time.monotonic() + wait
    while time.monotonic() < deadline:
        keys = [f"rank/{other}" for other in range(size)]
        if rank == 0 and store.check(keys):
            store.set("start", ".".join(store.get(key).decode() for key in keys))
        start = store.get("start").decode() if store.check(["start"]) else ""
        if own in start.split("."):
            store.set(f"{start}/{rank}", "here")
            if rank == 0 and store.check([f"{start}/{other}" for other in range(size)]):
                store.set(f"{start}/all", "here")
            if store.check([f"{start}/all"]):
                return start
        time.sleep(POLL_SECONDS)
    raise TrainError(
        f"not all of {size} ranks started within {wait:g} s: look at the logs of the others; if "
        "they were only slow, raise cluster.timeout"
    )


def _backend() -> str:
    """Choose NCCL if every rank of this node has its own GPU, else gloo."""
    local = int(os.environ.get("LOCAL_RANK", "0"))
    count = torch.cuda.device_count()
    if not count:
        return "gloo"
    torch.cuda.set_device(local % count)
    has_own = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) <= count
    return "cpu:gloo,cuda:nccl" if has_own else "cpu:gloo,cuda:gloo"


def _list_divisors(size: int) -> str:
    return ", ".join(str(count) for count in range(1, size + 1) if size % count == 0)


@contextmanager
def joined_ranks(cluster: ClusterConfig, *, is_forced: bool = False) -> Iterator[None]:
    """Join the ranks that torchrun started for the duration of a run; a single process stays alone.

    `is_forced` makes even a single rank use torch.distributed.
    """
    size = int(os.environ.get("WORLD_SIZE", "1"))
    if "RANK" not in os.environ or (size == 1 and not is_forced):
        yield
        return
    before = get_world()
    world = RankWorld(cluster)
    set_world(world)
    console.quiet = printer.quiet = not world.is_rank_zero
    try:
        yield
        # After an error the other ranks are elsewhere, and the process ends anyway.
        dist.destroy_process_group()
    finally:
        set_world(before)
