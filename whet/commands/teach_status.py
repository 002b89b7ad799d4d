"""`whet teach status`: the progress of a run's shards, from the files that they write."""

import time
from pathlib import Path

from whet.errors import DataError, visible
from whet.store.run import RunStore
from whet.store.teach_progress import TeachProgress, read_teach_progress
from whet.track.progress import printer

COLUMNS = (
    "shard",
    "state",
    "answers",
    "kept",
    "failed",
    "per second",
    "time left",
    "tokens",
    "cost",
    "host",
)


def print_status(folder: Path) -> None:
    """Print a line for each shard that has started, and the total; name the others."""
    progress, missing = read_shards(folder)
    now = time.time()
    rows = [list(COLUMNS)]
    for name, row in progress.items():
        rows.append([name, *_cells(row, state_of(row, now), row.host)])
    if len(progress) > 1:
        rows.append(["all", *_cells(_add_up(list(progress.values()), now), "", "")])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for cells in rows:
        line = "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
        printer.print(visible(line.rstrip()), markup=False)
    if missing:
        printer.print(f"not begun: {', '.join(missing)}")
    ended = [n for n, row in progress.items() if row.is_dead(now) or row.state == "stopped"]
    if ended:
        printer.print(
            f"dead or stopped: {', '.join(ended)}; start each again, on any machine, with --resume "
            "and its --shard"
        )


def read_shards(folder: Path) -> tuple[dict[str, TeachProgress], list[str]]:
    """Read the progress of a run or of its shards, and list the shards that have not started."""
    shards = sorted(RunStore(folder, lock=None).shard_folder.glob("*-of-*"))
    by_name = {path.name: read_teach_progress(path) for path in shards} or {
        "-": read_teach_progress(folder)
    }
    progress = {name: row for name, row in by_name.items() if row is not None}
    if not progress:
        raise DataError(f"{folder} has no teach run that asks a model or a server")
    if not shards:
        return progress, []
    width, count = len(shards[0].name.partition("-")[0]), int(shards[0].name.rpartition("-")[2])
    names = [f"{number:0{width}d}-of-{count:0{width}d}" for number in range(1, count + 1)]
    return progress, [name for name in names if name not in progress]


def state_of(row: TeachProgress, now: float) -> str:
    """Describe the state of a shard; one that stopped writing is dead."""
    return f"dead for {_duration(now - row.time)}" if row.is_dead(now) else row.state


def _add_up(rows: list[TeachProgress], now: float) -> TeachProgress:
    alive = [row for row in rows if row.state == "running" and not row.is_dead(now)]
    return TeachProgress(
        wanted=sum(row.wanted for row in rows),
        done=sum(row.done for row in rows),
        failed=sum(row.failed for row in rows),
        kept=sum(row.kept for row in rows),
        prompt_tokens=sum(row.prompt_tokens for row in rows),
        tokens=sum(row.tokens for row in rows),
        cost=sum(row.cost for row in rows),
        rate=sum(row.rate for row in alive),
        state="running" if alive else "stopped",
    )


def _cells(row: TeachProgress, state: str, host: str) -> list[str]:
    return [
        state,
        f"{row.done:,}/{row.wanted:,}",
        f"{row.kept:,}",
        f"{row.failed:,}",
        f"{row.rate:.2f}" if row.state == "running" else "",
        _duration(row.left) if row.state == "running" else "",
        f"{row.tokens:,}",
        f"{row.cost:,.2f}" if row.cost else "",
        host,
    ]


def _duration(seconds: float) -> str:
    """Write seconds in readable units.

    >>> _duration(59), _duration(3700), _duration(float("inf"))
    ('59 s', '1 h 1 min', '?')
    """
    if seconds == float("inf"):
        return "?"
    minutes = int(seconds) // 60
    if minutes >= 60:
        return f"{minutes // 60:,} h {minutes % 60} min"
    return f"{minutes} min" if minutes else f"{seconds:.0f} s"
