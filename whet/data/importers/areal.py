"""AReaL's rows, which RLinf trains on: a ready prompt with the marks of a chat template, and boxed
solutions."""

import re

from whet.data.importers import code
from whet.data.importers.base import (
    Draft,
    Fields,
    Format,
    layout,
    one_of,
    optional_text,
    row_id,
    table,
    text,
    texts,
)
from whet.data.importers.chats import messages
from whet.data.importers.math import unboxed
from whet.types import Json, Message

TASKS = ("math", "code")

_MARKS = re.compile(
    r"<[|｜](?:begin[_▁]of[_▁]sentence|User|Assistant|im_start|im_end)[|｜]>(?:user\n|assistant\n)?"
)
_OPENED = re.compile(r"\s*<think>\s*$")


def areal(row: Fields) -> Draft:
    """Take off the template's marks: a problem's prompt stands before any template."""
    task = one_of("task", text(row, "task"), TASKS) if "task" in row else "math"
    value = row["prompt"]
    id = row_id(row, "query_id")
    prompt = messages(value, "prompt") if isinstance(value, list) else (_bare(text(row, "prompt")),)
    if task == "code":
        tests = table(row, "input_output")
        starter = optional_text(row, "starter_code")
        return code.in_and_out(prompt[-1].content, tests, starter, id)
    solutions = [unboxed(solution) for solution in texts(row, "solutions")]
    payload: dict[str, Json] = {"answers": list[Json](solutions)} if len(solutions) > 1 else {}
    return Draft(task="math", prompt=prompt, answer=solutions[0], payload=payload, source_id=id)


def _bare(prompt: str) -> Message:
    return Message(role="user", content=_OPENED.sub("", _MARKS.sub("", prompt)).strip())


FORMATS: dict[str, Format] = {
    "areal": layout(
        "AReaL's rows",
        areal,
        "prompt",
        "task query_id solutions input_output starter_code source",
        split="rl",
    ),
}
