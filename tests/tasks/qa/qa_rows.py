"""Problems of the question tasks, made by hand and from the benchmark files."""

import json
import random
import re
from pathlib import Path

import pytest

from whet.types import Json, Message, Problem, content_id

DATA = Path(__file__).parents[3] / ".." / "shared" / "data"
needs_data = pytest.mark.skipif(not DATA.exists(), reason="../shared/data is not here")

Row = dict[str, Json]


def problem(task: str, answer: str | None, **payload: Json) -> Problem:
    return Problem(
        id=content_id(task, [answer, payload]),
        task=task,
        prompt=(Message(role="user", content="What is asked?"),),
        answer=answer,
        payload=payload,
        level=None,
        split="test",
        source="made",
    )


def read(name: str) -> list[Row]:
    return [
        json.loads(line)
        for line in (DATA / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    ]


def choices(name: str) -> list[Problem]:
    """Read a multiple-choice file; rows that ask for something else are left out."""
    return [
        problem("choice", answer, **payload)
        for row in read(name)
        for answer, payload in _choice(name, row)
    ]


def _choice(name: str, row: Row) -> list[tuple[str, dict[str, Json]]]:
    options: Json = None
    if name == "aqua":
        answer, options = row["correct"], {text[0]: text[2:] for text in _texts(row["options"])}
    elif name == "mmlu_stem":
        assert isinstance(row["answer"], int)
        answer, options = "ABCD"[row["answer"]], row["choices"]
    elif name == "sat_math":
        parts = re.split(r"(?:^| )([A-D])[).] ", str(row["options"]))[1:]
        answer, options = row["Answer"], dict(zip(parts[::2], parts[1::2], strict=True))
    elif name == "gaokao_math_qa":
        answer, options = row["label"], row["options"]
    elif name == "bbh_logic":
        answer = row["target"] if str(row["target"]).startswith("(") else ""
        options = dict(re.findall(r"\(([A-G])\) (.*)", str(row["input"])))
    else:
        answer = row["choice_answer"]
    return [(str(answer), {} if options is None else {"options": options})] if answer else []


def _texts(value: Json) -> list[str]:
    return [str(text) for text in value] if isinstance(value, list) else []


def fuzz(seed: int, count: int, words: list[str]) -> list[str]:
    """Write random texts of answer-like pieces that commit to nothing but rubbish."""
    rng = random.Random(seed)
    pieces = [
        *words,
        "\\boxed{",
        "}",
        "<answer>",
        "</answer>",
        "<think>",
        "</think>",
        "\n",
        " ",
        "$",
        "**",
        "(",
        ")",
    ]
    pieces += [
        "The answer is ",
        "Answer:",
        "%",
        "\\frac{",
        "-",
        ",",
        "|",
        "é",
        "\x00",
        "￿",
        "答案是",
        "or",
        "not",
    ]
    return ["".join(rng.choices(pieces, k=rng.randrange(30))) for _ in range(count)]
