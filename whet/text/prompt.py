"""How a problem is put to a model: a system prompt, a template, worked examples, and options of the
chat template. The same for whoever reads the problem; graders see the problem itself."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from pydantic import Field, JsonValue, field_validator, model_validator

from whet.config import Config
from whet.errors import DataError
from whet.types import Json, Message, Problem

FIELD = re.compile(r"\{(question|payload\.[\w-]+)\}")
"""The fields of a template. Other braces, as in \\boxed{}, are text."""
RESERVED = ("messages", "add_generation_prompt")
"""Variables of a chat template that are no options."""
VERIFICATION = "verify"
"""The task of a verifier's problems, which are put as that task writes them."""
MAX_BYTES = 10_000_000
"""Of a file of examples."""


class PromptExample(Config):
    """A worked example: a question, and the answer that a model should give."""

    question: str
    """The question, which goes through the template."""
    answer: str
    """The whole response."""


class PromptConfig(Config):
    """How problems are put to the model; by default as their own messages.

    >>> cfg = PromptConfig(template="{question} Put the answer into \\\\boxed{}.")
    >>> cfg.wrap([Message(role="user", content="1 + 1?")])[0].content
    '1 + 1? Put the answer into \\\\boxed{}.'
    """

    left_out_by_default: ClassVar[bool] = True

    system: str | None = None
    """A system prompt in place of the problem's own; empty removes that one."""
    template: str | None = None
    """The user's message: a text with {question} for the problem's own, and {payload.NAME} for
    values of its payload. All other braces are text."""
    examples: tuple[PromptExample, ...] = ()
    """Worked examples before the question, as turns of user and assistant: a list of tables with
    question and answer, or a file of JSON lines with these."""
    chat_options: dict[str, JsonValue] = Field(default={})
    """Options of the chat template by name, such as enable_thinking = false."""
    differs: bool = False
    """Allow another prompt than that of the runs whose model or answers this stage starts from."""

    @field_validator("examples", mode="before")
    @classmethod
    def _read_examples(cls, given: object) -> object:
        return _read_pairs(Path(given)) if isinstance(given, str) else given

    @field_validator("chat_options")
    @classmethod
    def _check_options(cls, options: dict[str, JsonValue]) -> dict[str, JsonValue]:
        for name in RESERVED:
            if name in options:
                raise ValueError(f"{name} is no option: every prompt sets it")
        return options

    @model_validator(mode="after")
    def _check_template(self) -> "PromptConfig":
        if self.template is None:
            return self
        fields = set(FIELD.findall(self.template))
        if not fields:
            raise ValueError("template should hold {question}, where the text of a problem goes")
        if self.examples and fields != {"question"}:
            raise ValueError(
                f"examples have no payload, and template reads {{{max(fields - {'question'})}}}: "
                "leave out one of the two"
            )
        return self

    def is_same(self, other: "PromptConfig") -> bool:
        """Whether both put every problem in the same words."""
        return self._words() == other._words()

    def describe(self) -> str:
        """Name what is set, in one line."""
        return json.dumps(self._words(), ensure_ascii=False) if self._words() else "none"

    def _words(self) -> dict[str, Json]:
        return self.model_dump(mode="json", exclude={"differs"}, exclude_defaults=True)

    def apply(self, problem: Problem) -> tuple[Message, ...]:
        """Write the messages that a model sees. Verifications keep their own words."""
        if problem.task == VERIFICATION:
            return problem.prompt
        try:
            return self.wrap(problem.prompt, problem.payload)
        except DataError as error:
            raise DataError(f"problem {problem.id}: {error}") from error

    def wrap(
        self, messages: Sequence[Message], payload: Mapping[str, Json] | None = None
    ) -> tuple[Message, ...]:
        """Write messages as `apply` does those of a problem."""
        turns = list(messages)
        system = [turns.pop(0)] if turns and turns[0].role == "system" else []
        if self.system is not None:
            system = [Message(role="system", content=self.system)] if self.system else []
        shots = []
        for example in self.examples:
            shots.append(Message(role="user", content=self._fill(example.question, {})))
            shots.append(Message(role="assistant", content=example.answer))
        if self.template is not None:
            if not turns or turns[-1].role != "user":
                raise DataError("prompt.template needs a last message of the user")
            turns[-1] = Message(role="user", content=self._fill(turns[-1].content, payload or {}))
        return (*system, *shots, *turns)

    def _fill(self, question: str, payload: Mapping[str, Json]) -> str:
        def look_up(match: re.Match[str]) -> str:
            name = match[1].removeprefix("payload.")
            if match[1] == "question":
                return question
            value = payload.get(name)
            if value is None:
                known = ", ".join(payload) or "nothing"
                raise DataError(
                    f"prompt.template reads {match[0]}, and the payload has no {name}: {known}"
                )
            return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)

        return question if self.template is None else FIELD.sub(look_up, self.template)


NO_PROMPT = PromptConfig()
"""The problem's own messages."""


def _read_pairs(file: Path) -> list[Json]:
    """Read a file of examples: a JSON object on each line."""
    try:
        if file.stat().st_size > MAX_BYTES:
            raise ValueError(f"{file} has more than {MAX_BYTES:,} bytes")
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeError) as error:
        raise ValueError(f"{file} cannot be read: {error}") from error
    rows: list[Json] = []
    for number, line in enumerate(lines, start=1):
        if line.strip():
            try:
                row: Json = json.loads(line)
            except (ValueError, RecursionError) as error:
                raise ValueError(f"line {number} of {file} is not JSON: {error}") from error
            if not isinstance(row, dict) or not {"question", "answer"} <= row.keys():
                raise ValueError(f"line {number} of {file} should have a question and an answer")
            rows.append({"question": row["question"], "answer": row["answer"]})
    if not rows:
        raise ValueError(f"{file} has no examples")
    return rows
