"""Answers to imitate in files of the user's own: rows of `messages`, or of `prompt` and `response`.

They need no import: `data = "chats.jsonl"` of a training stage reads them as they are. A column
`verdict` (correct, wrong, ...) or `correct` (true or false) says which of them are right.
"""

from dataclasses import replace
from pathlib import Path

from whet.data.import_rows import AnsweredProblems
from whet.data.importers.base import Fields, ParsedRow
from whet.data.importers.mapped import Mapped
from whet.data.row_files import SourceRow, iterate_rows
from whet.errors import DataError
from whet.types import Rollout, Verdict

PROMPTS = ("prompt", "system", "id", "model")
RESPONSES = ("response", "responses", "completion")
FORMS = "messages, or prompt and response"


def read_answer_rows(file: Path) -> list[Rollout]:
    """Read every row as answers to one prompt; a row that cannot be read is named by its line."""
    rollouts: list[Rollout] = []
    answered = AnsweredProblems()
    for row in iterate_rows(file):
        try:
            parsed = _parse(row)
            problem = parsed.to_problem(
                split="sft", override="sft", source=file.name, location=row.location
            )
        except DataError as error:
            raise DataError(f"{file} {row.location} {error}") from error
        rollouts += answered.add(problem, parsed.answers)
    if not rollouts:
        raise DataError(f"{file} has no rows: give a file with rows of {FORMS}")
    return rollouts


def is_answer_file(columns: list[str]) -> bool:
    """Tell rows of answers from a file of rollouts, by the names of its columns."""
    return "messages" in columns or ("prompt" in columns and bool({*RESPONSES} & {*columns}))


def _parse(row: SourceRow) -> ParsedRow:
    fields = Fields(row.fields)
    response = next((name for name in RESPONSES if fields.get(name) is not None), None)
    names = [name for name in PROMPTS if fields.get(name) is not None]
    columns = {name: name for name in names}
    if fields.get("messages") is not None:
        columns = {name: name for name in ("messages", *names) if name != "prompt"}
    elif response is None or "prompt" not in columns:
        raise DataError(f"should hold {FORMS}; its columns are {', '.join(row.fields) or 'none'}")
    else:
        columns["responses" if response == "responses" else "response"] = response
    parsed = Mapped(columns=columns, task=None).parse(fields)
    is_good = _read_verdict(fields)
    return replace(parsed, answers=tuple(replace(a, is_good=is_good) for a in parsed.answers))


def _read_verdict(fields: Fields) -> bool | None:
    verdict = fields.get("verdict")
    if verdict is not None:
        if verdict not in list(Verdict):
            raise DataError(f"has the verdict {verdict!r}; known are {', '.join(Verdict)}")
        return verdict == Verdict.CORRECT
    correct = fields.get("correct")
    if correct is None or isinstance(correct, bool):
        return correct
    raise DataError(f"has {correct!r} for `correct`, which should be true or false")
