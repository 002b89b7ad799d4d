"""What came out: medians and spread as a table for people, and one JSON line for programs."""

import json
from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table

from speed.children import Record, Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One side's figures over its rounds."""

    name: str
    is_default: bool
    tokens_per_s: float
    seconds: float
    fastest: float
    slowest: float
    first_seconds: float
    start_seconds: float
    fraction_of_limit: float
    rounds: int
    more: Row
    """Medians of whatever else the side measured, in seconds or as it says."""

    def to_row(self) -> dict[str, object]:
        return {
            "name": self.name,
            "is_default": self.is_default,
            "tokens_per_s": self.tokens_per_s,
            "seconds": self.seconds,
            "spread": [self.fastest, self.slowest],
            "rounds": self.rounds,
            "first_seconds": self.first_seconds,
            "start_seconds": self.start_seconds,
            "fraction_of_limit": self.fraction_of_limit,
            **self.more,
        }


def figures(record: Record, limit_seconds: float) -> Figures:
    """Take medians over rounds; the first round is warm-up and stands apart."""
    seconds = [row["seconds"] for row in record.rounds]
    typical = median(seconds)
    names = {name for row in [record.warm_up, *record.rounds] for name in row} - {
        "seconds",
        "tokens",
    }
    rows = [record.warm_up, *record.rounds]
    return Figures(
        name=record.side.name,
        is_default=record.side.is_default,
        tokens_per_s=record.rounds[0]["tokens"] / typical,
        seconds=typical,
        fastest=min(seconds),
        slowest=max(seconds),
        first_seconds=record.warm_up["seconds"],
        start_seconds=record.start_seconds,
        fraction_of_limit=limit_seconds / typical,
        rounds=len(seconds),
        more={
            name: median([row[name] for row in rows[1:] if name in row] or [rows[0][name]])
            for name in sorted(names)
        },
    )


def show(
    title: str,
    sides: list[Figures],
    failures: list[Record],
    limit_seconds: float,
    recorded: list[str],
) -> None:
    table = Table(title=title, title_justify="left")
    for name in (
        "side",
        "tokens/s",
        "seconds (median)",
        "fastest to slowest",
        "first round",
        "of the limit",
        "ours is",
    ):
        table.add_column(name, justify="left" if name == "side" else "right")
    for side in sides:
        table.add_row(
            f"{side.name} (default)" if side.is_default else side.name,
            f"{side.tokens_per_s:,.0f}",
            f"{side.seconds:.3f}",
            f"{side.fastest:.3f} to {side.slowest:.3f}",
            f"{side.first_seconds:.2f}",
            f"{100 * side.fraction_of_limit:.1f} %",
            "" if side is sides[0] else f"{side.seconds / sides[0].seconds:.2f} ×",
        )
    console = Console(width=140)
    console.print(table)
    console.print(f"limit of the hardware: {limit_seconds:.3f} s")
    for record in failures:
        console.print(f"{record.side.name}: failed: {record.failure}", markup=False)
    for line in recorded:
        console.print(line)


def to_json(result: dict[str, object]) -> str:
    return json.dumps(result)
