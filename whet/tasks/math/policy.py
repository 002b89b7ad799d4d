"""What counts as the same answer where mathematicians differ: percent signs, units, order, names,
rounding."""

from dataclasses import dataclass
from typing import Literal

Percent = Literal["unit", "value", "both"]
Units = Literal["agree", "ignore", "same"]
Order = Literal["free", "fixed"]
Names = Literal["drop", "keep"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """The settings of `MathConfig` that comparing needs; see there for their meaning."""

    percent: Percent = "unit"
    units: Units = "agree"
    order: Order = "free"
    names: Names = "drop"
    rounded_digits: int = 6
    tolerance: float = 0.0
    error: float = 0.0
