"""Tasks by name, problems by hand, and small graphs whose optima one can see."""

from whet.tasks.task_config import build_task, read_task_config
from whet.types import Message, Problem

NP_HARD = ("tsp", "ged", "mcp", "mis", "mvc", "mcs")
POLYNOMIAL = ("neighbor", "distance", "connected", "diameter")
NUMBERED = ("graphwiz", "nlgraph")
ALL = NP_HARD + POLYNOMIAL + NUMBERED


def task(name, **given):
    return build_task(read_task_config({"name": name, **given}))


def asked(name, payload, answer=None):
    prompt = (Message(role="user", content="?"),)
    return Problem(
        id=f"{name}/0",
        task=name,
        prompt=prompt,
        answer=answer,
        payload=payload,
        level=None,
        split="test",
        source="test",
    )


SQUARE = [["A", "B", 1], ["B", "C", 1], ["C", "D", 1], ["A", "D", 1], ["A", "C", 3], ["B", "D", 3]]
PATH = {"nodes": ["A", "B", "C", "D"], "edges": [["A", "B"], ["B", "C"], ["C", "D"]]}
KITE = {"nodes": ["A", "B", "C", "D"], "edges": [["A", "B"], ["B", "C"], ["A", "C"], ["C", "D"]]}
