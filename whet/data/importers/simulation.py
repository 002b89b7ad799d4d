"""What a program does: CRUXEval and CodeI/O, each asked in both directions."""

import json
from dataclasses import replace
from functools import partial

from whet.data.importers.base import (
    Draft,
    Fields,
    Format,
    items,
    layout,
    optional_text,
    row_id,
    text,
    user,
)
from whet.data.importers.code import as_problem
from whet.errors import DataError
from whet.tasks.code import codeio, cruxeval
from whet.tasks.code.cruxeval import Direction
from whet.types import Json

ASKED: dict[Direction, str] = {
    "output": "Without running it, say what it gives for this input. End with the output as JSON in a fenced block.",
    "input": "Find an input that gives this output. End with its arguments as a JSON object in a fenced block.",
}


def read_cruxeval(direction: Direction, row: Fields) -> Draft:
    for name in ("code", "input", "output"):
        text(row, name)
    problem = cruxeval.problem_of({**row, "id": row.get("id", "")}, direction)
    return Draft(
        task="cruxeval",
        prompt=problem.prompt,
        answer=problem.answer,
        payload=problem.payload,
        id=problem.id,
        source_id=row_id(row, "id"),
        unsupported=cruxeval.unsupported_reason(problem),
    )


def read_codeio(direction: Direction, row: Fields) -> Draft:
    """A row has several pairs of input and output; the first is asked about."""
    pairs = items(row, "ios")
    if not pairs or not isinstance(pairs[0], dict) or not {"input", "output"} <= pairs[0].keys():
        raise DataError("field 'ios' should be a list of objects with input and output")
    given: Json = pairs[0]["output" if direction == "input" else "input"]
    payload: dict[str, Json] = {"program": text(row, "refcode"), "direction": direction, **pairs[0]}
    if row.get("funcname"):
        payload["entry"] = text(row, "funcname")
    shown = json.dumps(given, ensure_ascii=False)
    draft = Draft(
        task="codeio",
        prompt=user(
            text(row, "problem_description"),
            optional_text(row, "io_requirements"),
            f"```python\n{text(row, 'refcode').strip()}\n```",
            f"The {'output' if direction == 'input' else 'input'} is: {shown}",
            ASKED[direction],
        ),
        answer=json.dumps(pairs[0][direction], ensure_ascii=False),
        payload=payload,
        source_id=row_id(row, "id"),
    )
    return replace(draft, unsupported=codeio.unsupported_reason(as_problem(draft)))


_CRUX: tuple[str, str] = ("code input output", "id")
_CODEIO: tuple[str, str] = (
    "problem_description refcode ios",
    "io_requirements funcname id source category meta",
)

FORMATS: dict[str, Format] = {
    "cruxeval_i": layout("CRUXEval, find the input", partial(read_cruxeval, "input"), *_CRUX),
    "cruxeval_o": layout("CRUXEval, tell the output", partial(read_cruxeval, "output"), *_CRUX),
    "codeio_i": layout(
        "CodeI/O, find the input", partial(read_codeio, "input"), *_CODEIO, split="rl"
    ),
    "codeio_o": layout(
        "CodeI/O, tell the output", partial(read_codeio, "output"), *_CODEIO, split="rl"
    ),
}
